"""Samples to count: a task's own where its data are at hand, else made-up ones of the benchmark's usual lengths."""

import functools
import json
import random
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from softbench.spec import Spec
from softbench.tasks import Task, TaskData, benchmarks_in, get_task, load_data, task_names
from softbench.tasks.definition import builtin_definitions
from softbench.tasks.task import Splits
from softbench.types import Sample

LOOKED_AT = 128
"""Samples of a split that are counted; where there are more, these stand for all: every so-many-th by length."""
_MADE = 64
_WORDS = (
    *("water", "people", "energy", "before", "system", "different", "because", "number", "during", "without", "always"),
    *("another", "between", "animal", "surface", "country", "small", "light", "large", "house", "which", "family"),
    *("material", "temperature", "plant", "after", "government", "most", "music", "city", "would", "river", "change"),
    *("example", "heat", "school", "metal", "group", "money", "early", "great", "found"),
)


@dataclass(frozen=True, slots=True)
class Looked:
    """A task and the samples of it that are counted, in place of `num_test`; `assumed` where these are made up."""

    task: Task
    data: TaskData
    num_test: int
    assumed: bool


def look_at(name: str, spec: Spec) -> Looked:
    """The task called `name` with what is at hand of its data, up to the spec's limit. Nothing is fetched for it.

    Raises TaskError where there is no such task, DataError where it is no built-in benchmark and its data can't be
    read.
    """
    task = get_task(name, spec.formulation, spec.answer_format, spec.include_path)
    benchmark = name.partition(":")[0]
    own = task_names(spec.include_path, own_only=True)
    if benchmark not in own and not benchmarks_in(spec.data_dir).get(benchmark, True):
        data = _made_up(task, benchmark)
        num_test = int(_usual()[benchmark]["test"])
        return Looked(task, data, min(num_test, spec.limit or num_test), assumed=True)
    splits = task.load(spec.data_dir)
    kept = {**splits, "test": splits.get("test", ())[: spec.limit]}
    num_test = len(kept["test"])
    # Worked examples are drawn by group, and a group may be small.
    thinned = ("test",) if any(sample.group for sample in splits.get("tune", ())) else ("test", "tune", "validation")
    few: Splits = {split: spread(samples) if split in thinned else samples for split, samples in kept.items()}
    return Looked(task, load_data(replace(task, load=lambda folder: few), None), num_test, assumed=False)


def spread(samples: Sequence[Sample]) -> Sequence[Sample]:
    """LOOKED_AT of the samples, in their order and of all lengths, or all where there are no more."""
    if len(samples) <= LOOKED_AT:
        return samples
    by_length = sorted(range(len(samples)), key=lambda place: _length(samples[place]))
    middles = ((2 * number + 1) * len(samples) // (2 * LOOKED_AT) for number in range(LOOKED_AT))
    return [samples[place] for place in sorted(by_length[middle] for middle in middles)]


def _length(sample: Sample) -> int:
    return len(sample.reasoning) + sum(map(len, map(str, (*sample.fields.values(), *sample.choices))))


def _made_up(task: Task, benchmark: str) -> TaskData:
    """Data of the benchmark's form, read as its own would be."""
    definition, draw = builtin_definitions()[benchmark], random.Random(benchmark)
    splits = definition.local or (definition.hub.splits if definition.hub else None)
    names = [] if splits is None else [name for name in splits.model_dump().values() if name]
    with tempfile.TemporaryDirectory(prefix="softbench-") as folder:
        (Path(folder) / benchmark).mkdir()
        for name in names:
            rows = [fill(_usual()[benchmark]["row"], draw) for _ in range(_MADE)]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (Path(folder) / benchmark / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        return load_data(task, Path(folder))


def fill(value: Any, draw: random.Random) -> Any:
    """`value` with `~97` in each of its texts replaced by 97 characters of words."""
    if isinstance(value, dict):
        return {key: fill(one, draw) for key, one in value.items()}
    if isinstance(value, list):
        return [fill(one, draw) for one in value]
    if isinstance(value, str):
        return re.sub(r"~(\d+)", lambda match: _words(int(match[1]), draw), value)
    return value


def _words(length: int, draw: random.Random) -> str:
    text = draw.choice(_WORDS)
    while len(text) < length:
        text += " " + draw.choice(_WORDS)
    return text[:length].rstrip()


@functools.cache
def _usual() -> dict[str, Any]:
    """Of each benchmark: test samples on the hub, and a row whose texts are of the mean length."""
    found: dict[str, Any] = yaml.safe_load(files("softbench.estimate").joinpath("usual.yaml").read_text("utf-8"))
    return found
