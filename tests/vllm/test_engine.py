"""What every engine does, done by vLLM; and its answers are those of the transformers engine."""

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")

from softbench.engines.transformers import TransformersEngine
from softbench.engines.vllm import VllmEngine
from softbench.errors import ModelError, PromptTooLong, SoftPromptError
from softbench.models import LoadedModel
from softbench.rows import encode
from softbench.types import ChoiceScores, Prompt, SoftPrompt
from tests.contract import test_engines as shared
from tests.contract.test_engines import prompts, soft_prompt, uncached_tokens

# Claims about every engine, checked here with the fixtures of this folder.
test_answers_do_not_depend_on_the_batch = shared.test_answers_do_not_depend_on_the_batch
test_answers_come_in_the_order_of_the_prompts = shared.test_answers_come_in_the_order_of_the_prompts
test_no_prompts_give_no_answers = shared.test_no_prompts_give_no_answers
test_the_same_call_gives_the_same_answer = shared.test_the_same_call_gives_the_same_answer
test_a_soft_prompt_is_not_ignored = shared.test_a_soft_prompt_is_not_ignored
test_tokens_are_counted = shared.test_tokens_are_counted
test_a_prompt_beyond_the_context_is_refused_by_name = shared.test_a_prompt_beyond_the_context_is_refused_by_name
test_cached_generation_is_uncached = shared.test_cached_generation_is_uncached_generation_token_for_token
test_log_likelihoods_are_those_of_the_plain_model = shared.test_log_likelihoods_are_those_of_the_plain_model
test_an_empty_prompt_is_scored_from_its_first_token = shared.test_an_empty_prompt_is_scored_from_its_first_token
test_generation_stops_at_a_stop_string_as_it_appears = shared.test_generation_stops_at_a_stop_string_as_it_appears


def assert_alike(mine: list[ChoiceScores], theirs: list[ChoiceScores], tolerance: float) -> None:
    for one, other in zip(mine, theirs, strict=True):
        logprobs = [[option.logprob for option in scores.options] for scores in (one, other)]
        assert logprobs[0] == pytest.approx(logprobs[1], abs=tolerance)
        rest = [[(option.num_tokens, option.is_greedy) for option in scores.options] for scores in (one, other)]
        assert rest[0] == rest[1]
        assert one.answer_mass == pytest.approx(other.answer_mass, abs=tolerance)
        assert (one.top_token, one.top_options) == (other.top_token, other.top_options)


@pytest.mark.parametrize("vectors", ["none", "behind BOS", "holding BOS"])
def test_answers_are_those_of_transformers(engine: VllmEngine, tiny_model: LoadedModel, vectors: str) -> None:
    other = TransformersEngine(tiny_model, 16)
    soft = None if vectors == "none" else soft_prompt(engine)
    if soft is not None:
        soft = dataclasses.replace(soft, holds_bos=vectors == "holding BOS")
    for stop in ((), ("\n", "<-")):
        assert engine.generate(prompts(), soft, 24, stop) == other.generate(prompts(), soft, 24, stop)
    assert_alike(engine.score_choices(prompts(), soft), other.score_choices(prompts(), soft), 1e-4)


def test_a_prompt_may_fill_the_context(engine: VllmEngine, tiny_model: LoadedModel) -> None:
    before = 10 + (tiny_model.bos_id is not None)
    text = next(text for n in range(600, 0, -1) if len(encode(tiny_model, [text := "x" * n])[0]) + before + 8 == 512)
    soft = SoftPrompt(np.ones((10, 64), np.float32), {})
    [completion] = engine.generate([Prompt("fits", text, " x")], soft, 8, ())
    assert completion.num_prompt_tokens + before + 8 == 512
    with pytest.raises(PromptTooLong, match="10 soft prompt, 9 answer"):
        engine.generate([Prompt("fits not", text, " x")], soft, 9, ())


def test_a_soft_prompt_of_another_width_is_refused(engine: VllmEngine) -> None:
    with pytest.raises(SoftPromptError, match=r"\(5, 63\).*\(num_virtual_tokens, 64\)"):
        engine.score_choices(prompts(1), SoftPrompt(np.zeros((5, 63), np.float32), {}))


def test_end_tokens_are_the_models_and_no_others(opened: tuple[LoadedModel, Any]) -> None:
    model, llm = opened
    first = uncached_tokens(model, prompts(1)[0].text, None, 1)[0]
    [completion] = VllmEngine(dataclasses.replace(model, eos_ids=(first,)), llm).generate(prompts(1), None, 24, ())
    assert (completion.text, completion.finish_reason, completion.num_tokens) == ("", "eos", 1)
    never = dataclasses.replace(model, eos_ids=(0,))
    free = VllmEngine(never, llm).generate(prompts(), None, 24, ())
    assert free == TransformersEngine(never, 16).generate(prompts(), None, 24, ())


def test_log_likelihoods_that_vllm_does_not_give_are_missed(opened: tuple[LoadedModel, Any]) -> None:
    model, llm = opened

    class Silent:
        llm_engine = llm.llm_engine

        def generate(self, *args: Any, **options: Any) -> list[Any]:
            outputs: list[Any] = llm.generate(*args, **options)
            for output in outputs:
                output.prompt_logprobs = [None]
            return outputs

    with pytest.raises(ModelError, match="gives no log-likelihoods .*; run with --engine transformers"):
        VllmEngine(model, Silent()).score_choices(prompts(), None)
