"""The kinds of answer that a benchmark asks for: what they look like, when two are the same, how a reader finds one.

Each kind's `find` is the lenient reading: what a forgiving human would take from whatever was said.
"""

import re
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

LETTERS = string.ascii_uppercase

# The words that announce an answer; the last announcement in a completion counts, as reasoning comes first.
_LEAD_IN = re.compile(r"\b(?:answer|result|reply|option|choice)\b[*_\"']*(?:\s+is)?\s*[:=]?[*_\s]*", re.IGNORECASE)
_DECORATION = "*_`\"'“”‘’[](){}<>$\\ \t"


class AnswerKind(Protocol):
    """What may stand in a format's template, and when two answers are the same."""

    @property
    def placeholder(self) -> str:
        """The word that stands for the answer in an instruction: `LETTER`, `NUMBER`."""
        ...

    def pattern(self, choices: Sequence[str]) -> str:
        """A regular expression, without groups, for one answer."""
        ...

    def write(self, value: object) -> str:
        """A gold value of the data as a model should answer it."""
        ...

    def normalize(self, answer: str) -> str:
        """The form in which answers are compared."""
        ...

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """The answer that a forgiving reader would take from `text`, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Letter:
    """One option's letter. Strict: upper case, and one of the letters on offer."""

    placeholder: str = "LETTER"

    def pattern(self, choices: Sequence[str]) -> str:
        return f"[{LETTERS[: len(choices)] or LETTERS}]"

    def write(self, value: object) -> str:
        return str(value).strip()

    def normalize(self, answer: str) -> str:
        return answer.strip().upper()

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """An option announced by its text, else a letter announced, boxed or set apart in front, else an option named.

        A letter must be a word of its own: "Let's" gives no L, and "A cat" no A, as no mark sets it apart.
        """
        letters = LETTERS[: len(choices)] or LETTERS
        # A small letter before another word is an article or a pronoun: "answer: a dog".
        letter = rf"([{letters}](?![\w'’])|[{letters.lower()}](?!\s*[\w'’]))"
        opening = r"[*_`\"'(\[{$]*"
        said = _plain(_announced(text))
        as_option = [place for place, choice in enumerate(choices) if len(said) > 1 and _plain(choice) == said]
        if as_option:
            return LETTERS[as_option[0]]
        announced = re.findall(rf"(?i:{_LEAD_IN.pattern}(?:\\boxed\s*)?){opening}{letter}", text)
        boxed = re.findall(rf"\\boxed\s*\{{\s*\(?{letter}\)?\s*\}}", text)
        alone = re.findall(rf"^\s*{opening}{letter}(?=[)\]}}*_`\"'$.:,]|\s*$)", text)
        for found in (announced, boxed, alone):
            if found:
                return str(found[-1]).upper()
        option = Option().find(text, choices)
        return None if option is None else LETTERS[list(choices).index(option)]


