"""Soft prompts score as PEFT's prompt tuning does, where both use the same layout: no BOS, one row at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import peft
import pytest
import torch

from softbench.engines.transformers import TransformersEngine
from softbench.models import LoadedModel, load_model
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Prompt, SoftPrompt


def prompts() -> list[Prompt]:
    task = get_task("capitals")
    made = [render_prompt(task, sample) for sample in load_data(task, None).test[:5]]
    return [Prompt(one.sample_id, one.text, one.target, (one.target, " -> Lima <-")) for one in made]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("architecture", ["gpt2", "qwen3"])
def test_log_likelihoods_equal_pefts(architecture: str, tiny_folder: Callable[[str], str]) -> None:
    ours = load_model(str(tiny_folder(architecture)), "float32", "cpu")
    theirs = load_model(str(tiny_folder(architecture)), "float32", "cpu")
    assert ours.bos_id is None  # PEFT puts its vectors before BOS, softbench behind it
    vectors = np.random.default_rng(0).normal(size=(6, 32)).astype(np.float32)
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=6)
    model: Any = peft.get_peft_model(theirs.model, config)
    with torch.no_grad():
        model.prompt_encoder["default"].embedding.weight.copy_(torch.from_numpy(vectors))
    model.eval()
    scores = TransformersEngine(ours, batch_size=4).score_choices(prompts(), SoftPrompt(vectors, {}))
    for prompt, of_prompt in zip(prompts(), scores, strict=True):
        wanted = [peft_logprob(model, ours, prompt.text, continuation) for continuation in prompt.continuations]
        assert [score.logprob for score in of_prompt.options] == pytest.approx(wanted, rel=1e-5)


def peft_logprob(model: Any, ours: LoadedModel, text: str, continuation: str) -> float:
    ids = torch.tensor([ours.tokenizer(text + continuation).input_ids])
    start = len(ours.tokenizer(text).input_ids)
    with torch.no_grad():
        logprobs = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 6:].log_softmax(-1)
    return sum(float(logprobs[place - 1, ids[0, place]]) for place in range(start, ids.shape[1]))
