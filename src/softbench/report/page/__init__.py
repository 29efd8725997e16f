"""The page: one HTML file with all that it needs inside, so that it opens anywhere and fetches nothing."""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import count

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

import softbench
from softbench.report.figures import chart, svg_for_page
from softbench.report.glossary import GLOSSARY
from softbench.report.keys import INK, Key, keys_of
from softbench.report.plain import UNSEEN, plain
from softbench.report.samples import pack
from softbench.report.sheets import printed
from softbench.report.story import Figure, Panel, Story
from softbench.runs import FinishedJob

_TERM = re.compile(
    rf"(?<![\w-])({'|'.join(sorted(map(re.escape, GLOSSARY), key=len, reverse=True))})(?![\w-])", re.IGNORECASE
)
_CODE = re.compile(r"`([^`]+)`")
_WITH_MEANING = Markup(
    '<span class="term" tabindex="0" aria-describedby="{name}">{word}'
    '<span role="tooltip" id="{name}">{meaning}</span></span>'
)
_MEANINGS = {word.lower(): meaning for word, meaning in GLOSSARY.items()}


def write_page(story: Story, jobs: Sequence[FinishedJob]) -> bytes:
    """The HTML of `story`, with the samples of `jobs` to look through.

    Everything that models and data sets wrote is escaped, or lies in packed data that the page's script, the only one
    that its policy lets run, shows as text.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"printed": printed, "plain": plain, "terms": _terms_of_page()}
    script = _part("page.js").replace("UNSEEN", UNSEEN)  # JavaScript writes such a class as Python does
    figures = [figure for section in story.sections for figure in section.figures]
    page = environment.from_string(_part("page.html.j2")).render(
        title=_title(story),
        story=story,
        facts=_facts(story),
        css=Markup(_part("page.css")),
        script=Markup(script),
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        legends={figure.name: [(_glyph(key), key.name) for key in keys_of(figure)] for figure in figures},
        drawings={figure.name: _drawings(figure) for figure in figures},
        packed=pack(jobs),
        glossary=GLOSSARY,
    )
    return page.encode("utf-8", errors="backslashreplace")


def _part(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _title(story: Story) -> str:
    named = ", ".join(story.models[:3])
    return f"{named} and {len(story.models) - 3} more" if len(story.models) > 3 else named


def _facts(story: Story) -> str:
    counts = {"model": len(story.models), "task": len(story.tasks), "method": len(story.methods)}
    counted = ", ".join(f"{number} {name}{'' if number == 1 else 's'}" for name, number in counts.items())
    return f"{counted}. Written by softbench {softbench.__version__}."


def _drawings(figure: Figure) -> list[tuple[Panel, Markup]]:
    """Panels with their SVGs, each with ids of its own, as they share one page."""
    drawn = []
    for place, panel in enumerate(figure.panels):
        svg = svg_for_page(chart(figure, panel))
        own = f"{figure.name}-{place}-"
        drawn.append((panel, Markup(re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{own}", svg))))
    return drawn


def _glyph(key: Key) -> Markup:
    """A small drawing of what a legend names: a mark, or a piece of line."""
    colour = "currentColor" if key.colour == INK else key.colour
    if key.dash is None:
        drawn = Markup('<svg viewBox="-1.2 -1.2 2.4 2.4"><path d="{}" fill="{}"/></svg>')
        return drawn.format(key.shape, colour)
    drawn = Markup(
        '<svg class="line" viewBox="0 0 30 8">'
        '<path d="M0,4H30" stroke="{}" stroke-width="2" stroke-dasharray="{} {}"/></svg>'
    )
    return drawn.format(colour, *key.dash)


def _terms_of_page() -> Callable[[str], Markup]:
    """A filter that gives the first use of each word of the glossary in a text its meaning on hover and focus.

    What stands between backticks is code.
    """
    numbers = count()

    def terms(text: str) -> Markup:
        seen: set[str] = set()
        pieces = []
        for part, said in enumerate(_CODE.split(text)):
            if part % 2:
                pieces.append(Markup("<code>{}</code>").format(said))
                continue
            for place, piece in enumerate(_TERM.split(said)):
                word = piece.lower()
                if place % 2 == 0 or word in seen:
                    pieces.append(escape(piece))
                    continue
                seen.add(word)
                name = f"term-{next(numbers)}"
                pieces.append(_WITH_MEANING.format(name=name, word=piece, meaning=_MEANINGS[word]))
        return Markup("").join(pieces)

    return terms
