"""Times the vLLM engine against the transformers engine on one model, in turn (A B A B ...), and prints medians.

    python -m benchmarks.vllm_engine --model gemma-3-270m.gguf --dtype float32

Each round begins with nothing of a prompt in either one's memory; opening the two is timed apart.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.worker import BATCH_SIZE, WARM_UP, Work
from softbench.engines.base import Engine
from softbench.engines.transformers import TransformersEngine
from softbench.engines.vllm import VllmEngine, open_llm
from softbench.models import load_model
from softbench.types import ChoiceScores, Completion

Answers = list[Completion] | list[ChoiceScores]


def main() -> None:
    """Run all work on both engines and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    started = time.perf_counter()
    model = load_model(arguments.model, arguments.dtype)
    loaded = time.perf_counter()
    llm = open_llm(model, BATCH_SIZE)
    console = Console(width=120)
    console.print(f"opening: transformers {loaded - started:.1f} s, vLLM {time.perf_counter() - loaded:.1f} s more")

    def fresh_vllm() -> Engine:
        llm.reset_prefix_cache()
        return VllmEngine(model, llm)

    contenders: dict[str, Callable[[], Engine]] = {
        "transformers": lambda: TransformersEngine(model, BATCH_SIZE),
        "vllm": fresh_vllm,
    }
    table = Table("work", "engine", "median s", "rounds", "median CPU s", "tokens read", "alike")
    for work in (
        Work("generate", "trivia_qa", arguments.samples, num_fewshot=5),
        Work("choices", "arc_easy:cf", arguments.samples),
    ):
        seconds, cpu_seconds, tokens, answers = measure(work, contenders, arguments.rounds)
        alike = agreement(answers["transformers"], answers["vllm"])
        for name, of_engine in seconds.items():
            rounds = " ".join(f"{one:.1f}" for one in of_engine)
            medians = [f"{statistics.median(one):.1f}" for one in (of_engine, cpu_seconds[name])]
            label = f"{work.num_fewshot}-shot {work.kind} {work.task}"
            same = alike if name == "vllm" else ""
            table.add_row(label, name, medians[0], rounds, medians[1], str(tokens[name]), same)
    console.print(table)


def measure(
    work: Work, contenders: dict[str, Callable[[], Engine]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, int], dict[str, Any]]:
    """Seconds and processor seconds of each round, tokens read in one, and the answers, by engine."""
    prompts = work.prompts()
    task, _ = work.load()

    def ask(engine: Engine, count: int) -> Answers:
        if work.kind == "generate":
            return engine.generate(prompts[:count], None, task.max_new_tokens, task.stop)
        return engine.score_choices(prompts[:count], None)

    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in contenders}
    tokens: dict[str, int] = {}
    answers: dict[str, Answers] = {}
    for make in contenders.values():
        ask(make(), WARM_UP)
    for _ in range(rounds):
        for name, make in contenders.items():
            engine = make()
            started, cpu_started = time.perf_counter(), time.process_time()
            answers[name] = ask(engine, len(prompts))
            seconds[name].append(time.perf_counter() - started)
            cpu_seconds[name].append(time.process_time() - cpu_started)
            tokens[name] = engine.tokens_read
    return seconds, cpu_seconds, tokens, answers


def agreement(mine: Any, theirs: Any) -> str:
    """How many completions are the same, or by how much log-likelihoods differ at most (nats)."""
    pairs = list(zip(mine, theirs, strict=True))
    if isinstance(mine[0], Completion):
        return f"{sum(one == other for one, other in pairs)} of {len(pairs)}"
    most = max(
        abs(a.logprob - b.logprob) for one, other in pairs for a, b in zip(one.options, other.options, strict=True)
    )
    return f"within {most:.1e}"


if __name__ == "__main__":
    main()
