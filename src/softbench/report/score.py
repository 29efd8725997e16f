"""What `softbench score` prints: metrics from saved records, by today's parsers if asked, without a model."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.report.grid import grid
from softbench.report.table import share_cell
from softbench.runs import FinishedJob
from softbench.saved_records import Shelf
from softbench.scoring.choices import choices_correct
from softbench.scoring.parse import judge
from softbench.stats import metrics_of
from softbench.tasks import Task
from softbench.types import SILENT, Estimate, Progress, Record

METRICS = {
    "format-following": "format_following",
    "accuracy": "accuracy",
    "lenient": "lenient_accuracy",
    "choice acc.": "choice_accuracy_raw",
}


@dataclass(frozen=True, slots=True)
class Rescored:
    """A job's metrics, computed anew, and how many of its verdicts differ from the saved ones."""

    job: FinishedJob
    metrics: Mapping[str, Estimate]
    changed: int


def rescore(jobs: Sequence[FinishedJob], tasks: Mapping[str, Task], progress: Progress = SILENT) -> list[Rescored]:
    """Metrics of each job's records, as the parsers of `tasks` (by name) see them today, or as they were saved."""
    found = []
    with progress.track("compute metrics", len(jobs)) as advance:
        for job in jobs:
            outcomes, changed = _again(job.records, tasks[job.task]) if job.task in tasks else (job.outcomes, 0)
            found.append(Rescored(job, metrics_of(outcomes), changed))
            advance(1)
    return found


def _again(records: Sequence[Record], task: Task) -> tuple[list[Record], int]:
    """The records' outcomes by the parsers of `task`, and how many of them have another verdict."""
    shelf, outcomes, changed = Shelf(), [], 0
    for record in records:
        again = read_again(record, task)
        changed += again != record
        outcomes.append(shelf.outcome(again))
    return outcomes, changed


def read_again(record: Record, task: Task) -> Record:
    """The record as the parsers of `task` see it today; completion and log-likelihoods stay as they are."""
    choices = choices_correct(record.choice_scores, record.prompt.continuations, record.sample.gold)
    if record.completion is None:
        return replace(record, choice_correct=choices)
    return replace(
        record, **asdict(judge(record.completion, task.answer_format, record.sample)), choice_correct=choices
    )


def score_tables(scored: Sequence[Rescored]) -> list[Table]:
    """A table a task, a row a method: shares in percent with intervals, and how many verdicts differ from the saved."""
    tables: dict[str, Table] = {}
    for one in scored:
        job = one.job
        if job.task not in tables:
            tables[job.task] = grid(f"{job.model}  {job.task}", ("method",), (*METRICS, "changed"))
        cells = [share_cell(one.metrics[name], "\n") for name in METRICS.values()]
        tables[job.task].add_row(Text(job.label), *cells, str(one.changed))
    return list(tables.values())


def scores_dict(scored: Sequence[Rescored]) -> list[dict[str, Any]]:
    """The same for machines, with every metric."""
    return [
        {
            "model": one.job.model,
            "task": one.job.task,
            "method": one.job.label,
            "metrics": {name: asdict(estimate) for name, estimate in one.metrics.items()},
            "changed": one.changed,
        }
        for one in scored
    ]
