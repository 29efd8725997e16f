"""What every command of softbench does: --json, tables of 80 columns, help that fits, silence when asked for.

Commands are found in the program itself: a new one fails here until it has an example.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.cells import cell_len
from typer.testing import CliRunner

from softbench.cli import app
from softbench.errors import SoftbenchError
from softbench.pipeline import run
from softbench.spec import read_spec
from softbench.types import SILENT

PASSED_ON = {("lm-eval",)}
"""Commands whose flags are another program's."""

LONG = "a-model-with-a-name-that-goes-on-and-on-for-longer-than-anybody-would-type-7b"
TASK = "a_task_of_ones_own_whose_name_is_longer_than_what_fits"


def leaves() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by its words."""

    def below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        commands = getattr(command, "commands", None)
        if words and (commands is None or command.invoke_without_command):
            yield words, command
        for word, other in (commands or {}).items():
            yield from below((*words, word), other)

    yield from below((), typer.main.get_command(app))


COMMANDS = dict(leaves())
# What each is called with, in a folder that holds what `workshop` makes.
EXAMPLES: dict[tuple[str, ...], list[str]] = {
    ("run",): ["--engine", "fake", "--model", "m", "--tasks", "capitals,mine.yaml", "--limit", "9", "--seed", "0,1"],
    ("tasks",): ["--include-path", "."],
    ("tasks", "show"): ["elements", "--num-fewshot", "2"],
    ("tasks", "check"): ["mine.yaml"],
    ("report",): ["out", "--format", "csv,markdown", "--output-path", "page"],
    ("score",): [f"out/{LONG}", "--parse", "--include-path", "."],
    ("compare",): [f"out/{LONG}@zero_shot", f"out/{LONG}@soft_prompt:seed=1"],
    ("rank",): ["all/a", f"all/{LONG}", "all/c", "--post", "all/c", "--post", "all/a", "--post", f"all/{LONG}"],
    ("track",): ["steps"],
    ("curve",): [f"out/{LONG}"],
    ("export-peft",): ["tuned", "adapter", "--model", "tiny"],
    ("push",): [f"out/{LONG}", "me/results", "--dry-run"],
    ("log",): [f"out/{LONG}", "--to", "trackio"],
    ("power",): ["0.02", "0.1"],
    ("doctor",): [],
    ("estimate",): ["--model", "tiny", "--model", f"org/{LONG}", "--tasks", "capitals,mine.yaml", "--seed", "0,1"],
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Any) -> Path:
    """Runs over the fake engine with names of every length, a task, a tiny model and a soft prompt of it."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "quiz.csv").write_text("q,a\n" + "".join(f"What is {n}?,it is {n}\n" for n in range(30)))
    (folder / "mine.yaml").write_text(
        f"task: {TASK}\ndata: quiz.csv\nquestion: 'Question: {{{{ q }}}}'\nanswers: a\ninstruction: {'long ' * 30}\n"
    )

    def make(out: str, *models: str, **settings: Any) -> None:
        named = [{"source": model, "name": model} for model in models]
        base: dict[str, Any] = {
            "models": named,
            "engine": "fake",
            "tasks": ["capitals", str(folder / "mine.yaml")],
            "limit": 30,
        }
        run(read_spec(None, base | {"output_path": folder / out, "num_fewshot": 2} | settings), SILENT)

    many = ["zero_shot", "few_shot", {"kind": "few_shot", "num_fewshot": 1}, "soft_prompt", "random_model"]
    make("out", LONG, checkpoints=[0, 10, 20], seeds=[0, 1])
    make("all", "a", LONG, "c", methods=[*many, {"kind": "soft_prompt", "labels": "shuffled"}])
    make("steps", *(f"{run}-step{step}" for run in ("x", "y", LONG, "z") for step in (100, 200, 1000000)))
    shutil.copytree(tiny_folder("llama"), folder / "tiny")
    own: dict[str, Any] = {
        "models": [str(folder / "tiny")],
        "tasks": ["capitals"],
        "methods": ["soft_prompt"],
        "dtype": "float32",
    }
    own |= {"steps": 1, "limit": 1, "output_path": folder / "own", "device": "cpu"}
    run(read_spec(None, own), SILENT)
    [tuned] = (folder / "own" / "tiny" / "tuned").iterdir()
    shutil.copytree(tuned, folder / "tuned")
    return folder


@pytest.fixture
def within(workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workshop as the working directory, 80 columns wide, with a tracker that talks too much."""
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("SOFTBENCH_DATA", raising=False)
    for made in ("softbench_out", "adapter"):
        shutil.rmtree(workshop / made, ignore_errors=True)
    (tmp_path / "trackio.py").write_text(
        "def init(**given): print('* hello from a tracker')\ndef log(*a, **b): print('.')\ndef finish(): print('bye')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def called(*arguments: str) -> tuple[str, str, int]:
    """What a command writes to stdout and to stderr, and its exit code."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return result.stdout, result.stderr, result.exit_code


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_every_command_has_an_example() -> None:
    assert set(EXAMPLES) == set(COMMANDS) - PASSED_ON


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_offers_json(words: tuple[str, ...]) -> None:
    options = {name for parameter in COMMANDS[words].params for name in parameter.opts}
    assert ("--json" in options) == (words not in PASSED_ON)


@pytest.mark.usefixtures("within")
@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_json_is_one_document_and_all_of_stdout(words: tuple[str, ...]) -> None:
    out, _, code = called(*words, *EXAMPLES[words], "--json")
    assert code == 0
    assert json.loads(out, parse_constant=no_constants)
    assert out.startswith(("{", "["))


@pytest.mark.usefixtures("within")
@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_what_is_printed_fits_80_columns(words: tuple[str, ...]) -> None:
    out, _, code = called(*words, *EXAMPLES[words])
    assert code == 0
    # Free text is wrapped by the terminal itself: notes, paths and prompts, which begin in one of these ways.
    free = r"(results|note|written|adapter|load it|logged): |\S+$|Give|Question|long "
    wide = [line for line in out.splitlines() if cell_len(line.rstrip()) > 80 and not re.match(free, line)]
    assert wide == []
    assert "…" not in out  # nothing is cut off


@pytest.mark.usefixtures("within")
@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_quiet_commands_say_nothing_on_stderr(words: tuple[str, ...]) -> None:
    out, err, code = called("--quiet", *words, *EXAMPLES[words])
    assert (code, err) == (0, "")
    assert out


@pytest.mark.usefixtures("within")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tasks", "check", "nowhere"], "'nowhere' is not there; give a task file"),
        (["report", "out", "--output-path", "mine.yaml"], "output path 'mine.yaml' is, or lies under, a file"),
        (["report", "out", "--format", "gif"], "--format can't be 'gif'"),
        (["estimate", "nowhere.yaml"], "spec file 'nowhere.yaml' does not exist"),
        (["estimate", "--model", "m-7B", "--tasks", "capitals", "--seed", "x"], "--seed can't be 'x'"),
        (["compare", "out", "nowhere"], "'nowhere' holds no results"),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
def test_bad_input_is_an_error_that_names_it(words: list[str], message: str) -> None:
    with pytest.raises(SoftbenchError, match=re.escape(message)):
        called(*words)


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_help_fits_80_columns_and_is_whole(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    if words in PASSED_ON:
        pytest.skip("its --help is another program's")
    out, _, code = called(*words, "--help")
    assert code == 0
    assert max(cell_len(line) for line in out.splitlines()) <= 80
    assert "…" not in out
    for parameter in COMMANDS[words].params if words else ():
        assert parameter.help, parameter.name
