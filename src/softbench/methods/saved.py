"""Tuned tensors on disk: a safetensors file, and a card that says whose they are and how they were made."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from softbench.errors import SoftPromptError
from softbench.files import write_atomic, write_json
from softbench.types import ModelInfo

Tensors = Mapping[str, NDArray[np.float32]]


def save_tensors(folder: Path, stem: str, tensors: Tensors, info: ModelInfo, card: Mapping[str, Any]) -> dict[str, Any]:
    """Write `stem`.safetensors and `stem`.json to `folder`; the whole card, which names the model and the file's hash.

    The card is written last: where there is one, the tensors are whole.
    """
    of_model = {
        "model": info.name,
        "model_source": info.source,
        "model_revision": info.revision,
        "model_fingerprint": info.fingerprint,
        "hidden_size": info.hidden_size,
    }
    return write_tensors(folder, stem, tensors, {**of_model, **card})


def write_tensors(folder: Path, stem: str, tensors: Tensors, card: Mapping[str, Any]) -> dict[str, Any]:
    """Write tensors with a card that names the model already; the card with the file's hash."""
    data = safetensors.numpy.save({name: np.ascontiguousarray(one, dtype=np.float32) for name, one in tensors.items()})
    whole = {**card, "sha256": hashlib.sha256(data).hexdigest()}
    write_atomic(folder / f"{stem}.safetensors", data)
    write_json(folder / f"{stem}.json", whole)
    return whole


def is_saved(folder: Path, stem: str) -> bool:
    """Whether tensors were saved, damaged since or not."""
    return (folder / f"{stem}.json").exists()


def load_tensors(folder: Path, stem: str, info: ModelInfo) -> tuple[Tensors, dict[str, Any]]:
    """Tensors and card. Raises SoftPromptError where they are damaged or made for another model."""
    try:
        data = (folder / f"{stem}.safetensors").read_bytes()
        tensors = safetensors.numpy.load(data)
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise _damaged(folder, stem, error) from error
    card = _read_json(folder, stem)
    if not isinstance(card, dict) or card.get("sha256") != hashlib.sha256(data).hexdigest():
        raise SoftPromptError(f"the {_name(stem)} in {str(folder)!r} does not match its card; tune it again")
    if card.get("model_fingerprint") != info.fingerprint:
        raise SoftPromptError(
            f"the {_name(stem)} in {str(folder)!r} was tuned for {card.get('model')!r} (hidden size "
            f"{card.get('hidden_size')}), not for {info.name!r} as it is now (hidden size {info.hidden_size}); tune "
            "one for this model"
        )
    return tensors, card


def read_card(folder: Path, stem: str) -> dict[str, Any]:
    """The card alone, which names the model. Raises SoftPromptError where there is none, or one that names no model."""
    card = _read_json(folder, stem)
    if not isinstance(card, dict) or not isinstance(card.get("model_source"), str):
        raise SoftPromptError(f"the card of the {_name(stem)} in {str(folder)!r} names no model; tune it again")
    return card


def _read_json(folder: Path, stem: str) -> Any:
    try:
        return json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, stem, error) from error


def _damaged(folder: Path, stem: str, error: Exception) -> SoftPromptError:
    return SoftPromptError(f"no whole {_name(stem)} in {str(folder)!r} ({error}); tune it again")


def _name(stem: str) -> str:
    return stem.replace("_", " ")
