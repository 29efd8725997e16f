"""Loads a task's samples and makes sure that they can be trusted: readable golds, splits that do not overlap."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from softbench.errors import DataError
from softbench.tasks.task import SHOT_SEPARATOR, Task, render_prompt
from softbench.types import Sample, Split


@dataclass(frozen=True, slots=True)
class TaskData:
    """A task's clean splits; `dropped` counts the samples of each that were left out because a later split has them."""

    tune: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    test: tuple[Sample, ...]
    dropped: Mapping[Split, int]


def load_data(task: Task, data_dir: Path | None) -> TaskData:
    """Load `task`'s splits, dropping from tune what is in validation or test, and from validation what is in test.

    Raises DataError where a split is empty, or a gold answer does not come back through the task's own parser.
    """
    splits = task.load(data_dir)
    for name in ("tune", "test"):
        if not splits.get(name):
            raise DataError(f"task {task.name!r} has no {name} samples; softbench tunes on one split, tests on another")
    test = tuple(splits["test"])
    validation = _without(splits.get("validation", ()), test)
    tune = _without(splits["tune"], (*validation, *test))
    if not tune:
        raise DataError(
            f"task {task.name!r}: every tune sample is also in validation or test, so none is left to tune on"
        )
    for sample in (*tune, *validation, *test):
        _check_gold(task, sample)
    dropped: dict[Split, int] = {
        "tune": len(splits["tune"]) - len(tune),
        "validation": len(splits.get("validation", ())) - len(validation),
    }
    return TaskData(tune, validation, test, dropped)


def content_hash(sample: Sample) -> str:
    """Hash of what is asked, blind to case and spacing: options do not count, as they are reordered or redrawn."""
    asked = " ".join(str(value) for _, value in sorted(sample.fields.items()))
    return hashlib.sha256(" ".join(asked.casefold().split()).encode()).hexdigest()


def samples_hash(samples: Iterable[Sample]) -> str:
    """Hash of a split: equal hashes mean the same samples to the letter, golds and options included, in order."""
    parts = [[one.id, dict(one.fields), one.answers, one.choices, one.gold] for one in samples]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _without(samples: Iterable[Sample], later: Iterable[Sample]) -> tuple[Sample, ...]:
    seen = {content_hash(sample) for sample in later}
    return tuple(sample for sample in samples if content_hash(sample) not in seen)


def _check_gold(task: Task, sample: Sample) -> None:
    for answer in sample.answers:
        parsed = task.answer_format.parse(task.answer_format.render(answer), sample.choices)
        if parsed is None or not task.answer_format.is_right(parsed, (answer,)):
            raise DataError(
                f"task {task.name!r}, sample {sample.id!r}: the gold answer {answer!r} does not come back through the "
                f"answer format {task.answer_format.name!r}; mend the row or choose another format"
            )
    prompt = render_prompt(task, sample)
    for stop in task.stop if task.generates else ():
        if stop in prompt.target.strip():
            raise DataError(
                f"task {task.name!r}, sample {sample.id!r}: stop string {stop!r} stands in the gold answer; drop it"
            )
    if SHOT_SEPARATOR in prompt.target:
        raise DataError(
            f"task {task.name!r}, sample {sample.id!r}: the gold answer holds a blank line, which parts shots"
        )
