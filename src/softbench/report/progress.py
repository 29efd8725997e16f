"""Progress: a bar in a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from softbench.types import Advance, Progress

SECONDS_BETWEEN_LINES = 10.0


def make_progress(console: Console) -> Progress:
    """The display that fits `console`: a BarProgress in a terminal, else a LineProgress."""
    return BarProgress(console) if console.is_terminal else LineProgress(console)


class BarProgress:
    """A rich progress bar with rate, time left and a word on the side; gone when its work is done."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def track(self, label: str, total: int) -> Iterator[Advance]:
        """Show a bar for `total` units of work."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} {task.fields[detail]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with RichProgress(*columns, console=self._console, transient=True) as bar:
            started = time.perf_counter()
            task = bar.add_task(escape(label), total=total, rate="", detail="")

            def advance(amount: int, detail: str = "") -> None:
                done = bar.tasks[0].completed + amount
                rate = f"{done / max(1e-9, time.perf_counter() - started):.1f}/s"
                bar.update(task, advance=amount, rate=rate, detail=escape(detail))

            yield advance

    def note(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


class LineProgress:
    """A line when work begins and ends, and every ten seconds between."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def track(self, label: str, total: int) -> Iterator[Advance]:
        """Print lines on `total` units of work; nothing where there is no work."""
        started = last = time.perf_counter()
        done = 0

        def line(detail: str) -> None:
            seconds = time.perf_counter() - started
            left = f", {seconds / done * (total - done):.0f} s left" if 0 < done < total else ""
            detail = f", {detail}" if detail else ""
            self.note(f"{label}: {done}/{total} in {seconds:.1f} s{left}{detail}")

        def advance(amount: int, detail: str = "") -> None:
            nonlocal done, last
            done += amount
            if done >= total or time.perf_counter() - last >= SECONDS_BETWEEN_LINES:
                last = time.perf_counter()
                line(detail)

        yield advance

    def note(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
