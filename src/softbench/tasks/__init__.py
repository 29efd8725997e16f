"""Benchmarks. `get_task("arc_easy:mcf:json")` finds one by name, formulation and answer format (both optional)."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import cast, get_args

from softbench.answer_formats import ANSWER_FORMATS, AnswerFormat, answer_format
from softbench.errors import TaskError, did_you_mean
from softbench.tasks.arithmetic import arithmetic
from softbench.tasks.build import build_task
from softbench.tasks.capitals import capitals
from softbench.tasks.definition import (
    Definition,
    builtin_definitions,
    is_definition_file,
    read_definition,
)
from softbench.tasks.elements import elements
from softbench.tasks.lm_eval_tasks import PREFIX, is_lm_eval_file, lm_eval_task
from softbench.tasks.loading import TaskData, load_data, samples_hash
from softbench.tasks.samples import are_local
from softbench.tasks.task import (
    Task,
    choice_answers,
    num_shared,
    render_chat_prompt,
    render_prompt,
    shuffle_labels,
    shuffle_options,
)
from softbench.types import Formulation

TASKS: dict[str, Callable[[], Task]] = {"capitals": capitals, "elements": elements, "arithmetic": arithmetic}
"""Tasks made in Python; put one's own here. The others are YAML: see softbench.tasks.definition."""


def get_task(
    name: str,
    formulation: Formulation | None = None,
    format_name: str | None = None,
    include_path: Path | None = None,
) -> Task:
    """The task called `name`, such as `gsm8k`, `arc_easy:cf`, `arc_easy:mcf:json` or the path of a YAML file.

    `formulation` and `format_name` (an answer format's name, or a template that holds `{answer}`) replace its own where
    the name has none; `include_path` is a folder of further YAML tasks. Raises TaskError, naming what is near, where
    there is none.
    """
    base, *parts = name.split(":")
    chosen = formulation
    for part in parts:
        if part in get_args(Formulation):
            chosen = cast("Formulation", part)
        elif part in ANSWER_FORMATS:
            format_name = part
        else:
            near = did_you_mean(part, [*get_args(Formulation), *ANSWER_FORMATS])
            raise TaskError(f"task {name!r}: {part!r} is neither a formulation nor an answer format{near}")
    if base.endswith((".yaml", ".yml")) and is_lm_eval_file(Path(base)):
        return _of_the_harness(base, chosen, format_name, include_path)
    if base.endswith((".yaml", ".yml")):
        return build_task(read_definition(Path(base)), chosen, format_name, Path(base).parent)
    own = included_definitions(include_path)
    if base.startswith(PREFIX):
        return _of_the_harness(base, chosen, format_name, include_path)
    if base in own:
        definition, folder = own[base]
        return build_task(definition, chosen, format_name, folder)
    if base in builtin_definitions():
        return build_task(builtin_definitions()[base], chosen, format_name)
    if base not in TASKS:
        raise TaskError(f"task {name!r} is unknown{did_you_mean(base, [*TASKS, *own, *builtin_definitions()])}")
    task = TASKS[base]()
    if chosen not in (None, task.formulation):
        raise TaskError(f"task {base!r} has no formulation {chosen!r}; it has {task.formulation!r}")
    if format_name is None:
        return task
    if not isinstance(task.answer_format, AnswerFormat):
        raise TaskError(f"task {base!r} reads answers in its own way; no other answer format fits")
    form = answer_format(format_name, task.answer_format.kind, task.answer_format.reasoning)
    return dataclasses.replace(task, name=f"{task.name}:{form.name}", answer_format=form)


def _of_the_harness(
    name: str, formulation: Formulation | None, format_name: str | None, include_path: Path | None
) -> Task:
    task = lm_eval_task(name, include_path)
    if format_name is not None or formulation not in (None, task.formulation):
        raise TaskError(f"task {name!r} is put as lm-evaluation-harness puts it; drop formulation and answer format")
    return task


def task_names(include_path: Path | None = None, own_only: bool = False) -> list[str]:
    """The names of all tasks at hand, those of `include_path` first, or these alone."""
    own = list(included_definitions(include_path))
    return own if own_only else [*own, *TASKS, *builtin_definitions()]


def benchmarks_in(data_dir: Path | None) -> dict[str, bool]:
    """Whether each of the built-in benchmarks is there under a local data root."""
    return {
        name: data_dir is not None and are_local(definition, data_dir)
        for name, definition in builtin_definitions().items()
    }


def formulations(name: str, include_path: Path | None = None) -> tuple[Formulation, ...]:
    """The formulations of the task called `name` (without one of its own in it), the default first."""
    if name.endswith((".yaml", ".yml")) and not is_lm_eval_file(Path(name)):
        return read_definition(Path(name)).offered
    own = included_definitions(include_path)
    if name in own or name in builtin_definitions():
        return (own[name][0] if name in own else builtin_definitions()[name]).offered
    return (get_task(name, include_path=include_path).formulation,)


def included_definitions(include_path: Path | None) -> dict[str, tuple[Definition, Path]]:
    """The definitions in a folder's YAML files by name, each with the folder that its data lie in."""
    if include_path is None:
        return {}
    if not include_path.is_dir():
        raise TaskError(f"include path {str(include_path)!r} is no folder; give one that holds task files (*.yaml)")
    found: dict[str, tuple[Definition, Path]] = {}
    for path in sorted([*include_path.glob("*.yaml"), *include_path.glob("*.yml")]):
        if is_lm_eval_file(path) or not is_definition_file(path):
            continue
        definition = read_definition(path)
        if definition.task in found:
            raise TaskError(f"include path {str(include_path)!r} holds two tasks called {definition.task!r}")
        found[definition.task] = (definition, path.parent)
    return found


__all__ = [
    "TASKS",
    "Task",
    "TaskData",
    "benchmarks_in",
    "choice_answers",
    "formulations",
    "get_task",
    "load_data",
    "num_shared",
    "render_chat_prompt",
    "render_prompt",
    "samples_hash",
    "shuffle_labels",
    "shuffle_options",
    "task_names",
]
