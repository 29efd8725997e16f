"""Runs softbench and its peers in turn (A B A B ...) and prints medians, ratios, memory and agreement.

    python -m benchmarks.bench --model gemma-3-270m.gguf --out benchmarks/gemma.json

Each measurement is a process of its own, so that none finds another's caches or memory.
"""

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.worker import Work
from softbench.files import write_json


@dataclass(frozen=True)
class Match:
    """A piece of work, who does it, and the least that softbench should be faster by."""

    name: str
    work: Work
    dtype: str
    peer: str
    target: float | None = None
    memory_target: float | None = None


def matches(dtypes: Sequence[str]) -> list[Match]:
    """Everything that is measured. Targets are those for Gemma 3 270M."""
    found = []
    for dtype in dtypes:
        found += [
            Match(f"tune {task}", Work("tune", task, 8), dtype, "peft", 4.0, 4.0)
            for task in ("arc_easy:mcf", "mmlu:mcf")
        ]
        letters = Work("choices", "arc_easy:mcf:letter", 200, num_fewshot=5)
        found.append(Match("5-shot letters", letters, dtype, "lm-eval", 4.0))
        found.append(Match("0-shot cloze", Work("choices", "arc_easy:cf", 200), dtype, "lm-eval", 2.0))
        answers = Work("generate", "trivia_qa", 100, num_fewshot=5)
        found.append(Match("5-shot generation", answers, dtype, "lm-eval", 4.0))
        soft = Work("generate", "trivia_qa", 100, soft_prompt=True)
        found.append(Match("soft-prompted against zero-shot generation", soft, dtype, "zero-shot", 1 / 1.15))
    return found


def measure(model: str, dtype: str, threads: int, contender: str, work: Work) -> dict[str, Any]:
    """One process's result."""
    text = json.dumps(asdict(work))
    command = [sys.executable, "-m", "benchmarks.worker", model, dtype, str(threads), contender, text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{contender} failed at {work}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def alternate(model: str, match: Match, threads: int, repeats: int) -> dict[str, Any]:
    """softbench and its peer in turn; medians, ratios of neighbours, and whether they agree."""
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for repeat in range(repeats):
        work = replace(match.work, count_operations=repeat == 0)
        ours.append(measure(model, match.dtype, threads, "softbench", work))
        if match.peer == "zero-shot":
            bare = replace(match.work, soft_prompt=False)
            theirs.append(measure(model, match.dtype, threads, "softbench", bare))
        else:
            theirs.append(measure(model, match.dtype, threads, match.peer, match.work))
    peak = matrix_product_rate(match.dtype, threads)
    seconds = [statistics.median(one["seconds"] for one in side) for side in (ours, theirs)]
    memory = [statistics.median(one["peak_bytes_above_model"] for one in side) for side in (ours, theirs)]
    return {
        "name": match.name,
        "dtype": match.dtype,
        "peer": match.peer,
        "work": asdict(match.work),
        "seconds": seconds[0],
        "peer_seconds": seconds[1],
        "all_seconds": [one["seconds"] for one in ours],
        "all_peer_seconds": [one["seconds"] for one in theirs],
        "ratio": statistics.median(b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True)),
        "target": match.target,
        "peak_bytes_above_model": memory[0],
        "peer_peak_bytes_above_model": memory[1],
        "memory_ratio": memory[1] / max(1, memory[0]),
        "memory_target": match.memory_target,
        "tokens_per_second": ours[0]["tokens"] / seconds[0],
        "matrix_product_flops": peak,
        "share_of_matrix_product_rate": ours[0]["flops"] / seconds[0] / peak,
        "share_on_the_vocabulary": ours[0]["vocabulary_seconds"] / ours[0]["seconds"],
        "share_outside": 1 - (ours[0]["model_seconds"] + ours[0]["vocabulary_seconds"]) / ours[0]["seconds"],
        "agreement": agreement(ours[0], theirs[0]) if match.peer == "lm-eval" else None,
        "losses": [ours[0].get("losses"), theirs[0].get("losses")],
    }


