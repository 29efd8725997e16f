"""Scores along a training run: do they rise, how noisy are they, and when do they leave chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softbench.stats.rank import decision_accuracy, spearman
from softbench.types import Estimate


@dataclass(frozen=True, slots=True)
class Track:
    """What a method's scores do along the steps of one run.

    `monotonicity` is Spearman's correlation of step and score. `noise` is the standard deviation of the scores around
    the mean of their two neighbours, over sqrt(3/2), so that it estimates a single score's deviation where the trend
    is straight; None below three steps. `first_above_chance` is the first step from which all intervals lie above it.
    """

    steps: tuple[int, ...]
    scores: tuple[Estimate, ...]
    monotonicity: float | None
    noise: float | None
    chance: float | None
    first_above_chance: int | None


def track(steps: Sequence[int], scores: Sequence[Estimate], chance: float | None) -> Track:
    """Describe scores, one a step; steps must rise. Raises ValueError otherwise."""
    if list(steps) != sorted(set(steps)):
        raise ValueError(f"steps must rise, and came as {list(steps)}")
    values = np.array([np.nan if one.value is None else one.value for one in scores])
    known = not np.isnan(values).any()
    return Track(
        steps=tuple(steps),
        scores=tuple(scores),
        monotonicity=spearman(np.array(steps, float), values) if known else None,
        noise=noise(values) if known else None,
        chance=chance,
        first_above_chance=None if chance is None else first_above(steps, scores, chance),
    )


def noise(values: np.typing.NDArray[np.float64]) -> float | None:
    """Step-to-step deviation: of each score from the mean of its neighbours, whose variance is 3/2 of a score's own."""
    if len(values) < 3:
        return None
    around = values[1:-1] - (values[:-2] + values[2:]) / 2
    return float(np.sqrt(np.mean(around**2) / 1.5))


def first_above(steps: Sequence[int], scores: Sequence[Estimate], chance: float) -> int | None:
    """The first step from which every interval lies above `chance`, or None."""
    found = None
    for step, score in zip(steps, scores, strict=True):
        if score.low is None or score.low <= chance:
            found = None
        elif found is None:
            found = step
    return found


def signal_to_noise(finals: Sequence[float], noises: Sequence[float | None]) -> float | None:
    """Spread of runs' last scores over the mean noise within runs; None with one run, or with noise unknown or 0."""
    known = [one for one in noises if one is not None]
    if len(finals) < 2 or not known or not np.mean(known):
        return None
    return float(np.std(finals, ddof=1) / np.mean(known))


def early_decisions(by_step: Sequence[Sequence[float]]) -> list[float | None]:
    """For each step, the share of pairs of runs that it orders as the last step does; runs in one order everywhere."""
    last = np.array(by_step[-1], float)
    return [decision_accuracy(np.array(scores, float), last) for scores in by_step]
