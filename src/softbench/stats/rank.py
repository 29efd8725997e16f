"""Do scores of base models rank their post-trained models? Agreement of two lists of scores, paired by model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from softbench.types import Estimate

RESAMPLES = 1000
Scores = NDArray[np.float64]
"""One score a model, of shape (models,)."""


def kendall_tau(predicted: Scores, actual: Scores) -> float | None:
    """Kendall's tau-b; None where one list is constant."""
    from scipy.stats import kendalltau

    return _known(kendalltau(predicted, actual).statistic) if len(actual) > 1 else None


def kendall_p(predicted: Scores, actual: Scores) -> float | None:
    """Two-sided p-value of tau-b: exact without ties (scipy's `auto`), else asymptotic; None where tau is."""
    from scipy.stats import kendalltau

    return _known(kendalltau(predicted, actual).pvalue) if len(actual) > 1 else None


def spearman(predicted: Scores, actual: Scores) -> float | None:
    """Spearman's rank correlation; None where one list is constant."""
    from scipy.stats import rankdata

    return _pearson(np.asarray(rankdata(predicted), float), np.asarray(rankdata(actual), float))


def pearson_of_logits(predicted: Scores, actual: Scores) -> float | None:
    """Pearson's correlation of log-odds, scores held between 0.005 and 0.995; None where one list is constant."""
    held = [np.clip(scores, 0.005, 0.995) for scores in (predicted, actual)]
    left, right = (np.log(scores / (1 - scores)) for scores in held)
    return _pearson(left, right)


def decision_accuracy(predicted: Scores, actual: Scores) -> float | None:
    """Share of pairs of models that differ in `actual` and are ordered the same way by `predicted`; a tie is half."""
    right, pairs = 0.0, 0
    for one, other in combinations(range(len(actual)), 2):
        if actual[one] != actual[other]:
            pairs += 1
            agreement = np.sign(predicted[one] - predicted[other]) * np.sign(actual[one] - actual[other])
            right += (agreement + 1) / 2
    return float(right / pairs) if pairs else None


def top1_regret(predicted: Scores, actual: Scores) -> float | None:
    """What is lost in `actual` by taking the model that `predicted` puts first (the mean over ties); at least 0."""
    if not len(actual):
        return None
    chosen = predicted == predicted.max()
    return float(actual.max() - actual[chosen].mean())


AGREEMENTS: dict[str, Callable[[Scores, Scores], float | None]] = {
    "kendall_tau": kendall_tau,
    "spearman": spearman,
    "pearson_of_logits": pearson_of_logits,
    "decision_accuracy": decision_accuracy,
    "top1_regret": top1_regret,
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """An agreement with its interval over samples, and its range when one model is left out; n counts models."""

    estimate: Estimate
    leave_one_out: tuple[float, float] | None


def leave_one_out(
    agreement: Callable[[Scores, Scores], float | None], predicted: Scores, actual: Scores
) -> tuple[float, float] | None:
    """The lowest and highest agreement when one model is left out; None where none is known."""
    values = [
        value
        for place in range(len(actual))
        if (value := agreement(np.delete(predicted, place), np.delete(actual, place))) is not None
    ]
    return (min(values), max(values)) if values else None


def resampled_scores(outcomes: Mapping[str, Sequence[bool]], generator: np.random.Generator, resamples: int) -> Scores:
    """Scores of every model when samples are drawn anew, of shape (resamples, models).

    All models answer the same samples in the same order, and a resample draws the same ones for all: what they share of
    a sample's difficulty stays shared.
    """
    table = np.array([list(of_model) for of_model in outcomes.values()], dtype=np.float64)  # (models, samples)
    num_samples = table.shape[1]
    counts = generator.multinomial(num_samples, np.full(num_samples, 1 / num_samples), size=resamples)
    return np.asarray(counts @ table.T / num_samples, dtype=np.float64)


def _pearson(left: Scores, right: Scores) -> float | None:
    if len(left) < 2 or not np.ptp(left) or not np.ptp(right):
        return None
    return float(np.corrcoef(left, right)[0, 1])


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


Outcomes = Mapping[str, Sequence[bool]]
"""For each task, whether each sample was right; the samples of a task are the same for all models."""


def agreement_of(
    predicted: Sequence[Outcomes],
    actual: Sequence[Outcomes],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
) -> dict[str, Agreement]:
    """Every agreement between two lists of models, a model's score being the mean of its tasks' accuracies.

    `predicted` and `actual` have an entry a model, in the same order. Intervals come from drawing samples anew within
    each task, the same ones for all models of a list.
    """
    left, right = mean_scores(predicted), mean_scores(actual)
    drawn_left = resampled_means(predicted, generator, resamples)
    drawn_right = resampled_means(actual, generator, resamples)
    return {
        name: Agreement(
            estimate=_with_interval(agreement, left, right, drawn_left, drawn_right),
            leave_one_out=leave_one_out(agreement, left, right),
        )
        for name, agreement in AGREEMENTS.items()
    }


def agreement_difference(
    one: Sequence[Outcomes],
    other: Sequence[Outcomes],
    actual: Sequence[Outcomes],
    agreement: Callable[[Scores, Scores], float | None],
    seed: int,
    resamples: int = RESAMPLES,
) -> Estimate:
    """How much better `other` agrees with `actual` than `one` does, both answering the same samples.

    A resample draws the same samples for both, so that what they share cancels.
    """
    values = [agreement(mean_scores(scores), mean_scores(actual)) for scores in (one, other)]
    drawn_one, drawn_other = (
        resampled_means(scores, np.random.default_rng(seed), resamples) for scores in (one, other)
    )
    drawn_actual = resampled_means(actual, np.random.default_rng(seed + 1), resamples)
    if values[0] is None or values[1] is None:
        return Estimate(None, None, None, len(actual))
    differences = [
        second - first
        for before, after, truth in zip(drawn_one, drawn_other, drawn_actual, strict=True)
        if (first := agreement(before, truth)) is not None and (second := agreement(after, truth)) is not None
    ]
    low, high = np.quantile(differences, [0.025, 0.975])
    return Estimate(values[1] - values[0], float(low), float(high), len(actual))


def mean_scores(models: Sequence[Outcomes]) -> Scores:
    """Each model's accuracy, the mean over its tasks."""
    return np.array([np.mean([np.mean(right) for right in tasks.values()]) for tasks in models])


def resampled_means(models: Sequence[Outcomes], generator: np.random.Generator, resamples: int) -> Scores:
    """Mean accuracies over tasks when samples are drawn anew, of shape (resamples, models)."""
    tasks = list(models[0])
    drawn = [
        resampled_scores({str(place): model[task] for place, model in enumerate(models)}, generator, resamples)
        for task in tasks
    ]
    return np.asarray(np.mean(drawn, axis=0), dtype=np.float64)


def _with_interval(
    agreement: Callable[[Scores, Scores], float | None],
    left: Scores,
    right: Scores,
    drawn_left: Scores,
    drawn_right: Scores,
) -> Estimate:
    value = agreement(left, right)
    if value is None:
        return Estimate(None, None, None, len(right))
    drawn = [one for pair in zip(drawn_left, drawn_right, strict=True) if (one := agreement(*pair)) is not None]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(value, float(low), float(high), len(right))
