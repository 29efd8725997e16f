"""The seam for a way of prompting: what it puts before every test sample, made from tuning samples alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softbench.types import (
    AdapterTuner,
    FailedTry,
    Labels,
    ModelInfo,
    OnStep,
    Options,
    Prepared,
    Prompt,
    Sample,
    SoftPrompt,
    Tuner,
)


@dataclass(frozen=True, slots=True)
class Materials:
    """What a method may use. Test samples are not among it.

    `shot_samples` are what worked examples are drawn from; `tune_prompts` are `tune_samples` as zero-shot prompts with
    their targets; `init_text` is what vectors may start from: the task's instruction, or a first prompt where it has
    none. `answer_format` is the task's, as its instruction puts it. `format_following` is the share of the tuning
    samples at the given places that the model answers in form behind a soft prompt; None where nothing is generated.
    `read_prompt` reads a soft prompt for the model from a folder, and raises SoftPromptError.
    """

    tune_samples: Sequence[Sample]
    shot_samples: Sequence[Sample]
    tune_prompts: Sequence[Prompt]
    init_text: str
    answer_format: str
    info: ModelInfo
    tuner: Tuner
    adapter_tuner: AdapterTuner
    format_following: Callable[[SoftPrompt, Sequence[int]], float] | None
    read_prompt: Callable[[Path], SoftPrompt]
    seed: int
    on_step: OnStep


class Method:
    """A way of prompting a frozen model; what is said here holds unless a method says otherwise."""

    num_fewshot: int = 0
    """Worked examples in each prompt."""
    num_steps: int = 0
    """Tuning steps that `prepare` takes."""
    labels: Labels = "gold"
    """Whether tuning samples keep their right answers."""
    options: Options = "given"
    """The order in which test samples show their options."""
    checkpoints: tuple[int, ...] = ()
    """Tuning steps whose vectors are evaluated besides the last ones."""
    random_weights: bool = False
    """Whether the model is one of the same architecture that has learned nothing."""

    @property
    def uses_seed(self) -> bool:
        """Whether another seed gives another result."""
        return self.num_steps > 0 or self.options == "shuffled"

    def prepare(self, materials: Materials) -> Prepared:
        """Do the work that comes once, before any test sample."""
        raise NotImplementedError

    def save(self, folder: Path, prepared: Prepared, info: ModelInfo, card: Mapping[str, Any]) -> None:
        """Keep what was tuned in `folder`, with a card that begins with `card`."""
        raise NotImplementedError

    def load(self, folder: Path, info: ModelInfo, checkpoint: int | None) -> Prepared | None:
        """What was tuned, from `folder`, after `checkpoint` steps (None: all); None where nothing was saved.

        Raises SoftPromptError where it is damaged or for another model.
        """
        raise NotImplementedError


MethodFactory = Callable[..., Method]


def rate_block(learning_rate: float, failed_tries: Sequence[FailedTry]) -> dict[str, Any]:
    """What a card says of the learning rate: the one that was asked for, halved after each try that failed."""
    return {
        "learning_rate": learning_rate * 0.5 ** len(failed_tries),
        "failed_tries": [asdict(one) for one in failed_tries],
    }


def tuning_cost(
    info: ModelInfo, steps: int, batch_size: int, num_tokens: int, seconds: float, trainable: int
) -> dict[str, Any]:
    """What tuning took; docs/metrics.md says how operations are counted."""
    return {
        "tuning_seconds": seconds,
        "tuning_steps": steps,
        "tuning_samples": steps * batch_size,
        "tuning_tokens": num_tokens,
        "tuning_flops": 4 * info.num_body_parameters * num_tokens,
        "trainable_parameters": trainable,
        "trainable_share": trainable / info.num_parameters,
    }
