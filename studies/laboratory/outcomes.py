"""What came out of a recipe's runs, small enough to hold together: for each method, seed, task and person right or not.

An Outcome's arrays are of shape (tasks, people), in the order of `tasks.FORMS` and of the world's people; as every
person has one fact in each task, a column is all that is asked about one person.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softbench.runs import FinishedJob
from softbench.stats.estimate import right
from softbench.types import Record, Status
from studies.laboratory import evaluate
from studies.laboratory.knowledge import Known
from studies.laboratory.tasks import FORMS

Array = NDArray[np.float64]
Measure = str

MEASURES: Mapping[Measure, Callable[[Record], bool | None]] = {
    # Right as the task scores; in the form (unknown under cf, where nothing is written); right for a forgiving reader.
    "right": right,
    "form": lambda record: None if record.status is None else record.status is Status.OK,
    "lenient": lambda record: right(record) if record.lenient_correct is None else record.lenient_correct,
}
_MARKS = {None: "-", False: "0", True: "1"}
_VALUES = {"-": np.nan, "0": 0.0, "1": 1.0}


@dataclass(frozen=True)
class Outcome:
    """One method's outcomes by measure, averaged over its seeds; `by_seed` are the scores that single seeds had."""

    measures: Mapping[Measure, Array]
    by_seed: tuple[float, ...]


def gather(runs: Path, base: str, early: Mapping[int, str], post: str) -> dict[str, list[dict[str, list[str]]]]:
    """The outcomes of all runs on a recipe's models, as JSON can hold them: by method, then one entry a seed.

    `base`, `early` (by percent of pre-training) and `post` are the models' names.
    """
    kinds = [
        *[(kind, base, "") for kind in (evaluate.MAIN, evaluate.CONTROLS, evaluate.STRANGERS, evaluate.SEEN_FACTS)],
        *[(evaluate.EARLY, model, f"{percent}/") for percent, model in early.items()],
        (evaluate.POST, post, ""),
    ]
    found: dict[str, dict[int, dict[str, list[str]]]] = {}
    for kind, model, before in kinds:
        for job in evaluate.read_jobs(runs, kind, model):
            of_seed = found.setdefault(before + _method(kind, job), {}).setdefault(job.block["seed"] or 0, {})
            place = list(FORMS).index(_task(job.task))
            for measure, value in MEASURES.items():
                marks = "".join(_MARKS[value(record)] for record in job.records)
                of_seed.setdefault(measure, [""] * len(FORMS))[place] = marks
    return {method: [of_method[seed] for seed in sorted(of_method)] for method, of_method in found.items()}


def read_outcomes(kept: Mapping[str, Sequence[Mapping[str, Sequence[str]]]]) -> dict[str, Outcome]:
    """What `gather` gave, as arrays."""
    found = {}
    for method, seeds in kept.items():
        arrays = [{measure: _array(seed[measure]) for measure in MEASURES} for seed in seeds]
        averaged = {measure: np.mean([one[measure] for one in arrays], axis=0) for measure in MEASURES}
        found[method] = Outcome(averaged, tuple(float(one["right"].mean()) for one in arrays))
    return found


def truth(known: Sequence[Known]) -> dict[str, Any]:
    """Whether each fact is known, in the shape of an outcome's arrays, and the mean margin, as JSON can hold them."""
    rows = {name: "".join(_MARKS[one.right] for one in known if one.fact.task == name) for name in FORMS}
    return {"right": list(rows.values()), "margin": float(np.mean([one.margin for one in known]))}


def read_truth(kept: Mapping[str, Any]) -> Array:
    """What `truth` gave of single facts, as an array (tasks, people)."""
    return _array(kept["right"])


def _array(rows: Sequence[str]) -> Array:
    return np.array([[_VALUES[mark] for mark in row] for row in rows])


def _task(name: str) -> str:
    """The name in FORMS of a task of any family."""
    return re.sub(r"(_strange|_seen)?(:.*)?$", "", name)


def _method(kind: str, job: FinishedJob) -> str:
    settings, method, checkpoint = job.block["settings"], str(job.block["method"]), job.block["checkpoint"]
    if kind == evaluate.POST:
        return "post"
    if kind == evaluate.STRANGERS:
        return "strange"
    if kind == evaluate.SEEN_FACTS:
        return "seen/" + ("soft_prompt" if method == "loaded_prompt" else method)
    if kind == evaluate.CONTROLS and method == "soft_prompt":
        return "shuffled" if settings["labels"] == "shuffled" else "format"
    return method if checkpoint is None else f"{method}@{checkpoint}"
