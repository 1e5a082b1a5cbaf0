"""Charts draw the given numbers, as SVG in a page, as an SVG file and as PNG."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from gossamer.pipeline import charts
from gossamer.pipeline.charts import Mark
from gossamer.pipeline.drawing import LETTER, LIGHT, SCALE, Polyline, Rect, Text


def test_the_height_of_a_bar_is_its_value() -> None:
    drawing = charts.bars(
        "Hops", ["0", "1", "2"], {"ours": [10, 40, 20], "theirs": [0, 5, 40]}, "hops", "events"
    )
    bars = [shape for shape in drawing.shapes if isinstance(shape, Rect) and shape.said]
    assert [bar.said for bar in bars[:3]] == ["0: 10 (ours)", "1: 40 (ours)", "2: 20 (ours)"]
    heights = [bar.height for bar in bars]
    assert heights[1] == pytest.approx(4 * heights[0])
    assert heights[2] == pytest.approx(heights[1] / 2)
    assert heights[3] == pytest.approx(0)
    # All bars stand on the axis.
    assert {round(bar.y + bar.height, 3) for bar in bars} == {254.0}
    assert "theirs: 0 0, 1 5, 2 40" in drawing.words


def test_a_mark_stands_where_its_number_is() -> None:
    drawing = charts.bars(
        "x",
        ["0", "4", "8", "12+"],
        {"a": [1, 1, 1, 1]},
        "x",
        "y",
        marks=[Mark(6, "six", True), Mark(0.5, "half")],
    )
    dashed = [shape for shape in drawing.shapes if isinstance(shape, Polyline) and shape.dashed]
    upright, level = dashed
    bars = [shape for shape in drawing.shapes if isinstance(shape, Rect) and shape.said]
    middles = [bar.x + (bar.width + 1) / 2 for bar in bars]
    assert upright.points[0][0] == pytest.approx((middles[1] + middles[2]) / 2, abs=0.6)
    assert level.points[0][1] == pytest.approx(bars[0].y + bars[0].height / 2)
    assert "Marked: six (6); Marked: half (0.5)" in drawing.words


def test_words_of_marks_stand_in_no_other_marks_way() -> None:
    labels = [str(n) for n in range(11)]
    drawing = charts.bars(
        "x",
        labels,
        {"a": [1.0] * 11},
        "x",
        "y",
        marks=[Mark(8.2, "bound 8.22", True), Mark(10, "bound 9.96", True)],
    )
    first, second = (
        shape.points[0][0]
        for shape in drawing.shapes
        if isinstance(shape, Polyline) and shape.dashed
    )
    one, other = (
        shape
        for shape in drawing.shapes
        if isinstance(shape, Text) and shape.text.startswith("bound")
    )
    # To the right, one label would lie over the other's line.
    assert (one.anchor, other.anchor) == (
        "end",
        "end",
    )
    assert one.x < first
    assert first < other.x < second
    assert one.clear
    assert other.y > one.y
    assert 'paint-order="stroke"' in drawing.svg()
    alone = charts.bars("x", labels, {"a": [1.0] * 11}, "x", "y", marks=[Mark(2, "bound 2", True)])
    assert (
        next(
            shape for shape in alone.shapes if isinstance(shape, Text) and shape.text == "bound 2"
        ).anchor
        == "start"
    )


def test_lines_on_a_logarithmic_axis_are_evenly_spaced() -> None:
    points = [(10.0, 1.0), (100.0, 2.0), (1000.0, 4.0)]
    drawing = charts.line(
        "t", {"a": points, "fit": points}, "n", "hops", log_x=True, dashed=["fit"]
    )
    solid, dashed = [
        shape for shape in drawing.shapes if isinstance(shape, Polyline) and len(shape.points) == 3
    ]
    xs = [x for x, _ in solid.points]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1])
    assert not solid.dashed
    assert dashed.dashed


def test_labels_do_not_run_into_each_other() -> None:
    drawing = charts.line("t", {"a": [(float(n), 1.0) for n in range(1000, 1100)]}, "n", "y")
    labels = [
        shape
        for shape in drawing.shapes
        if isinstance(shape, Text) and shape.anchor == "middle" and "," in shape.text
    ]
    assert 5 < len(labels) < 14
    assert all(b.x - a.x > 30 for a, b in pairwise(labels))


def test_the_last_label_is_inside_the_picture() -> None:
    drawing = charts.line("t", {"a": [(1_000.0, 1.0), (1_000_000.0, 2.0)]}, "n", "y", log_x=True)
    last = next(
        shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text == "1,000,000"
    )
    assert last.x + len(last.text) * LETTER / 2 < drawing.width


def test_the_same_drawing_as_svg_and_as_png() -> None:
    drawing = charts.bars("A < B & C", ["1", "2"], {"one": [1.0, 3.0]}, "x", "y")
    # The file is well-formed.
    ElementTree.fromstring(drawing.svg_file())
    assert "A &lt; B &amp; C" in drawing.svg_file()
    assert "prefers-color-scheme:dark" in drawing.svg_file()
    inline = drawing.svg()
    ElementTree.fromstring(inline)
    assert 'role="img"' in inline
    # Every colour is the page's.
    assert not re.search(r"#[0-9a-f]{6}", inline)
    image_module = pytest.importorskip("PIL.Image")
    image = image_module.open(io.BytesIO(drawing.png()))
    assert image.size == (drawing.width * SCALE, drawing.height * SCALE)
    bar = next(
        shape for shape in drawing.shapes if isinstance(shape, Rect) and shape.said == "2: 3"
    )
    inside = image.getpixel(
        (round((bar.x + bar.width / 2) * SCALE), round((bar.y + bar.height / 2) * SCALE))
    )
    assert "#{:02x}{:02x}{:02x}".format(*inside) == LIGHT["c0"]
    assert image.getpixel((1, 1)) == (255, 255, 255)


def test_of_what_is_counted_there_are_no_halves() -> None:
    assert charts.scale(2, whole=True) == (2, [0, 1, 2])
    assert charts.scale(9, whole=True) == (10, [0, 5, 10])
    assert 0.5 in charts.scale(2)[1]
    drawing = charts.histogram("t", [("0", 1), ("1", 2)], "hops", "deliveries")
    ticks = [
        shape.text for shape in drawing.shapes if isinstance(shape, Text) and shape.anchor == "end"
    ]
    assert ticks == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("largest", "top"), [(0, 1), (9, 10), (0.012, 0.015), (635, 800), (100, 100)]
)
def test_axes_end_at_round_numbers(largest: float, top: float) -> None:
    found, ticks = charts.scale(largest)
    assert found == pytest.approx(top)
    assert ticks[0] == 0
    assert ticks[-1] == pytest.approx(found)
