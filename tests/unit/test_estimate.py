import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from softbench.stats.estimate import (
    METRICS,
    UNKNOWN,
    answer_mass,
    chance,
    chance_corrected,
    f1,
    format_gap,
    groups_of,
    knowledge_bounds,
    letter_shares,
    macro_average,
    mean,
    metrics_of,
    top_token_accuracy,
    wilson,
    word_f1,
)
from softbench.types import ChoiceScore, Completion, Prompt, Record, Sample, Status

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
        "choice_accuracy_pmi": (None, 0),
        "answer_mass": (None, 0),
        "top_token_accuracy": (None, 0),
        "f1": (None, 0),
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
    # By hand: (10 / 12)(2 / 12) / 10 and (11 / 42)(31 / 42) / 40, over 2 squared, times 1.96 at the root.
    half = 1.959964 * ((10 * 2 / 12**2 / 10 + 11 * 31 / 42**2 / 40) / 4) ** 0.5
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


def test_a_mean_has_students_interval() -> None:
    values = [0.2, 0.4, 0.9, 0.1]
    got = mean(values)
    assert got.stderr is not None
    interval = t.interval(0.95, 3, loc=0.4, scale=got.stderr)
    assert got.value == pytest.approx(0.4)
    assert got.stderr == pytest.approx((0.38 / 3 / 4) ** 0.5)  # 0.04 + 0 + 0.25 + 0.09 around 0.4
    assert (got.low, got.high) == pytest.approx((max(0.0, interval[0]), min(1.0, interval[1])))
    assert mean([]) == UNKNOWN
    assert (mean([0.3]).value, mean([0.3]).low, mean([0.3]).n) == (0.3, None, 1)


def test_answer_mass_and_top_token_by_hand() -> None:
    seen = [
        dataclasses.replace(RECORDS[0], answer_mass=mass, top_token="A", top_options=top)
        for mass, top in ((0.5, (0,)), (0.1, ()), (0.9, (1,)), (0.7, (0, 1)))
    ]
    assert answer_mass(seen).value == pytest.approx(0.55)
    assert (top_token_accuracy(seen).value, top_token_accuracy(seen).n) == (0.5, 4)
    assert top_token_accuracy(RECORDS).n == 0


@pytest.mark.parametrize(
    ("said", "accepted", "wanted"),
    [
        ("The Eiffel Tower", "eiffel tower", 1.0),
        ("Tower of London", "London", 0.5),  # 1 of 3 words, 1 of 1
        ("Paris Paris", "Paris", 2 / 3),
        ("Rome", "Paris", 0.0),
        ("the", "a", 0.0),  # an article alone is all that was said
        ("", "Paris", 0.0),
    ],
)
def test_f1_of_words(said: str, accepted: str, wanted: float) -> None:
    assert word_f1(said, accepted) == pytest.approx(wanted)


def test_f1_takes_the_best_of_the_accepted_answers() -> None:
    sample = Sample("s", {}, ("New York City", "the Big Apple"))
    said = [dataclasses.replace(RECORDS[0], sample=sample, answer=answer) for answer in ("big apple", "York", None)]
    assert f1(said).value == pytest.approx((1.0 + 0.5 + 0.0) / 3)
    assert f1(RECORDS).n == 0  # multiple choice


@given(st.text(max_size=30), st.text(max_size=30))
def test_f1_is_symmetric_and_between_0_and_1(one: str, other: str) -> None:
    assert 0.0 <= word_f1(one, other) == word_f1(other, one) <= 1.0
    assert word_f1(one, one) == 1.0


def test_chance_is_what_guessing_scores() -> None:
    four = dataclasses.replace(RECORDS[0], sample=dataclasses.replace(SAMPLE, choices=("a", "b", "c", "d")))
    assert chance([RECORDS[0], four]) == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert chance([]) is None
    assert chance([dataclasses.replace(four, sample=Sample("s", {}, ("x",)))]) is None
    corrected = chance_corrected(wilson(70, 100), 0.25)
    assert corrected.value == pytest.approx((0.7 - 0.25) / 0.75)
    assert corrected.low == pytest.approx(((wilson(70, 100).low or 0) - 0.25) / 0.75)
    assert corrected.stderr == pytest.approx((wilson(70, 100).stderr or 0) / 0.75)
    assert chance_corrected(wilson(70, 100), None) == UNKNOWN
    assert chance_corrected(UNKNOWN, 0.25) == UNKNOWN


def test_letters_chosen_and_right() -> None:
    def scored(best: int, gold: int) -> Record:
        scores = tuple(ChoiceScore(-1.0 - (place != best), 1, False) for place in range(2))
        return dataclasses.replace(RECORDS[0], sample=dataclasses.replace(SAMPLE, gold=gold), choice_scores=scores)

    shares = letter_shares([scored(0, 0), scored(0, 1), scored(0, 1), scored(1, 0)])
    assert shares == {"A": (0.75, 0.5), "B": (0.25, 0.5)}
    assert letter_shares(RECORDS) == {}
