"""Commands that take results and soft prompts elsewhere: export-peft, lm-eval, push, log."""

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from softbench.cli import complete
from softbench.cli.flags import RunFolder
from softbench.cli.terminal import AsJson, open_terminal
from softbench.errors import ModelError, SpecError, did_you_mean


def export_peft(
    context: typer.Context,
    soft_prompt: Annotated[
        Path, typer.Argument(metavar="PROMPT", help="Folder of a tuned soft prompt: OUT/<model>/tuned/<name>.")
    ],
    output_path: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the adapter.")],
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model that it was tuned for.", show_default="the one its card names"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a soft prompt as an adapter of PEFT's (PROMPT_TUNING)."""
    from softbench.methods.saved import read_card
    from softbench.methods.soft_prompt import STEM

    terminal = open_terminal(context, as_json)
    progress = terminal.progress()
    card = read_card(soft_prompt, STEM)
    with progress.track("start torch and transformers", 1) as advance:
        from softbench.methods.peft_format import export_peft as export
        from softbench.methods.peft_format import read_prompt
        from softbench.models import load_model

        advance(1)
    try:
        revision = None if model else card.get("model_revision")
        loaded = load_model(model or card["model_source"], "float32", "cpu", revision, progress=progress)
    except ModelError as error:
        if model is not None:
            raise
        # A card names a local model by its last part alone: paths are nobody else's business.
        raise ModelError(f"{error}; or give the model with --model") from error
    export(loaded, read_prompt(loaded, soft_prompt), output_path)
    if as_json:
        terminal.document({"adapter": output_path})
        return
    terminal.say(f"adapter: {output_path}")
    terminal.say(f"load it: peft.PeftModel.from_pretrained(model, {str(output_path)!r})")
    terminal.say("tokenize texts with add_special_tokens=False: BOS, if any, is in the adapter")


LM_EVAL: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    "add_help_option": False,
}


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


def push(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, OUT/<model>.")],
    repo_id: Annotated[
        str, typer.Argument(metavar="REPO", help="A dataset repository of the hub, owner/name; made if need be.")
    ],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="NAME", help="Branch to push to.", show_default="main")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would go, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a run's results, samples and soft prompts to the hub."""
    from softbench.share import files_of, push

    terminal = open_terminal(context, as_json)
    files = files_of(run)
    commit = None if dry_run else push(run, repo_id, private, revision)
    if as_json:
        terminal.document({"files": files, "commit": commit})
    elif commit is None:
        for path in files:
            terminal.say(str(path))
    else:
        terminal.say(f"pushed: {commit}")


def log_run(
    context: typer.Context,
    run: RunFolder,
    to: Annotated[
        str, typer.Option(metavar="NAME", help="wandb or trackio.", autocompletion=complete.trackers)
    ] = "wandb",
    project: Annotated[str, typer.Option(metavar="NAME", help="Project to log to.")] = "softbench",
    as_json: AsJson = False,
) -> None:
    """Log a finished run to an experiment tracker: settings, tuning losses, metrics and costs of each job."""
    from softbench.runs import read_runs
    from softbench.share import TRACKERS, log_run

    terminal = open_terminal(context, as_json)
    if to not in TRACKERS:
        raise SpecError(f"--to can't be {to!r}{did_you_mean(to, TRACKERS)}")
    progress = terminal.progress()
    [jobs] = read_runs([run], progress)
    logged = []
    with progress.track(f"log to {to}", len(jobs)) as advance:
        for name in log_run(Path(run.partition("@")[0]), jobs, to, project):
            logged.append(name)
            advance(1)
    if as_json:
        terminal.document({"logged": logged})
    else:
        for name in logged:
            terminal.say(f"logged: {name}")
