"""Metrics of one method on one task, with 95 % intervals; definitions in docs/metrics.md.

A share has Wilson's interval, which is not empty at 0 or 100 %, another mean Student's. Without data a metric is None,
with n = 0.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist

from softbench.answer_kinds import LETTERS, SHORT_TEXT
from softbench.stats.variance import clustered_stderr
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


def right(record: Record) -> bool:
    """Right as the task scores: by the completion, or where there is none by the log-likelihoods."""
    return record.choice_correct.get("raw", False) if record.correct is None else record.correct


def score(records: Sequence[Record]) -> Estimate:
    """What the task reports: accuracy, or where nothing is generated the accuracy by log-likelihood."""
    found = accuracy(records)
    return found if found.value is not None else choice_accuracy("raw")(records)


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


def answer_mass(records: Sequence[Record]) -> Estimate:
    """Mean probability of the options' own tokens at the place where they first differ, of all tokens there."""
    return mean(record.answer_mass for record in records if record.answer_mass is not None)


def top_token_accuracy(records: Sequence[Record]) -> Estimate:
    """Share of samples whose likeliest token of all, where the options first differ, is the right option's.

    What scoring among the options alone hides: there the best of them wins, however unlikely the model finds them all.
    """
    asked = [record for record in records if record.answer_mass is not None and record.sample.gold is not None]
    return share(record.sample.gold in record.top_options for record in asked)


def f1(records: Sequence[Record]) -> Estimate:
    """Mean F1 of the words of an open question's strict answer, against the accepted answer that it fits best.

    SQuAD's (Rajpurkar et al. 2016): harmonic mean of the shares of words in common, blind to case, accents, articles
    and punctuation. 0 where nothing parsed; unknown for multiple choice.
    """
    return mean(
        max((word_f1(record.answer, one) for one in record.sample.answers), default=0.0) if record.answer else 0.0
        for record in records
        if record.status is not None and not record.sample.choices
    )


def word_f1(said: str, accepted: str) -> float:
    """F1 of two texts' words in [0, 1]; 1 where neither has any."""
    mine, theirs = (Counter(SHORT_TEXT.normalize(text).split()) for text in (said, accepted))
    common = (mine & theirs).total()
    if not mine and not theirs:
        return 1.0
    return 2 * common / (mine.total() + theirs.total())


def chance(records: Sequence[Record]) -> float | None:
    """What guessing among the options would score: the mean of 1 / options; None where a question has none."""
    counts = [len(record.sample.choices) for record in records]
    return sum(1 / count for count in counts) / len(counts) if counts and all(counts) else None


def chance_corrected(estimate: Estimate, guessing: float | None) -> Estimate:
    """`estimate` on a scale where guessing is 0 and all right is 1: (K - g) / (1 - g); unknown where g is."""
    if guessing is None or guessing >= 1 or estimate.value is None:
        return UNKNOWN
    low, value, high, stderr = (
        None if one is None else (one - shift) / (1 - guessing)
        for one, shift in (
            (estimate.low, guessing),
            (estimate.value, guessing),
            (estimate.high, guessing),
            (estimate.stderr, 0.0),
        )
    )
    return Estimate(value, low, high, estimate.n, stderr)


def letter_shares(records: Sequence[Record]) -> dict[str, tuple[float, float]]:
    """How often each letter's option is chosen by log-likelihood, and how often it is right; empty without options.

    Where options stand in random order the second is even, and the first shows a liking for places.
    """
    chosen: Counter[int] = Counter()
    gold: Counter[int] = Counter()
    for record in records:
        if record.choice_scores and record.sample.gold is not None:
            logprobs = [score.logprob for score in record.choice_scores]
            chosen[logprobs.index(max(logprobs))] += 1
            gold[record.sample.gold] += 1
    total = chosen.total()
    return {LETTERS[place]: (chosen[place] / total, gold[place] / total) for place in sorted(chosen | gold)}


