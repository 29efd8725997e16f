"""Reads finished runs back: a model's results file, and the records of each of its jobs.

A run is named by a folder, `OUT` or `OUT/<model>`, and one method of it by `FOLDER@METHOD`. Records are read when they
are asked for, one by one, so that memory does not grow with their number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from softbench.errors import DataError, did_you_mean
from softbench.saved_records import SavedRecords, Shelf, outcomes_of
from softbench.types import Progress, Record
from softbench.untrusted import complaint, load_json, printable, read_text


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """One method on one task of a finished run; `task_block` is what the results file says of the task."""

    model: str
    task: str
    label: str
    task_block: Mapping[str, Any]
    block: Mapping[str, Any]
    records: Sequence[Record]

    @property
    def name(self) -> str:
        """Model and method, for people."""
        return f"{self.model}@{self.label}"

    @property
    def outcomes(self) -> Sequence[Record]:
        """The records without their texts: see softbench.saved_records."""
        return outcomes_of(self.records)


def read_runs(references: Sequence[str], progress: Progress) -> list[list[FinishedJob]]:
    """The jobs of several finished runs, each as read_run has them."""
    shelf = Shelf()
    found = []
    with progress.track("read runs", len(references)) as advance:
        for reference in references:
            found.append(_jobs(reference, shelf))
            advance(1, reference)
    return found


def read_run(reference: str) -> list[FinishedJob]:
    """The jobs of a finished run, of one method where `reference` has `@METHOD`. The newest results file counts.

    Raises DataError where there is none, or it or its records can't be read.
    """
    return _jobs(reference, Shelf())


class _Checked(BaseModel):
    """What is read of a results file must be as softbench wrote it; there may be more."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


Name = Annotated[str, AfterValidator(printable)]
"""What is printed: characters that steer a terminal have no place in it."""


class _Model(_Checked):
    name: Name


class _Split(_Checked):
    hash: str


class _Splits(_Checked):
    test: _Split


class _Task(_Checked):
    formulation: str
    template_hash: str
    splits: _Splits


class _Metric(_Checked):
    value: float | None


class _Job(_Checked):
    task: Name
    label: Name
    seed: int | None
    settings: dict[str, Any]
    checkpoint: int | None = None
    tuned_sha256: str | None
    metrics: dict[str, _Metric]
    cost: dict[str, float | None]
    files: str


class _Block(_Checked):
    model: _Model
    tasks: dict[str, _Task]
    jobs: list[_Job]


class _Samples(_Checked):
    effective: int = Field(ge=0)


class _Results(_Checked):
    softbench: _Block
    samples: dict[str, _Samples] = Field(alias="n-samples")


def _jobs(reference: str, shelf: Shelf) -> list[FinishedJob]:
    folder, _, method = reference.partition("@")
    path = newest_results(Path(folder))
    try:
        content = load_json(read_text(path))
        checked = _Results.model_validate(content)
        counts = [checked.samples[job.task].effective for job in checked.softbench.jobs]
        tasks = [content["softbench"]["tasks"][job.task] for job in checked.softbench.jobs]
    except KeyError as error:
        raise DataError(f"{path} has a job on task {error}, and says nothing of that; give a run's folder") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a results file of softbench ({_said(error)}); give a run's folder") from error
    block = checked.softbench
    labels = list(dict.fromkeys(job.label for job in block.jobs))
    if method and method not in labels:
        raise DataError(f"{path} has no method {method!r}{did_you_mean(method, labels)}")
    found = []
    for job, raw, task, count in zip(block.jobs, content["softbench"]["jobs"], tasks, counts, strict=True):
        if method in ("", job.label):
            file = path.parent / "jobs" / Path(job.files).name / "records.jsonl"
            records = SavedRecords(file, count, shelf=shelf)
            found.append(FinishedJob(block.model.name, job.task, job.label, task, raw, records))
    return found


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


def _said(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else complaint(error)
