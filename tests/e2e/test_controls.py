"""Controls and references as methods in their own right: what each changes, and that it changes nothing else."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from softbench.errors import SoftPromptError, SpecError
from softbench.methods.tune_adapter import tune_adapter, with_adapter
from softbench.models import LoadedModel, load_model
from softbench.pipeline import run
from softbench.report.progress import LineProgress
from softbench.results import JobResult, Results
from softbench.spec import Spec, read_spec
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import LoraSettings, Prompt, Status

QUIET = LineProgress(Console(quiet=True))


def spec_of(out: Path, model: str | Path = "fake", **overrides: Any) -> Spec:
    base = {"models": [str(model)], "tasks": ["capitals"], "output_path": out, "limit": 12}
    tiny = {"dtype": "float32", "device": "cpu"} if isinstance(model, Path) else {"engine": "fake"}
    return read_spec(None, base | tiny | overrides)


def jobs_of(spec: Spec) -> dict[str, JobResult]:
    [results] = run(spec, QUIET)
    return {job.label: job for job in results.jobs}


SOFT = {"kind": "soft_prompt", "steps": 6, "batch_size": 2}


def test_majority_gives_the_commonest_answer_without_a_model(tmp_path: Path, data_dir: Path) -> None:
    tasks = ["capitals", "arc_easy:mcf", "arc_easy:cf", "arc_easy:generation", "boolq"]
    spec = spec_of(tmp_path, tasks=tasks, methods=["majority"], limit=200, data_dir=data_dir)
    [results] = run(spec, QUIET)
    for job in results.jobs:
        constant = {record.completion and record.completion.text for record in job.records}
        if job.task.name == "arc_easy:cf":
            gold = [record.sample.gold for record in job.records]
            assert job.metrics["choice_accuracy_raw"].value in {gold.count(place) / len(gold) for place in range(5)}
            assert job.metrics["accuracy"].value is None
            continue
        assert job.metrics["format_following"].value == 1.0
        if job.task.name != "arc_easy:generation":
            assert len(constant) == 1
        if job.task.name == "arc_easy:mcf":
            # By hand: the commonest gold letter of the tuning split, where it is right in the test split.
            counts = [sum(sample.gold == place for sample in job.data.tune) for place in range(5)]
            wanted = [sample.gold == counts.index(max(counts)) for sample in job.data.test[:200]]
            assert job.metrics["accuracy"].value == pytest.approx(sum(wanted) / 200)
        assert job.cost["evaluation_tokens"] == 0


def test_shuffled_options_move_options_and_letters_and_nothing_else(tmp_path: Path, data_dir: Path) -> None:
    both = [{"kind": "zero_shot"}, {"kind": "zero_shot", "options": "shuffled"}]
    jobs = jobs_of(spec_of(tmp_path, tasks=["arc_easy:mcf"], methods=both, limit=60, data_dir=data_dir))
    given, shuffled = jobs["zero_shot"], jobs["zero_shot:options=shuffled"]
    moved = 0
    for one, other in zip(given.records, shuffled.records, strict=True):
        assert one.sample.id == other.sample.id
        assert one.sample.fields == other.sample.fields
        assert sorted(one.sample.choices) == sorted(other.sample.choices)
        assert one.sample.gold is not None
        assert other.sample.gold is not None
        assert one.sample.choices[one.sample.gold] == other.sample.choices[other.sample.gold]
        assert other.sample.answers == ("ABCDE"[other.sample.gold],)
        moved += one.sample.gold != other.sample.gold
    assert 30 < moved < 55  # three in four, for four options
    block = json.loads(next((tmp_path / "fake").glob("results_*")).read_text())["softbench"]["jobs"][1]
    assert set(block["letters"]) >= {"A", "B", "C", "D"}
    assert sum(one["chosen"] for one in block["letters"].values()) == pytest.approx(1.0)
    assert block["chance"] == pytest.approx(0.25, abs=0.01)


def test_a_soft_prompt_serves_its_controls_and_checkpoints_without_being_tuned_again(
    tmp_path: Path, data_dir: Path
) -> None:
    methods = [SOFT | {"checkpoints": [0, 3]}, SOFT | {"options": "shuffled"}]
    jobs = jobs_of(spec_of(tmp_path, tasks=["arc_easy:mcf"], methods=methods, limit=3, data_dir=data_dir))
    assert list(jobs) == [
        "soft_prompt:step=0", "soft_prompt:step=3", "soft_prompt", "soft_prompt:options=shuffled"
    ]  # fmt: skip
    assert len(list((tmp_path / "fake" / "tuned").iterdir())) == 1
    hashes = [job.tuned_sha256 for job in jobs.values()]
    assert len(set(hashes[:3])) == 3
    assert hashes[2] == hashes[3]
    assert [job.cost["tuning_steps"] for job in jobs.values()] == [0, 3, 6, 6]
    assert [job.cost["tuning_samples"] for job in jobs.values()] == [0, 6, 12, 12]


def test_open_questions_have_no_options_to_shuffle(tmp_path: Path) -> None:
    both = [{"kind": "zero_shot"}, {"kind": "zero_shot", "options": "shuffled"}]
    assert list(jobs_of(spec_of(tmp_path, methods=both))) == ["zero_shot"]


def test_a_random_model_is_the_same_architecture_with_nothing_learned(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    random = {"kind": "random_model", "steps": 6, "batch_size": 2}
    # The tiny model is itself one that was drawn, with the seed 0.
    jobs = jobs_of(spec_of(tmp_path, tiny_folder("gemma3"), methods=[SOFT, random], limit=3, seeds=[3]))
    texts = [[record.completion and record.completion.text for record in job.records] for job in jobs.values()]
    assert texts[0] != texts[1]
    assert jobs["random_model"].tuned_sha256 != jobs["soft_prompt"].tuned_sha256
    again = jobs_of(spec_of(tmp_path / "again", tiny_folder("gemma3"), methods=[random], limit=3, seeds=[3]))
    assert list(again["random_model"].records) == list(jobs["random_model"].records)


def test_a_prompt_of_one_task_is_used_on_another_of_the_same_form(tmp_path: Path, data_dir: Path) -> None:
    shared: dict[str, Any] = {"data_dir": data_dir, "methods": ["soft_prompt"]}
    [first] = run(spec_of(tmp_path, tasks=["arc_easy:mcf"], **shared), QUIET)
    [folder] = (tmp_path / "fake" / "tuned").iterdir()
    settings = shared | {"methods": ["zero_shot"], "soft_prompt": folder}
    jobs = jobs_of(spec_of(tmp_path, tasks=["openbookqa:mcf"], **settings))
    assert list(jobs) == ["zero_shot", "loaded_prompt"]
    assert jobs["loaded_prompt"].tuned_sha256 == first.jobs[0].tuned_sha256
    assert jobs["loaded_prompt"].cost["tuning_steps"] == 80  # what it took when it was tuned
    with pytest.raises(SoftPromptError, match="was tuned for answers in the form"):
        run(spec_of(tmp_path, tasks=["capitals"], **settings), QUIET)
    with pytest.raises(SoftPromptError, match="no whole soft prompt in"):
        run(spec_of(tmp_path, methods=["zero_shot"], soft_prompt=tmp_path), QUIET)


def test_loss_on_format_is_named_and_tunes_another_prompt(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    methods = [SOFT, SOFT | {"loss_on": "format"}]
    jobs = jobs_of(spec_of(tmp_path, tiny_folder("llama"), methods=methods, limit=2))
    assert list(jobs) == ["soft_prompt", "soft_prompt:loss_on=format"]
    assert len({job.tuned_sha256 for job in jobs.values()}) == 2


def test_early_stop_looks_at_completions_and_cannot_have_checkpoints(tmp_path: Path, data_dir: Path) -> None:
    jobs = jobs_of(spec_of(tmp_path, methods=[SOFT | {"steps": 80, "early_stop": True}]))
    assert jobs["soft_prompt"].cost["tuning_steps"] < 80
    assert jobs["soft_prompt"].cost["tuning_samples"] == 2 * jobs["soft_prompt"].cost["tuning_steps"]
    with pytest.raises(SpecError, match="early_stop may end before a checkpoint; drop one"):
        spec_of(tmp_path, methods=[SOFT | {"early_stop": True, "checkpoints": [0]}])
    with pytest.raises(SpecError, match=r"checkpoints \[6\] must come before the last of 6 steps"):
        spec_of(tmp_path, methods=[SOFT | {"checkpoints": [6]}])
    cloze: dict[str, Any] = {"tasks": ["arc_easy:cf"], "data_dir": data_dir, "methods": [SOFT | {"early_stop": True}]}
    with pytest.raises(SpecError, match="early_stop watches completions"):
        run(spec_of(tmp_path, **cloze), QUIET)


def test_pmi_asks_for_the_options_without_the_question(
    tiny_folder: Callable[[str], Path], tmp_path: Path, data_dir: Path
) -> None:
    settings: dict[str, Any] = {"tasks": ["arc_easy:cf"], "data_dir": data_dir, "methods": ["zero_shot"], "limit": 4}
    [plain] = run(spec_of(tmp_path, tiny_folder("llama"), **settings), QUIET)
    [with_pmi] = run(spec_of(tmp_path, tiny_folder("llama"), pmi=True, **settings), QUIET)
    assert plain.jobs[0].metrics["choice_accuracy_pmi"].n == 0
    assert with_pmi.jobs[0].metrics["choice_accuracy_pmi"].n == 4
    model = load_model(str(tiny_folder("llama")), "float32", "cpu")
    record = with_pmi.jobs[0].records[0]
    for continuation, score in zip(record.prompt.continuations, record.choice_scores, strict=True):
        ids = model.tokenizer("Answer:" + continuation).input_ids
        start = len(model.tokenizer("Answer:").input_ids)
        with torch.no_grad():
            logprobs = model.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        wanted = sum(float(logprobs[place - 1, ids[place]]) for place in range(start, len(ids)))
        assert score.premise_logprob == pytest.approx(wanted, abs=1e-4)


LORA = LoraSettings(rank=4, alpha=8, steps=30, batch_size=4, learning_rate=3e-3, warmup_steps=2)


def prompts(count: int = 8) -> Sequence[Prompt]:
    task = get_task("arithmetic")
    return [render_prompt(task, sample) for sample in load_data(task, None).tune[:count]]


def test_an_adapter_learns_and_leaves_the_model_as_it_was(tiny_model: LoadedModel) -> None:
    before = {name: tensor.clone() for name, tensor in tiny_model.model.state_dict().items()}
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        plain = tiny_model.model(ids).logits
    adapter = tune_adapter(tiny_model, prompts(), LORA, 0, lambda loss: None)
    assert np.mean(adapter.losses[-4:]) < np.mean(adapter.losses[:4]) - 0.05
    assert all(one.dtype == np.float32 for one in adapter.weights.values())
    with torch.no_grad():
        assert torch.equal(tiny_model.model(ids).logits, plain)
        with with_adapter(tiny_model, adapter):
            adapted = tiny_model.model(ids).logits
        assert torch.equal(tiny_model.model(ids).logits, plain)
    assert not torch.allclose(adapted, plain, atol=1e-3)
    after = tiny_model.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(parameter.requires_grad for parameter in tiny_model.model.parameters())


def test_the_same_seed_gives_the_same_adapter(tiny: Callable[[str], LoadedModel]) -> None:
    one, same, other = (tune_adapter(tiny("llama"), prompts(), LORA, seed, lambda loss: None) for seed in (0, 0, 1))
    assert one.losses == same.losses
    assert all(np.array_equal(one.weights[name], same.weights[name]) for name in one.weights)
    assert one.losses != other.losses


def test_lora_is_a_method_like_others(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    method = {"kind": "lora", "steps": 3, "batch_size": 2, "rank": 2}
    jobs = jobs_of(spec_of(tmp_path, tiny_folder("gpt2"), methods=["zero_shot", method], limit=3, learning_rate=None))
    lora = jobs["lora"]
    assert lora.settings["learning_rate"] == 2e-5
    assert lora.cost["tuning_steps"] == 3
    assert 0 < lora.cost["trainable_share"] < 0.5
    [path] = (tmp_path / "gpt2" / "tuned").rglob("adapter.safetensors")
    assert path.stat().st_size > 4 * lora.cost["trainable_parameters"]
    again = jobs_of(spec_of(tmp_path, tiny_folder("gpt2"), methods=[method], limit=3))["lora"]
    assert (again.folder, list(again.records)) == (lora.folder, list(lora.records))


def test_the_adapters_learning_rate_is_no_soft_prompts(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, methods=["soft_prompt", "lora"], learning_rate=0.2)
    assert [method.model_dump()["learning_rate"] for method in spec.methods] == [0.2, 2e-5]


def test_every_status_of_a_control_is_counted(tmp_path: Path) -> None:
    results: list[Results] = run(spec_of(tmp_path, methods=["majority"]), QUIET)
    assert {record.status for record in results[0].jobs[0].records} == {Status.OK}
