"""The whole reproduction at a small size: every figure comes from the tables, every file is in
place, and nothing is done twice.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.pages import assert_self_contained

pytest.importorskip("pyspark")

from gossamer.lab import reproduce, seedfigures, studies
from gossamer.lab.studies import QUICK
from gossamer.pipeline import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = [
    "001-3a",
    "001-3b",
    "001-4a",
    "001-4b",
    "001-5",
    "002-3",
    "002-4",
    "000-time",
    "000-bytes",
    "000-k",
    "scale",
]


def _rows(out: Path, name: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(out / name).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.slow
# This takes half a minute on a quiet machine.
@pytest.mark.timeout(900)
@pytest.mark.spark
def test_everything_in_small(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pytest.importorskip("PIL")
    told: list[tuple[int, int]] = []
    result = reproduce.run(
        lambda: spark, out, QUICK, on_wave=lambda done, all: told.append((done, all))
    )
    count = len(studies.grid_cells(QUICK))
    assert told[-1] == (count, count)
    assert result.ok
    assert [figure.key for figure in result.figures] == KEYS
    for key in KEYS:
        assert (out / "charts" / f"{key}.svg").read_text().startswith("<svg ")
        assert (out / "charts" / f"{key}.png").read_bytes()[:4] == b"\x89PNG"
    for name in ("grid", "measures", "spreads", "news", "reconfigurations", "models"):
        with (out / "csv" / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.reader(file))) == 1 + len(_rows(out, name)), name
    _figures_are_the_tables(out)
    page = result.report.read_text("utf-8")
    assert_self_contained(page)
    for said in (
        "eDonkey",
        "around 10% of peers receive 0.48%",
        "The seeds&#x27; files hold no pictures",
        "the small study",
    ):
        assert said in page, said
    assert page.count("<svg") == len(KEYS)
    again = reproduce.run(lambda: pytest.fail("nothing is to be done"), out, QUICK)
    assert [outcome.skipped for outcome in again.stages] == [True] * 3
    assert again.figures == result.figures


def _figures_are_the_tables(out: Path) -> None:
    """Compute the numbers again from the tables alone, by another way than the figures' own."""
    found = {(row["figure"], row["name"]): row for row in _rows(out, "figures")}
    grid, spreads = _rows(out, "grid"), _rows(out, "spreads")
    told = {row["run"]: row | json.loads(row["options"]) for row in grid}
    for routing, name in seedfigures.NAMES.items():
        for workload, letter in (("trace", "a"), ("synthetic", "b")):
            (run,) = (
                number
                for number, row in told.items()
                if row["overlay"] == "skiplist"
                and (row.get("routing"), row.get("workload")) == (routing, workload)
                and "grow_from" not in row
            )
            noise = {
                row["at"]: row["count"]
                for row in spreads
                if (row["run"], row["name"]) == (run, "noise")
            }
            hops = {
                row["at"]: row["count"]
                for row in spreads
                if (row["run"], row["name"]) == (run, "hops")
            }
            assert sum(noise.values()) == QUICK.filters
            assert sum(hops.values()) == QUICK.events
            assert found[f"001-3{letter}", f"{name}: hottest peer"]["found"] == pytest.approx(
                100 * max(noise) / QUICK.events
            )
            assert found[f"001-4{letter}", f"{name}: events with 4 hops"]["found"] == hops.get(4, 0)
    assert found["001-3a", "the seed's routing: hottest peer"]["stated"] == 1.2
    assert found["001-3b", "the seed's routing: hottest peer"]["stated"] is None
    changes = _rows(out, "reconfigurations")
    mean = sum(row["contacted"] for row in changes) / len(changes)
    assert found["002-4", "hosts contacted by a change, mean"]["found"] == pytest.approx(mean)
    degrees = [row["at"] for row in spreads if row["name"] == "degree"]
    assert found["002-3", "highest degree, any host of any run"]["found"] == max(degrees) <= 3
    largest = QUICK.models[-1]
    loads = [
        row["at"]
        for row in _rows(out, "models")
        if (row["what"], row["size"]) == ("load", largest) and row["plane"] == "skiplist"
    ]
    found_load = found["scale", "skip list: load of the busiest entry"]["found"]
    assert found_load > 0
    assert found_load == pytest.approx(100 * max(loads) / QUICK.model_walks)
    depth = [
        row
        for row in _rows(out, "models")
        if (row["plane"], row["what"], row["size"]) == ("tree", "depth", largest)
    ]
    mean = sum(row["at"] * row["count"] for row in depth) / largest
    assert found["scale", f"tree: depth, mean of {largest:,}"]["found"] == pytest.approx(mean)


def test_the_study_is_the_seeds() -> None:
    study = studies.Study()
    assert (study.filters, study.events, study.grow_from) == (1_000, 2_500, 300)
    assert study.hosts == tuple(range(10, 121, 10))
    cells = studies.grid_cells(study)
    assert len({cell.run() for cell in cells}) == len(cells)
    assert {cell.parameter for cell in studies.skiplist_cells(study)} == {2}
    assert max(study.models) == 1_000_000
    assert [stage.name for stage in reproduce.plan(Path("x"), study)] == [
        "grid",
        "models",
        "figures",
    ]
    assert tables.FIGURES in reproduce.plan(Path("x"), study)[2].writes
