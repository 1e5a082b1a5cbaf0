"""The deterministic simulator: whole fabrics in one process, in virtual time, from one seed.

    clock       virtual time, one heap
    latency     how long messages take: models, RTT matrices
    rules       what may befall a link: loss, delay, breaks, refusals, partition, clog
    network     links: their epochs, their queues, and how both ends learn of a break
    switchboard links that machines dial and hang up themselves
    disk        writes that take time and are torn by crashes
    world       drives the machines; crash, restart, pause
    faults      faults as data, put on the clock
    config      one run as data; scenario files
    scenario    what all runs have in common: time, faults, counts, and how a seed flies
    workload    filters and events, drawn or given
    users       subscribe, publish and take events
    history     everything that users did and saw, and which events were due by that
    book        where it is written down as it happens, and judged
    hooks       the steps that checkers are told of
    traces      trace files, as live nodes write them
    record      the same as rows, for others to judge by
    checkers    one property each
    run         whole nodes: from ``Config`` to ``Outcome``
    swarm       draws configurations, workloads and faults from seeds, and flies any scenario
    churn       sessions and absences of nodes, as measured

The experiments of the three overlays are scenarios of the same world. They live in
``gossamer.lab``.

The same seed gives the same run to the byte. Each node has one random.Random and the network has
one. Times are integers, ties are settled by sequence number, and nothing iterates over a set.
"""

from gossamer.sim.config import Config, ConfigError, ScenarioFile
from gossamer.sim.record import Delivery, Publication, Subscription
from gossamer.sim.run import Load, Outcome, simulate
from gossamer.sim.workload import Stay, Workload

__all__ = [
    "Config", "ConfigError", "Delivery", "Load", "Outcome", "Publication", "ScenarioFile", "Stay",
    "Subscription", "Workload",
    "simulate",
]  # fmt: skip
