"""Where words of a drawing go. A reader's browser may have other letters than these were planned with, so that room is
made for wide ones, and nothing hangs on how wide they come out."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

LETTER = 0.62
"""Width of a letter over its size, in a wide face such as DejaVu Sans."""

LINE, AWAY, MARK = 13, 14, 4
"""Pixels: the height of a line of names, how far from its point one begins, and half of a point."""


def width_of(text: str, size: float) -> float:
    """Pixels that a text may take."""
    return LETTER * size * len(text)


def shortened(text: str, most: int) -> str:
    """`text` in at most `most` characters; what is too long loses its middle, as names often differ at their ends."""
    if len(text) <= most:
        return text
    behind = (most - 1) // 2
    return text[: most - 1 - behind] + "…" + (text[-behind:] if behind else "")


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a drawing from top to bottom, in pixels: where each model is named, and each of its methods stands."""

    models: dict[str, float]
    methods: dict[tuple[str, str], float]
    height: float


def lines(pairs: Sequence[tuple[str, str]]) -> Lines:
    """Rows for pairs of model and method; each model's own, under its name where there are several."""
    models: dict[str, float] = {}
    methods: dict[tuple[str, str], float] = {}
    names = list(dict.fromkeys(model for model, _ in pairs))
    below = 0.0
    for model in names:
        if len(names) > 1:
            models[model] = below + 10
            below += 19
        for pair in dict.fromkeys(pair for pair in pairs if pair[0] == model):
            methods[pair] = below + 7.5
            below += 15
        below += 5
    return Lines(models, methods, below)


@dataclass(frozen=True, slots=True)
class Name:
    """Where a point's name stands: its middle's height, in pixels from the top, and its span from left to right."""

    y: float
    left: float
    right: float


Point = tuple[float, float]


def beside(widths: Sequence[float], named: Sequence[Point], points: Sequence[Point], size: Point) -> list[Name]:
    """A place for the name of each point of `named`, on that side of it where more room is, and `widths` wide.

    Names have lines of their own, in the order of their points, as near to these as can be without lying on any of
    `points` where that can be had. `size`, width and height, has room for a line each.
    """
    lines_there = [LINE * (place + 0.5) for place in range(max(len(named), int(size[1] // LINE)))]
    order = sorted(range(len(named)), key=lambda one: named[one][1])
    # For each number of names, the least that they cost with the last of them on or above a line, and their lines.
    least: list[tuple[float, tuple[float, ...]]] = [(0.0, ())] * (len(lines_there) + 1)
    for one in order:
        next_least: list[tuple[float, tuple[float, ...]]] = [(inf, ())]
        for place, y in enumerate(lines_there):
            name = _named(named[one], widths[one], y, size[0])
            lying = sum(_covers(name, point) for point in points)
            before, taken = least[place]
            cost = before + abs(y - named[one][1]) + size[1] * lying
            next_least.append(min(next_least[-1], (cost, (*taken, y))))
        least = next_least
    taken = least[-1][1]
    return [_named(named[one], widths[one], taken[order.index(one)], size[0]) for one in range(len(named))]


def _named(point: Point, wide: float, y: float, width: float) -> Name:
    left = point[0] - AWAY - wide if point[0] > width / 2 else point[0] + AWAY
    return Name(y, left, left + wide)


def _covers(name: Name, point: Point) -> bool:
    x, y = point
    return name.left - MARK < x < name.right + MARK and abs(name.y - y) < LINE / 2 + MARK
