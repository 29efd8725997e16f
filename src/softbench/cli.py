"""The command line. Exit codes: 0 done, 1 a fault in softbench, 2 bad input (one line says what), 130 interrupted."""

import importlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import softbench
from softbench.errors import ModelError, SoftbenchError, SpecError, did_you_mean

if TYPE_CHECKING:
    from softbench.types import Formulation

app = typer.Typer(add_completion=True, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")

IncludePath = Annotated[Path | None, typer.Option(help="Folder with task files (*.yaml) of your own.")]


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # completions hold characters that not every terminal has
    try:
        app()
    except SoftbenchError as error:
        Console(stderr=True).print(
            Text("error: ", style="bold red") + Text(" ".join(str(error).split())), soft_wrap=True
        )
        sys.exit(2)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"softbench {softbench.__version__}")
        raise typer.Exit


@app.callback()
def callback(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Score language models fairly: what they know and how well they follow a format, as two numbers."""


@app.command()
def run(
    spec: Annotated[Path | None, typer.Argument(help="A YAML spec; flags override what it says.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A hub id, a model folder or a .gguf file; may be given several times.")
    ] = None,
    revisions: Annotated[
        str | None, typer.Option(help="Revisions of each model on the hub, comma-separated: step1000,step2000.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Tasks, comma-separated, or YAML files; see `softbench tasks`.")
    ] = None,
    formulation: Annotated[
        str | None, typer.Option(help="mcf, cf or generation, for all tasks; or by name: arc_easy:cf.")
    ] = None,
    answer_format: Annotated[
        str | None, typer.Option(help="json, boxed, letter ... or a template such as 'Answer: {answer}'.")
    ] = None,
    include_path: IncludePath = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: zero_shot, few_shot, soft_prompt; controls: majority, random_model; lora.  "
            "[default: the first three]"
        ),
    ] = None,
    num_fewshot: Annotated[int | None, typer.Option(help="Worked examples in few_shot.  [default: 5]")] = None,
    fewshot_sampling: Annotated[
        str | None, typer.Option(help="random, fixed (the first ones) or balanced over answers.  [default: random]")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Tuning steps of soft_prompt.  [default: 80]")] = None,
    checkpoints: Annotated[
        str | None, typer.Option(help="Steps to evaluate besides the last, for `softbench curve`: 0,10,20,40.")
    ] = None,
    early_stop: Annotated[
        bool | None, typer.Option("--early-stop", help="End tuning when the form is learned, on held-out tuning data.")
    ] = None,
    gradient_checkpointing: Annotated[
        bool | None, typer.Option("--gradient-checkpointing", help="Tune in less memory and more time.")
    ] = None,
    tune_together: Annotated[
        bool | None, typer.Option("--tune-together", help="Tune all tasks' and seeds' soft prompts in the same passes.")
    ] = None,
    soft_prompt: Annotated[
        Path | None,
        typer.Option(help="Folder of a soft prompt tuned before, ours or PEFT's, to evaluate as loaded_prompt."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples a tuning step.  [default: 8]")] = None,
    num_virtual_tokens: Annotated[int | None, typer.Option(help="Vectors in the soft prompt.  [default: 10]")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="In units of the model's embedding RMS.  [default: 0.1]")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="One seed, or several: 0,1,2.  [default: 0]")] = None,
    limit: Annotated[int | None, typer.Option(help="Test samples a task, from the first.  [default: all]")] = None,
    output_path: Annotated[
        Path | None, typer.Option(help="Folder for results; work in it is resumed.  [default: softbench_out]")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with one folder a benchmark, for tasks that need data.  [default: $SOFTBENCH_DATA]"),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or auto: bfloat16 where it is native.  [default: auto]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps or auto.  [default: auto]")] = None,
    device_map: Annotated[
        str | None, typer.Option(help="auto: spread a model larger than one GPU over all of them.")
    ] = None,
    eval_batch_size: Annotated[int | None, typer.Option(help="Most rows a batch in evaluation.  [default: 64]")] = None,
    pmi: Annotated[
        bool | None, typer.Option("--pmi", help="Score options without the question, too; twice the work under cf.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="transformers, vllm, or fake for a dry run.")] = None,
    executor: Annotated[
        str | None, typer.Option(help="serial, or ray: jobs side by side, see docs/scale_out.md.  [default: serial]")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A running Ray cluster: host:port, or auto.  [default: a Ray on this machine]")
    ] = None,
    num_gpus: Annotated[
        float | None, typer.Option(help="GPUs a job asks Ray for.  [default: 1 where the cluster has some]")
    ] = None,
    num_cpus: Annotated[int | None, typer.Option(help="CPU cores a job asks Ray for.  [default: 1]")] = None,
    memory: Annotated[float | None, typer.Option(help="Memory a job asks Ray for, in GiB.  [default: any]")] = None,
    apply_chat_template: Annotated[
        bool | None, typer.Option("--apply-chat-template", help="Put prompts as conversations.")
    ] = None,
    system_instruction: Annotated[str | None, typer.Option(help="The conversation's system message.")] = None,
    fewshot_as_multiturn: Annotated[
        bool | None, typer.Option("--fewshot-as-multiturn", help="Shots as turns, not inside one message.")
    ] = None,
    assistant_prefix: Annotated[str | None, typer.Option(help="How the assistant's reply begins.")] = None,
) -> None:
    """Tune, evaluate, and report models on tasks by methods."""
    from softbench.spec import read_spec

    overrides = {
        "models": model or None,
        "revisions": _listed(revisions),
        "tasks": _listed(tasks),
        "formulation": formulation,
        "answer_format": answer_format,
        "include_path": include_path,
        "apply_chat_template": apply_chat_template,
        "system_instruction": system_instruction,
        "fewshot_as_multiturn": fewshot_as_multiturn,
        "assistant_prefix": assistant_prefix,
        "methods": _listed(methods),
        "seeds": _numbers("--seed", seed),
        "limit": limit,
        "output_path": output_path,
        "data_dir": data_dir,
        "dtype": dtype,
        "device": device,
        "device_map": device_map,
        "engine": engine,
        "executor": executor,
        "ray_address": ray_address,
        "num_gpus": num_gpus,
        "num_cpus": num_cpus,
        "memory": memory,
        "eval_batch_size": eval_batch_size,
        "num_fewshot": num_fewshot,
        "sampling": fewshot_sampling,
        "steps": steps,
        "checkpoints": _numbers("--checkpoints", checkpoints),
        "early_stop": early_stop,
        "gradient_checkpointing": gradient_checkpointing,
        "tune_together": tune_together,
        "soft_prompt": soft_prompt,
        "pmi": pmi,
        "batch_size": batch_size,
        "num_virtual_tokens": num_virtual_tokens,
        "learning_rate": learning_rate,
    }
    checked = read_spec(spec, overrides)

    from softbench import executors
    from softbench.report.progress import make_progress
    from softbench.report.table import WIDE, results_tables, seed_notes, warnings

    console = Console(stderr=True)
    try:
        results = executors.run(checked, make_progress(console))
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on where this one stopped")
        raise typer.Exit(130) from None
    # A pipe has no width of its own: there, a line a row is easiest to read and to search.
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    out = Console(width=None if has_width else WIDE)
    for table in results_tables(results, out.width):
        out.print(table)
        out.print()
    for line in [*warnings(results), *seed_notes(results)]:
        out.print(Text(f"note: {line}"), soft_wrap=True)
    for result in results:
        out.print(Text(f"results: {result.path}"), soft_wrap=True)


tasks_app = typer.Typer(help="List, show and check tasks.", invoke_without_command=True)
app.add_typer(tasks_app, name="tasks")

DataDir = Annotated[Path | None, typer.Option(help="Folder with one folder a benchmark.  [default: $SOFTBENCH_DATA]")]


@tasks_app.callback()
def tasks(context: typer.Context, include_path: IncludePath = None) -> None:
    """List the tasks at hand."""
    if context.invoked_subcommand is not None:
        return
    from softbench.tasks import formulations, get_task, task_names

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("task", "formulations", "answer format", "source"):
        table.add_column(column, overflow="fold")
    for name in task_names(include_path):
        task = get_task(name, include_path=include_path)
        offered = ", ".join(formulations(name, include_path))
        table.add_row(
            *(Text(cell) for cell in (name, offered, task.answer_format.template, task.source.split(", ")[0]))
        )
    Console().print(table)


@tasks_app.command()
def show(
    task: Annotated[str, typer.Argument(help="A task's name, such as arc_easy:cf, or a YAML file.")],
    formulation: Annotated[str | None, typer.Option(help="mcf, cf or generation.")] = None,
    answer_format: Annotated[str | None, typer.Option(help="An answer format, or a template.")] = None,
    num_fewshot: Annotated[int, typer.Option(min=0, help="Worked examples in the prompt.")] = 0,
    include_path: IncludePath = None,
    data_dir: DataDir = None,
) -> None:
    """Print a prompt of a task as a model reads it, its target, what its parser makes of answers, and its splits."""
    from softbench.report.task import describe_task
    from softbench.spec import data_dir_of_environment
    from softbench.tasks import get_task, load_data

    found = get_task(task, _formulation(formulation), answer_format, include_path)
    data = load_data(found, data_dir or data_dir_of_environment())
    Console().print(describe_task(found, data, num_fewshot), soft_wrap=True)


@tasks_app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A task file of your own, or a folder of them.")],
    data_dir: DataDir = None,
) -> None:
    """Load tasks of your own in every formulation, so that whatever is wrong with one shows before a run."""
    from softbench.report.task import describe_task
    from softbench.spec import data_dir_of_environment
    from softbench.tasks import formulations, get_task, load_data, task_names

    folder, names = (path, task_names(path, own_only=True)) if path.is_dir() else (None, [str(path)])
    if not names:
        raise SpecError(f"{str(path)!r} holds no task files (*.yaml)")
    for name in names:
        for formulation in formulations(name, folder):
            task = get_task(f"{name}:{formulation}", include_path=folder)
            data = load_data(task, data_dir or data_dir_of_environment())
            Console().print(describe_task(task, data, 0), soft_wrap=True)
            Console().print(Text(f"ok: {task.name}\n", style="green"))


@app.command()
def score(
    run: Annotated[str, typer.Argument(help="A run's folder, OUT/<model>, or one method of it: FOLDER@METHOD.")],
    parse: Annotated[bool, typer.Option("--parse", help="Read completions again with today's parsers.")] = False,
    include_path: IncludePath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute metrics again from saved records, without a model."""
    import json

    from softbench.report.score import read_again, score_tables, scores_dict
    from softbench.runs import read_run
    from softbench.tasks import get_task

    jobs = read_run(run)
    records = [
        read_again(job.records, get_task(job.task, include_path=include_path)) if parse else list(job.records)
        for job in jobs
    ]
    if as_json:
        typer.echo(json.dumps(scores_dict(jobs, records), indent=2))
        return
    out = Console()
    for table in score_tables(jobs, records):
        out.print(table)
        out.print()


@app.command()
def compare(
    before: Annotated[str, typer.Argument(help="A run's folder, OUT/<model>, or one method of it: FOLDER@METHOD.")],
    after: Annotated[str, typer.Argument(help="The run to compare with it.")],
    force: Annotated[bool, typer.Option("--force", help="Compare even what is not comparable.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how much better AFTER is than BEFORE, sample by sample, and whether by format or by knowledge."""
    import json

    from softbench.report.compare import (
        comparison_dict,
        comparison_table,
        comparisons,
        differing_samples,
        pair_jobs,
    )
    from softbench.runs import read_run

    compared = comparisons(pair_jobs(read_run(before), read_run(after), force), seed)
    if as_json:
        typer.echo(json.dumps([comparison_dict(*one) for one in compared], indent=2))
        return
    out = Console()
    for pair, comparison, adjusted in compared:
        out.print(comparison_table(pair, comparison, adjusted))
        for line in differing_samples(pair):
            out.print(Text(f"  {line}", style="dim"), soft_wrap=True)
        out.print()


@app.command()
def rank(
    bases: Annotated[list[str], typer.Argument(help="Runs of base models: folders OUT/<model>.")],
    post: Annotated[list[str], typer.Option(help="A run of a post-trained model; once for each.")],
    mapping: Annotated[
        Path | None, typer.Option(help="YAML, 'base name: post name'; else by equal names, else in order.")
    ] = None,
    post_method: Annotated[str, typer.Option(help="How post-trained models are scored.")] = "zero_shot",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether base models' scores, by each method, rank their post-trained models."""
    import json

    from softbench.report import rank as ranking
    from softbench.runs import read_run

    found = ranking.rank([read_run(one) for one in bases], [read_run(one) for one in post], mapping, post_method, seed)
    if as_json:
        typer.echo(json.dumps(ranking.ranking_dict(found), indent=2))
        return
    out = Console()
    for table in ranking.ranking_tables(found):
        out.print(table)
        out.print()
    warning = ranking.warning(found)
    if warning:
        out.print(Text(f"note: {warning}"), soft_wrap=True)


@app.command()
def track(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            help="Runs of checkpoints: OUT/<model>, named with their steps (recipe-step1000), or OUT for all."
        ),
    ],
    revisions: Annotated[
        str | None, typer.Option(help="Only the runs of these revisions: step1000,step2000 (see `run --revisions`).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how scores rise along training, how noisy they are, and from which step recipes can be told apart."""
    import json

    from softbench.report.track import track_table, tracks, tracks_dict
    from softbench.runs import read_run, runs_in

    references = [run for one in checkpoints for run in runs_in(one, _listed(revisions))]
    found = tracks([read_run(one) for one in references])
    if as_json:
        typer.echo(json.dumps([tracks_dict(one) for one in found], indent=2))
        return
    out = Console()
    for one in found:
        out.print(track_table(one))
        out.print()


@app.command()
def curve(
    runs: Annotated[list[str], typer.Argument(help="Runs with checkpoints: OUT/<model>; see `run --checkpoints`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how fast a soft prompt learns the form: scores by tuning step, and the step at which each saturates."""
    import json

    from softbench.report.curve import curve_dict, curve_table, curves
    from softbench.runs import read_run

    found = curves([job for run in runs for job in read_run(run)])
    if as_json:
        typer.echo(json.dumps([curve_dict(one) for one in found], indent=2))
        return
    out = Console()
    for one in found:
        out.print(curve_table(one))
        out.print()


@app.command("export-peft")
def export_peft(
    soft_prompt: Annotated[Path, typer.Argument(help="Folder of a tuned soft prompt: OUT/<model>/tuned/<name>.")],
    output_path: Annotated[Path, typer.Argument(help="Folder for the adapter.")],
    model: Annotated[
        str | None, typer.Option(help="The model that it was tuned for.  [default: the one its card names]")
    ] = None,
) -> None:
    """Write a soft prompt as an adapter of PEFT's (PROMPT_TUNING)."""
    from softbench.methods.peft_format import export_peft as export
    from softbench.methods.peft_format import read_prompt
    from softbench.methods.saved import read_card
    from softbench.methods.soft_prompt import STEM
    from softbench.models import load_model

    card = read_card(soft_prompt, STEM)
    try:
        revision = None if model else card.get("model_revision")
        loaded = load_model(model or card["model_source"], "float32", "cpu", revision)
    except ModelError as error:
        if model is not None:
            raise
        # A card names a local model by its last part alone: paths are nobody else's business.
        raise ModelError(f"{error}; or give the model with --model") from error
    export(loaded, read_prompt(loaded, soft_prompt), output_path)
    out = Console()
    out.print(Text(f"adapter: {output_path}"), soft_wrap=True)
    out.print(Text(f"load it: peft.PeftModel.from_pretrained(model, {str(output_path)!r})"), soft_wrap=True)
    out.print(Text("its texts are tokenized with add_special_tokens=False; BOS, where there is one, is in the adapter"))


@app.command(
    "lm-eval",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def lm_eval(context: typer.Context) -> None:
    """Run lm-evaluation-harness with softbench as its model; all flags are the harness's own.

    softbench lm-eval --model_args pretrained=...,soft_prompt=OUT/<model>/tuned/<name> --tasks arc_easy
    """
    try:
        from lm_eval.__main__ import cli_evaluate

        importlib.import_module("softbench.lm_eval_model")  # registers the model
    except ImportError:
        raise SpecError("lm-evaluation-harness is not installed: pip install 'softbench[lm-eval]'") from None
    given = list(context.args)
    if any(one == "--model" or one.startswith("--model=") for one in given):
        raise SpecError("softbench lm-eval brings its own model; drop --model, and name yours as pretrained=...")
    before = sys.argv
    sys.argv = ["softbench lm-eval", "run", "--model", "softbench", *given]
    try:
        cli_evaluate()
    finally:
        sys.argv = before


@app.command()
def push(
    run: Annotated[Path, typer.Argument(help="A run's folder, OUT/<model>.")],
    repo_id: Annotated[str, typer.Argument(help="A dataset repository of the hub, owner/name; made if need be.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    revision: Annotated[str | None, typer.Option(help="Branch to push to.  [default: main]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would go, and stop.")] = False,
) -> None:
    """Upload a run's results, samples and soft prompts to the hub."""
    from softbench.share import files_of, push

    if dry_run:
        for path in files_of(run):
            typer.echo(path)
        return
    Console().print(Text(f"pushed: {push(run, repo_id, private, revision)}"), soft_wrap=True)


@app.command("log")
def log_run(
    run: Annotated[str, typer.Argument(help="A run's folder, OUT/<model>, or one method of it: FOLDER@METHOD.")],
    to: Annotated[str, typer.Option(help="wandb or trackio.")] = "wandb",
    project: Annotated[str, typer.Option(help="Project to log to.")] = "softbench",
) -> None:
    """Log a finished run to an experiment tracker: settings, tuning losses, metrics and costs of each job."""
    from softbench.runs import read_run
    from softbench.share import TRACKERS, log_run

    if to not in TRACKERS:
        raise SpecError(f"--to can't be {to!r}{did_you_mean(to, TRACKERS)}")
    for name in log_run(Path(run.partition("@")[0]), read_run(run), to, project):
        typer.echo(f"logged: {name}")


@app.command()
def power(
    difference: Annotated[float, typer.Argument(help="Difference in accuracy to be found, such as 0.02.")],
    discordance: Annotated[float, typer.Argument(help="Share of samples on which the two runs differ, such as 0.1.")],
    wanted: Annotated[float, typer.Option("--power", help="Chance of finding it.")] = 0.8,
    alpha: Annotated[float, typer.Option(help="Level of the test.")] = 0.05,
) -> None:
    """Say how many test samples a paired comparison needs to find a difference."""
    from softbench.stats.compare import samples_needed

    if not (0 < wanted < 1 and 0 < alpha < 1):
        raise SpecError(f"--power {wanted} and --alpha {alpha} must lie between 0 and 1")
    try:
        typer.echo(samples_needed(difference, discordance, alpha, wanted))
    except ValueError as error:
        raise SpecError(f"{error}; the difference is at most the share of samples that differ") from error


def _formulation(value: str | None) -> "Formulation | None":
    from softbench.types import Formulation

    if value is not None and value not in get_args(Formulation):
        raise SpecError(f"--formulation can't be {value!r}{did_you_mean(value, get_args(Formulation))}")
    return cast("Formulation | None", value)


def _listed(value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]


def _numbers(flag: str, value: str | None) -> list[int] | None:
    if value is None:
        return None
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise SpecError(f"{flag} can't be {value!r}; give a whole number, or several with commas between") from None
