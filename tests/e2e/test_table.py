"""The table at the end of `softbench run`: a line a row where there is room, names whole."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from softbench.cli import app

NAME = "a-model-with-a-rather-long-name-7b-step-100000"


def table(out: Path, monkeypatch: pytest.MonkeyPatch, columns: str | None) -> list[str]:
    """What a run of one task by three methods prints, with so many columns; None: in a pipe."""
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    arguments = ["--engine", "fake", "--model", NAME, "--tasks", "capitals", "--limit", "9", "--output-path", str(out)]
    done = CliRunner().invoke(app, ["run", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    printed, _, _ = done.stdout.partition("\n\n")
    return printed.splitlines()


@pytest.mark.parametrize("columns", [None, "200"])
def test_names_are_whole_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    heading, *rows = table(tmp_path, monkeypatch, columns)
    assert heading.split()[:3] == ["model", "task", "method"]
    assert [row.split()[:2] for row in rows] == [[NAME, "capitals"]] * 3
    assert len(heading) > 164  # more than what a name of the usual length needs


@pytest.mark.parametrize("columns", ["80", "165"])
def test_a_terminal_that_a_row_does_not_fit_gets_a_table_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    title, _, *rows = table(tmp_path, monkeypatch, columns)
    assert title.rstrip() == f"{NAME}  capitals"
    assert max(map(len, rows)) <= 80
    assert sum("zero_shot" in row for row in rows) == 1
