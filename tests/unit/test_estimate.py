import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from softbench.stats.estimate import (
    METRICS,
    format_gap,
    groups_of,
    knowledge_bounds,
    macro_average,
    metrics_of,
    wilson,
)
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


def test_a_macro_average_counts_each_group_alike() -> None:
    groups = [wilson(9, 10), wilson(10, 40), wilson(0, 0)]
    macro = macro_average(groups)
    assert macro.value == pytest.approx((0.9 + 0.25) / 2)
    assert macro.n == 2
    # By hand: (11 / 14)(3 / 14) / 14 and (12 / 44)(32 / 44) / 44, over 2 squared, times 1.96 at the root.
    half = 1.959964 * ((11 * 3 / 14**3 + 12 * 32 / 44**3) / 4) ** 0.5
    assert (macro.low, macro.high) == pytest.approx((0.575 - half, 0.575 + half), rel=1e-6)
    assert macro_average([wilson(0, 0)]) == wilson(0, 0)
    certain = macro_average([wilson(10, 10), wilson(10, 10)])
    assert certain.high == 1.0
    assert certain.low is not None
    assert certain.low < 0.95


def test_groups_have_metrics_of_their_own() -> None:
    grouped = [
        dataclasses.replace(one, sample=dataclasses.replace(one.sample, group="ab"[place % 2]))
        for place, one in enumerate(RECORDS)
    ]
    groups = groups_of(grouped)
    assert list(groups) == ["a", "b"]
    assert groups["a"] == metrics_of(grouped[::2])
    assert groups_of(RECORDS) == {}


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
