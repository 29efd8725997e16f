"""push and log: what goes to the hub and to experiment trackers."""

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import huggingface_hub
import pytest
from typer.testing import CliRunner

from softbench.cli import app
from softbench.errors import DataError, OutputError, SpecError


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A run's folder, of two methods, on the fake engine."""
    command = ["run", "--engine", "fake", "--model", "m", "--tasks", "capitals", "--methods", "zero_shot,soft_prompt"]
    command += ["--steps", "3", "--limit", "4", "--output-path", str(tmp_path / "out")]
    assert CliRunner().invoke(app, command).exit_code == 0
    return tmp_path / "out" / "m"


class FakeHub:
    """Takes what HfApi would upload."""

    calls: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def create_repo(self, repo_id: str, **settings: Any) -> None:
        self.calls.append((repo_id, settings))

    def upload_folder(self, **settings: Any) -> Any:
        self.calls.append(("upload", settings))
        return types.SimpleNamespace(commit_url="hub/commit/1")


def test_results_samples_and_prompts_are_pushed(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeHub, "calls", [])
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeHub)
    listed = CliRunner().invoke(app, ["push", str(finished), "me/results", "--dry-run"])
    assert not FakeHub.calls
    names = listed.output.split()
    assert [name.partition("_")[0].partition("/")[0] for name in names] == ["results", "samples", "tuned", "tuned"]
    result = CliRunner().invoke(app, ["push", str(finished), "me/results", "--private"])
    assert result.output == "pushed: hub/commit/1\n"
    (repo, made), (_, uploaded) = FakeHub.calls
    assert (repo, made["repo_type"], made["private"]) == ("me/results", "dataset", True)
    assert uploaded["allow_patterns"] == names
    assert (uploaded["folder_path"], uploaded["path_in_repo"]) == (finished, "m")


def test_links_are_not_pushed(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (finished / "results_zz.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").touch()
    (finished / "tuned" / "zz").symlink_to(tmp_path / "secrets")
    assert "zz" not in CliRunner().invoke(app, ["push", str(finished), "me/results", "--dry-run"]).output


def test_the_name_of_a_file_is_no_pattern(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finished / "results_*.json").write_bytes(next(finished.glob("results_*.json")).read_bytes())
    monkeypatch.setattr(FakeHub, "calls", [])
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeHub)
    CliRunner().invoke(app, ["push", str(finished), "me/results"])
    assert "results_[*].json" in FakeHub.calls[1][1]["allow_patterns"]


def test_a_hub_that_can_t_be_reached_is_one_line(finished: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["push", str(finished), "me/results"])  # HF_HUB_OFFLINE is set
    assert isinstance(result.exception, OutputError)
    assert "check name, HF_TOKEN and network" in str(result.exception)
    assert isinstance(CliRunner().invoke(app, ["push", str(finished), "a b/c"]).exception, OutputError)
    assert isinstance(CliRunner().invoke(app, ["push", str(tmp_path / "no"), "me/x"]).exception, DataError)


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_each_job_is_a_run_of_the_tracker(tracker: str, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Any]] = []
    fake = types.ModuleType(tracker)
    fake.init = lambda **given: seen.append(("init", given))  # type: ignore[attr-defined]
    fake.log = lambda values, step=None: seen.append(("log", (step, values)))  # type: ignore[attr-defined]
    fake.finish = lambda: seen.append(("finish", None))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, tracker, fake)
    result = CliRunner().invoke(app, ["log", str(finished), "--to", tracker, "--project", "p"])
    assert result.output.splitlines() == ["logged: m capitals zero_shot", "logged: m capitals soft_prompt"]
    assert [kind for kind, _ in seen] == ["init", "log", "finish", "init", "log", "log", "log", "log", "finish"]
    assert seen[3][1]["project"] == "p"
    assert seen[3][1]["config"]["method"] == "soft_prompt"
    assert seen[3][1]["config"]["steps"] == 3
    assert [step for _, (step, values) in (seen[4], seen[5], seen[6]) if "tuning_loss" in values] == [1, 2, 3]
    assert 0 <= seen[7][1][1]["format_following"] <= 1


def test_a_tracker_that_is_unknown_or_missing_is_one_line(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = CliRunner().invoke(app, ["log", str(finished), "--to", "wandbb"])
    assert isinstance(unknown.exception, SpecError)
    assert "did you mean 'wandb'" in str(unknown.exception)
    monkeypatch.setitem(sys.modules, "trackio", None)
    missing = CliRunner().invoke(app, ["log", str(finished), "--to", "trackio"])
    assert str(missing.exception) == "trackio is not installed: pip install trackio"


def test_wandb_itself_takes_a_run(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: pip install 'softbench[wandb]'")
    command = [sys.executable, "-m", "softbench", "log", str(finished), "--to", "wandb", "--project", "p"]
    environment = os.environ | {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("logged: ") == 2
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 2
