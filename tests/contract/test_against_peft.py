"""Soft prompts score as PEFT's prompt tuning does, where both use the same layout: no BOS, one row at a time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from safetensors.numpy import save_file
from typer.testing import CliRunner

from softbench.cli import app
from softbench.engines.transformers import TransformersEngine
from softbench.errors import ModelError, SoftPromptError
from softbench.methods import load_soft_prompt, save_soft_prompt
from softbench.methods.peft_format import export_peft, read_prompt
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


def peft_logprob(
    model: Any, ours: LoadedModel, text: str, continuation: str, num_virtual: int = 6, specials: bool = False
) -> float:
    ids = torch.tensor([ours.tokenizer(text + continuation, add_special_tokens=specials).input_ids])
    start = len(ours.tokenizer(text, add_special_tokens=specials).input_ids)
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
        ("[1]", "its card is no mapping"),
        ("{}", "sha256: Field required"),
        ("{", "no whole soft prompt"),
    ):
        if text is not None:
            (tmp_path / "soft_prompt.json").write_text(text)
        result = CliRunner().invoke(app, ["export-peft", str(tmp_path), str(tmp_path / "adapter")])
        assert isinstance(result.exception, SoftPromptError)
        assert complaint in str(result.exception)
        assert not (tmp_path / "adapter").exists()


def made_by_peft(model: Any, folder: Path) -> Any:
    """A prompt of six vectors as PEFT makes and saves it, on `model`."""
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=6)
    torch.manual_seed(0)
    wrapped: Any = peft.get_peft_model(model, config)
    wrapped.eval().save_pretrained(str(folder))
    return wrapped


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
def test_a_prompt_that_peft_made_scores_and_generates_as_there(
    architecture: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    ours = load_model(str(tiny_folder(architecture)), "float32", "cpu")
    theirs = load_model(str(tiny_folder(architecture)), "float32", "cpu")
    model = made_by_peft(theirs.model, tmp_path / "adapter")
    soft_prompt = read_prompt(ours, tmp_path / "adapter")
    assert len(soft_prompt.vectors) == (6 if ours.bos_id is None else 7)
    engine = TransformersEngine(ours, batch_size=4)
    # The tokenizer's own row, BOS and all, behind the vectors: what PEFT's users train on.
    for prompt, scores in zip(prompts(), engine.score_choices(prompts(), soft_prompt), strict=True):
        wanted = [peft_logprob(model, ours, prompt.text, one, specials=True) for one in prompt.continuations]
        assert [score.logprob for score in scores.options] == pytest.approx(wanted, rel=1e-5)
    [completion] = engine.generate(prompts()[:1], soft_prompt, 1, ())
    ids = torch.tensor([ours.tokenizer(prompts()[0].text).input_ids])
    with torch.no_grad():
        first = int(model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, -1].argmax())
    assert completion.text == ours.tokenizer.decode([first], skip_special_tokens=True)
    assert engine.tokens_read > 0


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_prompts_survive_the_way_there_and_back(
    architecture: str, tiny: Callable[[str], LoadedModel], tmp_path: Path
) -> None:
    model, engine = tiny(architecture), TransformersEngine(tiny(architecture), batch_size=4)
    vectors = np.random.default_rng(0).normal(size=(6, 32)).astype(np.float32)
    wanted = engine.score_choices(prompts(), SoftPrompt(vectors, {}))
    export_peft(model, SoftPrompt(vectors, {}), tmp_path / "adapter")
    back = read_prompt(model, tmp_path / "adapter")
    assert engine.score_choices(prompts(), back) == wanted
    export_peft(model, back, tmp_path / "again")
    np.testing.assert_array_equal(read_prompt(model, tmp_path / "again").vectors, back.vectors)
    save_soft_prompt(tmp_path / "ours", back, model.info, {})
    assert load_soft_prompt(tmp_path / "ours", model.info).holds_bos


def test_a_run_takes_a_prompt_that_peft_made(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = load_model(str(tiny_folder("gemma3")), "float32", "cpu")
    vectors = np.random.default_rng(0).normal(size=(6, 32)).astype(np.float32)
    export_peft(model, SoftPrompt(vectors, {}), tmp_path / "adapter")
    command = ["run", "--model", str(tiny_folder("gemma3")), "--tasks", "capitals", "--methods", "zero_shot"]
    command += ["--soft-prompt", str(tmp_path / "adapter"), "--limit", "3", "--output-path", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*command, "--dtype", "float32", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "loaded_prompt" in result.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "LORA"}, "is of kind LORA for CAUSAL_LM; PROMPT_TUNING for CAUSAL_LM is wanted"),
        ({"task_type": "SEQ_2_SEQ_LM", "num_transformer_submodules": 2}, "is of kind PROMPT_TUNING for SEQ_2_SEQ_LM"),
        (None, "is no configuration of PEFT"),
        ({"vectors": "missing"}, "pickled ones are not read"),
        ({"vectors": (6, 16)}, "has vectors of shape \\(6, 16\\); finite ones of hidden size 32 are wanted"),
    ],
)
def test_other_adapters_are_refused(
    change: dict[str, Any] | None, message: str, tiny: Callable[[str], LoadedModel], tmp_path: Path
) -> None:
    model = tiny("llama")
    shape = (change or {}).pop("vectors", (6, 32))
    if shape != "missing":
        save_file({"prompt_embeddings": np.zeros(shape, np.float32)}, tmp_path / "adapter_model.safetensors")
    config = {"peft_type": "PROMPT_TUNING", "task_type": "CAUSAL_LM", "num_virtual_tokens": 6}
    text = "[1, 2" if change is None else json.dumps(config | change)
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(SoftPromptError, match=message):
        read_prompt(model, tmp_path)
