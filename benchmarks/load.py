"""Runs softbench over many samples, and over many models and tasks, and prints what that takes.

    python -m benchmarks.load
    python -m benchmarks.load --small

Each row is a process of its own: its seconds, the most memory that it held, and what it wrote. Questions are made up
from a seed, models are stand-ins that answer at once: it is softbench itself that is measured.
"""

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from softbench import backends, pipeline
from softbench.engines.base import Engine
from softbench.spec import ModelSpec, Spec, read_spec
from softbench.types import SILENT, ChoiceScores, Completion, ModelInfo, Progress, Prompt, SoftPrompt


@dataclass(frozen=True)
class Sizes:
    """How much is made: the samples of a long task; models and tasks that are run crosswise, and samples of each."""

    samples: int
    models: int
    tasks: int
    of_each: int


FULL = Sizes(samples=100_000, models=50, tasks=20, of_each=60)
SMALL = Sizes(samples=2_000, models=6, tasks=4, of_each=60)
RECIPES = 5
"""Training runs that the models are checkpoints of, so that `track` has something to follow."""


@dataclass(frozen=True)
class Measured:
    """What one command took: seconds, the most bytes of memory that it held, bytes that it wrote."""

    seconds: float
    peak: int
    written: int


def commands(folder: Path, sizes: Sizes) -> Iterator[tuple[str, list[str]]]:
    """What is measured, by name: first what makes the runs, then what reads them."""
    for count in (sizes.samples // 10, sizes.samples):
        yield f"run, {count:,} samples, 2 tasks, 2 methods", ["-m", "benchmarks.load", "long", str(folder), str(count)]
    asked = (str(folder), str(sizes.models), str(sizes.tasks), str(sizes.of_each))
    yield f"run, {sizes.models} models, {sizes.tasks} tasks, 3 methods", ["-m", "benchmarks.load", "wide", *asked]
    short, long, wide = (
        str(folder / name) for name in (f"long-{sizes.samples // 10}", f"long-{sizes.samples}", "wide")
    )
    for name, out in ((f"{sizes.samples // 10:,} samples", short), (f"{sizes.samples:,} samples", long)):
        yield f"score, {name}", softbench("score", f"{out}/one")
        yield f"compare, {name}", softbench("compare", f"{out}/one@zero_shot", f"{out}/one@few_shot")
        yield f"report, {name}", softbench("report", out, "--output-path", f"{folder}/report-{Path(out).name}")
    names = model_names(sizes.models)
    half = [f"{wide}/{name}" for name in names[::2]], [f"{wide}/{name}" for name in names[1::2]]
    of_all = f"{sizes.models} models, {sizes.tasks} tasks"
    yield f"score, one of {of_all}", softbench("score", f"{wide}/{names[0]}")
    yield f"compare, two of {of_all}", softbench("compare", f"{wide}/{names[0]}", f"{wide}/{names[-1]}")
    posts = [word for run in half[1] for word in ("--post", run)]
    yield f"rank, {of_all}", softbench("rank", *half[0][: len(half[1])], *posts)
    yield f"track, {of_all}", softbench("track", wide)
    yield f"curve, {of_all}", softbench("curve", *half[0], *half[1])
    yield f"report, {of_all}", softbench("report", wide, "--output-path", f"{folder}/report-wide")


def softbench(*arguments: str) -> list[str]:
    """A command line of softbench, for Python."""
    return ["-m", "softbench", "--quiet", *arguments]


def model_names(count: int) -> list[str]:
    """Checkpoints of a few recipes."""
    return [f"recipe-{'abcde'[place % RECIPES]}-step{1000 * (1 + place // RECIPES)}" for place in range(count)]


WATCH = """
import os, sys
started = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[2:]], os.environ)
_, status, usage = os.wait4(started, 0)
os.write(int(sys.argv[1]), str(usage.ru_maxrss).encode())
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Runs Python and writes the most memory that it held. It stands between, for a process counts as its own what the one
that started it has held."""


def measure(arguments: Sequence[str], folder: Path) -> Measured:
    """Run Python with `arguments`. Raises RuntimeError, with what it said, where it fails."""
    before = size_of(folder)
    started = time.perf_counter()
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as held:
        watched = [sys.executable, "-S", "-c", WATCH, str(held.fileno()), *arguments]
        code = subprocess.run(watched, stdout=said, stderr=subprocess.STDOUT, pass_fds=[held.fileno()]).returncode
        printed = said.seek(0, os.SEEK_END)
        if code:
            said.seek(max(0, printed - 2000))
            raise RuntimeError(f"{' '.join(arguments)} failed: {said.read().decode(errors='replace')}")
        held.seek(0)
        peak = int(held.read()) * (1 if sys.platform == "darwin" else 1024)
    return Measured(time.perf_counter() - started, peak, size_of(folder) - before + printed)


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# What the runs are made from, and how.


def write_task(folder: Path, name: str, tests: int, choices: bool) -> Path:
    """A made-up task of `tests` test samples and 100 to tune on, open or with four options; its YAML file."""
    draw = random.Random(name)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("tune", 100), ("test", tests)):
        with (folder / f"{name}-{split}.jsonl").open("w", encoding="utf-8") as file:
            for place in range(count):
                words = " ".join(f"{draw.choice(SYLLABLES)}{draw.choice(SYLLABLES)}" for _ in range(40))
                row: dict[str, object] = {"question": f"{split} {place}: {words}?", "answer": str(draw.randint(1, 999))}
                if choices:
                    options = draw.sample(range(1000, 10_000), 4)
                    row |= {"choices": [f"about {one}" for one in options], "gold": draw.randrange(4)}
                file.write(json.dumps(row) + "\n")
    asked = "options: choices\ngold: gold\n" if choices else "answers: answer\nkind: number\n"
    files = f"data: {{tune: {name}-tune.jsonl, test: {name}-test.jsonl}}\n"
    path = folder / f"{name}.yaml"
    path.write_text(f'task: {name}\n{files}question: "Question: {{{{ question }}}}"\n{asked}', encoding="utf-8")
    return path