@dataclass(frozen=True, slots=True)
class Option:
    """The text of one option, copied out exactly."""

    placeholder: str = "TEXT OF THE OPTION"

    def pattern(self, choices: Sequence[str]) -> str:
        # Longest first: an option may be the beginning of another.
        return "|".join(re.escape(choice) for choice in sorted(choices, key=len, reverse=True)) or ".+"

    def write(self, value: object) -> str:
        return str(value).strip()

    def normalize(self, answer: str) -> str:
        return " ".join(answer.split())

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """The option that the answer's text is, or else the only one (or the one farthest back) named in it."""
        said = _plain(_announced(text))
        for choice in choices:
            if _plain(choice) == said:
                return choice
        plain_text = f" {_plain(text)} "
        named = []
        for choice in choices:
            start = plain_text.rfind(f" {_plain(choice)} ")
            if start >= 0 and _plain(choice):
                # By its end, then its length: an option inside a longer one that ends there was not meant by itself.
                named.append((start + len(_plain(choice)), len(_plain(choice)), choice))
        return max(named)[2] if named else None


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal number; `-5`, `1,234`, `$18` and `18.00` compare by value."""

    placeholder: str = "NUMBER"

    def pattern(self, choices: Sequence[str]) -> str:
        return r"-?\d+(?:\.\d+)?"

    def write(self, value: object) -> str:
        # A float's own text may have an exponent, or a .0 that nobody would answer.
        return self.normalize(format(Decimal(repr(value)), "f") if isinstance(value, float) else str(value))

    def normalize(self, answer: str) -> str:
        match = re.search(_NUMBER, answer)
        if match is None:
            return answer.strip()
        # By hand, as Decimal's own normalisation rounds to 28 digits.
        digits = match.group().replace(",", "").replace("−", "-")
        sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
        whole, _, fraction = digits.partition(".")
        plain = ".".join(part for part in (whole.lstrip("0") or "0", fraction.rstrip("0")) if part)
        return plain if plain == "0" else sign + plain

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """The last announced number, else the last number of all."""
        announced = re.findall(rf"{_LEAD_IN.pattern}[*_`\"'(\[{{$<]*({_NUMBER})", text, re.I)
        numbers = announced or re.findall(_NUMBER, text)
        return self.normalize(numbers[-1]) if numbers else None


@dataclass(frozen=True, slots=True)
class ShortText:
    """A name or a few words; case, accents, punctuation and articles do not count."""

    placeholder: str = "ANSWER"

    def pattern(self, choices: Sequence[str]) -> str:
        return r"[^\n]*?\S"

    def write(self, value: object) -> str:
        return " ".join(str(value).split())

    def normalize(self, answer: str) -> str:
        return _plain(answer)

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """The first line that says something, without its lead-in ("The capital is ...") and decorations."""
        announced = _announced(text)
        line = next((line for line in announced.splitlines() if _plain(line)), None)
        if line is None:
            return None
        if announced == text:
            line = re.split(r"\b(?:is|are|was)\b|[:=]", line)[-1] or line
        return line.strip(_DECORATION + ".,;:!?") or None


@dataclass(frozen=True, slots=True)
class YesNo:
    """Yes or no."""

    placeholder: str = "yes/no"

    def pattern(self, choices: Sequence[str]) -> str:
        return "yes|no"

    def write(self, value: object) -> str:
        """Also of true and false, as Booleans or as words; another value is left as it is, for the check to refuse."""
        text = str(value).strip()
        return {"true": "yes", "false": "no"}.get(text.casefold(), text)

    def normalize(self, answer: str) -> str:
        return answer.strip().casefold()

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """The last announced word, else the one that opens the text, else the last of all; true and false count too."""
        word = r"\b(yes|no|true|false)\b"
        announced = re.findall(rf"{_LEAD_IN.pattern}[*_`\"'(\[{{$<]*{word}", text, re.I)
        opening = re.findall(rf"^\W*{word}", text, re.I)
        found = announced or opening or re.findall(word, text, re.I)
        return self.write(found[-1].casefold()) if found else None


@dataclass(frozen=True, slots=True)
class Pattern:
    """Whatever a regular expression of the user's matches, such as `[A-Z]{3}`; compared as it is."""

    regex: str
    placeholder: str = "ANSWER"

    def pattern(self, choices: Sequence[str]) -> str:
        # The user's groups must not be counted among ours.
        return re.sub(r"(?<!\\)\((?!\?)", "(?:", self.regex)

    def write(self, value: object) -> str:
        return str(value).strip()

    def normalize(self, answer: str) -> str:
        return answer.strip()

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """The last match, as a word of its own."""
        found = re.findall(rf"(?<!\w)(?:{self.pattern(choices)})(?!\w)", text)
        return found[-1] if found else None


LETTER, OPTION, NUMBER, SHORT_TEXT, YES_NO = Letter(), Option(), Number(), ShortText(), YesNo()

# A minus counts as a sign only where nothing that could be subtracted from stands before it: "5-3" holds 5 and 3.
_NUMBER = r"(?:(?<![\w)])[-−])?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"


def _announced(text: str) -> str:
    """What follows the last lead-in such as "Answer:", or all of `text` where there is none."""
    ends = [lead_in.end() for lead_in in _LEAD_IN.finditer(text)]
    return text[ends[-1] :] if ends and text[ends[-1] :].strip() else text


def _plain(text: str) -> str:
    """`text` in lower case without accents, punctuation, articles and doubled spaces (as SQuAD compares answers)."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(
        " " if unicodedata.category(char)[0] in "PSZ" or char.isspace() else char
        for char in decomposed
        if not unicodedata.combining(char)
    )
    words = [word for word in kept.split() if word not in ("a", "an", "the")]
    return " ".join(words or kept.split())
