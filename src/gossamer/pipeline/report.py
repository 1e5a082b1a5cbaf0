"""Reports: one self-contained HTML page each, light and dark, readable on a phone, with no script
and nothing to load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gossamer.pipeline import charts, pages
from gossamer.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gossamer.pipeline.verify import Verdict

STANDS_IN = (
    "The trace is a stand-in: seed 001 used a trace of the eDonkey file-sharing network, which is "
    "not available. In its place stands Debian's source index (peers are maintainers, files are "
    "archive files), with the same three attributes: name, type, size. Its popularity is flatter, "
    "and many of its names begin alike."
)
OWN_TRACE = (
    "Seed 001 used a trace of the eDonkey file-sharing network, which is not available. The sample "
    "that comes with gossamer, from Debian's source index, stands in for it. This report is about "
    "another trace: "
)
HOW_JUDGED = (
    "Each node recorded its publications, subscriptions and hand-overs. Spark read the filters' "
    "text and the events from these records and decided by itself which events were due. It shares "
    "no code with the fabric's own filters."
)
CAME_AND_WENT = (
    "Peers came and went, and their subscriptions with them. So the events that were due differ "
    "from run to run. An event was due where subscribe had returned before publish began and the "
    "subscription outlived the receipt. It was allowed where they overlapped. The simulations "
    "recorded these times, and Spark judged by them; the expected pairs above are by plan."
)
SUBSCRIPTIONS_SHOWN = 100
READS = ("filters", "expected", "runs", "deliveries", "loads", "metrics", "quarantine")
LEAD = (
    "From a trace to filters and events, to the deliveries that Spark expects, and to the "
    "deliveries of simulations of the fabric."
)
LIVE = "The records of a fabric's nodes, and Spark's verdict on them."


class Facts(Struct, frozen=True):
    """Everything that the pipeline's report shows, read from the tables."""

    rows: dict[str, int]
    totals: dict[str, int]
    metrics: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    violations: list[dict[str, Any]]
    shapes: list[dict[str, Any]]
    hops: list[tuple[str, int]]
    """Deliveries by hops in the runs of the largest fabric."""
    noise: list[tuple[str, int]]
    """Nodes by noise in the runs of the largest fabric."""
    largest: int
    quarantine: list[dict[str, Any]]


def facts(
    *,
    filters: DataFrame,
    expected: DataFrame,
    runs: DataFrame,
    deliveries: DataFrame,
    loads: DataFrame,
    metrics: DataFrame,
    quarantine: DataFrame,
    rows: dict[str, int],
) -> Facts:
    """Read the numbers out of the tables."""
    from pyspark.sql import functions as sf

    judged = [row.asDict() for row in metrics.orderBy("overlay", "nodes", "seed").collect()]
    ran = [row.asDict() for row in runs.orderBy("run").collect()]
    failed = [row for row in ran if row["status"] != "ok"]
    broken = [row for row in ran if row["violations"]]
    largest = max((row["nodes"] for row in ran), default=0)
    of_largest = runs.where(sf.col("nodes") == largest).select("run", "events")
    hops = (
        deliveries.join(of_largest, on="run", how="inner")
        .groupBy("hops")
        .count()
        .orderBy("hops")
        .collect()
    )
    percent = sf.floor(sf.try_divide("noise", "events") * 20) * 5
    noise = (
        loads.join(of_largest, on="run", how="inner")
        .groupBy(percent.alias("p"))
        .count()
        .orderBy("p")
        .collect()
    )
    shapes = (
        filters.join(expected.groupBy("filter").count(), on="filter", how="left")
        .groupBy("shape")
        .agg(
            sf.count(sf.lit(1)).alias("filters"),
            sf.coalesce(sf.sum("count"), sf.lit(0)).alias("pairs"),
        )
        .orderBy(sf.desc("filters"), "shape")
    )
    first = sf.min(sf.struct("source", "line")).alias("first")
    reasons = quarantine.groupBy("reason").agg(sf.count(sf.lit(1)).alias("rows"), first)
    return Facts(
        rows=rows,
        totals=totals(ran, judged),
        metrics=judged,
        failed=failed,
        violations=broken,
        shapes=[row.asDict() for row in shapes.collect()],
        hops=[(str(row["hops"]), row["count"]) for row in hops],
        noise=[(f"{row['p']} %", row["count"]) for row in noise],
        largest=largest,
        quarantine=[
            {
                **row.asDict(),
                "first": f"{Path(row['first']['source']).name}, line {row['first']['line']:,}",
            }
            for row in reasons.orderBy(sf.desc("rows"), "reason").collect()
        ],
    )


