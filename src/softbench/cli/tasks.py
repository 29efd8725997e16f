"""`softbench tasks`: list, show and check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from softbench.cli import complete
from softbench.cli.flags import DataDir, IncludePath
from softbench.cli.terminal import AsJson, open_terminal
from softbench.errors import SpecError, did_you_mean

if TYPE_CHECKING:
    from softbench.types import Formulation

app = typer.Typer(help="List tasks; show one as a model reads it; check your own.", invoke_without_command=True)


@app.callback()
def tasks(context: typer.Context, include_path: IncludePath = None, as_json: AsJson = False) -> None:
    """List the tasks at hand, or with a command show or check some."""
    command = context.invoked_subcommand
    if command is not None:
        if as_json or include_path is not None:
            flag = "--json" if as_json else "--include-path"
            raise SpecError(f"{flag} comes before {command!r}; give it behind: softbench tasks {command} {flag} ...")
        return
    from softbench.report.task import tasks_list, tasks_table

    terminal = open_terminal(context, as_json)
    if as_json:
        terminal.document(tasks_list(include_path))
    else:
        terminal.table(tasks_table(include_path))


@app.command()
def show(
    context: typer.Context,
    task: Annotated[
        str, typer.Argument(help="A task's name, such as arc_easy:cf, or a YAML file.", autocompletion=complete.task)
    ],
    formulation: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="mcf, cf or generation.", autocompletion=complete.formulations),
    ] = None,
    answer_format: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="An answer format, or a template.", autocompletion=complete.answer_formats),
    ] = None,
    num_fewshot: Annotated[int, typer.Option(min=0, metavar="N", help="Worked examples in the prompt.")] = 0,
    include_path: IncludePath = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print a prompt of a task as a model reads it, its target, what its parser makes of answers, and its splits."""
    from softbench.report.task import describe_task, task_page
    from softbench.spec import data_dir_of_environment
    from softbench.tasks import get_task, load_data

    terminal = open_terminal(context, as_json)
    found = get_task(task, _formulation(formulation), answer_format, include_path)
    described = describe_task(found, load_data(found, data_dir or data_dir_of_environment()), num_fewshot)
    if as_json:
        terminal.document(described)
    else:
        terminal.show(task_page(described))


@app.command()
def check(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="A task file of your own, or a folder of them.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Load tasks of your own in every formulation, so that whatever is wrong with one shows before a run."""
    from softbench.report.task import describe_task, task_page
    from softbench.spec import data_dir_of_environment
    from softbench.tasks import formulations, get_task, load_data, task_names

    terminal = open_terminal(context, as_json)
    if not path.exists():
        raise SpecError(f"{str(path)!r} is not there; give a task file (*.yaml), or a folder of them")
    folder, names = (path, task_names(path, own_only=True)) if path.is_dir() else (None, [str(path)])
    if not names:
        raise SpecError(f"{str(path)!r} holds no task files (*.yaml)")
    described = []
    for name in names:
        for formulation in formulations(name, folder):
            task = get_task(f"{name}:{formulation}", include_path=folder)
            described.append(describe_task(task, load_data(task, data_dir or data_dir_of_environment()), 0))
            if not as_json:
                terminal.show(task_page(described[-1]))
                terminal.say(f"ok: {task.name}\n")
    if as_json:
        terminal.document(described)


def _formulation(value: str | None) -> "Formulation | None":
    from softbench.types import Formulation

    if value is not None and value not in get_args(Formulation):
        raise SpecError(f"--formulation can't be {value!r}{did_you_mean(value, get_args(Formulation))}")
    return cast("Formulation | None", value)
