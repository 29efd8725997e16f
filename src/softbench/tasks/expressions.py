"""Jinja templates and expressions of a row, in Jinja's sandbox: how a definition says where a row keeps what."""

import functools
from typing import Any

import jinja2
import jinja2.meta
import jinja2.sandbox

from softbench.tasks.sources import Row


@functools.cache
def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    return jinja2.sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, trim_blocks=True)


@functools.cache
def compile_template(source: str) -> jinja2.Template:
    """A template of a sample. Raises jinja2.TemplateError where `source` is none."""
    return _environment().from_string(source)


@functools.cache
def compile_expression(source: str) -> Any:
    """A function of a row. Raises jinja2.TemplateError where `source` is no expression."""
    return _environment().compile_expression(source, undefined_to_none=False)


def evaluate(source: str, row: Row) -> Any:
    """What `source` is for `row`, whose keys are its names; `row` is the row itself. Raises LookupError at a lack."""
    value = compile_expression(source)({**row, "row": row})
    if isinstance(value, jinja2.Undefined):
        raise LookupError(f"{source!r} finds nothing in it (it has {', '.join(row)})")  # noqa: TRY004  # a lack
    return value


@functools.cache
def variables(template: str) -> frozenset[str]:
    """The names that a template uses. Raises jinja2.TemplateError where it is none."""
    return frozenset(jinja2.meta.find_undeclared_variables(_environment().parse(template)))
