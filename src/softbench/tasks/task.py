"""What a benchmark is: its data, its prompt, its answer format and its formulation."""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import jinja2.sandbox

from softbench.answer_formats import LETTERS, AnswerFormat
from softbench.errors import TaskError
from softbench.types import Formulation, Prompt, Sample, Split

Splits = Mapping[Split, Sequence[Sample]]


@dataclass(frozen=True)
class Task:
    """A benchmark in one formulation.

    `description` opens every prompt; `question` is the Jinja template of one sample, given the sample's `fields` and
    `choices` (pairs of letter and text). It ends where the answer begins, without a space. `load` takes the data root
    (None where none was given) and returns the samples of each split, before any cleaning.
    """

    name: str
    formulation: Formulation
    description: str
    question: str
    answer_format: AnswerFormat
    stop: tuple[str, ...]
    max_new_tokens: int
    load: Callable[[Path | None], Splits]
    source: str
    licence: str

    @property
    def generates(self) -> bool:
        """Whether completions are asked for: under cf only the options' log-likelihoods are."""
        return self.formulation != "cf"

    @property
    def template_hash(self) -> str:
        """Hash of everything that shapes a prompt or its parsing: equal hashes mean comparable results."""
        shape = [self.name, self.formulation, self.description, self.question, repr(self.answer_format), self.stop]
        return hashlib.sha256(json.dumps([*shape, self.max_new_tokens]).encode()).hexdigest()[:16]


SHOT_SEPARATOR = "\n\n"


def render_prompt(task: Task, sample: Sample, shots: Sequence[Sample] = ()) -> Prompt:
    """The prompt for `sample`: description, then each shot with its target, then the question.

    Raises TaskError where the template fails, or asks for something that the sample does not have.
    """
    blocks = [task.description] if task.description else []
    blocks += [_render_question(task, shot) + " " + task.answer_format.render(shot.answers[0]) for shot in shots]
    blocks.append(_render_question(task, sample))
    # The space goes before the answer, not after the prompt: " Paris" is one token where "Paris" is another.
    return Prompt(
        sample_id=sample.id,
        text=SHOT_SEPARATOR.join(blocks),
        target=" " + task.answer_format.render(sample.answers[0]),
        continuations=tuple(" " + task.answer_format.render(answer) for answer in choice_answers(task, sample)),
    )


def choice_answers(task: Task, sample: Sample) -> tuple[str, ...]:
    """The answer that each option of `sample` stands for: its letter (mcf) or its text."""
    if task.formulation == "mcf":
        return tuple(LETTERS[: len(sample.choices)])
    return sample.choices


def _render_question(task: Task, sample: Sample) -> str:
    choices = list(zip(LETTERS, sample.choices, strict=False))
    try:
        return _template(task.question).render({**sample.fields, "choices": choices}).rstrip()
    except jinja2.TemplateError as error:
        raise TaskError(f"task {task.name!r}: template failed on sample {sample.id!r}: {error}; mend it") from error


@functools.cache
def _template(source: str) -> jinja2.Template:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(source)
