"""One run, from a configuration to its outcome: ``simulate``."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Struct

from gossamer.filters import Filter, Schema
from gossamer.machine import Micros
from gossamer.node.core import NodeConfig, NodeCore
from gossamer.overlay.flood import FloodConfig
from gossamer.overlay.interest.config import InterestConfig
from gossamer.sim import checkers as check
from gossamer.sim.book import Book
from gossamer.sim.config import Config
from gossamer.sim.graph import neighbours
from gossamer.sim.rows import (
    DeliveryRow,
    PublicationRow,
    SubscriptionRow,
    publications,
    subscriptions,
)
from gossamer.sim.scenario import address as named
from gossamer.sim.scenario import draw_peers
from gossamer.sim.users import Users
from gossamer.sim.workload import Shape, Workload, draw
from gossamer.sim.world import AnyMachine, BreachError, Node

# The number of steps between looks at whether the run is over.
CHUNK = 2_000
# The time after everything is quiet, in which late messages may still do harm.
LINGER = 2_000_000


class Load(Struct, frozen=True):
    node: int
    # Events that arrived, every copy counted.
    received: int
    # Hand-overs.
    delivered: int
    # Different events that arrived though no filter here wants them.
    noise: int
    sent_bytes: int


class Outcome(Struct):
    config: Config
    expected: int
    delivered: int
    missed: int
    duplicate: int
    spurious: int
    # Events that arrived at nodes, every copy counted.
    copies: int
    copies_per_delivery: float
    hops_mean: float
    hops_max: int
    latency_ms_p50: float
    latency_ms_p99: float
    receipts_complete: int
    bytes: int
    messages: int
    virtual_seconds: float
    digest: str
    # Every hand-over, also those that are duplicate or spurious.
    deliveries: list[DeliveryRow]
    loads: list[Load]
    subscriptions: list[SubscriptionRow]
    publications: list[PublicationRow]
    violations: list[str]
    # The faults that befell messages, links, nodes and disks, and how often each did.
    fired: dict[str, int]
    # The number of notes of the nodes, by kind.
    notes: dict[str, int]

    @property
    def good(self) -> bool:
        return not (self.missed or self.duplicate or self.spurious or self.violations)


Make = Callable[[Node, Config], AnyMachine]


def make_core(node: Node, config: Config, kind: type[NodeCore] = NodeCore) -> NodeCore:
    return kind(
        node.peer,
        incarnation=node.incarnation + 1,
        rng=Random(f"node {config.seed} {node.index} {node.incarnation}"),
        config=NodeConfig(
            window=config.window,
            batch_events=min(config.window, 512),
            buffer=config.buffer,
            trace=True,
            flood=FloodConfig(join=config.nodes > 1),
            interest=InterestConfig(k=config.degree, join=_seeds(config))
            if config.overlay == "fabric"
            else None,
        ),
        restored=dict(node.disk.contents) if node.incarnation and config.durable else None,
        durable=config.durable,
        address=address(node.index, config),
    )


def address(index: int, config: Config) -> str:
    return "" if config.is_unreached(index) else named(index)


def _seeds(config: Config) -> tuple[str, ...]:
    """The addresses at which nodes of a fabric find each other.

    These are the first three nodes, and one of them may be down.
    """
    return tuple(address(index, config) for index in range(min(3, config.nodes)))


def remembered(machine: Any, plane: str) -> int | None:
    """The number of batches that a plane of a node remembers. None if it has no such plane."""
    found = getattr(machine, plane, None)
    return None if found is None else found.remembered


def matching(workload: Workload, shapes: tuple[Shape, ...]) -> tuple[list[list[int]], list[str]]:
    """For each filter the events it matches, by straight evaluation.

    The second list tells where the two evaluations differ.
    """
    schemas = [Schema.parse(schema) for _, schema in workload.topics]
    events: list[list[tuple[int, dict[str, Any]]]] = [[] for _ in schemas]
    for index, event in enumerate(workload.events):
        events[workload.topic_of_event(index)].append((index, event))
    asked = [
        (workload.topic_of_filter(number), text) for number, text in enumerate(workload.filters)
    ]
    by_text: dict[tuple[int, str], list[int]] = {}
    differences: list[str] = []
    for number, (topic, text) in enumerate(asked):
        if (topic, text) in by_text:
            continue
        parsed = Filter.parse(text, schemas[topic])
        found = by_text[topic, text] = [
            index for index, event in events[topic] if parsed.matches(event)
        ]
        if shapes:
            right = [index for index, event in events[topic] if shapes[number].matches(event)]
            if right != found:
                differences.append(f"oracle: {text!r} matches {found}, evaluated by hand {right}")
                by_text[topic, text] = right
    return [by_text[key] for key in asked], differences


class Run(Users):
    """A run of whole nodes, in pieces for tests that look inside. ``simulate`` does all of it."""

    def __init__(
        self, config: Config, workload: Workload | None = None, make: Make = make_core
    ) -> None:
        shapes: tuple[Shape, ...] = ()
        if workload is None:
            drawn = draw(config.seed, config.subscriptions, config.events)
            workload, shapes = drawn.workload, drawn.shapes
        self.matching, differences = matching(workload, shapes)
        self._make = make
        wanted: list[dict[int, None]] = [{} for _ in workload.events]
        for filter, events in enumerate(self.matching):
            for event in events:
                wanted[event][filter] = None
        checkers = [
            check.Intact(workload.events), check.Receipts(), check.Floors(),
            check.Tables(remembered),
            check.Converged(self.unquiet),
        ]  # fmt: skip
        super().__init__(config, workload, Book(wanted.__getitem__, checkers))
        self.violations += differences
        self._add_nodes()

    def make(self, node: Node) -> AnyMachine:
        return self._make(node, self.setup)

    def _add_nodes(self) -> None:
        config, world = self.setup, self.world
        rng = Random(f"graph {config.seed}")
        for index, peer in enumerate(draw_peers(config.nodes, rng)):
            world.add_node(peer, address(index, config))
        if config.overlay == "flood":
            for a, b in neighbours(config.nodes, config.degree, rng):
                world.network.add_link(a, b)

    def go(self, progress: Callable[[float], None] = lambda _: None) -> Outcome:
        self.act(progress)
        return self._outcome()

    def act(self, progress: Callable[[float], None] = lambda _: None) -> None:
        try:
            self.world.start()
            self.begin()
            self._drive(progress)
        except BreachError as breach:
            self.violations.append(f"contract: {breach}")
        else:
            for checker in self.book.checkers:
                checker.finish(self.history)
        for checker in self.book.checkers:
            self.violations += checker.told()

    def counted(self) -> dict[str, float]:
        return {
            name: getattr(self.book, name)
            for name in ("expected", "delivered", "missed", "duplicate", "spurious")
        }

    def _drive(self, progress: Callable[[float], None]) -> None:
        clock = self.world.clock
        limit = int(self.setup.seconds_max * 1_000_000)
        while True:
            clock.run(self.over_at + limit, CHUNK)
            progress(self._fraction())
            if clock.next_at is None or clock.next_at > self.over_at + limit:
                clock.now = Micros(max(clock.now, self.over_at))
                # Nothing will happen any more, or time is up.
                break
            if not self.unquiet():
                clock.run(clock.now + LINGER, 10_000_000)
                # Links that nobody needs any longer may be closing just now.
                if not self.unquiet():
                    break
        progress(1.0)

    def _fraction(self) -> float:
        if self.started_at is None or self.over_at <= self.started_at:
            return 0.0
        return min(
            0.99, (self.world.clock.now - self.started_at) / (self.over_at - self.started_at)
        )

    def _outcome(self) -> Outcome:
        world, book = self.world, self.book
        deliveries = book.deliveries
        copies = sum(node.received for node in world.nodes)
        times = sorted(delivery.at for delivery in deliveries)
        hops = [delivery.hops for delivery in deliveries]
        start = self.started_at or 0
        return Outcome(
            config=self.setup,
            expected=book.expected,
            delivered=book.delivered,
            missed=book.missed,
            duplicate=book.duplicate,
            spurious=book.spurious,
            copies=copies,
            copies_per_delivery=round(copies / book.delivered, 3) if book.delivered else 0.0,
            hops_mean=round(sum(hops) / len(hops), 3) if hops else 0.0,
            hops_max=max(hops, default=0),
            latency_ms_p50=rank(times, 50) / 1_000,
            latency_ms_p99=rank(times, 99) / 1_000,
            receipts_complete=sum(event.completed is not None for event in self.history.events),
            bytes=world.bytes,
            messages=world.messages,
            virtual_seconds=world.clock.now / 1_000_000,
            digest=world.digest.hexdigest(),
            deliveries=deliveries,
            loads=self._loads(),
            subscriptions=subscriptions(self.history, start),
            publications=publications(self.history, start),
            violations=self.violations,
            fired={name: count for name, count in sorted(world.counts.items()) if count},
            notes=dict(sorted(self.notes.items())),
        )

    def _loads(self) -> list[Load]:
        handed = [0] * len(self.world.nodes)
        for delivery in self.book.deliveries:
            handed[delivery.node] += 1
        wanted = [bytearray(len(self.workload.events)) for _ in self.world.nodes]
        for filter, events in enumerate(self.matching):
            row = wanted[filter % len(wanted)]
            for event in events:
                row[event] = 1
        return [
            Load(
                node.index,
                node.received,
                handed[node.index],
                sum(
                    seen > want
                    for seen, want in zip(self.seen[node.index], wanted[node.index], strict=True)
                ),
                node.sent_bytes,
            )
            for node in self.world.nodes
        ]


def rank(times: list[int], percent: int) -> int:
    """The nearest rank: the smallest time that this share of all does not exceed."""
    return times[max(0, -(-len(times) * percent // 100) - 1)] if times else 0


def simulate(
    config: Config,
    workload: Workload | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Outcome:
    """Run the configuration. The workload is drawn from its seed if none is given.

    One seed gives one outcome, to the byte.
    """
    return Run(config, workload).go(progress)
