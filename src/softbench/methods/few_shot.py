"""Few-shot: worked examples from the tuning split before the question."""

from dataclasses import dataclass

import numpy as np

from softbench.errors import SpecError
from softbench.methods.base import Materials
from softbench.types import Prepared


@dataclass(frozen=True, slots=True)
class FewShot:
    """Draws `num_fewshot` tuning samples by the seed; the same ones, in the same order, stand before every sample."""

    num_fewshot: int
    uses_seed: bool = True
    num_steps: int = 0

    def prepare(self, materials: Materials) -> Prepared:
        """Draw the shots. Raises SpecError where the tuning split has too few samples."""
        available = len(materials.tune_samples)
        if self.num_fewshot > available:
            raise SpecError(
                f"num_fewshot is {self.num_fewshot} and the tuning split has {available} samples; take fewer"
            )
        drawn = np.random.default_rng(materials.seed).choice(available, size=self.num_fewshot, replace=False)
        return Prepared(shots=tuple(materials.tune_samples[index] for index in drawn))
