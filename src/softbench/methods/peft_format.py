"""Soft prompts in PEFT's PROMPT_TUNING format.

PEFT puts its vectors before everything, BOS among it; softbench tunes them behind BOS. So BOS becomes the first of the
exported vectors, and texts go to the PEFT model tokenized with `add_special_tokens=False`: its rows are then those of
softbench.
"""

from pathlib import Path

import numpy as np
import safetensors.numpy
import torch

from softbench.errors import SpecError
from softbench.files import write_atomic
from softbench.models import LoadedModel
from softbench.types import SoftPrompt


def export_peft(model: LoadedModel, soft_prompt: SoftPrompt, folder: Path) -> None:
    """Write `soft_prompt` to `folder` as an adapter that `peft.PeftModel.from_pretrained` loads onto `model`.

    It has num_virtual_tokens vectors, and one more where the model's tokenizer begins texts with BOS. Raises SpecError
    where PEFT is not installed.
    """
    try:
        from peft import PromptTuningConfig
        from peft.utils import SAFETENSORS_WEIGHTS_NAME
    except ImportError:
        raise SpecError("export-peft needs PEFT, which is not installed: pip install 'softbench[peft]'") from None
    vectors = soft_prompt.vectors
    if model.bos_id is not None:
        with torch.no_grad():
            bos = model.embed(torch.tensor([model.bos_id], device=model.device)).float().cpu().numpy()
        vectors = np.concatenate([bos, vectors])
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
    data = safetensors.numpy.save({"prompt_embeddings": np.ascontiguousarray(vectors, dtype=np.float32)})
    write_atomic(folder / SAFETENSORS_WEIGHTS_NAME, data)
    config.save_pretrained(str(folder))
