"""Commands on finished runs, which need no model: score, compare, rank, track, curve; and power, before a run."""

from pathlib import Path
from typing import Annotated

import typer

from softbench.cli.flags import IncludePath, RunFolder, Seed, listed
from softbench.cli.terminal import AsJson, open_terminal
from softbench.errors import SpecError


def score(
    context: typer.Context,
    run: RunFolder,
    parse: Annotated[bool, typer.Option("--parse", help="Read completions again with today's parsers.")] = False,
    include_path: IncludePath = None,
    as_json: AsJson = False,
) -> None:
    """Compute metrics again from saved records, without a model."""
    from softbench.report.score import rescore, score_tables, scores_dict
    from softbench.runs import read_runs
    from softbench.tasks import get_task

    terminal = open_terminal(context, as_json)
    progress = terminal.progress()
    [jobs] = read_runs([run], progress)
    tasks = {name: get_task(name, include_path=include_path) for name in {job.task for job in jobs}} if parse else {}
    scored = rescore(jobs, tasks, progress)
    if as_json:
        terminal.document(scores_dict(scored))
    else:
        terminal.show(score_tables(scored))


def compare(
    context: typer.Context,
    before: RunFolder,
    after: Annotated[str, typer.Argument(metavar="RUN", help="The run to compare with it, named alike.")],
    force: Annotated[
        bool, typer.Option("--force", help="Compare what samples both have, even where prompts or splits differ.")
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say how much better a run is than another, sample by sample, and whether by format or by knowledge.

    softbench compare OUT/base@few_shot OUT/base@soft_prompt
    """
    from softbench.report.compare import comparison_dict, comparison_table, comparisons, pair_jobs, samples_table
    from softbench.runs import read_runs

    terminal = open_terminal(context, as_json)
    progress = terminal.progress()
    first, second = read_runs([before, after], progress)
    compared = comparisons(pair_jobs(first, second, force), seed, progress)
    if as_json:
        terminal.document([comparison_dict(*one) for one in compared])
        return
    for pair, comparison, adjusted in compared:
        samples = samples_table(pair)
        terminal.show([comparison_table(pair, comparison, adjusted), *([samples] if samples else [])])


def rank(
    context: typer.Context,
    bases: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs of base models: folders OUT/<model>.")],
    post: Annotated[
        list[str], typer.Option(metavar="RUN", help="The run of a post-trained model; give it once for each.")
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Which belongs to which: YAML lines 'base name: post-trained name'. Without it, models of equal "
            "names belong together, or else the first to the first.",
        ),
    ] = None,
    post_method: Annotated[
        str, typer.Option(metavar="METHOD", help="The method whose scores of post-trained models count.")
    ] = "zero_shot",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say whether base models' scores, by each method, rank their post-trained models.

    softbench rank OUT/a OUT/b OUT/c --post OUT/a-it --post OUT/b-it --post OUT/c-it
    """
    from softbench.report import rank as ranking
    from softbench.runs import read_runs

    terminal = open_terminal(context, as_json)
    progress = terminal.progress()
    runs = read_runs([*bases, *post], progress)
    found = ranking.rank(runs[: len(bases)], runs[len(bases) :], mapping, post_method, seed, progress)
    if as_json:
        terminal.document(ranking.ranking_dict(found))
        return
    terminal.show(ranking.ranking_tables(found))
    warning = ranking.warning(found)
    if warning:
        terminal.note(warning)


def track(
    context: typer.Context,
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Runs of checkpoints: OUT/<model>, named with their steps (recipe-step1000), or OUT for all.",
        ),
    ],
    revisions: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Only the runs of these revisions: step1000,step2000 (see `run --revisions`)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how scores rise along pre-training, how noisy they are, and from which step recipes can be told apart."""
    from softbench.report.track import track_tables, tracks, tracks_dict
    from softbench.runs import read_runs, runs_in

    terminal = open_terminal(context, as_json)
    references = [run for one in checkpoints for run in runs_in(one, listed(revisions))]
    progress = terminal.progress()
    found = tracks(read_runs(references, progress), progress)
    if as_json:
        terminal.document([tracks_dict(one) for one in found])
    else:
        terminal.show(table for one in found for table in track_tables(one))


def curve(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Runs made with `run --checkpoints`: folders OUT/<model>."),
    ],
    as_json: AsJson = False,
) -> None:
    """Show how fast a soft prompt learns the form: scores by tuning step, and the step at which each saturates."""
    from softbench.report.curve import curve_dict, curve_table, curves
    from softbench.runs import read_runs

    terminal = open_terminal(context, as_json)
    progress = terminal.progress()
    found = curves([job for jobs in read_runs(runs, progress) for job in jobs], progress)
    if as_json:
        terminal.document([curve_dict(one) for one in found])
    else:
        terminal.show(curve_table(one) for one in found)


def power(
    context: typer.Context,
    difference: Annotated[float, typer.Argument(help="Difference in accuracy to be found, such as 0.02.")],
    discordance: Annotated[float, typer.Argument(help="Share of samples that the two runs answer differently: 0.1.")],
    wanted: Annotated[float, typer.Option("--power", metavar="X", help="Chance of finding it.")] = 0.8,
    alpha: Annotated[float, typer.Option(metavar="X", help="Level of the test.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Say how many test samples a paired comparison needs to find a difference."""
    from softbench.stats.compare import samples_needed

    terminal = open_terminal(context, as_json)
    if not (0 < wanted < 1 and 0 < alpha < 1):
        raise SpecError(f"--power {wanted} and --alpha {alpha} must lie between 0 and 1")
    try:
        samples = samples_needed(difference, discordance, alpha, wanted)
    except ValueError as error:
        raise SpecError(f"{error}; the difference is at most the share of samples that differ") from error
    if as_json:
        terminal.document({"samples": samples})
    else:
        terminal.say(str(samples))
