"""What mkdocs does besides: writes the command-line page from the program, refuses pages that load from elsewhere."""

import re
from collections.abc import Iterator
from typing import Any

import typer.main
from mkdocs.exceptions import PluginError

from softbench.cli import app

MARKER = re.compile(r"^<!-- commands.*-->$", re.MULTILINE)
LOADS = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the commands where a page has the marker."""
    return MARKER.sub(lambda _: "\n".join(map(section, commands())), markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Raise PluginError where the page would load anything from another host."""
    found = LOADS.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri} loads from elsewhere: {found.group()}")
    return output


Command = tuple[str, Any]
"""A command's whole name, `softbench tasks show`, and the object that parses its arguments."""


def commands() -> Iterator[Command]:
    """Every command of softbench, a group before those in it."""
    yield from _with_subcommands("softbench", typer.main.get_command(app))


def _with_subcommands(name: str, command: Any) -> Iterator[Command]:
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _with_subcommands(f"{name} {word}", below)


def section(named: Command) -> str:
    """A command's help, usage, and a table of its arguments and options, in Markdown."""
    name, command = named
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.get_usage(context).split())
    records = [one.get_help_record(context) for one in command.get_params(context) if one.name != "help"]
    rows = [f"| `{form}` | {_text(meaning)} |" for form, meaning in filter(None, records)]
    table = ["", "| argument or option | meaning |", "| --- | --- |", *rows] if rows else []
    return "\n".join([f"### {name}", "", _text(command.help or ""), "", f"    {usage}", *table, ""])


def _text(text: str) -> str:
    """Plain text as Markdown that shows it; what stands between backticks stays as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<|*_\[\]])", r"\\\1", part) for part in parts)
