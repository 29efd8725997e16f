"""Tables as data: one Sheet becomes HTML in the page, CSV for machines, Markdown and LaTeX for papers."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softbench.report.plain import plain
from softbench.types import Estimate

Cell = str | int | float | None | Estimate


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows by column name; `columns` gives the names in order with their headings.

    A float is printed with three significant digits, an Estimate, a share, in percent with its interval; None, which
    stands for what was not measured, as a dash.
    """

    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Cell]]

    @property
    def numeric(self) -> frozenset[str]:
        """Columns that hold no text."""
        return frozenset(name for name in self.columns if not any(isinstance(row.get(name), str) for row in self.rows))


def printed(cell: Cell) -> str:
    """A cell for people."""
    if isinstance(cell, Estimate):
        if cell.value is None:
            return "-"
        interval = "" if cell.low is None or cell.high is None else f" [{100 * cell.low:.1f}, {100 * cell.high:.1f}]"
        return f"{100 * cell.value:.1f}{interval}"
    if isinstance(cell, float):
        return f"{cell:.3g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return "-" if cell is None else cell


def to_csv(sheet: Sheet) -> str:
    """CSV with names as headings, all digits, and a share as four columns: value, low, high (0 to 1) and n."""
    shares = {name for name in sheet.columns if any(isinstance(row.get(name), Estimate) for row in sheet.rows)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    parts = ("", "_low", "_high", "_n")
    writer.writerow(
        [heading for name in sheet.columns for heading in ([name + one for one in parts] if name in shares else [name])]
    )
    for row in sheet.rows:
        cells: list[object] = []
        for name in sheet.columns:
            cell = row.get(name)
            if name not in shares:
                cells.append(_inert(cell) if isinstance(cell, str) else cell)
            elif isinstance(cell, Estimate):
                cells += [cell.value, cell.low, cell.high, cell.n]
            else:
                cells += [None] * len(parts)
        writer.writerow(cells)
    return out.getvalue()


def _inert(text: str) -> str:
    """Spreadsheets take a text that begins so for a formula, and run it."""
    text = plain(text)
    return "'" + text if text.startswith(("=", "+", "-", "@", "\t")) else text


def to_markdown(sheet: Sheet) -> str:
    """A Markdown table, numbers to the right."""
    rule = ["---:" if name in sheet.numeric else "---" for name in sheet.columns]
    lines = [list(sheet.columns.values()), rule]
    lines += [[printed(row.get(name)) for name in sheet.columns] for row in sheet.rows]
    body = [[cell if cells is rule else _markdown(cell) for cell in cells] for cells in lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in body)


def _markdown(text: str) -> str:
    escaped = re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text) if re.search(r"[^\d\s.,\[\]%-]", text) else text
    return " ".join(escaped.split())


def to_latex(sheet: Sheet, caption: str, label: str) -> str:
    """A LaTeX table in booktabs's style."""
    alignment = "".join("r" if name in sheet.numeric else "l" for name in sheet.columns)
    lines = [" & ".join(_latex(one) for one in sheet.columns.values()) + r" \\", r"\midrule"]
    lines += [" & ".join(_latex(printed(row.get(name))) for name in sheet.columns) + r" \\" for row in sheet.rows]
    body = "\n".join(lines)
    return (
        "% \\usepackage{booktabs}\n\\begin{table}\n\\centering\n"
        f"\\caption{{{_latex(caption)}}}\n\\label{{tab:{label}}}\n"
        f"\\begin{{tabular}}{{{alignment}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "[": "{[}", "]": "{]}",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
