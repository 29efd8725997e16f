"""The study on real models, on tiny ones: from runs to tables."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from studies.real_small.run import run
from studies.real_small.study import BASE, FULL, POST
from tests.tiny import save_tiny_model

SMALL = replace(
    FULL,
    tasks=("capitals", "arc_challenge:mcf"),
    control_tasks=("capitals", "arc_challenge:mcf"),
    limit=4,
    num_fewshot=1,
    checkpoints=(1,),
    seeds=(0, 1),
    resamples=200,
)


def test_all_tables_are_written_and_a_finished_study_gives_the_same_bytes(data_dir: Path, tmp_path: Path) -> None:
    for architecture in ("llama", "qwen3"):
        save_tiny_model(architecture, tmp_path / architecture, max_position_embeddings=1024)  # examples are long
    models = {BASE: {"source": str(tmp_path / "llama")}, POST: {"source": str(tmp_path / "qwen3")}}
    form = replace(SMALL, settings={"dtype": "float32", "device": "cpu", "data_dir": data_dir, "steps": 3})
    for name in ("results", "again"):
        run(form, models, tmp_path / "out", tmp_path / name)
    assert json.loads((tmp_path / "results" / "findings.json").read_text())["seeds"] == [0, 1]
    run(form, {}, tmp_path / "nowhere", tmp_path / "again")  # from outcomes alone
    findings = json.loads((tmp_path / "results" / "findings.json").read_text())
    assert len(findings["scores"]) == 2 * 3
    assert [(row["model"], row["minus"]) for row in findings["differences"]] == [
        (model, before) for model in (BASE, POST) for before in ("zero_shot", "few_shot")
    ]
    assert [row["step"] for row in findings["curves"]] == [1, 3] * 2
    assert [row["method"] for row in findings["controls"]] == [
        "zero_shot", "few_shot", "soft_prompt", "soft_prompt:labels=shuffled", "soft_prompt:loss_on=format",
        "majority", "random_model", "lora", "soft_prompt:options=shuffled",
    ]  # fmt: skip
    for row in findings["differences"]:
        parts = sum(row[name]["value"] for name in ("unlocked", "new", "lost", "changed"))
        assert parts == pytest.approx(row["accuracy"]["value"], abs=1e-3)
    names = {path.name for path in (tmp_path / "results").iterdir()}
    main = {f"main-{model}-seed{seed}.jsonl" for model in (BASE, POST) for seed in (0, 1)}
    assert names == {*main, f"controls-{BASE}-seed0.jsonl", "findings.json", "tables.md"}
    for name in names:
        assert (tmp_path / "results" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
