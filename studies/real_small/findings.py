"""What the study finds, with intervals, read off the outcomes of single test samples.

A score is a mean over all tasks, which count alike, and over seeds. Intervals are percentiles of a bootstrap of samples
within their tasks (for these nine benchmarks), or of tasks and then of samples within them (for benchmarks like these).
All methods share the draws, so that differences between them are paired.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softbench.runs import FinishedJob
from softbench.stats.bootstrap import percentile_interval
from softbench.stats.compare import ITEM_PARTS, pair
from softbench.stats.curve import saturation
from softbench.types import Estimate, Record, Status
from studies.real_small.study import BASE, Form

Array = NDArray[np.float64]
Jobs = Sequence[FinishedJob]
METHODS = ("zero_shot", "few_shot", "soft_prompt")

MEASURES: Mapping[str, Callable[[Record], bool]] = {
    "format_following": lambda record: record.status is Status.OK,
    "accuracy": lambda record: bool(record.correct),
    "lenient_accuracy": lambda record: bool(record.lenient_correct),
}
"""Each of one record; all tasks of the study have something written."""


@dataclass(frozen=True)
class Findings:
    """All that the tables say, as JSON can hold it; see each function below for its part."""

    tasks: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    differences: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    controls: list[dict[str, Any]]


def find(form: Form, jobs: Mapping[str, Jobs], controls: Jobs) -> Findings:
    """The findings of main runs, by model, and of the controls on the base model."""
    draws = Draws(len(form.tasks), form.limit, form.resamples)
    runs = {model: Outcomes(of_model) for model, of_model in jobs.items()}
    return Findings(
        tasks=[row for model, run in runs.items() for row in task_rows(form, model, run)],
        scores=[score_row(model, method, run, draws) for model, run in runs.items() for method in METHODS],
        differences=[
            difference_row(model, before, run, draws) for model, run in runs.items() for before in METHODS[:2]
        ],
        curves=[row for model, run in runs.items() for row in curve_rows(form, model, run, draws)],
        controls=control_rows(runs[BASE], Outcomes(controls), form.seeds[0], draws),
    )


class Outcomes:
    """A run's outcomes: arrays of shape (tasks, samples), averaged over seeds unless one is asked for."""

    def __init__(self, jobs: Jobs) -> None:
        self._records: dict[str, dict[int | None, dict[str, Sequence[Record]]]] = {}
        for job in jobs:
            method = re.sub(r":seed=\d+", "", job.label)
            of_seed = self._records.setdefault(method, {}).setdefault(job.block["seed"], {})
            of_seed[job.task] = job.records
        self.tuning_steps = max(int(job.block["settings"].get("steps", 0)) for job in jobs)

    @property
    def methods(self) -> list[str]:
        """All methods of the run, as labels have them but for seeds."""
        return list(self._records)

    @property
    def tasks(self) -> list[str]:
        """All tasks of the run, in its order."""
        return self.tasks_of(self.methods[0])

    def tasks_of(self, method: str) -> list[str]:
        """The tasks that this method was run on."""
        return list(next(iter(self._records[method].values())))

    def of(self, method: str, measure: str, seed: int | None = None) -> Array:
        """One measure of a method: of one seed, or the mean over all."""
        seeds = [seed] if seed is not None else list(self._records[method])
        return _mean([self._array(self._of_seed(method, one), measure) for one in seeds])

    def parts(self, before: str, after: str) -> dict[str, Array]:
        """Where the difference in accuracy comes from (see softbench.stats.compare.ITEM_PARTS), sample by sample."""
        found: dict[str, list[Array]] = {name: [] for name in ITEM_PARTS}
        for seed, records in self._records[after].items():
            first = self._of_seed(before, seed)
            outcomes = [pair(first[task], records[task]) for task in records]
            for name, part in ITEM_PARTS.items():
                found[name].append(np.array([[part(one) for one in of_task] for of_task in outcomes]))
        return {name: _mean(several) for name, several in found.items()}

    def _of_seed(self, method: str, seed: int | None) -> Mapping[str, Sequence[Record]]:
        """The records of a seed, by task; a method that uses none has the same for all."""
        of_method = self._records[method]
        return of_method[seed if seed in of_method else None]

    @staticmethod
    def _array(records: Mapping[str, Sequence[Record]], measure: str) -> Array:
        return np.array([[float(MEASURES[measure](one)) for one in of_task] for of_task in records.values()])


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
            for measure in MEASURES
        }
        for place, task in enumerate(form.tasks)
    ]


def score_row(model: str, method: str, run: Outcomes, draws: Draws) -> dict[str, Any]:
    """A method's measures, means over tasks."""
    form, right = (run.of(method, measure) for measure in ("format_following", "accuracy"))
    return {
        "model": model,
        "method": method,
        **{measure: draws.estimate(_itself, run.of(method, measure)) for measure in MEASURES},
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


def control_rows(run: Outcomes, controls: Outcomes, seed: int, draws: Draws) -> list[dict[str, Any]]:
    """The base model's methods and all controls with one seed; each one's accuracy minus the soft prompt's.

    Options can be shuffled in tasks alone that have some.
    """
    soft = run.of("soft_prompt", "accuracy", seed)
    rows = []
    for outcomes, methods in ((run, METHODS), (controls, controls.methods)):
        for method in methods:
            places = [run.tasks.index(task) for task in outcomes.tasks_of(method)]
            accuracy = outcomes.of(method, "accuracy", seed)
            form = outcomes.of(method, "format_following", seed)
            rows.append(
                {
                    "method": method,
                    "tasks": len(places),
                    "format_following": draws.estimate(_itself, form, places=places),
                    "accuracy": draws.estimate(_itself, accuracy, places=places),
                    "minus soft_prompt": draws.estimate(np.subtract, accuracy, soft[places], places=places),
                }
            )
    return rows


def _mean(arrays: Sequence[Array]) -> Array:
    return np.asarray(np.mean(arrays, axis=0))


def _itself(mean: Array) -> Array:
    return mean


def _ratio(right: Array, form: Array) -> Array:
    return np.where(form > 0, right / np.where(form > 0, form, 1), np.nan)
