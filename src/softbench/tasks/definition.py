"""Tasks written as YAML: the built-in benchmarks (benchmarks/*.yaml) and users' own.

    task: my_quiz
    data: quiz.jsonl
    question: "Question: {{ question }}"
    options: choices
    gold: answer

`question` is a Jinja template of a row; the other keys that speak of a row (`options`, `gold`, `answers`, `reasoning`,
`id`, `group`, `cluster`) are Jinja expressions. Both run in a bounded sandbox. docs/tasks.md describes every key.
"""

import functools
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from softbench.errors import TaskError, did_you_mean
from softbench.types import Formulation
from softbench.untrusted import MOST_YAML, load_yaml, printable, read_text

Name = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(printable)]
Names = Name | tuple[Name, ...]
HubId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$", max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SplitNames(_Strict):
    """Which of the data's own splits serves as what; `shots` holds fixed worked examples."""

    tune: Names | None = None
    validation: Names | None = None
    shots: Names | None = None
    test: Names


class Hub(_Strict):
    """A data set on the hub, at one revision."""

    path: HubId
    config: Name | None = None
    revision: Name | None = None
    splits: SplitNames


class Definition(_Strict):
    """One benchmark, as its YAML file says it."""

    task: Annotated[str, Field(pattern=r"^[\w-][\w.-]*$", max_length=100)]
    source: Name = "a task of the user's"
    licence: Name = "not stated"
    hub: Hub | None = None
    local: SplitNames | None = None
    data: Name | SplitNames | None = None
    question: str
    cue: str = "Answer:"
    instruction: str | None = None
    options: str | None = None
    gold: str | None = None
    answers: str | None = None
    reasoning: str | None = None
    same_if: tuple[str, ...] = ()
    id: str | None = None
    group: str | None = None
    cluster: str | None = None
    kind: Literal["number", "short_text", "yes_no"] | None = None
    pattern: Annotated[str, Field(max_length=1000)] | None = None
    formulations: tuple[Formulation, ...] = ()
    answer_format: str | None = None
    shuffle_options: bool = False
    stop: tuple[str, ...] = ()
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.options is None) != (self.gold is None):
            raise ValueError("'options' and 'gold' go together: a list of options, and which of them is right")
        if self.options is not None and self.answers is not None:
            raise ValueError("'answers' is for open questions, and 'options' makes it multiple choice; drop one")
        if self.options is None and self.answers is None:
            raise ValueError("needs 'options' and 'gold' (multiple choice), or 'answers' (an open question)")
        if self.pattern is not None and (self.options is not None or self.kind is not None):
            raise ValueError("'pattern' says what an open answer looks like; drop 'options' and 'kind'")
        if self.options is None and set(self.formulations) - {"generation"}:
            raise ValueError("an open question has the formulation 'generation' alone; drop 'formulations'")
        if self.hub is None and self.data is None and self.local is None:
            raise ValueError("needs 'data' (a file, or one for each split) or 'hub' (path and splits)")
        return self

    @property
    def offered(self) -> tuple[Formulation, ...]:
        """The formulations that the task can be put in, the default first."""
        return self.formulations or (("mcf", "generation", "cf") if self.options else ("generation",))


def read_definition(path: Path) -> Definition:
    """The definition in a YAML file. Raises TaskError, naming the key, at anything that is not one."""
    try:
        text = read_text(path, MOST_YAML)
    except (OSError, ValueError) as error:
        raise TaskError(f"task file {str(path)!r} can't be read: {error}") from error
    return parse_definition(text, str(path))


def is_definition_file(path: Path) -> bool:
    """Whether a YAML file is a task's: a folder of tasks may hold specs, too."""
    try:
        return re.search(r"^task\s*:", read_text(path, MOST_YAML), re.MULTILINE) is not None
    except (OSError, ValueError):
        return False


def parse_definition(text: str, name: str) -> Definition:
    """The definition that `text` holds; `name` is what errors call it."""
    try:
        raw = load_yaml(text)
    except ValueError as error:
        raise TaskError(f"task file {name!r} is not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise TaskError(f"task file {name!r} must hold a mapping with task, data, question, and options or answers")
    try:
        return Definition.model_validate(raw)
    except pydantic.ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise TaskError(
                f"task file {name!r}: key {where!r} is unknown{did_you_mean(where, Definition.model_fields)}"
            ) from error
        said = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"].lower()
        raise TaskError(f"task file {name!r}: {where + ': ' if where else ''}{said}") from error


@functools.cache
def builtin_definitions() -> dict[str, Definition]:
    """The benchmarks that ship with softbench, by name."""
    folder = files("softbench.tasks").joinpath("benchmarks")
    entries = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda one: one.name)
    found = [parse_definition(entry.read_text(encoding="utf-8"), entry.name) for entry in entries]
    return {definition.task: definition for definition in found}
