"""Sweeps learning rate and initialisation of the soft prompt on a held-out slice of *training* splits.

    python scripts/sweep_learning_rate.py OUT.jsonl MODEL [MODEL ...]

One line of OUT.jsonl a run: the mean loss (nats a token) of 40 held-out training samples' targets after
a schedule of 40 steps. Validation and test splits are never read. Lines already there are not run again.
docs/learning_rate.md has the table that the defaults come from; `--table OUT.jsonl` prints it.
"""

import argparse
import itertools
import json
import os
import statistics
from pathlib import Path
from typing import Literal

import torch

from softbench.methods import losses
from softbench.methods import tune as tuning
from softbench.models import LoadedModel, load_model
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import TuneSettings

TASKS = ("capitals", "arithmetic", "arc_easy:mcf")
RATES = (0.03, 0.1, 0.3, 1.0)
INITS: tuple[Literal["text", "vocab"], ...] = ("text", "vocab")
STEPS = 40
NUM_HELD_OUT = 40


def main() -> None:
    """Run what is missing in OUT.jsonl, or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds, from 0")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        print_table(arguments.out)
        return
    done = {tuple(json.loads(line)["key"]) for line in arguments.out.open()} if arguments.out.exists() else set()
    for source in arguments.models:
        model = load_model(source)
        for seed, init, task, rate in itertools.product(range(arguments.seeds), INITS, TASKS, RATES):
            key = (model.info.name, task, init, rate, seed)
            if key in done or (init == "vocab" and (rate == 1.0 or task != "capitals")):
                continue  # vocabulary rows are tried on one task, at the rates that text init leaves in the race
            loss = held_out_loss(model, task, TuneSettings(10, STEPS, 8, rate, 5, init), seed)
            with arguments.out.open("a") as file:
                file.write(json.dumps({"key": key, "loss": loss}) + "\n")


def held_out_loss(model: LoadedModel, task_name: str, settings: TuneSettings, seed: int) -> float:
    """Loss of the held-out slice, the end of the tune split, after tuning on the rest."""
    task = get_task(task_name)
    data_dir = Path(os.environ.get("SOFTBENCH_DATA", "../shared/data"))
    prompts = [render_prompt(task, sample) for sample in load_data(task, data_dir).tune]
    held_out = losses.encode_examples(model, prompts[-NUM_HELD_OUT:], settings.num_virtual_tokens)
    tuned = tuning.tune(model, prompts[:-NUM_HELD_OUT], task.description, settings, seed, lambda loss: None)
    vectors = torch.from_numpy(tuned.soft_prompt.vectors).to(model.device)
    total = 0.0
    with torch.no_grad():
        for start in range(0, NUM_HELD_OUT, 8):
            batch = held_out[start : start + 8]
            total += float(losses.plain_losses(model, vectors[None], batch, [0] * len(batch)).sum())
    return total / sum(len(one.learned) for one in held_out)


def print_table(path: Path) -> None:
    """Mean and range over seeds of the final held-out loss, a row for each model, task and init, a column a rate."""
    rows = [json.loads(line) for line in path.open()]
    groups: dict[tuple[str, ...], dict[float, list[float]]] = {}
    for row in rows:
        model, task, init, rate, _ = row["key"]
        groups.setdefault((model, task, init), {}).setdefault(rate, []).append(row["loss"])
    print("| model | task | init | " + " | ".join(f"{rate} x RMS" for rate in RATES) + " |")
    print("| --- " * (3 + len(RATES)) + "|")
    for group, by_rate in sorted(groups.items()):
        cells = [_cell(by_rate.get(rate, [])) for rate in RATES]
        print(f"| {' | '.join(group)} | {' | '.join(cells)} |")


def _cell(losses: list[float]) -> str:
    if not losses:
        return ""
    return f"{statistics.mean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})"


if __name__ == "__main__":
    main()
