"""Findings as text: tables in Markdown, numbers with so many digits as they deserve."""

from collections.abc import Mapping, Sequence
from typing import Any

DECIMALS = 4
"""Files hold so many: far below any interval, and above what another order of summing does."""


def block(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> str:
    """A table under a heading, with a note before it."""
    lines = [f"## {title}", "", *([note, ""] if note else [])]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in (columns, ["---"] * len(columns), *rows)]
    return "\n".join(lines)


def percent(value: float | None) -> str:
    """`12.3 %`, or a dash."""
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value: float | None, form: str) -> str:
    """A number in a format, or a dash."""
    return "-" if value is None else format(value, form)


def interval(estimate: Mapping[str, Any], form: str = ".2f") -> str:
    """`0.12 [0.10, 0.15]`, or a dash."""
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    return "-" if value is None else f"{value:{form}} [{low:{form}}, {high:{form}}]"


def percents(estimate: Mapping[str, Any], form: str = ".1f") -> str:
    """`12.3 [10.0, 15.2]` percent or points, or a dash."""
    parts = {name: None if estimate[name] is None else 100 * estimate[name] for name in ("value", "low", "high")}
    return interval(parts, form)


def rounded(value: Any) -> Any:
    """The same with all floats rounded to DECIMALS."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return value
