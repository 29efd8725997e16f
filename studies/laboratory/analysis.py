"""What the study finds, with intervals: everything is read off the outcomes of single facts.

A score of a model is its mean over all tasks. Intervals are percentiles of a bootstrap that draws people (a person is
asked about once in each task) and, where a value is meant for other models too, draws models as well. All methods share
the draws, so that differences between them are paired.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from softbench.stats.bootstrap import percentile_interval
from softbench.stats.curve import saturation
from softbench.stats.rank import (
    ScoreTable,
    agreement_difference,
    agreement_of,
    decision_accuracy,
    kendall_p,
    kendall_tau,
    spearman,
)
from softbench.types import Estimate
from studies.laboratory.outcomes import Array, Measure, Outcome, read_outcomes, read_truth
from studies.laboratory.recipes import Form, Recipe
from studies.laboratory.tasks import FORMS
from studies.laboratory.world import generator_of

METHODS = ("zero_shot", "few_shot", "soft_prompt")
CONTROLS = ("shuffled", "format", "strange", "lora")
GENERATED = tuple(place for place, form in enumerate(FORMS.values()) if "options" not in form)
"""The tasks, by place, in which a value is written: where guessing is next to never right."""

Statistic = Callable[..., float | None]
"""A value read off scores (models,), one array for each method that it compares."""


@dataclass(frozen=True)
class Model:
    """What is known of a recipe's models. `truth` (by percent of pre-training) and outcomes are about test facts."""

    recipe: Recipe
    parameters: int
    truth: Mapping[int, Array]
    seen_truth: Array
    margin: float
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True)
class Findings:
    """All that the tables say, as JSON can hold it; see each function below for its part."""

    models: list[dict[str, Any]]
    tracks_truth: dict[str, Any]
    shown: dict[str, Any]
    ranks_post: dict[str, Any]
    controls: dict[str, Any]
    seen: dict[str, Any]
    early: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    tasks: list[dict[str, Any]]


def analyse(form: Form, outcomes: Path, seed: int) -> Findings:
    """Read all recipes' outcomes and find what there is to find. The same outcomes and seed give the same findings."""
    models = [_read_model(outcomes / f"{recipe.name}.json", recipe) for recipe in form.recipes]
    draws = Draws(len(models), form.people["test"], form.resamples, seed)
    return Findings(
        models=[_row(model) for model in models],
        tracks_truth=tracks_truth(models, draws),
        shown=shown(models, draws),
        ranks_post=ranks_post(models, draws),
        controls=controls(models, draws),
        seen=seen(models, draws, form.people["tune"]),
        early=early(models, form),
        curves=curves(models, form, draws),
        tasks=tasks(models),
    )


def _read_model(path: Path, recipe: Recipe) -> Model:
    kept = json.loads(path.read_text())
    return Model(
        recipe=recipe,
        parameters=kept["parameters"],
        truth={int(percent): read_truth(one["test"]) for percent, one in kept["truth"].items()},
        seen_truth=read_truth(kept["truth"]["100"]["seen"]),
        margin=kept["truth"]["100"]["test"]["margin"],
        outcomes=read_outcomes(kept["outcomes"]),
    )


