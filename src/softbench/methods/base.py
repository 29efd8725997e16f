"""The seam for a way of prompting: what it puts before every test sample, made from tuning samples alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from softbench.types import Labels, OnStep, Prepared, Prompt, Sample, Tuner


@dataclass(frozen=True, slots=True)
class Materials:
    """What a method may use. Test samples are not among it.

    `shot_samples` are what worked examples are drawn from; `tune_prompts` are the tuning samples as zero-shot prompts
    with their targets; `init_text` is what vectors may start from: the task's instruction, or a first prompt where it
    has none.
    """

    shot_samples: Sequence[Sample]
    tune_prompts: Sequence[Prompt]
    init_text: str
    tuner: Tuner
    seed: int
    on_step: OnStep


class Method(Protocol):
    """A way of prompting a frozen model."""

    @property
    def uses_seed(self) -> bool:
        """Whether another seed gives another result."""
        ...

    @property
    def num_fewshot(self) -> int:
        """Worked examples in each prompt."""
        ...

    @property
    def num_steps(self) -> int:
        """Tuning steps that `prepare` takes."""
        ...

    @property
    def labels(self) -> Labels:
        """Whether tuning samples keep their right answers."""
        ...

    def prepare(self, materials: Materials) -> Prepared:
        """Do the work that comes once, before any test sample."""
        ...


MethodFactory = Callable[..., Method]
