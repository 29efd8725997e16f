"""What the study finds, with intervals, read off the outcomes of single test samples.

A score is a mean over all tasks, which count alike, and over seeds. Intervals are percentiles of a bootstrap of samples
within their tasks (for these nine benchmarks), or of tasks and then of samples within them (for benchmarks like these).
All methods share the draws, so that differences between them are paired.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from softbench.stats.bootstrap import percentile_interval
from softbench.stats.curve import saturation
from softbench.types import Estimate
from studies.real_small.outcomes import Array, Outcomes, Row
from studies.real_small.study import BASE, CONTROLS, MAIN, Form

METHODS = ("zero_shot", "few_shot", "soft_prompt")

SCORED = ("format_following", "accuracy", "lenient_accuracy")
"""The measures of tables."""


@dataclass(frozen=True)
class Findings:
    """All that the tables say, as JSON can hold it; see each function below for its part."""

    seeds: list[int]
    tasks: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    differences: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    controls: list[dict[str, Any]]


def find(form: Form, rows: Iterable[Row]) -> Findings:
    """The findings of all parts that are there; without controls there are none of them."""
    draws = Draws(len(form.tasks), form.limit, form.resamples)
    by_run: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_run.setdefault((row["part"], row["model"]), []).append(row)
    runs = {model: Outcomes(of_run) for (part, model), of_run in by_run.items() if part == MAIN}
    controls = Outcomes(by_run.get((CONTROLS, BASE), ()))
    return Findings(
        seeds=sorted({row["seed"] for (part, _), of_run in by_run.items() if part == MAIN for row in of_run} - {None}),
        tasks=[row for model, run in runs.items() for row in task_rows(form, model, run)],
        scores=[score_row(model, method, run, draws) for model, run in runs.items() for method in METHODS],
        differences=[
            difference_row(model, before, run, draws) for model, run in runs.items() for before in METHODS[:2]
        ],
        curves=[row for model, run in runs.items() for row in curve_rows(form, model, run, draws)],
        controls=control_rows(form, runs[BASE], controls, draws),
    )


class Draws:
    """The draws of tasks and samples that all intervals are made of."""

    def __init__(self, num_tasks: int, num_samples: int, resamples: int, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        shares = np.full(num_samples, 1 / num_samples)
        self._samples = generator.multinomial(num_samples, shares, size=(resamples, num_tasks)) / num_samples
        self._tasks = generator.multinomial(num_tasks, np.full(num_tasks, 1 / num_tasks), size=resamples) / num_tasks

    def by_task(self, array: Array) -> list[Estimate]:
        """Each task's mean with its interval over samples."""
        drawn = np.einsum("rts,ts->rt", self._samples, array)
        return [
            Estimate(float(one.mean()), *percentile_interval(drawn[:, place]), one.size)
            for place, one in enumerate(array)
        ]

    def estimate(
        self,
        statistic: Callable[..., Array],
        *arrays: Array,
        over_tasks: bool = False,
        places: Sequence[int] | None = None,
    ) -> dict[str, float | int | None]:
        """A statistic of the arrays' means over tasks, with its interval over samples, or over tasks and samples.

        The arrays are of all tasks, or of those at `places`.
        """
        drawn_samples = self._samples if places is None else self._samples[:, list(places)]
        by_task = [np.einsum("rts,ts->rt", drawn_samples, one) for one in arrays]  # (resamples, tasks)
        drawn = [(one * self._tasks).sum(axis=1) if over_tasks else one.mean(axis=1) for one in by_task]
        with np.errstate(invalid="ignore"):
            value = float(statistic(*(np.array(one.mean()) for one in arrays)))
            if np.isnan(value):
                return asdict(Estimate(None, None, None, arrays[0].size))
            return asdict(Estimate(value, *percentile_interval(statistic(*drawn)), arrays[0].size))


def task_rows(form: Form, model: str, run: Outcomes) -> list[dict[str, Any]]:
    """Each task's format-following and accuracy by the three methods; means over seeds."""
    return [
        {"model": model, "task": task}
        | {
            f"{method}, {measure}": float(run.of(method, measure)[place].mean())
            for method in METHODS
            for measure in SCORED
        }
        for place, task in enumerate(form.tasks)
    ]


def score_row(model: str, method: str, run: Outcomes, draws: Draws) -> dict[str, Any]:
    """A method's measures, means over tasks."""
    form, right = (run.of(method, measure) for measure in ("format_following", "accuracy"))
    return {
        "model": model,
        "method": method,
        **{measure: draws.estimate(_itself, run.of(method, measure)) for measure in SCORED},
        "accuracy_given_format": draws.estimate(_ratio, right, form),
    }


def difference_row(model: str, before: str, run: Outcomes, draws: Draws) -> dict[str, Any]:
    """The soft prompt's measures minus another method's, and where the difference in accuracy comes from."""
    row: dict[str, Any] = {"model": model, "minus": before}
    for measure in ("format_following", "accuracy"):
        after = run.of("soft_prompt", measure), run.of(before, measure)
        row[measure] = draws.estimate(np.subtract, *after)
        row[f"{measure}, over tasks"] = draws.estimate(np.subtract, *after, over_tasks=True)
    return row | {name: draws.estimate(_itself, part) for name, part in run.parts(before, "soft_prompt").items()}


def curve_rows(form: Form, model: str, run: Outcomes, draws: Draws) -> list[dict[str, Any]]:
    """Measures along tuning; `saturated` is the share of tasks that have come to what they end as."""
    steps = [*form.checkpoints, run.tuning_steps]
    methods = [*(f"soft_prompt:step={step}" for step in form.checkpoints), "soft_prompt"]
    reached = {}
    for measure in ("format_following", "accuracy"):
        by_method = [draws.by_task(run.of(method, measure)) for method in methods]
        reached[measure] = [saturation(steps, of_task) for of_task in zip(*by_method, strict=True)]
    return [
        score_row(model, method, run, draws)
        | {
            "step": step,
            "saturated": {
                measure: float(np.mean([one is not None and one <= step for one in of_measure]))
                for measure, of_measure in reached.items()
            },
        }
        for step, method in zip(steps, methods, strict=True)
    ]


def control_rows(form: Form, run: Outcomes, controls: Outcomes, draws: Draws) -> list[dict[str, Any]]:
    """The base model's methods and all controls with one seed; each one's accuracy minus the soft prompt's.

    Options can be shuffled in tasks alone that have some.
    """
    seed = form.seeds[0]
    soft = run.of("soft_prompt", "accuracy", seed)
    rows = []
    for outcomes, methods in ((run, METHODS), (controls, controls.methods)):
        for method in methods:
            tasks = outcomes.tasks_of(method)
            asked = [tasks.index(task) for task in form.control_tasks if task in tasks]
            places = [form.tasks.index(tasks[place]) for place in asked]
            accuracy = outcomes.of(method, "accuracy", seed)[asked]
            followed = outcomes.of(method, "format_following", seed)[asked]
            rows.append(
                {
                    "method": method,
                    "tasks": len(places),
                    "format_following": draws.estimate(_itself, followed, places=places),
                    "accuracy": draws.estimate(_itself, accuracy, places=places),
                    "minus soft_prompt": draws.estimate(np.subtract, accuracy, soft[places], places=places),
                }
            )
    return rows


def _itself(mean: Array) -> Array:
    return mean


def _ratio(right: Array, form: Array) -> Array:
    return np.where(form > 0, right / np.where(form > 0, form, 1), np.nan)
