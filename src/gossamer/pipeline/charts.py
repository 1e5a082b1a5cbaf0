"""Charts as drawings: bars over labels and lines over numbers, linear or logarithmic, with marks.

A mark is a number out of a text, such as a bound or a claim of a seed. It is a dashed line, across
or upright, with its words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from gossamer.pipeline.drawing import COLOURS, LETTER, Dot, Drawing, Polyline, Rect, Shape, Text

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 30, 46
ROWS, ROW = 2, 14
"""If there is not enough room for the words under bars, they stand in this number of rows, each
this high.
"""


class Mark(Struct, frozen=True):
    """A number that a text states. ``at`` is on the axis that it marks."""

    at: float
    words: str
    upright: bool = False
    """Marks a place on the x axis, and not a height."""


def number(value: float) -> str:
    """A number in a readable form: with separators between thousands, and at most three significant
    decimals.
    """
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class _Frame:
    """The area of a chart, and the parts that every chart has."""

    def __init__(
        self,
        title: str,
        names: Sequence[str],
        values: Sequence[float],
        x_label: str,
        y_label: str,
        unit: str,
        rows: int = 1,
    ) -> None:
        self.title, self.x_label, self.y_label, self.unit = title, x_label, y_label, unit
        self.shapes: list[Shape] = [Text(14, 18, title, bold=True)]
        self.bottom = HEIGHT - BOTTOM - ROW * (rows - 1)
        self.top = TOP + self._legend(names)
        self.most, ticks = scale(
            max(values, default=0), whole=all(value == int(value) for value in values)
        )
        for tick in ticks:
            y = self.y(tick)
            self.shapes.append(Polyline(((LEFT, y), (WIDTH - RIGHT, y)), "line", 1))
            self.shapes.append(Text(LEFT - 6, y + 4, number(tick) + unit, "end", "soft"))
        self.shapes.append(Text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, "middle"))
        self.shapes.append(Text(13, (self.top + self.bottom) / 2, y_label, "middle", upright=True))

    def _legend(self, names: Sequence[str]) -> int:
        if len(names) < 2:
            return 4
        x, y = float(LEFT), 34.0
        for index, name in enumerate(names):
            wide = 16 + LETTER * len(name) + 12
            if x + wide > WIDTH and x > LEFT:
                x, y = float(LEFT), y + 16
            self.shapes.append(Rect(x, y - 9, 9, 9, f"c{index % COLOURS}"))
            self.shapes.append(Text(x + 13, y, name))
            x += wide
        return round(y) - 34 + 16

    def y(self, value: float) -> float:
        return self.top + (self.bottom - self.top) * (1 - value / self.most)

    def mark(self, marks: Sequence[Mark], place: Callable[[float], float]) -> None:
        """Draw the lines first, and then the words, one below the other, on the side where no other
        line is in their way.
        """
        uprights = [place(mark.at) for mark in marks if mark.upright]
        heights = [self.y(mark.at) for mark in marks if not mark.upright]
        for x in uprights:
            self.shapes.append(Polyline(((x, self.top), (x, self.bottom)), "fg", 1.2, dashed=True))
        for y in heights:
            self.shapes.append(Polyline(((LEFT, y), (WIDTH - RIGHT, y)), "fg", 1.2, dashed=True))
        for level, (mark, x) in enumerate(
            zip((mark for mark in marks if mark.upright), uprights, strict=True)
        ):
            end = x + 4 + LETTER * len(mark.words)
            left = end > WIDTH - 4 or any(x < other < end for other in uprights)
            at = (x - 4 if left else x + 4, self.top + 11 + 15 * level)
            self.shapes.append(Text(*at, mark.words, "end" if left else "start", clear=True))
        for mark, y in zip((mark for mark in marks if not mark.upright), heights, strict=True):
            self.shapes.append(Text(WIDTH - RIGHT - 4, y - 5, mark.words, "end", clear=True))

    def drawing(self, words: str, marks: Sequence[Mark]) -> Drawing:
        said = [
            words,
            *(
                f"Marked: {mark.words} ({number(mark.at)}{self.unit if not mark.upright else ''})"
                for mark in marks
            ),
        ]
        return Drawing(
            self.title,
            f"{self.y_label} by {self.x_label}. {'; '.join(said)}",
            WIDTH,
            HEIGHT,
            tuple(self.shapes),
        )


def bars(
    title: str,
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    x_label: str,
    y_label: str,
    *,
    gap: float = 0.25,
    marks: Sequence[Mark] = (),
    unit: str = "",
) -> Drawing:
    """One group of bars for each label, with one bar for each series.

    An upright mark stands at a place among numeric labels.
    """
    heights = [value for values in series.values() for value in values] + [
        mark.at for mark in marks if not mark.upright
    ]
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    step = math.ceil((max(map(len, labels), default=0) + 1) * LETTER / slot) or 1
    # Of numeric labels some may be left out, but not of words.
    rows = min(step, 1 if all(map(_is_number, labels)) else ROWS)
    frame = _Frame(title, list(series), heights, x_label, y_label, unit, rows)
    width = slot * (1 - gap) / max(1, len(series))
    for place, (name, values) in enumerate(series.items()):
        for index, (label, value) in enumerate(zip(labels, values, strict=True)):
            x, y = LEFT + index * slot + slot * gap / 2 + place * width, frame.y(value)
            said = f"{label}: {number(value)}{unit}" + (f" ({name})" if len(series) > 1 else "")
            frame.shapes.append(
                Rect(
                    x,
                    y,
                    max(0.5, width - min(1.0, width / 4)),
                    frame.bottom - y,
                    f"c{place % COLOURS}",
                    said,
                )
            )
    for place, index in enumerate(range(0, len(labels), math.ceil(step / rows))):
        level = frame.bottom + 16 + ROW * (place % rows)
        frame.shapes.append(
            Text(LEFT + (index + 0.5) * slot, level, labels[index], "middle", "soft")
        )
    frame.mark(marks, lambda at: LEFT + (_place(labels, at) + 0.5) * slot)
    words = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{label} {number(value)}{unit}" for label, value in zip(labels, values, strict=True)
        )
        for name, values in series.items()
    )
    return frame.drawing(words, marks)


def _is_number(label: str) -> bool:
    return label.rstrip(" %+").replace(",", "").replace(".", "").isdecimal()


def _place(labels: Sequence[str], value: float) -> float:
    """The place of a number among numeric labels. Between two labels it is in proportion."""
    known = [float(label.rstrip(" %+").replace(",", "")) for label in labels]
    for index in range(len(known) - 1):
        if known[index] <= value <= known[index + 1]:
            return index + (value - known[index]) / (known[index + 1] - known[index])
    return len(known) - 1 if known and value > known[-1] else 0.0


def histogram(
    title: str,
    counts: Sequence[tuple[str, float]],
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
) -> Drawing:
    """Bars of counts, in order."""
    values = {y_label: [count for _, count in counts]}
    return bars(
        title, [label for label, _ in counts], values, x_label, y_label, gap=0.04, marks=marks
    )


def line(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
    marks: Sequence[Mark] = (),
    dashed: Sequence[str] = (),
    unit: str = "",
) -> Drawing:
    """One line for each series, through its points in the order of x.

    The ``dashed`` series are computed, and not measured.
    """
    heights = [y for points in series.values() for _, y in points] + [
        mark.at for mark in marks if not mark.upright
    ]
    frame = _Frame(title, list(series), heights, x_label, y_label, unit)
    xs = sorted(
        {x for points in series.values() for x, _ in points}
        | {mark.at for mark in marks if mark.upright}
    ) or [1.0]
    scaled = [math.log10(x) for x in xs] if log_x else xs
    low, span = scaled[0], (scaled[-1] - scaled[0]) or 1.0

    def place(x: float) -> float:
        if len(xs) == 1:
            return (LEFT + WIDTH - RIGHT) / 2
        return (
            LEFT + 14 + ((math.log10(x) if log_x else x) - low) / span * (WIDTH - LEFT - RIGHT - 28)
        )

    for index, (name, points) in enumerate(series.items()):
        ordered, colour = sorted(points), f"c{index % COLOURS}"
        path = tuple((place(x), frame.y(y)) for x, y in ordered)
        frame.shapes.append(Polyline(path, colour, 2, dashed=name in dashed))
        if name not in dashed:
            frame.shapes += [
                Dot(px, py, 3.4, colour, f"{name}: {number(x)}, {number(y)}{unit}")
                for (px, py), (x, y) in zip(path, ordered, strict=True)
            ]
    for x in _shown(xs, place):
        # The last label may be wide.
        inside = min(place(x), WIDTH - 4 - len(number(x)) * LETTER / 2)
        frame.shapes.append(Text(inside, frame.bottom + 16, number(x), "middle", "soft"))
    frame.mark(marks, place)
    words = "; ".join(
        f"{name}: " + ", ".join(f"{number(x)} gives {number(y)}{unit}" for x, y in sorted(points))
        for name, points in series.items()
    )
    return frame.drawing(words, marks)


def _shown(xs: Sequence[float], place: Callable[[float], float]) -> list[float]:
    """The numbers whose labels do not overlap."""
    shown: list[float] = []
    end = -math.inf
    for x in xs:
        half = (len(number(x)) + 1) * LETTER / 2
        if place(x) - half >= end:
            shown.append(x)
            end = place(x) + half
    return shown


def scale(largest: float, *, whole: bool = False) -> tuple[float, list[float]]:
    """A round top of the axis, and the ticks below it.

    ``whole`` is for counted things, which have no halves.
    """
    if largest <= 0:
        return 1.0, [0.0, 1.0]
    rough = largest / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(unit * factor for factor in factors if unit * factor >= rough)
    step = max(1.0, step) if whole else step
    count = math.ceil(largest / step - 1e-9)
    return step * count, [step * index for index in range(count + 1)]