SYLLABLES = ("ka", "lo", "mi", "ter", "san", "dor", "el", "vi", "ran", "qu", "ost", "ine", "bu", "gre", "ph", "az")


def make_long(folder: Path, count: int) -> None:
    """Run one model on an open and on a multiple-choice task of `count` samples, zero-shot and few-shot."""
    tasks = [write_task(folder / f"tasks-{count}", name, count, name == "choice") for name in ("open", "choice")]
    make(["one"], tasks, ["zero_shot", "few_shot"], folder / f"long-{count}")


def make_wide(folder: Path, models: int, tasks: int, count: int) -> None:
    """Run many models on many tasks of `count` samples, zero-shot and soft-prompted, the latter with a checkpoint."""
    written = [write_task(folder / "tasks", f"task{place}", count, bool(place % 2)) for place in range(tasks)]
    soft_prompt = {"kind": "soft_prompt", "checkpoints": [10]}
    make(model_names(models), written, ["zero_shot", soft_prompt], folder / "wide")


def make(models: list[str], tasks: list[Path], methods: list[object], out: Path) -> None:
    """Run stand-ins, each with answers of its own."""
    backends.BACKENDS["fake"] = open_stand_in
    given = {"models": models, "tasks": [str(one) for one in tasks], "methods": methods, "engine": "fake"}
    pipeline.run(read_spec(None, given | {"output_path": out}), SILENT)


def open_stand_in(model: ModelSpec, spec: Spec, progress: Progress) -> backends.Backend:
    """The fake backend, whose models all know the same, with answers that hang on the model's name."""
    backend = backends.open_fake(model, spec, progress)
    return dataclasses.replace(backend, engine=StandIn(backend.engine))


class StandIn:
    """An Engine that asks another about samples that have the model's name in theirs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def info(self) -> ModelInfo:
        """What identifies the model."""
        return self._engine.info

    @property
    def tokens_read(self) -> int:
        """Words read and written so far."""
        return self._engine.tokens_read

    def generate(
        self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        """Complete each prompt."""
        return self._engine.generate(self._named(prompts), soft_prompt, max_new_tokens, stop)

    def score_choices(self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None) -> list[ChoiceScores]:
        """Score each prompt's continuations."""
        return self._engine.score_choices(self._named(prompts), soft_prompt)

    def _named(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        return [dataclasses.replace(one, sample_id=f"{self.info.name} {one.sample_id}") for one in prompts]


def table_of(rows: Sequence[tuple[str, Measured]]) -> Table:
    """A row a command."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("command", "seconds", "peak MB", "written MB"):
        table.add_column(name, justify="left" if name == "command" else "right")
    for name, one in rows:
        table.add_row(name, f"{one.seconds:.1f}", f"{one.peak / 1e6:,.0f}", f"{one.written / 1e6:,.1f}")
    return table


def main() -> None:
    """Measure and print; or, in a process of its own, make runs."""
    if sys.argv[1:2] == ["long"]:
        make_long(Path(sys.argv[2]), int(sys.argv[3]))
        return
    if sys.argv[1:2] == ["wide"]:
        make_wide(Path(sys.argv[2]), *map(int, sys.argv[3:]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="little of everything: seconds, not minutes")
    parser.add_argument("--only", default="", help="commands whose names hold this; the runs must be there")
    parser.add_argument("--folder", type=Path, help="where the runs go, and stay; default: a temporary folder")
    given = parser.parse_args()
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="softbench-load-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for name, arguments in commands(folder, SMALL if given.small else FULL):
            if given.only in name:
                rows.append((name, measure(arguments, folder)))
                console.print(table_of(rows[-1:]))
        console.print(table_of(rows))


if __name__ == "__main__":
    main()
