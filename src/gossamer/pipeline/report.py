"""Reports: one self-contained HTML page each, light and dark, readable on a phone, with no script and nothing to load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gossamer.pipeline import figures
from gossamer.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gossamer.pipeline.verify import Verdict

STANDS_IN = (
    "The trace is a stand-in: seed 001 used a trace of the eDonkey file-sharing network, which is not to be had. In its place "
    "stands Debian's source index (peers are maintainers, files are archive files), with the same three attributes: name, "
    "type, size. Its popularity is flatter, and many of its names begin alike."
)
OWN_TRACE = (
    "Seed 001 used a trace of the eDonkey file-sharing network, which is not to be had; the sample that comes with gossamer, "
    "from Debian's source index, stands in for it. This report is about another trace: "
)
HOW_JUDGED = (
    "Each node wrote down what it was asked and what it handed over. Spark read the filters' text and the events from there and "
    "computed by itself what was due; it shares no code with the fabric's own filters."
)
CAME_AND_WENT = (
    "Peers came and went, and their subscriptions with them. So what was due differs from run to run: an event was due where "
    "subscribe had returned before publish began and the subscription outlived the receipt, and allowed where they overlapped. "
    "The simulations wrote down when each of these was, and Spark judged by that; the expected pairs above are by plan."
)
READS = ("filters", "expected", "runs", "deliveries", "loads", "metrics", "quarantine")
_CSS = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d8dee4;--card:#f6f8fa;--good:#1a7f37;--bad:#cf222e;
--c0:#0b6bcb;--c1:#c2570c;--c2:#1a7f5a;--c3:#8250df}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9da7b3;--line:#30363d;--card:#161b22;--good:#3fb950;
--bad:#ff7b72;--c0:#58a6ff;--c1:#f0883e;--c2:#3fb98a;--c3:#bc8cff}}
*{box-sizing:border-box}body{margin:0 auto;max-width:62rem;padding:1rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{max-width:46rem}.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}.verdict{font-size:1.15rem;font-weight:600}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));gap:.6rem;margin:1rem 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem}
.tile b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
.figure{width:100%;height:auto;background:var(--card);border:1px solid var(--line);border-radius:.5rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:100%}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child,td.text,th.text{text-align:left}td.text{white-space:normal;overflow-wrap:anywhere}
code{font:.85em ui-monospace,monospace;overflow-wrap:anywhere}
"""


class Facts(Struct, frozen=True):
    """Everything the pipeline's report says, out of the tables."""

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
    hops = deliveries.join(of_largest, on="run", how="inner").groupBy("hops").count().orderBy("hops").collect()
    percent = sf.floor(sf.try_divide("noise", "events") * 20) * 5
    noise = loads.join(of_largest, on="run", how="inner").groupBy(percent.alias("p")).count().orderBy("p").collect()
    shapes = (
        filters.join(expected.groupBy("filter").count(), on="filter", how="left")
        .groupBy("shape")
        .agg(sf.count(sf.lit(1)).alias("filters"), sf.coalesce(sf.sum("count"), sf.lit(0)).alias("pairs"))
        .orderBy(sf.desc("filters"), "shape")
    )
    reasons = quarantine.groupBy("reason").agg(sf.count(sf.lit(1)).alias("rows"), sf.min("line").alias("first_line"))
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
        quarantine=[row.asDict() for row in reasons.orderBy(sf.desc("rows"), "reason").collect()],
    )


