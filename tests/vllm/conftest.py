"""Tiny models that vLLM's kernels run, one open at a time: each takes memory for keys and values."""

import os

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from softbench.engines.base import Engine
from softbench.engines.vllm import VllmEngine, open_llm
from softbench.models import LoadedModel, load_model
from softbench.types import ChoiceScores, Completion, ModelInfo, Prompt, SoftPrompt
from tests.tiny import ARCHITECTURES, save_tiny_model

# Its attention on CPUs wants heads of 32 or more.
WIDER: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
CHANGES: dict[str, dict[str, Any]] = dict.fromkeys(ARCHITECTURES, WIDER) | {"gpt2": {"n_embd": 64, "n_head": 2}}


class InParts:
    """An engine that is asked for `size` prompts at a time."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._engine = engine
        self._size = size

    @property
    def info(self) -> ModelInfo:
        return self._engine.info

    @property
    def tokens_read(self) -> int:
        return self._engine.tokens_read

    def generate(
        self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        parts = [prompts[start : start + self._size] for start in range(0, max(1, len(prompts)), self._size)]
        return [one for part in parts for one in self._engine.generate(part, soft_prompt, max_new_tokens, stop)]

    def score_choices(self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None) -> list[ChoiceScores]:
        parts = [prompts[start : start + self._size] for start in range(0, max(1, len(prompts)), self._size)]
        return [one for part in parts for one in self._engine.score_choices(part, soft_prompt)]


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, Any]:
    """Each tiny model in turn, with its LLM."""
    folder = tmp_path_factory.mktemp("models") / request.param
    save_tiny_model(request.param, folder, **CHANGES[request.param])
    model = load_model(str(folder), "float32", "cpu")
    return model, open_llm(model, 16)


@pytest.fixture
def tiny_model(opened: tuple[LoadedModel, Any]) -> LoadedModel:
    return opened[0]


@pytest.fixture
def engine(opened: tuple[LoadedModel, Any]) -> VllmEngine:
    model, llm = opened
    llm.reset_prefix_cache()
    return VllmEngine(model, llm)


@pytest.fixture
def make_engine(engine: VllmEngine) -> Callable[[int], Engine]:
    return lambda batch_size: InParts(engine, batch_size)
