"""Figures as inline SVG, drawn in the page's own colours: they follow light, dark and print through CSS classes.

Every text and attribute is escaped here, so that a column's name can be nothing but text. A figure is drawn at the size
at which it is shown on a phone, and never scaled up: its letters stay letters.

    >>> print(tag("text", {"x": 1.0, "class": "axis"}, "<script>"))
    <text x="1" class="axis">&lt;script&gt;</text>
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from gpate.report.formatting import name, number, percent

Attributes = Mapping[str, object]
Floats = NDArray[np.float64]

WIDE, NARROW = 360, 280
"""Widths of a chart and of one of many small ones."""


def tag(kind: str, attributes: Attributes, *inside: str | Markup) -> Markup:
    """One element; what is inside is escaped unless it is markup already."""
    stated = "".join(f' {escape(key)}="{escape(_value(value))}"' for key, value in attributes.items())
    return Markup(f"<{kind}{stated}>{''.join(map(escape, inside))}</{kind}>")  # noqa: S704 - all but `kind`, a word of this module, is escaped


def _value(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float | np.floating) else value


def drawing(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    """A picture with a text for those who do not see it."""
    size = {"viewBox": f"0 0 {_value(float(width))} {_value(float(height))}", "width": width, "height": height}
    return tag("svg", {**size, "role": "img", "aria-label": label, "class": "figure"}, *parts)


def text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> Markup:
    """Words at a place."""
    return tag("text", {"x": x, "y": y, "class": kind or "axis", "text-anchor": anchor}, words)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line."""
    return tag("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    """A box; a width below zero is none."""
    return tag("rect", {"x": x, "y": y, "width": max(float(width), 0.0), "height": height, "class": kind})


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def meter(share: float, kind: str = "synthetic-fill") -> Markup:
    """A bar that fills its cell; the number stands beside it, so it is hidden from those who do not see it."""
    bar = rect(0.0, 0.0, 100.0 * min(max(share, 0.0), 1.0), 10, kind)
    frame = {"viewBox": "0 0 100 10", "preserveAspectRatio": "none", "class": "meter", "aria-hidden": "true"}
    return tag("svg", frame, rect(0.0, 0.0, 100.0, 10, "track"), bar)


def guesses(right: float) -> Markup:
    """How often a guess about one record can be right: between a coin toss and certainty."""
    left, width = 12.0, WIDE - 24.0
    at = left + width * (right - 0.5) / 0.5
    anchor = "start" if right < 0.6 else "end" if right > 0.9 else "middle"
    parts = [
        rect(left, 28, width, 10, "track"),
        rect(left, 28, at - left, 10, "synthetic-fill"),
        tag("circle", {"cx": at, "cy": 33, "r": 7, "class": "marker"}),
        text(
            left if anchor == "start" else WIDE - left if anchor == "end" else at,
            17,
            f"{percent(right)} at most",
            kind="strong",
            anchor=anchor,
        ),
        text(left, 58, "50%: a coin toss"),
        text(WIDE - left, 58, "100%: certain", anchor="end"),
    ]
    label = (
        f"A guess whether one record was used is right {percent(right)} of the time at most, where 50% is a coin toss."
    )
    return drawing(WIDE, 66, label, parts)


def spend_line(points: Sequence[tuple[int, float]], *, budget: float) -> Markup:
    """Epsilon after each of the ledger's lines, under the budget."""
    left, right, top, bottom = 40.0, WIDE - 10.0, 26.0, 176.0
    last, most = max(points[-1][0], 1), budget * 1.0

    def place(step: int, epsilon: float) -> tuple[float, float]:
        return left + (right - left) * step / last, bottom - (bottom - top) * epsilon / most

    curve = [place(*point) for point in points]
    area = [(curve[0][0], bottom), *curve, (curve[-1][0], bottom)]
    end = curve[-1]
    parts = [
        line(left, top, right, top, "limit"),
        text(right, top - 8, f"the budget: {number(budget)}", kind="strong", anchor="end"),
        tag("path", {"d": _path(area), "class": "synthetic-area"}),
        tag("path", {"d": _path(curve), "class": "synthetic-line"}),
        tag("circle", {"cx": end[0], "cy": end[1], "r": 3.5, "class": "synthetic-fill"}),
        line(left, bottom, right, bottom, "axis-line"),
        text(left - 6, bottom + 4, "0", anchor="end"),
        text(left - 6, top + 4, number(budget), anchor="end"),
        text(left, bottom + 18, "start"),
        text(right, bottom + 18, f"ledger line {last:,}", anchor="end"),
    ]
    used = points[-1][1]
    if used < 0.9 * budget:
        parts.append(text(right - 6, end[1] - 8, f"spent: {number(used)}", kind="strong", anchor="end"))
    label = (
        f"Epsilon spent, line by line of the ledger: it rises from 0 to {number(used)}; the budget is {number(budget)}."
    )
    return drawing(WIDE, 202, label, parts)


def histogram(synthetic: Floats, real: Floats | None, *, ends: tuple[str, str], label: str) -> Markup:
    """Proportions of records in bins: synthetic filled, real as an outline."""
    left, right, top, bottom = 4.0, NARROW - 4.0, 16.0, 104.0
    most = max(float(synthetic.max(initial=0.0)), 0.0 if real is None else float(real.max(initial=0.0)), 1e-9)
    edges = np.linspace(left, right, len(synthetic) + 1)

    def steps(shares: Floats) -> list[tuple[float, float]]:
        heights = bottom - (bottom - top) * shares / most
        corners = [(float(x), float(y)) for i, y in enumerate(heights) for x in (edges[i], edges[i + 1])]
        return [(left, bottom), *corners, (right, bottom)]

    parts = [tag("path", {"d": _path(steps(synthetic)), "class": "synthetic-area"})]
    if real is not None:
        parts.append(tag("path", {"d": _path(steps(real)), "class": "real-line"}))
    parts += [
        line(left, bottom, right, bottom, "axis-line"),
        text(left, bottom + 16, ends[0]),
        text(right, bottom + 16, ends[1], anchor="end"),
        text(left, top - 4, f"tallest: {percent(most)}"),
    ]
    return drawing(NARROW, 126, label, parts)


def bars(labels: Sequence[str], synthetic: Floats, real: Floats | None, *, label: str) -> Markup:
    """A proportion for each name: synthetic as a bar, real as a tick on it."""
    left, right, row = 106.0, NARROW - 46.0, 20.0
    most = max(float(synthetic.max(initial=0.0)), 0.0 if real is None else float(real.max(initial=0.0)), 1e-9)
    scale, parts = (right - left) / most, []
    for i, (word, share) in enumerate(zip(labels, synthetic, strict=True)):
        y = 4.0 + row * i
        parts += [
            text(left - 6, y + 13, name(word, most=13), anchor="end"),
            rect(left, y + 3, share * scale, 12, "synthetic-fill"),
        ]
        if real is not None:
            at = left + float(real[i]) * scale
            parts.append(line(at, y, at, y + 18, "real-tick"))
        parts.append(text(NARROW - 2, y + 13, percent(float(share)), anchor="end"))
    return drawing(NARROW, 8 + row * len(labels), label, parts)


def heat(values: Floats, labels: Sequence[str], *, label: str) -> Markup:
    """A square of numbers between -1 and 1: one colour for each sign, stronger away from 0."""
    count, left = len(labels), 96.0
    cell = min(26.0, 256.0 / count)
    parts = []
    for i in range(count):
        middle = cell * (i + 0.5)
        parts.append(text(left - 6, middle + 4, name(labels[i], most=12), anchor="end"))
        for j in range(count):
            value = float(values[i, j])
            shape = {"x": left + cell * j, "y": cell * i, "width": cell - 1, "height": cell - 1}
            kind = "none" if i == j else "plus" if value >= 0 else "minus"
            seen = {} if i == j else {"fill-opacity": min(abs(value), 1.0)}
            said = (
                ""
                if i == j
                else tag("title", {}, f"{name(labels[i])} and {name(labels[j])}: {number(value, places=2)}")
            )
            parts.append(tag("rect", {**shape, "class": f"cell {kind}", **seen}, said))
    return drawing(max(left + cell * count, NARROW), cell * count + 1, label, parts)


def densities(panels: Sequence[tuple[str, Floats]], *, across: str, up: str, label: str) -> Markup:
    """How records spread over two columns at once, one panel for each set of records."""
    side, gap, top = 126.0, 16.0, 20.0
    parts = []
    most = max(float(shares.max()) for _, shares in panels) or 1.0
    for number_, (title, shares) in enumerate(panels):
        left = 6 + number_ * (side + gap)
        parts += [text(left, 13, title, kind="strong"), rect(left, top, side, side, "frame")]
        width, height = side / shares.shape[0], side / shares.shape[1]
        for i, j in zip(*np.nonzero(shares), strict=True):
            shape = {"x": left + width * i, "y": top + side - height * (j + 1), "width": width, "height": height}
            kind = "cell real" if title == "real" else "cell synthetic"
            parts.append(tag("rect", {**shape, "class": kind, "fill-opacity": float(np.sqrt(shares[i, j] / most))}))
    parts.append(text(6, top + side + 16, f"across: {name(across, most=28)}"))
    parts.append(text(6, top + side + 32, f"up: {name(up, most=32)}"))
    return drawing(NARROW, top + side + 40, label, parts)


Curve = Sequence[tuple[float, float]]
"""(x, y) between 0 and 1, from left to right."""


def trade_off(curve: Curve, others: Sequence[Curve], limit: Curve, *, least: float | None, label: str) -> Markup:
    """Hits over false alarms: a curve, further ones behind it, and the most that can be; above that the ground is marked.

    With `least`, both scales go by powers of ten from there to 1.
    """
    left, right, top, bottom = 46.0, WIDE - 14.0, 16.0, 262.0

    def share(value: float) -> float:
        if least is None:
            return value
        return 1.0 - np.log10(max(value, least)) / np.log10(least)

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (right - left) * share(x), bottom - (bottom - top) * share(y)

    def steps(points: Curve) -> list[tuple[float, float]]:
        begin = max((y for x, y in points if x <= (least or 0.0)), default=0.0)
        corners = [(0.0, 0.0), (0.0, begin)] if least is None else [(least, begin)]
        for x, y in points:
            if x > (least or 0.0):
                corners += [(x, corners[-1][1]), (x, y)]
        return [place(*corner) for corner in corners]

    parts = []
    if limit:
        ceiling = [place(*point) for point in limit]
        parts.append(tag("path", {"d": _path([(left, top), *ceiling, (right, top)]), "class": "forbidden"}))
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0] if least is None else [10.0**-i for i in range(round(-np.log10(least)), -1, -1)]
    for tick in ticks:
        x, y = place(tick, tick)
        anchor = "end" if tick == 1 else "middle"
        parts += [
            line(left, y, right, y, "grid"),
            text(left - 6, y + 4, percent(tick), anchor="end"),
            text(x, bottom + 17, percent(tick), anchor=anchor),
        ]
    parts += [line(left, bottom, right, bottom, "axis-line"), line(left, top, left, bottom, "axis-line")]
    chance = [place(x, x) for x in ((0.0, 1.0) if least is None else (least, 1.0))]
    parts.append(tag("path", {"d": _path(chance), "class": "chance-line"}))
    parts += [tag("path", {"d": _path(steps(other)), "class": "other-line"}) for other in others if len(other) > 1]
    if limit:
        parts.append(tag("path", {"d": _path(ceiling), "class": "limit-line"}))
    parts.append(tag("path", {"d": _path(steps(curve)), "class": "attack-line"}))
    parts += [
        text((left + right) / 2, bottom + 36, "false alarms among others", anchor="middle"),
        text(left, top - 5, "members found"),
    ]
    return drawing(WIDE, bottom + 44, label, parts)


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One row of a dot plot: values of the synthetic records, and of the real ones as the ceiling."""

    label: str
    synthetic: tuple[float, ...]
    real: tuple[float, ...]


def dots(rows: Sequence[Dot], *, low: float, high: float, label: str) -> Markup:
    """Means with one standard deviation either way, and every repetition as a small dot."""
    left, right, row = 10.0, WIDE - 10.0, 62.0
    parts = []

    def at(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    for i, dot in enumerate(rows):
        y = row * i
        parts += [
            text(left, y + 14, name(dot.label, most=44), kind="strong"),
            line(left, y + 28, right, y + 28, "axis-line"),
        ]
        said = []
        for kind, values in (("real", dot.real), ("synthetic", dot.synthetic)):
            if not values:
                continue
            mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            parts += [tag("circle", {"cx": at(v), "cy": y + 28, "r": 2, "class": f"{kind}-faint"}) for v in values]
            ends = (at(max(low, mean - spread)), at(min(high, mean + spread)))
            parts.append(line(ends[0], y + 28, ends[1], y + 28, f"{kind}-error"))
            parts += [line(end, y + 23, end, y + 33, f"{kind}-error") for end in ends] if spread else []
            shape = {"x": at(mean) - 5, "y": y + 23, "width": 10, "height": 10, "class": "real-mark"}
            round_ = {"cx": at(mean), "cy": y + 28, "r": 5.5, "class": "synthetic-fill"}
            parts.append(tag("rect", shape) if kind == "real" else tag("circle", round_))
            said.append(f"{kind} {number(mean, places=3)}" + (f" ± {number(spread, places=3)}" if spread else ""))
        parts.append(text(left, y + 48, " · ".join(reversed(said))))
    bottom = row * len(rows)
    parts += [text(left, bottom + 12, number(low)), text(right, bottom + 12, number(high), anchor="end")]
    return drawing(WIDE, bottom + 18, label, parts)
