"""Jobs on a local Ray of two workers: the same results as serial, also where one of the two is killed."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayError
from rich.console import Console

from softbench import executors, pipeline
from softbench.errors import ClusterError, OutputError, SpecError
from softbench.executors import Unit, Worker, cut, differing, next_unit, retry, room, run
from softbench.report.progress import LineProgress
from softbench.results import Results
from softbench.spec import Spec
from softbench.types import Advance
from tests.e2e.test_cli import CAPITALS, FAKE, softbench_run
from tests.e2e.test_run import QUIET, records_of, spec_of, tiny_spec, untimed

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
FAKE_RUN = ["run", *FAKE, *CAPITALS]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray with room for two workers, and its address."""
    # Sockets lie below this folder, and the path of a socket has room for 107 bytes: pytest's own folders are too deep.
    folder = tempfile.mkdtemp(prefix="ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setattr(executors, "SECONDS_BETWEEN_LOOKS", 0.1)
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def content(results: Results) -> dict[str, Any]:
    """A results file without what depends on the time of day, or on how fast the machine was."""
    value = json.loads(results.path.read_text())
    for name in ("date", "start_time", "end_time", "total_evaluation_time_seconds"):
        del value[name]
    for job, block in zip(results.jobs, value["softbench"]["jobs"], strict=True):
        block["cost"] = untimed(job)
    return value  # type: ignore[no-any-return]  # JSON


def assert_same(serial: list[Results], placed: list[Results]) -> None:
    for one, other in zip(serial, placed, strict=True):
        assert records_of(one) == records_of(other)
        assert content(one) == content(other)
        of_one, of_other = (sorted(results.path.parent.glob("samples_*.jsonl")) for results in (one, other))
        assert [path.read_bytes() for path in of_one] == [path.read_bytes() for path in of_other] != []


class Listening(LineProgress):
    """Hears what a run shows, and calls `on_detail` with each word on the side."""

    def __init__(self, on_detail: Callable[[str], None] = lambda detail: None) -> None:
        super().__init__(Console(quiet=True))
        self.notes: list[str] = []
        self.tracked: list[tuple[str, int]] = []
        self.done = 0
        self._on_detail = on_detail

    @contextmanager
    def track(self, label: str, total: int, done: int = 0) -> Iterator[Advance]:
        self.tracked.append((label, total))

        def advance(amount: int, detail: str = "") -> None:
            self.done += amount
            self._on_detail(detail)

        yield advance

    def note(self, line: str) -> None:
        self.notes.append(line)


def test_results_are_those_of_a_serial_run(cluster: str, tmp_path: Path) -> None:
    asked = {
        "models": ["one", "two"],
        "tasks": ["capitals", "elements"],
        "methods": ["zero_shot", "few_shot", {"kind": "soft_prompt", "checkpoints": [0, 10]}, "majority"],
        "seeds": [0, 1],
    }
    serial = run(spec_of(tmp_path / "serial", **asked), QUIET)
    heard = Listening()
    placed = run(spec_of(tmp_path / "ray", executor="ray", **asked), heard)
    assert_same(serial, placed)
    assert heard.tracked == [("load tasks", 2), ("jobs on Ray", sum(len(one.jobs) for one in placed))]
    assert heard.done == 2 + 40
    assert "executor" not in content(placed[0])["softbench"]["spec"]


def test_prompts_tuned_together_are_those_of_a_serial_run(cluster: str, tmp_path: Path) -> None:
    asked = {"models": ["one", "two"], "methods": ["soft_prompt"], "seeds": [0, 1], "tune_together": True}
    serial = run(spec_of(tmp_path / "serial", **asked), QUIET)
    assert_same(serial, run(spec_of(tmp_path / "ray", executor="ray", **asked), QUIET))


def test_a_worker_that_is_killed_changes_no_result(
    cluster: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    # One row a batch is slow enough to be caught in the middle.
    asked: dict[str, Any] = {"tasks": ["capitals", "arithmetic"], "methods": ["soft_prompt"], "num_fewshot": None}
    asked |= {"limit": 103, "eval_batch_size": 1}
    serial = run(tiny_spec(tiny_folder("llama"), tmp_path / "serial", **asked), QUIET)
    left_behind: list[int] = []

    def kill(detail: str) -> None:
        at = re.search(r":(\d+) llama capitals soft_prompt: evaluate: 64/103", detail)
        if at and not left_behind:
            os.kill(int(at[1]), signal.SIGKILL)
            [path] = (tmp_path / "ray").glob("llama/jobs/capitals-*/records.jsonl")
            left_behind.append(path.read_bytes().count(b"\n"))

    heard = Listening(kill)
    placed = run(tiny_spec(tiny_folder("llama"), tmp_path / "ray", executor="ray", **asked), heard)
    assert left_behind == [64]
    assert heard.notes == [
        "the worker of llama capitals soft_prompt was lost; another one takes over (1 of at most 3 retries)"
    ]
    assert_same(serial, placed)


def test_a_unit_whose_workers_are_lost_again_and_again_ends_the_run() -> None:
    heard, unit, lost = Listening(), Unit(0, (0,), "m capitals lora"), RayError("The actor died\nfor reasons")
    for times in (1, 2, 3):
        retry(unit, times, lost, heard)
    assert len(heard.notes) == 3
    with pytest.raises(ClusterError, match="^the worker of m capitals lora was lost 4 times; what is done is kept"):
        retry(unit, 4, lost, heard)
    with pytest.raises(ClusterError, match=r"^a worker could not start \(The actor died\) 4 times"):
        retry(None, 4, lost, heard)


def test_bad_input_that_a_worker_meets_is_the_line_of_a_serial_run(cluster: str, tmp_path: Path) -> None:
    bad = [*FAKE_RUN, "--methods", "zero_shot", "--soft-prompt", "nowhere"]
    serial = softbench_run(*bad, cwd=tmp_path)
    placed = softbench_run(*bad, "--executor", "ray", "--ray-address", cluster, cwd=tmp_path)
    last = [done.stderr.splitlines()[-1] for done in (serial, placed)]
    assert last[0] == last[1]
    assert last[0].startswith("error: no whole soft prompt in 'nowhere'")
    assert (serial.returncode, placed.returncode) == (2, 2)
    assert "Traceback" not in placed.stderr


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    done = softbench_run(*FAKE_RUN, "--executor", "ray", "--ray-address", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 2
    loaded, error = done.stderr.splitlines()
    assert loaded.startswith("load tasks: 1/1")
    assert re.fullmatch(r"error: no Ray cluster can be used at '127\.0\.0\.1:1' \(.*\); give .*", error)


def test_without_ray_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r"needs Ray, which is not installed: pip install 'softbench\[ray\]'"):
        run(spec_of(tmp_path, executor="ray"), QUIET)


def test_the_serial_pipeline_does_not_take_a_run_that_is_for_ray(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="call executors.run for executor 'ray'"):
        pipeline.run(spec_of(tmp_path, executor="ray"), QUIET)


def units_of(spec: Spec) -> list[list[str]]:
    planned = pipeline.plan(spec, pipeline.load_tasks(spec))
    return [[planned[place].label for place in unit.jobs] for unit in cut(spec, planned) if unit.model == 0]


def test_what_is_tuned_once_is_one_unit(tmp_path: Path) -> None:
    tuned = [{"kind": "soft_prompt", "checkpoints": [5]}, {"kind": "soft_prompt", "options": "shuffled"}]
    spec = spec_of(tmp_path, methods=["zero_shot", *tuned, "lora"], seeds=[0, 1], tasks=["arithmetic"])
    assert units_of(spec) == [
        ["zero_shot"],
        ["soft_prompt:step=5:seed=0", "soft_prompt:seed=0"],
        ["soft_prompt:step=5:seed=1", "soft_prompt:seed=1"],
        ["lora:seed=0"],
        ["lora:seed=1"],
    ]
    together = spec.model_copy(update={"tune_together": True})
    assert units_of(together) == [[label for unit in units_of(spec) for label in unit]]


def test_prompts_from_two_folders_that_may_hold_the_same_are_one_unit(tmp_path: Path) -> None:
    loaded = [{"kind": "loaded_prompt", "soft_prompt": str(tmp_path / name)} for name in "ab"]
    assert [len(unit) for unit in units_of(spec_of(tmp_path, methods=["few_shot", *loaded]))] == [1, 2]


def test_a_worker_goes_on_with_the_model_that_it_has_open() -> None:
    units = [Unit(model, (job,), "") for model in (0, 1) for job in (0, 1)]
    assert next_unit(units, None) == units[0]
    assert next_unit(units, 1) == units[2]
    assert next_unit(units[:2], 1) == units[0]
    assert next_unit([], 1) is None


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


def test_as_many_workers_start_as_have_room() -> None:
    small, big = node(CPU=4.0, memory=8.0 * GIB), node(CPU=64.0, GPU=8.0, memory=512.0 * GIB)
    assert room([small, big], {"num_cpus": 2, "num_gpus": 0.0}) == 2 + 32
    assert room([small, big], {"num_cpus": 2, "num_gpus": 1.0}) == 8
    assert room([small, big], {"num_cpus": 1, "num_gpus": 0.5}) == 16
    assert room([small, big], {"num_cpus": 1, "num_gpus": 0.0, "memory": 8 * GIB}) == 1 + 64
    with pytest.raises(ClusterError, match=r"asks for CPU 8, memory 8.0 GiB, and .* is CPU 4, memory 8.0 GiB; ask"):
        room([small, node(alive=False, **big["Resources"])], {"num_cpus": 8, "num_gpus": 0.0, "memory": 8 * GIB})


def test_a_worker_stands_where_the_driver_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOFTBENCH_CACHE", "its own")
    spec = spec_of(Path("out"), executor="ray")
    lost = Worker(spec, str(tmp_path / "elsewhere"), {}, None).start()
    assert isinstance(lost, OutputError)
    assert "can't enter" in str(lost)
    blind = Worker(spec, str(tmp_path), {"SOFTBENCH_CACHE": "the driver's"}, None).start()
    assert isinstance(blind, OutputError)
    assert "does not see the output folder 'out'" in str(blind)
    assert os.environ["SOFTBENCH_CACHE"] == "the driver's"
    Path("out").mkdir()
    assert Worker(spec, str(tmp_path), {}, None).start() is None


def test_a_model_that_workers_open_differently_is_named(tmp_path: Path) -> None:
    [results] = run(spec_of(tmp_path, methods=["zero_shot"], limit=2), QUIET)
    said = differing(results.info, dataclasses.replace(results.info, device="cuda"))
    assert said.startswith("workers opened model 'fake' differently: device 'cpu' and 'cuda'; ")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"executor": "slurm"}, "'executor' can't be 'slurm'"),
        ({"num_gpus": 1.0}, "'num_gpus' is given without executor 'ray'; add it (--executor ray)"),
        ({"ray_address": "auto"}, "'ray_address' is given without executor 'ray'"),
        ({"executor": "ray", "num_gpus": -1.0}, "'num_gpus' can't be -1.0"),
        ({"executor": "ray", "num_gpus": 1.5}, "'num_gpus' can't be 1.5; give a whole number, or a part of one GPU"),
        ({"executor": "ray", "num_cpus": 0}, "'num_cpus' can't be 0"),
        ({"executor": "ray", "memory": float("inf")}, "'memory' can't be inf"),
        ({"executor": "ray", "memory": True}, "'memory' can't be True"),
    ],
)
def test_an_impossible_request_is_one_clear_error(overrides: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        spec_of(tmp_path, **overrides)


def test_the_recipe_for_slurm_is_a_script_that_bash_reads() -> None:
    subprocess.run(["bash", "-n", str(ROOT / "scripts" / "slurm_ray.sh")], check=True)
