"""Many samples, many models: commands finish, and what they hold in memory does not grow with what they read."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.load import SMALL, Measured, Sizes, commands, measure

MOST_MB = 900
"""What no command may hold: a third of it is libraries."""


def measured(folder: Path, sizes: Sizes) -> dict[str, Measured]:
    """What each command took, by name."""
    return {name: measure(arguments, folder) for name, arguments in commands(folder, sizes)}


def test_a_command_is_not_charged_what_its_starter_holds(tmp_path: Path) -> None:
    held = b"1" * 300_000_000
    own = "import softbench.pipeline; print(softbench.pipeline.peak_memory())"
    told = subprocess.run([sys.executable, "-c", own], capture_output=True, text=True, check=True).stdout
    assert measure(["-c", "pass"], tmp_path).peak < len(held) / 3
    assert 0 < int(told) < len(held)


def test_every_command_finishes_in_bounded_memory(tmp_path: Path) -> None:
    few = Sizes(samples=200, models=6, tasks=2, of_each=5)
    took = measured(tmp_path, few)
    assert len(took) == 15
    assert all(one.peak < MOST_MB * 1e6 for one in took.values()), took
    assert all((one.written > 0) for one in took.values()), took


@pytest.mark.slow
def test_ten_times_the_samples_take_less_than_twice_the_memory(tmp_path: Path) -> None:
    took = measured(tmp_path, SMALL)
    assert all(one.peak < MOST_MB * 1e6 for one in took.values()), took
    for command in ("run", "score", "compare", "report"):
        few, many = (one.peak for name, one in took.items() if name.startswith(f"{command}, ") and "samples" in name)
        assert many < 2 * few, command
