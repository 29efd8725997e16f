"""What came of every sample, small enough to be kept with the code: one line a method, task and seed, a mark a sample.

All tables are made from these files, so that anybody can make them again, or others, without running a model.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softbench.files import write_atomic
from softbench.runs import FinishedJob
from softbench.stats.compare import ITEM_PARTS, Outcome
from softbench.types import Record, Status

Array = NDArray[np.float64]
Row = Mapping[str, Any]

MEASURES: Mapping[str, Callable[[Record], bool]] = {
    "format_following": lambda record: record.status is Status.OK,
    "accuracy": lambda record: bool(record.correct),
    "lenient_accuracy": lambda record: bool(record.lenient_correct),
    "knew": lambda record: bool(record.lenient_correct) or record.choice_correct.get("raw", False),
}
"""Each of one record, all of which have something written; `knew` is what softbench.stats.compare goes by."""


def rows_of(part: str, jobs: Iterable[FinishedJob]) -> list[Row]:
    """The outcomes of a part's jobs; a method that uses no seed has seed null."""
    return [
        {
            "part": part,
            "model": job.model,
            "method": re.sub(r":seed=\d+", "", job.label),
            "seed": job.block["seed"],
            "task": job.task,
            "steps": job.block["settings"].get("steps"),
            **{name: "".join("01"[measure(record)] for record in job.records) for name, measure in MEASURES.items()},
        }
        for job in jobs
    ]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a part's outcomes, whole or not at all."""
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def read_rows(path: Path) -> list[Row]:
    """The outcomes that were written to a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Outcomes:
    """Outcomes of one model: arrays of shape (tasks, samples), averaged over seeds unless one is asked for."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[str, dict[int | None, dict[str, Row]]] = {}
        for row in rows:
            self._rows.setdefault(row["method"], {}).setdefault(row["seed"], {})[row["task"]] = row

    @property
    def methods(self) -> list[str]:
        """All methods, as labels have them but for seeds."""
        return list(self._rows)

    @property
    def tuning_steps(self) -> int:
        """The steps of the tuned methods."""
        [steps] = {row["steps"] for row in self._all() if row["steps"] is not None}
        return int(steps)

    def tasks_of(self, method: str) -> list[str]:
        """The tasks that this method was run on, in the study's order."""
        return list(next(iter(self._rows[method].values())))

    def of(self, method: str, measure: str, seed: int | None = None) -> Array:
        """One measure of a method: of one seed, or the mean over all."""
        seeds = [seed] if seed is not None else list(self._rows[method])
        return _mean([_array(self._of_seed(method, one), measure) for one in seeds])

    def parts(self, before: str, after: str) -> dict[str, Array]:
        """Where the difference in accuracy comes from (see softbench.stats.compare.ITEM_PARTS), sample by sample."""
        pairs = [
            [_pairs(first, second) for first, second in zip(self._of_seed(before, seed), of_seed.values(), strict=True)]
            for seed, of_seed in self._rows[after].items()
        ]
        return {
            name: _mean([np.array([[part(one) for one in of_task] for of_task in of_seed]) for of_seed in pairs])
            for name, part in ITEM_PARTS.items()
        }

    def _of_seed(self, method: str, seed: int | None) -> Sequence[Row]:
        """The rows of a seed, a task each; a method that uses none has the same for all."""
        of_method = self._rows[method]
        return list(of_method[seed if seed in of_method else None].values())

    def _all(self) -> Iterable[Row]:
        return (row for seeds in self._rows.values() for tasks in seeds.values() for row in tasks.values())


def _array(rows: Sequence[Row], measure: str) -> Array:
    return np.array([[float(mark) for mark in row[measure]] for row in rows])


def _pairs(before: Row, after: Row) -> list[Outcome]:
    columns = (
        before["format_following"], before["accuracy"], after["format_following"], after["accuracy"], before["knew"],
    )  # fmt: skip
    return [Outcome(*(mark == "1" for mark in marks)) for marks in zip(*columns, strict=True)]


def _mean(arrays: Sequence[Array]) -> Array:
    return np.asarray(np.mean(arrays, axis=0))
