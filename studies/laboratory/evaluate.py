"""softbench on the models: which methods on which of them, and where the runs go.

runs/main       base models: zero-shot, few-shot, soft prompt with its checkpoints; all seeds
runs/controls   base models: soft prompts tuned on shuffled labels or on the form alone, and a low-rank adapter
runs/strange    base models: soft prompts tuned on facts that no model has read
runs/seen       base models on the facts that their soft prompts were tuned on
runs/early      checkpoints of pre-training: the three methods
runs/post       post-trained models, zero-shot
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import softbench
from softbench.runs import FinishedJob, read_run
from softbench.types import SILENT
from studies.laboratory.recipes import Form
from studies.laboratory.tasks import FORMS, SEEN, STRANGE

NUM_FEWSHOT = 5
MAIN, CONTROLS, STRANGERS, SEEN_FACTS, EARLY, POST = "main", "controls", "strange", "seen", "early", "post"


def evaluate_base(model: Path, tasks: Path, runs: Path, form: Form) -> None:
    """All methods and controls on a base model."""
    soft = _soft_prompt(form)
    _run(model, _paths(tasks), _methods(form, form.checkpoints), runs / MAIN, form.seeds)
    lora = {"kind": "lora", "steps": form.tune_steps, "learning_rate": 1e-3}
    controls = [{**soft, "labels": "shuffled"}, {**soft, "loss_on": "format"}, lora]
    _run(model, _paths(tasks), controls, runs / CONTROLS, form.seeds[:1])
    _run(model, _paths(tasks, STRANGE), [soft], runs / STRANGERS, form.seeds[:1])
    for name, folder in _tuned_folders(runs / MAIN / model.name, form.seeds[0]).items():
        loaded = {"kind": "loaded_prompt", "soft_prompt": folder}
        _run(
            model, [str(tasks / f"{name}{SEEN}.yaml")], ["zero_shot", loaded], runs / SEEN_FACTS / name, form.seeds[:1]
        )


def evaluate_early(model: Path, tasks: Path, runs: Path, form: Form) -> None:
    """The three methods, with one seed, on a checkpoint of pre-training."""
    _run(model, _paths(tasks), _methods(form, ()), runs / EARLY, form.seeds[:1])


def evaluate_post(model: Path, tasks: Path, runs: Path, form: Form) -> None:
    """A post-trained model, asked as it is."""
    _run(model, _paths(tasks), ["zero_shot"], runs / POST, form.seeds[:1])


def read_jobs(runs: Path, kind: str, model: str) -> list[FinishedJob]:
    """All finished jobs of one kind of run on one model."""
    if kind == SEEN_FACTS:
        return [job for folder in sorted((runs / kind).iterdir()) for job in read_run(str(folder / model))]
    return read_run(str(runs / kind / model))


def _methods(form: Form, checkpoints: Sequence[int]) -> list[Any]:
    return [
        "zero_shot",
        {"kind": "few_shot", "num_fewshot": NUM_FEWSHOT},
        {**_soft_prompt(form), "checkpoints": list(checkpoints)},
    ]


def _soft_prompt(form: Form) -> dict[str, Any]:
    return {"kind": "soft_prompt", "steps": form.tune_steps, "learning_rate": form.tune_rate}


def _paths(tasks: Path, ending: str = "") -> list[str]:
    return [str(tasks / f"{name}{ending}.yaml") for name in FORMS]


def _run(model: Path, tasks: Sequence[str], methods: Sequence[Any], out: Path, seeds: Sequence[int]) -> None:
    softbench.run(
        [str(model)],
        tasks,
        methods,
        output_path=out,
        progress=SILENT,
        seeds=list(seeds),
        dtype="float32",
        device="cpu",
        data_dir=None,
    )


def _tuned_folders(run: Path, seed: int) -> Mapping[str, Path]:
    """By task, where the soft prompt lies that was tuned with `seed`; the task without its formulation."""
    cards = {path.parent: json.loads(path.read_text()) for path in sorted(run.glob("tuned/*/soft_prompt.json"))}
    return {card["task"].partition(":")[0]: folder for folder, card in cards.items() if card["seed"] == seed}
