"""The `report` command."""

from pathlib import Path
from typing import Annotated

import typer

from softbench.cli.flags import Seed, listed
from softbench.cli.terminal import AsJson, open_terminal


def report(
    context: typer.Context,
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Runs: OUT/<model>, or OUT for those of all models in it.")
    ],
    post: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="The run of a post-trained model, to rank; give it once for each."),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Which belongs to which, as in `softbench rank`."),
    ] = None,
    formats: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAMES",
            help="html; or each figure and table as a file: svg, png, csv, markdown, latex; several with commas.",
        ),
    ] = "html",
    output_path: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files.")] = Path("report"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Write a page that shows runs and lets their samples be looked through, or its figures and tables as files.

    softbench report OUT
    """
    from softbench.pipeline import check_output
    from softbench.report.export import write_report
    from softbench.report.story import story_dict, tell
    from softbench.runs import read_runs, runs_in

    terminal = open_terminal(context, as_json)
    check_output(output_path)
    progress = terminal.progress()
    references = [run for one in runs for run in runs_in(one)]
    trained = [run for one in post or () for run in runs_in(one)]
    read = read_runs([*references, *trained], progress)
    shown, ranked = read[: len(references)], read[len(references) :]
    story = tell(shown, ranked, mapping, seed)
    files = write_report(story, [job for run in shown for job in run], listed(formats) or [""], output_path, progress)
    if as_json:
        terminal.document({"files": files, **story_dict(story)})
        return
    for path in files:
        terminal.say(f"written: {path}")
