"""`softbench compare` over finished runs: what is paired, what is refused, what is printed."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from softbench.cli import app
from softbench.errors import DataError, SoftbenchError, SpecError
from softbench.pipeline import run
from softbench.report.compare import comparisons, pair_jobs
from softbench.report.progress import LineProgress
from softbench.runs import read_run
from softbench.spec import read_spec


def make(out: Path, model: str = "fake", **settings: Any) -> Path:
    base = {"models": [model], "engine": "fake", "tasks": ["capitals"], "limit": 60, "output_path": out}
    [results] = run(read_spec(None, base | settings), LineProgress(Console(quiet=True)))
    return results.path.parent


def test_methods_of_one_run_are_compared(tmp_path: Path) -> None:
    folder = make(tmp_path, tasks=["capitals", "arithmetic"])
    before, after = read_run(f"{folder}@few_shot"), read_run(f"{tmp_path}@soft_prompt")
    assert [job.task for job in before] == ["capitals", "arithmetic"]
    compared = comparisons(pair_jobs(before, after, force=False), seed=0)
    assert len(compared) == 2
    for (one, other), comparison, adjusted in compared:
        values = [job.block["metrics"]["accuracy"]["value"] for job in (one, other)]
        assert comparison.accuracy.value == pytest.approx(values[1] - values[0])
        assert sum(part.value or 0.0 for part in comparison.by_item.values()) == pytest.approx(values[1] - values[0])
        assert comparison.n == 60
        assert comparison.p_value is not None
        assert adjusted is not None
        assert adjusted >= comparison.p_value


def test_models_are_compared_method_by_method(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a"), make(tmp_path / "b", model="other")
    pairs = pair_jobs(read_run(str(one)), read_run(str(other)), force=False)
    assert [(before.name, after.name) for before, after in pairs] == [
        (f"fake@{method}", f"other@{method}") for method in ("zero_shot", "few_shot", "soft_prompt")
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": 50}, r"differ in samples \(60 and 50\), so that their scores are not comparable; give --force"),
        ({"tasks": ["elements"]}, "have no task and method in common"),
        ({"methods": ["zero_shot", "few_shot"]}, "have no task and method in common"),
    ],
)
def test_what_is_not_comparable_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    one = make(tmp_path / "a", methods=["soft_prompt"])
    other = make(tmp_path / "b", "fake", **({"methods": ["soft_prompt"]} | settings))
    with pytest.raises(SpecError, match=message):
        pair_jobs(read_run(str(one)), read_run(str(other)), force=False)
    if "limit" in settings:
        [(_, comparison, _)] = comparisons(pair_jobs(read_run(str(one)), read_run(str(other)), force=True), 0)
        assert comparison.n == 50


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    folder = make(tmp_path)
    arguments = ["compare", f"{folder}@zero_shot", f"{folder}@soft_prompt"]
    printed = CliRunner().invoke(app, arguments).output
    assert "capitals: fake@soft_prompt minus fake@zero_shot" in printed
    assert re.search(r"^test samples +60$", printed, re.MULTILINE)
    assert "McNemar's p" in printed
    [block] = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert f"samples that one alone has right: the first 10 of {len(block['differing_samples'])}" in printed
    assert len(re.findall(r"^capitals-.* NO_ANSWER .* OK ", printed, re.MULTILINE)) == 10
    assert max(map(len, printed.splitlines())) <= 80
    assert block["before"] == "fake@zero_shot"
    assert block["by_item"]["unlocked"]["n"] == 60


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere", "'nowhere' holds no results_.*.json"),
        ("fake@few_shots", "has no method 'few_shots'; did you mean 'few_shot'?"),
        ("broken", "is not a results file of softbench"),
        ("lost", "records.jsonl can't be read"),
        (".", "holds runs of several models; give one of"),
    ],
)
def test_a_run_that_is_not_there_is_a_clear_error(
    reference: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "results_1.json").write_text("{}")
    lost = make(tmp_path, model="lost", methods=["zero_shot"])
    next(lost.glob("jobs/*/records.jsonl")).unlink()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        list(itertools.chain.from_iterable(job.records for job in read_run(reference)))
    assert isinstance(caught.value, SoftbenchError)
