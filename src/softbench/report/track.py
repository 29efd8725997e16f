"""What `softbench track` prints: scores by step of one or several training runs, and how soon they can be trusted."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.errors import SpecError
from softbench.report.table import share_cell
from softbench.runs import FinishedJob
from softbench.stats.estimate import accuracy, chance, choice_accuracy
from softbench.stats.track import Track, early_decisions, signal_to_noise, track
from softbench.types import Estimate

_STEP = re.compile(r"^(?P<run>.*?)[-_. ]?(?:step|checkpoint|ckpt|iter)?[-_. ]?(?P<step>\d+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tracks:
    """One task by one method: a Track for each training run, and what several of them say together."""

    task: str
    method: str
    runs: Mapping[str, Track]
    signal_to_noise: float | None
    early_decisions: Mapping[int, float | None]


def tracks(checkpoints: Sequence[Sequence[FinishedJob]]) -> list[Tracks]:
    """Order checkpoints by run and step, both read off the model's name (`recipe-a-step1000`).

    Raises SpecError where a name has no step, or two checkpoints are one.
    """
    table: dict[tuple[str, str], dict[str, dict[int, FinishedJob]]] = {}
    for jobs in checkpoints:
        match = _STEP.match(jobs[0].model)
        if match is None:
            raise SpecError(
                f"model {jobs[0].model!r} has no step in its name; name checkpoints like recipe-step1000 (in a spec: "
                "models: [{source: ..., name: recipe-step1000}])"
            )
        run, step = match["run"] or "run", int(match["step"])
        for job in jobs:
            of_run = table.setdefault((job.task, job.label), {}).setdefault(run, {})
            if step in of_run:
                raise SpecError(f"two checkpoints are step {step} of {run!r}; name them apart")
            of_run[step] = job
    return [_together(task, method, runs) for (task, method), runs in table.items()]


def _together(task: str, method: str, runs: Mapping[str, Mapping[int, FinishedJob]]) -> Tracks:
    found = {}
    for run, jobs in runs.items():
        steps = sorted(jobs)
        found[run] = track(steps, [score(jobs[step]) for step in steps], chance(jobs[steps[0]].records))
    shared = sorted(set.intersection(*(set(jobs) for jobs in runs.values())))
    values = [[score(jobs[step]).value for jobs in runs.values()] for step in shared]
    known = len(runs) > 1 and shared and all(value is not None for of_step in values for value in of_step)
    decisions = early_decisions(values) if known else []  # type: ignore[arg-type]  # None was looked for
    finals = [one.scores[-1].value for one in found.values()]
    return Tracks(
        task=task,
        method=method,
        runs=found,
        signal_to_noise=signal_to_noise(
            [one for one in finals if one is not None], [one.noise for one in found.values()]
        ),
        early_decisions=dict(zip(shared, decisions, strict=True)) if known else {},
    )


def score(job: FinishedJob) -> Estimate:
    """What the task reports: accuracy, or where nothing is generated the accuracy by log-likelihood."""
    found = accuracy(job.records)
    return found if found.value is not None else choice_accuracy("raw")(job.records)


def track_table(found: Tracks) -> Table:
    """A row a step, a column a run, and below what the steps say together."""
    several = len(found.runs) > 1
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left", title_style="")
    table.title = Text(f"{found.task}, {found.method}", style="bold")
    for place, column in enumerate(("step", *found.runs, *(["decides as the last"] if several else []))):
        table.add_column(Text(column), justify="right" if place else "left", overflow="fold")
    for step in sorted({step for one in found.runs.values() for step in one.steps}):
        cells = [_at(one, step) for one in found.runs.values()]
        decision = found.early_decisions.get(step)
        table.add_row(str(step), *cells, *([_number(decision, ".2f")] if several else []))
    blank = [""] if several else []
    table.add_row("monotonicity", *(_number(one.monotonicity, ".2f") for one in found.runs.values()), *blank)
    table.add_row("noise, points", *(_number(_hundred(one.noise), ".1f") for one in found.runs.values()), *blank)
    table.add_row("above chance from", *(_number(one.first_above_chance, "d") for one in found.runs.values()), *blank)
    if several:
        table.add_row("signal to noise", *([""] * len(found.runs)), _number(found.signal_to_noise, ".1f"))
    return table


def tracks_dict(found: Tracks) -> dict[str, Any]:
    """One table for machines."""
    return asdict(found)


def _at(one: Track, step: int) -> str:
    return share_cell(one.scores[one.steps.index(step)], " ") if step in one.steps else "-"


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
