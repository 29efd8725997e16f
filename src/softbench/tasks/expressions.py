"""Jinja templates and expressions of a row, in a bounded sandbox: how a definition says where a row keeps what."""

import functools
from collections.abc import Iterator
from typing import Any

import jinja2
import jinja2.meta

from softbench.sandbox import ImmutableBoundedEnvironment, full_budget
from softbench.tasks.sources import Row


class ExpressionError(ValueError):
    """A template or an expression that is no Jinja, or fails on a row; the message says why."""


@functools.cache
def _environment() -> ImmutableBoundedEnvironment:
    return ImmutableBoundedEnvironment(undefined=jinja2.StrictUndefined, trim_blocks=True)


@functools.cache
def compile_template(source: str) -> jinja2.Template:
    """A template of a sample. Raises ExpressionError where `source` is none."""
    full_budget()
    try:
        return _environment().from_string(source)
    except Exception as error:  # deep ones end Python's own stack, or its compiler's
        raise ExpressionError(_said(error)) from error


@functools.cache
def compile_expression(source: str) -> Any:
    """A function of a row. Raises ExpressionError where `source` is no expression."""
    full_budget()
    try:
        return _environment().compile_expression(source, undefined_to_none=False)
    except Exception as error:
        raise ExpressionError(_said(error)) from error


def render(source: str, names: Row) -> str:
    """The text of a template. Raises ExpressionError where it fails, or does too much."""
    template = compile_template(source)
    full_budget()
    try:
        return template.render(names)
    except Exception as error:  # a template may do whatever it likes
        raise ExpressionError(_said(error)) from error


def evaluate(source: str, row: Row) -> Any:
    """What `source` is for `row`, whose keys are its names; `row` is the row itself.

    Raises ExpressionError at a lack, where it fails or where it does too much.
    """
    expression = compile_expression(source)
    full_budget()
    try:
        value = expression({**row, "row": row})
        value = list(value) if isinstance(value, Iterator) else value
    except Exception as error:
        raise ExpressionError(_said(error)) from error
    if isinstance(value, jinja2.Undefined):
        raise ExpressionError(f"{source!r} finds nothing in it (it has {', '.join(row)})")
    return value


@functools.cache
def variables(template: str) -> frozenset[str]:
    """The names that a template uses. Raises ExpressionError where it is none."""
    try:
        return frozenset(jinja2.meta.find_undeclared_variables(_environment().parse(template)))
    except Exception as error:
        raise ExpressionError(_said(error)) from error


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
