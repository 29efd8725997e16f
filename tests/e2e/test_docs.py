"""What the documents show is run: Python blocks, YAML blocks and `softbench` commands; links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from softbench.spec import read_spec

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
    assert (len(blocks("python")), len(blocks("yaml")), len(commands())) == (1, 1, 1)


@pytest.mark.parametrize(("name", "block"), blocks("python"))
def test_a_python_block_runs_as_it_stands(name: str, block: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"soft_prompt: accuracy 0\.\d\d, format-following 0\.\d\d, n = 103", done.stdout)


@pytest.mark.parametrize(("name", "block"), blocks("yaml"))
def test_a_yaml_block_is_a_spec(name: str, block: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(block)
    assert len(read_spec(path, {}).methods) == 3


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
