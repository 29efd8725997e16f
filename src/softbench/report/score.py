"""What `softbench score` prints: metrics from saved records, by today's parsers if asked, without a model."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.report.table import share_cell
from softbench.runs import FinishedJob
from softbench.scoring.choices import choices_correct
from softbench.scoring.parse import judge
from softbench.stats import metrics_of
from softbench.tasks import Task
from softbench.types import Record

METRICS = {
    "format-\nfollowing": "format_following",
    "accuracy": "accuracy",
    "lenient": "lenient_accuracy",
    "choice acc.": "choice_accuracy_raw",
}


def read_again(records: Sequence[Record], task: Task) -> list[Record]:
    """The records as the parsers of `task` see them today; completions and log-likelihoods stay as they are."""
    return [_again(record, task) for record in records]


def _again(record: Record, task: Task) -> Record:
    choices = choices_correct(record.choice_scores, record.prompt.continuations, record.sample.gold)
    if record.completion is None:
        return replace(record, choice_correct=choices)
    return replace(
        record, **asdict(judge(record.completion, task.answer_format, record.sample)), choice_correct=choices
    )


def changed(before: Sequence[Record], after: Sequence[Record]) -> int:
    """How many records have another verdict."""
    return sum(one != other for one, other in zip(before, after, strict=True))


def score_tables(jobs: Sequence[FinishedJob], records: Sequence[Sequence[Record]]) -> list[Table]:
    """A table a task, a row a method: shares in percent with intervals, and how many verdicts differ from the saved."""
    tables: dict[str, Table] = {}
    for job, of_job in zip(jobs, records, strict=True):
        if job.task not in tables:
            title = Text(f"{job.model}  {job.task}", style="bold")
            table = Table(
                title=title, box=None, pad_edge=False, header_style="bold", title_justify="left", title_style=""
            )
            table.add_column("method", overflow="fold")
            for column in (*METRICS, "changed"):
                table.add_column(column, justify="right", no_wrap=True)
            tables[job.task] = table
        metrics = metrics_of(of_job)
        cells = [share_cell(metrics[name], "\n") for name in METRICS.values()]
        tables[job.task].add_row(Text(job.label), *cells, str(changed(job.records, of_job)))
    return list(tables.values())


def scores_dict(jobs: Sequence[FinishedJob], records: Sequence[Sequence[Record]]) -> list[dict[str, Any]]:
    """The same for machines, with every metric."""
    return [
        {
            "model": job.model,
            "task": job.task,
            "method": job.label,
            "metrics": {name: asdict(estimate) for name, estimate in metrics_of(of_job).items()},
            "changed": changed(job.records, of_job),
        }
        for job, of_job in zip(jobs, records, strict=True)
    ]