def agreement(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The largest differences of log-likelihoods (nats, and relative), or the share of equal completions."""
    pairs = list(zip(ours["answers"], theirs["answers"], strict=True))
    if isinstance(pairs[0][0], str):
        return {"equal_completions": sum(one == other for one, other in pairs) / len(pairs)}
    flat = [(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)]
    best = [one.index(max(one)) == other.index(max(other)) for one, other in pairs]
    return {
        "largest_difference": max(abs(a - b) for a, b in flat),
        "largest_relative_difference": max(abs(a - b) / abs(b) for a, b in flat),
        "same_choice": sum(best) / len(best),
    }


def matrix_product_rate(dtype: str, threads: int) -> float:
    """Operations a second of a plain matrix product on this machine, now: the best of a few."""
    torch.set_num_threads(threads)
    kind = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    left, right = torch.randn(2608, 640).to(kind), torch.randn(640, 2048).to(kind)
    left @ right
    times = []
    for _ in range(20):
        started = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - started)
    return 2 * 2608 * 640 * 2048 / min(times)


def growth(model: str, dtype: str, threads: int) -> dict[str, Any]:
    """Exponents of time against samples and against the prompt's length (0 is free, 1 is in proportion)."""
    by_samples = [(n, Work("choices", "arc_easy:mcf:letter", n, num_fewshot=5)) for n in (50, 100, 200)]
    by_shots = [(n, Work("choices", "arc_easy:mcf:letter", 50, num_fewshot=n)) for n in (4, 8, 16)]
    found: dict[str, Any] = {}
    for name, series in (("samples", by_samples), ("shots", by_shots)):
        seconds = [
            statistics.median(measure(model, dtype, threads, "softbench", work)["seconds"] for _ in range(3))
            for _, work in series
        ]
        sizes = [size for size, _ in series]
        exponent = statistics.linear_regression(
            [math.log(size) for size in sizes], [math.log(one) for one in seconds]
        ).slope
        found[name] = {"sizes": sizes, "seconds": seconds, "exponent": exponent}
    return found


def table_of(results: Sequence[dict[str, Any]]) -> Table:
    """A row a match."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(
        (
            "work",
            "dtype",
            "against",
            "s",
            "peer s",
            "faster",
            "wanted",
            "memory",
            "wanted",
            "tokens/s",
            "of peak",
            "vocab",
            "outside",
            "agree",
        )
    ):
        table.add_column(column, justify="right" if place > 2 else "left")
    for one in results:
        wanted = ["-" if one[name] is None else f"{one[name]:.2f}x" for name in ("target", "memory_target")]
        agree = "-" if one["agreement"] is None else ", ".join(f"{value:.2g}" for value in one["agreement"].values())
        table.add_row(
            one["name"], one["dtype"], one["peer"], f"{one['seconds']:.2f}", f"{one['peer_seconds']:.2f}",
            f"{one['ratio']:.2f}x", wanted[0], f"{one['memory_ratio']:.1f}x", wanted[1],
            f"{one['tokens_per_second']:.0f}", f"{one['share_of_matrix_product_rate']:.0%}",
            f"{one['share_on_the_vocabulary']:.1%}", f"{one['share_outside']:.1%}", agree,
        )  # fmt: skip
    return table


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="matches whose names hold this")
    parser.add_argument("--growth", action="store_true")
    given = parser.parse_args()
    console = Console(width=170)
    results = []
    for match in matches(given.dtypes.split(",")):
        if given.only in match.name:
            results.append(alternate(given.model, match, given.threads, given.repeats))
            console.print(table_of(results[-1:]))
    found = {
        "model": Path(given.model).name,
        "threads": given.threads,
        "repeats": given.repeats,
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "matches": results,
    }
    if given.growth:
        found["growth"] = growth(given.model, given.dtypes.split(",")[0], given.threads)
        console.print(found["growth"])
    write_json(given.out, found)
    console.print(table_of(results))


if __name__ == "__main__":
    main()
