"""`softbench curve` and `softbench track` over finished runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from softbench.cli import app
from softbench.errors import DataError, SpecError
from softbench.pipeline import run
from softbench.report.progress import LineProgress
from softbench.runs import runs_in
from softbench.spec import read_spec

INVOKE = CliRunner()


def make(out: Path, **settings: Any) -> None:
    base = {"models": ["fake"], "engine": "fake", "tasks": ["capitals"], "output_path": out}
    run(read_spec(None, base | settings), LineProgress(Console(quiet=True)))


def test_a_curve_rises_with_the_steps_and_says_where_it_saturates(tmp_path: Path) -> None:
    make(tmp_path, checkpoints=[0, 5, 10, 20, 40])
    [found] = json.loads(INVOKE.invoke(app, ["curve", str(tmp_path / "fake"), "--json"]).output)
    assert found["steps"] == [0, 5, 10, 20, 40, 80]
    assert found["samples"] == [0, 40, 80, 160, 320, 640]
    following = [one["value"] for one in found["metrics"]["format_following"]]
    assert following == sorted(following)
    assert following[0] < 0.2
    assert following[-1] > 0.9
    assert 0 < found["saturation"]["format_following"] <= 20
    assert found["saturation"]["choice_accuracy_raw"] is None
    printed = INVOKE.invoke(app, ["curve", str(tmp_path)]).output
    assert "fake  capitals, soft_prompt" in printed
    assert "saturates" in printed
    assert "few_shot" in printed  # what other methods score stands below
    assert max(len(line) for line in printed.splitlines()) <= 80


def test_a_run_without_checkpoints_says_how_to_get_them(tmp_path: Path) -> None:
    make(tmp_path)
    error = INVOKE.invoke(app, ["curve", str(tmp_path)]).exception
    assert isinstance(error, SpecError)
    assert "run it again with --checkpoints 0,10,20,40" in str(error)


def test_each_seed_has_a_curve_of_its_own(tmp_path: Path) -> None:
    make(tmp_path, checkpoints=[10], seeds=[0, 1], methods=["soft_prompt"])
    found = json.loads(INVOKE.invoke(app, ["curve", str(tmp_path), "--json"]).output)
    assert [one["method"] for one in found] == ["soft_prompt:seed=0", "soft_prompt:seed=1"]


def test_revisions_are_models_of_their_own_and_a_track(tmp_path: Path) -> None:
    make(tmp_path, revisions=["step100", "step200", "step300"], methods=["zero_shot", "soft_prompt"], limit=50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fake-step100", "fake-step200", "fake-step300"]
    result = json.loads(next((tmp_path / "fake-step200").glob("results_*")).read_text())
    assert result["softbench"]["spec"]["models"][1]["revision"] == "step200"
    found = json.loads(INVOKE.invoke(app, ["track", str(tmp_path), "--json"]).output)
    assert [(one["method"], list(one["runs"])) for one in found] == [("zero_shot", ["fake"]), ("soft_prompt", ["fake"])]
    assert found[1]["runs"]["fake"]["steps"] == [100, 200, 300]
    two = ["track", str(tmp_path), "--revisions", "step100,step300", "--json"]
    assert json.loads(INVOKE.invoke(app, two).output)[0]["runs"]["fake"]["steps"] == [100, 300]
    error = INVOKE.invoke(app, ["track", str(tmp_path), "--revisions", "step9"]).exception
    assert isinstance(error, DataError)
    assert "holds no run of revision 'step9'" in str(error)
    assert runs_in(f"{tmp_path}@soft_prompt")[0] == f"{tmp_path / 'fake-step100'}@soft_prompt"


@pytest.mark.parametrize("value", ["1,x", ""])
def test_checkpoints_are_whole_numbers(value: str) -> None:
    error = INVOKE.invoke(app, ["run", "--checkpoints", value]).exception
    assert isinstance(error, SpecError)
    assert "--checkpoints can't be" in str(error)
