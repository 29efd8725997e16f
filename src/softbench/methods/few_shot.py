"""Few-shot: worked examples before the question, never from validation or test."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from softbench.errors import SpecError
from softbench.methods.base import Materials, Method
from softbench.types import Options, Prepared, Sample

Sampling = Literal["random", "fixed", "balanced"]


@dataclass(frozen=True)
class FewShot(Method):
    """Puts the same `num_fewshot` examples, in the same order, before every sample of a group.

    `sampling`: `random` draws them by the seed; `fixed` takes the first ones, as some benchmarks' authors mean it;
    `balanced` draws by the seed, with each right answer as often as any other.
    """

    num_fewshot: int
    sampling: Sampling = "random"
    options: Options = "given"

    @property
    def uses_seed(self) -> bool:
        """Whether another seed gives another result."""
        return self.sampling != "fixed" or self.options == "shuffled"

    def prepare(self, materials: Materials) -> Prepared:
        """Choose the shots of each group. Raises SpecError where there are too few samples."""
        groups: dict[str, list[Sample]] = {}
        for sample in materials.shot_samples:
            groups.setdefault(sample.group, []).append(sample)
        most = max((len(samples) for samples in groups.values()), default=0)
        if self.num_fewshot > most:
            raise SpecError(
                f"num_fewshot is {self.num_fewshot} and there are {most} samples to draw from"
                f"{' in the largest group' if len(groups) > 1 else ''}; take fewer"
            )
        return Prepared(
            shots={
                group: tuple(samples[index] for index in self._choose(samples, materials.seed))
                for group, samples in groups.items()
                if len(samples) >= self.num_fewshot  # whoever asks for another group's is told
            }
        )

    def _choose(self, samples: Sequence[Sample], seed: int) -> list[int]:
        if self.sampling == "fixed":
            return list(range(self.num_fewshot))
        generator = np.random.default_rng(seed)
        if self.sampling == "random":
            return [int(i) for i in generator.choice(len(samples), size=self.num_fewshot, replace=False)]
        by_answer: dict[str, list[int]] = {}
        for index in generator.permutation(len(samples)):
            by_answer.setdefault(samples[index].answers[0], []).append(int(index))
        rounds = itertools.zip_longest(*by_answer.values())
        chosen = [index for one in rounds for index in one if index is not None][: self.num_fewshot]
        # In no order that answers could be guessed from.
        return [chosen[place] for place in generator.permutation(len(chosen))]
