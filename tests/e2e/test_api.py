"""softbench.run, tune and evaluate, and the script that shows them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import softbench
from softbench.errors import SoftPromptError, SpecError
from softbench.report.progress import LineProgress
from softbench.types import SoftPrompt

SCRIPT = Path(__file__).parents[2] / "examples" / "python_api.py"
QUIET = LineProgress(Console(quiet=True))


def test_what_tune_returns_is_what_a_run_tunes_and_evaluates(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    model = str(tiny_folder("gemma3"))
    common: dict[str, Any] = {"limit": 6, "dtype": "float32", "device": "cpu", "progress": QUIET}
    [whole] = softbench.run(
        [model], ["capitals"], ["zero_shot", "soft_prompt"], steps=3, output_path=tmp_path / "out", **common
    )
    tuned = softbench.tune(
        model, "capitals", steps=3, output_path=tmp_path / "prompt", dtype="float32", device="cpu", progress=QUIET
    )
    zero, soft = whole.jobs
    assert tuned.card["sha256"] == soft.tuned_sha256
    bare = softbench.evaluate(model, "capitals", **common)
    assert [one.completion for one in bare.records] == [one.completion for one in zero.records]
    for given in (tuned, tmp_path / "prompt", str(tmp_path / "prompt")):
        found = softbench.evaluate(model, "capitals", soft_prompt=given, **common)
        assert [one.completion for one in found.records] == [one.completion for one in soft.records]
        assert found.metrics == soft.metrics
    shots = softbench.evaluate(model, "capitals", num_fewshot=2, output_path=tmp_path / "shots", **common)
    assert shots.num_fewshot == 2
    assert list((tmp_path / "shots").rglob("results_*.json"))


def test_bad_input_names_itself(tiny_folder: Callable[[str], Path]) -> None:
    vectors = SoftPrompt(np.zeros((2, 32), np.float32), {})
    with pytest.raises(SpecError, match="give soft_prompt or num_fewshot, not both"):
        softbench.evaluate("fake", "capitals", engine="fake", soft_prompt="x", num_fewshot=2)
    with pytest.raises(SoftPromptError, match="give the folder that it lies in"):
        softbench.evaluate("fake", "capitals", engine="fake", soft_prompt=vectors)
    with pytest.raises(SpecError, match="--step is given, but no method of this run uses it"):
        softbench.tune("fake", "capitals", engine="fake", step=3)


def test_the_example_runs(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tiny_folder("gemma3"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("zero-shot format 0.0 accuracy")
    assert len(list((tmp_path / "softbench_out").rglob("results_*.json"))) == 1
