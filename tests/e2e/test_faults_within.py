"""Faults met inside a run, made up where the real ones can't be had: no room, folders that vanish, numbers that are
none, memory that does not suffice."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from softbench import pipeline
from softbench.errors import ModelError, OutputError, TuningError
from softbench.methods import losses as losing
from softbench.methods import tune as tuning
from softbench.methods.state import STATE
from softbench.pipeline import run
from softbench.records import RecordFile
from softbench.report.table import warnings
from softbench.results import Results
from softbench.types import Record
from tests.e2e.test_cli import softbench_run
from tests.e2e.test_faults import kept
from tests.e2e.test_run import QUIET, records_of, softbench_block, spec_of, tiny_spec
from tests.tiny import save_tiny_model

MakeFolder = Callable[[str], Path]


def failing_after(good: int, number: int) -> Callable[[int], None]:
    """An fsync that does nothing so many times, and fails from then on."""
    calls = 0

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > good:
            raise OSError(number, os.strerror(number))

    return fsync


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_any_write_may_fail_and_the_run_goes_on_afterwards(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "CHUNK", 2)
    spec = spec_of(tmp_path / "out", limit=4)
    [whole] = run(spec_of(tmp_path / "whole", limit=4), QUIET)
    said: list[str] = []
    resumed: list[Results] = []
    while not resumed:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing_after(len(said) % 3, number))
            try:
                resumed = run(spec, QUIET)
            except OutputError as error:
                said.append(str(error))
    assert len(said) > 10
    assert all(f"can't be written: {os.strerror(number)}; " in line for line in said)
    assert records_of(resumed[0]) == records_of(whole)
    assert kept(tmp_path / "out") == kept(tmp_path / "whole")


@pytest.mark.parametrize("removed_at", range(1, 7))
def test_an_output_folder_that_vanishes_is_one_line_and_the_run_goes_on(
    removed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "CHUNK", 2)
    spec = spec_of(tmp_path / "out", limit=4)
    append, calls = RecordFile.append, 0

    def removing(self: RecordFile, records: Any, stop: Any, max_new_tokens: int) -> None:
        nonlocal calls
        calls += 1
        if calls == removed_at:
            shutil.rmtree(tmp_path / "out")
        append(self, records, stop, max_new_tokens)

    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "append", removing)
        with pytest.raises(OutputError, match="its folder was removed while softbench wrote there; run the same"):
            run(spec, QUIET)
    [resumed] = run(spec, QUIET)
    [whole] = run(spec_of(tmp_path / "whole", limit=4), QUIET)
    assert records_of(resumed) == records_of(whole)


def test_an_output_folder_that_vanishes_while_a_prompt_is_tuned_is_one_line(
    tiny_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_spec(tiny_folder("llama"), tmp_path / "out")
    original = tuning.tune_together

    def removing(*arguments: Any, **named: Any) -> Any:
        shutil.rmtree(tmp_path / "out")
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "tune_together", removing)
        with pytest.raises(OutputError, match="was removed or replaced while softbench wrote there; run the same"):
            run(spec, QUIET)
    [resumed] = run(spec, QUIET)
    [whole] = run(tiny_spec(tiny_folder("llama"), tmp_path / "whole"), QUIET)
    assert records_of(resumed) == records_of(whole)


def test_records_that_another_process_adds_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "CHUNK", 2)
    append = RecordFile.append

    def twice(self: RecordFile, records: Any, stop: Any, max_new_tokens: int) -> None:
        append(self, records, stop, max_new_tokens)
        with self._path.open("a") as file:
            file.write("{}\n")

    monkeypatch.setattr(RecordFile, "append", twice)
    with pytest.raises(OutputError, match=r"records.jsonl' was changed by another process while softbench wrote there"):
        run(spec_of(tmp_path, limit=4), QUIET)


def broken_at(passes: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the loss of a pass no number, for the soft prompt at a place in it."""
    original, seen = losing.backward, [0]

    def spoilt(*arguments: Any) -> list[float]:
        losses = original(*arguments)
        place = passes.get(seen[0])
        seen[0] += 1
        if place is not None:
            losses[place] = float("nan")
        return losses

    monkeypatch.setattr(tuning, "backward", spoilt)


