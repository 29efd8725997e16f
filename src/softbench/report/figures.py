"""Drawings: one chart a panel, by Altair; one definition serves page, SVG and PNG.

Each kind of figure is a function of a panel's rows. In the page, text and lines take the colours of its theme.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import vl_convert

from softbench.report.keys import COLOURS, DASHES, FAINT, INK, PAPER, keys_of
from softbench.report.layout import AWAY, LINE, Point, beside, lines, shortened, width_of
from softbench.report.story import Figure, Panel, Row, headline

WIDTH = 340
"""Pixels from the first name to the end of the axis, whatever is drawn: letters are of one size in all figures."""

PLOT = 300
"""Pixels of an axis whose neighbour has numbers beside it."""

TEXT, SMALL = 11, 10
LONGEST = {"model": 40, "method": 28}
"""Characters of a name that are drawn; hovering shows all."""


def chart(figure: Figure, panel: Panel) -> Any:
    """One panel. Each mark says of itself what it stands for, on hover and to screen readers."""
    return KINDS[figure.kind](figure, replace(panel, rows=[{**row, "says": _says(row)} for row in panel.rows]))


_VALUES = {
    "score": "score",
    "form": "format-following",
    "share": "",
    "base_score": "base",
    "post_score": "post-trained",
}


def _says(row: Row) -> str:
    named = [str(row[name]) for name in ("model", "method", "part", "phase", "metric") if name in row]
    if "step" in row:
        named.append(f"step {row['step']}")
    if "seconds" in row:
        named.append(f"{row['seconds']:.0f} s")
    for name, label in _VALUES.items():
        if row.get(name) is not None:
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            interval = "" if low is None or high is None else f" [{low:.1f}, {high:.1f}]"
            named.append(f"{label} {row[name]:.1f} %{interval}".strip())
    return ", ".join(named)


def whole(figure: Figure) -> Any:
    """All panels of a figure in one drawing with a legend, as papers need them."""
    drawn = [chart(figure, panel).properties(title=panel.title) for panel in figure.panels]
    together = alt.concat(*drawn, columns=min(3, len(drawn)))
    keys = keys_of(figure)
    if not keys:
        return together
    height = 17 * len(keys)
    rows = [{"x": 0, "end": 20, "y": 17 * place + 8, "text": key.name} for place, key in enumerate(keys)]
    marks = []
    for key, row in zip(keys, rows, strict=True):
        base = alt.Chart(_data([row])).encode(_pixels(alt.X, "x", WIDTH), _pixels(alt.Y, "y", height))
        if key.dash:
            line = base.mark_rule(strokeWidth=2, strokeDash=list(key.dash), color=key.colour)
            marks.append(line.encode(alt.X2("end:Q")))
        else:
            shape = base.mark_point(filled=True, size=70, opacity=1, color=key.colour, shape=key.shape, xOffset=14)
            marks.append(shape)
    texts = alt.Chart(_data(rows)).encode(_pixels(alt.X, "x", WIDTH), _pixels(alt.Y, "y", height))
    marks.append(texts.mark_text(align="left", dx=28).encode(alt.Text("text:N")))
    return alt.vconcat(together, alt.layer(*marks).properties(width=WIDTH, height=height)).resolve_scale(
        color="independent", shape="independent"
    )


def svg_for_page(drawing: Any) -> str:
    """An SVG whose text and lines have the colours of the page that it stands in."""
    drawn = str(vl_convert.vegalite_to_svg(_spec(drawing, "transparent")))
    return drawn.replace(INK, "currentColor").replace(FAINT, "var(--faint)").replace(PAPER, "var(--paper)")


def svg_file(drawing: Any) -> bytes:
    """An SVG on white."""
    return str(vl_convert.vegalite_to_svg(_on_white(drawing))).encode()


def png_file(drawing: Any) -> bytes:
    """A PNG on white, at 200 pixels an inch."""
    return bytes(vl_convert.vegalite_to_png(_on_white(drawing), ppi=200))


def _on_white(drawing: Any) -> str:
    return _spec(drawing, "white").replace(INK, "#1b1f24").replace(FAINT, "#d5d9de").replace(PAPER, "#ffffff")


_PADDING = {"left": 1, "right": 6, "top": 6, "bottom": 4}


def _spec(drawing: Any, background: str) -> str:
    configured = (
        drawing.configure(background=background, font="sans-serif", padding=_PADDING)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK, titleColor=INK, gridColor=FAINT, domainColor=FAINT, tickColor=FAINT,
            labelFontSize=TEXT, titleFontSize=TEXT, titleFontWeight="normal",
        )
        .configure_title(color=INK, fontSize=13, anchor="start")
        .configure_text(color=INK, fontSize=TEXT)
    )  # fmt: skip
    return json.dumps(configured.to_dict())


_SAYS = alt.Description("says:N")


def _data(rows: Sequence[Row]) -> Any:
    return alt.Data(values=list(rows))  # type: ignore[no-untyped-call]  # altair's own gap


def _colour(figure: Figure, column: str) -> Any:
    keys = [key for key in keys_of(figure) if key.dash is None]
    scale = alt.Scale(domain=[key.name for key in keys], range=[key.colour for key in keys])
    return alt.Color(f"{column}:N", scale=scale, legend=None)


def _shape(figure: Figure) -> Any:
    keys = keys_of(figure)
    scale = alt.Scale(domain=[key.name for key in keys], range=[key.shape for key in keys])
    return alt.Shape("method:N", scale=scale, legend=None)


def _pixels(channel: Any, column: str, length: float) -> Any:
    """Places that are pixels already, from the left or the top."""
    scale = alt.Scale(domain=[0, length], range=[0, length], nice=False, zero=False)
    return channel(f"{column}:Q", title=None, scale=scale, axis=None)


def _numbers(channel: Any, column: str, title: str, domain: Sequence[float]) -> Any:
    # As much room on every panel for the numbers beside an axis.
    axis = alt.Axis(tickCount=5, minExtent=24, maxExtent=24) if channel is alt.Y else alt.Axis(tickCount=5)
    return channel(f"{column}:Q", title=title, scale=alt.Scale(domain=list(domain), nice=False, zero=False), axis=axis)


def _names(rows: Sequence[Row], column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows))


def _text(rows: Sequence[Row], x: Any, y: Any, **look: Any) -> list[Any]:
    """Texts of a column `text`, which lines behind them don't run through."""
    base = alt.Chart(_data(rows)).encode(x=x, y=y, text="text:N")
    return [
        base.mark_text(stroke=PAPER, color=PAPER, strokeWidth=3, aria=False, **look),
        base.mark_text(**look).encode(_SAYS),
    ]


