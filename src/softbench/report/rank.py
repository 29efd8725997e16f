"""What `softbench rank` prints: whether base models' scores, by each method, rank their post-trained models."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from softbench.errors import SpecError
from softbench.report.grid import grid, grouped
from softbench.runs import FinishedJob
from softbench.stats.estimate import right
from softbench.stats.rank import (
    AGREEMENTS,
    Agreement,
    ScoreTable,
    agreement_difference,
    agreement_of,
    kendall_p,
    kendall_tau,
    score_table,
)
from softbench.types import SILENT, Estimate, Progress
from softbench.untrusted import MOST_YAML, load_yaml, read_text

Run = Sequence[FinishedJob]


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well base scores by each method agree with the post-trained models' scores.

    `differences` hold the later method's tau minus the earlier one's, by their two names; `by_task` each method's tau
    on one task alone, where there are several; `reliability` says what of a table's spread is not noise.
    """

    pairs: Sequence[tuple[str, str]]
    tasks: Sequence[str]
    scores: Mapping[str, Sequence[float]]
    agreements: Mapping[str, Mapping[str, Agreement]]
    p_values: Mapping[str, float | None]
    differences: Mapping[tuple[str, str], Estimate]
    by_task: Mapping[str, Mapping[str, Agreement]]
    reliability: Mapping[str, float | None]


def rank(
    bases: Sequence[Run],
    posts: Sequence[Run],
    mapping: Path | None,
    post_method: str,
    seed: int,
    progress: Progress = SILENT,
) -> Ranking:
    """Pair base and post-trained runs and measure agreement over the tasks that all of them have.

    Base models are scored on one half of each task's samples and post-trained ones on the other, so that no item is
    both predictor and predicted. Raises SpecError where models can't be paired or have no task in common.
    """
    pairs = pair_models(bases, posts, mapping)
    tasks = [
        task
        for task in dict.fromkeys(job.task for job in pairs[0][0])
        if all(any(job.task == task for job in run) for pair in pairs for run in pair)
    ]
    if not tasks:
        raise SpecError("the models have no task in common; run all of them on the same tasks")
    methods = [
        label
        for label in dict.fromkeys(job.label for job in pairs[0][0])
        if all(_has(base, task, label) for base, _ in pairs for task in tasks)
    ]
    for _, post in pairs:
        for task in tasks:
            if not _has(post, task, post_method):
                raise SpecError(f"{post[0].model} has no {post_method} on {task}; choose another --post-method")
    verdicts = _verdicts([run for pair in pairs for run in pair], tasks, progress)
    # Base models count on the first half of the samples, post-trained ones on the other.
    halves = verdicts[::2], verdicts[1::2]

    def table(of_tasks: Sequence[str], method: str, half: int) -> ScoreTable:
        outcomes = [{task: of_run[task, method][half::2] for task in of_tasks} for of_run in halves[half]]
        return score_table(outcomes, (seed, half))

    actual = table(tasks, post_method, 1)
    predicted = {method: table(tasks, method, 0) for method in methods}
    alone = tasks if len(tasks) > 1 else []
    duels = list(combinations(methods, 2))
    agreements: dict[str, dict[str, Agreement]] = {}
    differences: dict[tuple[str, str], Estimate] = {}
    by_task: dict[str, dict[str, Agreement]] = {task: {} for task in alone}
    with progress.track("draw samples anew", len(methods) * (1 + len(alone)) + len(duels)) as advance:
        for name, one in predicted.items():
            agreements[name] = agreement_of(one, actual)
            advance(1)
        for first, second in duels:
            differences[first, second] = agreement_difference(predicted[first], predicted[second], actual, kendall_tau)
            advance(1)
        for task in alone:
            for method in methods:
                both = table([task], method, 0), table([task], post_method, 1)
                by_task[task][method] = agreement_of(*both)["kendall_tau"]
                advance(1)
    return Ranking(
        pairs=[(base[0].model, post[0].model) for base, post in pairs],
        tasks=tasks,
        scores={name: one.scores.tolist() for name, one in (predicted | {"post": actual}).items()},
        agreements=agreements,
        p_values={name: kendall_p(one.scores, actual.scores) for name, one in predicted.items()},
        differences=differences,
        by_task=by_task,
        reliability={name: one.reliability for name, one in (predicted | {"post": actual}).items()},
    )


def pair_models(bases: Sequence[Run], posts: Sequence[Run], mapping: Path | None) -> list[tuple[Run, Run]]:
    """Each base run with its post-trained one: by a YAML file `base name: post name`, by equal names, or in order."""
    if len(bases) < 3:
        raise SpecError(f"{len(bases)} base models came; a ranking needs three at least, and shows little below seven")
    by_name = {run[0].model: run for run in posts}
    if mapping is not None:
        names = _read_mapping(mapping)
    elif all(run[0].model in by_name for run in bases):
        names = {run[0].model: run[0].model for run in bases}
    elif len(bases) == len(posts):
        return list(zip(bases, posts, strict=True))
    else:
        raise SpecError(
            f"{len(bases)} base and {len(posts)} post-trained models can't be paired in order; give --mapping FILE, "
            "with lines 'base name: post name'"
        )
    pairs = []
    for run in bases:
        post = by_name.get(names.get(run[0].model, ""))
        if post is None:
            raise SpecError(f"base model {run[0].model!r} has no post-trained one; there are {', '.join(by_name)}")
        pairs.append((run, post))
    return pairs


METHODS_A_TABLE = 4
"""Methods whose numbers stand side by side in 80 columns."""