def test_a_loss_that_is_no_number_ends_the_run_with_its_state_kept(
    tiny_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_spec(tiny_folder("llama"), tmp_path)
    with monkeypatch.context() as patch:
        broken_at({2: 0}, patch)
        with pytest.raises(TuningError, match=r"^tuning step 3 of 3 met a loss of nan; try --retry-lower-rate, a l"):
            run(spec, QUIET)
    assert len(list(tmp_path.rglob(STATE))) == 1
    assert len(list(tmp_path.rglob("records.jsonl"))) == 2  # of the methods before it
    run(spec, QUIET)
    assert list(tmp_path.rglob(STATE)) == []


@pytest.mark.parametrize("method", ["soft_prompt", "lora"])
def test_a_lower_rate_is_said_in_card_and_results(
    method: str, tiny_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "lora":
        pytest.importorskip("peft")
    rate = {"soft_prompt": 0.1, "lora": 2e-5}[method]
    settings: dict[str, Any] = {"methods": [method], "num_fewshot": None, "retry_lower_rate": True}
    spec = tiny_spec(tiny_folder("llama"), tmp_path, **settings)
    with monkeypatch.context() as patch:
        broken_at({2: 0}, patch)
        [results] = run(spec, QUIET)
    failed = [{"learning_rate": rate, "step": 3, "met": "a loss of nan"}]
    [card] = tmp_path.rglob("tuned/*/*.json")
    value = json.loads(card.read_text())
    assert (value["failed_tries"], value["learning_rate"]) == (failed, rate / 2)
    assert softbench_block(results)["jobs"][0]["failed_tries"] == failed
    met = f"as {rate:g} met a loss of nan in step 3"
    said = f"llama, capitals, {method}: tuned at a learning rate of {rate / 2:g}, {met}"
    assert said in warnings([results])
    settings["methods"] = [{"kind": method, "learning_rate": rate / 2}]
    lower = tiny_spec(tiny_folder("llama"), tmp_path / "lower", **settings)
    [wanted] = run(lower, QUIET)
    assert [record.completion for record in results.jobs[0].records] == [
        record.completion for record in wanted.jobs[0].records
    ]
    assert results.jobs[0].tuned_sha256 == wanted.jobs[0].tuned_sha256


def test_prompts_tuned_beside_one_that_fails_are_kept(
    tiny_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = {"tune_together": True, "tasks": ["capitals", "arithmetic", "elements"], "methods": ["soft_prompt"]}
    spec = tiny_spec(tiny_folder("llama"), tmp_path, num_fewshot=None, **together)
    with monkeypatch.context() as patch:
        broken_at({1: 1}, patch)
        with pytest.raises(TuningError, match=r"^arithmetic soft_prompt: tuning step 2 of 3 met a loss of nan; try"):
            run(spec, QUIET)
    names = {path.parent.name.partition("-")[0] for path in tmp_path.rglob("soft_prompt.json")}
    assert names == {"capitals", "elements"}
    before = {path: path.read_bytes() for path in tmp_path.rglob("soft_prompt.safetensors")}
    [resumed] = run(spec, QUIET)  # the one step that failed goes well now, and those behind it
    assert len(resumed.jobs) == 3
    assert all(path.read_bytes() == data for path, data in before.items())
    assert list(tmp_path.rglob(STATE)) == []


def spoilt_folder(folder: Path, tensor: str, row: int, value: float) -> Path:
    """A tiny Llama one row of whose weights holds `value` alone."""
    save_tiny_model("llama", folder)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights[tensor][row] = value
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def token_of(folder: Path, text: str) -> int:
    import transformers

    return int(transformers.AutoTokenizer.from_pretrained(folder).encode(text, add_special_tokens=False)[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_whose_logits_are_no_numbers_is_refused_by_name(dtype: str, tmp_path: Path) -> None:
    # The largest float32: in bfloat16 it rounds up to infinity, and in float32 its products overflow.
    folder = spoilt_folder(tmp_path / "huge", "lm_head.weight", 7, 3.4e38)
    done = softbench_run("run", "--model", folder, "--tasks", "capitals", "--dtype", dtype, cwd=tmp_path)
    assert done.returncode == 2
    advice = "try --dtype float32, or look" if dtype == "bfloat16" else "look"
    wanted = f"gives logits that are no numbers (nan or infinite) in {dtype}; {advice} whether its weights are whole"
    assert wanted in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("task", ["capitals", "arc_easy:cf"])
def test_logits_that_are_no_numbers_name_the_sample_and_leave_the_others(
    task: str, dtype: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "CHUNK", 4)
    save_tiny_model("llama", tmp_path / "plain")
    whole_spec = tiny_spec(
        tmp_path / "plain", tmp_path / "whole", tasks=[task], methods=["zero_shot"], num_fewshot=None, steps=None,
        batch_size=None, limit=40, data_dir=data_dir, dtype=dtype,
    )  # fmt: skip
    [whole] = run(whole_spec, QUIET)
    folder, rare = rare_token(tmp_path, whole.jobs[0].records)
    model = whole_spec.models[0].model_copy(update={"source": str(folder)})
    spec = whole_spec.model_copy(update={"output_path": tmp_path / "out", "models": (model,)})
    with pytest.raises(ModelError, match=rf"on sample '({'|'.join(rare)})'"):
        run(spec, QUIET)
    for path in (tmp_path / "out").rglob("records.jsonl"):
        assert "NaN" not in path.read_text()


def rare_token(folder: Path, records: Any) -> tuple[Path, list[str]]:
    """A model that knows no number for a token that one sample, or a few, alone read or write, and the ids of these."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "plain")
    counts: dict[int, list[str]] = {}
    for record in records:
        behind = [*record.prompt.continuations, *([record.completion.text] if record.completion else [])]
        for token in {one for text in behind for one in tokenizer.encode(record.prompt.text + text)}:
            counts.setdefault(token, []).append(record.sample.id)
    token = min((one for one in counts if one > 8), key=lambda one: len(counts[one]))
    return spoilt_folder(folder / "spoilt", "model.embed_tokens.weight", token, float("inf")), counts[token]


LIMITED = """
import json, logging, resource, sys
import torch
from softbench.methods.tune import tune
from softbench.models import load_model
from softbench.engines.transformers import TransformersEngine
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import TuneSettings

logging.basicConfig(format="%(message)s")
torch.set_num_threads(1)
model = load_model(sys.argv[1], "float32", "cpu")
task = get_task("capitals")
prompts = [render_prompt(task, sample) for sample in load_data(task, None).tune]
settings = TuneSettings(4, 2, 48, 0.1, 1, "text")
def tuned():
    return tune(model, prompts, task.description, settings, 0, lambda loss: None).losses
def completed():
    return [one.text for one in TransformersEngine(model, 64).generate(prompts[:64], None, 3, ())]
tune(model, prompts[:2], task.description, TuneSettings(4, 1, 2, 0.1, 1, "text"), 0, lambda loss: None)
if sys.argv[3] == "limited":
    [used] = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")]
    limit = used * 1024 + int(sys.argv[4]) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(json.dumps(tuned() if sys.argv[2] == "tune" else completed()))
"""


@pytest.mark.parametrize(("work", "vocab_size", "megabytes"), [("tune", 64_000, 250), ("complete", 256_000, 40)])
def test_under_a_real_limit_on_memory_smaller_parts_come_to_the_same(
    work: str, vocab_size: int, megabytes: int, tmp_path: Path
) -> None:
    # Logits over a wide vocabulary are what takes memory: 48 samples of some 8 tokens to be learned, 100 MB; 64 rows
    # to be completed, 66 MB, twice over on their way through the head.
    save_tiny_model("llama", tmp_path / "wide", vocab_size=vocab_size)
    done = {
        limit: subprocess.run(
            [sys.executable, "-c", LIMITED, str(tmp_path / "wide"), work, limit, str(megabytes)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for limit in ("limited", "free")
    }
    assert "out of memory" in done["limited"].stderr
    assert done["free"].stderr == ""
    got, wanted = (json.loads(of_limit.stdout) for of_limit in done.values())
    assert got == (pytest.approx(wanted, rel=1e-4) if work == "tune" else wanted)


def without_scores(record: Record) -> Any:
    return record.sample, record.prompt, record.completion, record.status, record.answer, record.choice_correct


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_records_are_the_same_in_any_batch_size_and_order(
    architecture: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def done(name: str, **more: Any) -> Results:
        short = {"tasks": ["capitals", "arc_easy:cf", "arc_easy:mcf"], "data_dir": data_dir, "limit": 12}
        [results] = run(tiny_spec(tmp_path / architecture, tmp_path / name, **short, **more), QUIET)
        return results

    save_tiny_model(architecture, tmp_path / architecture, max_position_embeddings=1024)  # examples are long
    wanted = done("one", eval_batch_size=1)
    others = [done(str(size), eval_batch_size=size) for size in (3, 64)]
    with monkeypatch.context() as patch:
        chunks = pipeline.chunks
        patch.setattr(pipeline, "chunks", lambda *given: [one[::-1] for one in list(chunks(*given))[::-1]])
        patch.setattr(pipeline, "CHUNK", 5)
        others.append(done("backwards", eval_batch_size=4))
    for other in others:
        for job, job_of_other in zip(wanted.jobs, other.jobs, strict=True):
            for one, two in zip(job.records, job_of_other.records, strict=True):
                assert without_scores(one) == without_scores(two)
                for score, score_of_other in zip(one.choice_scores, two.choice_scores, strict=True):
                    assert score.is_greedy == score_of_other.is_greedy
                    assert score.logprob == pytest.approx(score_of_other.logprob, abs=1e-4)


def test_a_deterministic_run_says_so(tiny_folder: MakeFolder, tmp_path: Path) -> None:
    argv: list[str | Path] = [
        "run",
        "--model",
        tiny_folder("llama"),
        "--tasks",
        "capitals",
        "--limit",
        "4",
        "--steps",
        "3",
    ]
    for name in ("one", "two"):
        done = softbench_run(*argv, "--deterministic", "--output-path", name, cwd=tmp_path, OMP_NUM_THREADS="2")
        assert done.returncode == 0, done.stderr
    assert kept(tmp_path / "one") == kept(tmp_path / "two")
    [path] = (tmp_path / "one").rglob("results_*.json")
    assert json.loads(path.read_text())["softbench"]["determinism"] == {
        "algorithms": "deterministic",
        "num_threads": 2,
        "cublas_workspace_config": ":4096:8",
    }
    assert softbench_run(*argv, "--output-path", "three", cwd=tmp_path).returncode == 0
    [path] = (tmp_path / "three").rglob("results_*.json")
    assert json.loads(path.read_text())["softbench"]["determinism"] is None


def test_a_kernel_that_is_not_deterministic_is_one_line(
    tiny_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: Any) -> list[float]:
        raise RuntimeError("put_ does not have a deterministic implementation, but you set 'torch.use_deterministic...")

    monkeypatch.setattr(tuning, "backward", refusing)
    monkeypatch.setattr("softbench.models.compute_deterministically", lambda: None)
    with pytest.raises(ModelError, match=r"llama can't be run deterministically here \(put_ does not have .*; drop"):
        run(tiny_spec(tiny_folder("llama"), tmp_path, deterministic=True), QUIET)
    assert not torch.are_deterministic_algorithms_enabled()
