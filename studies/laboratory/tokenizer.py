"""The tokenizer of all models: byte-level BPE, learned from the world's prose, so that every text can be written."""

import itertools
from collections.abc import Iterator
from typing import Any

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from studies.laboratory.prose import Knobs, documents, questions_and_answers
from studies.laboratory.world import NUM_WORDINGS, World, generator_of

VOCABULARY = 2560
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
_NUM_DOCUMENTS = 6000


def train_tokenizer(world: World, seed: int, vocabulary: int = VOCABULARY) -> Tokenizer:
    """A tokenizer for all recipes: it has seen every wording and every name."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(world, seed), trainer)
    return tokenizer


def for_model(tokenizer: Tokenizer, adds_bos: bool, max_length: int) -> Any:
    """The tokenizer as transformers has it, with or without BOS before each text, as the architecture's family does."""
    own = Tokenizer.from_str(tokenizer.to_str())
    if adds_bos:
        own.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, own.token_to_id(BOS))]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, pad_token=PAD, bos_token=BOS, eos_token=EOS, model_max_length=max_length
    )


def _texts(world: World, seed: int) -> Iterator[str]:
    knobs = Knobs(rare_share=0.0, num_wordings=NUM_WORDINGS, question_share=0.0, filler_share=0.3)
    yield from itertools.islice(documents(world, knobs, seed, "tokenizer"), _NUM_DOCUMENTS)
    draw = generator_of(seed, "tokenizer")
    for _ in range(_NUM_DOCUMENTS // 10):
        yield questions_and_answers(world, draw)
    # Those whom the prose seldom mentions.
    for person in world.people:
        yield f" {person.name}" * 20
