"""The dispatch tree's numbers: the output of ``gossamer simulate tree``, beside its goals.

All figures are in virtual time, so they do not depend on this machine; run times and memory do. No
rival runs beside it, because we show only figures that we measured. The rivals' own papers state
these: the seed has degree at most 3 and two to three hosts contacted for each change, up to 120
hosts; GossipSub has 6.3 copies per delivery.

    python benchmarks/tree.py              everything (about ten minutes)
    python benchmarks/tree.py --quick      smaller fabrics: a minute or two
    python benchmarks/tree.py --json       one object
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from math import log2
from typing import Any

import gossamer

# The figure, its name in words, and whether a value reaches the goal.
Demand = tuple[str, str, Callable[[float], bool]]


def at_most(figure: str, bar: float) -> Demand:
    return figure, f"<= {bar:g}", lambda value: value <= bar


def at_least(figure: str, bar: float) -> Demand:
    return figure, f">= {bar:g}", lambda value: value >= bar


ONCE = [at_most("missed", 0), at_most("duplicate", 0), at_most("spurious", 0)]
SHAPE = [
    at_least("is_tree", 1),
    at_most("degree_max", 3),
    at_most("lookups_max", 4),
    at_most("links_max", 9),
]
SEED = [*SHAPE, at_least("degree_1_or_3", 0.6), at_most("contacted_mean", 3),
    at_most("contacted_max", 6),
        at_most("copies_per_delivery", 1.1), *ONCE]  # fmt: skip


def run(*options: str) -> dict[str, Any]:
    """One run as a process of its own, with its time and its memory."""
    command = [sys.executable, "-m", "gossamer", "simulate", "tree", *options, "--json"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if not text:
        raise SystemExit(f"nothing from {' '.join(command)}")
    figures: dict[str, Any] = json.loads(text)
    degrees = {int(degree): count for degree, count in figures.get("degree", {}).items()}
    if degrees:
        figures["degree_1_or_3"] = round(
            (degrees.get(1, 0) + degrees.get(3, 0)) / sum(degrees.values()), 3
        )
    for change in ("join", "leave"):
        if f"area_{change}" in figures:
            figures[f"area_{change}_mean"] = figures[f"area_{change}"]["mean"]
    return figures | {
        "run_seconds": round(time.monotonic() - began, 1),
        "memory_gib": round(
            usage.ru_maxrss / (1 << 20 if sys.platform != "darwin" else 1 << 30), 3
        ),
    }


class Report:
    """Prints each result and whether it is good enough, unless the output is JSON."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.reached = True
        self.found: dict[str, Any] = {
            "gossamer": gossamer.__version__,
            "python": platform.python_version(),
        }

    def say(self, text: str) -> None:
        if not self.silent:
            print(text, flush=True)

    def judge(
        self,
        name: str,
        title: str,
        options: tuple[str, ...],
        demands: list[Demand],
        also: tuple[str, ...] = (),
    ) -> None:
        figures = self.found[name] = run(*options)
        self.say(
            f"\n{title} ({figures['run_seconds']} s)\n  gossamer simulate tree {' '.join(options)}"
        )
        for figure, words, is_reached in demands:
            good = is_reached(figures[figure])
            self.reached = self.reached and good
            self.say(
                f"  {figure:<28} {figures[figure]:>12,}   {words:<9} {'yes' if good else 'NO'}"
            )
        for figure in also:
            self.say(f"  {figure:<28} {figures[figure]!s:>12}")
        if not figures["good"]:
            self.reached = False
            self.say(f"  NOT GOOD: {figures['violations']}")


