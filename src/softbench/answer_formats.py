r"""Answer formats: the form in which a benchmark wants its answer.

One value writes the instruction, renders the tuning target and parses the completion, so that the three can't drift
apart. A format is a template around the answer and the kind of answer that it holds:

    AnswerFormat("sentence_letter", "The answer is ({answer}).", LETTER)

The strict parser takes the whole completion, from its first character to its last (surrounding white space aside), and
asks for exactly the template. The lenient one looks for an answer in whatever was said: see each kind's `find`.
"""

import re
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

LETTERS = string.ascii_uppercase

# The words that announce an answer; the last announcement in a completion counts, as reasoning comes first.
_LEAD_IN = re.compile(r"\b(?:answer|result|reply|option|choice)\b[*_]*(?:\s+is)?\s*[:=]?[*_\s]*", re.IGNORECASE)
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


LETTER, OPTION, NUMBER, SHORT_TEXT = Letter(), Option(), Number(), ShortText()

# A minus counts as a sign only where nothing that could be subtracted from stands before it: "5-3" holds 5 and 3.
_NUMBER = r"(?:(?<![\w)])[-−])?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """A template around one answer, such as `The answer is ({answer}).`."""

    name: str
    template: str
    kind: AnswerKind

    def __post_init__(self) -> None:
        if self.template.count("{answer}") != 1:
            raise ValueError(f"format {self.name!r}: template {self.template!r} must hold {{answer}} exactly once")

    def instruction(self) -> str:
        """The sentence that tells a model which form to use."""
        return f"Reply in exactly this form: {self.render(self.kind.placeholder)}"

    def render(self, answer: str) -> str:
        """The completion that a model should give, without the space that parts it from the prompt."""
        return self.template.replace("{answer}", answer)

    def parse(self, text: str, choices: Sequence[str] = ()) -> str | None:
        """The answer, where the whole of `text` has the format's form, once; else None."""
        match = re.fullmatch(self._pattern(choices), text.strip())
        if match is None or (self._is_closed and len(self.find_all(text, choices)) > 1):
            return None
        return match.group(1)

    def find_all(self, text: str, choices: Sequence[str] = ()) -> list[str]:
        """Every answer given in the format's form anywhere in `text`, in order; no part of a word is an answer."""
        before, after = self.template.split("{answer}")
        bounded = ("" if before else r"(?<!\w)") + self._pattern(choices) + ("" if after else r"(?!\w)")
        return [str(answer) for answer in re.findall(bounded, text)]

    def find(self, text: str, choices: Sequence[str] = ()) -> str | None:
        """The answer that a forgiving reader would take: the last one in the right form, else what the kind finds."""
        well_formed = self.find_all(text, choices)
        return well_formed[-1] if well_formed else self.kind.find(text, choices)

    def is_right(self, answer: str | None, accepted: Sequence[str]) -> bool:
        """Whether `answer` equals one of `accepted` once both are normalised."""
        if answer is None:
            return False
        return self.kind.normalize(answer) in {self.kind.normalize(one) for one in accepted}

    @property
    def _is_closed(self) -> bool:
        """Whether something stands after the answer, so that a text that goes on can be told from a long answer."""
        return not self.template.endswith("{answer}")

    def _pattern(self, choices: Sequence[str]) -> str:
        before, after = self.template.split("{answer}")
        return f"{re.escape(before)}({self.kind.pattern(choices)}){re.escape(after)}"


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
