"""The seam between softbench and whatever runs a model."""

from collections.abc import Sequence
from typing import Protocol

from softbench.types import ChoiceScores, Completion, ModelInfo, Prompt, SoftPrompt


class Engine(Protocol):
    """One frozen model that completes prompts and scores options, with or without a soft prompt before the text.

    Both calls answer in the order of `prompts`, whatever order they work in, and raise PromptTooLong, naming the
    sample, where a prompt does not fit. In float32 an answer does not depend on what else is in the call.
    """

    @property
    def info(self) -> ModelInfo:
        """What identifies the model."""
        ...

    @property
    def tokens_read(self) -> int:
        """Tokens that went through the model since the engine opened, soft prompt and generated ones included."""
        ...

    def generate(
        self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        """Complete each prompt greedily until an end token, a stop string or `max_new_tokens`."""
        ...

    def score_choices(self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None) -> list[ChoiceScores]:
        """Log-likelihood of each of every prompt's continuations."""
        ...
