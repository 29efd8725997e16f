import math
from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as mcnemar_of_statsmodels
from statsmodels.stats.multitest import multipletests

from softbench.stats.bootstrap import bootstrap, mean_of
from softbench.stats.compare import compare, holm, mcnemar, samples_needed
from softbench.types import Completion, Prompt, Record, Sample, Status


def record(name: str, parsed: bool, right: bool, lenient: bool = False, choice: bool = False) -> Record:
    return Record(
        doc_id=0,
        sample=Sample(name, {}, ("A",), ("x", "y"), 0),
        method="m",
        seed=0,
        prompt=Prompt(name, "", ""),
        completion=Completion("", "eos", 1, 1),
        status=Status.OK if parsed else Status.NO_ANSWER,
        answer="A" if parsed else None,
        correct=parsed and right,
        lenient_answer=None,
        lenient_correct=lenient,
        choice_scores=(),
        choice_correct={"raw": choice},
    )


def run_of(*flags: tuple[bool, bool, bool, bool]) -> list[Record]:
    return [record(str(place), *of_sample) for place, of_sample in enumerate(flags)]


Y, N = True, False
BEFORE = run_of(
    (N, N, Y, N), (N, N, N, Y), (N, N, N, N), (N, N, Y, N), (Y, Y, Y, N), (Y, Y, Y, N), (Y, N, N, N), (Y, Y, Y, N)
)
AFTER = run_of(
    (Y, Y, Y, N), (Y, Y, Y, N), (Y, Y, Y, N), (Y, N, N, N), (N, N, N, N), (Y, N, N, N), (Y, Y, Y, N), (Y, Y, Y, N)
)

flags = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans())
pairs = st.lists(st.tuples(flags, flags), min_size=1, max_size=30)


def test_a_difference_is_split_by_item_as_by_hand() -> None:
    result = compare(BEFORE, AFTER)
    assert result.n == 8
    assert result.accuracy.value == pytest.approx(5 / 8 - 3 / 8)
    assert result.format_following.value == pytest.approx(7 / 8 - 4 / 8)
    assert result.accuracy_given_format.value == pytest.approx(5 / 7 - 3 / 4)
    assert {name: part.value for name, part in result.by_item.items()} == pytest.approx(
        {"unlocked": 2 / 8, "new": 1 / 8, "lost": -1 / 8, "changed": 0.0}
    )
    # 3/8 more of the samples in form, at a mean of (3/4 + 5/7) / 2; 5/7 - 3/4 more known, at a mean of 11/16 in form.
    assert result.by_rates["format"].value == pytest.approx(3 / 8 * (3 / 4 + 5 / 7) / 2)
    assert result.by_rates["knowledge"].value == pytest.approx((5 / 7 - 3 / 4) * 11 / 16)
    assert result.p_value == mcnemar(4, 2)


@given(pairs)
def test_the_parts_add_up_to_the_difference(drawn: list[tuple[tuple[bool, ...], tuple[bool, ...]]]) -> None:
    before = run_of(*(one for one, _ in drawn))  # type: ignore[arg-type]
    after = run_of(*(other for _, other in drawn))  # type: ignore[arg-type]
    result = compare(before, after)
    assert result.accuracy.value is not None
    assert sum(part.value or 0.0 for part in result.by_item.values()) == pytest.approx(result.accuracy.value)
    by_rates = [part.value for part in result.by_rates.values()]
    if None not in by_rates:
        assert sum(part or 0.0 for part in by_rates) == pytest.approx(result.accuracy.value)
    for part in (result.accuracy, *result.by_item.values()):
        assert part.low is not None
        assert part.high is not None
        assert -1 <= part.low <= part.high <= 1


def test_samples_are_paired_by_their_ids() -> None:
    assert compare(BEFORE, AFTER[::-1]).by_item == compare(BEFORE, AFTER).by_item
    assert compare(BEFORE[:3], AFTER[2:]).n == 1
    nothing = compare(BEFORE[:1], AFTER[1:])
    assert (nothing.n, nothing.accuracy.value, nothing.p_value) == (0, None, None)


def test_what_is_known_of_nothing_stays_unknown() -> None:
    result = compare(run_of((N, N, N, N), (N, N, N, N)), run_of((Y, Y, N, N), (Y, N, N, N)))
    assert result.accuracy_given_format.value is None
    assert result.by_rates["knowledge"].value is None
    assert result.accuracy.value == 0.5


def test_the_same_seed_gives_the_same_intervals() -> None:
    assert compare(BEFORE, AFTER, seed=3) == compare(BEFORE, AFTER, seed=3)


@pytest.mark.parametrize(("gained", "lost"), [(4, 2), (0, 7), (30, 12), (1, 0), (100, 100)])
def test_mcnemar_is_that_of_statsmodels(gained: int, lost: int) -> None:
    theirs = mcnemar_of_statsmodels([[5, gained], [lost, 9]], exact=True).pvalue
    assert mcnemar(gained, lost) == pytest.approx(theirs)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())


def test_the_bootstrap_is_that_of_drawing_samples() -> None:
    """Against the plain way: indices drawn with replacement, one resample after the other."""
    generator = np.random.default_rng(0)
    values = generator.choice([-1.0, 0.0, 1.0], p=[0.1, 0.5, 0.4], size=200)
    ours = bootstrap(list(values), mean_of(lambda one: float(str(one))), np.random.default_rng(1))
    plain = [values[generator.integers(0, 200, 200)].mean() for _ in range(10_000)]
    assert ours.value == pytest.approx(values.mean())
    assert ours.low == pytest.approx(np.quantile(plain, 0.025), abs=0.005)
    assert ours.high == pytest.approx(np.quantile(plain, 0.975), abs=0.005)
    # And against the normal approximation.
    half = 1.96 * values.std() / math.sqrt(200)
    assert ours.high == pytest.approx(values.mean() + half, abs=0.01)


def test_the_interval_covers_at_its_stated_rate() -> None:
    """400 pairs of runs whose true difference is known: some 95 % of intervals hold it."""
    generator = np.random.default_rng(2)
    outcomes: Sequence[Hashable] = (-1, 0, 1)
    shares = [0.15, 0.6, 0.25]
    held = 0
    for _ in range(400):
        drawn = generator.choice(3, p=shares, size=150)
        estimate = bootstrap(
            [outcomes[one] for one in drawn], mean_of(lambda one: float(str(one))), generator, resamples=2000
        )
        assert estimate.low is not None
        assert estimate.high is not None
        held += estimate.low <= 0.1 <= estimate.high
    assert 0.92 <= held / 400 <= 0.98


def test_the_samples_needed_give_the_power_that_was_asked_for() -> None:
    needed = samples_needed(difference=0.05, discordance=0.2)
    generator = np.random.default_rng(4)
    counts = generator.multinomial(needed, [0.125, 0.075, 0.8], size=600)
    found = [(mcnemar(int(gained), int(lost)) or 1.0) < 0.05 for gained, lost, _ in counts]
    assert np.mean(found) == pytest.approx(0.78, abs=0.06)  # exact McNemar is a little shy of the formula's 0.8
    assert samples_needed(0.1, 0.2) < needed < samples_needed(0.05, 0.4)
    for difference, discordance in ((0.0, 0.1), (0.3, 0.2), (0.1, 1.2)):
        with pytest.raises(ValueError, match="can't come from a discordance"):
            samples_needed(difference, discordance)
