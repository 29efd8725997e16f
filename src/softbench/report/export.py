"""Writes a report: the page, or each figure and table of it in a file of its own."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from softbench.errors import SpecError, did_you_mean
from softbench.files import write_atomic
from softbench.report.figures import png_file, svg_file, whole
from softbench.report.page import write_page
from softbench.report.sheets import to_csv, to_latex, to_markdown
from softbench.report.story import Figure, Story
from softbench.runs import FinishedJob
from softbench.types import Progress

FORMATS: dict[str, tuple[str, Callable[[Figure], bytes]]] = {
    "svg": ("svg", lambda figure: svg_file(whole(figure))),
    "png": ("png", lambda figure: png_file(whole(figure))),
    "csv": ("csv", lambda figure: _encoded(to_csv(figure.sheet))),
    "markdown": ("md", lambda figure: _encoded(to_markdown(figure.sheet))),
    "latex": ("tex", lambda figure: _encoded(to_latex(figure.sheet, figure.title, figure.name))),
}
"""Endings of the files that a figure, or the table behind it, is written to, and what is in them."""


def write_report(
    story: Story, jobs: Sequence[FinishedJob], formats: Sequence[str], folder: Path, progress: Progress
) -> list[Path]:
    """Write `report.html`, or `<figure>.<ending>` for each figure and format, to `folder`; the files.

    Raises SpecError at an unknown format, OutputError where a file can't be written.
    """
    for name in formats:
        if name not in ("html", *FORMATS):
            raise SpecError(f"--format can't be {name!r}{did_you_mean(name, ['html', *FORMATS])}")
    figures = [figure for section in story.sections for figure in section.figures]
    makers: dict[str, Callable[[], bytes]] = {}
    for name in formats:
        if name == "html":
            makers["report.html"] = lambda: write_page(story, jobs)
        else:
            ending, make = FORMATS[name]
            makers |= {f"{figure.name}.{ending}": partial(make, figure) for figure in figures}
    with progress.track("write the report", len(makers)) as advance:
        for file, made in makers.items():
            write_atomic(folder / file, made())
            advance(1, file)
    return [folder / file for file in makers]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="backslashreplace")
