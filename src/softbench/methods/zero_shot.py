"""Zero-shot: the instruction and the question, nothing else."""

from dataclasses import dataclass

from softbench.methods.base import Materials
from softbench.types import Labels, Prepared


@dataclass(frozen=True, slots=True)
class ZeroShot:
    """Puts nothing before a sample."""

    uses_seed: bool = False
    num_fewshot: int = 0
    num_steps: int = 0
    labels: Labels = "gold"

    def prepare(self, materials: Materials) -> Prepared:
        """Nothing to prepare."""
        return Prepared()
