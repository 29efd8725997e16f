"""Reads finished runs back: a model's results file, and the records of each of its jobs.

A run is named by a folder, `OUT` or `OUT/<model>`, and one method of it by `FOLDER@METHOD`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softbench.errors import DataError, did_you_mean
from softbench.records import read_records
from softbench.types import Record


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """One method on one task of a finished run; `task_block` is what the results file says of the task."""

    model: str
    task: str
    label: str
    task_block: Mapping[str, Any]
    block: Mapping[str, Any]
    records: tuple[Record, ...]

    @property
    def name(self) -> str:
        """Model and method, for people."""
        return f"{self.model}@{self.label}"


def read_run(reference: str) -> list[FinishedJob]:
    """The jobs of a finished run, of one method where `reference` has `@METHOD`. The newest results file counts.

    Raises DataError where there is none, or it or its records can't be read.
    """
    folder, _, method = reference.partition("@")
    path = newest_results(Path(folder))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        block = content["softbench"]
        model, tasks, jobs = block["model"]["name"], block["tasks"], block["jobs"]
        labels = list(dict.fromkeys(job["label"] for job in jobs))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is not a results file of softbench ({error!r}); give a run's folder") from error
    if method and method not in labels:
        raise DataError(f"{path} has no method {method!r}{did_you_mean(method, labels)}")
    return [
        FinishedJob(model, job["task"], job["label"], tasks[job["task"]], job, _records(path.parent, job["files"]))
        for job in jobs
        if method in ("", job["label"])
    ]


def newest_results(folder: Path) -> Path:
    """The newest results file in `folder`, or in the one model's folder below it."""
    found = sorted(folder.glob("results_*.json")) or sorted(folder.glob("*/results_*.json"))
    models = {path.parent for path in found}
    if not found:
        raise DataError(f"{str(folder)!r} holds no results_*.json; give a run's folder, OUT/<model>")
    if len(models) > 1:
        names = ", ".join(sorted(str(one) for one in models))
        raise DataError(f"{str(folder)!r} holds runs of several models; give one of {names}")
    return found[-1]


def _records(folder: Path, files: str) -> tuple[Record, ...]:
    path = folder / "jobs" / Path(files).name / "records.jsonl"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}; run the same command again") from error
    return tuple(sorted(read_records(data, str(path)), key=lambda record: record.doc_id))
