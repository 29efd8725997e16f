"""What the documents show works: each fenced block is run, or as far as it can be here, and links lead somewhere.

Bash lines of a document are run in their order, in a folder that holds what they speak of: models, runs, spec and task
files. A `text` block stands behind a `bash` block and is what its last line prints.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from typer.testing import CliRunner

import softbench
from scripts.docs_hooks import commands
from softbench import executors
from softbench.cli import app
from softbench.results import Results
from softbench.spec import Spec, read_spec
from softbench.tasks import formulations, get_task, load_data
from softbench.types import Progress

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = {str(path.relative_to(ROOT)): path for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])}
# Every fenced block there is, by document and language: one that is added is counted here.
BLOCKS: dict[str, dict[str, int]] = {
    "CONTRIBUTING.md": {"bash": 1},
    "README.md": {"bash": 3, "python": 1, "yaml": 1},
    "docs/api.md": {"python": 1},
    "docs/coming_from_lm_eval.md": {"bash": 1},
    "docs/ecosystem.md": {"bash": 3, "python": 1},
    "docs/extend.md": {"bash": 1, "python": 2, "yaml": 2},
    "docs/fairness.md": {"bash": 4, "yaml": 2},
    "docs/first_report.md": {"bash": 5, "text": 4},
    "docs/format_and_tokens.md": {"bash": 1},
    "docs/index.md": {"bash": 4},
    "docs/learning_rate.md": {"bash": 1},
    "docs/method.md": {"bash": 1, "yaml": 1},
    "docs/metrics.md": {"python": 1, "yaml": 1},
    "docs/scale_out.md": {"bash": 3},
    "docs/tasks.md": {"bash": 1, "python": 1, "yaml": 1},
    "docs/vllm.md": {"bash": 2},
}
# What each Python block prints.
PRINTED = {
    "README.md": r"soft_prompt: accuracy 0\.\d\d, format-following 0\.\d\d, n = 103",
    "docs/api.md": r"^soft prompt 1\.0 1\.0$",
    "docs/ecosystem.md": r"^\(1, \d+, 400\)$",
    "docs/extend.md": r"^(zero_shot format 1\.0 accuracy|shortest_first accuracy) Estimate\(value=0\.\d+, .*n=103",
    "docs/metrics.md": r"^Estimate\(value=0\.\d+, low=0\.\d+, high=0\.\d+, n=103",
    "docs/tasks.md": r"^ \\boxed\{300\}$",
}


class Block(NamedTuple):
    document: str
    language: str
    text: str


def blocks_of(name: str) -> list[Block]:
    text = DOCUMENTS[name].read_text(encoding="utf-8")
    fences = re.finditer(r"^```(.*?)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(name, *fence.groups()) for fence in fences]


ALL = [block for name in DOCUMENTS for block in blocks_of(name)]


def of(language: str) -> list[Block]:
    return [block for block in ALL if block.language == language]


def test_every_block_is_one_that_is_run() -> None:
    found = {name: dict(Counter(block.language for block in blocks_of(name))) for name in DOCUMENTS}
    assert {name: counts for name, counts in found.items() if counts} == BLOCKS
    assert {block.language for block in ALL} == {"bash", "python", "text", "yaml"}
    for name, path in DOCUMENTS.items():
        assert path.read_text(encoding="utf-8").count("```") == 2 * sum(found[name].values()), name


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_stand_in_fences_where_they_are_run(name: str) -> None:
    outside = re.sub(r"^```.*?^```$", "", DOCUMENTS[name].read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(rf"^ {{4}}(?:{'|'.join(CHECKS)}|import|from) .*", outside, re.MULTILINE)


@pytest.mark.parametrize("block", of("python"), ids=lambda block: block.document)
def test_a_python_block_runs_as_it_stands(block: Block, workshop: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=workshop, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTED[block.document], done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("block", of("yaml"), ids=lambda block: block.document)
def test_a_yaml_block_is_a_spec_or_a_task(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(block.text)
    if not block.text.startswith("task:"):
        assert len(read_spec(path, {}).methods) >= 3
        return
    data = yaml.safe_load(block.text)["data"]
    for place, name in enumerate([data] if isinstance(data, str) else data.values()):
        write_quiz(tmp_path / name, start=100 * place)
    for formulation in formulations(str(path)):
        assert len(load_data(get_task(f"{path}:{formulation}"), None).test) >= 10


def write_quiz(path: Path, start: int = 0) -> None:
    rows = [{"question": f"{n} + 1?", "choices": [str(n), str(n + 1)], "answer": 1} for n in range(start, start + 20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


# Bash: what a line needs, and how far each command is run.

MODELS = ["org/base-model", "stand-in", "a", "b", "c", "a-it", "b-it", "c-it", "step1000", "step2000", "step4000"]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    """A folder with what the documents name: `org/base-model` with a soft prompt and adapter, runs, spec, task."""
    folder = tmp_path_factory.mktemp("stock")
    (folder / "spec.yaml").write_text("models: [org/base-model]\ntasks: [capitals]\n")
    (folder / "quiz.yaml").write_text("task: my_quiz\ndata: quiz.jsonl\nquestion: '{{ question }}'\nanswers: answer\n")
    write_quiz(folder / "quiz.jsonl")
    shutil.copytree(tiny_folder("llama"), folder / "org" / "base-model")
    softbench.run(MODELS, ["capitals"], engine="fake", limit=20, checkpoints=[0, 10, 20], output_path=folder / "out")
    tuned = folder / "out" / "base-model" / "tuned" / "capitals-soft_prompt-1a2b3c4d5e6f"
    softbench.tune(
        str(folder / "org" / "base-model"), "capitals", steps=2, dtype="float32", device="cpu", output_path=tuned
    )
    invoke(["export-peft", str(tuned), str(folder / "adapter"), "--model", str(folder / "org" / "base-model")])
    return folder


@pytest.fixture
def workshop(stock: Path, tmp_path: Path) -> Path:
    """A copy of the stock, to work in."""
    return shutil.copytree(stock, tmp_path / "workshop")


class Line(NamedTuple):
    """A line of a bash block, and what it must print where the document says so."""

    words: list[str]
    printed: str | None


def lines_of(name: str) -> Iterator[Line]:
    found = [block for block in blocks_of(name) if block.language in ("bash", "text")]
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.language == "bash":
            lines = [shlex.split(line, comments=True) for line in block.text.replace("\\\n", " ").splitlines()]
            *before, last = filter(None, lines)
            yield from (Line(words, None) for words in before)
            yield Line(last, following.text if following and following.language == "text" else None)


@pytest.mark.parametrize("name", [name for name, counts in BLOCKS.items() if "bash" in counts])
def test_the_commands_of_a_document_work_in_order(name: str, workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("COLUMNS", "80")
    for words, printed in lines_of(name):
        done = CHECKS[words[0]](words[1:])
        if printed is not None:
            assert plain(done) == plain(printed), " ".join(words)


def plain(output: str) -> str:
    """The output without what differs from run to run: times of files, and spaces at the ends of lines."""
    lines = re.sub(r"results_[\d.T-]+\.json", "results_<time>.json", output).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()


def invoke(arguments: list[str]) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, f"softbench {shlex.join(arguments)}: {done.output}{done.exception!r}"
    return done.stdout


def run_softbench(words: list[str]) -> str:
    """Run a command of softbench: models by a stand-in, three samples; uploads and clusters as far as their door."""
    if words[0] == "run" and "ray" in words:
        return invoke_up_to_the_cluster(words)
    if words[0] == "run" and "fake" not in words:
        words = [*words, "--engine", "fake", "--limit", "3"]
    if words[0] == "push":
        words = [*words, "--dry-run"]
    if words[0] == "log":
        check_flags(words)
        return ""
    if words[0] == "lm-eval":
        return parse_lm_eval(["--model", "softbench", *words[1:]])
    return invoke(words)


def invoke_up_to_the_cluster(words: list[str]) -> str:
    specs: list[Spec] = []

    def note(spec: Spec, progress: Progress) -> list[Results]:
        specs.append(spec)
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "run", note)
        invoke(words)
    assert specs[0].executor == "ray"
    return ""


def check_flags(words: list[str]) -> None:
    """`words` name a command and, of options, those that it has."""
    known = dict(commands())
    name = max((name for name in known if f"softbench {' '.join(words)} ".startswith(f"{name} ")), key=len)
    assert name != "softbench" or words[0].startswith("-"), f"no command: {words}"
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert name == "softbench lm-eval" or flags <= {
        "--help",
        *(flag for one in known[name].params for flag in one.opts),
    }


def parse_lm_eval(words: list[str]) -> str:
    """lm-evaluation-harness understands its flags; its data come from the hub."""
    harness = pytest.importorskip("lm_eval._cli.harness", reason="lm-eval is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lm_eval", *words])
        assert harness.HarnessCLI().parse_args().tasks
    return ""


def check_make(words: list[str]) -> str:
    subprocess.run(["make", "--dry-run", *words], cwd=ROOT, check=True, capture_output=True)
    return ""


def check_pip(words: list[str]) -> str:
    """What is installed is softbench, with extras that it has."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    match = re.fullmatch(r"install (?:-e \.|softbench)(?:\[([\w,-]+)\])?", " ".join(words))
    assert match is not None, words
    assert set((match[1] or "gguf").split(",")) <= set(extras)
    return ""


