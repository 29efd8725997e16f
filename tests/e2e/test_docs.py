"""What the documents show is run: Python blocks, YAML blocks and `softbench` commands; links lead somewhere."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from softbench.spec import read_spec
from softbench.tasks import formulations, get_task, load_data

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(language: str) -> list[tuple[str, str]]:
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(path.name, block) for path in DOCUMENTS for block in pattern.findall(path.read_text(encoding="utf-8"))]


def commands() -> list[str]:
    """Every `softbench run` line, continuations joined."""
    joined = "".join(block for _, block in blocks("bash")).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.startswith("softbench run")]


def test_there_is_something_to_run() -> None:
    assert [name for name, _ in blocks("python")] == ["README.md", "metrics.md", "tasks.md"]
    assert [name for name, _ in blocks("yaml")] == ["README.md", "metrics.md", "tasks.md"]
    assert len(commands()) == 2


PRINTED = {
    "README.md": r"soft_prompt: accuracy 0\.\d\d, format-following 0\.\d\d, n = 103",
    "metrics.md": r"^Estimate\(value=0\.\d+, low=0\.\d+, high=0\.\d+, n=103",
    "tasks.md": r"^ \\boxed\{300\}$",
}


@pytest.mark.parametrize(("name", "block"), blocks("python"))
def test_a_python_block_runs_as_it_stands(name: str, block: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTED[name], done.stdout, re.MULTILINE)


@pytest.mark.parametrize(("name", "block"), blocks("yaml"))
def test_a_yaml_block_is_a_spec_or_a_task(name: str, block: str, tmp_path: Path) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(block)
    if not block.startswith("task:"):
        assert len(read_spec(path, {}).methods) >= 3
        return
    rows = [{"question": f"{n} + 1?", "choices": [str(n), str(n + 1)], "answer": 1} for n in range(20)]
    (tmp_path / "quiz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for formulation in formulations(str(path)):
        assert len(load_data(get_task(f"{path}:{formulation}"), None).test) == 10


@pytest.mark.parametrize("command", commands())
def test_a_command_runs(command: str, tmp_path: Path) -> None:
    arguments = [*shlex.split(command)[1:], "--engine", "fake", "--limit", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "softbench", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "soft_prompt" in done.stdout


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_local_links_lead_to_files(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
