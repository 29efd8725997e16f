import numpy as np
import pytest

from softbench.stats.estimate import wilson
from softbench.stats.track import early_decisions, first_above, noise, signal_to_noise, track
from softbench.types import Estimate


def test_a_straight_rise_is_monotone_and_without_noise() -> None:
    found = track([1, 2, 3, 4], [wilson(n, 100) for n in (20, 30, 40, 50)], chance=0.25)
    assert found.monotonicity == pytest.approx(1.0)
    assert found.noise == pytest.approx(0.0, abs=1e-12)
    # 30 % of 100 is not yet above chance (22 to 40 %), 40 % is.
    assert found.first_above_chance == 3


def test_noise_estimates_a_single_scores_deviation_around_a_trend() -> None:
    generator = np.random.default_rng(0)
    values = np.linspace(0.2, 0.8, 5000) + generator.normal(0, 0.03, 5000)
    assert noise(values) == pytest.approx(0.03, rel=0.05)
    assert noise(values[:2]) is None


def test_a_score_that_falls_back_to_chance_has_not_left_it() -> None:
    scores = [wilson(n, 100) for n in (50, 25, 50, 60)]
    assert first_above([1, 2, 3, 4], scores, 0.25) == 3
    assert first_above([1, 2], scores[:2], 0.25) is None


def test_unknown_scores_stay_unknown() -> None:
    found = track([1, 2, 3], [wilson(1, 9), Estimate(None, None, None, 0), wilson(5, 9)], chance=None)
    assert (found.monotonicity, found.noise, found.first_above_chance) == (None, None, None)
    with pytest.raises(ValueError, match="steps must rise"):
        track([2, 1], [wilson(1, 9)] * 2, None)


def test_runs_are_told_apart_by_their_spread_over_their_noise() -> None:
    assert signal_to_noise([0.4, 0.6], [0.02, 0.02]) == pytest.approx(np.std([0.4, 0.6], ddof=1) / 0.02)
    assert signal_to_noise([0.4], [0.02]) is None
    assert signal_to_noise([0.4, 0.6], [None, None]) is None


def test_early_steps_decide_as_the_last_one_does() -> None:
    assert early_decisions([[0.3, 0.2, 0.1], [0.1, 0.3, 0.2], [0.1, 0.2, 0.3]]) == pytest.approx([0.0, 2 / 3, 1.0])
