"""`softbench estimate`."""

from typing import Annotated

import typer

from softbench.cli import flags
from softbench.cli.terminal import AsJson, open_terminal


def estimate(
    context: typer.Context,
    spec: flags.SpecFile = None,
    models: flags.Models = None,
    tasks: flags.Tasks = None,
    include_path: flags.IncludeTasks = None,
    data_dir: flags.RunDataDir = None,
    methods: flags.Methods = None,
    seeds: flags.Seeds = None,
    limit: flags.Limit = None,
    formulation: flags.FormulationOfAll = None,
    answer_format: flags.AnswerFormatOfAll = None,
    num_fewshot: flags.NumFewshot = None,
    apply_chat_template: flags.ApplyChatTemplate = None,
    steps: flags.Steps = None,
    batch_size: flags.BatchSize = None,
    num_virtual_tokens: flags.NumVirtualTokens = None,
    checkpoints: flags.Checkpoints = None,
    gradient_checkpointing: flags.GradientCheckpointing = None,
    eval_batch_size: flags.EvalBatchSize = None,
    pmi: flags.Pmi = None,
    dtype: flags.Dtype = None,
    tflops: Annotated[
        float | None,
        typer.Option(metavar="X", help="What one GPU reaches, in 10^12 operations a second.", show_default="100"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a run would take: tokens, operations, GPU hours, memory, disk. Takes what `run` takes, and runs nothing.

    No weights are loaded and no data fetched; what is not at hand is assumed, and notes say so. A model that neither
    this machine nor the hub has needs its size in its name (model-7B) or in the spec: {source: org/x, parameters:
    7.6e9}.
    """
    given = dict(locals())  # the parameters, which are called what a spec calls them
    for name in ("context", "spec", "tflops", "as_json"):
        del given[name]
    terminal = open_terminal(context, as_json)
    from softbench import estimate as estimating
    from softbench.estimate.forecast import TFLOPS
    from softbench.estimate.tables import estimate_dict, estimate_tables, notes
    from softbench.spec import read_spec

    checked = read_spec(
        spec,
        given
        | {
            "models": models or None,
            "tasks": flags.listed(tasks),
            "methods": flags.listed(methods),
            "seeds": flags.numbers("--seed", seeds),
            "checkpoints": flags.numbers("--checkpoints", checkpoints),
        },
    )
    found = estimating.estimate(checked, terminal.progress(), TFLOPS if tflops is None else tflops)
    if as_json:
        terminal.document(estimate_dict(found))
        return
    terminal.show(estimate_tables(found))
    for line in notes(found):
        terminal.note(line)
