"""Majority: the same answer to every question, the commonest of the tuning split. What no knowledge at all scores."""

from collections import Counter
from dataclasses import dataclass

from softbench.methods.base import Materials, Method
from softbench.types import Prepared


@dataclass(frozen=True)
class Majority(Method):
    """Answers with the option at the commonest right place, or with the commonest answer to open questions."""

    def prepare(self, materials: Materials) -> Prepared:
        """Find it; of equals, the one that comes first."""
        found = Counter(sample.answers[0] if sample.gold is None else sample.gold for sample in materials.tune_samples)
        [(constant, _)] = found.most_common(1)
        return Prepared(constant=constant)
