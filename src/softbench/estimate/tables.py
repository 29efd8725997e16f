"""What `softbench estimate` prints."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.estimate.counting import CHARACTERS
from softbench.estimate.data import LOOKED_AT
from softbench.estimate.forecast import Amount, Forecast, ModelForecast
from softbench.report.grid import grid

_NUMBERS = ("jobs", "prompt tokens", "read", "written, at most", "tuned on", "PFLOP", "GPU h")
_TOTALS = ("parameters", "jobs", "tokens", "PFLOP", "GPU h", "GiB", "disk")
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def estimate_tables(forecast: Forecast) -> list[Table]:
    """A table a model, a row a task; then one of all models."""
    tables = [_of_model(model, forecast) for model in forecast.models]
    whole = grid("all models", ("model",), _TOTALS)
    for model in forecast.models:
        gib = f"{model.memory.total / 2**30:.1f}"
        whole.add_row(Text(model.name), short(model.size.num_parameters), *_totals(model.total, forecast, gib))
    if len(forecast.models) > 1:
        whole.add_row("all", "", *_totals(forecast.total, forecast, ""))
    return [*tables, whole]


def notes(forecast: Forecast) -> list[str]:
    """What the figures rest on."""
    lines = [
        "prompt tokens are those of all prompts, each whole; read are those that pass through the model, which reads "
        "what prompts share once",
        f"GPU hours are at {forecast.tflops:g} TFLOP/s reached on each GPU (--tflops); written tokens are an upper "
        "bound, and writing one by one seldom reaches that rate",
        f"GiB are weights at {forecast.item_size} bytes, and the most of keys and values, logits and what tuning keeps",
    ]
    by_source: dict[str, list[str]] = {}
    for model in forecast.models:
        by_source.setdefault(model.size.known_from, []).append(model.name)
    lines += [f"size from {source}: {_listed(names)}" for source, names in by_source.items()]
    guessed = [model.name for model in forecast.models if not model.exact_tokens]
    if guessed:
        lines.append(f"no tokenizer at hand, {CHARACTERS} characters taken for a token: {_listed(guessed)}")
    if forecast.assumed_tasks:
        lines.append(f"data not at hand, size and length of texts as published: {_listed(forecast.assumed_tasks)}")
    if forecast.sampled_tasks:
        lines.append(f"counted on {LOOKED_AT} samples, which stand for all: {_listed(forecast.sampled_tasks)}")
    lines += [
        f"{model.name} takes {model.size.max_length} tokens and a row has {model.longest}: the run would refuse it"
        for model in forecast.models
        if model.size.max_length is not None and model.longest > model.size.max_length
    ]
    return lines


def estimate_dict(forecast: Forecast) -> dict[str, Any]:
    """The same for machines."""
    return {
        "tflops": forecast.tflops,
        "models": [
            {
                "model": model.name,
                "size": asdict(model.size),
                "exact_tokens": model.exact_tokens,
                "tasks": {task: _amount_dict(amount, forecast) for task, amount in model.tasks.items()},
                "total": _amount_dict(model.total, forecast),
                "memory_bytes": {**asdict(model.memory), "total": model.memory.total},
                "longest_row": model.longest,
            }
            for model in forecast.models
        ],
        "total": _amount_dict(forecast.total, forecast),
        "notes": notes(forecast),
    }


def short(value: float) -> str:
    """Three digits and a prefix: 1.24G."""
    for unit, prefix in _PREFIXES:
        if value >= unit * 0.9995:
            return f"{_three(value / unit)}{prefix}"
    return f"{value:.0f}" if value == round(value) or value >= 100 else _three(value)


def _three(value: float) -> str:
    if value < 0.1:
        return f"{value:.2g}"
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _of_model(model: ModelForecast, forecast: Forecast) -> Table:
    table = grid(model.name, ("task",), _NUMBERS)
    for task, amount in model.tasks.items():
        table.add_row(Text(task), *_cells(amount, forecast))
    if len(model.tasks) > 1:
        table.add_row("all", *_cells(model.total, forecast))
    return table


def _cells(amount: Amount, forecast: Forecast) -> Iterable[str]:
    tokens = (amount.prompt_tokens, amount.read_tokens, amount.written_tokens, amount.tuning_tokens)
    return (str(amount.jobs), *(short(round(one)) for one in tokens), *_work(amount, forecast))


def _totals(amount: Amount, forecast: Forecast, gib: str) -> Iterable[str]:
    tokens = amount.read_tokens + amount.written_tokens + amount.tuning_tokens
    return (str(amount.jobs), short(round(tokens)), *_work(amount, forecast), gib, f"{short(amount.disk)}B")


def _work(amount: Amount, forecast: Forecast) -> Iterable[str]:
    return (_three(amount.flops / 1e15), _three(forecast.hours(amount)))


def _amount_dict(amount: Amount, forecast: Forecast) -> dict[str, Any]:
    return {
        "jobs": amount.jobs,
        "samples": amount.samples,
        "prompt_tokens": round(amount.prompt_tokens),
        "read_tokens": round(amount.read_tokens),
        "written_tokens": round(amount.written_tokens),
        "tuning_tokens": round(amount.tuning_tokens),
        "body_flops": round(amount.body_flops),
        "head_flops": round(amount.head_flops),
        "flops": round(amount.flops),
        "gpu_hours": forecast.hours(amount),
        "disk_bytes": round(amount.disk),
    }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
