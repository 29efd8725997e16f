"""Benchmarks: one a file. `get_task("arc_easy:cf")` finds one by name; a plain name gives its first formulation."""

from collections.abc import Callable

from softbench.errors import TaskError, did_you_mean
from softbench.tasks.arc_easy import arc_easy_cf, arc_easy_generation, arc_easy_mcf
from softbench.tasks.arithmetic import arithmetic
from softbench.tasks.capitals import capitals
from softbench.tasks.elements import elements
from softbench.tasks.loading import TaskData, load_data, samples_hash
from softbench.tasks.task import Task, choice_answers, render_prompt

TASKS: dict[str, Callable[[], Task]] = {
    "capitals": capitals,
    "elements": elements,
    "arithmetic": arithmetic,
    "arc_easy": arc_easy_mcf,
    "arc_easy:mcf": arc_easy_mcf,
    "arc_easy:generation": arc_easy_generation,
    "arc_easy:cf": arc_easy_cf,
}


def get_task(name: str) -> Task:
    """The task called `name`. Raises TaskError, naming the nearest, where there is none."""
    if name not in TASKS:
        raise TaskError(f"task {name!r} is unknown{did_you_mean(name, TASKS)}")
    return TASKS[name]()


__all__ = ["TASKS", "Task", "TaskData", "choice_answers", "get_task", "load_data", "render_prompt", "samples_hash"]
