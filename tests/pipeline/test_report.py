"""Figures and reports: self-contained, in both themes, and the numbers are the tables'."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gossamer.pipeline import figures, report
from pipeline.pages import assert_self_contained


@pytest.mark.parametrize(
    "svg",
    [
        figures.bars("A & B", ["x", "<y>"], {"one": [1, 2.5], "two": [0, 4000]}, "things", "count"),
        figures.bars("none", [], {"one": []}, "things", "count"),
        figures.histogram("hops", [(str(n), n * n) for n in range(40)], "hops", "deliveries"),
        figures.line("noise", {"flood": [(10, 0.5), (5, 0.25)], "tree": [(5, 0)]}, "nodes", "noise"),
        figures.line("one point", {"flood": [(10, 0.5)]}, "nodes", "noise"),
        figures.line("nothing", {}, "nodes", "noise"),
    ],
)
def test_charts_are_well_formed_and_say_what_they_show(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert not re.search(r"#[0-9a-f]{3,6}\b|NaN|nan", svg)  # colours come from the theme


def test_a_bar_is_as_high_as_its_value() -> None:
    root = ElementTree.fromstring(figures.bars("t", ["a", "b"], {"n": [50, 100]}, "x", "y"))
    low, high = (float(bar.get("height", "0")) for bar in root.iter("rect"))
    assert high == pytest.approx(2 * low, abs=0.2)
    assert "a 50, b 100" in str(root.get("aria-label"))


def test_numbers_are_readable() -> None:
    assert [figures.number(n) for n in (0, 1234567, 0.12345, 12345.6, 2.0)] == ["0", "1,234,567", "0.123", "12,346", "2"]


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
    run = {"run": 1, "error": "Boom: <x>", "replay": "gossamer pipeline run", "violations": ["once: twice"]}
    metrics = dict.fromkeys(report.TABLES["metrics"].names, 1) | {"overlay": "flood", "noise": None, "agrees": False}
    facts = report.Facts(
        rows={"runs": 2, "quarantine": 3, "churn": 7, "events": 12},
        totals=totals,
        metrics=[metrics],
        failed=[run],
        violations=[run],
        shapes=[{"shape": "exact", "filters": 5, "pairs": 6}],
        hops=[("1", 5)],
        noise=[("95 %", 5)],
        largest=80,
        quarantine=[{"reason": "blank line", "rows": 3, "first_line": 7}],
    )
    page = report.write_pipeline(facts, tmp_path / "report.html").read_text("utf-8")
    assert_self_contained(page)
    assert report.STANDS_IN.split("'")[0] in page  # "... eDonkey ... Debian"
    assert "5 stays, subscriptions or events not as the workload says" in page
    assert all(f"<b>{count}</b>{name}" in page for name, count in (("allowed", 4), ("stays", 7), ("events", 12)))
    for text in (
        "8 of 10 expected",
        "2 missed",
        "1 spurious",
        "1 runs failed",
        "Boom: &lt;x&gt;",
        "once: twice",
        "blank line",
    ):
        assert text in page
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
