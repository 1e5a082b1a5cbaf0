"""The seeds' figures: numbers from tables, and sentences that change with the numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from gossamer.lab import results, seedfigures
from gossamer.lab.results import Results
from gossamer.lab.studies import QUICK, Study


class Tables:
    """Rows of the tables, made by hand."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in results.READS}

    def run(
        self,
        overlay: str,
        size: int,
        parameter: int = 2,
        fault: str = "none",
        status: str = "ok",
        **told: Any,
    ) -> int:
        number = len(self.rows["grid"])
        self.rows["grid"].append(
            {"run": number, "overlay": overlay, "size": size, "parameter": parameter, "seed": 7,
                "fault": fault,
             "options": json.dumps(told), "replay": f"replay {number}", "status": status,
             "error": None, "digest": ""}
        )  # fmt: skip
        return number

    def spread(self, run: int, name: str, counts: dict[int, int]) -> None:
        self.rows["spreads"] += [
            {"run": run, "name": name, "at": at, "count": count} for at, count in counts.items()
        ]

    def results(self) -> Results:
        return Results(self.rows)


def _static(noise: dict[int, int], hops: dict[int, int]) -> Results:
    tables = Tables()
    for routing in ("gossamer", "paper"):
        run = tables.run("skiplist", 1_000, workload="trace", routing=routing, events=2_500)
        tables.spread(run, "noise", noise)
        tables.spread(run, "hops", hops)
    return tables.results()


def _value(figure: seedfigures.Figure, name: str) -> float:
    return next(number.found for number in figure.numbers if number.name == name)


def test_figure_3_noise() -> None:
    study = Study()
    same = seedfigures.noise(_static({5: 890, 12: 100, 30: 10}, {}), study, "trace")
    assert _value(same, "the seed's routing: peers with 0.48 % noise") == 10.0
    assert _value(same, "the seed's routing: hottest peer") == pytest.approx(1.2)
    assert [number.stated for number in same.numbers[:2]] == [10.0, 1.2]
    assert same.agrees
    assert "10.0 % of the peers are at 0.48 %" in same.sentence
    hot = seedfigures.noise(_static({0: 999, 500: 1}, {}), study, "trace")
    assert hot.agrees is False
    assert "20.00 % where the seed has about 1.2 %: not the same order" in hot.sentence
    # Values beyond the axis are in its last bar.
    bars = hot.drawing.words
    assert "20.00 %" not in bars
    assert "1.20 % 0.1" in bars


def test_figure_4_hops() -> None:
    study = Study()
    same = seedfigures.hops(
        _static({0: 1}, {3: 600, 4: 635, 5: 265, 12: 1_000 - 500}), study, "trace"
    )
    assert _value(same, "the seed's routing: most common hops") == 4
    assert _value(same, "the seed's routing: events with 4 hops") == 635
    assert _value(same, "the seed's routing: within log2 N") == 75.0
    assert same.agrees
    assert "635 of 2,500 take 4: as in the seed" in same.sentence
    assert seedfigures.hops(_static({0: 1}, {9: 2_500}), study, "trace").agrees is False


def _dynamic(seeds: dict[int, int]) -> seedfigures.Figure:
    tables = Tables()
    for routing, counts in (("gossamer", {4: 700}), ("paper", seeds)):
        run = tables.run(
            "skiplist", 1_000, workload="trace", routing=routing, grow_from=300, events=0
        )
        tables.spread(run, "hops", counts)
    return seedfigures.dynamic(tables.results(), Study())


