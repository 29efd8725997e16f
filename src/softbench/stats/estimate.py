"""Metrics of one method on one task, with 95 % intervals; definitions in docs/metrics.md.

A share has Wilson's interval, which is not empty at 0 or 100 %. Without data a metric is None, with n = 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist

from softbench.types import ChoiceNorm, Estimate, Record, Status

CONFIDENCE = 0.95
UNKNOWN = Estimate(None, None, None, 0)


def metrics_of(records: Sequence[Record]) -> dict[str, Estimate]:
    """Every metric of METRICS, by name."""
    return {name: metric(records) for name, metric in METRICS.items()}


def format_following(records: Sequence[Record]) -> Estimate:
    """Share of completions that the strict parser accepts."""
    return share(record.status is Status.OK for record in records if record.status is not None)


def accuracy(records: Sequence[Record]) -> Estimate:
    """Share of samples with the right form and the right answer: what a benchmark reports."""
    return share(record.correct for record in records if record.correct is not None)


def accuracy_given_format(records: Sequence[Record]) -> Estimate:
    """Accuracy among the completions in the right form: a selected subset, so read it with its n."""
    return share(bool(record.correct) for record in records if record.status is Status.OK)


def lenient_accuracy(records: Sequence[Record]) -> Estimate:
    """Share of samples whose completion holds the right answer in the eyes of a forgiving reader."""
    return share(record.lenient_correct for record in records if record.lenient_correct is not None)


def choice_accuracy(norm: ChoiceNorm) -> Callable[[Sequence[Record]], Estimate]:
    """Share of samples whose right option has the best log-likelihood under `norm`."""

    def metric(records: Sequence[Record]) -> Estimate:
        return share(record.choice_correct[norm] for record in records if norm in record.choice_correct)

    return metric


def groups_of(records: Sequence[Record]) -> dict[str, dict[str, Estimate]]:
    """The metrics of each group of samples (MMLU's subjects) by name; empty where samples have no groups."""
    by_group: dict[str, list[Record]] = {}
    for record in records:
        if record.sample.group:
            by_group.setdefault(record.sample.group, []).append(record)
    return {group: metrics_of(of_group) for group, of_group in sorted(by_group.items())}


def macro_average(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of independent shares, each group counting alike; n is the number of groups that have a value.

    The interval is normal, its variance the sum of the groups' over their number squared, each group's with two
    successes and two failures added (Agresti and Coull 1998), so that a group at 0 or 100 % still counts as uncertain.
    """
    known = [(one.value, one.n) for one in estimates if one.value is not None]
    if not known:
        return UNKNOWN
    mean = sum(value for value, _ in known) / len(known)
    variance = 0.0
    for value, n in known:
        adjusted = (value * n + 2) / (n + 4)
        variance += adjusted * (1 - adjusted) / (n + 4) / len(known) ** 2
    half = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * variance**0.5
    return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half), len(known))


def knowledge_bounds(metrics: Mapping[str, Estimate]) -> tuple[float, float] | None:
    """Accuracy if all that did not parse were wrong, and if all were right; None where nothing was generated."""
    right, parsed = metrics["accuracy"].value, metrics["format_following"].value
    return None if right is None or parsed is None else (right, right + 1 - parsed)


def format_gap(metrics: Mapping[str, Estimate], knowledge: str) -> float | None:
    """Points that the format cost: `knowledge` (lenient_accuracy or a choice_accuracy) minus accuracy, or None."""
    known, right = metrics[knowledge].value, metrics["accuracy"].value
    return None if known is None or right is None else known - right


def share(outcomes: Iterable[bool]) -> Estimate:
    """A share of successes with Wilson's interval."""
    values = list(outcomes)
    return wilson(sum(values), len(values))


def wilson(successes: int, n: int) -> Estimate:
    """A binomial share with Wilson's score interval (Wilson 1927), as scipy computes it."""
    from scipy.stats import binomtest  # costs half a second: only those who estimate pay it

    if n == 0:
        return UNKNOWN
    interval = binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(successes / n, float(interval.low), float(interval.high), n)


METRICS: dict[str, Callable[[Sequence[Record]], Estimate]] = {
    "format_following": format_following,
    "accuracy": accuracy,
    "accuracy_given_format": accuracy_given_format,
    "lenient_accuracy": lenient_accuracy,
    "choice_accuracy_raw": choice_accuracy("raw"),
    "choice_accuracy_per_char": choice_accuracy("per_char"),
    "choice_accuracy_per_byte": choice_accuracy("per_byte"),
    "choice_accuracy_per_token": choice_accuracy("per_token"),
}