def figures_3_and_4(report: Report, sizes: range) -> None:
    """The seed's two figures, with a line for each number of hosts."""
    rows = []
    report.say(
        "\nfigures 3 and 4 of the seed: 256 keys, binary tree, grown from empty, "
        "then a join or a leave each second"
    )
    report.say(
        "  hosts  degree 1     2     3   area of a join: mean max   of a leave: mean max   "
        "contacted: mean max  tree"
    )
    for hosts in sizes:
        found = run("--hosts", str(hosts), "--key-bits", "8", "--arity", "2", "--seed", "7")
        share = [
            found["degree"].get(str(degree), 0) / sum(found["degree"].values())
            for degree in (1, 2, 3)
        ]
        join, leave = found["area_join"], found["area_leave"]
        report.say(
            f"  {hosts:>5}     {share[0]:>5.0%} {share[1]:>5.0%} {share[2]:>5.0%}"
            f"             {join['mean']:>8.2f} {join['max']:>3}         {leave['mean']:>8.2f} "
            f"{leave['max']:>3}"
            f"          {found['contacted_mean']:>6.2f} {found['contacted_max']:>3}  "
            f"{'yes' if found['good'] else 'NO'}"
        )
        report.reached = (
            report.reached
            and found["good"]
            and found["degree_max"] <= 3
            and found["contacted_mean"] <= 3
        )
        rows.append(found)
    report.found["figures_3_and_4"] = rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller fabrics")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    many, churned, halves = ("6000", "200", "100") if given.quick else ("100000", "1000", "1000")
    report = Report(silent=given.as_json)
    report.say(f"gossamer {gossamer.__version__}, Python {platform.python_version()}")

    report.judge("seed", "the seed's experiment",
        ("--hosts", "120", "--key-bits", "8", "--arity", "2", "--seed", "7"), SEED,
                 ("degree", "depth_mean", "depth_max", "lookups_mean", "area_join_mean",
                     "area_leave_mean", "announced_mean",
                  "digest"))  # fmt: skip
    figures_3_and_4(report, range(10, 121, 40 if given.quick else 10))
    report.judge(
        "many", f"{int(many):,} hosts on 64-bit keys", ("--hosts", many, "--seed", "1"),
        [*SHAPE, at_most("depth_max", round(2 * log2(int(many)), 2)), at_most("area_join_mean", 4),
         at_most("area_leave_mean", 4), at_most("contacted_max", 6), at_most("memory_gib", 8),
         at_most("copies_per_delivery", 1.1), *ONCE],
        ("degree", "depth_mean", "lookups_mean", "contacted_mean"),
    )  # fmt: skip
    calm = [at_most("copies_per_delivery", 1.1), *ONCE]
    for dht in ("ideal", "view", "chord"):
        report.judge(f"calm_{dht}", f"all hosts subscribed, no loss, {dht}",
            ("--hosts", "60", "--dht", dht, "--seed", "1"), calm,
                     ("announced_mean", "invariants_looked"))  # fmt: skip
    churn = (
        "--hosts",
        churned,
        "--dht",
        "view",
        "--loss",
        "0.1",
        "--churn-per-second",
        "0.01",
        "--measure",
        "20s",
    )
    report.judge("churn", "10 % of packets lost, 1 % of hosts replaced each second",
        (*churn, "--seed", "1"), ONCE,
                 ("expected", "delivered", "replaced", "copies_per_delivery",
                     "seconds_quiet"))  # fmt: skip
    rounds = round(2 * log2(int(halves)), 1)
    report.judge("merge", "two rings meet", ("--merge", "--hosts", halves, "--seed", "1"),
                 [at_most("rounds_ring", rounds), at_most("rounds_tree", rounds)],
                 ("seconds_ring", "seconds_tree", "log2_hosts", "messages"))  # fmt: skip
    report.judge("root", "the root fails", ("--root-failure", "--hosts", "120", "--seed", "7"),
                 [at_most("contacted", 6), at_most("links_changed", 9), at_most("missed", 0)],
                 ("seconds", "rendezvous_rejoining", "rendezvous_links_changed",
                     "rendezvous_degree_max"))  # fmt: skip
    wide = ("--hosts", "6000", "--arity", "4", "--seed", "1")
    report.judge(
        "wide",
        "a wide tree, capped",
        wide,
        [at_most("degree_max", 5), *ONCE],
        ("degree", "depth_max", "lookups_mean"),
    )
    report.judge(
        "uncapped",
        "and uncapped",
        (*wide, "--uncapped"),
        ONCE,
        ("degree", "depth_max", "lookups_mean"),
    )
    report.found["reached"] = report.reached
    if given.as_json:
        print(json.dumps(report.found))
    else:
        report.say(f"\nall reached: {'yes' if report.reached else 'NO'}")
    return 0 if report.reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
