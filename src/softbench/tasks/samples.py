"""From a definition's rows to samples: read, evaluated, and named."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from softbench.answer_kinds import LETTERS, AnswerKind
from softbench.errors import DataError
from softbench.tasks.definition import Definition, Names, SplitNames
from softbench.tasks.expressions import evaluate, variables
from softbench.tasks.sources import Row, file_in, read_file, read_folder, read_hub
from softbench.tasks.task import Splits
from softbench.types import Formulation, Sample, Split


def load_samples(
    definition: Definition, formulation: Formulation, kind: AnswerKind, data_dir: Path | None, folder: Path | None
) -> Splits:
    """The samples of each split, before any cleaning; `folder` is where the definition's `data` lie.

    Raises DataError, naming the row, where one does not fit.
    """
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
        return split_rows(read_file(_beside(definition, folder, definition.data)))
    if definition.data is not None:
        return {
            split: [row for name in names for row in read_file(_beside(definition, folder, name))]
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


def _beside(definition: Definition, folder: Path | None, name: str) -> Path:
    """The file `name` in a definition's folder or below. Raises DataError where it leads out of there: what a task that
    came from elsewhere reads ends in prompts and records, and some of these are published."""
    base = folder or Path()
    path = base / name
    try:
        inside = path.resolve().is_relative_to(base.resolve())
    except (OSError, RuntimeError) as error:  # links in a circle
        raise DataError(f"task {definition.task!r}: {name!r} can't be read: {error}") from error
    if not inside:
        raise DataError(
            f"task {definition.task!r}: data {name!r} lies outside of the task's own folder; put the file beside the "
            "task, no link to it"
        )
    return path


def are_local(definition: Definition, data_dir: Path) -> bool:
    """Whether the local data root has the rows of all splits of a benchmark."""
    splits = definition.local or (definition.hub.splits if definition.hub else None)
    names = [name for of_split in _names(splits).values() for name in of_split] if splits else []
    return bool(names) and all(file_in(data_dir, definition.task, name) for name in names)


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
        name = row.get("id") if definition.id is None else evaluate(definition.id, row)
        sample_id = default_id if name is None else str(name)
        known = {**row, "row": row}
        fields = {key: _as_json(known[key]) for key in sorted(variables(definition.question)) if key in known}
        solution = "" if definition.reasoning is None else str(evaluate(definition.reasoning, row))
        reasoning = "\n".join(line.strip() for line in solution.splitlines() if line.strip())
        group = "" if definition.group is None else str(evaluate(definition.group, row))
        cluster = group if definition.cluster is None else _short_hash(str(evaluate(definition.cluster, row)))
        if definition.options is None or definition.gold is None:
            answers = _answers(definition.answers or "", kind, row)
            return Sample(sample_id, fields, answers, (), None, reasoning, group, cluster)
        # One line an option: a completion ends with its line.
        options = [" ".join(str(one).split()) for one in _listed(evaluate(definition.options, row))]
        if not all(options):
            raise ValueError("an option is empty")  # noqa: TRY301  # told with the row's name below
        gold = gold_index(evaluate(definition.gold, row), options)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise DataError(f"task {definition.task!r}: row {sample_id!r} does not fit: {error}") from error
    if definition.shuffle_options:
        salt = repr(fields)
        order = sorted(range(len(options)), key=lambda i: hashlib.sha256(f"{salt} {i}".encode()).hexdigest())
        options, gold = [options[index] for index in order], order.index(gold)
    answer = LETTERS[gold] if formulation == "mcf" else kind.write(options[gold])
    return Sample(sample_id, fields, (answer,), tuple(options), gold, reasoning, group, cluster)


def _answers(source: str, kind: AnswerKind, row: Row) -> tuple[str, ...]:
    answers = tuple(dict.fromkeys(kind.write(one) for one in _listed(evaluate(source, row))))
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


def _short_hash(text: str) -> str:
    """A name for a long text, such as a passage."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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
