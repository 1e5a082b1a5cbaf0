"""The deterministic simulator: whole fabrics in one process, in virtual time, from one seed.

    clock       virtual time, as a calendar of acts
    latency     the times of messages: models, RTT matrices
    rules       trouble on a link: loss, delay, breaks, refusals, partition, clog
    network     links: their epochs, their queues, and how both ends learn of a break
    switchboard links that machines dial and hang up themselves
    disk        writes that take time and are torn by crashes
    keys        certificates and signatures of a simulated fabric
    codec       the real wire
    world       drives the machines; crash, restart, pause
    faults      faults as data, put on the clock
    config      one run as data; scenario files
    scenario    the base of all runs: time, faults, counts, and the flight of a seed
    workload    filters and events, drawn or given
    users       subscribe, publish and take events
    history     everything that users did and saw, and which events were due by that
    book        writes the history as it happens, and has it judged
    hooks       the steps that checkers are told of
    traces      trace files, as live nodes write them
    rows        the history as rows, for the tables of the pipeline
    checkers    one property each
    run         whole nodes: from ``Config`` to ``Outcome``
    swarm       draws configurations, workloads and faults from seeds, and flies any scenario
    churn       sessions and absences of nodes, as measured
    fuzz        a peer that sends anything to one of three whole nodes

The experiments of the three overlays are scenarios of the same world. They live in
``gossamer.lab``.

The same seed gives the same run to the byte. Each node has one random.Random and the network has
one. Times are integers, ties are settled by sequence number, and nothing iterates over a set.
"""

from gossamer.sim.config import Config, ConfigError, ScenarioFile
from gossamer.sim.rows import DeliveryRow, PublicationRow, SubscriptionRow
from gossamer.sim.run import Load, Outcome, simulate
from gossamer.sim.workload import Stay, Workload

__all__ = [
    "Config", "ConfigError", "DeliveryRow", "Load", "Outcome", "PublicationRow", "ScenarioFile",
    "Stay", "SubscriptionRow", "Workload", "simulate",
]  # fmt: skip
