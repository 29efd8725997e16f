"""Jobs on a local Ray of two workers: the same results as serial, also where one of the two is killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayError
from rich.console import Console

from softbench import executors, pipeline
from softbench.errors import ClusterError, ModelError, OutputError, SpecError
from softbench.executors import Unit, Worker, cut, differing, next_unit, retry, room, run, shared_by
from softbench.report.progress import LineProgress
from softbench.results import Results
from softbench.spec import Spec, read_spec
from softbench.types import Advance
from tests.e2e.test_cli import softbench_run
from tests.e2e.test_run import QUIET, records_of, spec_of, tiny_spec, untimed

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray with room for two workers, and its address."""
    # Sockets lie below this folder, and the path of a socket has room for 107 bytes: pytest's own folders are too deep.
    folder = tempfile.mkdtemp(prefix="ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setattr(executors, "SECONDS_BETWEEN_LOOKS", 0.1)
        started = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        yield started.address_info["address"]
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
    def track(self, label: str, total: int) -> Iterator[Advance]:
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
    assert heard.tracked == [("jobs on Ray", sum(len(one.jobs) for one in placed))]
    assert heard.done == heard.tracked[0][1] == 40
    assert "executor" not in content(placed[0])["softbench"]["spec"]


def test_prompts_tuned_together_are_those_of_a_serial_run(cluster: str, tmp_path: Path) -> None:
    asked = {"models": ["one", "two"], "methods": ["soft_prompt"], "seeds": [0, 1], "tune_together": True}
    serial = run(spec_of(tmp_path / "serial", **asked), QUIET)
    assert_same(serial, run(spec_of(tmp_path / "ray", executor="ray", **asked), QUIET))


def lines_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("records.jsonl"))


def test_a_worker_that_is_killed_changes_no_result(
    cluster: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    asked = {"tasks": ["capitals", "elements"], "methods": ["soft_prompt"], "steps": 150, "limit": None}
    asked |= {"num_fewshot": None}
    serial = run(tiny_spec(tiny_folder("llama"), tmp_path / "serial", **asked), QUIET)
    killed: list[int] = []

    def kill(detail: str) -> None:
        """Kill the worker that tunes for capitals, early in its work and once."""
        at = re.search(r":(\d+) llama capitals soft_prompt: tune: (\d+)/150", detail)
        if at and not killed and int(at[2]) < 75:
            os.kill(int(at[1]), signal.SIGKILL)
            killed.append(int(at[1]))

    heard = Listening(kill)
    placed = run(tiny_spec(tiny_folder("llama"), tmp_path / "ray", executor="ray", **asked), heard)
    assert len(killed) == 1
    assert heard.notes == [
        "the worker of llama capitals soft_prompt was lost; another one takes over (1 of at most 3 retries)"
    ]
    assert_same(serial, placed)