def test_figure_5_beyond_the_bound() -> None:
    figure = _dynamic({4: 628, 9: 2, 12: 70})
    assert _value(figure, "bound at the start") == pytest.approx(8.22, abs=0.01)
    assert _value(figure, "bound at the end") == pytest.approx(9.96, abs=0.01)
    assert _value(figure, "the seed's routing: beyond the bound at the start") == 72
    assert _value(figure, "the seed's routing: beyond the bound at the end") == 70
    assert figure.agrees
    assert (
        "72 of 700 events take more than 8.22 hops, the bound of the first peers, and 70 more "
        "than 9.96, that of all; the most is "
        "12: some take more than both, as the seed says" in figure.sentence
    )
    assert "3 of 700" in (few := _dynamic({4: 697, 9: 3}).sentence)
    assert (
        "and 0 more than 9.96, that of all; the most is 9: some take more than the first; the "
        "seed says that some take" in few
    )
    assert "none takes more, where the seed says that some do" in _dynamic({4: 700}).sentence
    most = _dynamic({4: 100, 12: 600})
    assert not most.agrees
    assert "most take more, unlike the seed" in most.sentence


@pytest.mark.parametrize(("degree", "agrees"), [(3, True), (4, False)])
def test_figure_3_degrees(degree: int, agrees: bool) -> None:
    tables = Tables()
    for hosts in QUICK.hosts:
        tables.spread(tables.run("tree", hosts), "degree", {1: hosts // 2, degree: hosts // 2})
    figure = seedfigures.degrees(tables.results(), QUICK)
    assert figure.agrees is agrees
    assert figure.numbers[0].found == degree
    assert figure.numbers[0].stated == 3.0


@pytest.mark.parametrize(("contacted", "agrees"), [((2, 3), True), ((5, 6), False)])
def test_figure_4_area(contacted: tuple[int, int], agrees: bool) -> None:
    tables = Tables()
    for hosts in QUICK.hosts:
        run = tables.run("tree", hosts)
        for number, (what, area) in enumerate((("join", 3), ("leave", 4))):
            tables.rows["reconfigurations"].append(
                {
                    "run": run,
                    "reconfiguration": number,
                    "what": what,
                    "area": area,
                    "contacted": contacted[number],
                }
            )
    figure = seedfigures.area(tables.results(), QUICK)
    assert figure.agrees is agrees
    assert _value(figure, "hosts contacted by a change, mean") == sum(contacted) / 2
    assert _value(figure, "mean area, largest network") == 3.5


def test_arithmetic() -> None:
    assert results.fit([(2, 1.0), (4, 3.0), (8, 5.0)]) == pytest.approx((2.0, -1.0, 1.0))
    assert results.mean({1: 1, 3: 3}) == 2.5
    assert [results.percentile({1: 50, 2: 49, 9: 1}, share) for share in (0.5, 0.99, 1.0)] == [
        1,
        2,
        9,
    ]
    assert results.mode({4: 3, 2: 3, 9: 1}) == 2


def test_runs_are_found_by_what_they_were_told() -> None:
    tables = Tables()
    tables.run("interest", 8, 6, rate=10)
    tables.run("interest", 8, 6, status="failed")
    tables.run("interest", 8, 3)
    read = tables.results()
    assert [row["run"] for row in read.runs("interest", size=8, parameter=6)] == [0]
    assert [row["run"] for row in read.runs("interest", size=8)] == [0, 2]
    assert [row["run"] for row in read.runs("interest", rate=10)] == [0]
    assert read.runs("interest", "crashes") == []


def test_a_figure_that_lacks_its_run_says_which_failed() -> None:
    pytest.importorskip("pyspark")
    from gossamer.lab import reproduce
    from gossamer.pipeline.job import JobError

    tables = Tables()
    # No run failed, so the fault is ours.
    with pytest.raises(IndexError):
        reproduce.drawn(tables.results(), QUICK)
    tables.run("tree", 10, status="ok")
    tables.run("skiplist", QUICK.filters, status="failed")
    tables.rows["grid"][1]["error"] = "ConfigError: no trace"
    with pytest.raises(
        JobError, match=r"1 of 2 runs failed.*ConfigError: no trace; again: replay 1"
    ):
        reproduce.drawn(tables.results(), QUICK)