def clustered_stderrs(records: Sequence[Record]) -> dict[str, float | None]:
    """Standard errors of the shares among METRICS where samples hang together (a passage, a subject).

    Empty where every sample stands for itself, so that the plain ones hold.
    """
    clusters = {record.sample.cluster for record in records}
    if clusters == {""} or len(clusters) == len(records):
        return {}
    found = {}
    for name, outcome in OUTCOMES.items():
        known = [(value, record.sample.cluster) for record in records if (value := outcome(record)) is not None]
        if known:
            found[name] = clustered_stderr([float(value) for value, _ in known], [cluster for _, cluster in known])
    return found


def groups_of(records: Sequence[Record]) -> dict[str, dict[str, Estimate]]:
    """The metrics of each group of samples (MMLU's subjects) by name; empty where samples have no groups."""
    by_group: dict[str, list[Record]] = {}
    for record in records:
        if record.sample.group:
            by_group.setdefault(record.sample.group, []).append(record)
    return {group: metrics_of(of_group) for group, of_group in sorted(by_group.items())}


def macro_average(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of independent shares, each group counting alike; n is the number of groups that have a value.

    The interval is normal, its variance the sum of the groups' over their number squared, each group's share with a
    success and a failure added to it (Laplace), so that a group at 0 or 100 % still counts as uncertain. With two of
    each, as Agresti and Coull have it for one share, it holds the truth too rarely: tests/unit/test_coverage.py.
    """
    known = [(one.value, one.n) for one in estimates if one.value is not None]
    if not known:
        return UNKNOWN
    mean = sum(value for value, _ in known) / len(known)
    variance = 0.0
    for value, n in known:
        adjusted = (value * n + 1) / (n + 2)
        variance += adjusted * (1 - adjusted) / n / len(known) ** 2
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


def mean(values: Iterable[float]) -> Estimate:
    """A mean of values in [0, 1] with Student's interval (held to [0, 1]); no interval below two values."""
    from scipy.stats import t

    known = list(values)
    n = len(known)
    if n == 0:
        return UNKNOWN
    average = math.fsum(known) / n
    if n == 1:
        return Estimate(average, None, None, 1)
    stderr = math.sqrt(math.fsum((value - average) ** 2 for value in known) / (n - 1) / n)
    half = float(t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * stderr
    return Estimate(average, max(0.0, average - half), min(1.0, average + half), n, stderr)


def wilson(successes: int, n: int) -> Estimate:
    """A binomial share with Wilson's score interval (Wilson 1927), as scipy computes it."""
    from scipy.stats import binomtest  # costs half a second: only those who estimate pay it

    if n == 0:
        return UNKNOWN
    interval = binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    p = successes / n
    stderr = math.sqrt(p * (1 - p) / (n - 1)) if n > 1 else None  # lm-evaluation-harness's
    return Estimate(p, float(interval.low), float(interval.high), n, stderr)


OUTCOMES: dict[str, Callable[[Record], bool | None]] = {
    "format_following": lambda record: None if record.status is None else record.status is Status.OK,
    "accuracy": lambda record: record.correct,
    "lenient_accuracy": lambda record: record.lenient_correct,
    "choice_accuracy_raw": lambda record: record.choice_correct.get("raw"),
}
"""What became of one sample, None where it was not asked for: the shares among METRICS that are over all samples."""

METRICS: dict[str, Callable[[Sequence[Record]], Estimate]] = {
    "format_following": format_following,
    "accuracy": accuracy,
    "accuracy_given_format": accuracy_given_format,
    "lenient_accuracy": lenient_accuracy,
    "choice_accuracy_raw": choice_accuracy("raw"),
    "choice_accuracy_per_char": choice_accuracy("per_char"),
    "choice_accuracy_per_byte": choice_accuracy("per_byte"),
    "choice_accuracy_per_token": choice_accuracy("per_token"),
    "choice_accuracy_pmi": choice_accuracy("pmi"),
    "answer_mass": answer_mass,
    "top_token_accuracy": top_token_accuracy,
    "f1": f1,
}
