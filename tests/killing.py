"""Runs the command in processes that are killed, and says how each ended: python -m tests.killing < PLAN > REPORT.

PLAN is JSON: {"argv": [...], "log": PATH, "attempts": [...]}. An attempt is {} (nothing disturbs it), {"seconds": S}
(SIGKILL after S seconds) or {"write": N} (SIGKILL at a call that makes data last: N = 1 before the first, 2 behind it,
3 before the second, and so on); "number" asks for another signal. Each is a process of its own, forked from this one,
which has imported everything, so that a kill meets the run and hardly ever the imports. Tuning is kept after every
step, and records by twos.

{"kills": {"count": N, "seed": S, "seconds": T, "out": FOLDER}} makes as many attempts as it takes to kill N of them, at
moments drawn between 0 and T. A run that ends before its moment is moved from FOLDER to a folder of its own beside it
("out 1", "out 2"), and the next begins anew.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import softbench.backends
import softbench.cli
import softbench.engines.transformers
import softbench.executors
import softbench.methods.peft_format
import softbench.methods.tune_adapter
import softbench.report.table
from softbench import pipeline
from softbench.methods import state

LASTING = ("fsync", "replace")
"""Functions of `os` that a file's content, or its name, is lasting after."""


def main() -> None:
    """Make all attempts, one after another."""
    plan = json.load(sys.stdin)
    torch.set_num_threads(1)
    pipeline.CHUNK, state.SECONDS, state.SHARE = 2, -1.0, 1e9  # a write is always due
    argv, log = plan["argv"], Path(plan["log"])
    report = list(random_kills(argv, log, **plan["kills"])) if "kills" in plan else []
    report += [attempt(argv, log, **one) for one in plan["attempts"]]
    json.dump(report, sys.stdout)


def random_kills(
    argv: list[str], log: Path, count: int, seed: int, seconds: float, out: str
) -> Iterator[dict[str, Any]]:
    """Attempts at the command until so many were killed."""
    draw, killed, ended = random.Random(seed), 0, 0
    while killed < count:
        anew = not Path(out).exists()
        made = attempt(argv, log, draw.uniform(0, seconds))
        yield made
        if made["code"] == -signal.SIGKILL:
            killed += 1
            continue
        if made["code"] or ended > 2 * count:
            return
        ended += 1
        Path(out).rename(f"{out} {ended}")
        if anew:  # it takes less than was thought
            seconds = min(seconds, made["seconds"])


def attempt(
    argv: list[str],
    log: Path,
    seconds: float | None = None,
    write: int | None = None,
    number: int = signal.SIGKILL,
) -> dict[str, Any]:
    """Run the command in a process; how long it took, how it ended (`code`, negative: by a signal), what it printed
    last, and how many of its writes were counted."""
    started = time.perf_counter()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        run(argv, log, write, number, lambda: os.write(writing, b"."))
    os.close(writing)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, number)
    counted = sum(iter(lambda: len(os.read(reading, 4096)), 0))
    os.close(reading)
    _, status = os.waitpid(child, 0)
    return {
        "seconds": time.perf_counter() - started,
        "code": os.waitstatus_to_exitcode(status),
        "writes": counted,
        "said": log.read_text(),
    }


def run(argv: list[str], log: Path, write: int | None, number: int, on_write: Callable[[], Any]) -> None:
    """Run the command, in this process, to its end."""
    with log.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    seen = 0

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            on_write()
            if write == 2 * seen - 1:
                os.kill(os.getpid(), number)
            result = original(*arguments, **named)
            if write == 2 * seen:
                os.kill(os.getpid(), number)
            return result

        return call

    for name in LASTING:
        setattr(os, name, counting(getattr(os, name)))
    sys.argv = ["softbench", *argv]
    code = 0
    try:
        softbench.cli.main()
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
