"""Finished runs are read back: as they were written, a job at a time, or not at all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softbench import executors
from softbench.errors import DataError
from softbench.runs import read_run
from softbench.spec import read_spec
from softbench.types import SILENT


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two jobs of ten samples by the fake engine."""
    settings = {"models": ["fake"], "tasks": ["capitals"], "methods": ["zero_shot", "few_shot"], "engine": "fake"}
    executors.run(read_spec(None, settings | {"limit": 10, "output_path": tmp_path}), SILENT)
    return tmp_path / "fake"


def change(run: Path, edit: Callable[[Any], None]) -> Path:
    """The results file, changed."""
    [path] = run.glob("results_*.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_records_are_read_when_they_are_asked_for(run: Path) -> None:
    for path in run.glob("jobs/*few_shot*/records.jsonl"):
        path.unlink()
    first, second = read_run(str(run))
    assert (len(first.records), len(second.records)) == (10, 10)
    assert [record.doc_id for record in first.records] == [one.doc_id for one in first.outcomes] == list(range(10))
    with pytest.raises(DataError, match="can't be read"):
        list(second.records)


def test_records_that_are_fewer_than_the_results_file_says_are_not_taken_for_all(run: Path) -> None:
    path = next(run.glob("jobs/*zero_shot*/records.jsonl"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:7]))
    job = read_run(f"{run}@zero_shot")[0]
    with pytest.raises(DataError, match="has 7 records where 10 are wanted; run the same command again"):
        list(job.records)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda one: one.pop("softbench"), "softbench: Field required"),
        (lambda one: one["softbench"].update(model=None), "softbench.model: Input should be"),
        (lambda one: one["softbench"].update(jobs={}), "softbench.jobs: Input should be a valid list"),
        (lambda one: one["softbench"]["jobs"][0].update(task="x"), "has a job on task 'x', and says nothing of that"),
        (
            lambda one: one["softbench"]["jobs"][0].update(files=7),
            r"softbench.jobs.0.files: Input should be a valid str",
        ),
        (lambda one: one["softbench"]["jobs"][0].update(cost=None), "softbench.jobs.0.cost"),
        (lambda one: one["softbench"]["jobs"][0].update(metrics=[]), "softbench.jobs.0.metrics"),
        (lambda one: one["softbench"]["tasks"]["capitals"].pop("template_hash"), "template_hash: Field required"),
        (lambda one: one["softbench"]["tasks"]["capitals"].update(splits={}), "splits.test: Field required"),
        (lambda one: one.update({"n-samples": {"capitals": {"effective": -1}}}), "n-samples.capitals.effective"),
        (lambda one: one.update(date=float("nan")), "not JSON compliant"),
        (lambda one: one["softbench"]["model"].update(name="\x1b[2J"), r"holds characters that can't be printed"),
        (lambda one: one["softbench"]["jobs"][0].update(label="a\u202eb"), r"'a\\u202eb' holds characters"),
    ],
)
def test_a_results_file_that_is_not_as_it_was_written_is_named(
    edit: Callable[[Any], None], message: str, run: Path
) -> None:
    path = change(run, edit)
    with pytest.raises(DataError, match=message) as caught:
        read_run(str(run))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_results_file_can_t_name_records_elsewhere(run: Path, tmp_path: Path) -> None:
    """Only the last part of a job's `files` counts."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "records.jsonl").write_text("secret")
    change(run, lambda one: one["softbench"]["jobs"][0].update(files="../../elsewhere"))
    with pytest.raises(DataError, match="jobs/elsewhere/records.jsonl can't be read"):
        list(read_run(str(run))[0].records)
