"""What a command writes, and where: results to stdout, everything else to stderr, as much as was asked for."""

import contextlib
import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from softbench.errors import SpecError
from softbench.report.plain import plain
from softbench.report.progress import make_progress
from softbench.types import SILENT, Progress


class Level(IntEnum):
    """How much a command says."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors alone.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Tell more: what is resumed, which way a model is run, libraries' logs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document in place of tables.")]


def level_of(quiet: bool, verbose: bool) -> Level:
    """The level that two flags ask for. Raises SpecError where both are given."""
    if quiet and verbose:
        raise SpecError("--quiet and --verbose are both given; drop one")
    return Level.QUIET if quiet else Level.VERBOSE if verbose else Level.NORMAL


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a command's output goes; `stdout` is the real one, which under --json nobody else writes to."""

    level: Level
    as_json: bool
    stdout: TextIO

    def progress(self, patience: float = 2.0) -> Progress:
        """A display of progress on stderr; where that is no terminal, work within `patience` seconds is not told."""
        return SILENT if self.level is Level.QUIET else make_progress(Console(stderr=True), patience)

    @property
    def width(self) -> int:
        """Columns of stdout."""
        return Console().width

    def show(self, parts: Iterable[RenderableType], width: int | None = None) -> None:
        """Print tables, and text as `say` does, an empty line behind each."""
        for part in parts:
            if isinstance(part, str | Text):
                self.say(part)
            else:
                self.table(part, width)
            self.say("")

    def table(self, table: RenderableType, width: int | None = None) -> None:
        """Print a table, wrapped to the terminal's width or to `width`."""
        Console(width=width).print(_Harmless(table))

    def say(self, line: str | Text) -> None:
        """Print text that belongs to the results, as it is; only the terminal wraps it."""
        Console().print(_Harmless(Text(line) if isinstance(line, str) else line), soft_wrap=True)

    def note(self, line: str) -> None:
        """Print a line that helps to understand the results, unless they are wanted alone."""
        if self.level is not Level.QUIET:
            # A terminal breaks lines inside words; a pipe keeps a note on one line.
            console = Console()
            console.print(Text(f"note: {plain(line)}"), soft_wrap=not console.is_terminal)

    def document(self, value: Any) -> None:
        """Print the JSON document. What is not finite is null."""
        self.stdout.write(json.dumps(_plain(value), indent=2, allow_nan=False) + "\n")


@dataclass(frozen=True, slots=True)
class _Harmless:
    """What is printed, without characters that would steer the terminal: models and data may hold any."""

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.content, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def open_terminal(context: typer.Context, as_json: bool = False, level: Level = Level.NORMAL) -> Terminal:
    """The terminal of a command, in force until the command ends; `level` where it is not the normal one, else that
    of the flags before the command."""
    outer = context.obj if isinstance(context.obj, Level) else Level.NORMAL
    chosen = outer if level is Level.NORMAL else level
    terminal = Terminal(chosen, as_json, sys.stdout)
    if as_json:
        context.with_resource(contextlib.redirect_stdout(sys.stderr))  # whatever a library prints
    context.with_resource(chatter(chosen))
    return terminal


LIBRARIES = ("TRANSFORMERS_VERBOSITY", "DATASETS_VERBOSITY", "HF_HUB_VERBOSITY")
"""What libraries read, when they are imported, to know how much to say."""


@contextlib.contextmanager
def chatter(level: Level) -> Iterator[None]:
    """While this lasts, softbench's log and libraries say as much as `level` allows; what the environment says wins."""
    verbose = level is Level.VERBOSE
    wanted = dict.fromkeys(LIBRARIES, "info" if verbose else "error")
    wanted["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"  # they would stand in the way of ours
    if level is Level.QUIET or not sys.stderr.isatty():
        wanted["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    if verbose:
        wanted["VLLM_LOGGING_LEVEL"] = "INFO"
    new = {name: value for name, value in wanted.items() if name not in os.environ}
    root, ours, handler = logging.getLogger(), logging.getLogger("softbench"), _ToStderr()
    before = root.level, ours.level
    os.environ.update(new)
    root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.ERROR)
    ours.setLevel({Level.QUIET: logging.ERROR, Level.NORMAL: logging.WARNING, Level.VERBOSE: logging.INFO}[level])
    try:
        with warnings.catch_warnings():
            if verbose:
                warnings.simplefilter("default")
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        ours.setLevel(before[1])
        for name in new:
            os.environ.pop(name, None)


class _ToStderr(logging.Handler):
    """Writes to what stderr is at the moment: a progress bar stands below what goes through it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.name.partition('.')[0]}: {record.getMessage()}", file=sys.stderr)


def _plain(value: Any) -> Any:
    """`value` as JSON has it: names of paths, null for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
