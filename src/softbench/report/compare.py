"""What `softbench compare` prints: B minus A, where the difference comes from, and samples on which the two differ."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.errors import SpecError
from softbench.report.grid import grid
from softbench.runs import FinishedJob
from softbench.stats.compare import Comparison, compare, holm
from softbench.stats.estimate import right
from softbench.types import SILENT, Estimate, Progress, Record

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
    before, after = one.outcomes, other.outcomes
    if [record.sample.id for record in before] != [record.sample.id for record in after]:
        found.append(f"samples ({len(before)} and {len(after)})")
    elif any(a.sample.choices != b.sample.choices for a, b in zip(before, after, strict=True)):
        found.append("order of options")
    return found


def comparisons(
    pairs: Sequence[Pair], seed: int, progress: Progress = SILENT
) -> list[tuple[Pair, Comparison, float | None]]:
    """Each pair's comparison, and its p-value adjusted for their number."""
    compared = []
    with progress.track("compare", len(pairs)) as advance:
        for one, other in pairs:
            compared.append(compare(one.outcomes, other.outcomes, seed))
            advance(1)
    known = [comparison.p_value for comparison in compared if comparison.p_value is not None]
    adjusted = iter(holm(known))
    return [
        (pair, comparison, None if comparison.p_value is None else next(adjusted))
        for pair, comparison in zip(pairs, compared, strict=True)
    ]


def comparison_table(pair: Pair, comparison: Comparison, adjusted: float | None) -> Table:
    """The difference of one pair and its parts, in percentage points."""
    before, after = pair
    table = grid(f"{before.task}: {after.name} minus {before.name}", ("points",), ("difference",))
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
    table.add_row("test samples", str(comparison.n))
    if comparison.p_value is not None:
        table.add_row(Text("McNemar's p"), f"{comparison.p_value:.3g}")
        if adjusted is not None and adjusted != comparison.p_value:
            table.add_row(Text("  adjusted for the number of comparisons (Holm)"), f"{adjusted:.3g}")
    return table


def points(estimate: Estimate) -> str:
    """`+12.3 [+8.0, +16.5]` percentage points, or a dash where unknown."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{100 * estimate.value:+.1f} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"


def differing_samples(pair: Pair) -> list[tuple[int, int]]:
    """The places, in both runs' records, of samples that one has right and the other has not."""
    before, after = (job.outcomes for job in pair)
    places = {record.sample.id: place for place, record in enumerate(after)}
    return [
        (place, found)
        for place, record in enumerate(before)
        if (found := places.get(record.sample.id)) is not None and right(record) != right(after[found])
    ]


def samples_table(pair: Pair) -> Table | None:
    """The first samples that the two differ on, with what each said; None where there are none."""
    found = differing_samples(pair)
    if not found:
        return None
    shown = f"the first {EXAMPLES} of {len(found)}" if len(found) > EXAMPLES else f"{len(found)}"
    table = grid(f"samples that one alone has right: {shown}", ("sample", "answer", "before", "after"), ())
    for place, other_place in found[:EXAMPLES]:
        one, other = pair[0].records[place], pair[1].records[other_place]
        table.add_row(Text(one.sample.id), Text(one.sample.answers[0]), _said(one), _said(other))
    return table


def comparison_dict(pair: Pair, comparison: Comparison, adjusted: float | None) -> dict[str, Any]:
    """One comparison for machines."""
    before, after = pair
    return {
        "task": before.task,
        "before": before.name,
        "after": after.name,
        **asdict(comparison),
        "differing_samples": [before.outcomes[place].sample.id for place, _ in differing_samples(pair)],
        "p_value_adjusted": adjusted,
    }


def _said(record: Record) -> Text:
    if record.completion is None:
        logprobs = [score.logprob for score in record.choice_scores]
        said = f"{record.sample.choices[logprobs.index(max(logprobs))][:60]!r}" if logprobs else "nothing"
    else:
        said = f"{record.status} {record.completion.text.strip()[:60]!r}"
    return Text(said, style="green" if right(record) else "") + Text(", right" if right(record) else "")


def _inventory(jobs: Sequence[FinishedJob]) -> str:
    return ", ".join(f"{job.name} on {job.task}" for job in jobs[:4]) or "nothing"
