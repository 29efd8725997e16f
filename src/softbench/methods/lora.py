"""LoRA: a low-rank adapter in every linear layer, tuned on the tuning split (Train-before-Test, arXiv 2507.05195).

The literature's way to bring all models to the same preparedness, as a reference: it changes the model, and may teach.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softbench.methods.base import Materials, Method, tuning_cost
from softbench.methods.saved import is_saved, load_tensors, save_tensors
from softbench.types import Adapter, Labels, LoraSettings, ModelInfo, Prepared

STEM = "adapter"


@dataclass(frozen=True)
class Lora(Method):
    """Tunes an adapter through PEFT with AdamW on the same samples as a soft prompt."""

    rank: int
    alpha: int
    steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    labels: Labels = "gold"

    @property
    def num_steps(self) -> int:  # type: ignore[override]  # a field of another name says it
        """Tuning steps that `prepare` takes."""
        return self.steps

    def prepare(self, materials: Materials) -> Prepared:
        """Tune the adapter."""
        settings = LoraSettings(
            self.rank, self.alpha, self.steps, self.batch_size, self.learning_rate, self.warmup_steps
        )
        return Prepared(
            adapter=materials.adapter_tuner(materials.tune_prompts, settings, materials.seed, materials.on_step)
        )

    def save(self, folder: Path, prepared: Prepared, info: ModelInfo, card: Mapping[str, Any]) -> None:
        """Write weights and card."""
        adapter = prepared.adapter
        assert adapter is not None  # whoever saves has tuned
        trainable = sum(one.size for one in adapter.weights.values())
        cost = tuning_cost(info, len(adapter.losses), self.batch_size, adapter.num_tokens, adapter.seconds, trainable)
        whole = {**card, "lora": asdict(adapter.settings), "losses": adapter.losses, "cost": cost}
        save_tensors(folder, STEM, adapter.weights, info, whole)

    def load(self, folder: Path, info: ModelInfo, checkpoint: int | None) -> Prepared | None:
        """The saved adapter, if there is one."""
        if not is_saved(folder, STEM):
            return None
        weights, card = load_tensors(folder, STEM, info)
        return Prepared(
            adapter=Adapter(
                weights=weights,
                settings=LoraSettings(**card["lora"]),
                losses=tuple(card["losses"]),
                num_tokens=card["cost"]["tuning_tokens"],
                seconds=card["cost"]["tuning_seconds"],
                card=card,
            )
        )
