"""The laboratory's small form, from nothing to tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from studies.laboratory.recipes import SMALL
from studies.laboratory.study import run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("laboratory")
    run(SMALL, out, out / "results", workers=1)
    return out


def test_the_small_form_writes_all_tables(finished: Path) -> None:
    findings = json.loads((finished / "results" / "findings.json").read_text())
    assert [row["recipe"] for row in findings["models"]] == [recipe.name for recipe in SMALL.recipes]
    assert [row["step"] for row in findings["curves"]] == [0, 2, 4]
    assert set(findings["controls"]) >= {"shuffled", "format", "strange", "lora"}
    assert len(findings["tasks"]) == 7
    assert (finished / "results" / "tables.md").read_text().count("\n## ") == 10
    assert sum(path.stat().st_size for path in (finished / "results").iterdir()) < 200_000


def test_a_finished_study_is_read_and_gives_the_same_bytes(finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in (finished / "results").iterdir()}
    models = {path: path.stat().st_mtime_ns for path in finished.glob("models/*/model.safetensors")}
    run(SMALL, finished, finished / "again", workers=1)
    assert {path.name: path.read_bytes() for path in (finished / "again").iterdir()} == before
    assert {path: path.stat().st_mtime_ns for path in finished.glob("models/*/model.safetensors")} == models


def test_a_recipe_that_is_none_is_named_with_those_there_are() -> None:
    command = [sys.executable, "-m", "studies.laboratory", "--small", "--only", "lama"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "recipe 'lama' is unknown; known: llama-plain, gpt2-mute, gemma-long" in done.stderr
