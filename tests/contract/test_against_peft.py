"""Soft prompts score as PEFT's prompt tuning does, where both use the same layout: no BOS, one row at a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from typer.testing import CliRunner

from softbench.cli import app
from softbench.engines.transformers import TransformersEngine
from softbench.errors import ModelError, SoftPromptError
from softbench.methods import save_soft_prompt
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


def peft_logprob(model: Any, ours: LoadedModel, text: str, continuation: str, num_virtual: int = 6) -> float:
    ids = torch.tensor([ours.tokenizer(text + continuation, add_special_tokens=False).input_ids])
    start = len(ours.tokenizer(text, add_special_tokens=False).input_ids)
    with torch.no_grad():
        logprobs = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, num_virtual:].log_softmax(-1)
    return sum(float(logprobs[place - 1, ids[0, place]]) for place in range(start, ids.shape[1]))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
def test_an_exported_prompt_scores_alike_in_peft(
    architecture: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    ours = load_model(str(tiny_folder(architecture)), "float32", "cpu")
    vectors = np.random.default_rng(0).normal(size=(6, 32)).astype(np.float32)
    save_soft_prompt(tmp_path / "prompt", SoftPrompt(vectors, {}), ours.info, {})
    command = ["export-peft", str(tmp_path / "prompt"), str(tmp_path / "adapter")]
    unknown = CliRunner().invoke(app, command)
    assert isinstance(unknown.exception, ModelError)
    assert str(unknown.exception).endswith("or give the model with --model")
    result = CliRunner().invoke(app, [*command, "--model", str(tiny_folder(architecture))])
    assert result.exit_code == 0, result.output
    theirs = load_model(str(tiny_folder(architecture)), "float32", "cpu")
    model: Any = peft.PeftModel.from_pretrained(theirs.model, str(tmp_path / "adapter"))
    model.eval()
    count = model.peft_config["default"].num_virtual_tokens
    assert count == (6 if ours.bos_id is None else 7)
    scores = TransformersEngine(ours, batch_size=4).score_choices(prompts(), SoftPrompt(vectors, {}))
    for prompt, of_prompt in zip(prompts(), scores, strict=True):
        wanted = [peft_logprob(model, ours, prompt.text, one, count) for one in prompt.continuations]
        assert [score.logprob for score in of_prompt.options] == pytest.approx(wanted, rel=1e-5)


def test_what_is_no_soft_prompt_is_not_exported(tmp_path: Path) -> None:
    for text, complaint in (
        (None, "no whole soft prompt in"),
        ("[1]", "names no model"),
        ("{", "no whole soft prompt"),
    ):
        if text is not None:
            (tmp_path / "soft_prompt.json").write_text(text)
        result = CliRunner().invoke(app, ["export-peft", str(tmp_path), str(tmp_path / "adapter")])
        assert isinstance(result.exception, SoftPromptError)
        assert complaint in str(result.exception)
        assert not (tmp_path / "adapter").exists()