# Rows of marks under each model's name, each beside its method's.


def _rowed(rows: Sequence[Row]) -> tuple[list[Row], list[Any], float, float]:
    """The rows with their `y`; layers that name models and methods; where axes begin, and the height."""
    placed = lines([(row["model"], row["method"]) for row in rows])
    ranked = [{**row, "y": placed.methods[row["model"], row["method"]]} for row in rows]
    models: list[Row] = [
        {"y": y, "text": shortened(model, LONGEST["model"]), "says": model} for model, y in placed.models.items()
    ]
    methods: list[Row] = [
        {"y": y, "text": shortened(method, LONGEST["method"]), "says": f"{model}, {method}"}
        for (model, method), y in placed.methods.items()
    ]
    start = 10 + max(width_of(one["text"], TEXT) for one in methods)
    x, y = alt.value(0), _pixels(alt.Y, "y", placed.height)
    left: Row = {"align": "left", "baseline": "middle"}
    named = _text(methods, x, y, **left)
    if models:
        named += _text(models, x, y, fontWeight="bold", **left)
    return ranked, named, start, placed.height


def _across(column: str, title: str, domain: Sequence[float], start: float) -> Any:
    scale = alt.Scale(domain=list(domain), range=[start, WIDTH], nice=False)
    return alt.X(f"{column}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5))


def _dots(figure: Figure, panel: Panel) -> Any:
    rows, named, start, height = _rowed(panel.rows)
    base = alt.Chart(_data(rows)).encode(_pixels(alt.Y, "y", height), _colour(figure, "method"), _SAYS)
    across = _across("score", "score, %", (0, 100), start)
    ends = base.mark_rule(strokeWidth=2).encode(_across("score_low", "score, %", (0, 100), start), alt.X2("score_high"))
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(across, _shape(figure))
    return alt.layer(ends, dots, *named).properties(width=WIDTH, height=height)


def _bars(figure: Figure, panel: Panel) -> Any:
    return _stacked(figure, panel, "part", "share", 100, "samples, %")


def _seconds(figure: Figure, panel: Panel) -> Any:
    totals: dict[tuple[str, str], float] = {}
    for row in panel.rows:
        pair = row["model"], row["method"]
        totals[pair] = totals.get(pair, 0.0) + row["seconds"]
    return _stacked(figure, panel, "phase", "seconds", max(totals.values()) or 1.0, "seconds")


def _stacked(figure: Figure, panel: Panel, column: str, value: str, most: float, title: str) -> Any:
    rows, named, start, height = _rowed(panel.rows)
    order = [key.name for key in keys_of(figure)]
    ends: dict[float, float] = {}
    parts = []
    for row in sorted(rows, key=lambda row: order.index(row[column])):
        before = ends.get(row["y"], 0.0)
        ends[row["y"]] = before + (row[value] or 0.0)
        parts.append({**row, "from": before, "to": ends[row["y"]], "top": row["y"] - 5.5, "foot": row["y"] + 5.5})
    drawn = alt.Chart(_data([part for part in parts if part["to"] > part["from"]])).mark_rect()
    bars = drawn.encode(
        _across("from", title, (0, most), start),
        alt.X2("to"),
        _pixels(alt.Y, "top", height),
        alt.Y2("foot"),
        _colour(figure, column),
        _SAYS,
    )
    return alt.layer(bars, *named).properties(width=WIDTH, height=height)


# Points between two axes of numbers, named beside them.


@dataclass(frozen=True, slots=True)
class _Plane:
    """Two axes over columns of rows, each with its title and its ends in percent; `height` in pixels."""

    across: tuple[str, str, tuple[float, float]]
    up: tuple[str, str, tuple[float, float]]
    height: float

    def axes(self, across: str | None = None, up: str | None = None) -> list[Any]:
        """Channels of these axes, for the columns that they are named for or for others."""
        (column, title, ends), (other, other_title, other_ends) = self.across, self.up
        return [
            _numbers(alt.X, across or column, title, ends),
            _numbers(alt.Y, up or other, other_title, other_ends),
        ]

    def pixels(self, row: Row) -> Point:
        """Where a row's point stands, from the left and from the top."""
        (column, _, (first, last)), (other, _, (low, high)) = self.across, self.up
        return PLOT * (row[column] - first) / (last - first), self.height * (high - row[other]) / (high - low)

    def values(self, x: float, y: float) -> Point:
        """What stands at a place in pixels."""
        (_, _, (first, last)), (_, _, (low, high)) = self.across, self.up
        return first + x / PLOT * (last - first), high - y / self.height * (high - low)


def _plane(figure: Figure, panel: Panel) -> Any:
    # Names beside all points would lie on one another; what the others are, they say on hover.
    method = headline(_names(panel.rows, "method"))
    several = len(_names(panel.rows, "model")) > 1
    named = [row for row in panel.rows if several and row["method"] == method]
    height = max(240, LINE * len(named))
    plane = _Plane(("form", "format-following, %", (0, 100)), ("score", "accuracy, %", (0, 100)), height)
    base = alt.Chart(_data(panel.rows)).encode(_colour(figure, "method"), _SAYS)
    ends = alt.Chart(_data([{"form": 0, "score": 0}, {"form": 100, "score": 100}])).encode(*plane.axes())
    diagonal = ends.mark_line(strokeDash=[3, 3], strokeWidth=1, color=FAINT, aria=False)
    level = base.mark_rule().encode(alt.X("form_low:Q"), alt.X2("form_high"), alt.Y("score:Q"))
    upright = base.mark_rule().encode(alt.Y("score_low:Q"), alt.Y2("score_high"), alt.X("form:Q"))
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(*plane.axes(), _shape(figure))
    # Marks lie over names, so that no name hides one.
    marks = [diagonal, *_named_beside(plane, named, panel.rows), level, upright, dots]
    return alt.layer(*marks).properties(width=PLOT, height=height)


def _named_beside(plane: _Plane, named: Sequence[Row], rows: Sequence[Row]) -> list[Any]:
    """Layers with the model of each of `named`, joined to its point by a line; names keep off the points of `rows`."""
    if not named:
        return []
    points = [plane.pixels(row) for row in named]
    texts = [
        shortened(row["model"], int((max(x, PLOT - x) - AWAY - 6) / width_of("x", SMALL)))
        for row, (x, _) in zip(named, points, strict=True)
    ]
    size = PLOT, plane.height
    placed = []
    names = beside([width_of(text, SMALL) for text in texts], points, [plane.pixels(row) for row in rows], size)
    for row, text, name, point in zip(named, texts, names, points, strict=True):
        to_the_left = name.right < point[0]
        x, y = plane.values(name.right if to_the_left else name.left, name.y)
        from_x, from_y = plane.values(*point)
        where = {"x": x, "y": y, "from_x": from_x, "from_y": from_y}
        placed.append({"says": row["says"], "text": text, "align": "right" if to_the_left else "left", **where})
    lines = alt.Chart(_data(placed)).mark_rule(strokeWidth=0.75, color=INK, opacity=0.6, aria=False)
    layers = [lines.encode(*plane.axes("from_x", "from_y"), alt.X2("x"), alt.Y2("y"))]
    for align, away in (("right", -2), ("left", 2)):
        of_side = [one for one in placed if one["align"] == align]
        if of_side:
            look: Row = {"align": align, "baseline": "middle", "dx": away, "fontSize": SMALL}
            layers += _text(of_side, *plane.axes("x", "y"), **look)
    return layers


def _ranks(figure: Figure, panel: Panel) -> Any:
    height = max(240, LINE * len(panel.rows))
    plane = _Plane(
        ("base_score", "base score, %", _around([row["base_score"] for row in panel.rows])),
        ("post_score", "post-trained score, %", _around([row["post_score"] for row in panel.rows])),
        height,
    )
    points = alt.Chart(_data(panel.rows)).mark_point(filled=True, size=55, color=COLOURS[2], opacity=1)
    names = _named_beside(plane, panel.rows, panel.rows)
    return alt.layer(*names, points.encode(*plane.axes(), _SAYS)).properties(width=PLOT, height=height)


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Fives around some values, in percent."""
    return min(95.0, 5 * (min(values) // 5)), min(100.0, 5 * (max(values) // 5 + 1))


def _curves(figure: Figure, panel: Panel) -> Any:
    base = alt.Chart(_data(panel.rows)).encode(
        alt.X("step:Q", title="tuning step", axis=alt.Axis(tickCount=5)), _colour(figure, "model")
    )
    band = base.mark_area(opacity=0.13).encode(
        _numbers(alt.Y, "share_low", "%", (0, 100)), alt.Y2("share_high"), alt.Detail(["metric:N", "method:N"])
    )
    dash = alt.StrokeDash(
        "metric:N", scale=alt.Scale(domain=list(DASHES), range=[list(one) for one in DASHES.values()]), legend=None
    )
    line = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=25)).encode(
        alt.Y("share:Q"), dash, alt.Detail("method:N"), _SAYS
    )
    return alt.layer(band, line).properties(width=PLOT, height=200)


KINDS: dict[str, Callable[[Figure, Panel], Any]] = {
    "dots": _dots,
    "plane": _plane,
    "bars": _bars,
    "curves": _curves,
    "ranks": _ranks,
    "seconds": _seconds,
}
"""How each kind of figure is drawn."""
