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

from softbench.patterns import find_each

LETTERS = string.ascii_uppercase

# The words that announce an answer; the last announcement in a completion counts, as reasoning comes first. What is
# repeated is never given back (`*+`): trying again with less of it would take time as the square of a text's length.
_AFTER_LEAD_IN = r"\b[*_\"']*+(?:\s++is)?\s*+[:=]?[*_\s]*+"
_ANSWER_LEAD_IN = re.compile(rf"\b(?:answer|result|reply){_AFTER_LEAD_IN}", re.IGNORECASE)
_OPTION_LEAD_IN = re.compile(rf"\b(?:option|choice){_AFTER_LEAD_IN}", re.IGNORECASE)
_LEAD_IN = re.compile(rf"\b(?:answer|result|reply|option|choice){_AFTER_LEAD_IN}", re.IGNORECASE)
_DECORATION = "*_`\"'“”‘’[](){}<>$\\ \t"


class AnswerKind(Protocol):
    """What may stand in a format's template, and when two answers are the same."""

    @property
    def placeholder(self) -> str:
        """The word that stands for the answer in an instruction: `LETTER`, `NUMBER`."""
        ...

    @property
    def fills_its_line(self) -> bool:
        """Whether an answer goes on to the end of its line where nothing in the template closes it."""
        ...

    def pattern(self, choices: Sequence[str]) -> str:
        """A regular expression for one answer."""
        ...

    def write(self, value: object) -> str:
        """A gold value of the data as a model should answer it. Raises ValueError where it is no such answer."""
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
    fills_its_line: bool = False

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
        opening = r"[*_`\"'(\[{$]*+"
        said = _announced(text)
        as_option = _option_meant(said, choices)
        if as_option is not None and len(_plain(said)) > 1:
            return LETTERS[as_option]
        announced, named = (
            re.findall(rf"(?i:{lead_in.pattern}(?:\\boxed\s*+)?){opening}{letter}", text)
            for lead_in in (_ANSWER_LEAD_IN, _OPTION_LEAD_IN)
        )
        boxed = re.findall(rf"\\boxed\s*\{{\s*\(?{letter}\)?\s*\}}", text)
        alone = re.findall(rf"^\s*{opening}{letter}(?=[)\]}}*_`\"'$.:,]|\s*$)", text)
        # "Option A" may be named to be rejected: what is said to be the answer comes first.
        for found in (announced, boxed, alone, named):
            if found:
                return str(found[-1]).upper()
        option = Option().find(text, choices)
        return None if option is None else LETTERS[list(choices).index(option)]


