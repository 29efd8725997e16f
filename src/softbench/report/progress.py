"""Progress: a bar in a terminal, plain lines elsewhere, or nothing."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from softbench.report.plain import plain
from softbench.types import Advance, Progress

SECONDS_BETWEEN_LINES = 10.0
BESIDE_LABEL = 60
"""Columns that bar and numbers take: where a label leaves less, it gets a line of its own."""


def make_progress(console: Console, patience: float = 0.0) -> Progress:
    """The display that fits `console`: a BarProgress in a terminal that can draw one, else a LineProgress."""
    return BarProgress(console) if console.is_interactive else LineProgress(console, patience)


class BarProgress:
    """A bar with count, rate, a word on the side and time left; gone when its work ends, however it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def track(self, label: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show a bar for `total` units of work, of which `done` were there before."""
        started = time.perf_counter()
        with _Bar(self._console, plain(label)) as bar:
            task = bar.add_task(plain(label), total=total, completed=done, rate="", detail="")

            def advance(amount: int, detail: str = "") -> None:
                new = bar.tasks[0].completed + amount - done
                bar.update(task, advance=amount, rate=_pace(new, time.perf_counter() - started), detail=detail)

            yield advance

    def note(self, line: str) -> None:
        """Print a line."""
        _print(self._console, line)


class LineProgress:
    """A line when work ends, and every ten seconds before; none on work that ends within `patience` seconds."""

    def __init__(self, console: Console, patience: float = 0.0) -> None:
        self._console = console
        self._patience = patience

    @contextmanager
    def track(self, label: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Print lines on `total` units of work, of which `done` were there before; nothing where there is no work."""
        started = last = time.perf_counter()
        new = 0

        def advance(amount: int, detail: str = "") -> None:
            nonlocal new, last
            new += amount
            now = time.perf_counter()
            left = total - done - new
            wait = self._patience if left <= 0 else SECONDS_BETWEEN_LINES
            if now - (started if left <= 0 else last) < wait:
                return
            last, seconds = now, now - started
            remaining = f", {seconds / new * left:.0f} s left" if new and left > 0 else ""
            self.note(f"{label}: {done + new}/{total} in {seconds:.1f} s{remaining}{detail and ', '}{detail}")

        yield advance

    def note(self, line: str) -> None:
        """Print a line."""
        _print(self._console, line)


class _Bar(RichProgress):
    """One bar on one line, with its label before it, or above it where there is no room for both."""

    def __init__(self, console: Console, label: str) -> None:
        self._above = console.width - cell_len(label) < BESIDE_LABEL
        super().__init__(
            *(() if self._above else (TextColumn("{task.description}", markup=False),)),
            BarColumn(bar_width=12),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[rate]}"),
            _Detail(),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("left"),
            console=console,
            transient=True,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        if self._above:
            yield from (_one_line(task.description) for task in self.tasks)
        yield from super().get_renderables()


def _pace(units: float, seconds: float) -> str:
    """`3.5/s`, or where a unit takes longer than a second, `7.2 s each`."""
    return f"{seconds / units:.1f} s each" if 0 < units < seconds else f"{units / max(1e-9, seconds):.1f}/s"


class _Detail(ProgressColumn):
    """The word on the side, which gives way where there is no room."""

    def render(self, task: Task) -> Text:
        return _one_line(plain(task.fields["detail"]))


def _one_line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _print(console: Console, line: str) -> None:
    console.print(plain(line), markup=False, highlight=False, emoji=False, soft_wrap=True)
