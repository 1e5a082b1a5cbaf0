"""The runs that reproduce the seeds' figures: cells of the grid and models, in full size or small.

Seed 001 (section 4) has 1,000 filters, 2,500 events, k = 2, a real trace and a synthetic one; then
300 peers grow to 1,000. Each runs with this project's routing and with the seed's own (``routing =
paper``). The trace is the package's sample of Debian's source index, or another one.

Seed 002 (section 4) has 256 keys, a binary tree, and 10 to 120 hosts, grown from empty, then a join
or a leave each second.

Seed 000 has no experiments, but it has claims: O(log N), differences in place of whole interests,
K. They are measured.
"""

from __future__ import annotations

from msgspec import Struct

from gossamer.lab.experiments import Cell, cells
from gossamer.lab.models import Plan

ROUTINGS = ("gossamer", "paper")
WORKLOADS = ("trace", "synthetic")


class Study(Struct, frozen=True):
    """The sizes of everything. The default is the seeds' own."""

    filters: int = 1_000
    events: int = 2_500
    grow_from: int = 300
    trace: str = "sample"
    hosts: tuple[int, ...] = tuple(range(10, 121, 10))
    tree_seeds: tuple[int, ...] = (7, 8, 9)
    tree_measure: str = "60s"
    nodes: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1_000)
    ks: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    ks_nodes: int = 128
    crash_nodes: int = 64
    rates: tuple[int, ...] = (10, 30, 100, 300, 1_000)
    rate_nodes: int = 64
    changes: int = 20
    models: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    model_walks: int = 100_000
    robust_nodes: int = 100_000
    robust_ks: tuple[int, ...] = (2, 3, 4, 6, 8)
    seed: int = 7


QUICK = Study(
    filters=60, events=120, grow_from=20, hosts=(10, 20), tree_seeds=(7,), tree_measure="10s",
    nodes=(12, 24), ks=(3,), ks_nodes=16, crash_nodes=10, rates=(50, 200), rate_nodes=10,
    changes=4, models=(200, 1_000), model_walks=2_000, robust_nodes=500, robust_ks=(2, 6),
)  # fmt: skip
"""Everything at a small size, for tests and as a check that all parts are in place.

Its numbers are not the seeds'.
"""

_TOPICS = (("subscriptions", 20), ("topics", 1_000))


def skiplist_cells(study: Study) -> list[Cell]:
    found = []
    for routing in ROUTINGS:
        for workload in WORKLOADS:
            trace = {"trace": study.trace} if workload == "trace" else {}
            given = {"events": study.events, "workload": workload, "routing": routing, **trace}
            found += cells(["skiplist"], [study.filters], [2], [study.seed], options=given)
        dynamic = {
            "grow_from": study.grow_from,
            "workload": "trace",
            "trace": study.trace,
            "routing": routing,
            "events": 0,
        }
        found += cells(["skiplist"], [study.filters], [2], [study.seed], options=dynamic)
    return found


def tree_cells(study: Study) -> list[Cell]:
    given = {"key_bits": 8, "measure": study.tree_measure}
    return cells(["tree"], study.hosts, [2], study.tree_seeds, options=given)


def interest_cells(study: Study) -> list[Cell]:
    given = dict(_TOPICS) | {"changes": study.changes}
    found = cells(["interest"], study.nodes, [6], [study.seed], options=given)
    found += cells(["interest"], [study.ks_nodes], study.ks, [study.seed], options=given)
    found += cells(
        ["interest"], [study.crash_nodes], study.ks, [study.seed], ["crashes"], dict(_TOPICS)
    )
    for rate in study.rates:
        for news in ("diff", "whole"):
            found += cells(
                ["interest"],
                [study.rate_nodes],
                [6],
                [study.seed],
                options=given | {"rate": rate, "news": news},
            )
    return found


def grid_cells(study: Study) -> list[Cell]:
    return list(dict.fromkeys([*skiplist_cells(study), *tree_cells(study), *interest_cells(study)]))


def model_plans(study: Study) -> list[Plan]:
    found = []
    for size in study.models:
        found += [
            Plan("skiplist", size, 2, study.seed, study.model_walks),
            Plan("interest", size, 6, study.seed, 8),
        ]
        found += [Plan("tree", size, 2, study.seed, 16)]
    return found + [
        Plan("robustness", study.robust_nodes, k, study.seed, 2) for k in study.robust_ks
    ]
