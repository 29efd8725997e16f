"""`softbench score`: metrics from saved records, and verdicts by today's parsers."""

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from softbench.answer_formats import AnswerFormat
from softbench.answer_kinds import SHORT_TEXT
from softbench.cli import app
from softbench.report.score import read_again, rescore, score_tables
from softbench.runs import read_run
from softbench.tasks import get_task
from softbench.types import Status
from tests.e2e.test_compare import make


def test_saved_records_give_the_runs_own_metrics(tmp_path: Path) -> None:
    folder = make(tmp_path, tasks=["capitals", "arithmetic"])
    printed = json.loads(CliRunner().invoke(app, ["score", str(folder), "--json"]).output)
    assert [(one["task"], one["method"]) for one in printed] == [
        (task, method) for task in ("capitals", "arithmetic") for method in ("zero_shot", "few_shot", "soft_prompt")
    ]
    for one, job in zip(printed, read_run(str(folder)), strict=True):
        assert one["metrics"] == job.block["metrics"]
        assert one["changed"] == 0


def test_the_same_parsers_give_the_same_verdicts(tmp_path: Path) -> None:
    folder = make(tmp_path)
    again = json.loads(CliRunner().invoke(app, ["score", str(folder), "--parse", "--json"]).output)
    assert [one["changed"] for one in again] == [0, 0, 0]
    printed = CliRunner().invoke(app, ["score", str(folder)]).output
    assert "soft_prompt" in printed
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 80


def test_another_parser_gives_other_verdicts_and_says_how_many(tmp_path: Path) -> None:
    [job] = read_run(f"{make(tmp_path)}@soft_prompt")
    # As if the form had been without its second arrow: what was in form no longer is.
    stricter = dataclasses.replace(get_task("capitals"), answer_format=AnswerFormat("other", "=> {answer}", SHORT_TEXT))
    records = [read_again(record, stricter) for record in job.records]
    in_form = sum(record.status is Status.OK for record in job.records)
    assert in_form > 50
    assert not any(record.status is Status.OK for record in records)
    assert [one.completion for one in records] == [one.completion for one in job.records]
    [scored] = rescore([job], {"capitals": stricter})
    assert scored.changed == in_form
    assert scored.metrics["format_following"].value == 0.0
    assert [table.row_count for table in score_tables([scored])] == [1]


def test_a_task_that_is_no_longer_there_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("task: mine\ndata: rows.json\nquestion: '{{ q }}'\nanswers: a\n")
    (tmp_path / "rows.json").write_text(json.dumps([{"q": f"{n}?", "a": str(n)} for n in range(20)]))
    folder = make(tmp_path / "out", tasks=[str(tmp_path / "mine.yaml")], num_fewshot=2)
    assert CliRunner().invoke(app, ["score", str(folder), "--parse", "--include-path", str(tmp_path)]).exit_code == 0
    with pytest.raises(ValueError, match="task 'mine' is unknown"):
        CliRunner().invoke(app, ["score", str(folder), "--parse"], catch_exceptions=False)
