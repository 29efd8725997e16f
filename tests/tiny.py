"""Tiny causal models of several architectures, random weights from a fixed seed, and a byte-level tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

_TEXT = [
    "Name the capital of each country. Reply in exactly this form: -> ANSWER <-",
    "Country: France Capital: -> Paris <- Expression: 12 + 30 Value: result = 42;",
    "Question: Which of these is the answer? A. one B. two C. three Answer: The answer is (B).",
]
# Far wider than the usual 0.02: logits of a near-zero model are near uniform, and a greedy token should be a clear one.
_COMMON: dict[str, Any] = {
    "vocab_size": 400,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
_SMALL: dict[str, Any] = {
    **_COMMON,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}

ARCHITECTURES: dict[str, Callable[[], Any]] = {
    # rotary positions, grouped heads, untied head
    "llama": lambda: transformers.LlamaConfig(**_SMALL, tie_word_embeddings=False),
    # absolute positions, tied head, no BOS from the tokenizer
    "gpt2": lambda: transformers.GPT2Config(**_COMMON, n_embd=32, n_layer=2, n_head=4, n_positions=512),
    # scaled embeddings, tied head, a sliding window shorter than the prompts, one end token more in its config
    "gemma3": lambda: transformers.Gemma3TextConfig(
        # Its embeddings are scaled up: as wide as the others', they would drown what the layers add.
        **{**_SMALL, "eos_token_id": [2, 5], "initializer_range": 0.1},
        sliding_window=16,
        query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention"],
        tie_word_embeddings=True,
    ),
    # normed queries and keys, untied head, no BOS from the tokenizer
    "qwen3": lambda: transformers.Qwen3Config(**_SMALL, tie_word_embeddings=False),
}
# What softbench refuses: a bidirectional model, and one with an encoder.
OTHERS: dict[str, Callable[[], Any]] = {
    "bert": lambda: transformers.BertConfig(
        vocab_size=400,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.5,  # as trained: with the usual 0.02 attention hardly moves a logit
    ),
    "t5": lambda: transformers.T5Config(vocab_size=400, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4),
}
ADDS_BOS = {"llama": True, "gpt2": False, "gemma3": True, "qwen3": False}


def save_tiny_model(architecture: str, folder: Path, **changes: Any) -> None:
    """Write config, with `changes` to it, safetensors and tokenizer of a tiny model; the same bytes each time."""
    torch.manual_seed(0)
    config = (ARCHITECTURES | OTHERS)[architecture]()
    config.update(changes)
    make: Any = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    make.from_config(config).save_pretrained(folder)
    make_tokenizer(ADDS_BOS.get(architecture, False)).save_pretrained(folder)


def make_tokenizer(adds_bos: bool) -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of 400 tokens; every text comes back from its tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT * 4, trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )
