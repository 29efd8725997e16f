"""`softbench run`."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from softbench.cli import flags
from softbench.cli.terminal import Terminal, level_of, open_terminal
from softbench.interrupts import Stopped

if TYPE_CHECKING:
    from softbench.results import Results


def run(
    context: typer.Context,
    spec: flags.SpecFile = None,
    models: flags.Models = None,
    revisions: flags.Revisions = None,
    tasks: flags.Tasks = None,
    include_path: flags.IncludeTasks = None,
    data_dir: flags.RunDataDir = None,
    methods: flags.Methods = None,
    soft_prompt: flags.SoftPromptFolder = None,
    seeds: flags.Seeds = None,
    limit: flags.Limit = None,
    formulation: flags.FormulationOfAll = None,
    answer_format: flags.AnswerFormatOfAll = None,
    num_fewshot: flags.NumFewshot = None,
    sampling: flags.FewshotSampling = None,
    apply_chat_template: flags.ApplyChatTemplate = None,
    system_instruction: flags.SystemInstruction = None,
    fewshot_as_multiturn: flags.FewshotAsMultiturn = None,
    assistant_prefix: flags.AssistantPrefix = None,
    steps: flags.Steps = None,
    batch_size: flags.BatchSize = None,
    num_virtual_tokens: flags.NumVirtualTokens = None,
    learning_rate: flags.LearningRate = None,
    checkpoints: flags.Checkpoints = None,
    early_stop: flags.EarlyStop = None,
    gradient_checkpointing: flags.GradientCheckpointing = None,
    tune_together: flags.TuneTogether = None,
    retry_lower_rate: flags.RetryLowerRate = None,
    eval_batch_size: flags.EvalBatchSize = None,
    pmi: flags.Pmi = None,
    engine: flags.EngineName = None,
    device: flags.Device = None,
    dtype: flags.Dtype = None,
    device_map: flags.DeviceMap = None,
    deterministic: flags.Deterministic = None,
    executor: flags.ExecutorName = None,
    ray_address: flags.RayAddress = None,
    num_gpus: flags.NumGpus = None,
    num_cpus: flags.NumCpus = None,
    memory: flags.Memory = None,
    output_path: flags.OutputPath = None,
    as_json: flags.RunJson = False,
    quiet: flags.RunQuiet = False,
    verbose: flags.RunVerbose = False,
) -> None:
    """Tune, evaluate and report every model on every task by every method.

    The same command goes on where a killed one stopped.
    """
    given = dict(locals())  # the parameters, which are called what a spec calls them
    for name in ("context", "spec", "as_json", "quiet", "verbose"):
        del given[name]
    terminal = open_terminal(context, as_json, level_of(quiet, verbose))
    try:
        from softbench.spec import read_spec

        checked = read_spec(
            spec,
            given
            | {
                "models": models or None,
                "revisions": flags.listed(revisions),
                "tasks": flags.listed(tasks),
                "methods": flags.listed(methods),
                "seeds": flags.numbers("--seed", seeds),
                "checkpoints": flags.numbers("--checkpoints", checkpoints),
            },
        )
        from softbench import executors

        results = executors.run(checked, terminal.progress(patience=0.0))
    except Stopped as stop:
        stop.word += "; the same command goes on where this one stopped"
        raise
    _show(terminal, results)


def _show(terminal: Terminal, results: "Sequence[Results]") -> None:
    from softbench.report.grid import UNLIMITED
    from softbench.report.table import results_dict, results_tables, seed_notes, warnings

    if terminal.as_json:
        terminal.document([results_dict(one) for one in results])
        return
    # A pipe has no width of its own: there, a line a row is easiest to read and to search.
    width = terminal.width if terminal.stdout.isatty() or "COLUMNS" in os.environ else UNLIMITED
    terminal.show(results_tables(results, width), width)
    for line in [*warnings(results), *seed_notes(results)]:
        terminal.note(line)
    for result in results:
        terminal.say(f"results: {result.path}")
    if results:
        terminal.note(f"softbench report {results[0].path.parent.parent} shows them and their samples as a page")
