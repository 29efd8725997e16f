"""The command line. A command is a function in a module of this package; here it gets its name and its place in --help.

Exit codes: 0 done, 1 a fault in softbench or a failed check of `doctor`, 2 bad input (one line says what), 130
interrupted, 143 terminated.
"""

import io
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import softbench
from softbench.cli import analysis, doctor, estimate, report, run, share, tasks
from softbench.cli.terminal import Quiet, Verbose, level_of
from softbench.errors import SoftbenchError, one_line
from softbench.interrupts import Stopped, raise_on_signals

EPILOG = """
Exit codes: 0 done; 1 a fault in softbench, or a failed check of `softbench doctor`; 2 bad input, which stderr tells;
130 interrupted (Ctrl-C); 143 terminated.

Results go to stdout, everything else to stderr. With --json, which every command but lm-eval has, stdout holds one
JSON document.
"""


def flowing(text: str) -> str:
    """Paragraphs without the line breaks inside them, which typer keeps in all but the first."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=flowing(EPILOG),
)

BEFORE, RUN, READ, TAKE = "Before a run", "Run", "Read finished runs", "Take results elsewhere"


def add(panel: str, name: str, command: Callable[..., None], **settings: Any) -> None:
    """Make a function a command. Its docstring is the help, its first paragraph the line in the list of commands."""
    app.command(name, help=flowing(command.__doc__ or ""), rich_help_panel=panel, **settings)(command)


# A new command: a function in a module of this package, a line here, an example in tests/contract/test_commands.py.
add(BEFORE, "doctor", doctor.doctor)
app.add_typer(tasks.app, name="tasks", rich_help_panel=BEFORE)
add(BEFORE, "estimate", estimate.estimate)
add(BEFORE, "power", analysis.power)
add(RUN, "run", run.run)
add(READ, "report", report.report)
add(READ, "score", analysis.score)
add(READ, "compare", analysis.compare)
add(READ, "rank", analysis.rank)
add(READ, "track", analysis.track)
add(READ, "curve", analysis.curve)
add(TAKE, "export-peft", share.export_peft)
add(TAKE, "lm-eval", share.lm_eval, **share.LM_EVAL)
add(TAKE, "push", share.push)
add(TAKE, "log", share.log_run)


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # completions hold characters that not every terminal has
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # of libraries, to their users; --verbose shows them
    raise_on_signals()
    errors = Console(stderr=True)
    try:
        app(prog_name="softbench")
    except SoftbenchError as error:
        line = Text("error: ", style="bold red") + Text(one_line(error))
        errors.print(line, soft_wrap=not errors.is_terminal)  # a terminal breaks lines inside words
        sys.exit(2)
    except Stopped as stop:
        errors.print(stop.word)
        sys.exit(stop.code)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"softbench {softbench.__version__}")
        raise typer.Exit


@app.callback()
def callback(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Score language models fairly: what they know and how well they follow a format, as two numbers.

    Start: softbench doctor; softbench run --model MODEL --tasks arc_easy --limit 100; softbench report softbench_out
    """
    context.obj = level_of(quiet, verbose)
