"""Prints the results of a job and of a live fabric: counts, with faults in red."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.plain import plain

if TYPE_CHECKING:
    from gossamer.pipeline.stages import Result
    from gossamer.pipeline.verify import Counts, Verdict

COUNTS = ("expected", "delivered", "missed", "duplicate", "spurious")
FAULTS = ("missed", "duplicate", "spurious", "late")
WORST = 10
"""The most nodes, and the most subscriptions, whose faults are printed."""
ALLOWED = "deliveries allowed, not due: subscription and event overlapped"


def plain_result(result: Result) -> dict[str, Any]:
    return {
        "ok": result.ok,
        **result.totals,
        "rows": result.rows,
        "failure": result.failure,
        "seconds": result.seconds,
        "skipped": [outcome.stage for outcome in result.stages if outcome.skipped],
        "out": str(result.out),
        "report": None if result.report is None else str(result.report),
    }


def print_result(result: Result) -> None:
    rows = result.rows
    # No peer holds some items, such as earthquakes. Then the items are the rows.
    click.echo(
        f"trace      {rows['holdings'] or rows['items']:,} rows, "
        f"{rows['quarantine']:,} in quarantine"
    )
    if result.report is None:
        for name, count in rows.items():
            click.echo(f"{name:<10} {count:,}")
        return
    sizes = [f"{rows[name]:,} {name}" for name in ("filters", "events")]
    sizes += [f"{rows['topics']:,} topics"] if rows["topics"] > 1 else []
    sizes += [f"{rows['churn']:,} stays"] if rows["churn"] else []
    click.echo(f"workload   {', '.join(sizes)}, {rows['expected']:,} expected pairs")
    click.echo(f"runs       {rows['runs']:,}, {result.totals['failed']:,} failed")
    if result.failure is not None:
        click.secho(
            f"  the first: {result.failure['error']}\n  again:     {result.failure['replay']}",
            fg="red",
        )
    _print_counts(result.totals)
    if result.totals["allowed"]:
        click.echo(f"allowed    {result.totals['allowed']:,} {ALLOWED}")
    if result.totals["strayed"]:
        click.secho(
            f"{result.totals['strayed']:,} stays, subscriptions or events were not as the workload "
            "says; see strayed in metrics",
            fg="red",
        )
    if result.totals["disagree"]:
        click.secho(
            f"the simulator counted otherwise than the oracle in {result.totals['disagree']} runs",
            fg="red",
        )
    if result.totals["violated"]:
        click.secho(
            f"the simulator saw invariants broken in {result.totals['violated']} runs; "
            "see the report",
            fg="red",
        )
    click.echo(f"report     {result.report}")


def print_verdict(verdict: Verdict) -> None:
    click.echo(
        f"fabric     {verdict.nodes:,} nodes, {verdict.subscriptions:,} subscriptions, "
        f"{verdict.events:,} events"
    )
    _print_counts({name: getattr(verdict, name) for name in COUNTS})
    if verdict.latency_ms_p50 is not None:
        click.echo(
            f"latency    p50 {verdict.latency_ms_p50:.2f} ms, p99 {verdict.latency_ms_p99:.2f} ms"
        )
    for name, words in (
        ("allowed", ALLOWED),
        ("late", f"hand-overs later than {verdict.late_ms:g} ms after the publication"),
        ("incomplete", "events without a complete receipt"),
        ("torn", "trace files with a torn last line"),
        ("broken", "trace lines or events that could not be read"),
        ("miscounted", "events whose receipts count what a subscription had discarded"),
    ):
        if getattr(verdict, name):
            click.echo(f"{name:<10} {getattr(verdict, name):,} {words}")
    _print_worst(verdict)
    for example in verdict.examples:
        click.echo(
            plain(
                f"  {example.what}: event {example.event} {example.values} at {example.node}, "
                f"filter {example.filter}"
            )
        )


def _print_worst(verdict: Verdict) -> None:
    """Print the places of faults and of late hand-overs. --json and the report have all of them."""
    nodes = [
        (f"node {row.node}", faults) for row in verdict.per_node if (faults := _faults(row.counts))
    ]
    each = [
        (f"subscription {row.subscription} at {row.node}, filter {row.filter or 'none'}", faults)
        for row in verdict.per_subscription
        if (faults := _faults(row.counts))
    ]
    for found in (nodes, each):
        for where, faults in found[:WORST]:
            click.echo(plain(f"  {where}: {faults}"))
        if len(found) > WORST:
            click.echo(f"  and {len(found) - WORST:,} more")


def _faults(counts: Counts) -> str:
    return ", ".join(f"{count:,} {name}" for name in FAULTS if (count := getattr(counts, name)))


def _print_counts(counts: dict[str, int]) -> None:
    for name in COUNTS:
        bad = name in COUNTS[2:] and counts[name] > 0
        click.secho(f"{name:<10} {counts[name]:,}", fg="red" if bad else None)
