"""Ways of prompting: zero-shot, few-shot, soft prompt, and controls.

The loops, `tune` and `tune_adapter`, import torch: they are not loaded here.
"""

import functools

from softbench.methods.base import Materials, Method, MethodFactory
from softbench.methods.few_shot import FewShot
from softbench.methods.lora import Lora
from softbench.methods.majority import Majority
from softbench.methods.soft_prompt import LoadedPrompt, SoftPromptTuning, load_soft_prompt, save_soft_prompt
from softbench.methods.zero_shot import ZeroShot

METHODS: dict[str, MethodFactory] = {
    "zero_shot": ZeroShot,
    "few_shot": FewShot,
    "soft_prompt": SoftPromptTuning,
    "loaded_prompt": LoadedPrompt,
    "majority": Majority,
    "random_model": functools.partial(SoftPromptTuning, random_weights=True),
    "lora": Lora,
}

__all__ = ["METHODS", "Materials", "Method", "load_soft_prompt", "save_soft_prompt"]
