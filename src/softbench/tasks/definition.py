"""Tasks written as YAML: the built-in benchmarks (benchmarks/*.yaml) and users' own.

    task: my_quiz
    data: quiz.jsonl
    question: "Question: {{ question }}"
    options: choices
    gold: answer

`question` is a Jinja template of a row; the other keys that speak of a row (`options`, `gold`, `answers`, `reasoning`,
`id`, `group`) are Jinja expressions. Both run in Jinja's sandbox. docs/tasks.md describes every key.
"""

import dataclasses
import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import jinja2
import jinja2.meta
import jinja2.sandbox
import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from softbench.answer_formats import AnswerFormat, answer_format
from softbench.answer_kinds import LETTER, LETTERS, NUMBER, OPTION, SHORT_TEXT, YES_NO, AnswerKind, Pattern
from softbench.errors import DataError, TaskError, did_you_mean
from softbench.tasks.sources import Row, read_file, read_folder, read_hub
from softbench.tasks.task import Splits, Task
from softbench.types import Formulation, Sample, Split

OPEN_KINDS: dict[str, AnswerKind] = {"number": NUMBER, "short_text": SHORT_TEXT, "yes_no": YES_NO}
INSTRUCTIONS = {
    "options": "Choose the right option.",
    "number": "Work out each answer.",
    "short_text": "Answer each question.",
    "yes_no": "Answer each question.",
}
DEFAULT_FORMATS: dict[AnswerKind, str] = {
    LETTER: "sentence_letter",
    OPTION: "sentence_option",
    NUMBER: "hash_number",
    SHORT_TEXT: "short_text",
    YES_NO: "yes_no",
}
MAX_NEW_TOKENS: dict[AnswerKind, int] = {LETTER: 32, OPTION: 64, NUMBER: 32, SHORT_TEXT: 32, YES_NO: 16}
WITH_REASONING = 320

_LISTING = "\n{% for letter, text in choices %}\n{{ letter }}. {{ text }}\n{% endfor %}"

Names = str | tuple[str, ...]


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

    path: str
    config: str | None = None
    revision: str | None = None
    splits: SplitNames


class Definition(_Strict):
    """One benchmark, as its YAML file says it."""

    task: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=100)]
    source: str = "a task of the user's"
    licence: str = "not stated"
    hub: Hub | None = None
    local: SplitNames | None = None
    data: str | SplitNames | None = None
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
    kind: Literal["number", "short_text", "yes_no"] | None = None
    pattern: str | None = None
    formulations: tuple[Formulation, ...] = ()
    answer_format: str | None = None
    shuffle_options: bool = False
    stop: tuple[str, ...] = ()
    max_new_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None

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
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"task file {str(path)!r} can't be read: {error}") from error
    return parse_definition(text, str(path))


def is_definition_file(path: Path) -> bool:
    """Whether a YAML file is a task's: a folder of tasks may hold specs, too."""
    try:
        return re.search(r"^task\s*:", path.read_text(encoding="utf-8"), re.MULTILINE) is not None
    except (OSError, UnicodeDecodeError):
        return False


def parse_definition(text: str, name: str) -> Definition:
    """The definition that `text` holds; `name` is what errors call it."""
    try:
        raw = yaml.safe_load(text)
        json.dumps(raw, ensure_ascii=False, default=str).encode()  # half a surrogate pair is no text
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise TaskError(f"task file {name!r} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise TaskError(f"task file {name!r} must hold a mapping with task, data, question, and options or answers")
    try:
        return Definition.model_validate(raw)
    except pydantic.ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise TaskError(f"task file {name!r}: key {where!r} is unknown{did_you_mean(where, _keys())}") from error
        said = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"].lower()
        raise TaskError(f"task file {name!r}: {where + ': ' if where else ''}{said}") from error


def _keys() -> list[str]:
    return list(Definition.model_fields)


@functools.cache
def builtin_definitions() -> dict[str, Definition]:
    """The benchmarks that ship with softbench, by name."""
    folder = files("softbench.tasks").joinpath("benchmarks")
    entries = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda one: one.name)
    found = [parse_definition(entry.read_text(encoding="utf-8"), entry.name) for entry in entries]
    return {definition.task: definition for definition in found}


