"""Soft prompts in PEFT's PROMPT_TUNING format.

PEFT puts its vectors before everything, BOS among it; softbench tunes them behind BOS. So BOS becomes the first of the
exported vectors, and texts go to the PEFT model tokenized with `add_special_tokens=False`: its rows are then those of
softbench. Vectors that PEFT tuned are read with the embedding of BOS behind them, as its rows had it.
"""

import hashlib
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch

from softbench.errors import SoftPromptError, SpecError
from softbench.files import write_atomic
from softbench.methods.soft_prompt import load_soft_prompt
from softbench.models import LoadedModel
from softbench.types import SoftPrompt
from softbench.untrusted import load_json, load_tensors, read_bytes, read_text

CONFIG, WEIGHTS, TENSOR = "adapter_config.json", "adapter_model.safetensors", "prompt_embeddings"


def export_peft(model: LoadedModel, soft_prompt: SoftPrompt, folder: Path) -> None:
    """Write `soft_prompt` to `folder` as an adapter that `peft.PeftModel.from_pretrained` loads onto `model`.

    It has num_virtual_tokens vectors, and one more where the model's tokenizer begins texts with BOS. Raises SpecError
    where PEFT is not installed.
    """
    try:
        from peft import PromptTuningConfig
    except ImportError:
        raise SpecError("export-peft needs PEFT, which is not installed: pip install 'softbench[peft]'") from None
    vectors = soft_prompt.vectors
    if not soft_prompt.holds_bos:
        vectors = np.concatenate([_bos(model), vectors])
    text = model.model.config.get_text_config()
    config = PromptTuningConfig(
        task_type="CAUSAL_LM",
        base_model_name_or_path=model.info.source,
        revision=model.info.revision,
        inference_mode=True,
        num_virtual_tokens=len(vectors),
        token_dim=model.info.hidden_size,
        num_transformer_submodules=1,
        num_layers=text.num_hidden_layers,
        num_attention_heads=text.num_attention_heads,
    )
    # The configuration is written last: where there is one, the vectors are whole.
    data = safetensors.numpy.save({TENSOR: np.ascontiguousarray(vectors, dtype=np.float32)})
    write_atomic(folder / WEIGHTS, data)
    config.save_pretrained(str(folder))


def read_prompt(model: LoadedModel, folder: Path) -> SoftPrompt:
    """The soft prompt in `folder`: softbench's own, or an adapter of PEFT's kind PROMPT_TUNING.

    Raises SoftPromptError where it is damaged, of another kind, or made for another model (PEFT names none that could
    be checked: there the hidden size must do).
    """
    if not (folder / CONFIG).exists():
        return load_soft_prompt(folder, model.info)
    try:
        config = load_json(read_text(folder / CONFIG))
        kind = config["peft_type"], config["task_type"], config.get("num_transformer_submodules") or 1
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SoftPromptError(f"{str(folder / CONFIG)!r} is no configuration of PEFT ({error!r})") from error
    if kind != ("PROMPT_TUNING", "CAUSAL_LM", 1):
        raise SoftPromptError(
            f"the adapter in {str(folder)!r} is of kind {kind[0]} for {kind[1]}; PROMPT_TUNING for CAUSAL_LM is wanted"
        )
    try:
        data = read_bytes(folder / WEIGHTS)
        tensor = load_tensors(data)[TENSOR]
        vectors = tensor.astype(np.float32)
    except (OSError, ValueError, KeyError) as error:
        raise SoftPromptError(
            f"the adapter in {str(folder)!r} has no vectors in {WEIGHTS} ({error!r}); pickled ones are not read"
        ) from error
    if (
        tensor.dtype.kind != "f"
        or vectors.ndim != 2
        or vectors.shape[1] != model.info.hidden_size
        or not np.isfinite(vectors).all()
    ):
        raise SoftPromptError(
            f"the adapter in {str(folder)!r} has vectors of shape {vectors.shape}; finite ones of hidden size "
            f"{model.info.hidden_size} are wanted"
        )
    bos = _bos(model)
    if not (len(bos) and np.allclose(vectors[0], bos[0], rtol=0.01, atol=1e-4)):
        vectors = np.concatenate([vectors, bos])
    card = {"sha256": hashlib.sha256(data).hexdigest(), "from": "peft", "num_virtual_tokens": len(vectors)}
    return SoftPrompt(vectors, card, holds_bos=True)


def _bos(model: LoadedModel) -> np.typing.NDArray[np.float32]:
    """The embedding of BOS, (1, hidden), or (0, hidden) where the model's tokenizer writes none."""
    ids = torch.tensor([] if model.bos_id is None else [model.bos_id], dtype=torch.long, device=model.device)
    with torch.no_grad():
        embedded: np.typing.NDArray[np.float32] = model.embed(ids).float().cpu().numpy()
    return embedded
