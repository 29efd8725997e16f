"""What `softbench compare` prints: B minus A, where the difference comes from, and samples on which the two differ."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.errors import SpecError
from softbench.runs import FinishedJob
from softbench.stats.compare import Comparison, compare, holm
from softbench.types import Estimate, Record

EXAMPLES = 10

Pair = tuple[FinishedJob, FinishedJob]


def pair_jobs(before: Sequence[FinishedJob], after: Sequence[FinishedJob], force: bool) -> list[Pair]:
    """The jobs of both runs on the same task: the same method of both, or where each has one method, these.

    Raises SpecError, naming what differs, where formulation, prompt, split or samples do, unless `force`; and where
    nothing can be paired.
    """
    pairs = []
    for one in before:
        for other in after:
            alone = len({job.label for job in before}) == len({job.label for job in after}) == 1
            if one.task == other.task and (alone or one.label == other.label):
                pairs.append((one, other))
    if not pairs:
        raise SpecError(
            f"nothing to compare: {_inventory(before)} against {_inventory(after)} have no task and method in common; "
            "name a method of each: FOLDER@METHOD"
        )
    for one, other in pairs:
        differing = differences(one, other)
        if differing and not force:
            raise SpecError(
                f"{one.name} and {other.name} on {one.task} differ in {', '.join(differing)}, so that their scores are "
                "not comparable; give --force to compare what they share all the same"
            )
    return pairs


def differences(one: FinishedJob, other: FinishedJob) -> list[str]:
    """What makes the scores of two jobs on one task incomparable."""
    found = []
    for name, key in (("formulation", "formulation"), ("prompt or answer format", "template_hash")):
        if one.task_block[key] != other.task_block[key]:
            found.append(name)
    if one.task_block["splits"]["test"]["hash"] != other.task_block["splits"]["test"]["hash"]:
        found.append("test split")
    if [record.sample.id for record in one.records] != [record.sample.id for record in other.records]:
        found.append(f"samples ({len(one.records)} and {len(other.records)})")
    elif any(a.sample.choices != b.sample.choices for a, b in zip(one.records, other.records, strict=True)):
        found.append("order of options")
    return found


def comparisons(pairs: Sequence[Pair], seed: int) -> list[tuple[Pair, Comparison, float | None]]:
    """Each pair's comparison, and its p-value adjusted for their number."""
    compared = [compare(one.records, other.records, seed) for one, other in pairs]
    known = [comparison.p_value for comparison in compared if comparison.p_value is not None]
    adjusted = iter(holm(known))
    return [
        (pair, comparison, None if comparison.p_value is None else next(adjusted))
        for pair, comparison in zip(pairs, compared, strict=True)
    ]


def comparison_table(pair: Pair, comparison: Comparison, adjusted: float | None) -> Table:
    """The difference of one pair and its parts, in percentage points."""
    before, after = pair
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left", title_style="")
    table.title = Text(f"{before.task}: {after.name} minus {before.name}, n = {comparison.n}", style="bold")
    table.add_column("points")
    table.add_column("difference", justify="right")
    rows = [
        ("format-following", comparison.format_following),
        ("accuracy", comparison.accuracy),
        ("  unlocked: known before, in form now", comparison.by_item["unlocked"]),
        ("  new: not known before, in form now", comparison.by_item["new"]),
        ("  lost: right before, out of form now", comparison.by_item["lost"]),
        ("  changed: in form both times", comparison.by_item["changed"]),
        ("choice accuracy", comparison.choice_accuracy),
        ("accuracy|format", comparison.accuracy_given_format),
        ("  accuracy by rates: format", comparison.by_rates["format"]),
        ("  accuracy by rates: knowledge", comparison.by_rates["knowledge"]),
    ]
    for name, estimate in rows:
        if estimate.value is not None or comparison.accuracy.value is not None:
            table.add_row(Text(name), points(estimate))
    if comparison.p_value is not None:
        corrected = "" if adjusted == comparison.p_value else f", {adjusted:.3g} adjusted (Holm)"
        table.add_row(Text("McNemar's p"), f"{comparison.p_value:.3g}{corrected}")
    return table


def points(estimate: Estimate) -> str:
    """`+12.3 [+8.0, +16.5]` percentage points, or a dash where unknown."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{100 * estimate.value:+.1f} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"


def differing_samples(pair: Pair) -> list[str]:
    """Up to ten samples that one run has right and the other has not."""
    after = {record.sample.id: record for record in pair[1].records}
    found = [
        (record, after[record.sample.id])
        for record in pair[0].records
        if record.sample.id in after and _right(record) != _right(after[record.sample.id])
    ]
    return [f"{one.sample.id} ({one.sample.answers[0]}): {_said(one)}; then {_said(other)}" for one, other in found][
        :EXAMPLES
    ]


def comparison_dict(pair: Pair, comparison: Comparison, adjusted: float | None) -> dict[str, Any]:
    """One comparison for machines."""
    before, after = pair
    return {
        "task": before.task,
        "before": before.name,
        "after": after.name,
        **asdict(comparison),
        "p_value_adjusted": adjusted,
    }


def _right(record: Record) -> bool | None:
    """Right as the task scores: by the completion, or where there is none by the log-likelihoods."""
    return record.choice_correct.get("raw") if record.correct is None else record.correct


def _said(record: Record) -> str:
    if record.completion is None:
        logprobs = [score.logprob for score in record.choice_scores]
        said = f"{record.sample.choices[logprobs.index(max(logprobs))][:60]!r}" if logprobs else "nothing"
    else:
        said = f"{record.status} {record.completion.text.strip()[:60]!r}"
    return f"{said}{', right' if _right(record) else ''}"


def _inventory(jobs: Sequence[FinishedJob]) -> str:
    return ", ".join(f"{job.name} on {job.task}" for job in jobs[:4]) or "nothing"
