"""Reads finished runs back: a model's results file, and the records of each of its jobs.

A run is named by a folder, `OUT` or `OUT/<model>`, and one method of it by `FOLDER@METHOD`.
"""

import json
from collections.abc import Mapping, Sequence
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


def runs_in(reference: str, revisions: Sequence[str] | None = None) -> list[str]:
    """The runs of every model in a folder, or the one run that it is; of those named with one of `revisions` alone.

    Raises DataError where a revision has no run.
    """
    folder, at, method = reference.partition("@")
    several = [] if list(Path(folder).glob("results_*.json")) else sorted(Path(folder).glob("*/results_*.json"))
    found = [str(one) for one in dict.fromkeys(path.parent for path in several)] or [folder]
    if revisions is not None:
        named = {one: [run for run in found if Path(run).name.endswith(f"-{one}")] for one in revisions}
        for revision, of_revision in named.items():
            if not of_revision:
                raise DataError(f"{folder!r} holds no run of revision {revision!r}; run it with --revisions")
        found = [run for of_revision in named.values() for run in of_revision]
    return [f"{run}{at}{method}" for run in found]


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
