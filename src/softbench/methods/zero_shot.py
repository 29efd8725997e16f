"""Zero-shot: the instruction and the question, nothing else."""

from dataclasses import dataclass

from softbench.methods.base import Materials, Method
from softbench.types import Options, Prepared


@dataclass(frozen=True)
class ZeroShot(Method):
    """Puts nothing before a sample."""

    options: Options = "given"

    def prepare(self, materials: Materials) -> Prepared:
        """Nothing to prepare."""
        return Prepared()
