"""Prompts that share a beginning are answered as if each were read alone, on every architecture."""

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from softbench.engines.transformers import TransformersEngine
from softbench.errors import ModelError
from softbench.models import LoadedModel, load_model
from softbench.sharing import RowCache, can_share
from softbench.tasks import get_task, load_data, num_shared, render_prompt
from softbench.types import ChoiceScores, Prompt, SoftPrompt
from tests.tiny import ARCHITECTURES, make_tokenizer

OPTIONS = (" -> Paris <-", " -> Lima <-", " -> Port-au-Prince <-", " -> Port Louis <-", " -> P")


@pytest.fixture(params=["sdpa", "eager"])
def model(request: pytest.FixtureRequest, tiny_model: LoadedModel) -> Any:
    """Each tiny model with each way of computing attention."""
    before = tiny_model.model.config._attn_implementation
    tiny_model.model.set_attn_implementation(request.param)
    yield tiny_model
    tiny_model.model.set_attn_implementation(before)


def prompts(count: int = 11, shots: int = 3) -> list[Prompt]:
    """Prompts of different lengths with the same worked examples first."""
    task = get_task("capitals")
    data = load_data(task, None)
    made = [render_prompt(task, sample, data.tune[:shots]) for sample in data.test[:count]]
    shared = num_shared([prompt.text for prompt in made])
    assert shared > 100
    return [
        dataclasses.replace(prompt, continuations=OPTIONS[: 1 + index % 5], num_shared=shared)
        for index, prompt in enumerate(made)
    ]


def soft_prompt() -> SoftPrompt:
    return SoftPrompt(np.random.default_rng(3).normal(scale=2.0, size=(5, 32)).astype(np.float32), {})


def plain_engine(model: LoadedModel) -> TransformersEngine:
    """An engine that reads every row whole."""
    engine = TransformersEngine(model, 1)
    engine._shares = False
    return engine


