"""What `softbench rank` prints: whether base models' scores, by each method, rank their post-trained models."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.table import Table
from rich.text import Text

from softbench.errors import SpecError
from softbench.runs import FinishedJob
from softbench.stats.rank import (
    AGREEMENTS,
    Agreement,
    Outcomes,
    ScoreTable,
    agreement_difference,
    agreement_of,
    kendall_p,
    kendall_tau,
    score_table,
)
from softbench.types import Estimate, Record

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


def rank(bases: Sequence[Run], posts: Sequence[Run], mapping: Path | None, post_method: str, seed: int) -> Ranking:
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
    _check_samples([run for pair in pairs for run in pair], tasks)

    def table(of_tasks: Sequence[str], method: str, half: int) -> ScoreTable:
        runs = [pair[half] for pair in pairs]  # base models on the first half of the samples, post-trained on the other
        return score_table([outcomes(run, of_tasks, method, half) for run in runs], (seed, half))

    actual = table(tasks, post_method, 1)
    predicted = {method: table(tasks, method, 0) for method in methods}
    return Ranking(
        pairs=[(base[0].model, post[0].model) for base, post in pairs],
        tasks=tasks,
        scores={name: one.scores.tolist() for name, one in (predicted | {"post": actual}).items()},
        agreements={name: agreement_of(one, actual) for name, one in predicted.items()},
        p_values={name: kendall_p(one.scores, actual.scores) for name, one in predicted.items()},
        differences={
            (one, other): agreement_difference(predicted[one], predicted[other], actual, kendall_tau)
            for one, other in combinations(methods, 2)
        },
        by_task={
            task: {
                method: agreement_of(table([task], method, 0), table([task], post_method, 1))["kendall_tau"]
                for method in methods
            }
            for task in (tasks if len(tasks) > 1 else ())
        },
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


def outcomes(run: Run, tasks: Sequence[str], method: str, half: int) -> Outcomes:
    """Whether each sample of one half of each task was right: every other sample, from the first or the second."""
    return {
        job.task: [_right(record) for record in job.records[half::2]]
        for task in tasks
        for job in run
        if job.task == task and job.label == method
    }


def ranking_tables(ranking: Ranking) -> list[Table]:
    """Scores a model, then agreement a method, then the difference that a method makes."""
    methods = list(ranking.agreements)
    scores = _table(f"scores, mean of {', '.join(ranking.tasks)}", ["base", *methods, "post-trained", "score"])
    for place, (base, post) in enumerate(ranking.pairs):
        cells = [f"{ranking.scores[method][place]:.3f}" for method in methods]
        scores.add_row(Text(base), *cells, Text(post), f"{ranking.scores['post'][place]:.3f}")
    agreement = _table(f"agreement over {len(ranking.pairs)} models", ["", *methods])
    for name in AGREEMENTS:
        agreement.add_row(Text(name), *(_cell(ranking.agreements[method][name]) for method in methods))
    agreement.add_row("reliability", *(_number(ranking.reliability[method]) for method in methods))
    agreement.add_row("p of tau", *(_p(ranking.p_values[method]) for method in methods))
    tables = [scores, agreement]
    if ranking.by_task:
        by_task = _table("kendall_tau on each task", ["", *methods])
        for task, of_task in ranking.by_task.items():
            by_task.add_row(Text(task), *(_interval(of_task[method].estimate, ".2f") for method in methods))
        tables.append(by_task)
    if ranking.differences:
        differences = _table("kendall_tau, difference of methods", ["", "difference"])
        for (one, other), estimate in ranking.differences.items():
            differences.add_row(Text(f"{other} minus {one}"), _interval(estimate, "+.2f"))
        tables.append(differences)
    return tables


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


def _right(record: Record) -> bool:
    """Right as the task scores: by the completion, or where there is none by the log-likelihoods."""
    return bool(record.choice_correct.get("raw", False)) if record.correct is None else record.correct


def _has(run: Run, task: str, label: str) -> bool:
    return any(job.task == task and job.label == label for job in run)


def _check_samples(runs: Sequence[Run], tasks: Sequence[str]) -> None:
    for task in tasks:
        seen = {tuple(record.sample.id for record in job.records) for run in runs for job in run if job.task == task}
        if len(seen) > 1:
            raise SpecError(f"the runs have different samples of {task}; run all models with the same --limit")


def _read_mapping(path: Path) -> dict[str, str]:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise SpecError(f"mapping file {str(path)!r} can't be read: {' '.join(str(error).split())}") from error
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


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left", title_style="")
    table.title = Text(title, style="bold")
    for place, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if place else "left", overflow="fold")
    return table


def _cell(agreement: Agreement) -> str:
    around = agreement.leave_one_out
    spread = "" if around is None else f"\nwithout one {around[0]:.2f} to {around[1]:.2f}"
    return _interval(agreement.estimate, ".2f") + spread


def _interval(estimate: Estimate, form: str) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