def build_task(
    definition: Definition, formulation: Formulation | None, format_name: str | None, folder: Path | None = None
) -> Task:
    """The task in one formulation (default: its first) and answer format; `folder` is where its `data` lie.

    Raises TaskError where the definition does not offer them.
    """
    formulation = formulation or definition.offered[0]
    if formulation not in definition.offered:
        raise TaskError(f"task {definition.task!r} has no formulation {formulation!r}; it has {definition.offered}")
    _check_templates(definition)
    form = _form(definition, formulation, format_name)
    # A name stands for one way of asking: results of another are not to be taken for it.
    asked = form.name if form != _form(definition, formulation, None) else None
    # A yes/no question needs no list: the form says what the options are.
    lists = definition.options and formulation != "cf" and not (definition.kind and formulation == "generation")
    instruction = definition.instruction or INSTRUCTIONS["options" if lists else _kind_name(definition)]
    question = definition.question + (_LISTING if lists else "\n" if definition.cue else "") + definition.cue
    limit = WITH_REASONING if definition.reasoning else MAX_NEW_TOKENS.get(form.kind, 32)
    return Task(
        name=":".join(filter(None, [definition.task, definition.options and formulation, asked])),
        formulation=formulation,
        instruction="" if formulation == "cf" else instruction,
        question=question,
        answer_format=form,
        stop=definition.stop or (("Question:", "\n\n") if definition.reasoning else ("\n",)),
        max_new_tokens=definition.max_new_tokens or limit,
        load=lambda data_dir: _load(definition, formulation, form.kind, data_dir, folder),
        source=definition.source,
        licence=definition.licence,
        same_if=definition.same_if,
    )


def _form(definition: Definition, formulation: Formulation, format_name: str | None) -> AnswerFormat:
    if formulation == "cf":
        if format_name not in (None, "option_text"):
            raise TaskError(
                f"task {definition.task!r}: under cf the options' texts are scored, so answer format {format_name!r} "
                f"does not fit; take {definition.task}:mcf or :generation"
            )
        return answer_format("option_text", OPTION)
    own = definition.answer_format if formulation == definition.offered[0] else None
    kind = _answer_kind(definition, formulation)
    return answer_format(
        format_name or own or DEFAULT_FORMATS.get(kind, "{answer}"), kind, definition.reasoning is not None
    )


def _answer_kind(definition: Definition, formulation: Formulation) -> AnswerKind:
    if definition.options and formulation == "mcf":
        return LETTER
    if definition.options and definition.kind is None:
        return OPTION
    if definition.pattern is not None:
        return Pattern(definition.pattern)
    return OPEN_KINDS[_kind_name(definition)]


def _kind_name(definition: Definition) -> str:
    return definition.kind or "short_text"


def _load(
    definition: Definition, formulation: Formulation, kind: AnswerKind, data_dir: Path | None, folder: Path | None
) -> Splits:
    rows = _rows(definition, data_dir, folder)
    return {
        split: with_own_ids(
            [_sample(definition, formulation, kind, row, f"{split}-{index}") for index, row in enumerate(of_split)]
        )
        for split, of_split in rows.items()
    }


def with_own_ids(samples: Sequence[Sample]) -> list[Sample]:
    """The samples, each later one of an id with a number behind it: samples are paired by their ids."""
    seen: Counter[str] = Counter()
    named = []
    for sample in samples:
        seen[sample.id] += 1
        twice = seen[sample.id] > 1
        named.append(dataclasses.replace(sample, id=f"{sample.id}~{seen[sample.id]}") if twice else sample)
    return named


def _rows(definition: Definition, data_dir: Path | None, folder: Path | None) -> Mapping[Split, Sequence[Row]]:
    """Rows by split: from the files beside the definition, else from the local data root, else from the hub."""
    if isinstance(definition.data, str):
        return split_rows(read_file((folder or Path()) / definition.data))
    if definition.data is not None:
        base = folder or Path()
        return {
            split: [row for name in names for row in read_file(base / name)]
            for split, names in _names(definition.data).items()
        }
    if data_dir is not None or definition.hub is None:
        splits = definition.local or (definition.hub.splits if definition.hub else None)
        assert splits is not None  # Definition has checked that one of data, local and hub is there
        return {
            split: [row for name in names for row in read_folder(data_dir, definition.task, name)]
            for split, names in _names(splits).items()
        }
    hub = definition.hub
    return {
        split: [row for name in names for row in read_hub(hub.path, hub.config, hub.revision, name, definition.task)]
        for split, names in _names(hub.splits).items()
    }


def _names(splits: SplitNames) -> dict[Split, tuple[str, ...]]:
    given: dict[Split, Names | None] = {
        "tune": splits.tune,
        "validation": splits.validation,
        "shots": splits.shots,
        "test": splits.test,
    }
    return {split: (names,) if isinstance(names, str) else names for split, names in given.items() if names}


def split_rows(rows: Sequence[Row]) -> dict[Split, list[Row]]:
    """40 % of rows to tune on, 10 % to validate, 50 % to test, by the hash of what each row holds."""
    ordered = sorted(rows, key=lambda row: hashlib.sha256(repr(sorted(row.items())).encode()).hexdigest())
    tune, validation = len(ordered) * 2 // 5, len(ordered) // 2
    return {"tune": ordered[:tune], "validation": ordered[tune:validation], "test": ordered[validation:]}


