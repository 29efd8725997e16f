"""What `softbench curve` prints: format-following, accuracy and choice accuracy along the tuning of a soft prompt."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.errors import SpecError
from softbench.report.grid import grid
from softbench.report.table import share_cell
from softbench.runs import FinishedJob
from softbench.stats.curve import Curve, curve
from softbench.stats.estimate import metrics_of
from softbench.types import SILENT, Progress

METRICS = {
    "format-following": "format_following",
    "accuracy": "accuracy",
    "lenient": "lenient_accuracy",
    "choice acc.": "choice_accuracy_raw",
}


@dataclass(frozen=True, slots=True)
class TaskCurve:
    """The curve of one soft prompt on one task, with the jobs of the same run that have none, to compare it with."""

    model: str
    task: str
    method: str
    curve: Curve
    others: Sequence[FinishedJob]


def curves(jobs: Sequence[FinishedJob], progress: Progress = SILENT) -> list[TaskCurve]:
    """A curve for each soft prompt of a run that has checkpoints. Raises SpecError where none has."""
    grouped: dict[tuple[str, str, str], list[FinishedJob]] = {}
    for job in jobs:
        method = re.sub(r":step=\d+", "", job.label)
        grouped.setdefault((job.model, job.task, method), []).append(job)
    with_checkpoints = {name: of_method for name, of_method in grouped.items() if len(of_method) > 1}
    if not with_checkpoints:
        raise SpecError("no soft prompt of this run has checkpoints; run it again with --checkpoints 0,10,20,40")
    found = []
    with progress.track("compute metrics", sum(map(len, with_checkpoints.values()))) as advance:
        for (model, task, method), of_method in with_checkpoints.items():
            points = []
            for job in of_method:
                points.append(_point(job))
                advance(1)
            others = [
                other
                for (of_model, of_task, _), rest in grouped.items()
                if (of_model, of_task) == (model, task) and len(rest) == 1
                for other in rest
            ]
            found.append(TaskCurve(model, task, method, curve(points, list(METRICS.values())), others))
    return found


def _point(job: FinishedJob) -> tuple[int, int, Any]:
    cost = job.block["cost"]
    return int(cost["tuning_steps"]), int(cost["tuning_samples"]), metrics_of(job.outcomes)


def curve_table(one: TaskCurve) -> Table:
    """A row a step, then where each metric saturates, then what the other methods score."""
    table = grid(f"{one.model}  {one.task}, {one.method}", ("steps",), ("samples", *METRICS))
    for place, (step, samples) in enumerate(zip(one.curve.steps, one.curve.samples, strict=True)):
        cells = [share_cell(one.curve.metrics[name][place], "\n") for name in METRICS.values()]
        table.add_row(str(step), str(samples), *cells)
    saturated = [one.curve.saturation[name] for name in METRICS.values()]
    table.add_row("saturates", "", *("-" if step is None else f"step {step}" for step in saturated))
    for other in one.others:
        metrics = metrics_of(other.outcomes)
        table.add_row(Text(other.label), "", *(share_cell(metrics[name], "\n") for name in METRICS.values()))
    return table


def curve_dict(one: TaskCurve) -> dict[str, Any]:
    """One curve for machines."""
    return {"model": one.model, "task": one.task, "method": one.method, **asdict(one.curve)}