def ranking_tables(ranking: Ranking) -> list[Table]:
    """Scores a model, then agreement a method, then the difference that a method makes."""
    methods = list(ranking.agreements)
    groups = grouped(methods, METHODS_A_TABLE)
    tables = []
    for names in groups:
        scores = grid(f"scores, mean of {', '.join(ranking.tasks)}", ("base", "post-trained"), (*names, "post-trained"))
        for place, pair in enumerate(ranking.pairs):
            cells = [f"{ranking.scores[name][place]:.3f}" for name in (*names, "post")]
            scores.add_row(*map(Text, pair), *cells)
        tables.append(scores)
    tables.append(_agreement_table(ranking))
    for names in groups if ranking.by_task else ():
        by_task = grid("kendall_tau on each task", ("task",), names)
        for task, of_task in ranking.by_task.items():
            by_task.add_row(Text(task), *(_interval(of_task[name].estimate, ".2f", "\n") for name in names))
        tables.append(by_task)
    if ranking.differences:
        differences = grid("kendall_tau, difference of methods", ("methods",), ("difference",))
        for (one, other), estimate in ranking.differences.items():
            differences.add_row(Text(f"{other} minus {one}"), _interval(estimate, "+.2f"))
        tables.append(differences)
    return tables


def _agreement_table(ranking: Ranking) -> Table:
    """A row for each agreement and method: with many methods it gets longer, and no wider."""
    title = f"agreement over {len(ranking.pairs)} models"
    table = grid(title, ("agreement", "method"), ("value", "95 % interval", "without one model"))
    for name in AGREEMENTS:
        for place, (method, of_method) in enumerate(ranking.agreements.items()):
            one = of_method[name].estimate
            left_out = _range(of_method[name].leave_one_out)
            cells = _number(one.value), _range(None if one.low is None or one.high is None else (one.low, one.high))
            table.add_row(Text("" if place else name), Text(method), *cells, left_out)
    for name, values in (("reliability", ranking.reliability), ("p of kendall_tau", ranking.p_values)):
        form = _p if values is ranking.p_values else _number
        for place, method in enumerate(ranking.agreements):
            table.add_row(Text("" if place else name), Text(method), form(values[method]))
    return table


def warning(ranking: Ranking) -> str | None:
    """What so few models can't support."""
    n = len(ranking.pairs)
    if n >= 12:
        return None
    needed = _tau_needed(n)
    least = "no tau" if needed is None else f"a tau of {needed:.2f} or more"
    return f"with {n} models {least} passes the 5 % level: differences of rank agreement need many more"


def ranking_dict(ranking: Ranking) -> dict[str, Any]:
    """The ranking for machines."""
    return {
        "pairs": ranking.pairs,
        "tasks": ranking.tasks,
        "scores": ranking.scores,
        "agreements": {
            method: {name: asdict(agreement) for name, agreement in of_method.items()}
            for method, of_method in ranking.agreements.items()
        },
        "p_values": ranking.p_values,
        "reliability": ranking.reliability,
        "tau_by_task": {
            task: {method: asdict(agreement) for method, agreement in of_task.items()}
            for task, of_task in ranking.by_task.items()
        },
        "tau_differences": {
            f"{other} minus {one}": asdict(value) for (one, other), value in ranking.differences.items()
        },
    }


def _has(run: Run, task: str, label: str) -> bool:
    return any(job.task == task and job.label == label for job in run)


def _verdicts(runs: Sequence[Run], tasks: Sequence[str], progress: Progress) -> list[dict[tuple[str, str], list[bool]]]:
    """By task and method of each run, whether each sample was right. Records are read once, and none is kept.

    Raises SpecError where two jobs on a task have other samples.
    """
    ids: dict[str, list[str]] = {}
    found: list[dict[tuple[str, str], list[bool]]] = []
    with progress.track("read records", sum(job.task in tasks for run in runs for job in run)) as advance:
        for run in runs:
            found.append({})
            for job in run:
                if job.task not in tasks:
                    continue
                verdicts = [(record.sample.id, right(record)) for record in job.outcomes]
                if ids.setdefault(job.task, [name for name, _ in verdicts]) != [name for name, _ in verdicts]:
                    raise SpecError(
                        f"the runs have different samples of {job.task}; run all models with the same --limit"
                    )
                found[-1][job.task, job.label] = [one for _, one in verdicts]
                advance(1, job.name)
    return found


def _read_mapping(path: Path) -> dict[str, str]:
    try:
        value = load_yaml(read_text(path, MOST_YAML))
    except (OSError, ValueError) as error:
        raise SpecError(f"mapping file {str(path)!r} can't be read: {error}") from error
    if not isinstance(value, dict):
        raise SpecError(f"mapping file {str(path)!r} must hold lines 'base name: post name'")
    return {str(base): str(post) for base, post in value.items()}


def _tau_needed(n: int) -> float | None:
    """The least tau of n untied models whose exact two-sided p is below 0.05, or None."""
    from scipy.stats import kendalltau

    actual = np.arange(n)
    predicted = np.arange(n)[::-1].copy()
    found = None
    # Sorting one neighbour at a time passes through every number of pairs in order, from tau -1 to tau 1.
    for end in range(n - 1, 0, -1):
        for place in range(end):
            predicted[[place, place + 1]] = predicted[[place + 1, place]]
            result = kendalltau(predicted, actual)
            if found is None and result.statistic > 0 and result.pvalue < 0.05:
                found = float(result.statistic)
    return found


def _range(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"[{ends[0]:.2f}, {ends[1]:.2f}]"


def _interval(estimate: Estimate, form: str, joint: str = " ") -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{estimate.value:{form}}{joint}[{estimate.low:{form}}, {estimate.high:{form}}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
