"""The interest plane's numbers: the output of ``gossamer simulate interest``, beside its goals.

All figures are in virtual time with 1 ms links, so they do not depend on this machine. Only the
last column does, the time of a run. No rival runs beside it, because we show only figures that we
measured. The rivals' own papers and code state these: SpiderCast about 420 bytes a change and 0.3
to 6 s at 1,000 processes, memberlist about 1.5 s.

    python benchmarks/interest.py              N = 1000: everything (about a quarter of an hour)
    python benchmarks/interest.py --quick      N = 100: a minute or two
    python benchmarks/interest.py --json       one object
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import gossamer

# The figure, its name in words, and whether a value reaches the goal.
Demand = tuple[str, str, Callable[[float], bool]]


def at_most(figure: str, bar: float) -> Demand:
    return figure, f"<= {bar:g}", lambda value: value <= bar


def at_least(figure: str, bar: float) -> Demand:
    return figure, f">= {bar:g}", lambda value: value >= bar


MEASURED = [
    at_least("vertex_connectivity", 6), at_most("diameter", 8), at_most("ms_p50", 15),
    at_most("ms_p99", 25),
    at_most("bytes_per_change", 125), at_most("bytes_amortised", 100),
    at_most("idle_bytes_per_s", 200),
    at_most("cold_start_s", 10), at_most("memory_mb_per_million_pairs", 64),
]  # fmt: skip
SCENARIOS = ("crashes", "loss", "pause", "partition", "restart", "leave", "churn", "dead", "flips")


def run(*options: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "gossamer",
        "simulate",
        "interest",
        *options,
        "--seed",
        "1",
        "--json",
    ]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures | {"run_seconds": round(time.monotonic() - began, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="100 nodes instead of 1,000")
    parser.add_argument(
        "--large",
        action="store_true",
        help="also 5,000 nodes with 5 subscriptions each (10 minutes)",
    )
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    nodes = "100" if given.quick else "1000"
    found: dict[str, Any] = {
        "gossamer": gossamer.__version__,
        "python": platform.python_version(),
        "nodes": int(nodes),
    }
    reached = True

    def say(text: str) -> None:
        if not given.as_json:
            print(text, flush=True)

    say(
        f"gossamer {gossamer.__version__}, Python {platform.python_version()}, {nodes} nodes, K "
        "= 6, 1 ms links, seed 1"
    )
    sizes = {nodes: ("--topics", "10000", "--subscriptions", "50")}
    if given.large:
        sizes["5000"] = ("--topics", "10000", "--subscriptions", "5")
    for size, options in sizes.items():
        figures = found[f"measured_{size}"] = run("--nodes", size, *options)
        say(
            f"\n{size} nodes, {options[1]} topics, {options[3]} a node ({figures['run_seconds']} s)"
        )
        demands = (
            MEASURED
            if size == "1000"
            else [demand for demand in MEASURED if not demand[0].startswith(("ms_", "bytes_"))]
        )
        for figure, words, is_reached in demands:
            good = is_reached(figures[figure])
            reached = reached and good
            say(f"  {figure:<28} {figures[figure]:>12,}   {words:<9} {'yes' if good else 'NO'}")
        for figure in (
            "hops_p50",
            "hops_p99",
            "copies_per_node",
            "bytes_per_change_whole",
            "bytes_per_change_names",
            "barrier_ms",
        ):
            say(f"  {figure:<28} {figures[figure]:>12,}")
    say("\nexperiments")
    for scenario in SCENARIOS:
        figures = found[scenario] = run("--scenario", scenario, "--nodes", nodes)
        reached = reached and bool(figures.get("good"))
        shown = {
            key: value
            for key, value in figures.items()
            if key.endswith("_s") or key in ("false_removals", "heard")
        }
        say(
            f"  {scenario:<10} {'yes' if figures.get('good') else 'NO':<4} "
            f"{figures['run_seconds']:>6} s  {shown}"
        )
    found["reached"] = reached
    if given.as_json:
        print(json.dumps(found))
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
