"""Flags and arguments of several commands, and the many of `run` in the panels that its --help shows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from softbench.cli import complete
from softbench.errors import SpecError

WHAT, PROMPTS, TUNING = "What to run", "Prompts", "Tuning (soft_prompt, random_model, lora)"
EVALUATION, MACHINE, OUTPUT = "Evaluation", "Machine", "Output"


def _flag(
    name: str, panel: str, help: str, default: str | None = None, metavar: str | None = None, complete: Any = None
) -> Any:
    """An option of `run`; `default` is what --help says, as a spec file may say otherwise."""
    return typer.Option(
        name, help=help, show_default=default or False, metavar=metavar, autocompletion=complete, rich_help_panel=panel
    )


def listed(value: str | None) -> list[str] | None:
    """The parts of a comma-separated list."""
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]


def numbers(flag: str, value: str | None) -> list[int] | None:
    """Whole numbers with commas between. Raises SpecError, naming the flag, at anything else."""
    if value is None:
        return None
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise SpecError(f"{flag} can't be {value!r}; give a whole number, or several with commas between") from None


# Of several commands.
IncludePath = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder with task files (*.yaml) of your own.")]
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with one folder a benchmark.", show_default="$SOFTBENCH_DATA"),
]
RunFolder = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's folder, OUT/<model>, or one method of it: FOLDER@METHOD.")
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the bootstrap, which draws the intervals.")]

# What to run.
SpecFile = Annotated[
    Path | None, typer.Argument(metavar="SPEC", help="A YAML file that says what to run; flags override it.")
]
Models = Annotated[
    list[str] | None,
    _flag("--model", WHAT, "A hub id, a model folder or a .gguf file; give it once for each model.", metavar="MODEL"),
]
Revisions = Annotated[
    str | None,
    _flag("--revisions", WHAT, "Run each model at these revisions of the hub: step1000,step2000.", metavar="NAMES"),
]
Tasks = Annotated[
    str | None,
    _flag(
        "--tasks",
        WHAT,
        "Names from `softbench tasks`, or YAML files, with commas between.",
        metavar="NAMES",
        complete=complete.tasks,
    ),
]
IncludeTasks = Annotated[
    Path | None, _flag("--include-path", WHAT, "Folder with task files (*.yaml) of your own.", metavar="DIR")
]
RunDataDir = Annotated[
    Path | None,
    _flag(
        "--data-dir",
        WHAT,
        "Folder with one folder a benchmark; without it, benchmarks come from the hub.",
        "$SOFTBENCH_DATA",
        "DIR",
    ),
]
Methods = Annotated[
    str | None,
    _flag(
        "--methods",
        WHAT,
        "With commas between: zero_shot, few_shot, soft_prompt; lora; as controls majority and random_model.",
        "the first three",
        "NAMES",
        complete.methods,
    ),
]
SoftPromptFolder = Annotated[
    Path | None,
    _flag(
        "--soft-prompt",
        WHAT,
        "Folder of a soft prompt tuned before, softbench's or PEFT's: it is evaluated, too, as loaded_prompt.",
        metavar="DIR",
    ),
]
Seeds = Annotated[
    str | None,
    _flag("--seed", WHAT, "Seed of tuning and of drawing shots; or several: 0,1,2.", "0", "N[,N]"),
]
Limit = Annotated[int | None, _flag("--limit", WHAT, "Test samples a task, from the first.", "all", "N")]

# Prompts.
FormulationOfAll = Annotated[
    str | None,
    _flag(
        "--formulation",
        PROMPTS,
        "How questions are put: mcf (options listed, a letter is the answer), cf (each option's text is scored) or "
        "generation. For one task: --tasks arc_easy:cf.",
        "the task's own",
        "NAME",
        complete.formulations,
    ),
]
AnswerFormatOfAll = Annotated[
    str | None,
    _flag(
        "--answer-format",
        PROMPTS,
        "The form that answers must have: json, boxed, letter ... or a template such as 'Answer: {answer}'.",
        "the task's own",
        "NAME",
        complete.answer_formats,
    ),
]
NumFewshot = Annotated[int | None, _flag("--num-fewshot", PROMPTS, "Worked examples of few_shot.", "5", "N")]
FewshotSampling = Annotated[
    str | None,
    _flag(
        "--fewshot-sampling",
        PROMPTS,
        "Which examples: random, fixed (the first ones) or balanced over answers.",
        "random",
        "NAME",
        complete.sampling,
    ),
]
ApplyChatTemplate = Annotated[
    bool | None,
    _flag("--apply-chat-template", PROMPTS, "Put prompts as conversations, by the model's chat template."),
]
SystemInstruction = Annotated[
    str | None, _flag("--system-instruction", PROMPTS, "The conversation's system message.", metavar="TEXT")
]
FewshotAsMultiturn = Annotated[
    bool | None,
    _flag("--fewshot-as-multiturn", PROMPTS, "Worked examples as turns of the conversation, not in one message."),
]
AssistantPrefix = Annotated[
    str | None, _flag("--assistant-prefix", PROMPTS, "How the model's reply begins.", metavar="TEXT")
]

# Tuning.
Steps = Annotated[int | None, _flag("--steps", TUNING, "Tuning steps.", "80", "N")]
BatchSize = Annotated[int | None, _flag("--batch-size", TUNING, "Training samples a step.", "8", "N")]
NumVirtualTokens = Annotated[
    int | None, _flag("--num-virtual-tokens", TUNING, "Vectors in the soft prompt.", "10", "N")
]
LearningRate = Annotated[
    float | None,
    _flag("--learning-rate", TUNING, "In units of the model's embeddings' RMS; not lora's.", "0.1", "X"),
]
Checkpoints = Annotated[
    str | None,
    _flag(
        "--checkpoints",
        TUNING,
        "Steps after which soft_prompt is evaluated, too, for `softbench curve`: 0,10,20,40.",
        metavar="N[,N]",
    ),
]
EarlyStop = Annotated[
    bool | None,
    _flag("--early-stop", TUNING, "End tuning when the form is learned, as held-out training samples show."),
]
GradientCheckpointing = Annotated[
    bool | None, _flag("--gradient-checkpointing", TUNING, "Tune in less memory and more time.")
]
TuneTogether = Annotated[
    bool | None, _flag("--tune-together", TUNING, "Tune all tasks' and seeds' soft prompts in the same passes.")
]
RetryLowerRate = Annotated[
    bool | None,
    _flag("--retry-lower-rate", TUNING, "Where the loss is no number any more, tune again at half the learning rate."),
]

# Evaluation.
EvalBatchSize = Annotated[
    int | None, _flag("--eval-batch-size", EVALUATION, "Most rows that go through the model at once.", "64", "N")
]
Pmi = Annotated[
    bool | None,
    _flag("--pmi", EVALUATION, "Score options without the question, too; twice the work under cf."),
]

# Machine.
EngineName = Annotated[
    str | None,
    _flag(
        "--engine",
        MACHINE,
        "What runs a model: transformers, vllm, or fake for a trial without a model.",
        "transformers",
        "NAME",
        complete.engines,
    ),
]
Device = Annotated[
    str | None, _flag("--device", MACHINE, "cpu, cuda, cuda:1, mps or auto.", "auto", "NAME", complete.devices)
]
Dtype = Annotated[
    str | None,
    _flag(
        "--dtype",
        MACHINE,
        "float32, bfloat16 or auto: bfloat16 where the device has it (`softbench doctor` says).",
        "auto",
        "NAME",
        complete.dtypes,
    ),
]
DeviceMap = Annotated[
    str | None,
    _flag(
        "--device-map",
        MACHINE,
        "auto, balanced or sequential: spread a model over all GPUs.",
        metavar="NAME",
        complete=complete.device_maps,
    ),
]
Deterministic = Annotated[
    bool | None,
    _flag("--deterministic", MACHINE, "Compute by deterministic kernels alone: the same bits each time, more slowly."),
]
ExecutorName = Annotated[
    str | None,
    _flag(
        "--executor",
        MACHINE,
        "serial: one job after another; ray: side by side, on one machine or many.",
        "serial",
        "NAME",
        complete.executors,
    ),
]
RayAddress = Annotated[
    str | None,
    _flag("--ray-address", MACHINE, "A running Ray cluster, or auto.", "a Ray on this machine", "HOST:PORT"),
]
NumGpus = Annotated[
    float | None, _flag("--num-gpus", MACHINE, "GPUs that a job asks Ray for.", "1 where there are some", "X")
]
NumCpus = Annotated[int | None, _flag("--num-cpus", MACHINE, "CPU cores that a job asks Ray for.", "1", "N")]
Memory = Annotated[float | None, _flag("--memory", MACHINE, "Memory that a job asks Ray for, in GiB.", "any", "X")]

# Output.
OutputPath = Annotated[
    Path | None,
    _flag(
        "--output-path", OUTPUT, "Folder for results; finished work in it is not done again.", "softbench_out", "DIR"
    ),
]
RunJson = Annotated[bool, _flag("--json", OUTPUT, "Print one JSON document in place of tables.")]
RunQuiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print results and errors alone.", rich_help_panel=OUTPUT)
]
RunVerbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Tell more: what is resumed, which way a model is run, libraries' logs.",
        rich_help_panel=OUTPUT,
    ),
]