def totals(runs: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Counts over all runs; and how many runs failed, disagree with the oracle, or violated an invariant."""
    counted = ("expected", "delivered", "missed", "allowed", "duplicate", "spurious", "strayed")
    found = {name: sum(row[name] for row in metrics) for name in counted}
    found["failed"] = sum(row["status"] != "ok" for row in runs)
    found["violated"] = sum(bool(row["violations"]) for row in runs)
    return found | {"disagree": sum(not row["agrees"] for row in metrics)}


def write_pipeline(facts: Facts, path: Path, traces: Sequence[Path] = ()) -> Path:
    """The report of a pipeline run; no traces: it was the shipped sample."""
    origin = OWN_TRACE + ", ".join(trace.name for trace in traces) + "." if traces else STANDS_IN
    total = facts.totals
    wrong = [f"{total[name]:,} {name}" for name in ("missed", "duplicate", "spurious") if total[name]]
    wrong += [f"{total['strayed']:,} stays, subscriptions or events not as the workload says"] if total["strayed"] else []
    wrong += [f"{total[name]} runs {word}" for name, word in _RUN_FAULTS if total[name]]
    said = f"{total['delivered']:,} of {total['expected']:,} expected deliveries arrived"
    tiles = {"runs": facts.rows.get("runs", 0)} | {
        name: facts.rows.get(name, 0) for name in ("traces", "quarantine", "filters")
    }
    tiles |= {"events": facts.rows.get("events", 0), "expected pairs": facts.rows.get("expected", 0)}
    tiles |= {name: facts.rows[name] for name in ("topics",) if facts.rows.get(name, 0) > 1}
    tiles |= {"stays": stays} if (stays := facts.rows.get("churn", 0)) else {}
    tiles |= {name: total[name] for name in ("delivered", "missed", "duplicate", "spurious")}
    tiles |= {"allowed": total["allowed"]} if stays else {}
    body = [
        _verdict(not wrong, said, wrong),
        _tiles(tiles),
        f"<p>{escape(origin)}</p>",
        "<p>What is expected was computed by Spark from the filters' text alone; what was delivered by simulating the fabric. "
        "The two share no code. The simulator's own counts are compared with the oracle's: "
        + ("they agree in every run." if not total["disagree"] else f"<b>they differ in {total['disagree']} runs.</b>")
        + "</p>",
        f"<p>{escape(CAME_AND_WENT)}</p>" if stays else "",
        f'<div class="figures">{"".join(_pipeline_figures(facts))}</div>',
        "<h2>Runs</h2>",
        _table(facts.metrics, [name for name in TABLES["metrics"].names if name != "run"]),
    ]
    if facts.failed:
        body += ["<h2>Runs that failed</h2>", _table(facts.failed, ["run", "error", "replay"])]
    if facts.violations:
        shown = [{**row, "violations": "; ".join(row["violations"][:5])} for row in facts.violations]
        body += ["<h2>Invariants that the simulator saw broken</h2>", _table(shown, ["run", "violations", "replay"])]
    body += ["<h2>Filters</h2>", _table(facts.shapes, ["shape", "filters", "pairs"]), "<h2>Rows that could not be used</h2>"]
    body.append(_table(facts.quarantine, ["reason", "rows", "first_line"]) if facts.quarantine else "<p>None.</p>")
    body += ["<h2>Tables</h2>", _tables(facts.rows)]
    return _write(path, "Gossamer: from a trace to a verdict", body)


_RUN_FAULTS = (("failed", "failed"), ("disagree", "counted otherwise than the oracle"), ("violated", "broke an invariant"))


def write_demo(verdict: Verdict, path: Path, facts: Mapping[str, str], *, sample: bool = True) -> Path:
    """The report of a live fabric. ``facts`` are further lines: what was run, on what, for how long.

    ``sample``: its events were the shipped sample, and the page says what that stands in for.
    """
    wrong = [f"{getattr(verdict, name):,} {name}" for name in ("missed", "duplicate", "spurious") if getattr(verdict, name)]
    wrong += [f"{verdict.broken:,} trace lines or events unreadable"] if verdict.broken else []
    said = f"{verdict.delivered:,} of {verdict.expected:,} expected deliveries arrived"
    tiles: dict[str, Any] = {name: getattr(verdict, name) for name in ("nodes", "subscriptions", "events")}
    tiles |= {name: getattr(verdict, name) for name in ("expected", "delivered", "missed", "duplicate", "spurious")}
    tiles |= {"incomplete": verdict.incomplete} if verdict.incomplete else {}
    tiles |= {"latency p50, ms": verdict.latency_ms_p50, "latency p99, ms": verdict.latency_ms_p99}
    incomplete = (
        f"{verdict.incomplete:,} events never had a complete receipt: they are due to nobody, and no part of this verdict."
    )
    body = [
        _verdict(verdict.ok, said, wrong),
        f'<p class="bad">{escape(incomplete)}</p>' if verdict.incomplete else "",
        _tiles(tiles),
        f"<p>{escape(STANDS_IN)}</p>" if sample else "",
        f"<p>{escape(HOW_JUDGED)}</p>",
        f'<div class="figures">{"".join(_demo_figures(verdict))}</div>',
        "<h2>This run</h2>",
        _table([{"fact": name, "value": value} for name, value in facts.items()], ["fact", "value"]),
        "<h2>Nodes</h2>",
        _table([{"node": row.node, **_counts(row.counts)} for row in verdict.per_node], ["node", *_COUNTS]),
    ]
    if verdict.examples:
        columns = ["what", "event", "node", "subscription", "copies", "filter", "values"]
        rows = [{name: getattr(example, name) for name in columns} for example in verdict.examples]
        body += ["<h2>What went wrong, for example</h2>", _table(rows, columns)]
    notes = (
        [f"{verdict.allowed:,} deliveries were allowed, not due: subscription and event overlapped."]
        if verdict.allowed
        else []
    )
    notes += [f"{verdict.torn:,} trace files end in a torn line: their nodes were killed."] if verdict.torn else []
    body += [f"<p>{escape(note)}</p>" for note in notes]
    return _write(path, "Gossamer: a live fabric, judged by Spark", body)


_COUNTS = ("expected", "delivered", "missed", "allowed", "duplicate", "spurious", "late")


def _counts(counts: Any) -> dict[str, int]:
    return {name: getattr(counts, name) for name in _COUNTS}


def _pipeline_figures(facts: Facts) -> Iterable[str]:
    for name, label in (
        ("copies_per_delivery", "copies per delivery"),
        ("hops_mean", "mean hops"),
        ("noise", "noise share"),
    ):
        series: dict[str, dict[float, list[float]]] = {}
        for row in facts.metrics:
            if row[name] is not None:
                series.setdefault(row["overlay"], {}).setdefault(row["nodes"], []).append(row[name])
        means = {
            overlay: [(nodes, sum(values) / len(values)) for nodes, values in sorted(points.items())]
            for overlay, points in series.items()
        }
        if means:
            yield figures.line(f"{label.capitalize()} by size, mean over seeds", means, "nodes", label)
    if facts.hops:
        yield figures.histogram(f"Deliveries by hops, {facts.largest:,} nodes", facts.hops, "hops", "deliveries")
    if facts.noise:
        yield figures.histogram(
            f"Nodes by noise, {facts.largest:,} nodes", facts.noise, "noise events / all events, from", "nodes, all seeds"
        )
    shapes = [row["shape"] for row in facts.shapes]
    each = {"filters": [row["filters"] for row in facts.shapes], "matches": [row["pairs"] for row in facts.shapes]}
    yield figures.bars("Filters and their matches, by shape", shapes, each, "shape of the filter", "count")


def _demo_figures(verdict: Verdict) -> Iterable[str]:
    nodes = [row.node[:4] for row in verdict.per_node]
    series = {
        "expected": [row.counts.expected for row in verdict.per_node],
        "delivered": [row.counts.delivered for row in verdict.per_node],
    }
    yield figures.bars("Expected and delivered, by node", nodes, series, "node", "deliveries")
    latencies = [(figures.number(ms), count) for ms, count in verdict.latency_ms]
    yield figures.histogram("Deliveries by latency", latencies, "milliseconds, at most", "deliveries")
    yield figures.histogram("Deliveries by hops", [(str(hops), count) for hops, count in verdict.hops], "hops", "deliveries")


def _verdict(ok: bool, said: str, wrong: Sequence[str]) -> str:
    end = "nothing missed, duplicate or spurious." if ok else ", ".join(wrong) + "."
    return f'<p class="verdict {"good" if ok else "bad"}">{"✓" if ok else "✗"} {escape(said)}; {escape(end)}</p>'


def _tiles(tiles: Mapping[str, Any]) -> str:
    cells = (f'<div class="tile"><b>{_shown(value)}</b>{escape(name)}</div>' for name, value in tiles.items())
    return f'<div class="tiles">{"".join(cells)}</div>'


def _table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    rows = list(rows)
    words = {name for name in columns if any(isinstance(row[name], str) for row in rows)}
    head = "".join(f"<th{' class=text' * (name in words)}>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(_cell(row[name]) for name in columns)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: Any) -> str:
    return f'<td class="text">{_shown(value)}</td>' if isinstance(value, str) else f"<td>{_shown(value)}</td>"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "–"
    return figures.number(value) if isinstance(value, int | float) else escape(str(value))


def _tables(rows: Mapping[str, int]) -> str:
    said = [
        {"table": table.name, "rows": rows.get(table.name), "grain": table.grain, "key": ", ".join(table.key)}
        for table in TABLES.values()
    ]
    return _table(said, ["table", "rows", "grain", "key"])


def _write(path: Path, title: str, body: Iterable[str]) -> Path:
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(page, encoding="utf-8")
    fresh.replace(path)
    return path
