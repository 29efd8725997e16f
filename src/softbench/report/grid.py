"""Tables of numbers that fit a terminal of 80 columns: names give way, numbers do not."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

NUMBER_WIDTH = 14
"""Columns that a heading over numbers may take: as many as an interval does."""


UNLIMITED = 100_000
"""Columns of what has no width of its own, such as a file: every table fits."""


def grid(title: str, labels: Sequence[str], numbers: Sequence[str], wide: bool = False) -> Table:
    """An empty table: columns of names, which are folded where room is short, then columns of numbers, which never are.

    Headings over numbers are broken to NUMBER_WIDTH; whoever fills the table sees to it that cells are no wider. A
    `wide` table has room for whole headings and more space between columns.
    """
    table = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        title_style="",
        header_style="bold",
        box=None,
        pad_edge=False,
        collapse_padding=not wide,
    )
    for label in labels:
        table.add_column(Text(label), overflow="fold")
    for number in numbers:
        table.add_column(Text(number if wide else broken(number, NUMBER_WIDTH)), justify="right", no_wrap=True)
    return table


def facts(title: str, rows: Iterable[tuple[str | Text, str]]) -> Table:
    """A table of names, which keep their width, and what is to be said of each."""
    table = grid(title, ("", ""), ())
    table.show_header = False
    table.columns[0].no_wrap = True
    for name, fact in rows:
        table.add_row(name if isinstance(name, Text) else Text(name), Text(fact))
    return table


def width_of(table: Table) -> int:
    """Columns that a table takes with nothing folded."""
    return Console(width=UNLIMITED).measure(table).maximum


def broken(name: str, width: int) -> str:
    """`name` in lines of at most `width` characters, which end behind a `-`, `_`, `|` or the like where they can."""
    lines = []
    while len(name) > width:
        # A space that ends a line takes no room.
        places = range(width + (name[width] == " "), width // 2 - 1, -1)
        end = next((place for place in places if name[place - 1] in "-_|:/. "), width)
        lines.append(name[:end].rstrip())
        name = name[end:]
    return "\n".join([*lines, name])


def grouped(names: Sequence[str], most: int) -> list[Sequence[str]]:
    """`names` in groups of up to `most`, of about equal size: what stands side by side in one table."""
    count = -(-len(names) // most)
    size = -(-len(names) // count) if count else 0
    return [names[start : start + size] for start in range(0, len(names), size)] if size else []