class Draws:
    """The draws of people and models that all intervals are made of."""

    def __init__(self, num_models: int, num_people: int, resamples: int, seed: int) -> None:
        self.resamples = resamples
        self._seed = seed
        self._people = {num_people: self._draw_people("people", num_people)}
        self.models = generator_of(seed, "models").integers(num_models, size=(resamples, num_models))

    def of_people(self, count: int) -> Array:
        """How often each of `count` people is drawn, (resamples, count)."""
        if count not in self._people:
            self._people[count] = self._draw_people(f"{count} people", count)
        return self._people[count]

    def _draw_people(self, name: str, count: int) -> Array:
        shares = np.full(count, 1 / count)
        return generator_of(self._seed, name).multinomial(count, shares, size=self.resamples).astype(float)

    def table(self, arrays: Sequence[Array]) -> ScoreTable:
        """Scores of models, given each one's outcomes (tasks, people): as they are, and when people are drawn anew."""
        by_person = np.array([np.nanmean(one, axis=0) for one in arrays])  # (models, people)
        return ScoreTable(by_person.mean(axis=1), self.of_people(by_person.shape[1]) @ by_person.T / by_person.shape[1])

    def estimate(self, statistic: Statistic, *tables: ScoreTable) -> Estimate:
        """A statistic of scores, with its interval over people and models."""
        value = statistic(*(table.scores for table in tables))
        if value is None:
            return Estimate(None, None, None, len(tables[0].scores))
        drawn = [
            statistic(*(table.drawn[number][models] for table in tables)) for number, models in enumerate(self.models)
        ]
        return Estimate(value, *percentile_interval([one for one in drawn if one is not None]), len(tables[0].scores))


def pearson(one: Array, other: Array) -> float | None:
    """Pearson's correlation; None where one list is constant."""
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) and np.ptp(other) else None


CORRELATIONS: Mapping[str, Statistic] = {"pearson": pearson, "spearman": spearman, "kendall_tau": kendall_tau}


def tracks_truth(models: Sequence[Model], draws: Draws) -> dict[str, Any]:
    """How well each method's scores agree with true knowledge over models, and by how much one is ahead of another."""
    actual = draws.table([model.truth[100] for model in models])
    tables = {method: _table(models, draws, method, "right") for method in METHODS}
    tables["zero_shot, lenient"] = _table(models, draws, "zero_shot", "lenient")
    agreement = {
        method: {name: asdict(draws.estimate(one, table, actual)) for name, one in CORRELATIONS.items()}
        for method, table in tables.items()
    }
    differences = {
        f"{other} minus {one}": {
            name: asdict(draws.estimate(_difference(statistic), tables[one], tables[other], actual))
            for name, statistic in CORRELATIONS.items()
        }
        for one, other in combinations(METHODS, 2)
    }
    error = {
        method: asdict(draws.estimate(lambda score, truth: float(np.abs(score - truth).mean()), table, actual))
        for method, table in tables.items()
    }
    return {"agreement": agreement, "differences": differences, "mean_absolute_error": error}


def _difference(statistic: Statistic) -> Statistic:
    def difference(one: Array, other: Array, actual: Array) -> float | None:
        first, second = statistic(one, actual), statistic(other, actual)
        return None if first is None or second is None else second - first

    return difference


def shown(models: Sequence[Model], draws: Draws) -> dict[str, Any]:
    """Of the facts that a model knows, the share that a method shows; and of those that it does not, the share right.

    Over the tasks in which a value is written. The second is what guessing and forms can do without knowledge.
    """
    found: dict[str, Any] = {}
    for method in (*METHODS, *CONTROLS, "post"):
        right = [model.outcomes[method].measures["right"][list(GENERATED)] for model in models]
        known = [model.truth[100][list(GENERATED)] for model in models]
        found[method] = {
            "of known facts": asdict(_share(draws, right, known)),
            "of unknown facts": asdict(_share(draws, right, [1 - one for one in known])),
        }
    return found


def _share(draws: Draws, right: Sequence[Array], among: Sequence[Array]) -> Estimate:
    """The share of `right` among the facts of `among`, all models together."""
    hits = draws.table([one * chosen for one, chosen in zip(right, among, strict=True)])
    chosen = draws.table(among)
    return draws.estimate(lambda one, of: float(one.sum() / of.sum()) if of.sum() else None, hits, chosen)


