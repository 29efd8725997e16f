"""Tables of numbers: names give way, numbers do not."""

import pytest
from rich.console import Console

from softbench.report.grid import broken, grid, grouped

LONG = "soft_prompt:labels=shuffled:loss_on=format:learning_rate=0.1:seed=1"


def drawn(width: int, labels: int, numbers: int) -> str:
    table = grid("a title " * 20, [f"label {place}" for place in range(labels)], [LONG] * numbers)
    for _ in range(2):
        table.add_row(*[LONG] * labels, *["100.0 %\n[100.0, 100.0]"] * numbers)
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.mark.parametrize("labels", [1, 2])
def test_long_names_push_no_number_off(labels: int) -> None:
    lines = drawn(80, labels, 4).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert sum(line.count("[100.0, 100.0]") for line in lines) == 2 * 4
    assert sum(line.count("100.0 %") for line in lines) == 2 * 4
    assert not any("…" in line for line in lines)


def test_names_are_broken_where_words_end() -> None:
    assert broken("format-following", 14) == "format-\nfollowing"
    assert broken("accuracy|format", 14) == "accuracy|\nformat"
    assert broken("decides as the last", 14) == "decides as the\nlast"
    assert broken("short", 14) == "short"
    assert broken("x" * 30, 14) == f"{'x' * 14}\n{'x' * 14}\nxx"
    assert broken(LONG, 14).replace("\n", "") == LONG
    assert max(map(len, broken(LONG, 14).split("\n"))) <= 14


def test_groups_are_of_about_one_size() -> None:
    assert grouped("abcde", 4) == ["abc", "de"]
    assert grouped("abcd", 4) == ["abcd"]
    assert grouped("", 4) == []
