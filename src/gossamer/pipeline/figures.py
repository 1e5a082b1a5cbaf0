"""Charts as inline SVG: bars, histograms and lines. No plotting library, no script, no network.

Colours come from the page's CSS variables (``--c0`` .. ``--c3``, ``--line``) and ``currentColor``, so a chart follows the
page's light or dark theme. Every chart says in words what it shows, for those who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 460, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 34, 48
COLOURS = 4
LABELS_MAX = 12
"""Beyond so many points, only some are labelled."""
LETTER = 7
"""About the width of a letter: labels that would run into each other are left out."""


def bars(
    title: str, labels: Sequence[str], series: Mapping[str, Sequence[float]], x_label: str, y_label: str, gap: float = 0.25
) -> str:
    """One group of bars for each label, one bar in it for each series."""
    top, ticks = _scale(max((value for values in series.values() for value in values), default=0))
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    width = slot * (1 - gap) / max(1, len(series))
    parts = []
    for place, (name, values) in enumerate(series.items()):
        for index, (label, value) in enumerate(zip(labels, values, strict=True)):
            x, y = LEFT + index * slot + slot * gap / 2 + place * width, _y(value, top)
            said = f"{label}: {number(value)}" + (f" ({name})" if len(series) > 1 else "")
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width - 1):.1f}" height="{HEIGHT - BOTTOM - y:.1f}" '
                f'fill="var(--c{place % COLOURS})"><title>{escape(said)}</title></rect>'
            )
    step = math.ceil((max(map(len, labels), default=0) + 0.5) * LETTER / slot) or 1
    for index in range(0, len(labels), step):
        parts.append(_text(LEFT + (index + 0.5) * slot, HEIGHT - BOTTOM + 16, labels[index], "middle"))
    words = "; ".join(
        f"{name}: " + ", ".join(f"{label} {number(value)}" for label, value in zip(labels, values, strict=True))
        for name, values in series.items()
    )
    return _chart(title, words, ticks, top, parts, x_label, y_label, list(series))


def histogram(title: str, counts: Sequence[tuple[str, float]], x_label: str, y_label: str) -> str:
    """How many of each, in order."""
    return bars(title, [label for label, _ in counts], {y_label: [count for _, count in counts]}, x_label, y_label, gap=0.04)


def line(title: str, series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str) -> str:
    """One line for each series, through its points in the order of x."""
    top, ticks = _scale(max((y for points in series.values() for _, y in points), default=0))
    xs = sorted({x for points in series.values() for x, _ in points}) or [0.0]
    low, span = xs[0], (xs[-1] - xs[0]) or 1.0

    def place(x: float) -> float:
        return LEFT + 14 + (x - low) / span * (WIDTH - LEFT - RIGHT - 28)

    parts = []
    for index, (name, points) in enumerate(series.items()):
        ordered, colour = sorted(points), f"var(--c{index % COLOURS})"
        path = " ".join(f"{place(x):.1f},{_y(y, top):.1f}" for x, y in ordered)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in ordered:
            said = escape(f"{name}: {number(x)}, {number(y)}")
            parts.append(
                f'<circle cx="{place(x):.1f}" cy="{_y(y, top):.1f}" r="3.5" fill="{colour}"><title>{said}</title></circle>'
            )
    shown = xs if len(xs) <= LABELS_MAX else xs[:: math.ceil(len(xs) / LABELS_MAX)]
    parts += [_text(place(x), HEIGHT - BOTTOM + 16, number(x), "middle") for x in shown]
    words = "; ".join(
        f"{name}: " + ", ".join(f"{number(x)} gives {number(y)}" for x, y in sorted(points))
        for name, points in series.items()
    )
    return _chart(title, words, ticks, top, parts, x_label, y_label, list(series))


def number(value: float) -> str:
    """A number as a reader wants it: thousands apart, at most three significant decimals."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _chart(
    title: str, words: str, ticks: list[float], top: float, parts: list[str], x_label: str, y_label: str, names: list[str]
) -> str:
    grid = []
    for tick in ticks:
        y = _y(tick, top)
        grid.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
        grid.append(_text(LEFT - 6, y + 4, number(tick), "end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    upright = f'<g transform="rotate(-90 14 {middle})">{_text(14, middle, y_label, "middle")}</g>'
    axes = [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle"), upright]
    head = f'<text x="{LEFT}" y="18" font-weight="600">{escape(title)}</text>'
    legend = []
    if len(names) > 1:
        for index, name in enumerate(names):
            x = WIDTH - RIGHT - 90 * (len(names) - index)
            legend.append(f'<rect x="{x}" y="24" width="9" height="9" fill="var(--c{index % COLOURS})"/>')
            legend.append(_text(x + 13, 33, name, "start"))
    body = "".join([head, *grid, *parts, *axes, *legend])
    described = escape(f"{title}. {y_label} by {x_label}. {words}", quote=True)
    return (
        f'<svg class="figure" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{described}" '
        f'fill="currentColor" font-size="12">{body}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _scale(largest: float) -> tuple[float, list[float]]:
    """A round top of the axis, and the ticks below it."""
    if largest <= 0:
        return 1.0, [0.0, 1.0]
    rough = largest / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
    count = math.ceil(largest / step - 1e-9)
    return step * count, [step * index for index in range(count + 1)]
