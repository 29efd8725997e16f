"""Soft prompt: vectors tuned on the tuning split stand before the zero-shot prompt (arXiv 2606.12117)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.numpy

from softbench.errors import SoftPromptError
from softbench.files import write_atomic, write_json
from softbench.methods.base import Materials
from softbench.types import Labels, ModelInfo, Prepared, SoftPrompt, TuneSettings

WEIGHTS, CARD = "soft_prompt.safetensors", "soft_prompt.json"


@dataclass(frozen=True, slots=True)
class SoftPromptTuning:
    """Tunes `num_virtual_tokens` vectors; `learning_rate` is in units of the RMS of the model's input embeddings."""

    num_virtual_tokens: int
    steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    init: Literal["text", "vocab"]
    labels: Labels = "gold"
    uses_seed: bool = True
    num_fewshot: int = 0

    @property
    def num_steps(self) -> int:
        """Tuning steps that `prepare` takes."""
        return self.steps

    def prepare(self, materials: Materials) -> Prepared:
        """Tune the vectors."""
        settings = TuneSettings(
            num_virtual_tokens=self.num_virtual_tokens,
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warmup_steps=self.warmup_steps,
            init=self.init,
        )
        result = materials.tuner(
            materials.tune_prompts, materials.init_text, settings, materials.seed, materials.on_step
        )
        return Prepared(soft_prompt=result.soft_prompt, tuning=result)


def save_soft_prompt(folder: Path, soft_prompt: SoftPrompt, info: ModelInfo, card: Mapping[str, Any]) -> SoftPrompt:
    """Write vectors and card to `folder` and return the soft prompt with its full card.

    The card names the model (fingerprint included), so that load_soft_prompt can refuse another one, and the hash of
    the vectors. It is written last: a folder with a card is whole.
    """
    data = safetensors.numpy.save({"soft_prompt": np.ascontiguousarray(soft_prompt.vectors, dtype=np.float32)})
    full_card = {
        "model": info.name,
        "model_source": info.source,
        "model_revision": info.revision,
        "model_fingerprint": info.fingerprint,
        "num_virtual_tokens": len(soft_prompt.vectors),
        "hidden_size": info.hidden_size,
        "sha256": hashlib.sha256(data).hexdigest(),
        **card,
    }
    write_atomic(folder / WEIGHTS, data)
    write_json(folder / CARD, full_card)
    return SoftPrompt(soft_prompt.vectors, full_card)


def has_soft_prompt(folder: Path) -> bool:
    """Whether a soft prompt was saved to `folder`, whole or not."""
    return (folder / CARD).exists()


def load_soft_prompt(folder: Path, info: ModelInfo) -> SoftPrompt:
    """Read the soft prompt in `folder`. Raises SoftPromptError where it is damaged or made for another model."""
    try:
        data = (folder / WEIGHTS).read_bytes()
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        vectors = safetensors.numpy.load(data)["soft_prompt"]
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise SoftPromptError(f"no whole soft prompt in {str(folder)!r} ({error}); tune it again") from error
    if not isinstance(card, dict) or card.get("sha256") != hashlib.sha256(data).hexdigest():
        raise SoftPromptError(f"the soft prompt in {str(folder)!r} does not match its card; tune it again")
    if vectors.ndim != 2 or vectors.shape[1] != info.hidden_size or card.get("model_fingerprint") != info.fingerprint:
        raise SoftPromptError(
            f"the soft prompt in {str(folder)!r} was tuned for {card.get('model')!r} "
            f"(hidden size {vectors.shape[-1]}), not for {info.name!r} as it is now "
            f"(hidden size {info.hidden_size}); tune one for this model"
        )
    return SoftPrompt(vectors, card)
