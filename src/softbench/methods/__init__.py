"""Ways of prompting: zero-shot, few-shot, soft prompt. The loop, `tune`, imports torch: not loaded here."""

from softbench.methods.base import Materials, Method, MethodFactory
from softbench.methods.few_shot import FewShot
from softbench.methods.soft_prompt import SoftPromptTuning, has_soft_prompt, load_soft_prompt, save_soft_prompt
from softbench.methods.zero_shot import ZeroShot

METHODS: dict[str, MethodFactory] = {"zero_shot": ZeroShot, "few_shot": FewShot, "soft_prompt": SoftPromptTuning}

__all__ = ["METHODS", "Materials", "Method", "has_soft_prompt", "load_soft_prompt", "save_soft_prompt"]
