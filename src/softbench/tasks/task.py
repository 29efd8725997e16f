"""What a benchmark is: its data, its prompt, its answer format and its formulation."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from softbench.answer_formats import AnswerForm
from softbench.answer_kinds import LETTERS
from softbench.errors import SpecError, TaskError
from softbench.tasks.expressions import ExpressionError, render
from softbench.types import ChatSettings, ChatTemplate, Formulation, Message, Prompt, Sample, Split

Splits = Mapping[Split, Sequence[Sample]]


@dataclass(frozen=True)
class Task:
    """A benchmark in one formulation.

    `instruction` and the answer format's own open every prompt (neither does where it is empty); `question` is the
    Jinja template of one sample, given the sample's `fields` and `choices` (pairs of letter and text). It ends where
    the answer begins, without a space. `load` takes the data root (None where none was given) and returns the samples
    of each split, before any cleaning. `same_if` names the fields that make two samples the same question (none: all).
    `premise` is what stands before an answer where there is no question, for pointwise mutual information ("": none).
    `write_prompts`, where it is set, takes samples, a number of shots and a seed, and writes whole prompts in place of
    all that.
    """

    name: str
    formulation: Formulation
    instruction: str
    question: str
    answer_format: AnswerForm
    stop: tuple[str, ...]
    max_new_tokens: int
    load: Callable[[Path | None], Splits]
    source: str
    licence: str
    same_if: tuple[str, ...] = ()
    premise: str = ""
    write_prompts: Callable[[Sequence[Sample], int, int], list[Prompt]] | None = None

    @property
    def description(self) -> str:
        """What opens every prompt: what to do, and the form in which to answer."""
        return f"{self.instruction} {self.answer_format.instruction()}" if self.instruction else ""

    @property
    def generates(self) -> bool:
        """Whether completions are asked for: under cf only the options' log-likelihoods are."""
        return self.formulation != "cf"

    @property
    def template_hash(self) -> str:
        """Hash of everything that shapes a prompt or its parsing: equal hashes mean comparable results."""
        shape = [self.name, self.formulation, self.instruction, self.question, repr(self.answer_format), self.stop]
        return hashlib.sha256(json.dumps([*shape, self.max_new_tokens]).encode()).hexdigest()[:16]


SHOT_SEPARATOR = "\n\n"


def render_prompt(task: Task, sample: Sample, shots: Sequence[Sample] = ()) -> Prompt:
    """The prompt for `sample`: description, then each shot with its target, then the question.

    Raises TaskError where the template fails, or asks for something that the sample does not have.
    """
    blocks = [task.description] if task.description else []
    blocks += [_render_question(task, shot) + _target(task, shot) for shot in shots]
    blocks.append(_render_question(task, sample))
    # The space goes before the answer, not after the prompt: " Paris" is one token where "Paris" is another.
    return Prompt(
        sample_id=sample.id,
        text=SHOT_SEPARATOR.join(blocks),
        target=_target(task, sample),
        continuations=tuple(" " + task.answer_format.render(answer) for answer in choice_answers(task, sample)),
        content=_content(task, sample, " "),
    )


def render_chat_prompt(
    task: Task, sample: Sample, shots: Sequence[Sample], template: ChatTemplate, settings: ChatSettings
) -> Prompt:
    """The prompt for `sample` as a conversation, its target what the assistant should say.

    A soft prompt stands where it does in a plain prompt: behind BOS, before the whole conversation.
    """
    messages: list[Message] = []
    if settings.system_instruction:
        messages.append({"role": "system", "content": settings.system_instruction})
    if settings.fewshot_as_multiturn:
        opening = [task.description] if task.description else []
        for shot in shots:
            messages.append({"role": "user", "content": SHOT_SEPARATOR.join([*opening, _render_question(task, shot)])})
            messages.append({"role": "assistant", "content": _target(task, shot).strip()})
            opening = []
        messages.append({"role": "user", "content": SHOT_SEPARATOR.join([*opening, _render_question(task, sample)])})
    else:
        messages.append({"role": "user", "content": render_prompt(task, sample, shots).text})
    text = template.render(messages, open_reply=True)
    reply = _target(task, sample).strip()
    prefix = settings.assistant_prefix.rstrip(" ")
    if prefix and reply.startswith(prefix):
        raise SpecError(
            f"the assistant prefix {prefix!r} is a part of the answer format, so that no completion could have the "
            "form; drop it"
        )
    # What comes before a reply (a line end, an empty block of thoughts) is the template's to say.
    before = prefix or _before_reply(template, messages, text)
    space = " " if prefix or before.endswith(" ") else ""
    return Prompt(
        sample_id=sample.id,
        text=text + before.removesuffix(" "),
        target=space + reply,
        continuations=tuple(space + task.answer_format.render(answer) for answer in choice_answers(task, sample)),
        content=_content(task, sample, space),
    )


