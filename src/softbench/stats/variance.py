"""How sure a mean is where samples hang together, and what of a spread is seeds and what is samples."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np


def clustered_stderr(values: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """Standard error of the mean where samples of one cluster (a passage, a subject) are not independent.

    The square root of the sum over clusters of their summed deviations squared, over n, with the factor G / (G - 1) for
    G clusters (Liang and Zeger 1986; CR1 of an intercept-only regression). None with fewer than two clusters.
    """
    array = np.asarray(values, dtype=np.float64)
    codes = {cluster: place for place, cluster in enumerate(dict.fromkeys(clusters))}
    if len(codes) < 2:
        return None
    sums = np.zeros(len(codes))
    np.add.at(sums, [codes[cluster] for cluster in clusters], array - array.mean())
    count = len(codes)
    return float(np.sqrt((sums**2).sum() * count / (count - 1)) / len(array))


@dataclass(frozen=True, slots=True)
class Spread:
    """What a score's spread over seeds is made of; standard deviations of a single seed's score.

    `between_seeds` is what was seen; `sampling` is what the same share of right answers would vary by on other samples.
    The two are not parts of one sum: seeds share their samples.
    """

    num_seeds: int
    mean: float
    between_seeds: float | None
    sampling: float


def spread_over_seeds(outcomes: Sequence[Sequence[bool]]) -> Spread:
    """Spread of accuracy over seeds (one list of outcomes a seed, over the same samples). Raises ValueError at none."""
    if not outcomes or not outcomes[0]:
        raise ValueError("no seed with a sample came")
    scores = np.array([np.mean(of_seed) for of_seed in outcomes], dtype=np.float64)
    by_sample = np.mean(np.asarray(outcomes, dtype=np.float64), axis=0)
    mean = float(by_sample.mean())
    return Spread(
        num_seeds=len(outcomes),
        mean=mean,
        between_seeds=float(scores.std(ddof=1)) if len(scores) > 1 else None,
        sampling=float(np.sqrt(mean * (1 - mean) / len(by_sample))),
    )
