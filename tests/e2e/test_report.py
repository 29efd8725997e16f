"""`softbench report` over finished runs: the page, the files for papers, and what is refused."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from softbench.cli import app
from softbench.errors import DataError, SoftbenchError, SpecError
from softbench.pipeline import run
from softbench.report.progress import LineProgress
from softbench.spec import read_spec

FIGURES = ["accuracy", "format_and_accuracy", "hidden", "learning", "cost"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stand-ins for models, two tasks, all methods, with checkpoints."""
    folder = tmp_path_factory.mktemp("out")
    methods = ["zero_shot", "few_shot", {"kind": "soft_prompt", "checkpoints": [0, 10]}]
    settings = {"engine": "fake", "tasks": ["capitals", "arithmetic"], "methods": methods, "limit": 20}
    models = {"models": ["one", "other"], "output_path": folder}
    run(read_spec(None, settings | models), LineProgress(Console(quiet=True)))
    return folder


def test_a_report_is_one_file_that_fetches_nothing(out: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(out), "--output-path", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert str(tmp_path / "report.html") in done.output.replace("\n", "")
    assert ", one scores " in page or ", other scores " in page
    assert "Content-Security-Policy" in page
    assert "default-src 'none'" in page.replace("&#39;", "'")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_same_runs_give_the_same_page(out: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert CliRunner().invoke(app, ["report", str(out), "--output-path", str(tmp_path / name)]).exit_code == 0
    assert (tmp_path / "a/report.html").read_bytes() == (tmp_path / "b/report.html").read_bytes()


def test_each_figure_and_table_goes_to_a_file_of_its_own(out: Path, tmp_path: Path) -> None:
    arguments = ["report", str(out / "one"), "--format", "svg,png,csv,markdown,latex", "--output-path", str(tmp_path)]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    endings = ("svg", "png", "csv", "md", "tex")
    wanted = sorted(f"{figure}.{ending}" for figure in FIGURES for ending in endings)
    assert sorted(path.name for path in tmp_path.iterdir()) == wanted
    assert sorted(Path(path).name for path in json.loads(done.stdout)["files"]) == wanted
    for figure in FIGURES:
        assert ElementTree.fromstring((tmp_path / f"{figure}.svg").read_text()).tag.endswith("svg")
        assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{figure}.csv").read_text().startswith("task,model,method")
        assert (tmp_path / f"{figure}.md").read_text().startswith("| task | model | method |")
        assert r"\toprule" in (tmp_path / f"{figure}.tex").read_text()


def test_json_tells_the_story(out: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(out), "--output-path", str(tmp_path), "--json"])
    sections = json.loads(done.stdout)["sections"]
    assert [one["name"] for one in sections] == ["standing", "hidden", "learning", "ranking", "cost"]
    assert all(one["question"].endswith("?") and one["answer"] for one in sections)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--format", "htm"], SpecError, "--format can't be 'htm'; did you mean 'html'"),
        (["--format", ""], SpecError, "--format can't be ''"),
        (["--post", "nowhere"], DataError, "'nowhere' holds no results_"),
    ],
)
def test_bad_input_gets_one_clear_line(
    out: Path, tmp_path: Path, arguments: list[str], error: type[SoftbenchError], message: str
) -> None:
    with pytest.raises(error, match=message):
        CliRunner().invoke(
            app, ["report", str(out), "--output-path", str(tmp_path), *arguments], catch_exceptions=False
        )
    assert list(tmp_path.iterdir()) == []


def test_a_run_given_twice_is_refused(out: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="two runs are of a model named 'one'"):
        CliRunner().invoke(
            app, ["report", str(out), str(out / "one"), "--output-path", str(tmp_path)], catch_exceptions=False
        )
