"""The deterministic simulator: whole fabrics in one process, in virtual time, from one seed.

    clock       virtual time, one heap
    latency     how long messages take: models, RTT matrices
    rules       what may befall a link: loss, delay, breaks, refusals, partition, clog
    network     links: epochs, queues, who is told that one broke
    switchboard links that machines dial and hang up themselves
    disk        writes that take time and are torn by crashes
    world       drives the machines; crash, restart, pause
    faults      faults as data, put on the clock
    config      one run as data; scenario files
    scenario    what all runs have in common: time, faults, counts, and how a seed flies
    workload    filters and events, drawn or given
    users       who subscribes, publishes and takes
    history     what they did and saw, and what was due by that
    book        where it is written down as it happens, and judged
    hooks       the steps that checkers are told of
    traces      trace files, as live nodes write them
    record      the same as rows, for others to judge by
    checkers    one property each
    run         whole nodes: from ``Config`` to ``Outcome``
    swarm       configurations, workloads and faults drawn from seeds; flies the seeds of any scenario
    churn       who comes and goes, as measured

The experiments of the three overlays are scenarios of the same world; they live in ``gossamer.lab``.

The same seed gives the same run to the byte: one random.Random per node and one for the network, integers for time, ties by
sequence number, and nothing iterates a set.
"""

from gossamer.sim.config import Config, ConfigError, ScenarioFile
from gossamer.sim.record import Delivery, Publication, Subscription
from gossamer.sim.run import Load, Outcome, simulate
from gossamer.sim.workload import Stay, Workload

__all__ = [
    "Config", "ConfigError", "Delivery", "Load", "Outcome", "Publication", "ScenarioFile", "Stay", "Subscription", "Workload",
    "simulate",
]  # fmt: skip
