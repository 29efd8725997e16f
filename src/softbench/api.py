"""softbench from Python: `softbench.run`, `softbench.tune` and `softbench.evaluate`; examples/python_api.py shows them.

`settings` are the keys of a spec, and the settings of its methods, by the names that they have there: limit, dtype,
device, data_dir, answer_format, steps, learning_rate ... Whatever is wrong with one raises SpecError.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softbench.results import JobResult, Results
    from softbench.types import Progress, SoftPrompt


def run(
    models: Sequence[str | Mapping[str, Any]],
    tasks: Sequence[str],
    methods: Sequence[Any] = ("zero_shot", "few_shot", "soft_prompt"),
    *,
    output_path: str | Path = "softbench_out",
    progress: "Progress | None" = None,
    **settings: Any,
) -> "list[Results]":
    """Every model on every task by every method, as `softbench run` does it: one Results a model, written and returned.

    Models and methods may be given as a spec file has them: {"source": FOLDER, "apply_chat_template": True}.
    Work that an earlier call finished in `output_path` is read, not done again. Raises SoftbenchError.
    """
    from softbench import executors
    from softbench.spec import read_spec

    asked = {"models": list(models), "tasks": list(tasks), "methods": list(methods), "output_path": Path(output_path)}
    return executors.run(read_spec(None, {**settings, **asked}), progress or _progress())


def tune(
    model: str,
    task: str,
    *,
    output_path: str | Path | None = None,
    seed: int = 0,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "SoftPrompt":
    """A soft prompt for `model`, tuned on the tuning split of `task`; kept in the folder `output_path` if given.

    Raises SoftbenchError.
    """
    from softbench.methods.soft_prompt import write_soft_prompt
    from softbench.pipeline import load_tasks, open_model, plan, prepare
    from softbench.spec import read_spec

    asked = {"models": [model], "tasks": [task], "methods": ["soft_prompt"], "seeds": [seed]}
    spec = read_spec(None, {**settings, **asked})
    shown = progress or _progress()
    [job] = plan(spec, load_tasks(spec, shown))
    backend = open_model(spec.models[0], spec, shown)
    with tempfile.TemporaryDirectory(prefix="softbench-") as folder:
        prepared = prepare(job, backend, Path(folder), f"{backend.engine.info.name} {job.task.name}", shown)
    assert prepared.soft_prompt is not None  # that is what the method prepares
    if output_path is not None:
        write_soft_prompt(Path(output_path), prepared.soft_prompt)
    return prepared.soft_prompt


def evaluate(
    model: str,
    task: str,
    *,
    soft_prompt: "SoftPrompt | str | Path | None" = None,
    num_fewshot: int = 0,
    output_path: str | Path | None = None,
    seed: int = 0,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "JobResult":
    """Records and metrics of `model` on `task`: zero-shot, with worked examples, or behind a soft prompt.

    `soft_prompt` is what `tune` returned, or the folder of one (ours or PEFT's). Result files are written to
    `output_path` if given, else nowhere. Raises SoftbenchError.
    """
    from softbench.errors import SpecError
    from softbench.methods.soft_prompt import write_soft_prompt
    from softbench.types import SoftPrompt

    if soft_prompt is not None and num_fewshot:
        raise SpecError("a soft prompt stands before the zero-shot prompt: give soft_prompt or num_fewshot, not both")
    with tempfile.TemporaryDirectory(prefix="softbench-") as scratch:
        method: dict[str, Any] = {"kind": "zero_shot"}
        if num_fewshot:
            method = {"kind": "few_shot", "num_fewshot": num_fewshot}
        if isinstance(soft_prompt, SoftPrompt):
            write_soft_prompt(Path(scratch) / "soft_prompt", soft_prompt)
            soft_prompt = Path(scratch) / "soft_prompt"
        if soft_prompt is not None:
            method = {"kind": "loaded_prompt", "soft_prompt": Path(soft_prompt)}
        out = Path(scratch) / "out" if output_path is None else output_path
        [results] = run([model], [task], [method], output_path=out, progress=progress, seeds=[seed], **settings)
        [job] = results.jobs
        # A folder that goes takes the records with it.
        return replace(job, records=tuple(job.records)) if output_path is None else job


def _progress() -> "Progress":
    from rich.console import Console

    from softbench.report.progress import make_progress

    return make_progress(Console(stderr=True))