def ranks_post(models: Sequence[Model], draws: Draws) -> dict[str, Any]:
    """How well scores of base models rank their post-trained ones, which are scored on the other half of the people.

    Intervals of agreement are over people, the models being as they are; those of differences also over models.
    """

    def half(table: Sequence[Array], first: int) -> ScoreTable:
        return draws.table([one[:, first::2] for one in table])

    actual = half([model.outcomes["post"].measures["right"] for model in models], 1)
    tables = {method: half([model.outcomes[method].measures["right"] for model in models], 0) for method in METHODS} | {
        "true knowledge": half([model.truth[100] for model in models], 0)
    }
    return {
        "agreement": {
            method: {name: asdict(one) for name, one in agreement_of(table, actual).items()}
            for method, table in tables.items()
        },
        "p_of_tau": {method: kendall_p(table.scores, actual.scores) for method, table in tables.items()},
        "reliability": {name: table.reliability for name, table in ({**tables, "post": actual}).items()},
        "differences": {
            f"{other} minus {one}": {
                "over people": asdict(agreement_difference(tables[one], tables[other], actual, kendall_tau)),
                "over people and models": asdict(
                    draws.estimate(_difference(kendall_tau), tables[one], tables[other], actual)
                ),
            }
            for one, other in combinations(METHODS, 2)
        },
    }


def controls(models: Sequence[Model], draws: Draws) -> dict[str, Any]:
    """What is left of the soft prompt's scores where it can't have learned answers; means over models and tasks."""
    gold = _table(models, draws, "soft_prompt", "right")
    found: dict[str, Any] = {}
    for method in (*METHODS, *CONTROLS):
        table = _table(models, draws, method, "right")
        found[method] = {
            "accuracy": asdict(draws.estimate(_mean, table)),
            "format_following": asdict(draws.estimate(_mean, _table(models, draws, method, "form"))),
            "minus soft_prompt": asdict(draws.estimate(lambda one, other: float((one - other).mean()), table, gold)),
        }
    return found


def seen(models: Sequence[Model], draws: Draws, num_people: int) -> dict[str, Any]:
    """Whether a soft prompt shows more of the facts that it was tuned on than of others.

    `excess` is by how much accuracy is above true knowledge on the former, less the same on the latter.
    """
    tuned = draws.table([model.outcomes["seen/soft_prompt"].measures["right"] for model in models])
    tuned_truth = draws.table([model.seen_truth for model in models])
    tested = draws.table([model.outcomes["soft_prompt"].measures["right"] for model in models])
    tested_truth = draws.table([model.truth[100] for model in models])
    tables = {
        "accuracy on facts tuned on": tuned,
        "true knowledge of facts tuned on": tuned_truth,
        "accuracy on other facts": tested,
        "true knowledge of other facts": tested_truth,
    }
    return {name: asdict(draws.estimate(_mean, table)) for name, table in tables.items()} | {
        "excess": asdict(
            draws.estimate(
                lambda a, b, c, d: float(((a - b) - (c - d)).mean()), tuned, tuned_truth, tested, tested_truth
            )
        ),
        "people": {"tuned on": num_people, "others": models[0].truth[100].shape[1]},
    }


def early(models: Sequence[Model], form: Form) -> list[dict[str, Any]]:
    """How well scores after a part of pre-training order the recipes as true knowledge at its end does, by method.

    `decides_as_own_end` is the share of pairs of recipes in the order that the method itself has at the end.
    """
    end = np.array([model.truth[100].mean() for model in models])
    rows = []
    for method in (*METHODS, "true knowledge"):
        last = _early_scores(models, method, 100)
        for percent in (*form.early, 100):
            scores = _early_scores(models, method, percent)
            rows.append(
                {
                    "percent": percent,
                    "method": method,
                    "mean": float(scores.mean()),
                    "tau_with_truth": kendall_tau(scores, end),
                    "decides_as_truth": decision_accuracy(scores, end),
                    "decides_as_own_end": decision_accuracy(scores, last),
                }
            )
    return rows