def _before_reply(template: ChatTemplate, messages: Sequence[Message], text: str) -> str:
    """What `template` writes between the end of a prompt, `text`, and the reply to it."""
    marker = "softbench-reply"
    whole = template.render([*messages, {"role": "assistant", "content": marker}], open_reply=False)
    found = whole.find(marker, len(text)) if whole.startswith(text) else -1
    return whole[len(text) : found] if found >= 0 else ""


def _target(task: Task, sample: Sample) -> str:
    return " " + task.answer_format.render(sample.answers[0], sample.reasoning)


def _content(task: Task, sample: Sample, space: str) -> tuple[tuple[int, int], ...]:
    """Where the answer's content stands in a target that begins with `space`."""
    spans = task.answer_format.content(sample.answers[0], sample.reasoning)
    return tuple((begin + len(space), end + len(space)) for begin, end in spans)


def num_shared(texts: Sequence[str]) -> int:
    """How many characters all `texts` begin with; 0 where there is one alone."""
    first, last = min(texts), max(texts)  # what these two share, all between them do
    if len(texts) < 2:
        return 0
    return next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))


def choice_answers(task: Task, sample: Sample) -> tuple[str, ...]:
    """The answer that each option of `sample` stands for: its letter (mcf) or its text."""
    if task.formulation == "mcf":
        return tuple(LETTERS[: len(sample.choices)])
    return sample.choices


def shuffle_options(task: Task, samples: Sequence[Sample], generator: np.random.Generator) -> list[Sample]:
    """The samples, each with its options in an order drawn anew: a control that shows a liking for letters or places.

    The right answer moves with its option; open questions stay as they are.
    """
    shuffled = []
    for sample in samples:
        if sample.gold is None:
            shuffled.append(sample)
            continue
        order = [int(place) for place in generator.permutation(len(sample.choices))]
        moved = dataclasses.replace(
            sample, choices=tuple(sample.choices[place] for place in order), gold=order.index(sample.gold)
        )
        answer = (
            choice_answers(task, moved)[order.index(sample.gold)] if task.formulation == "mcf" else sample.answers[0]
        )
        shuffled.append(dataclasses.replace(moved, answers=(answer, *sample.answers[1:])))
    return shuffled


def shuffle_labels(task: Task, samples: Sequence[Sample], generator: np.random.Generator) -> list[Sample]:
    """The samples, each with the answer of another one: a control that has the form of the answers and not their truth.

    Answers move among questions of as many options, so that each letter stays as frequent as it was; an open question's
    answer moves with the reasoning that leads to it.
    """
    shuffled = list(samples)
    by_size: dict[int, list[int]] = {}
    for place, sample in enumerate(samples):
        by_size.setdefault(len(sample.choices), []).append(place)
    for places in by_size.values():
        for place, other in zip(places, generator.permutation(places), strict=True):
            giver = samples[other]
            if giver.gold is None:
                given = dataclasses.replace(samples[place], answers=giver.answers, reasoning=giver.reasoning)
            else:
                answer = choice_answers(task, samples[place])[giver.gold]
                given = dataclasses.replace(samples[place], answers=(answer,), gold=giver.gold)
            shuffled[place] = given
    return shuffled


def _render_question(task: Task, sample: Sample) -> str:
    choices = list(zip(LETTERS, sample.choices, strict=False))
    try:
        return render(task.question, {**sample.fields, "choices": choices}).rstrip()
    except ExpressionError as error:
        raise TaskError(f"task {task.name!r}: template failed on sample {sample.id!r}: {error}; mend it") from error
