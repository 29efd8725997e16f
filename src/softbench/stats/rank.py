"""Do scores of base models rank their post-trained models? Agreement of two lists of scores, paired by model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from softbench.stats.bootstrap import percentile_interval
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


def _pearson(left: Scores, right: Scores) -> float | None:
    if len(left) < 2 or not np.ptp(left) or not np.ptp(right):
        return None
    return float(np.corrcoef(left, right)[0, 1])


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


Outcomes = Mapping[str, Sequence[bool]]
"""For each task, whether each sample was right; the samples of a task are the same for all models."""


@dataclass(frozen=True)
class ScoreTable:
    """Scores of models by one method: as they are (models,), and when samples are drawn anew (resamples, models)."""

    scores: Scores
    drawn: Scores

    @property
    def reliability(self) -> float | None:
        """Share of the variance between models that is not the samples' noise, 0 at least; None where there is none.

        Noise pulls every agreement towards that of chance, and the intervals with it.
        """
        between = float(np.var(self.scores, ddof=1)) if len(self.scores) > 1 else 0.0
        return max(0.0, 1 - float(np.var(self.drawn, axis=0).mean()) / between) if between else None


def score_table(models: Sequence[Outcomes], seed: Sequence[int], resamples: int = RESAMPLES) -> ScoreTable:
    """Each model's accuracy, the mean over its tasks.

    A resample draws the same samples for all models, and with equal seeds for all methods: what they share of a
    sample's difficulty stays shared.
    """
    generator = np.random.default_rng(seed)
    scores, drawn = [], []
    for task in models[0]:
        table = np.array([list(of_model[task]) for of_model in models], dtype=np.float64)  # (models, samples)
        num_samples = table.shape[1]
        counts = generator.multinomial(num_samples, np.full(num_samples, 1 / num_samples), size=resamples)
        scores.append(table.mean(axis=1))
        drawn.append(counts @ table.T / num_samples)
    return ScoreTable(np.mean(scores, axis=0), np.mean(drawn, axis=0))


def agreement_of(predicted: ScoreTable, actual: ScoreTable) -> dict[str, Agreement]:
    """Every agreement between two lists of models in the same order, with its interval over samples."""
    return {
        name: Agreement(
            estimate=_with_interval(
                agreement(predicted.scores, actual.scores),
                (agreement(*pair) for pair in zip(predicted.drawn, actual.drawn, strict=True)),
                len(actual.scores),
            ),
            leave_one_out=leave_one_out(agreement, predicted.scores, actual.scores),
        )
        for name, agreement in AGREEMENTS.items()
    }


def agreement_difference(
    one: ScoreTable,
    other: ScoreTable,
    actual: ScoreTable,
    agreement: Callable[[Scores, Scores], float | None],
) -> Estimate:
    """How much better `other` agrees with `actual` than `one` does, both answering the same samples."""

    def difference(before: Scores, after: Scores, truth: Scores) -> float | None:
        first, second = agreement(before, truth), agreement(after, truth)
        return None if first is None or second is None else second - first

    return _with_interval(
        difference(one.scores, other.scores, actual.scores),
        (difference(*three) for three in zip(one.drawn, other.drawn, actual.drawn, strict=True)),
        len(actual.scores),
    )


def _with_interval(value: float | None, drawn: Iterable[float | None], n: int) -> Estimate:
    if value is None:
        return Estimate(None, None, None, n)
    return Estimate(value, *percentile_interval([one for one in drawn if one is not None]), n)