def _sample(definition: Definition, formulation: Formulation, kind: AnswerKind, row: Row, default_id: str) -> Sample:
    sample_id = default_id
    try:
        name = row.get("id") if definition.id is None else _evaluate(definition.id, row)
        sample_id = default_id if name is None else str(name)
        known = {**row, "row": row}
        fields = {key: _as_json(known[key]) for key in sorted(_variables(definition.question)) if key in known}
        solution = "" if definition.reasoning is None else str(_evaluate(definition.reasoning, row))
        reasoning = "\n".join(line.strip() for line in solution.splitlines() if line.strip())
        group = "" if definition.group is None else str(_evaluate(definition.group, row))
        if definition.options is None or definition.gold is None:
            answers = _answers(definition.answers or "", kind, row)
            return Sample(sample_id, fields, answers, (), None, reasoning, group)
        # One line an option: a completion ends with its line.
        options = [" ".join(str(one).split()) for one in _listed(_evaluate(definition.options, row))]
        if not all(options):
            raise ValueError("an option is empty")  # noqa: TRY301  # told with the row's name below
        gold = gold_index(_evaluate(definition.gold, row), options)
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise DataError(f"task {definition.task!r}: row {sample_id!r} does not fit: {error}") from error
    if definition.shuffle_options:
        salt = repr(fields)
        order = sorted(range(len(options)), key=lambda i: hashlib.sha256(f"{salt} {i}".encode()).hexdigest())
        options, gold = [options[index] for index in order], order.index(gold)
    answer = LETTERS[gold] if formulation == "mcf" else kind.write(options[gold])
    return Sample(sample_id, fields, (answer,), tuple(options), gold, reasoning, group)


def _answers(source: str, kind: AnswerKind, row: Row) -> tuple[str, ...]:
    answers = tuple(dict.fromkeys(kind.write(one) for one in _listed(_evaluate(source, row))))
    if not answers or not all(answers):
        raise ValueError("an answer is missing or empty")
    return answers


def gold_index(value: object, options: Sequence[str]) -> int:
    """The place of the right option; `value` is that place from 0, its letter or its text. Raises ValueError else."""
    if not 1 < len(options) <= len(LETTERS):
        raise ValueError(f"{len(options)} options; 2 to {len(LETTERS)} are wanted")
    if isinstance(value, int):
        found = {int(value)}
    else:
        text = " ".join(str(value).split())
        found = {place for place, option in enumerate(options) if option == text}
        places = [*map(str, range(len(options)))]
        letters = LETTERS[: len(options)]
        if text in places:
            found.add(places.index(text))
        elif len(text) == 1 and text.upper() in letters:
            found.add(letters.index(text.upper()))
    if len(found) != 1 or not 0 <= min(found) < len(options):
        raise ValueError(f"gold {value!r} must be one option's place (from 0 to {len(options) - 1}), letter or text")
    return found.pop()


def _listed(value: object) -> list[object]:
    """`value` as a list of texts, numbers and truth values. Raises TypeError at anything else in it."""
    single = isinstance(value, str | Mapping) or not isinstance(value, Iterable)
    items = [value] if single else list(cast("Iterable[object]", value))
    for item in items:
        if not isinstance(item, str | int | float):
            raise TypeError(f"{item!r} is neither a text nor a number")
    return items


def _as_json(value: object) -> object:
    """`value`, or its text where a record could not hold it. Raises ValueError at NaN and infinities."""
    try:
        json.dumps(value, allow_nan=False)
    except TypeError:
        return str(value)
    return value


@functools.cache
def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    return jinja2.sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined)


@functools.cache
def _expression(source: str) -> Any:
    return _environment().compile_expression(source, undefined_to_none=False)


def _evaluate(source: str, row: Row) -> Any:
    value = _expression(source)({**row, "row": row})
    if isinstance(value, jinja2.Undefined):
        raise LookupError(f"{source!r} finds nothing in it (it has {', '.join(row)})")  # noqa: TRY004  # a lack
    return value


@functools.cache
def _variables(template: str) -> frozenset[str]:
    return frozenset(jinja2.meta.find_undeclared_variables(_environment().parse(template)))


def _check_templates(definition: Definition) -> None:
    """Raise TaskError where a template or an expression is not Jinja."""
    for key in ("question", "options", "gold", "answers", "reasoning", "id", "group"):
        source = getattr(definition, key)
        if source is None:
            continue
        try:
            _variables(source) if key == "question" else _expression(source)
        except jinja2.TemplateError as error:
            raise TaskError(f"task {definition.task!r}: {key} {source!r} is not Jinja: {error}") from error
    fields = _variables(definition.question)
    if not fields:
        raise TaskError(
            f"task {definition.task!r}: question {definition.question!r} shows no field: write {{{{ NAME }}}}"
        )
    for name in definition.same_if:
        if name not in fields:
            raise TaskError(f"task {definition.task!r}: same_if names {name!r}{did_you_mean(name, fields)}")
    try:
        re.compile(f"a(?P<softbench_answer>{definition.pattern or ''})b")
    except re.error as error:
        raise TaskError(f"task {definition.task!r}: pattern {definition.pattern!r} is wrong: {error}") from error
