"""Two runs over the same samples: differences with intervals, and where a difference in accuracy comes from."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softbench.stats.bootstrap import RESAMPLES, Counts, Statistic, bootstrap, mean_of, percentile_interval
from softbench.types import Estimate, Record, Status


class Outcome(NamedTuple):
    """What became of one sample before (run A) and after (run B).

    `knew_before`: A's lenient reading or its log-likelihood choice was right.
    """

    parsed_before: bool
    right_before: bool
    parsed_after: bool
    right_after: bool
    knew_before: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """B minus A over the samples that both have.

    `by_item` and `by_rates` are two exact ways to split the difference in accuracy; see docs/metrics.md. `p_value` is
    McNemar's, exact, of accuracy, or where nothing was generated (cf) of the choice by log-likelihood.
    """

    n: int
    accuracy: Estimate
    choice_accuracy: Estimate
    format_following: Estimate
    accuracy_given_format: Estimate
    by_item: Mapping[str, Estimate]
    by_rates: Mapping[str, Estimate]
    p_value: float | None


def compare(before: Sequence[Record], after: Sequence[Record], seed: int = 0) -> Comparison:
    """Compare two runs' records, paired by sample id."""
    outcomes = pair(before, after)
    choices = pair_choices(before, after)
    generator = np.random.default_rng(seed)

    def of(statistic: Callable[[Sequence[Hashable]], Statistic]) -> Estimate:
        return bootstrap(outcomes, statistic, generator)

    return Comparison(
        n=len(outcomes) or len(choices),
        accuracy=of(_mean(lambda one: one.right_after - one.right_before)),
        format_following=of(_mean(lambda one: one.parsed_after - one.parsed_before)),
        accuracy_given_format=of(_given_format_difference),
        by_item={name: of(_mean(part)) for name, part in ITEM_PARTS.items()},
        by_rates={"format": of(_rates_part("format")), "knowledge": of(_rates_part("knowledge"))},
        choice_accuracy=bootstrap(choices, mean_of(_gain), generator),
        p_value=mcnemar_of([(one.right_before, one.right_after) for one in outcomes] or choices),
    )


def pair(before: Sequence[Record], after: Sequence[Record]) -> list[Outcome]:
    """The outcome of every sample that both runs have a completion of, in the order of `before`."""
    by_id = {record.sample.id: record for record in after if record.status is not None}
    return [
        Outcome(
            parsed_before=one.status is Status.OK,
            right_before=bool(one.correct),
            parsed_after=by_id[one.sample.id].status is Status.OK,
            right_after=bool(by_id[one.sample.id].correct),
            knew_before=bool(one.lenient_correct) or one.choice_correct.get("raw", False),
        )
        for one in before
        if one.status is not None and one.sample.id in by_id
    ]


def pair_choices(before: Sequence[Record], after: Sequence[Record]) -> list[tuple[bool, bool]]:
    """Whether the right option had the highest log-likelihood, before and after, of every sample that both have."""
    by_id = {record.sample.id: record.choice_correct["raw"] for record in after if "raw" in record.choice_correct}
    return [
        (one.choice_correct["raw"], by_id[one.sample.id])
        for one in before
        if "raw" in one.choice_correct and one.sample.id in by_id
    ]


def mean_difference(strata: Sequence[Sequence[tuple[bool, bool]]], generator: np.random.Generator) -> Estimate:
    """The difference in accuracy, averaged over tasks that count alike; a stratum is one task's pairs (before, after).

    The interval is the percentile bootstrap's, samples drawn within their tasks: the tasks stand for themselves alone.
    """
    values, drawn, n = [], [], 0
    for pairs in strata:
        counts = np.array([sum(after - before == gain for before, after in pairs) for gain in (-1, 0, 1)])
        total = counts.sum()
        if not total:
            return Estimate(None, None, None, 0)
        gains = np.array([-1, 0, 1])
        values.append(counts @ gains / total)
        drawn.append(generator.multinomial(total, counts / total, size=RESAMPLES) @ gains / total)
        n += int(total)
    if not values:
        return Estimate(None, None, None, 0)
    return Estimate(float(np.mean(values)), *percentile_interval(np.mean(drawn, axis=0)), n)


ITEM_PARTS: dict[str, Callable[[Outcome], float]] = {
    "unlocked": lambda one: float(not one.parsed_before and one.right_after and one.knew_before),
    "new": lambda one: float(not one.parsed_before and one.right_after and not one.knew_before),
    "lost": lambda one: -float(one.right_before and not one.parsed_after),
    "changed": lambda one: float(one.right_after - one.right_before) * (one.parsed_before and one.parsed_after),
}
"""The difference in accuracy by item; the four add up to it exactly.

Right now and unparsed before: `unlocked` where the answer was known then, else `new`; right before and unparsed now:
`lost`; parsed both times: `changed`.
"""


def mcnemar_of(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """McNemar's p-value of pairs (right before, right after)."""
    return mcnemar(sum(after and not before for before, after in pairs), sum(a and not b for a, b in pairs))


def mcnemar(gained: int, lost: int) -> float | None:
    """McNemar's exact two-sided p-value (McNemar 1947) for samples right in one run alone; None where there is none."""
    from scipy.stats import binomtest  # costs half a second: only those who compare pay it

    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else None


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number (Holm 1979), in the order given."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def samples_needed(difference: float, discordance: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Samples that a paired test needs to find `difference` in accuracy where a share `discordance` of samples differs.

    Connor 1987 (Biometrics 43): normal approximation to McNemar's test. Raises ValueError where |difference| is more
    than the discordance, or zero.
    """
    from scipy.stats import norm

    if not 0 < abs(difference) <= discordance <= 1:
        raise ValueError(f"a difference of {difference} can't come from a discordance of {discordance}")
    wanted = norm.ppf(1 - alpha / 2) * discordance**0.5 + norm.ppf(power) * (discordance - difference**2) ** 0.5
    return int(np.ceil((wanted / difference) ** 2))


def _gain(pair: Any) -> float:
    """Of a pair (right before, right after)."""
    return float(pair[1]) - float(pair[0])


def _mean(value: Callable[[Outcome], float]) -> Callable[[Sequence[Hashable]], Statistic]:
    return mean_of(lambda outcome: value(outcome))  # type: ignore[arg-type]  # outcomes here are Outcome


def _rates(distinct: Sequence[Hashable], counts: Counts) -> tuple[NDArray[np.float64], ...]:
    """Format-following F and accuracy given format K, before and after; K is NaN where nothing parsed."""
    flags = np.array(distinct, dtype=np.float64)  # (outcomes, fields of Outcome)
    sums = counts @ flags
    n = counts.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[:, 0] / n, sums[:, 1] / sums[:, 0], sums[:, 2] / n, sums[:, 3] / sums[:, 2]


def _given_format_difference(distinct: Sequence[Hashable]) -> Statistic:
    def statistic(counts: Counts) -> NDArray[np.float64]:
        _, known_before, _, known_after = _rates(distinct, counts)
        return known_after - known_before

    return statistic


def _rates_part(part: str) -> Callable[[Sequence[Hashable]], Statistic]:
    """Kitagawa 1955: dA = dF mean(K) + dK mean(F), with K the accuracy given format and F the format-following."""

    def statistic(distinct: Sequence[Hashable]) -> Statistic:
        def of_counts(counts: Counts) -> NDArray[np.float64]:
            form_before, known_before, form_after, known_after = _rates(distinct, counts)
            if part == "format":
                return (form_after - form_before) * (known_before + known_after) / 2
            return (known_after - known_before) * (form_before + form_after) / 2

        return of_counts

    return statistic