def check_python(words: list[str]) -> str:
    """`python -m MODULE`: the module is there and knows the flags."""
    assert words[0] == "-m"
    source = (ROOT / words[1].replace(".", "/")).with_suffix(".py").read_text()
    assert [word for word in words if word.startswith("--") and f'"{word}"' not in source] == []
    return ""


def check_ray(words: list[str]) -> str:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'softbench[ray]'")
    command = [sys.executable, "-m", "ray.scripts.scripts", words[0], "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [word for word in words[1:] if word.partition("=")[0] not in shown] == []
    return ""


def check_sbatch(words: list[str]) -> str:
    """The script is there, and what it hands on is understood."""
    [script] = [word for word in words if word.endswith(".sh")]
    assert os.access(ROOT / script, os.X_OK)
    return run_softbench(["run", *words[words.index(script) + 1 :], "--executor", "ray"])


CHECKS: dict[str, Callable[[list[str]], str]] = {
    "softbench": run_softbench,
    "lm_eval": parse_lm_eval,
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    "ray": check_ray,
    "sbatch": check_sbatch,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_named_in_a_sentence_exist_with_their_flags(name: str) -> None:
    for command in re.findall(r"`softbench ([^`]+)`", DOCUMENTS[name].read_text(encoding="utf-8")):
        if not command.startswith("COMMAND"):
            check_flags(command.split())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_local_links_lead_to_files(name: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", DOCUMENTS[name].read_text(encoding="utf-8")):
        assert (DOCUMENTS[name].parent / target).exists(), target
