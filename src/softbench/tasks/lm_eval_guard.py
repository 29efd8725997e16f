"""What a task file in lm-evaluation-harness's schema may not do here, whoever wrote it.

By itself the harness runs the Python that a file names, takes metrics that are programs, reads any file that it names,
renders templates without a sandbox and matches patterns without a time limit. The tasks that come with the harness are
code that its user has installed: their functions run. Of other files, those do whose user says so, by
SOFTBENCH_TRUST_TASKS=1.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
import yaml

from softbench import patterns
from softbench.errors import SoftbenchError, TaskError, first_line
from softbench.sandbox import BoundedEnvironment, full_budget, pay, pay_for
from softbench.untrusted import MOST_YAML, Loader, load_yaml, read_text

TRUST = "SOFTBENCH_TRUST_TASKS"
_PACKAGED = ("json", "csv", "parquet", "text", "arrow")
"""What `dataset_path` may be that is neither a folder nor a data set of the hub."""


@contextmanager
def guarded(name: str) -> Iterator[None]:
    """Let the harness work on the task called `name`: templates and patterns are bounded, and whatever it raises is a
    TaskError."""
    import lm_eval.api.metrics
    import lm_eval.filters.extraction
    import lm_eval.utils

    places = (
        (lm_eval.utils, "apply_template", _apply_template),
        (lm_eval.api.metrics, "re", patterns.TIMED),
        (lm_eval.filters.extraction, "re", patterns.TIMED),
    )
    before = [getattr(module, attribute) for module, attribute, _ in places]
    for module, attribute, bounded in places:
        setattr(module, attribute, bounded)
    try:
        yield
    except SoftbenchError:
        raise
    except Exception as error:  # the harness, `datasets` and templates raise many kinds
        raise TaskError(f"task {name!r}: lm-evaluation-harness fails on it: {first_line(error)}") from error
    finally:
        for (module, attribute, _), old in zip(places, before, strict=True):
            setattr(module, attribute, old)


def check_task_file(path: Path) -> None:
    """Raise TaskError where the task in a file of the user's would run code, or read data from outside its folder."""
    if os.environ.get(TRUST) == "1":
        return
    config = _merged(path, ())
    if "class" in config:
        raise _refused(path, "is a Python class")
    if not isinstance(config.get("task"), str) or "group" in config or "task_list" in config:
        raise TaskError(f"task file {str(path)!r} is a group, or names no task; give a file of one task")
    for metric in _mappings(config.get("metric_list")):
        _check_metric(path, metric)
    settings = config.get("dataset_kwargs")
    given = settings if isinstance(settings, Mapping) else {}
    if given.get("trust_remote_code"):
        raise _refused(path, "wants code of its data set to be run (trust_remote_code)")
    dataset = config.get("dataset_path")
    if isinstance(dataset, str) and dataset not in _PACKAGED and Path(dataset).exists():
        _check_place(path, dataset)
    for place in _texts([given.get("data_files"), given.get("data_dir")]):
        _check_place(path, place)


def _merged(path: Path, including: tuple[Path, ...]) -> dict[str, Any]:
    """What a file and those that it includes say, as the harness puts them together."""
    import lm_eval.tasks

    place = path.resolve()
    if place in including:
        raise TaskError(f"task file {str(path)!r} includes itself; take that out")
    if including and place.is_relative_to(Path(lm_eval.tasks.__file__).resolve().parent):
        return {"task": ""}
    try:
        config = load_yaml(read_text(path, MOST_YAML), _WithoutCode)
    except (OSError, ValueError) as error:
        raise TaskError(f"task file {str(path)!r} can't be read: {error}") from error
    if not isinstance(config, dict):
        raise TaskError(f"task file {str(path)!r} must hold a mapping with task, dataset_path, doc_to_text and more")
    merged: dict[str, Any] = {}
    for included in _texts([config.pop("include", None)]):
        merged |= _merged(path.parent / included, (*including, place))
    return merged | config


class _WithoutCode(Loader):
    """Plain YAML that names no Python."""


def _no_function(loader: yaml.Loader, node: yaml.Node) -> None:
    raise yaml.constructor.ConstructorError(
        None,
        None,
        f"it names Python code ({node.tag} {node.value}), which would run; look at that code, and if you trust it, set "
        f"{TRUST}=1",
        node.start_mark,
    )


_WithoutCode.add_constructor("!function", _no_function)


def _check_metric(path: Path, metric: Mapping[str, Any]) -> None:
    from lm_eval.api import metrics  # registers them  # noqa: F401
    from lm_eval.api.registry import METRIC_REGISTRY

    name = metric.get("metric")
    if metric.get("hf_evaluate") or not isinstance(name, str) or name not in METRIC_REGISTRY:
        raise _refused(path, f"is scored by {name!r}, which is no metric of the harness's own but a program")


def _check_place(path: Path, place: str) -> None:
    """Raise TaskError where data lie outside of the task's own folder: what is read ends in prompts and records."""
    if place.startswith(("https://", "hf://")) and "::" not in place:
        return
    try:
        inside = "://" not in place and Path(place).resolve().is_relative_to(path.parent.resolve())
    except (OSError, RuntimeError, ValueError):  # links in a circle, a NUL
        inside = False
    if not inside:
        raise _refused(path, f"reads {place!r}, which does not lie in its own folder")


def _refused(path: Path, why: str) -> TaskError:
    return TaskError(f"task file {str(path)!r} {why}; look at it, and if you trust it, set {TRUST}=1")


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    """Every text in lists and mappings."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


def _apply_template(template: str, doc: Mapping[str, Any]) -> str:
    """The harness's own function of this name, in a bounded sandbox."""
    full_budget()
    compiled = _compiled(template)
    full_budget()
    return compiled.render(**doc)


@functools.lru_cache(maxsize=64)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


@functools.cache
def _environment() -> BoundedEnvironment:
    environment = BoundedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = _regex_replace
    return environment


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    """The harness's filter of this name."""
    pay((len(string) + 1) * (len(repl) + 1))
    patterns.check_pattern(pattern)
    replaced: str = patterns.TIMED.sub(pattern, repl, string, count=count)
    pay_for(replaced)
    return replaced
