import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from softbench.stats.rank import (
    AGREEMENTS,
    decision_accuracy,
    kendall_p,
    kendall_tau,
    leave_one_out,
    pearson_of_logits,
    score_table,
    spearman,
    top1_regret,
)

ACTUAL = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
lists = st.integers(2, 8).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 9).map(lambda i: i / 10), min_size=n, max_size=n)] * 2)
)


def test_equal_and_reversed_orders_are_the_extremes() -> None:
    for name, agreement in AGREEMENTS.items():
        best, worst = agreement(ACTUAL, ACTUAL), agreement(-ACTUAL + 1, ACTUAL)
        wanted = {"top1_regret": (0.0, 0.6), "decision_accuracy": (1.0, 0.0)}.get(name, (1.0, -1.0))
        assert (best, worst) == pytest.approx(wanted, abs=1e-9), name


def test_seven_models_need_a_tau_of_0_714() -> None:
    """Exact two-sided p: four of 21 pairs the wrong way round do not pass the 5 % level, three do."""
    three = np.array([0.2, 0.1, 0.4, 0.3, 0.6, 0.5, 0.7])
    four = np.array([0.2, 0.1, 0.4, 0.3, 0.7, 0.5, 0.6])
    assert kendall_tau(three, ACTUAL) == pytest.approx(0.714, abs=1e-3)
    assert (kendall_p(three, ACTUAL) or 1) < 0.05
    assert kendall_tau(four, ACTUAL) == pytest.approx(0.619, abs=1e-3)
    assert (kendall_p(four, ACTUAL) or 0) > 0.05


@given(lists)
def test_correlations_are_those_of_scipy_with_ties_too(drawn: tuple[list[float], list[float]]) -> None:
    one, other = (np.array(values) for values in drawn)
    if np.ptp(one) and np.ptp(other):
        assert spearman(one, other) == pytest.approx(spearmanr(one, other).statistic)
        assert kendall_tau(one, other) == pytest.approx(kendalltau(one, other).statistic)
    else:
        assert spearman(one, other) is None
        assert kendall_tau(one, other) is None
        assert pearson_of_logits(one, other) is None


@given(lists)
def test_without_ties_decision_accuracy_is_tau_moved_to_0_and_1(drawn: tuple[list[float], list[float]]) -> None:
    one, other = (np.array(values) for values in drawn)
    accuracy, tau = decision_accuracy(one, other), kendall_tau(one, other)
    if len(set(drawn[0])) == len(set(drawn[1])) == len(one):
        assert accuracy == pytest.approx(((tau or 0) + 1) / 2)
    elif not np.ptp(other):
        assert accuracy is None
    else:
        assert accuracy is not None
        assert 0 <= accuracy <= 1


def test_regret_is_what_the_first_choice_costs() -> None:
    assert top1_regret(np.array([0.1, 0.9, 0.5]), np.array([0.8, 0.6, 0.7])) == pytest.approx(0.2)
    assert top1_regret(np.array([0.9, 0.9, 0.5]), np.array([0.8, 0.6, 0.7])) == pytest.approx(0.1)


def test_leaving_one_model_out_shows_what_hangs_on_it() -> None:
    predicted = np.array([0.1, 0.2, 0.3, 0.9])
    actual = np.array([0.3, 0.2, 0.1, 0.9])
    assert kendall_tau(predicted, actual) == pytest.approx(0.0)
    assert leave_one_out(kendall_tau, predicted, actual) == pytest.approx((-1.0, 1 / 3))
    assert leave_one_out(kendall_tau, predicted[:2], actual[:2]) is None


def test_a_resample_draws_the_same_samples_for_all_models() -> None:
    outcomes = [{"t": [True, False] * 50}, {"t": [True, False] * 50}, {"t": [False, True] * 50}]
    table = score_table(outcomes, (0,), 500)
    assert table.scores.tolist() == [0.5, 0.5, 0.5]
    scores = table.drawn
    assert scores.shape == (500, 3)
    assert np.array_equal(scores, score_table(outcomes, (0,), 500).drawn)  # and for every method
    assert np.array_equal(scores[:, 0], scores[:, 1])
    assert scores[:, 0] + scores[:, 2] == pytest.approx(np.ones(500))
    assert scores[:, 0].std() == pytest.approx(0.05, abs=0.005)  # sqrt(0.25 / 100)
