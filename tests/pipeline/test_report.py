"""Figures and reports are self-contained, have both themes, and show the numbers of the tables."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from msgspec import structs

from gossamer.pipeline import charts, report
from gossamer.pipeline.drawing import Drawing, Text
from pipeline.pages import assert_self_contained


@pytest.mark.parametrize(
    "drawing",
    [
        charts.bars("A & B", ["x", "<y>"], {"one": [1, 2.5], "two": [0, 4000]}, "things", "count"),
        charts.bars("none", [], {"one": []}, "things", "count"),
        charts.histogram("hops", [(str(n), n * n) for n in range(40)], "hops", "deliveries"),
        charts.line("noise", {"flood": [(10, 0.5), (5, 0.25)], "tree": [(5, 0)]}, "nodes", "noise"),
        charts.line("one point", {"flood": [(10, 0.5)]}, "nodes", "noise"),
        charts.line("nothing", {}, "nodes", "noise"),
    ],
)
def test_charts_are_well_formed_and_say_what_they_show(drawing: Drawing) -> None:
    svg = drawing.svg()
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label")
    # Colours come from the theme.
    assert not re.search(r"#[0-9a-f]{3,6}\b|NaN|nan", svg)


def test_every_word_under_the_bars_is_there_and_of_numbers_some() -> None:
    shapes = ["exact", "range", "prefix", "name", "contains", "either", "from", "in", "not"]
    drawing = charts.bars(
        "t", shapes, {"filters": [1.0] * 9, "matches": [2.0] * 9}, "shape of the filter", "count"
    )
    words = [shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text in shapes]
    assert [word.text for word in words] == shapes
    one, other = sorted({word.y for word in words})
    # Side by side they would overlap.
    assert {word.y for word in words[::2]} == {one}
    label = next(
        shape
        for shape in drawing.shapes
        if isinstance(shape, Text) and shape.text == "shape of the filter"
    )
    assert other + 12 < label.y
    numbers = charts.histogram("t", [(f"{n:,}", 1.0) for n in range(1_000, 1_050)], "x", "y")
    shown = [
        shape
        for shape in numbers.shapes
        if isinstance(shape, Text) and shape.text.startswith("1,0")
    ]
    assert len(shown) < 15
    assert len({word.y for word in shown}) == 1


def test_one_point_stands_in_the_middle() -> None:
    drawing = charts.line("t", {"flood": [(10.0, 0.5)]}, "nodes", "noise")
    (label,) = (shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text == "10")
    assert label.x == pytest.approx((charts.LEFT + charts.WIDTH - charts.RIGHT) / 2)


def test_numbers_are_readable() -> None:
    assert [charts.number(n) for n in (0, 1234567, 0.12345, 12345.6, 2.0)] == [
        "0",
        "1,234,567",
        "0.123",
        "12,346",
        "2",
    ]


def test_a_report_with_everything_wrong(tmp_path: Path) -> None:
    totals = {
        "expected": 10,
        "delivered": 8,
        "missed": 2,
        "allowed": 4,
        "duplicate": 0,
        "spurious": 1,
        "strayed": 5,
        "failed": 1,
        "disagree": 1,
        "violated": 1,
    }
    run = {
        "run": 1,
        "error": "Boom: <x>",
        "replay": "gossamer pipeline run",
        "violations": ["once: twice"],
    }
    metrics = dict.fromkeys(report.TABLES["metrics"].names, 1) | {
        "overlay": "flood",
        "noise": None,
        "agrees": False,
    }
    facts = report.Facts(
        rows={"runs": 2, "quarantine": 3, "churn": 7, "events": 12, "holdings": 45},
        totals=totals,
        metrics=[metrics],
        failed=[run],
        violations=[run],
        shapes=[{"shape": "exact", "filters": 5, "pairs": 6}],
        hops=[("1", 5)],
        noise=[("95 %", 5)],
        largest=80,
        quarantine=[{"reason": "blank line", "rows": 3, "first": "t.csv, line 7"}],
    )
    page = report.write_pipeline(facts, tmp_path / "report.html").read_text("utf-8")
    assert_self_contained(page)
    # The text is "... eDonkey ... Debian".
    assert report.STANDS_IN.split("'")[0] in page
    assert "5 stays, subscriptions or events not as the workload says" in page
    assert all(
        f"<b>{count}</b>{name}" in page
        for name, count in (("allowed", 4), ("stays", 7), ("events", 12))
    )
    assert "<b>45</b>rows of the trace" in page
    assert "<th>strayed</th>" in page
    still = structs.replace(facts, rows=facts.rows | {"churn": 0})
    assert "<th>strayed</th>" not in report.write_pipeline(
        still, tmp_path / "report.html"
    ).read_text("utf-8")
    # The page has the tables of this job, and no others.
    assert page.count('<td class="text">one ') == 5
    for text in (
        "8 of 10 expected",
        "2 missed",
        "1 spurious",
        "1 runs failed",
        "Boom: &lt;x&gt;",
        "once: twice",
        "blank line",
        "t.csv, line 7",
    ):
        assert text in page
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
