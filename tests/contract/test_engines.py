"""What every engine does, on every architecture; the fake one included."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from softbench.engines.base import Engine
from softbench.engines.fake import INFO, FakeEngine
from softbench.engines.transformers import TransformersEngine
from softbench.errors import ModelError, PromptTooLong, SoftPromptError
from softbench.models import LoadedModel, load_model
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import ChoiceScores, Prompt, SoftPrompt
from tests.tiny import ARCHITECTURES

MakeFolder = Callable[[str], Path]
MakeEngine = Callable[[int], Engine]
"""An engine with the given batch size."""


@pytest.fixture(params=["fake", *sorted(ARCHITECTURES)])
def make_engine(request: pytest.FixtureRequest, tiny: Callable[[str], LoadedModel]) -> MakeEngine:
    if request.param == "fake":
        return lambda batch_size: FakeEngine()
    return lambda batch_size: TransformersEngine(tiny(request.param), batch_size)


def prompts(count: int = 7) -> list[Prompt]:
    task = get_task("capitals")
    samples = load_data(task, None).test[:count]
    made = [render_prompt(task, sample, samples[:index] if index < 3 else ()) for index, sample in enumerate(samples)]
    choices = (" -> Paris <-", " -> Lima <-", " -> Port-au-Prince <-")
    return [dataclasses.replace(prompt, continuations=choices[: 1 + index % 3]) for index, prompt in enumerate(made)]


def soft_prompt(engine: Engine) -> SoftPrompt:
    vectors = np.random.default_rng(3).normal(scale=2.0, size=(5, engine.info.hidden_size))
    return SoftPrompt(vectors.astype(np.float32), {})


@pytest.mark.parametrize("with_soft_prompt", [False, True])
def test_answers_do_not_depend_on_the_batch(make_engine: MakeEngine, with_soft_prompt: bool) -> None:
    soft = soft_prompt(make_engine(1)) if with_soft_prompt else None
    alone, four, sixteen = (make_engine(size) for size in (1, 4, 16))
    scores = [engine.score_choices(prompts(), soft) for engine in (alone, four, sixteen)]
    for other in scores[1:]:
        for mine, theirs in zip(scores[0], other, strict=True):
            logprobs = [[one.logprob for one in scores.options] for scores in (mine, theirs)]
            assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-4)
            assert [one.num_tokens for one in mine.options] == [one.num_tokens for one in theirs.options]
            assert mine.answer_mass == pytest.approx(theirs.answer_mass, abs=1e-4)
            assert (mine.top_token, mine.top_options) == (theirs.top_token, theirs.top_options)
    completions = [engine.generate(prompts(), soft, 12, ("\n",)) for engine in (alone, four, sixteen)]
    assert completions[0] == completions[1] == completions[2]


def test_answers_come_in_the_order_of_the_prompts(make_engine: MakeEngine) -> None:
    engine, backwards = make_engine(2), list(reversed(prompts()))
    assert engine.generate(backwards, None, 6, ()) == list(reversed(engine.generate(prompts(), None, 6, ())))
    lengths = [len(scores.options) for scores in engine.score_choices(prompts(), None)]
    assert lengths == [1, 2, 3, 1, 2, 3, 1]


def test_no_prompts_give_no_answers(make_engine: MakeEngine) -> None:
    assert make_engine(4).generate([], None, 8, ()) == []
    assert make_engine(4).score_choices([], None) == []
    without_choices = [dataclasses.replace(prompts(1)[0], continuations=())]
    assert make_engine(4).score_choices(without_choices, None) == [ChoiceScores()]


def test_the_same_call_gives_the_same_answer(make_engine: MakeEngine) -> None:
    engine = make_engine(3)
    assert engine.generate(prompts(), None, 8, ("\n",)) == engine.generate(prompts(), None, 8, ("\n",))
    assert engine.score_choices(prompts(), None) == engine.score_choices(prompts(), None)


def test_a_soft_prompt_is_not_ignored(make_engine: MakeEngine) -> None:
    engine = make_engine(4)
    soft = soft_prompt(engine)
    bare = [one.text for one in engine.generate(prompts(), None, 8, ())]
    assert [one.text for one in engine.generate(prompts(), soft, 8, ())] != bare


def test_tokens_are_counted(make_engine: MakeEngine) -> None:
    engine = make_engine(4)
    [completion] = engine.generate(prompts(1), None, 4, ())
    assert engine.tokens_read >= completion.num_prompt_tokens > 0
    assert completion.num_tokens > 0


@pytest.fixture
def engine(tiny_model: LoadedModel) -> TransformersEngine:
    return TransformersEngine(tiny_model, 4)


def test_a_prompt_beyond_the_context_is_refused_by_name(engine: TransformersEngine) -> None:
    long = Prompt("s9", "word " * 600, " x", (" y",))
    with pytest.raises(PromptTooLong, match="'s9'"):
        engine.generate([*prompts(2), long], None, 4, ())
    with pytest.raises(PromptTooLong, match="'s9'"):
        engine.score_choices([*prompts(2), long], None)


def test_virtual_tokens_count_towards_the_context(engine: TransformersEngine, tiny_model: LoadedModel) -> None:
    room = 512 - 8 - (tiny_model.bos_id is not None)
    text = next(text for n in range(600, 0, -1) if len(tiny_model.tokenizer.encode(text := "x" * n)) <= room)
    fits = Prompt("fits", text, " x")
    engine.generate([fits], None, 1, ())
    with pytest.raises(PromptTooLong, match="10 soft prompt"):
        engine.generate([fits], SoftPrompt(np.zeros((10, 32), np.float32), {}), 8, ())


def test_a_soft_prompt_of_another_width_is_refused(engine: TransformersEngine) -> None:
    with pytest.raises(SoftPromptError, match=r"\(5, 31\).*\(num_virtual_tokens, 32\)"):
        engine.generate(prompts(1), SoftPrompt(np.zeros((5, 31), np.float32), {}), 4, ())


@pytest.mark.parametrize("with_soft_prompt", [False, True])
def test_cached_generation_is_uncached_generation_token_for_token(
    engine: TransformersEngine, tiny_model: LoadedModel, with_soft_prompt: bool
) -> None:
    soft = soft_prompt(engine) if with_soft_prompt else None
    for prompt, completion in zip(prompts(), engine.generate(prompts(), soft, 24, ()), strict=True):
        tokens = uncached_tokens(tiny_model, prompt.text, soft, 24)
        ended = tokens and tokens[-1] in tiny_model.eos_ids
        assert completion.num_tokens == len(tokens)
        assert completion.finish_reason == ("eos" if ended else "length")
        before = tiny_model.tokenizer.encode(prompt.text, add_special_tokens=False)
        text = tiny_model.tokenizer.decode(before + tokens, skip_special_tokens=True)
        assert text == prompt.text + completion.text


def uncached_tokens(model: LoadedModel, text: str, soft: SoftPrompt | None, count: int) -> list[int]:
    """Greedy tokens, the whole row through the model for each one: slow, without padding, and plain to see."""
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    before = [] if model.bos_id is None else [model.bos_id]
    made: list[int] = []
    while len(made) < count and not (made and made[-1] in model.eos_ids):
        parts = [model.embed(torch.tensor(before, dtype=torch.long))]
        if soft is not None:
            parts.append(torch.from_numpy(soft.vectors))
        parts.append(model.embed(torch.tensor(ids + made)))
        with torch.no_grad():
            logits = model.model(inputs_embeds=torch.cat(parts)[None], use_cache=False).logits
        made.append(int(logits[0, -1].argmax()))
    return made


def test_log_likelihoods_are_those_of_the_plain_model(engine: TransformersEngine, tiny_model: LoadedModel) -> None:
    for prompt, scores in zip(prompts(), engine.score_choices(prompts(), None), strict=True):
        for continuation, score in zip(prompt.continuations, scores.options, strict=True):
            context = tiny_model.tokenizer(prompt.text).input_ids
            whole = tiny_model.tokenizer(prompt.text + continuation).input_ids
            with torch.no_grad():
                logprobs = tiny_model.model(input_ids=torch.tensor([whole])).logits.log_softmax(-1)[0]
            places = range(len(context), len(whole))
            wanted = sum(float(logprobs[place - 1, whole[place]]) for place in places)
            assert score.logprob == pytest.approx(wanted, abs=1e-4)
            assert score.is_greedy == all(int(logprobs[p - 1].argmax()) == whole[p] for p in places)


def test_an_empty_prompt_is_scored_from_its_first_token(engine: TransformersEngine, tiny_model: LoadedModel) -> None:
    empty = Prompt("empty", "", " x", (" Paris",))
    [scores] = engine.score_choices([empty], None)
    [alone] = scores.options
    ids = tiny_model.tokenizer.encode(" Paris", add_special_tokens=False)
    start = tiny_model.eos_ids[0] if tiny_model.bos_id is None else tiny_model.bos_id
    with torch.no_grad():
        logprobs = tiny_model.model(input_ids=torch.tensor([[start, *ids]])).logits[0].log_softmax(-1)
    assert alone.logprob == pytest.approx(sum(float(logprobs[i, token]) for i, token in enumerate(ids)), abs=1e-4)
    last = engine.score_choices([*prompts(), empty], None)[-1].options[0]
    assert last.logprob == pytest.approx(alone.logprob, abs=1e-4)
    assert len(engine.generate([empty], None, 3, ())) == 1


def test_logits_that_are_no_numbers_are_named(tiny: Callable[[str], LoadedModel], tiny_folder: MakeFolder) -> None:
    model = load_model(str(tiny_folder("llama")), "float32", "cpu")
    model.model.lm_head.weight[7] = float("nan")
    with pytest.raises(ModelError, match=f"llama: log-likelihood nan on sample '{prompts()[0].sample_id}'"):
        TransformersEngine(model, 1).score_choices(prompts(1), None)


def test_generation_stops_at_a_stop_string_as_it_appears(engine: TransformersEngine) -> None:
    free = engine.generate(prompts(), None, 24, ())
    text = max((one.text for one in free), key=len)
    stop = text[5:7]
    for before, after in zip(free, engine.generate(prompts(), None, 24, (stop, "never said")), strict=True):
        if stop in before.text:
            assert after.finish_reason == "stop"
            assert after.text == before.text.partition(stop)[0]
            assert after.num_tokens <= before.num_tokens
        else:
            assert after == before


def test_every_end_token_of_the_generation_config_ends_a_completion(tiny: Callable[[str], LoadedModel]) -> None:
    model = tiny("gemma3")
    assert model.eos_ids == (2, 5)
    first = uncached_tokens(model, prompts(1)[0].text, None, 1)[0]
    ending_there = TransformersEngine(dataclasses.replace(model, eos_ids=(2, first)), 4)
    [completion] = ending_there.generate(prompts(1), None, 24, ())
    assert (completion.text, completion.finish_reason, completion.num_tokens) == ("", "eos", 1)


def test_the_fake_engine_follows_formats_better_with_each_help() -> None:
    engine = FakeEngine(INFO)
    task = get_task("capitals")
    data = load_data(task, None)
    bare = [render_prompt(task, sample) for sample in data.test]
    shots = [render_prompt(task, sample, data.tune[:2]) for sample in data.test]

    def following(of: list[Prompt], soft: SoftPrompt | None) -> int:
        return sum(task.answer_format.parse(one.text) is not None for one in engine.generate(of, soft, 8, ()))

    assert following(bare, None) < following(shots, None) < following(bare, soft_prompt(engine))