def totals(
    runs: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Counts over all runs, and the numbers of runs that failed, disagree with the oracle, or
    violated an invariant.
    """
    counted = ("expected", "delivered", "missed", "allowed", "duplicate", "spurious", "strayed")
    found = {name: sum(row[name] for row in metrics) for name in counted}
    found["failed"] = sum(row["status"] != "ok" for row in runs)
    found["violated"] = sum(bool(row["violations"]) for row in runs)
    return found | {"disagree": sum(not row["agrees"] for row in metrics)}


def write_pipeline(facts: Facts, path: Path, traces: Sequence[Path] = ()) -> Path:
    """Write the report of a pipeline run. Without ``traces`` it used the sample."""
    origin = OWN_TRACE + ", ".join(trace.name for trace in traces) + "." if traces else STANDS_IN
    total = facts.totals
    wrong = [
        f"{total[name]:,} {name}" for name in ("missed", "duplicate", "spurious") if total[name]
    ]
    wrong += (
        [f"{total['strayed']:,} stays, subscriptions or events not as the workload says"]
        if total["strayed"]
        else []
    )
    wrong += [f"{total[name]} runs {word}" for name, word in _RUN_FAULTS if total[name]]
    said = f"{total['delivered']:,} of {total['expected']:,} expected deliveries arrived"
    named = {
        "runs": "runs",
        "holdings": "rows of the trace",
        "quarantine": "rows in quarantine",
        "filters": "filters",
    }
    named |= {"events": "events", "expected": "expected pairs"}
    tiles = {words: facts.rows.get(name, 0) for name, words in named.items()}
    tiles |= {name: facts.rows[name] for name in ("topics",) if facts.rows.get(name, 0) > 1}
    tiles |= {"stays": stays} if (stays := facts.rows.get("churn", 0)) else {}
    tiles |= {name: total[name] for name in ("delivered", "missed", "duplicate", "spurious")}
    tiles |= {"allowed": total["allowed"]} if stays else {}
    body = [
        _verdict(not wrong, said, wrong),
        pages.tiles(tiles),
        f"<p>{escape(origin)}</p>",
        "<p>Spark computed the expected pairs from the filters' text alone, and simulations of the "
        "fabric made the deliveries. The two share no code. The simulator's own counts are "
        "compared with the oracle's: "
        + (
            "they agree in every run."
            if not total["disagree"]
            else f"<b>they differ in {total['disagree']} runs.</b>"
        )
        + "</p>",
        f"<p>{escape(CAME_AND_WENT)}</p>" if stays else "",
        f'<div class="figures">{"".join(_pipeline_figures(facts))}</div>',
        "<h2>Runs</h2>",
        pages.table(
            facts.metrics,
            [
                name
                for name in TABLES["metrics"].names
                if name not in ("run", *(() if stays else _CHURNED))
            ],
        ),
    ]
    if facts.failed:
        body += ["<h2>Runs that failed</h2>", pages.table(facts.failed, ["run", "error", "replay"])]
    if facts.violations:
        shown = [
            {**row, "violations": "; ".join(row["violations"][:5])} for row in facts.violations
        ]
        body += [
            "<h2>Invariants that the simulator saw broken</h2>",
            pages.table(shown, ["run", "violations", "replay"]),
        ]
    body += [
        "<h2>Filters</h2>",
        pages.table(facts.shapes, ["shape", "filters", "pairs"]),
        "<h2>Rows that could not be used</h2>",
    ]
    body.append(
        pages.table(facts.quarantine, ["reason", "rows", "first"])
        if facts.quarantine
        else "<p>None.</p>"
    )
    body += ["<h2>Tables</h2>", _tables(facts.rows)]
    return pages.write(path, "Gossamer: from a trace to a verdict", LEAD, body)


_CHURNED = ("allowed", "strayed")
"""Columns that are zero unless peers come and go."""
_RUN_FAULTS = (
    ("failed", "failed"),
    ("disagree", "counted otherwise than the oracle"),
    ("violated", "broke an invariant"),
)


def write_demo(
    verdict: Verdict, path: Path, facts: Mapping[str, str], *, sample: bool = True
) -> Path:
    """Write the report of a live fabric. ``facts`` are further lines, such as the setting and
    duration of the run.

    ``sample`` means that its events were the sample, and the page says which trace the sample
    stands in for.
    """
    wrong = [
        f"{getattr(verdict, name):,} {name}"
        for name in ("missed", "duplicate", "spurious")
        if getattr(verdict, name)
    ]
    wrong += [f"{verdict.broken:,} trace lines or events unreadable"] if verdict.broken else []
    miscounted = f"{verdict.miscounted:,} receipts that count discarded events"
    wrong += [miscounted] if verdict.miscounted else []
    said = f"{verdict.delivered:,} of {verdict.expected:,} expected deliveries arrived"
    tiles: dict[str, Any] = {
        name: getattr(verdict, name) for name in ("nodes", "subscriptions", "events")
    }
    tiles |= {
        name: getattr(verdict, name)
        for name in ("expected", "delivered", "missed", "duplicate", "spurious")
    }
    tiles |= {"incomplete": verdict.incomplete} if verdict.incomplete else {}
    tiles |= {"latency p50, ms": verdict.latency_ms_p50, "latency p99, ms": verdict.latency_ms_p99}
    incomplete = (
        f"{verdict.incomplete:,} events never had a complete receipt: they are due to no "
        "subscription, and are not part of this verdict."
    )
    body = [
        _verdict(verdict.ok, said, wrong),
        f'<p class="bad">{escape(incomplete)}</p>' if verdict.incomplete else "",
        pages.tiles(tiles),
        f"<p>{escape(STANDS_IN)}</p>" if sample else "",
        f"<p>{escape(HOW_JUDGED)}</p>",
        f'<div class="figures">{"".join(_demo_figures(verdict))}</div>',
        "<h2>This run</h2>",
        pages.table(
            [{"fact": name, "value": value} for name, value in facts.items()], ["fact", "value"]
        ),
        "<h2>Nodes</h2>",
        pages.table(
            [{"node": row.node, **_counts(row.counts)} for row in verdict.per_node],
            ["node", *_COUNTS],
        ),
    ]
    each = [
        {
            "node": row.node,
            "subscription": row.subscription,
            "filter": row.filter or "none",
            **_counts(row.counts),
        }
        for row in verdict.per_subscription[:SUBSCRIPTIONS_SHOWN]
    ]
    head = f"{len(each):,} of them, the worst first"
    body += [
        "<h2>Subscriptions</h2>",
        pages.folded(head, pages.table(each, ["node", "subscription", "filter", *_COUNTS])),
    ]
    if verdict.examples:
        columns = ["what", "event", "node", "subscription", "copies", "filter", "values"]
        rows = [{name: getattr(example, name) for name in columns} for example in verdict.examples]
        body += ["<h2>What went wrong, for example</h2>", pages.table(rows, columns)]
    notes = (
        [
            (
                f"{verdict.allowed:,} deliveries were allowed, not due: subscription and event "
                "overlapped."
            )
        ]
        if verdict.allowed
        else []
    )
    notes += (
        [f"{verdict.torn:,} trace files end in a torn line: their nodes were killed."]
        if verdict.torn
        else []
    )
    body += [f"<p>{escape(note)}</p>" for note in notes]
    return pages.write(path, "Gossamer: a live fabric, judged by Spark", LIVE, body)


_COUNTS = ("expected", "delivered", "missed", "allowed", "duplicate", "spurious", "late")


def _counts(counts: Any) -> dict[str, int]:
    return {name: getattr(counts, name) for name in _COUNTS}


def _pipeline_figures(facts: Facts) -> Iterable[str]:
    for name, label in (
        ("copies_per_delivery", "copies per delivery"),
        ("hops_mean", "mean hops"),
        ("noise", "noise, percent of all events"),
    ):
        times = 100 if name == "noise" else 1
        series: dict[str, dict[float, list[float]]] = {}
        for row in facts.metrics:
            if row[name] is not None:
                series.setdefault(row["overlay"], {}).setdefault(row["nodes"], []).append(
                    times * row[name]
                )
        means = {
            overlay: [
                (nodes, sum(values) / len(values)) for nodes, values in sorted(points.items())
            ]
            for overlay, points in series.items()
        }
        if means:
            yield charts.line(
                f"{label.split(',')[0].capitalize()} by size, mean over seeds",
                means,
                "nodes",
                label,
            ).svg()
    if facts.hops:
        yield charts.histogram(
            f"Deliveries by hops, {facts.largest:,} nodes", facts.hops, "hops", "deliveries"
        ).svg()
    if facts.noise:
        yield charts.histogram(
            f"Nodes by noise, {facts.largest:,} nodes",
            facts.noise,
            "noise events / all events, from",
            "nodes, all seeds",
        ).svg()
    shapes = [row["shape"] for row in facts.shapes]
    each = {
        "filters": [row["filters"] for row in facts.shapes],
        "matches": [row["pairs"] for row in facts.shapes],
    }
    yield charts.bars(
        "Filters and their matches, by shape", shapes, each, "shape of the filter", "count"
    ).svg()


def _demo_figures(verdict: Verdict) -> Iterable[str]:
    nodes = [row.node[:4] for row in verdict.per_node]
    series = {
        "expected": [row.counts.expected for row in verdict.per_node],
        "delivered": [row.counts.delivered for row in verdict.per_node],
    }
    yield charts.bars("Expected and delivered, by node", nodes, series, "node", "deliveries").svg()
    latencies = [(charts.number(ms), count) for ms, count in verdict.latency_ms]
    yield charts.histogram(
        "Deliveries by latency", latencies, "milliseconds, at most", "deliveries"
    ).svg()
    hops = [(str(hops), count) for hops, count in verdict.hops]
    yield charts.histogram("Deliveries by hops", hops, "hops", "deliveries").svg()


def _verdict(ok: bool, said: str, wrong: Sequence[str]) -> str:
    end = "nothing missed, duplicate or spurious." if ok else ", ".join(wrong) + "."
    kind, sign = ("good", "✓") if ok else ("bad", "✗")
    return f'<p class="verdict {kind}">{sign} {escape(said)}; {escape(end)}</p>'


def _tables(rows: Mapping[str, int]) -> str:
    said = [
        {
            "table": table.name,
            "rows": rows[table.name],
            "one row": table.grain,
            "key": ", ".join(table.key),
        }
        for table in TABLES.values()
        if table.name in rows
    ]
    return pages.table(said, ["table", "rows", "one row", "key"])
