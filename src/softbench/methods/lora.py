"""LoRA: a low-rank adapter in every linear layer, tuned on the tuning split (Train-before-Test, arXiv 2507.05195).

The literature's way to bring all models to the same preparedness, as a reference: it changes the model, and may teach.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softbench.errors import SoftPromptError
from softbench.methods.base import Materials, Method, rate_block, tuning_cost
from softbench.methods.saved import is_saved, read_tensors, save_tensors
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
    retry_lower_rate: bool = False

    @property
    def num_steps(self) -> int:  # type: ignore[override]  # a field of another name says it
        """Tuning steps that `prepare` takes."""
        return self.steps

    def prepare(self, materials: Materials) -> Prepared:
        """Tune the adapter."""
        settings = LoraSettings(
            self.rank,
            self.alpha,
            self.steps,
            self.batch_size,
            self.learning_rate,
            self.warmup_steps,
            self.retry_lower_rate,
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
        rate = rate_block(self.learning_rate, adapter.failed_tries)
        whole = {**card, **rate, "lora": asdict(adapter.settings), "losses": adapter.losses, "cost": cost}
        save_tensors(folder, STEM, adapter.weights, info, whole)

    def load(self, folder: Path, info: ModelInfo, checkpoint: int | None) -> Prepared | None:
        """The saved adapter, if there is one."""
        if not is_saved(folder, STEM):
            return None
        weights, card = read_tensors(folder, STEM, info)
        try:
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
        except (KeyError, TypeError) as error:
            raise SoftPromptError(
                f"the card of the adapter in {str(folder)!r} does not say how it was tuned ({error}); tune it again"
            ) from error
