"""Models that are stored or placed in other ways: quantised, spread by a device map, without gradients."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from softbench import models
from softbench.cli import app
from softbench.engines.transformers import TransformersEngine
from softbench.errors import ModelError, TuningError
from softbench.methods.tune import tune
from softbench.models import LoadedModel, load_model
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Prompt, TuneSettings

SETTINGS = TuneSettings(num_virtual_tokens=4, steps=12, batch_size=4, learning_rate=0.1, warmup_steps=2, init="text")
# Quantising registers with torch and transformers for good: it is done in a process of its own.
QUANTISE = """
import sys, torch, transformers
from torchao.quantization import Int8WeightOnlyConfig
model = transformers.AutoModelForCausalLM.from_pretrained(
    sys.argv[1], quantization_config=transformers.TorchAoConfig(Int8WeightOnlyConfig()), dtype=torch.float32,
    device_map="cpu",
)
model.save_pretrained(sys.argv[2])
"""


def prompts() -> list[Prompt]:
    task = get_task("capitals")
    made = [render_prompt(task, sample) for sample in load_data(task, None).tune[:12]]
    return [Prompt(one.sample_id, one.text, one.target, (one.target, " -> Lima <-")) for one in made]


def test_a_quantised_model_is_scored_and_tuned(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")
    subprocess.run([sys.executable, "-c", QUANTISE, str(tiny_folder("llama")), str(tmp_path)], check=True, timeout=300)
    for path in tiny_folder("llama").glob("tokenizer*"):
        shutil.copy(path, tmp_path)
    model = load_model(str(tmp_path), "float32", "cpu")
    assert model.model.is_quantized
    tuned = tune(model, prompts(), "Name the capital.", SETTINGS, 0, lambda loss: None)
    assert tuned.losses[-1] < tuned.losses[0]
    plain = load_model(str(tiny_folder("llama")), "float32", "cpu")
    for one, other in zip(
        TransformersEngine(model, 4).score_choices(prompts(), tuned.soft_prompt),
        TransformersEngine(plain, 4).score_choices(prompts(), tuned.soft_prompt),
        strict=True,
    ):
        assert one.options[0].logprob == pytest.approx(other.options[0].logprob, rel=0.1)
        assert one.options[0].logprob != other.options[0].logprob


def test_a_model_that_gives_no_gradients_says_so(tiny_folder: Callable[[str], Path]) -> None:
    model = load_model(str(tiny_folder("llama")), "float32", "cpu")
    forward = model.model.model.forward
    model.model.model.forward = torch.no_grad()(forward)
    with pytest.raises(TuningError, match="llama gives its inputs no gradient"):
        tune(model, prompts(), "Name the capital.", SETTINGS, 0, lambda loss: None)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "gpt2"])
def test_a_model_spread_by_accelerate_gives_the_same(
    architecture: str, tiny: Callable[[str], LoadedModel], tiny_folder: Callable[[str], Path]
) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'softbench[accelerate]'")
    spread = load_model(str(tiny_folder(architecture)), "float32", device_map="auto")
    whole = tiny(architecture)
    assert spread.info == whole.info or torch.cuda.is_available()
    tuned = [tune(one, prompts(), "Name it.", SETTINGS, 0, lambda loss: None) for one in (spread, whole)]
    assert tuned[0].losses == pytest.approx(tuned[1].losses, rel=1e-4)
    ours, theirs = (TransformersEngine(one, 4) for one in (spread, whole))
    soft_prompt = tuned[1].soft_prompt
    assert ours.generate(prompts(), soft_prompt, 8, ()) == theirs.generate(prompts(), soft_prompt, 8, ())


def test_a_device_map_is_a_flag_and_a_setting(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    command = ["run", "--model", str(tiny_folder("llama")), "--tasks", "capitals", "--methods", "zero_shot"]
    command += ["--limit", "2", "--output-path", str(tmp_path), "--dtype", "float32"]
    assert CliRunner().invoke(app, [*command, "--device-map", "auto"]).exit_code == 0
    wrong = CliRunner().invoke(app, [*command, "--device-map", "all"])
    assert "'device_map' can't be 'all'" in str(wrong.exception)


def test_what_does_not_fit_the_gpus_is_refused(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_on_disk(model: Any) -> list[Any]:
        return [torch.device("cuda", 0), "disk"]

    monkeypatch.setattr(models, "_devices_of", half_on_disk)
    with pytest.raises(ModelError, match="does not fit the GPUs: a part would go to disk"):
        load_model(str(tiny_folder("llama")), "float32", device_map="auto")
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="a device map needs accelerate, which is not installed"):
        load_model(str(tiny_folder("llama")), "float32", device_map="auto")


def test_a_model_in_shards_is_one_model(tiny: Callable[[str], LoadedModel], tmp_path: Path) -> None:
    whole = tiny("llama")
    whole.model.save_pretrained(tmp_path, max_shard_size="30KB")
    whole.tokenizer.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    sharded = TransformersEngine(load_model(str(tmp_path), "float32", "cpu"), 4).score_choices(prompts(), None)
    for one, other in zip(sharded, TransformersEngine(whole, 4).score_choices(prompts(), None), strict=True):
        logprobs = [option.logprob for option in other.options]
        assert [option.logprob for option in one.options] == pytest.approx(logprobs, rel=1e-5)
