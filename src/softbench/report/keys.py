"""What colours, shapes and lines of drawings stand for, chosen so that no two of a figure look alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from softbench.report.story import PARTS, Figure

# Stand for the colours of text, of fine lines and of the ground, until it is known where a drawing goes.
INK, FAINT, PAPER = "#010203", "#040506", "#070809"

# Told apart by people who see colours differently, and readable on white as on near-black.
COLOURS = ("#d1761f", "#3b8fd4", "#2a9d64", "#b563c7", "#8a8f98", "#c9a227", "#d6566f", "#5f6ad1")

# SVG paths that fill the square from -1 to 1, as Vega and the page's legend take them.
SQUARE = "M-0.9,-0.9H0.9V0.9H-0.9Z"
SHAPES = (
    SQUARE,
    "M0,-1L1,0.85L-1,0.85Z",  # a triangle that points up
    "M-1,0A1,1,0,1,1,1,0A1,1,0,1,1,-1,0Z",  # a circle
    "M0,-1.15L1.15,0L0,1.15L-1.15,0Z",  # a diamond
    "M-1.1,-0.4H-0.4V-1.1H0.4V-0.4H1.1V0.4H0.4V1.1H-0.4V0.4H-1.1Z",  # a cross
    "M0,1L1,-0.85L-1,-0.85Z",  # triangles that point down, left and right
    "M-1,0L0.85,-1L0.85,1Z",
    "M1,0L-0.85,-1L-0.85,1Z",
)
DASHES = {"format-following": (1, 0), "accuracy": (5, 3), "choice accuracy": (1, 3)}
"""How the lines of a curve are broken: drawn and left out, in pixels."""

_USUAL = {"zero_shot": 0, "few_shot": 1, "soft_prompt": 2}
_PARTS = dict(zip(PARTS, ("#2a9d64", "#e0a13c", "#8a8f98"), strict=True))
_PHASES = {"evaluation": "#3b8fd4", "tuning": "#2a9d64"}


@dataclass(frozen=True, slots=True)
class Key:
    """What stands for `name`: marks of a colour and a shape (an SVG path), or lines broken as `dash` says."""

    name: str
    colour: str
    shape: str = SQUARE
    dash: tuple[int, int] | None = None


def keys_of(figure: Figure) -> list[Key]:
    """The legend of a figure: what its colours and shapes stand for, then its kinds of line."""
    rows = [row for panel in figure.panels for row in panel.rows]

    def named(column: str) -> list[str]:
        return list(dict.fromkeys(row[column] for row in rows))

    match figure.kind:
        case "bars":
            return [Key(name, colour) for name, colour in _PARTS.items()]
        case "seconds":
            return [Key(name, colour) for name, colour in _PHASES.items()]
        case "curves":
            occurring = set(named("metric"))
            models = [Key(one.name, one.colour) for one in _distinct(named("model"))]
            return models + [Key(name, INK, dash=dash) for name, dash in DASHES.items() if name in occurring]
        case "ranks":
            return []
        case _:
            return _distinct(named("method"))


def _distinct(names: Sequence[str]) -> list[Key]:
    """A colour and a shape for each name; the three usual methods have each their own in every report.

    The others go through what is left: by the time that colours come again, shapes have moved on by one.
    """
    others = [name for name in names if name not in _USUAL]
    taken = {name: (_USUAL[name], _USUAL[name]) for name in names if name in _USUAL}
    free = [place for place in range(len(COLOURS)) if place not in {colour for colour, _ in taken.values()}]
    for place, name in enumerate(others):
        turn, colour = divmod(place, len(free))
        taken[name] = (free[colour], free[(colour + turn) % len(free)])
    return [Key(name, COLOURS[taken[name][0]], SHAPES[taken[name][1]]) for name in names]
