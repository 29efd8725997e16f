"""The recipes that base models are made by, and the study's two forms: whole, and small enough for every commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import transformers

from studies.laboratory.prose import Knobs
from studies.laboratory.world import Group

Architecture = Literal["llama", "gpt2", "qwen", "gemma"]

CONTEXT = 512
"""The longest text, in tokens, that a model takes; pre-training has rows of half of that."""
ADDS_BOS: Mapping[Architecture, bool] = {"llama": True, "gpt2": False, "qwen": False, "gemma": True}
"""Whether the family's tokenizers put BOS before a text."""


@dataclass(frozen=True)
class Recipe:
    """How one base model is made: its shape, its prose, and for how long it reads."""

    name: str
    architecture: Architecture
    steps: int
    knobs: Knobs = field(default_factory=Knobs)
    width: int = 128
    layers: int = 4

    def config(self, vocabulary: int, bos: int, eos: int, pad: int) -> Any:
        """The model's configuration as transformers has it."""
        ids = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
        tokens: dict[str, Any] = {"vocab_size": vocabulary, **ids}
        heads = self.width // 32
        if self.architecture == "gpt2":
            return transformers.GPT2Config(
                **tokens,
                n_embd=self.width,
                n_layer=self.layers,
                n_head=heads,
                n_positions=CONTEXT,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
            )
        common: dict[str, Any] = {
            **tokens,
            "hidden_size": self.width,
            "intermediate_size": self.width * 8 // 3 // 32 * 32,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": max(1, heads // 2),
            "head_dim": 32,
            "max_position_embeddings": CONTEXT,
        }
        if self.architecture == "llama":
            return transformers.LlamaConfig(**common, tie_word_embeddings=False)
        if self.architecture == "qwen":
            return transformers.Qwen3Config(**common, tie_word_embeddings=True)
        return transformers.Gemma3TextConfig(
            **common,
            query_pre_attn_scalar=32,
            sliding_window=128,
            layer_types=["full_attention" if layer % 2 else "sliding_attention" for layer in range(self.layers)],
            tie_word_embeddings=True,
        )


@dataclass(frozen=True)
class Form:
    """The study's size. `early` are percents of pre-training after which checkpoints are kept for `softbench track`."""

    people: Mapping[Group, int]
    recipes: tuple[Recipe, ...]
    early: tuple[int, ...]
    post_steps: int
    tune_steps: int
    tune_rate: float
    checkpoints: tuple[int, ...]
    seeds: tuple[int, ...]
    resamples: int


# Knowledge (steps, rare facts, wordings, size) and practice in answering (question_share) vary apart from each other:
# else a method that measures practice would seem to measure knowledge.
_NONE, _SOME, _MUCH = 0.0, 0.15, 0.35

RECIPES = (
    Recipe("llama-short", "llama", 500, Knobs(question_share=_MUCH)),
    Recipe("llama-plain", "llama", 1000, Knobs(question_share=_SOME)),
    Recipe("llama-long", "llama", 1600, Knobs(question_share=_SOME)),
    Recipe("llama-mute", "llama", 1600, Knobs(question_share=_NONE)),
    Recipe("gpt2-short", "gpt2", 500, Knobs(question_share=_SOME)),
    Recipe("gpt2-plain", "gpt2", 1000, Knobs(question_share=_MUCH)),
    Recipe("gpt2-one-wording", "gpt2", 1000, Knobs(num_wordings=1, question_share=_SOME)),
    Recipe("gpt2-mute", "gpt2", 1000, Knobs(question_share=_NONE)),
    Recipe("qwen-short", "qwen", 500, Knobs(question_share=_NONE)),
    Recipe("qwen-wide", "qwen", 900, Knobs(question_share=_SOME), width=192),
    Recipe("qwen-rare", "qwen", 1000, Knobs(rare_share=0.8, rare_rate=0.1, question_share=_MUCH)),
    Recipe("qwen-six-wordings", "qwen", 1000, Knobs(num_wordings=6, question_share=_SOME)),
    Recipe("gemma-short", "gemma", 500, Knobs(question_share=_SOME)),
    Recipe("gemma-long", "gemma", 1600, Knobs(rare_share=0.2, question_share=_MUCH)),
)

FULL = Form(
    people={"test": 100, "validation": 10, "tune": 40, "post": 40, "talked": 60, "stranger": 40},
    recipes=RECIPES,
    early=(25, 50),
    post_steps=150,
    tune_steps=80,
    # The library's 0.1 is too slow for these models, whose embeddings are large: chosen on validation people.
    tune_rate=0.3,
    checkpoints=(0, 10, 20, 40),
    seeds=(0, 1, 2),
    resamples=2000,
)
SMALL = Form(
    people={"test": 14, "validation": 4, "tune": 8, "post": 8, "talked": 8, "stranger": 8},
    recipes=tuple(
        replace(one, steps=40, width=64, layers=2)
        for one in RECIPES
        if one.name in ("llama-plain", "gpt2-mute", "gemma-long")
    ),
    early=(50,),
    post_steps=10,
    tune_steps=4,
    tune_rate=0.3,
    checkpoints=(0, 2),
    seeds=(0,),
    resamples=200,
)
FORMS: Mapping[str, Form] = {"full": FULL, "small": SMALL}
