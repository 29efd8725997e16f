"""Each kind of interval holds the truth as often as it says: simulations where the truth is known.

Bounds allow for the simulation's own error (400 runs at 95 % vary by 1.1 points) and, above, for intervals that are
careful rather than exact.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from softbench.stats import (
    Comparison,
    accuracy,
    accuracy_given_format,
    answer_mass,
    clustered_stderr,
    compare,
    f1,
    format_following,
    macro_average,
    spread_over_seeds,
)
from softbench.stats.estimate import share
from softbench.stats.rank import AGREEMENTS, agreement_of, kendall_tau, score_table
from softbench.types import Completion, Estimate, Prompt, Record, Sample, Status

pytestmark = pytest.mark.slow

RUNS = 400
Generator = np.random.Generator
Metric = Callable[[Sequence[Record]], Estimate]


def record(
    parsed: bool, right: bool, knew: bool = False, mass: float | None = None, answer: str = "", place: int = 0
) -> Record:
    return Record(
        doc_id=place,
        sample=Sample(str(place), {}, ("red wine",)),
        method="m",
        seed=0,
        prompt=Prompt(str(place), "", ""),
        completion=Completion("", "eos", 1, 1),
        status=Status.OK if parsed else Status.NO_ANSWER,
        answer=answer if parsed else None,
        correct=parsed and right,
        lenient_answer=None,
        lenient_correct=knew,
        answer_mass=mass,
    )


def coverage(estimate: Callable[[Generator], Estimate], truth: float, runs: int = RUNS) -> float:
    """Share of simulated estimates whose interval holds `truth`."""
    held = 0
    for seed in range(runs):
        one = estimate(np.random.default_rng(seed))
        assert one.low is not None
        assert one.high is not None
        held += one.low - 1e-9 <= truth <= one.high + 1e-9
    return held / runs


@pytest.mark.parametrize(("n", "form", "known"), [(60, 0.5, 0.5), (200, 0.9, 0.2), (200, 0.1, 0.8)])
def test_shares_cover(n: int, form: float, known: float) -> None:
    """Wilson's, for accuracy given format too, whose n is itself drawn."""

    def measure(metric: Metric, generator: Generator) -> Estimate:
        pairs = zip(generator.random(n) < form, generator.random(n) < known, strict=True)
        return metric([record(*pair) for pair in pairs])

    truths: dict[Metric, float] = {format_following: form, accuracy: form * known, accuracy_given_format: known}
    for metric, truth in truths.items():
        assert 0.925 <= coverage(functools.partial(measure, metric), truth) <= 0.985, metric


def test_means_cover() -> None:
    """Student's, of probabilities and of F1."""

    def masses(generator: Generator) -> Estimate:
        return answer_mass([record(True, True, mass=float(one)) for one in generator.beta(0.5, 0.2, 80)])

    def overlaps(generator: Generator) -> Estimate:
        said = generator.choice(["red wine", "red", "beer"], size=80, p=[0.3, 0.4, 0.3])
        return f1([record(True, True, answer=str(one)) for one in said])

    assert 0.92 <= coverage(masses, 0.5 / 0.7) <= 0.98
    assert 0.92 <= coverage(overlaps, 0.3 + 0.4 * 2 / 3) <= 0.98  # "red" is one of two words


def outcomes(generator: Generator, n: int) -> tuple[list[Record], list[Record]]:
    """Pairs of runs: harder samples are parsed less before, and 70 % of what is parsed late is known."""
    hard = generator.random(n)
    parsed_before = generator.random(n) < 0.7 - 0.4 * hard
    parsed_after = generator.random(n) < 0.95
    right_before, right_after = generator.random(n) < 0.8 - 0.5 * hard, generator.random(n) < 0.9 - 0.5 * hard
    knew = generator.random(n) < 0.6
    before = [record(*one, place=i) for i, one in enumerate(zip(parsed_before, right_before, knew, strict=True))]
    after = [record(*one, place=i) for i, one in enumerate(zip(parsed_after, right_after, strict=True))]
    return before, after


def parts(comparison: Comparison) -> dict[str, Estimate]:
    return {
        "accuracy": comparison.accuracy,
        "format": comparison.format_following,
        "given": comparison.accuracy_given_format,
        **comparison.by_item,
        **{f"rates: {name}": one for name, one in comparison.by_rates.items()},
    }


