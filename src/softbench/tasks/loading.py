"""Loads a task's samples and makes sure that they can be trusted: readable golds, splits that do not overlap."""

import hashlib
import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softbench.errors import DataError
from softbench.tasks.near_duplicates import count_near_duplicates
from softbench.tasks.task import SHOT_SEPARATOR, Splits, Task, render_prompt
from softbench.types import Sample, Split


@dataclass(frozen=True, slots=True)
class TaskData:
    """A task's clean splits.

    `shots` are the worked examples that the benchmark names itself, if any. `dropped` counts the samples of each split
    that were left out because a later one has them (shots and tune before validation before test); `near_duplicates`
    the test samples that resemble a tuning sample without being one. `tune_from` says which of the data's splits is
    tuned on.
    """

    tune: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    test: tuple[Sample, ...]
    dropped: Mapping[Split, int]
    shots: tuple[Sample, ...] = ()
    near_duplicates: int = 0
    tune_from: str = "tune"


def load_data(task: Task, data_dir: Path | None) -> TaskData:
    """Load `task`'s splits, dropping from tune what is in validation or test, and from validation what is in test.

    A task with no tuning split gets half of its validation split, by hash. Raises DataError where there is neither, a
    split is empty, or a gold answer does not come back through the task's own parser.
    """
    splits = task.load(data_dir)
    if not splits.get("test"):
        raise DataError(f"task {task.name!r} has no test samples; softbench tunes on one split, tests on another")
    tune_from = "tune" if splits.get("tune") else "half of validation"
    tune_split, validation_split = _tune_and_validation(task, splits)
    test = tuple(splits["test"])
    validation = without(validation_split, test, task.same_if)
    tune = without(tune_split, (*validation, *test), task.same_if)
    shots = without(splits.get("shots", ()), (*validation, *test), task.same_if)
    if not tune:
        raise DataError(
            f"task {task.name!r}: every tune sample is also in validation or test, so none is left to tune on"
        )
    for sample in (*tune, *validation, *shots, *test):
        _check_gold(task, sample)
        if task.write_prompts is None:
            render_prompt(task, sample)  # a template may fail on one row alone
    dropped: dict[Split, int] = {
        "tune": len(tune_split) - len(tune),
        "validation": len(validation_split) - len(validation),
        "shots": len(splits.get("shots", ())) - len(shots),
    }
    near = count_near_duplicates(test, tune)
    return TaskData(tune, validation, test, dropped, shots, near, tune_from)


def content_hash(sample: Sample, same_if: Collection[str] = ()) -> str:
    """Hash of what is asked, blind to case and spacing: options do not count, as they are reordered or redrawn."""
    asked = " ".join(str(value) for name, value in sorted(sample.fields.items()) if not same_if or name in same_if)
    plain = unicodedata.normalize("NFKC", asked).casefold()
    return hashlib.sha256(" ".join(plain.split()).encode()).hexdigest()


def samples_hash(samples: Iterable[Sample]) -> str:
    """Hash of a split: equal hashes mean the same samples to the letter, golds and options included, in order."""
    digest = hashlib.sha256(b"[")  # of the JSON list of all, which is never in memory
    for place, one in enumerate(samples):
        parts = [one.id, dict(one.fields), one.answers, one.choices, one.gold, one.reasoning, one.group]
        digest.update((", " * (place > 0) + json.dumps(parts, sort_keys=True, default=str)).encode())
    digest.update(b"]")
    return digest.hexdigest()[:16]


def without(samples: Iterable[Sample], later: Iterable[Sample], same_if: Collection[str]) -> tuple[Sample, ...]:
    """The samples that ask nothing that `later` asks."""
    seen = {content_hash(sample, same_if) for sample in later}
    return tuple(sample for sample in samples if content_hash(sample, same_if) not in seen)


def _tune_and_validation(task: Task, splits: Splits) -> tuple[Sequence[Sample], Sequence[Sample]]:
    tune, validation = splits.get("tune", ()), splits.get("validation", ())
    if tune:
        return tune, validation
    if len(validation) < 2:
        raise DataError(
            f"task {task.name!r} has no tune samples, and no validation samples to take them from; test samples are "
            "never tuned on: name a split to tune on"
        )
    ordered = sorted(validation, key=lambda sample: content_hash(sample, task.same_if))
    return ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]


def _check_gold(task: Task, sample: Sample) -> None:
    """Raise DataError where a gold answer could not be scored; under cf nothing is parsed."""
    if not task.generates:
        return
    for answer in sample.answers:
        parsed = task.answer_format.parse(task.answer_format.render(answer, sample.reasoning), sample.choices)
        if parsed is None or not task.answer_format.is_right(parsed, (answer,)):
            raise DataError(
                f"task {task.name!r}, sample {sample.id!r}: the gold answer {answer!r} does not come back through the "
                f"answer format {task.answer_format.name!r}; mend the row or choose another format"
            )
    target = task.answer_format.render(sample.answers[0], sample.reasoning)
    for stop in task.stop:
        if stop in target.strip():
            raise DataError(
                f"task {task.name!r}, sample {sample.id!r}: stop string {stop!r} stands in the gold answer; drop it"
            )
    if SHOT_SEPARATOR in target and task.write_prompts is None:
        raise DataError(
            f"task {task.name!r}, sample {sample.id!r}: the gold answer holds a blank line, which parts shots"
        )
