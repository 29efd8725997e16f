"""The table at the end of a run, and what it warns of."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.report.grid import grid, width_of
from softbench.results import JobResult, Results, seed_spreads
from softbench.types import Estimate, Status

NEAR_ZERO = 0.05
"""Format-following below which a row of the table is explained with examples."""


def results_tables(results: Sequence[Results], width: int) -> list[Table]:
    """One row a model, task and method: in one table where `width` has room for it, or else in one of up to 80
    columns a model and task.

    Shares are in percent with 95 % intervals; a dash stands for what was not measured.
    """
    rows = [(result.info.name, job) for result in results for job in result.jobs]
    wide = grid("", ("model", "task", "method"), _NUMBERS, wide=True)
    for model, job in rows:
        wide.add_row(Text(model), Text(job.task.name), *_cells(job, joint=" "))
    if width_of(wide) <= width:
        return [wide]
    tables = []
    for (model, task), of_task in itertools.groupby(rows, key=lambda row: (row[0], row[1].task.name)):
        table = grid(f"{model}  {task}", ("method",), _NUMBERS)
        for _, job in of_task:
            table.add_row(*_cells(job, joint="\n"))
        tables.append(table)
    return tables


_NUMBERS = ("format-following", "accuracy", "accuracy|format", "choice acc.", "steps", "s")


def _cells(job: JobResult, joint: str) -> list[str | Text]:
    metrics = ("format_following", "accuracy", "accuracy_given_format", "choice_accuracy_raw")
    return [
        Text(method_name(job)),
        *(share_cell(job.metrics[name], joint, with_n=name == "accuracy_given_format") for name in metrics),
        str(job.cost["tuning_steps"]) if "tuning_steps" in job.cost else "-",
        f"{seconds(job):.0f}",
    ]


def results_dict(result: Results) -> dict[str, Any]:
    """One model's results for machines: metrics and cost of each job, and where all the rest is."""
    return {
        "model": result.info.name,
        "path": result.path,
        "jobs": [
            {
                "task": job.task.name,
                "method": job.label,
                "seed": job.seed,
                "num_fewshot": job.num_fewshot,
                "metrics": {name: asdict(estimate) for name, estimate in job.metrics.items()},
                "cost": dict(job.cost),
            }
            for job in result.jobs
        ],
        "notes": [*warnings([result]), *seed_notes([result])],
    }


def method_name(job: JobResult) -> str:
    """The method's label, with the number of shots where there are any."""
    return f"{job.label} ({job.num_fewshot})" if job.num_fewshot else job.label


def share_cell(estimate: Estimate, joint: str, with_n: bool = False) -> str:
    """`99.0 % [94.7, 99.8]`, or a dash where nothing was measured; with the n of a share that is not of all samples."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    n = f"{joint}n={estimate.n}" if with_n else ""
    return f"{100 * estimate.value:.1f} %{joint}[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]{n}"


def seconds(job: JobResult) -> float:
    """Wall time that tuning and evaluation took when they were done."""
    return float(job.cost.get("tuning_seconds", 0.0) + job.cost.get("evaluation_seconds", 0.0))


def warnings(results: Iterable[Results]) -> list[str]:
    """A line for each row that was tuned at a lower rate than was asked for, and for each whose completions hardly ever
    had the right form, with three of them."""
    lines = []
    for result in results:
        for job in result.jobs:
            if job.failed_tries:
                last = job.failed_tries[-1]
                lines.append(
                    f"{result.info.name}, {job.task.name}, {method_name(job)}: tuned at a learning rate of "
                    f"{last['learning_rate'] / 2:g}, as {last['learning_rate']:g} met {last['met']} in step "
                    f"{last['step']}"
                )
            following = job.metrics["format_following"].value
            if following is None or following > NEAR_ZERO:
                continue
            completions = [
                record.completion.text
                for record in job.records
                if record.completion is not None and record.status is not Status.OK
            ][:3]
            said = ", ".join(repr(_shorten(text)) for text in completions)
            lines.append(
                f"{result.info.name}, {job.task.name}, {method_name(job)}: {100 * following:.1f} % of completions have "
                f"the form {job.task.answer_format.template!r}; some that do not: {said}"
            )
    return lines


def seed_notes(results: Iterable[Results]) -> list[str]:
    """A line for each method with several seeds: how sure the method is beside how sure the test set is."""
    lines = []
    for result in results:
        for one in seed_spreads(result.jobs):
            spread = one.spread
            if one.metric not in ("accuracy", "format_following") or spread.between_seeds is None:
                continue
            lines.append(
                f"{result.info.name}, {one.task}, {one.method}: {one.metric} over {spread.num_seeds} seeds "
                f"{100 * spread.mean:.1f} %, a seed's deviation {100 * spread.between_seeds:.1f} points, the samples' "
                f"{100 * spread.sampling:.1f}"
            )
    return lines


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
