"""What `softbench track` prints: scores by step of one or several training runs, and how soon they can be trusted."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from softbench.errors import SpecError
from softbench.report.grid import grid, grouped
from softbench.report.table import share_cell
from softbench.runs import FinishedJob
from softbench.stats.estimate import chance, score
from softbench.stats.track import Track, early_decisions, signal_to_noise, track
from softbench.types import SILENT, Progress

_STEP = re.compile(r"^(?P<run>.*?)[-_. ]?(?:step|checkpoint|ckpt|iter)?[-_. ]?(?P<step>\d+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tracks:
    """One task by one method: a Track for each training run, and what several of them say together."""

    task: str
    method: str
    runs: Mapping[str, Track]
    signal_to_noise: float | None
    early_decisions: Mapping[int, float | None]


def tracks(checkpoints: Sequence[Sequence[FinishedJob]], progress: Progress = SILENT) -> list[Tracks]:
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
    found = []
    with progress.track("compute metrics", len(table)) as advance:
        for (task, method), runs in table.items():
            found.append(_together(task, method, runs))
            advance(1, task)
    return found


def _together(task: str, method: str, runs: Mapping[str, Mapping[int, FinishedJob]]) -> Tracks:
    found = {}
    for run, jobs in runs.items():
        steps = sorted(jobs)
        scores = [score(jobs[step].outcomes) for step in steps]
        found[run] = track(steps, scores, chance(jobs[steps[0]].outcomes))
    shared = sorted(set.intersection(*(set(jobs) for jobs in runs.values())))
    values = [[one.scores[one.steps.index(step)].value for one in found.values()] for step in shared]
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


RUNS_A_TABLE = 3
"""Runs whose scores stand side by side in 80 columns."""


def track_tables(found: Tracks) -> list[Table]:
    """A row a step, a column a run, and below what each run's steps say together; in the last, what all runs say."""
    groups = grouped(list(found.runs), RUNS_A_TABLE)
    return [_track_table(found, names, last=names is groups[-1]) for names in groups]


def _track_table(found: Tracks, names: Sequence[str], last: bool) -> Table:
    """The table of some runs; the last one has a column on all of them, where they are several."""
    joint = last and len(found.runs) > 1
    runs = [found.runs[name] for name in names]
    table = grid(f"{found.task}, {found.method}", ("step",), (*names, *(["decides as the last"] if joint else [])))
    for step in sorted({step for one in found.runs.values() for step in one.steps}):
        decision = [_number(found.early_decisions.get(step), ".2f")] if joint else []
        table.add_row(str(step), *(_at(one, step) for one in runs), *decision)
    table.add_row("monotonicity", *(_number(one.monotonicity, ".2f") for one in runs))
    table.add_row("noise, points", *(_number(_hundred(one.noise), ".1f") for one in runs))
    table.add_row("above chance from", *(_number(one.first_above_chance, "d") for one in runs))
    if joint:
        table.add_row("signal to noise", *([""] * len(runs)), _number(found.signal_to_noise, ".1f"))
    return table


def tracks_dict(found: Tracks) -> dict[str, Any]:
    """One table for machines."""
    return asdict(found)


def _at(one: Track, step: int) -> str:
    return share_cell(one.scores[one.steps.index(step)], "\n") if step in one.steps else "-"


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
