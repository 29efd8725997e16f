"""`softbench doctor`: what it says of a machine, and that its checks find what is broken."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import softbench
from softbench.cli import app
from softbench.doctor import self_test
from softbench.doctor.environment import OPTIONAL, environment
from softbench.engines.transformers import TransformersEngine
from softbench.methods import tune as tuning
from softbench.report.doctor import environment_tables
from softbench.sharing import RowCache
from softbench.types import ChoiceScores

CHECKS = ["batch invariance", "shared beginnings", "cached generation", "soft prompt tuning"]


def outcomes() -> dict[str, bool]:
    return {check.name: check.ok for check in self_test(("cpu",))}


def test_a_sound_machine_passes() -> None:
    checks = list(self_test(("cpu",)))
    assert [check.name for check in checks] == CHECKS
    assert all(check.ok for check in checks), checks
    assert "nats" in checks[0].detail
    assert "7 of 7 completions equal" in checks[2].detail
    assert "the model's weights did not move" in checks[3].detail


def test_scores_that_depend_on_the_batch_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = TransformersEngine.score_choices

    def score(self: TransformersEngine, *given: Any) -> list[ChoiceScores]:
        moved = 2e-4 * (self._batch_size > 1)
        return [
            dataclasses.replace(
                one,
                options=tuple(dataclasses.replace(option, logprob=option.logprob + moved) for option in one.options),
            )
            for one in before(self, *given)
        ]

    monkeypatch.setattr(TransformersEngine, "score_choices", score)
    assert outcomes() == dict(zip(CHECKS, (False, True, True, True), strict=True))


def test_a_cache_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = RowCache.step

    def step(self: RowCache, tokens: torch.Tensor) -> torch.Tensor:
        for layer in self._layers:
            layer.keys[:, :, :3] = 0
        return before(self, tokens)

    monkeypatch.setattr(RowCache, "step", step)
    found = outcomes()
    assert not found["cached generation"]
    assert not found["shared beginnings"]
    assert found["batch invariance"]


def test_tuning_that_moves_the_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tuning.tune_together

    def tune(model: Any, *given: Any, **named: Any) -> Any:
        model.model.lm_head.weight.data[5, 5] += 1e-6
        return before(model, *given, **named)

    monkeypatch.setattr(tuning, "tune_together", tune)
    [check] = [one for one in self_test(("cpu",)) if not one.ok]
    assert check.name == "soft prompt tuning"
    assert "weights moved: lm_head.weight" in check.detail


def test_a_check_that_raises_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no kernel image is available\nfor execution")

    monkeypatch.setattr(TransformersEngine, "generate", broken)
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "80"})
    assert result.exit_code == 1
    said = " ".join(result.stdout.split())
    assert "failed cached generation (cpu): RuntimeError: no kernel image is available ok soft prompt tuning" in said
    assert "ok batch invariance (cpu): batches of 1 and 4 differ by " in said
    machine = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert machine["ok"] is False
    assert [check["ok"] for check in machine["checks"]] == [True, False, False, True]


def test_a_machine_is_described(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOFTBENCH_CACHE", str(tmp_path / "not" / "made" / "yet"))
    (tmp_path / "data" / "arc_easy").mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (tmp_path / "data" / "arc_easy" / f"{split}.jsonl").touch()
    (tmp_path / "data" / "boolq").mkdir()
    found = environment(tmp_path / "data")
    assert found.versions["softbench"] == softbench.__version__
    assert found.versions["torch"] == torch.__version__
    assert [name for name, there in found.benchmarks.items() if there] == ["arc_easy"]
    assert found.hub_offline
    assert found.cache == tmp_path / "not" / "made" / "yet"
    assert found.cache_free is not None
    assert found.devices[0].name == "cpu"
    assert sum(device.auto for device in found.devices) == 1
    assert {device.auto_dtype for device in found.devices} <= {"float32", "bfloat16"}
    assert not any(environment(None).benchmarks.values())


def test_what_is_absent_comes_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = environment(None)
    assert set(found.optional.values()) == {None}
    cells = [str(cell) for cell in environment_tables(found)[0].columns[1].cells]
    assert "absent: pip install 'softbench[lm-eval]'" in cells


def test_every_extra_that_users_install_is_looked_for() -> None:
    import tomllib

    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(OPTIONAL.values()) <= set(pyproject["project"]["optional-dependencies"])