def test_differences_and_their_parts_cover() -> None:
    """The paired bootstrap, for all that `compare` reports; the truth is taken from 400,000 samples."""
    truth = compare(*outcomes(np.random.default_rng(10**6), 400_000))
    held = dict.fromkeys(parts(truth), 0)
    runs = 200
    for seed in range(runs):
        found = compare(*outcomes(np.random.default_rng(seed), 200), seed=seed)
        for name, one in parts(found).items():
            value = parts(truth)[name].value
            assert one.low is not None
            assert one.high is not None
            assert value is not None
            held[name] += one.low <= value <= one.high
    assert {name: count for name, count in held.items() if not 0.90 <= count / runs <= 0.99} == {}


def test_clustered_errors_cover_where_plain_ones_do_not() -> None:
    """Forty passages of five questions whose difficulty is the passage's."""

    def interval(generator: Generator, clustered: bool) -> Estimate:
        rate = np.repeat(generator.beta(1, 1, 40), 5)
        values = (generator.random(200) < rate).astype(float)
        mean = float(values.mean())
        plain = (mean * (1 - mean) / 199) ** 0.5
        error = clustered_stderr(values.tolist(), np.repeat(np.arange(40), 5).tolist()) if clustered else plain
        assert error is not None
        return Estimate(mean, mean - 2.02 * error, mean + 2.02 * error, 200)

    assert 0.92 <= coverage(lambda generator: interval(generator, True), 0.5) <= 0.98
    assert coverage(lambda generator: interval(generator, False), 0.5) < 0.88


@pytest.mark.parametrize(("groups", "each"), [(10, 20), (10, 5), (40, 10)])
def test_macro_averages_cover(groups: int, each: int) -> None:
    rates = np.linspace(0.05, 0.95, groups)

    def average(generator: Generator) -> Estimate:
        return macro_average([share((generator.random(each) < rate).tolist()) for rate in rates])

    assert 0.93 <= coverage(average, float(rates.mean())) <= 0.98


def test_the_spread_over_samples_is_what_other_samples_would_do() -> None:
    generator = np.random.default_rng(0)
    means = [np.mean(generator.random(100) < 0.3) for _ in range(4000)]
    spread = spread_over_seeds([(generator.random(20_000) < 0.3).tolist()])
    assert spread.sampling * (20_000 / 100) ** 0.5 == pytest.approx(np.std(means), rel=0.05)


def agreements_held(models: int, samples: int, spread: float, runs: int = 150) -> dict[str, float]:
    """How often each agreement's interval holds that of the true rates."""
    held: dict[str, int] = {}
    generator = np.random.default_rng(0)
    for seed in range(runs):
        base = 0.5 + spread * np.linspace(-1, 1, models)
        post = np.clip(base + generator.normal(0, spread / 2, models), 0.02, 0.98)

        def drawn(rates: NDArray[np.float64]) -> Sequence[dict[str, Sequence[bool]]]:
            return [{"t": (generator.random(samples) < rate).tolist()} for rate in rates]

        found = agreement_of(score_table(drawn(base), (seed, 0), 300), score_table(drawn(post), (seed, 1), 300))
        for name, one in found.items():
            truth = AGREEMENTS[name](base, post)
            assert truth is not None
            low, high = one.estimate.low, one.estimate.high
            assert low is not None
            assert high is not None
            held[name] = held.get(name, 0) + (low - 1e-9 <= truth <= high + 1e-9)
    return {name: count / runs for name, count in held.items()}


def test_rank_agreements_cover_where_models_differ_by_more_than_noise() -> None:
    held = agreements_held(models=8, samples=500, spread=0.3)
    assert {name: rate for name, rate in held.items() if name != "pearson_of_logits" and rate < 0.93} == {}
    assert held["pearson_of_logits"] >= 0.85  # noise pulls it towards zero: docs/metrics.md


def test_rank_agreements_are_pulled_towards_zero_by_noise() -> None:
    """Why `rank` reports how reliable its scores are: with noisy ones an interval is of what was measured."""
    generator = np.random.default_rng(0)
    rates = 0.5 + 0.05 * np.linspace(-1, 1, 12)
    taus = [kendall_tau(generator.binomial(100, rates) / 100, generator.binomial(100, rates) / 100) for _ in range(200)]
    assert np.mean([tau for tau in taus if tau is not None]) < 0.5  # the truth is 1
    noisy = score_table([{"t": (generator.random(100) < rate).tolist()} for rate in rates], (0,))
    sharp = score_table([{"t": (generator.random(20_000) < rate).tolist()} for rate in rates], (0,))
    assert noisy.reliability is not None
    assert sharp.reliability is not None
    assert noisy.reliability < 0.7
    assert sharp.reliability > 0.97
    assert dataclasses.replace(sharp, scores=np.full(12, 0.5)).reliability is None
