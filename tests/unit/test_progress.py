"""Progress: bars leave nothing behind, lines are plain, and time left does not count what was there before."""

import contextlib
import io
import re

import pytest
from rich.console import Console

from softbench.report import progress as module
from softbench.report.progress import BarProgress, LineProgress, make_progress
from softbench.types import SILENT

LONG = "a-model-of-a-long-name arc_challenge:mcf:json soft_prompt:labels=shuffled: evaluate"


class Clock:
    """A time.perf_counter that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def terminal(width: int = 80) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=True, force_interactive=True, width=width, color_system=None), written


def lines() -> tuple[LineProgress, io.StringIO]:
    written = io.StringIO()
    return LineProgress(Console(file=written, width=40)), written


def screen(written: str) -> list[str]:
    """What a terminal shows after `written`: of its control codes, those for moving up and clearing a line count."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[\??\d*[A-Za-z]|\n|\r|[^\x1b\n\r]+", written):
        if part == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif part == "\r":
            column = 0
        elif part.startswith("\x1b["):
            number = int("".join(filter(str.isdigit, part)) or 1)
            if part.endswith("A"):
                row -= number
            elif part == "\x1b[2K":
                rows[row] = ""
        else:
            rows[row] = rows[row].ljust(column)[:column] + part + rows[row][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in rows if line.strip()]


@pytest.mark.parametrize("label", ["load", LONG])
def test_a_bar_is_gone_when_its_work_is_done(label: str) -> None:
    console, written = terminal()
    progress = BarProgress(console)
    with progress.track(label, 3) as advance:
        advance(1, "loss 1.234")
        progress.note("a note")
        advance(2)
    assert "3/3" in written.getvalue()
    assert screen(written.getvalue()) == ["a note"]


def test_a_bar_is_gone_after_an_error() -> None:
    console, written = terminal()
    with contextlib.suppress(KeyboardInterrupt), BarProgress(console).track(LONG, 3) as advance:
        advance(1)
        raise KeyboardInterrupt
    assert "1/3" in written.getvalue()
    assert screen(written.getvalue()) == []
    assert written.getvalue().rindex("\x1b[?25h") > written.getvalue().rindex("\x1b[?25l")  # the cursor is back


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("label", ["load", LONG, "[bold]:fire:"])
def test_a_bar_shows_its_numbers_whatever_its_label(width: int, label: str) -> None:
    console, written = terminal(width)
    with BarProgress(console).track(label, 12345) as advance:
        advance(678, "loss 0.123, and more than there is room for: " + 9 * "more ")
    shown = [line for line in re.split(r"[\n\r]|\x1b\[[0-9?]*[A-Za-z]", written.getvalue()) if line.strip()]
    assert max(map(len, shown)) <= width
    numbers = next(line for line in reversed(shown) if "/12345" in line)
    assert "678/12345" in numbers
    assert re.search(r"\d:\d\d:\d\d left|-:--:-- left", numbers)
    assert any(line.startswith(label[: width - 1]) for line in shown)


def test_lines_say_how_far_and_how_long(clock: Clock) -> None:
    progress, written = lines()
    with progress.track(LONG, 10) as advance:
        clock.now += 5
        advance(1)
        clock.now += 5
        advance(1, "loss 0.5")
        clock.now += 5
        advance(8)
    assert written.getvalue().splitlines() == [
        f"{LONG}: 2/10 in 10.0 s, 40 s left, loss 0.5",
        f"{LONG}: 10/10 in 15.0 s",
    ]


def test_time_left_does_not_count_what_was_there_before(clock: Clock) -> None:
    progress, written = lines()
    with progress.track("evaluate", 100, done=80) as advance:
        clock.now += 10
        advance(5)
    assert written.getvalue() == "evaluate: 85/100 in 10.0 s, 30 s left\n"


def test_short_work_is_not_told_where_nobody_waits_for_it(clock: Clock) -> None:
    written = io.StringIO()
    progress = make_progress(Console(file=written), patience=2.0)
    assert isinstance(progress, LineProgress)
    for seconds in (1, 3):
        with progress.track(f"{seconds} s", 1) as advance:
            clock.now += seconds
            advance(1)
    assert written.getvalue() == "3 s: 1/1 in 3.0 s\n"


def test_lines_are_plain(clock: Clock) -> None:
    progress, written = lines()
    with progress.track("[bold]:fire: \x1b", 1) as advance:
        advance(1)
    assert written.getvalue().startswith("[bold]:fire: ")
    assert "\x1b" not in written.getvalue()


def test_a_terminal_that_can_t_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_progress(terminal()[0]), BarProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_progress(Console(file=io.StringIO(), force_terminal=True)), LineProgress)


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with SILENT.track("work", 2) as advance:
        advance(1)
    SILENT.note("a note")
    assert capsys.readouterr() == ("", "")


def test_a_pace_is_units_a_second_or_seconds_a_unit(clock: Clock) -> None:
    for seconds, told in ((2.0, "2.0/s"), (8.0, "2.0 s each")):
        console, written = terminal()
        with BarProgress(console).track("tune", 10) as advance:
            clock.now += seconds
            advance(4)
        assert f"4/10 {told} " in written.getvalue()
