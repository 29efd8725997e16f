"""What a shell offers behind a flag when TAB is pressed. No torch here: it has to be there at once."""

from collections.abc import Callable, Iterable
from typing import get_args

import typer


def _one_of(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _some_of(names: Iterable[str], incomplete: str) -> list[str]:
    """`incomplete` is a comma-separated list whose last part is to be completed; what is in it is not offered again."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in chosen]


def task(context: typer.Context, incomplete: str) -> list[str]:
    """Names of tasks, those of --include-path among them."""
    return [name for name in _task_names(context) if name.startswith(incomplete)]


def tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Lists of tasks."""
    return _some_of(_task_names(context), incomplete)


def _task_names(context: typer.Context) -> list[str]:
    from pathlib import Path

    from softbench.errors import SoftbenchError
    from softbench.tasks import task_names

    given = context.params.get("include_path")
    try:
        return task_names(Path(given) if given else None)
    except SoftbenchError:  # the command itself will say what is wrong with the folder
        return task_names()


def methods(incomplete: str) -> list[str]:
    """Lists of methods; a loaded prompt comes by --soft-prompt."""
    from softbench.spec import METHOD_SPECS

    return _some_of([name for name in METHOD_SPECS if name != "loaded_prompt"], incomplete)


def _of_spec(field: str) -> Callable[[str], list[str]]:
    """The values that a setting of a spec may have."""

    def names() -> list[str]:
        from softbench.spec import Spec

        return _literals(Spec.model_fields[field].annotation)

    return _one_of(names)


def _literals(annotation: object) -> list[str]:
    """The words of a Literal, or of the one in a union."""
    found: list[str] = []
    for one in get_args(annotation):
        found += [one] if isinstance(one, str) else _literals(one)
    return found


def _sampling() -> list[str]:
    from softbench.spec import FewShotSpec

    return _literals(FewShotSpec.model_fields["sampling"].annotation)


def _answer_formats() -> list[str]:
    from softbench.answer_formats import ANSWER_FORMATS

    return list(ANSWER_FORMATS)


def _trackers() -> list[str]:
    from softbench.share import TRACKERS

    return list(TRACKERS)


engines, executors, dtypes = _of_spec("engine"), _of_spec("executor"), _of_spec("dtype")
device_maps, formulations = _of_spec("device_map"), _of_spec("formulation")
sampling, answer_formats, trackers = _one_of(_sampling), _one_of(_answer_formats), _one_of(_trackers)
devices = _one_of(lambda: ("auto", "cpu", "cuda", "mps"))