@dataclass(frozen=True, slots=True)
class Option:
    """The text of one option, copied out exactly."""

    placeholder: str = "TEXT OF THE OPTION"
    fills_its_line: bool = False

    def pattern(self, choices: Sequence[str]) -> str:
        # Longest first: an option may be the beginning of another.
        return "|".join(re.escape(choice) for choice in sorted(choices, key=len, reverse=True)) or "(?!)"

    def write(self, value: object) -> str:
        return str(value).strip()

    def normalize(self, answer: str) -> str:
        return " ".join(answer.split())

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """The option that the answer's text is, or else the only one (or the one farthest back) named in it."""
        meant = _option_meant(_announced(text), choices)
        if meant is not None:
            return choices[meant]
        plain_text = f" {_plain(text)} "
        plain = [_plain(choice) for choice in choices]
        named = []
        for choice in choices:
            start = plain_text.rfind(f" {_plain(choice)} ")
            if start >= 0 and plain.count(_plain(choice)) == 1:
                # By its end, then its length: an option inside a longer one that ends there was not meant by itself.
                named.append((start + len(_plain(choice)), len(_plain(choice)), choice))
        return max(named)[2] if named else None


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal number; `-5`, `1,234`, `$18` and `18.00` compare by value."""

    placeholder: str = "NUMBER"
    fills_its_line: bool = False

    def pattern(self, choices: Sequence[str]) -> str:
        return r"-?\d+(?:\.\d+)?"

    def write(self, value: object) -> str:
        # A float's own text may have an exponent, or a .0 that nobody would answer.
        text = format(Decimal(repr(value)), "f") if isinstance(value, float) else str(value).strip()
        if re.fullmatch(rf"-?\$?{_NUMBER}%?\.?", text) is None:
            raise ValueError(f"{text!r} is no decimal number")
        return self.normalize(text.replace("$", ""))

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
        announced = re.findall(rf"{_LEAD_IN.pattern}[*_`\"'(\[{{$<]*+({_NUMBER})", text, re.I)
        numbers = announced or re.findall(_NUMBER, text)
        return self.normalize(numbers[-1]) if numbers else None


@dataclass(frozen=True, slots=True)
class ShortText:
    """A name or a few words; case, accents, punctuation and articles do not count."""

    placeholder: str = "ANSWER"
    fills_its_line: bool = True

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
    fills_its_line: bool = False

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
        word = r"\b(not\s+)?(yes|no|true|false)\b"
        announced = re.findall(rf"{_LEAD_IN.pattern}[*_`\"'(\[{{$<]*+{word}", text, re.I)
        opening = re.findall(rf"^\W*{word}", text, re.I)
        found = announced or opening or re.findall(word, text, re.I)
        if not found:
            return None
        negated, last = found[-1]
        said = self.write(last.casefold())
        return {"yes": "no", "no": "yes"}[said] if negated else said


@dataclass(frozen=True, slots=True)
class Pattern:
    """Whatever a regular expression of the user's matches, such as `[A-Z]{3}`; compared as it is."""

    regex: str
    placeholder: str = "ANSWER"
    fills_its_line: bool = False

    def pattern(self, choices: Sequence[str]) -> str:
        return self.regex

    def write(self, value: object) -> str:
        return str(value).strip()

    def normalize(self, answer: str) -> str:
        return answer.strip()

    def find(self, text: str, choices: Sequence[str]) -> str | None:
        """The last match, as a word of its own."""
        found = find_each(rf"(?<!\w)(?:{self.regex})(?!\w)", text)
        return str(found[-1].group()) if found else None


LETTER, OPTION, NUMBER, SHORT_TEXT, YES_NO = Letter(), Option(), Number(), ShortText(), YesNo()

# A minus counts as a sign only where nothing that could be subtracted from stands before it: "5-3" holds 5 and 3.
_NUMBER = r"(?:(?<![\w)])[-−])?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"


def _announced(text: str) -> str:
    """What follows the last lead-in such as "Answer:", or all of `text` where there is none."""
    ends = [lead_in.end() for lead_in in _LEAD_IN.finditer(text)]
    return text[ends[-1] :] if ends and text[ends[-1] :].strip() else text


def _option_meant(said: str, choices: Sequence[str]) -> int | None:
    """The place of the option that `said` is: to the letter, or else in plain words that no other option shares."""
    exact = said.strip().rstrip(".")
    for place, choice in enumerate(choices):
        if choice.strip().rstrip(".") == exact:
            return place
    plain = [_plain(choice) for choice in choices]
    found = _plain(said)
    return plain.index(found) if plain.count(found) == 1 else None


# Marks that tell answers apart: a minus, a decimal point, "C#" and "C++".
_TELLING = re.compile(r"(?<!\w)[-−](?=\.?\d)|(?<=\d)\.(?=\d)|(?<=[\w+#])[+#]")


def _plain(text: str) -> str:
    """`text` in lower case without accents, punctuation, articles and doubled spaces (as SQuAD compares answers).

    Marks that tell answers apart stay; a text of nothing but marks is left as it is.
    """
    decomposed = unicodedata.normalize("NFKD", text.casefold()).replace("−", "-")
    telling = {match.start() for match in _TELLING.finditer(decomposed)}
    kept = "".join(
        " " if place not in telling and (unicodedata.category(char)[0] in "PSZ" or char.isspace()) else char
        for place, char in enumerate(decomposed)
        if not unicodedata.combining(char)
    )
    words = [word for word in kept.split() if word not in ("a", "an", "the")]
    return " ".join(words or kept.split()) or " ".join(text.split())
