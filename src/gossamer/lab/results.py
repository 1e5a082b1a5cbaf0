"""The tables of a reproduction as plain rows, found by the flags of a run, and some arithmetic for
figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

Row = dict[str, Any]
READS = ("grid", "measures", "spreads", "news", "reconfigurations", "models")


class Results:
    """The tables as plain rows, found by the flags of a run."""

    def __init__(self, rows: Mapping[str, list[Row]]) -> None:
        self.grid = [row | {"told": msgspec.json.decode(row["options"])} for row in rows["grid"]]
        self.models = rows["models"]
        self._measures: dict[int, dict[str, float]] = {}
        self._spreads: dict[tuple[int, str], dict[int, int]] = {}
        self._news: dict[int, list[Row]] = {}
        self._changes: dict[int, list[Row]] = {}
        for row in rows["measures"]:
            self._measures.setdefault(row["run"], {})[row["name"]] = row["value"]
        for row in rows["spreads"]:
            self._spreads.setdefault((row["run"], row["name"]), {})[row["at"]] = row["count"]
        for row in rows["news"]:
            self._news.setdefault(row["run"], []).append(row)
        for row in rows["reconfigurations"]:
            self._changes.setdefault(row["run"], []).append(row)

    def runs(self, overlay: str, fault: str = "none", **told: Any) -> list[Row]:
        """Runs that ended, by their flags.

        ``size`` and ``parameter`` are columns, and the other flags are options.
        """
        columns = {name: told.pop(name) for name in ("size", "parameter", "seed") if name in told}
        return [
            row
            for row in self.grid
            if row["overlay"] == overlay and row["fault"] == fault and row["status"] != "failed"
            and all(row[name] == value for name, value in columns.items())
            and all(row["told"].get(name) == value for name, value in told.items())
        ]  # fmt: skip

    def measure(self, run: Row, name: str) -> float:
        return self._measures[run["run"]][name]

    def spread(self, run: Row, name: str) -> dict[int, int]:
        return self._spreads.get((run["run"], name), {})

    def news(self, run: Row) -> list[Row]:
        return self._news.get(run["run"], [])

    def changes(self, runs: Iterable[Row]) -> list[Row]:
        return [row for run in runs for row in self._changes.get(run["run"], [])]

    def model(self, plane: str, what: str, **which: int) -> dict[int, int]:
        """The distribution of one figure of one modelled fabric."""
        return {
            row["at"]: row["count"]
            for row in self.models
            if row["plane"] == plane
            and row["what"] == what
            and all(row[name] == value for name, value in which.items())
        }


def read(out: Path) -> Results:
    """The committed tables of a folder. They are small, so no JVM is needed."""
    import pyarrow.parquet as pq

    return Results({name: pq.read_table(out / name).to_pylist() for name in READS})


# --------------------------------------------------------------------------- arithmetic


def mean(spread: Mapping[int, int]) -> float:
    return sum(at * count for at, count in spread.items()) / max(1, sum(spread.values()))


def percentile(spread: Mapping[int, int], share: float) -> int:
    rank, seen = math.ceil(share * sum(spread.values())), 0
    for at in sorted(spread):
        seen += spread[at]
        if seen >= rank:
            return at
    return 0


def mode(spread: Mapping[int, int]) -> int:
    return max(spread, key=lambda at: (spread[at], -at))


def fit(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Least squares of y over log2 x: slope, start, and the share of the variance that it
    explains.
    """
    xs, ys = [math.log2(x) for x, _ in points], [y for _, y in points]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    spread_x = sum((x - mx) ** 2 for x in xs) or 1.0
    slope = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / spread_x
    start = my - slope * mx
    left = sum((y - start - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    whole = sum((y - my) ** 2 for y in ys)
    return slope, start, 1.0 - left / whole if whole else 1.0