def _early_scores(models: Sequence[Model], method: str, percent: int) -> Array:
    if method == "true knowledge":
        return np.array([model.truth[percent].mean() for model in models])
    key = method if percent == 100 else f"{percent}/{method}"
    return np.array([model.outcomes[key].measures["right"].mean() for model in models])


def curves(models: Sequence[Model], form: Form, draws: Draws) -> list[dict[str, Any]]:
    """Format-following, accuracy and accuracy given format along tuning, over the tasks in which something is written.

    `saturated` is the share of models whose value at that step has reached what it ends as (see `softbench curve`).
    """
    rows = []
    steps = [*form.checkpoints, form.tune_steps]
    keys = [f"soft_prompt@{step}" for step in form.checkpoints] + ["soft_prompt"]
    reached: dict[str, list[int | None]] = {}
    for measure in ("form", "right"):
        estimates = [[_written_estimate(model, key, measure, draws) for key in keys] for model in models]
        reached[measure] = [saturation(steps, of_model) for of_model in estimates]
    for step, key in zip(steps, keys, strict=True):
        form_table = draws.table([_written(model, key, "form") for model in models])
        right_table = draws.table([_written(model, key, "right") for model in models])
        rows.append(
            {
                "step": step,
                "samples": 8 * step,
                "format_following": asdict(draws.estimate(_mean, form_table)),
                "accuracy": asdict(draws.estimate(_mean, right_table)),
                "accuracy_given_format": asdict(
                    draws.estimate(
                        lambda right, form: float(right.sum() / form.sum()) if form.sum() else None,
                        right_table,
                        form_table,
                    )
                ),
                "saturated": {
                    name: float(np.mean([one is not None and one <= step for one in reached[measure]]))
                    for name, measure in (("format_following", "form"), ("accuracy", "right"))
                },
            }
        )
    return rows


def _written_estimate(model: Model, key: str, measure: Measure, draws: Draws) -> Estimate:
    """A model's own score, with its interval over people."""
    table = draws.table([_written(model, key, measure)])
    return Estimate(float(table.scores[0]), *percentile_interval(table.drawn[:, 0]), 1)


def _written(model: Model, key: str, measure: Measure) -> Array:
    """Outcomes of the tasks in which something is written, (tasks, people)."""
    return model.outcomes[key].measures[measure][:-1]  # lab_cloze comes last


def tasks(models: Sequence[Model]) -> list[dict[str, Any]]:
    """Each task's mean format-following and accuracy over models, by method; true knowledge of what it asks."""
    rows = []
    for place, name in enumerate(FORMS):
        row: dict[str, Any] = {"task": name, "true knowledge": float(np.mean([m.truth[100][place] for m in models]))}
        for method in (*METHODS, "post"):
            for measure in ("form", "right"):
                values = np.array([model.outcomes[method].measures[measure][place] for model in models])
                row[f"{method}, {measure}"] = None if np.isnan(values).all() else float(values.mean())
        rows.append(row)
    return rows


def _row(model: Model) -> dict[str, Any]:
    """What the table of models says of one."""
    row: dict[str, Any] = {
        "recipe": model.recipe.name,
        "parameters": model.parameters,
        "steps": model.recipe.steps,
        **asdict(model.recipe.knobs),
        "true_knowledge": float(model.truth[100].mean()),
        "margin": model.margin,
    }
    for method in (*METHODS, "post"):
        outcome = model.outcomes[method]
        row[method] = float(outcome.measures["right"].mean())
        row[f"{method}_form"] = float(np.nanmean(outcome.measures["form"]))
    for method in ("few_shot", "soft_prompt"):
        scores = model.outcomes[method].by_seed
        row[f"{method}_seeds_sd"] = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    return row


def _table(models: Sequence[Model], draws: Draws, method: str, measure: Measure) -> ScoreTable:
    return draws.table([model.outcomes[method].measures[measure] for model in models])


def _mean(scores: Array) -> float:
    return float(scores.mean())
