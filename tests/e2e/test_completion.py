"""What TAB offers, asked as a shell asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "scipy", "datasets")


def offered(line: str, cwd: Path) -> list[str]:
    """The completions of the last word of `line`; none of the heavy libraries may be loaded for them."""
    words = line.split(" ")
    program = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('HEAVY', sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr))\n"
        "from softbench.cli import main\nmain()"
    )
    asked = {"_SOFTBENCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stderr == "HEAVY []\n"
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("softbench run --tasks arc", ["arc_challenge", "arc_easy"]),
        ("softbench run --tasks capitals,el", ["capitals,elements"]),
        ("softbench run --tasks capitals,cap", []),
        ("softbench run --methods zero_shot,", [
            f"zero_shot,{name}" for name in ("few_shot", "soft_prompt", "majority", "random_model", "lora")
        ]),
        ("softbench run --engine ", ["transformers", "vllm", "fake"]),
        ("softbench run --executor ", ["serial", "ray"]),
        ("softbench run --dtype ", ["auto", "float32", "bfloat16"]),
        ("softbench run --device-map ", ["auto", "balanced", "sequential"]),
        ("softbench run --fewshot-sampling b", ["balanced"]),
        ("softbench run --formulation ", ["mcf", "cf", "generation"]),
        ("softbench run --answer-format js", ["json"]),
        ("softbench log out --to ", ["wandb", "trackio"]),
        ("softbench tasks show cap", ["capitals"]),
        ("softbench tasks s", ["show"]),
        ("softbench ex", ["export-peft"]),
    ],
)  # fmt: skip
def test_tab_offers_what_fits(line: str, wanted: list[str], tmp_path: Path) -> None:
    assert offered(line, tmp_path) == wanted


def test_tab_knows_tasks_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("task: cap_quiz\ndata: quiz.csv\nquestion: '{{ q }}'\nanswers: a\n")
    assert offered("softbench run --include-path . --tasks cap", tmp_path) == ["cap_quiz", "capitals"]
    assert offered("softbench run --include-path nowhere --tasks cap", tmp_path) == ["capitals"]
