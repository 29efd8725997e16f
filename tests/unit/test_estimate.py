import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from softbench.stats.estimate import METRICS, format_gap, knowledge_bounds, metrics_of, wilson
from softbench.types import Completion, Prompt, Record, Sample, Status

SAMPLE = Sample("s", {}, ("A",), ("x", "y"), 0)


def record(status: Status | None, correct: bool, lenient: bool, raw: bool | None = None) -> Record:
    generated = status is not None
    return Record(
        doc_id=0,
        sample=SAMPLE,
        method="zero_shot",
        seed=0,
        prompt=Prompt("s", "", ""),
        completion=Completion("", "eos", 1, 1) if generated else None,
        status=status,
        answer="A" if status is Status.OK else None,
        correct=correct if generated else None,
        lenient_answer=None,
        lenient_correct=lenient if generated else None,
        choice_correct={} if raw is None else {"raw": raw},
    )


RECORDS = [
    record(Status.OK, correct=True, lenient=True, raw=True),
    record(Status.OK, correct=False, lenient=False, raw=True),
    record(Status.NO_ANSWER, correct=False, lenient=True, raw=True),
    record(Status.TRUNCATED, correct=False, lenient=False, raw=False),
    record(Status.AMBIGUOUS, correct=False, lenient=False, raw=False),
]


def test_metrics_worked_by_hand() -> None:
    metrics = metrics_of(RECORDS)
    assert {name: (one.value, one.n) for name, one in metrics.items()} == {
        "format_following": (2 / 5, 5),
        "accuracy": (1 / 5, 5),
        "accuracy_given_format": (1 / 2, 2),
        "lenient_accuracy": (2 / 5, 5),
        "choice_accuracy_raw": (3 / 5, 5),
        "choice_accuracy_per_char": (None, 0),
        "choice_accuracy_per_byte": (None, 0),
        "choice_accuracy_per_token": (None, 0),
    }
    assert knowledge_bounds(metrics) == pytest.approx((0.2, 0.8))
    assert format_gap(metrics, "lenient_accuracy") == pytest.approx(0.2)
    assert format_gap(metrics, "choice_accuracy_raw") == pytest.approx(0.4)
    assert format_gap(metrics, "choice_accuracy_per_char") is None


def test_what_was_not_measured_is_unknown_and_not_zero() -> None:
    for records in ([], [record(None, correct=False, lenient=False)]):
        metrics = metrics_of(records)
        assert metrics.keys() == METRICS.keys()
        assert all(one.value is None and one.low is None and one.n == 0 for one in metrics.values())
        assert knowledge_bounds(metrics) is None


def test_accuracy_given_format_is_unknown_where_nothing_parsed() -> None:
    metrics = metrics_of(RECORDS[2:])
    assert metrics["accuracy"].value == 0.0
    assert metrics["accuracy_given_format"].value is None


def test_an_interval_has_width_at_zero_and_at_one() -> None:
    assert wilson(0, 100).high == pytest.approx(0.0370, abs=1e-4)
    assert wilson(100, 100).low == pytest.approx(0.9630, abs=1e-4)
    assert wilson(0, 1).high == pytest.approx(0.7935, abs=1e-4)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_inverts_the_score_test(counts: tuple[int, int]) -> None:
    successes, n = counts
    estimate = wilson(successes, n)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 <= estimate.low <= successes / n <= estimate.high <= 1
    z = norm.ppf(0.975)
    for bound in (estimate.low, estimate.high):
        if 1e-9 < bound < 1 - 1e-9:
            assert abs(successes / n - bound) == pytest.approx(z * (bound * (1 - bound) / n) ** 0.5, rel=1e-6, abs=1e-9)
