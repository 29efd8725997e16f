"""The paired bootstrap over samples, for anything that is read off counts of outcomes.

A sample has one of a few outcomes (right before and wrong after, unparsed both times, ...). Drawing n samples with
replacement is drawing their outcomes' counts from a multinomial distribution, so that 10,000 resamples of any number of
samples take milliseconds, and nothing is approximated.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from softbench.types import Estimate

RESAMPLES = 10_000
Counts = NDArray[np.int64]
"""How often each outcome came, of shape (resamples, outcomes)."""
Statistic = Callable[[Counts], NDArray[np.float64]]
"""A value for each row of Counts; NaN where it is unknown there."""


def bootstrap(
    outcomes: Sequence[Hashable],
    statistic: Callable[[Sequence[Hashable]], Statistic],
    generator: np.random.Generator,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Estimate:
    """A statistic of `outcomes` (one a sample) with its percentile interval (Efron 1979).

    `statistic` is given the distinct outcomes and returns a function of their counts. Resamples in which it is unknown
    are left out; where it is unknown of the outcomes themselves, or there is no sample, value and interval are None.
    """
    n = len(outcomes)
    distinct = list(dict.fromkeys(outcomes))
    if not n:
        return Estimate(None, None, None, 0)
    index = {outcome: place for place, outcome in enumerate(distinct)}
    counts = np.bincount([index[outcome] for outcome in outcomes], minlength=len(distinct))
    of_counts = statistic(distinct)
    value = float(of_counts(counts[None, :])[0])
    if np.isnan(value):
        return Estimate(None, None, None, n)
    drawn = of_counts(generator.multinomial(n, counts / n, size=resamples))
    return Estimate(value, *percentile_interval(drawn, confidence), n)


def percentile_interval(drawn: NDArray[np.float64] | Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The middle `confidence` of resampled values (Efron 1979), leaving out NaN."""
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def mean_of(value: Callable[[Hashable], float]) -> Callable[[Sequence[Hashable]], Statistic]:
    """The statistic that is the mean of `value` over samples."""

    def statistic(distinct: Sequence[Hashable]) -> Statistic:
        weights = np.array([value(outcome) for outcome in distinct], dtype=np.float64)
        return lambda counts: np.asarray(counts @ weights / counts.sum(axis=1), dtype=np.float64)

    return statistic
