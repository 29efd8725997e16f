r"""Answer formats: the form in which a benchmark wants its answer.

One value writes the instruction, renders the tuning target and parses the completion, so that the three can't drift
apart. A format is a template around the answer and the kind of answer that it holds:

    AnswerFormat("sentence_letter", "The answer is ({answer}).", LETTER)

The strict parser takes the whole completion, from its first character to its last (surrounding white space aside), and
asks for exactly the template; where reasoning may come first, for a last line of exactly the template. The lenient one
looks for an answer in whatever was said: see each kind's `find`.

Templates and patterns may be a user's, and completions are a model's: patterns have a time limit, and what is looked
for in a text of n characters takes time in proportion to n.
"""

import bisect
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from softbench.answer_kinds import LETTER, NUMBER, OPTION, SHORT_TEXT, YES_NO, AnswerKind
from softbench.errors import TaskError, did_you_mean
from softbench.patterns import find_each, fullmatch

ANSWER_GROUP = "softbench_answer"
MOST_READ = 100_000
"""Characters of a completion that are looked at, from its end; a longer one has no form but that of a last line."""


class AnswerForm(Protocol):
    """What a task needs of its answer format: AnswerFormat is softbench's own."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    @property
    def template(self) -> str:
        """How an answer looks, for people."""
        ...

    @property
    def reads_cut_text(self) -> bool:
        """Whether an answer counts that stands in a completion which the token limit cut off."""
        ...

    def instruction(self) -> str:
        """The sentence that tells a model which form to use."""
        ...

    def render(self, answer: str, reasoning: str = "") -> str:
        """The completion that a model should give."""
        ...

    def content(self, answer: str, reasoning: str = "") -> tuple[tuple[int, int], ...]:
        """The parts [begin, end) of what `render` writes that carry the answer, and not its form."""
        ...

    def parse(self, text: str, choices: Sequence[str] = ()) -> str | None:
        """The answer, where `text` has the form; else None."""
        ...

    @property
    def lenient_includes_strict(self) -> bool:
        """Whether an answer that is right strictly counts as right leniently, whatever `find` takes."""
        ...

    def find_all(self, text: str, choices: Sequence[str] = ()) -> list[str]:
        """Every answer in the form anywhere in `text`."""
        ...

    def find(self, text: str, choices: Sequence[str] = ()) -> str | None:
        """The answer that a forgiving reader would take."""
        ...

    def normalize(self, answer: str) -> str:
        """The form in which answers are compared."""
        ...

    def is_right(self, answer: str | None, accepted: Sequence[str]) -> bool:
        """Whether `answer` is one of `accepted`."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """A template around one answer, such as `The answer is ({answer}).`.

    `quoting` says how an answer is written inside the template: as it is, or escaped as in a JSON string. `reasoning`
    lets free text come before the template, which then has the last line for itself.
    """

    name: str
    template: str
    kind: AnswerKind
    quoting: Literal["plain", "json"] = "plain"
    reasoning: bool = False

    @property
    def reads_cut_text(self) -> bool:
        """Never: the form ends a completion."""
        return False

    @property
    def lenient_includes_strict(self) -> bool:
        """Always: a reader who forgives takes what the strict one does."""
        return True

    def __post_init__(self) -> None:
        if self.template.count("{answer}") != 1 or "\n" in self.template:
            raise TaskError(
                f"answer format {self.name!r}: template {self.template!r} must be one line with {{answer}} exactly once"
            )

    def instruction(self) -> str:
        """The sentence that tells a model which form to use."""
        form = self.template.replace("{answer}", self.kind.placeholder)
        if self.reasoning:
            return f"Reason step by step, then end with a line of exactly this form: {form}"
        return f"Reply in exactly this form: {form}"

    def render(self, answer: str, reasoning: str = "") -> str:
        """The completion that a model should give, without the space that parts it from the prompt."""
        form = self.template.replace("{answer}", self._quote(answer))
        return f"{reasoning}\n{form}" if reasoning else form

    def content(self, answer: str, reasoning: str = "") -> tuple[tuple[int, int], ...]:
        """Where reasoning and answer stand in what `render` writes, as [begin, end)."""
        begin = self.template.index("{answer}") + (len(reasoning) + 1 if reasoning else 0)
        spans = ((0, len(reasoning)), (begin, begin + len(self._quote(answer))))
        return spans if reasoning else spans[1:]

    def parse(self, text: str, choices: Sequence[str] = ()) -> str | None:
        """The answer, where the whole of `text` has the format's form, once; else None.

        After reasoning, the last line is what must have it. What is accepted is what `render` writes, to the letter.
        """
        form = text.strip()
        if self.reasoning:
            form = form.rpartition("\n")[2].strip()
        if len(form) > MOST_READ:
            return None
        match = fullmatch(self._pattern(choices), form)
        # A text that goes on can be told from a long answer only where something stands after the answer.
        open_ended = self.template.endswith("{answer}") and not self.reasoning
        if match is None or (not open_ended and len(self.find_all(text, choices)) > 1):
            return None
        answer = self._unquote(match[ANSWER_GROUP])
        return answer if answer is not None and self.render(answer) == form else None

    def find_all(self, text: str, choices: Sequence[str] = ()) -> list[str]:
        """Every answer given in the format's form anywhere in `text`, in order; no part of a word is an answer.

        After reasoning, and where the form is the answer alone, only what has a line of its own counts: every sentence
        would else hold one.
        """
        text = text[-MOST_READ:]
        before, after = self.template.split("{answer}")
        if self.reasoning or self.template == "{answer}":
            pattern = self._pattern(choices)
            matches = [fullmatch(pattern, line.strip()) for line in text.splitlines()]
            written = [match[ANSWER_GROUP] for match in matches if match]
        elif self.kind.fills_its_line:
            written = [one for line in text.split("\n") for one in _between(before, after, line)]
        else:
            bounded = ("" if before else r"(?<!\w)") + self._pattern(choices) + ("" if after else r"(?!\w)")
            written = [match[ANSWER_GROUP] for match in find_each(bounded, text)]
        unquoted = [self._unquote(one) for one in written]
        return [one for one in unquoted if one is not None]

    def find(self, text: str, choices: Sequence[str] = ()) -> str | None:
        """The answer that a forgiving reader would take: the last one in the right form, else what the kind finds."""
        # Where the form is the answer alone, a line's having it says little: "Answer: Paris" is a line, too.
        if self.template == "{answer}" and not self.reasoning:
            return self.kind.find(text[-MOST_READ:], choices)
        strict = self.parse(text, choices)
        if strict is not None:
            return strict
        well_formed = self.find_all(text, choices)
        return well_formed[-1] if well_formed else self.kind.find(text[-MOST_READ:], choices)

    def normalize(self, answer: str) -> str:
        """The form in which answers are compared."""
        return self.kind.normalize(answer)

    def is_right(self, answer: str | None, accepted: Sequence[str]) -> bool:
        """Whether `answer` equals one of `accepted` once both are normalised."""
        if answer is None:
            return False
        return self.kind.normalize(answer) in {self.kind.normalize(one) for one in accepted}

    def _pattern(self, choices: Sequence[str]) -> str:
        before, after = self.template.split("{answer}")
        answer = self.kind.pattern([self._quote(choice) for choice in choices])
        # A named group: the answer's own pattern, a user's perhaps, may have groups.
        return f"{re.escape(before)}(?P<{ANSWER_GROUP}>{answer}){re.escape(after)}"

    def _quote(self, answer: str) -> str:
        return json.dumps(answer, ensure_ascii=False)[1:-1] if self.quoting == "json" else answer

    def _unquote(self, written: str) -> str | None:
        if self.quoting == "plain":
            return written
        try:
            return str(json.loads(f'"{written}"'))
        except ValueError:
            return None


def _between(before: str, after: str, line: str) -> list[str]:
    """What stands between `before` and the next `after`, or the line's end where that is empty, again and again.

    It ends in no space; where nothing comes before it, it begins with no part of a word. In time that grows as the line
    does, whatever is in it: a pattern that says the same looks from every `before` to the line's end.
    """
    ends = [len(line.rstrip())]
    if after:
        ends, place = [], line.find(after)
        while place >= 0:
            if place and not line[place - 1].isspace():
                ends.append(place)
            place = line.find(after, place + 1)
    found: list[str] = []
    start = _next_start(before, line, 0)
    while start is not None:
        begin = start + len(before)
        after_it = bisect.bisect_right(ends, begin)
        if after_it == len(ends):
            break
        found.append(line[begin : ends[after_it]])
        start = _next_start(before, line, ends[after_it] + len(after))
    return found


def _next_start(before: str, line: str, start: int) -> int | None:
    """The first place from `start` at which `before` stands, or where that is empty, at which no word goes on."""
    if before:
        place = line.find(before, start)
        return place if place >= 0 else None
    return next((place for place in range(start, len(line)) if not (place and _is_of_word(line[place - 1]))), None)


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char == "_"


_NAMED: dict[str, tuple[str, AnswerKind | None]] = {
    "sentence_letter": ("The answer is ({answer}).", LETTER),
    "letter": ("{answer}", LETTER),
    "option_text": ("{answer}", OPTION),
    # Nothing follows the option: many options end in a full stop of their own, which a small model drops or doubles
    # where the form wants a mark behind it.
    "sentence_option": ("The right option is: {answer}", OPTION),
    "json": ('{"answer": "{answer}"}', None),
    "hash_number": ("#### {answer}", NUMBER),
    "boxed": (r"\boxed{{answer}}", None),
    "yes_no": ("{answer}", YES_NO),
    "short_text": ("{answer}", SHORT_TEXT),
}
"""Template, and the kind of answer that it is for; None: any."""

ANSWER_FORMATS = tuple(_NAMED)


def answer_format(name: str, kind: AnswerKind, reasoning: bool = False) -> AnswerFormat:
    """The format called `name` for answers of `kind`; a name that holds `{answer}` is a template of the user's own.

    Raises TaskError where the name is unknown, or its answers are of another kind.
    """
    if "{answer}" in name:
        digest = hashlib.sha256(name.encode()).hexdigest()[:6]
        return AnswerFormat(f"custom-{digest}", name, kind, reasoning=reasoning)
    if name not in _NAMED:
        raise TaskError(
            f"answer format {name!r} is unknown{did_you_mean(name, _NAMED)}; or a template such as 'Answer: {{answer}}'"
        )
    template, fits = _NAMED[name]
    if fits not in (None, kind):
        fitting = ", ".join(fitting_formats(kind))
        raise TaskError(f"answer format {name!r} is not for an answer of kind {kind.placeholder}; those are: {fitting}")
    return AnswerFormat(name, template, kind, "json" if name == "json" else "plain", reasoning)


def fitting_formats(kind: AnswerKind) -> list[str]:
    """The names of the formats that answers of `kind` can be given in."""
    return [name for name, (_, fits) in _NAMED.items() if fits in (None, kind)]
