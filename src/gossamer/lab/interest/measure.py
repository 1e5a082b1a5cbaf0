"""The figures of the interest plane, all in virtual time.

    cold start   until every view is the truth and every wanted link is up lone         changes one
    by one, each in a quiet fabric: hops and time until each node knows, and
                 copies and bytes into a node
    barrier      until a node is told that every other one knows its change
    amortised    many changes a second from random nodes: bytes into a node for each of them
    idle         nothing happens: bytes out of a node each second

Bytes are whole frames. ``bytes_per_change`` has all bytes into a node but signs of life (Beat,
Probe, Vouch), of all copies: the news, and everything else that the change causes. The same changes
are made in a second fabric with whole interests in place of differences
(``bytes_per_change_whole``), and their messages are weighed with names in place of hashes
(``bytes_per_change_names``).
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from random import Random
from typing import Any, cast

import msgspec
from msgspec import Struct

from gossamer.lab.interest.checkers import (
    NEWS,
    Agreement,
    Connectivity,
    Degrees,
    Diameter,
    Hops,
    NewsOnly,
    Removals,
    Topics,
    Watch,
    degree_bound,
)
from gossamer.lab.interest.config import Setup
from gossamer.lab.interest.names import named_size
from gossamer.lab.interest.run import InterestRun, Make, Trail, make_interest
from gossamer.lab.memory import rare_collections
from gossamer.machine import SECOND, Message, Micros, Peer
from gossamer.overlay.interest.record import Record, learn
from gossamer.overlay.interest.view import View
from gossamer.sim.run import rank
from gossamer.sim.world import BreachError, Node

# The seconds without changes, after which only endless activity is left.
CALM = 3.0
# The seconds in which links that nobody wants are closed.
SETTLE_MAX = 30.0
# The seconds that a lone change has.
LONE_MAX = 5.0
# The seconds of silence that are measured.
IDLE = 10.0
# The seconds of steady changes.
STEADY, STEADY_LARGE = 5.0, 1.0
BARRIERS = 5
# The changes of the second fabric.
WHOLE_CHANGES = 10
Progress = Callable[[float], None]
# Called with the number of a lone change, and the trail of its way.
Told = Callable[[int, Trail], None]


class Measured(Struct, frozen=True, kw_only=True):
    """The figures of a measured run.

    Times are in milliseconds or seconds of virtual time, as they are named.
    """

    nodes: int
    k: int
    vertex_connectivity: int
    degree_mean: float
    degree_max: int
    diameter: int
    hops_p50: int
    hops_p99: int
    ms_p50: float
    ms_p99: float
    # The median.
    barrier_ms: float
    copies_per_node: float
    bytes_per_change: float
    bytes_per_change_names: float
    # 0 in a large fabric, which is not run a second time.
    bytes_per_change_whole: float
    bytes_amortised: float
    idle_bytes_per_s: float
    # In a formed fabric this is the time until all links are up.
    cold_start_s: float
    # "cold" or "formed".
    start: str
    cold_start_bytes_per_node: float
    memory_mb_per_million_pairs: float
    messages: int
    converged: bool
    digest: str
    violations: list[str]

    @property
    def good(self) -> bool:
        return self.converged and not self.violations


class Weigh(Watch):
    """Bytes of news, and of the same news with names, over all copies."""

    name = "weigh"

    def __init__(self, run: InterestRun) -> None:
        super().__init__()
        self._names = run.names.by_hash
        self.extra = 0

    def sending(
        self, node: Node, to: tuple[Peer, ...], message: Message, now: int, is_answer: bool
    ) -> None:
        if type(message) in NEWS:
            self.extra += (
                named_size(message, self._names) - 4 - len(_encoder.encode(message))
            ) * len(to)


_encoder = msgspec.msgpack.Encoder()


class Lone(Struct):
    """The hops and times of lone changes."""

    hops: list[int] = []
    # In microseconds.
    times: list[int] = []
    changes: int = 0
    copies: int = 0
    bytes: int = 0
    named: int = 0
    # The number of nodes that did not hear in time.
    lost: int = 0

    def per_node(self, total: int, nodes: int) -> float:
        return round(total / max(1, self.changes) / nodes, 2)


def cold_start(run: InterestRun, progress: Progress = lambda _: None) -> float | None:
    """The seconds until every view is the truth and every wanted link is up."""
    booted = SECOND
    return run.until(
        lambda: run.world.clock.now >= booted and run.agree() and run.has_links(),
        run.setup.seconds_max,
        10_000,
        progress,
    )


def settle(run: InterestRun) -> bool:
    """Wait until links that nobody wants are closed, too, and then for a while of calm."""
    woven = run.until(lambda: run.is_woven() and run.agree(), SETTLE_MAX, 50_000)
    run.wait(CALM)
    return woven is not None


def unsettled(run: InterestRun) -> str:
    """The first state that is not as it should be."""
    if not run.agree():
        return "the views do not agree"
    return (
        "links are up that nobody wants"
        if run.has_links()
        else "links that the overlay wants are not up"
    )


def lone_changes(
    run: InterestRun,
    changes: int,
    hops: Hops,
    progress: Progress = lambda _: None,
    told: Told | None = None,
) -> Lone:
    found = Lone()
    weigh = Weigh(run)
    run.watch(weigh)
    nodes = len(run.live())
    for number in range(changes):
        node = run.random_node()
        assert node is not None
        copies, bytes = run.received()
        named = weigh.extra
        record = node.machine.record  # type: ignore[union-attr]
        trail = run.trail = Trail(
            node.peer, record.life, record.version + 1, node.index, run.world.clock.now
        )
        run.change(node)
        run.until(lambda: len(trail.hops) == nodes, LONE_MAX, 1_000)  # noqa: B023
        # The last copies arrive, and the consequences of beats with old digests.
        run.wait(1.0)
        run.trail = None
        if told is not None:
            told(number, trail)
        found.changes += 1
        found.lost += nodes - len(trail.hops)
        for index, count in trail.hops.items():
            if index != node.index:
                found.hops.append(count)
                found.times.append(trail.at[index] - trail.began)
                hops.travelled(count, nodes)
        now_copies, now_bytes = run.received()
        found.copies += now_copies - copies
        found.bytes += now_bytes - bytes
        found.named += now_bytes - bytes + weigh.extra - named
        progress((number + 1) / changes)
    return found


def barriers(run: InterestRun) -> tuple[list[int], list[str]]:
    """The times of barriers, in microseconds, and the faults.

    A barrier is at fault that was said to be reached while some node did not know.
    """
    times: list[int] = []
    wrong: list[str] = []
    for _ in range(BARRIERS):
        node = run.random_node()
        assert node is not None
        machine = cast(Any, node.machine)
        run.change(node)
        began, number = run.world.clock.now, machine.barrier(run.world.clock.now)
        life, version = machine.record.life, machine.record.version
        run.world.command(node)
        if run.until(lambda: number in machine.barriers_done, LONE_MAX, 1_000) is None:  # noqa: B023
            wrong.append(f"barrier: node {node.index}'s was not reached in {LONE_MAX} s")
        times.append(run.world.clock.now - began)
        for other, member in run.live():
            known = member.view.members.get(node.peer)
            if known is None or (known.record.life, known.record.version) < (life, version):
                wrong.append(
                    f"barrier: node {node.index}'s was reached, and node {other.index} did not know"
                )
        run.wait(0.5)
    return sorted(times), wrong


def steady_changes(run: InterestRun) -> float | None:
    """Bytes into a node for each of many changes. None if the views do not agree afterwards."""
    clock, nodes = run.world.clock, len(run.live())
    _, before = run.received()
    steady = STEADY if run.setup.is_cold else STEADY_LARGE
    count, interval = int(run.setup.rate * steady), SECOND // run.setup.rate

    def change(_x: None, _y: None, _z: None) -> None:
        node = run.random_node()
        if node is not None:
            run.change(node)

    for number in range(count):
        clock.push(clock.now + number * interval, change)
    run.wait(steady)
    if run.until(run.agree, 10.0) is None:
        return None
    run.wait(1.0)
    return round((run.received()[1] - before) / count / nodes, 2)


def idle_rate(run: InterestRun) -> float:
    """The bytes that a node sends each second when nothing happens."""
    run.wait(CALM)
    before = run.world.bytes
    run.wait(IDLE)
    return round((run.world.bytes - before) / IDLE / len(run.live()), 2)


@cache
def memory_per_million_pairs(nodes: int = 1_000, topics: int = 1_000) -> float:
    """Megabytes of one real view (no pool) for a million pairs.

    The view has these numbers of nodes and of topics of each.
    """
    rng = Random("memory")
    peers = sorted(int(rng.random() * 2**53) << 11 | number for number in range(nodes))
    packed = struct.pack(f">{topics}Q", *(number << 44 for number in range(topics)))
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start(1)
    before = tracemalloc.get_traced_memory()[0]
    view = View(6, members_max=nodes, pairs_max=nodes * topics)
    # Each record has bytes of its own, as if decoded.
    for number, peer in enumerate(peers):
        record = Record(
            peer, 256, 1, f"host-{number}.example:7400", bytes(bytearray(packed)), bytes(4 * topics)
        )
        known = learn(record)
        assert known is not None
        view.put(known, Micros(0))
    # The graph is told of members when it is asked, so it counts, too.
    assert len(view.graph) == nodes
    used = tracemalloc.get_traced_memory()[0] - before
    if not was_tracing:
        tracemalloc.stop()
    return round(used / 2**20 / (nodes * topics / 1e6), 2)


def whole_bytes(setup: Setup) -> float:
    """Bytes into a node for a lone change when whole interests are sent."""
    with rare_collections():
        run = InterestRun(msgspec.structs.replace(setup, news="whole"))
        cold_start(run)
        settle(run)
        lone = lone_changes(run, min(setup.changes, WHOLE_CHANGES), Hops())
    return lone.per_node(lone.bytes, setup.nodes)


def measure(
    setup: Setup,
    progress: Progress = lambda _: None,
    jobs: int = 1,
    make: Make = make_interest,
    told: Told | None = None,
    *,
    memory: bool = True,
) -> Measured:
    """The whole run. With two jobs, the second fabric (whole interests) has its own process.

    ``memory`` also weighs a view of a million pairs, which takes longer than a small run.
    """
    whole: Future[float] | None = None
    # Large fabrics are measured once.
    is_second = setup.news != "whole" and setup.is_cold
    executor = (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) if jobs > 1 and is_second else None
    )
    if executor is not None:
        whole = executor.submit(whole_bytes, setup)
    try:
        with rare_collections():
            found = _measure(InterestRun(setup, make=make), progress, told, memory=memory)
        found_whole = found.bytes_per_change if setup.news == "whole" else 0.0
        if is_second:
            found_whole = whole.result() if whole is not None else whole_bytes(setup)
    finally:
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
    progress(1.0)
    return msgspec.structs.replace(found, bytes_per_change_whole=found_whole)


def _measure(
    run: InterestRun, progress: Progress, told: Told | None = None, *, memory: bool = True
) -> Measured:
    setup = run.setup
    hops, connectivity, across = Hops(), Connectivity(setup.k), Diameter(setup.k)
    for watch in (
        Topics(),
        Agreement(),
        connectivity,
        Degrees(degree_bound(setup.k)),
        across,
        Removals(run.life),
        hops,
    ):
        run.watch(watch)
    cold: float | None = None
    is_right, lone, amortised, idle, cold_bytes = False, Lone(), None, 0.0, 0.0
    violations: list[str] = []
    waits: list[int] = []
    degrees: list[int] = [0]
    try:
        cold = cold_start(run, lambda share: progress(0.5 * share))
        cold_bytes = round(run.world.bytes / setup.nodes, 1)
        is_right = settle(run)
        if not is_right:
            violations.append(f"settled: {SETTLE_MAX:g} s after the cold start {unsettled(run)}")
        run.look()
        degrees = [len(others) for others in run.snapshot().adjacency.values()]
        run.watch(NewsOnly())
        lone = lone_changes(
            run, setup.changes, hops, lambda share: progress(0.5 + 0.2 * share), told
        )
        waits, wrong = barriers(run)
        violations += wrong
        amortised = steady_changes(run)
        progress(0.9)
        idle = idle_rate(run)
        if run.until(run.agree, 10.0) is None:
            is_right = False
            violations.append("settled: at the end the views do not agree")
    except BreachError as breach:
        violations.append(f"contract: {breach}")
    if lone.lost:
        violations.append(
            f"lone: {lone.lost} times a node had not heard of a change after {LONE_MAX} s"
        )
    times, counts = sorted(lone.times), sorted(lone.hops)
    return Measured(
        nodes=setup.nodes,
        k=setup.k,
        vertex_connectivity=connectivity.found,
        degree_mean=round(sum(degrees) / len(degrees), 2),
        degree_max=max(degrees),
        diameter=across.found,
        hops_p50=rank(counts, 50),
        hops_p99=rank(counts, 99),
        ms_p50=rank(times, 50) / 1_000,
        ms_p99=rank(times, 99) / 1_000,
        barrier_ms=rank(waits, 50) / 1_000,
        copies_per_node=lone.per_node(lone.copies, setup.nodes),
        bytes_per_change=lone.per_node(lone.bytes, setup.nodes),
        bytes_per_change_names=lone.per_node(lone.named, setup.nodes),
        bytes_per_change_whole=0.0,
        bytes_amortised=amortised if amortised is not None else -1.0,
        idle_bytes_per_s=idle,
        start="cold" if setup.is_cold else "formed",
        cold_start_s=cold if cold is not None else -1.0,
        cold_start_bytes_per_node=cold_bytes,
        memory_mb_per_million_pairs=memory_per_million_pairs() if memory else 0.0,
        messages=run.world.messages,
        converged=cold is not None and is_right and amortised is not None,
        digest=run.world.digest.hexdigest(),
        violations=violations + run.told(),
    )