def assert_same_scores(mine: list[ChoiceScores], theirs: list[ChoiceScores]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        pairs = list(zip(one.options, other.options, strict=True))
        assert [a.logprob for a, _ in pairs] == pytest.approx([b.logprob for _, b in pairs], abs=1e-4)
        assert all((a.num_tokens, a.is_greedy) == (b.num_tokens, b.is_greedy) for a, b in pairs)
        assert one.answer_mass == pytest.approx(other.answer_mass, abs=1e-5)
        assert (one.top_token, one.top_options) == (other.top_token, other.top_options)


@pytest.mark.parametrize("soft", [None, soft_prompt()], ids=["bare", "soft"])
def test_shared_scores_are_plain_scores(model: LoadedModel, soft: SoftPrompt | None) -> None:
    assert can_share(model)
    shared, plain = TransformersEngine(model, 4), plain_engine(model)
    assert_same_scores(shared.score_choices(prompts(), soft), plain.score_choices(prompts(), soft))
    assert shared.tokens_read < plain.tokens_read / 3


@pytest.mark.parametrize("soft", [None, soft_prompt()], ids=["bare", "soft"])
@pytest.mark.parametrize("stop", [(), ("e", "12", "\n")], ids=["free", "stopped"])
def test_shared_completions_are_plain_completions(
    model: LoadedModel, soft: SoftPrompt | None, stop: tuple[str, ...]
) -> None:
    wanted = plain_engine(model).generate(prompts(), soft, 14, stop)
    assert len({one.num_tokens for one in wanted}) > 1 or not stop
    for batch_size in (1, 3, 4, 16):
        assert TransformersEngine(model, batch_size).generate(prompts(), soft, 14, stop) == wanted


def test_a_wrong_hint_costs_nothing(tiny_model: LoadedModel) -> None:
    engine = TransformersEngine(tiny_model, 4)
    right = engine.score_choices(prompts(), None)
    for wrong in (0, 7, 10_000):
        hinted = [dataclasses.replace(prompt, num_shared=wrong) for prompt in prompts()]
        assert_same_scores(engine.score_choices(hinted, None), right)
        assert engine.generate(hinted, None, 6, ()) == engine.generate(prompts(), None, 6, ())


def test_prompts_of_several_groups_share_within_their_own(tiny_model: LoadedModel) -> None:
    both = [*prompts(5, shots=2), *prompts(5, shots=3)]
    assert_same_scores(
        TransformersEngine(tiny_model, 4).score_choices(both, None), plain_engine(tiny_model).score_choices(both, None)
    )


def test_a_prefix_is_read_once(tiny_model: LoadedModel) -> None:
    engine = TransformersEngine(tiny_model, 4)
    engine.score_choices(prompts(), None)
    first = engine.tokens_read
    engine.score_choices(prompts(), None)
    second = engine.tokens_read - first
    prefix = len(tiny_model.tokenizer(prompts()[0].text[: prompts()[0].num_shared], add_special_tokens=False).input_ids)
    assert first - second == prefix - 2 + (tiny_model.bos_id is not None)


def test_the_answer_position_is_where_options_part(tiny_model: LoadedModel) -> None:
    """By hand: the distribution behind the prompt and what all options begin with."""
    options = (" The answer is (A).", " The answer is (B).", " The answer is (C).")
    prompt = dataclasses.replace(prompts()[0], continuations=options)
    [scores] = TransformersEngine(tiny_model, 4).score_choices([prompt], None)
    rows = [tiny_model.tokenizer(prompt.text + option).input_ids for option in options]
    place = next(index for index, tokens in enumerate(zip(*rows, strict=False)) if len(set(tokens)) > 1)
    with torch.no_grad():
        probabilities = tiny_model.model(input_ids=torch.tensor([rows[0][:place]])).logits[0, -1].softmax(-1)
    assert scores.answer_mass == pytest.approx(sum(float(probabilities[row[place]]) for row in rows), rel=1e-4)
    top = int(probabilities.argmax())
    assert scores.top_token == tiny_model.tokenizer.decode([top])
    assert scores.top_options == tuple(index for index, row in enumerate(rows) if row[place] == top)


def test_sliding_windows_in_every_layer_are_kept(tmp_path: Path) -> None:
    """Mistral's layers all have a window, which its configuration says in another place than Gemma's."""
    config = transformers.MistralConfig(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=12,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    transformers.MistralForCausalLM(config).save_pretrained(tmp_path)
    make_tokenizer(adds_bos=True).save_pretrained(tmp_path)
    model = load_model(str(tmp_path), "float32", "cpu")
    assert can_share(model)
    assert_same_scores(
        TransformersEngine(model, 4).score_choices(prompts(), None), plain_engine(model).score_choices(prompts(), None)
    )
    wanted = plain_engine(model).generate(prompts(), None, 8, ())
    assert TransformersEngine(model, 4).generate(prompts(), None, 8, ()) == wanted


def test_a_model_that_cannot_share_is_named_once_and_works(
    tiny: Callable[[str], LoadedModel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny("llama")
    wanted = TransformersEngine(model, 4).generate(prompts(), None, 8, ())

    def broken(*_: Any) -> Any:
        raise TypeError("no masks of four dimensions here")

    monkeypatch.setattr("softbench.sharing.attention_masks", broken)
    with caplog.at_level(logging.WARNING, "softbench"):
        engine = TransformersEngine(model, 4)
        assert engine.generate(prompts(), None, 8, ()) == wanted
    assert [record.message for record in caplog.records] == [
        "llama can't share a prefix between rows: each is read whole, which takes longer"
    ]


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
@pytest.mark.parametrize("fits", [3, 1])
def test_out_of_memory_halves_the_batch_and_changes_no_answer(
    architecture: str,
    fits: int,
    tiny: Callable[[str], LoadedModel],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = tiny(architecture)
    calm = TransformersEngine(model, 8)
    wanted = calm.score_choices(prompts(), None), calm.generate(prompts(), None, 8, ())
    read, refused = RowCache.read, []

    def small_memory(self: Any, nodes: Any, *places: Any) -> Any:
        if nodes.ids.shape[0] > fits:
            refused.append(nodes.ids.shape[0])
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
        return read(self, nodes, *places)

    monkeypatch.setattr(RowCache, "read", small_memory)
    engine = TransformersEngine(model, 8)
    assert_same_scores(engine.score_choices(prompts(), None), wanted[0])
    assert engine.generate(prompts(), None, 8, ()) == wanted[1]
    assert refused[0] == 8
    assert len(refused) <= 3  # remembered, not found out again with every batch
    assert "out of memory: going on with 4 rows at a time" in caplog.text


def test_memory_that_does_not_suffice_for_one_row_is_a_clear_error(
    tiny: Callable[[str], LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    engine, other = (TransformersEngine(tiny("llama"), 2) for _ in range(2))
    monkeypatch.setattr(RowCache, "read", no_memory)
    with pytest.raises(ModelError, match="memory does not suffice for a single row; use fewer shots"):
        engine.generate(prompts(), None, 4, ())
    with pytest.raises(ModelError, match="memory does not suffice for a single row"):
        other.score_choices(prompts(), None)
