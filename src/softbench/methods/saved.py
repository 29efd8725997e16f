"""Tuned tensors on disk: a safetensors file, and a card that says whose they are and how they were made."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict

from softbench.errors import SoftPromptError
from softbench.files import write_atomic, write_json
from softbench.types import ModelInfo
from softbench.untrusted import complaint, load_json, load_tensors, printable, read_bytes, read_text

Tensors = Mapping[str, NDArray[np.float32]]
Name = Annotated[str, AfterValidator(printable)]


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


def read_tensors(folder: Path, stem: str, info: ModelInfo) -> tuple[Tensors, dict[str, Any]]:
    """Tensors and card. Raises SoftPromptError where they are damaged or made for another model."""
    try:
        data = read_bytes(folder / f"{stem}.safetensors")
        tensors = load_tensors(data)
    except (OSError, ValueError) as error:
        raise _damaged(folder, stem, error) from error
    if not all(one.dtype.kind == "f" and np.isfinite(one).all() for one in tensors.values()):
        raise SoftPromptError(f"the {_name(stem)} in {str(folder)!r} holds what are no finite numbers; tune it again")
    card = read_card(folder, stem)
    if card.get("sha256") != hashlib.sha256(data).hexdigest():
        raise SoftPromptError(f"the {_name(stem)} in {str(folder)!r} does not match its card; tune it again")
    if card.get("model_fingerprint") != info.fingerprint:
        raise SoftPromptError(
            f"the {_name(stem)} in {str(folder)!r} was tuned for {card.get('model')!r} (hidden size "
            f"{card.get('hidden_size')}), not for {info.name!r} as it is now (hidden size {info.hidden_size}); tune "
            "one for this model"
        )
    return tensors, card


def read_card(folder: Path, stem: str) -> dict[str, Any]:
    """The card alone, which names the model. Raises SoftPromptError where there is none, or one that is not whole."""
    try:
        card = load_json(read_text(folder / f"{stem}.json"))
        if not isinstance(card, dict):
            raise ValueError("its card is no mapping")  # noqa: TRY301, TRY004  # told with the folder's name
        _Card.model_validate(card)
    except (OSError, ValueError) as error:
        raise _damaged(folder, stem, error) from error
    whole: dict[str, Any] = card
    return whole


class _Checked(BaseModel):
    """What is read of a card must be as softbench wrote it; there may be more."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _FailedTry(_Checked):
    learning_rate: float
    step: int
    met: str


class _Lora(_Checked):
    rank: int
    alpha: int
    steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    retry_lower_rate: bool = False


class _Card(_Checked):
    sha256: str
    model: Name
    model_source: Name
    model_revision: Name | None
    model_fingerprint: str
    hidden_size: int
    holds_bos: bool = False
    answer_format: str | None = None
    losses: list[float] = []
    cost: dict[str, float | None] = {}
    failed_tries: list[_FailedTry] = []
    lora: _Lora | None = None


def _damaged(folder: Path, stem: str, error: Exception) -> SoftPromptError:
    said = complaint(error) if isinstance(error, ValueError) else error
    return SoftPromptError(f"no whole {_name(stem)} in {str(folder)!r} ({said}); tune it again")


def _name(stem: str) -> str:
    return stem.replace("_", " ")
