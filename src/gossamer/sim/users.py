"""The users of the nodes: they advertise, subscribe, publish, take events, and return.

A run has three parts. In the set-up the topic spreads and every filter is subscribed. Then events
are published, with the faults. In the end the faults are over, every due event must arrive and
every receipt must complete. Where the workload has stays, a subscriber comes and goes with them. It
subscribes when it comes and unsubscribes when it goes. Its node stays, because others use it, too.
``Users`` is the simulator's probe. It writes the history and passes every step on to the checkers.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol, cast

from gossamer.machine import Deliver, Micros
from gossamer.node.outbox import Publication, Ticket, WindowFullError
from gossamer.node.planes import Route
from gossamer.node.topics import TopicError
from gossamer.sim.book import Book
from gossamer.sim.clock import duration
from gossamer.sim.codec import hops_of, plane_of
from gossamer.sim.config import Config
from gossamer.sim.history import Place, Published
from gossamer.sim.network import Packet
from gossamer.sim.scenario import Scenario
from gossamer.sim.workload import Workload
from gossamer.sim.world import AnyMachine, Node
from gossamer.trace import Discarded, Member, Record, Unsubscribed, hex_peer

# The topic is not known here yet.
SUBSCRIBE_RETRY = 50_000
# The window is full, or no node is there to publish.
PUBLISH_RETRY = 20_000
# The time between the last subscription and the first publication.
LEAD_IN = 10_000
RETRIES_MAX = 2_000
# The number of times that a subscription sets out for another route, with route "wander".
MOVES = 3
MOVING = (Route.DIRECT, Route.FLOOD, Route.SKIPLIST, Route.TREE)
_HANDED = struct.Struct("<qiIQQQ")


class Core(AnyMachine, Protocol):
    """The methods of a node's machine that the users call. ``NodeCore`` has them."""

    changed: list[Publication]

    @property
    def entered(self) -> list[int]: ...
    @property
    def lapsed(self) -> list[int]: ...
    def advertise(self, topic: str, schema: str, now: Micros) -> Any: ...
    def subscribe(self, topic: str, filter: str, now: Micros, *, route: Route) -> int: ...
    def unsubscribe(self, number: int, now: Micros) -> None: ...
    def move(self, number: int, route: Route, now: Micros) -> bool: ...
    def publish(self, topic: str, event: dict[str, Any], now: Micros) -> Ticket: ...
    def taken(self, number: int, count: int, now: Micros) -> None: ...


class Users(Scenario[Config]):
    def __init__(self, setup: Config, workload: Workload, book: Book) -> None:
        super().__init__(setup)
        self.workload, self.book, self.history = workload, book, book.history
        # The time of the first publication.
        self.started_at: int | None = None
        # The time when the last publication and the last fault are over.
        self.over_at = 0
        self.published = 0
        # For each node the events that came to it. Below the same, in this life, by plane.
        self.seen = [bytearray(len(workload.events)) for _ in range(setup.nodes)]
        self._met: list[dict[str, bytearray]] = [{} for _ in range(setup.nodes)]
        # For each node the place of each subscription number. Below the same, for those that ended
        # in this life.
        self._live: list[dict[int, Place]] = [{} for _ in range(setup.nodes)]
        self._gone: list[dict[int, Place]] = [{} for _ in range(setup.nodes)]
        # For each filter its place now.
        self._placed: dict[int, Place] = {}
        # For each filter whether its subscriber is there.
        self._there = bytearray(map(workload.begins, range(len(workload.filters))))
        self._first = sum(self._there)
        self._topics = workload.topics
        self._unsealed: list[list[tuple[Published, Ticket]]] = [[] for _ in range(setup.nodes)]
        # For each peer its lives that others took for dead, with the tick and the time of the first
        # to do so.
        self._dead: dict[str, dict[int, tuple[int, int]]] = {}
        # The tick at which the step under way began.
        self._step = 0
        self._consumer = duration(setup.consumer)

    # ------------------------------------------------------- what users do

    def begin(self) -> None:
        nodes = self.world.nodes
        for number, topic in enumerate(self._topics):
            self._advertise(nodes[number % len(nodes)], topic)
        for filter in range(len(self.workload.filters)):
            if self._there[filter]:
                self.world.clock.push(self.world.clock.now, self._subscribe, filter, 0)
        if not self._first:
            self._start_publishing()

    def _advertise(self, node: Node, *topics: tuple[str, str]) -> None:
        core = self._core(node)
        if core is not None:
            for topic, schema in topics:
                core.advertise(topic, schema, self.world.clock.now)
            self.world.command(node)

    def _core(self, node: Node) -> Core | None:
        return None if node.paused else cast("Core | None", node.machine)

    def _subscribe(self, filter: int, tries: int, _z: None) -> None:
        node = self.world.nodes[filter % len(self.world.nodes)]
        core, clock = self._core(node), self.world.clock
        if filter in self._placed or node.machine is None or not self._there[filter]:
            # Another call was faster, the restart will see to it, or the subscriber has gone.
            return
        place = Place(filter, node.index, self.history.next(), clock.now)
        try:
            text, route = self.workload.filters[filter], self.setup.route_of(filter)
            topic, _ = self._topics[self.workload.topic_of_filter(filter)]
            number = core.subscribe(topic, text, clock.now, route=route) if core else None
        except TopicError:
            number = None
        if number is None:
            if tries < RETRIES_MAX:
                clock.push(clock.now + SUBSCRIBE_RETRY, self._subscribe, filter, tries + 1)
            return
        place.number = number
        self.history.add_place(place)
        self._live[node.index][number] = self._placed[filter] = place
        self.world.command(node)
        assert core is not None
        self._entered(node, core)

    def _entered(self, node: Node, core: Core) -> None:
        """Subscriptions are in force. From here on events are due."""
        for number in core.entered:
            place = self._live[node.index].get(number)
            if place is not None:
                place.returned, place.returned_us = self.history.next(), self.world.clock.now
        core.entered.clear()
        placed = self._placed.values()
        if (
            self.started_at is None
            and len(placed) == self._first
            and all(p.returned for p in placed)
        ):
            self._start_publishing()

    def _lapsed(self, node: Node, core: Core) -> None:
        """Others took this node for dead.

        The promises to its subscriptions ended with the first such verdict. Publishers may have
        heard of it long before this node. The promises begin anew when the subscriptions are in
        force.
        """
        lives = self._dead.get(hex_peer(node.peer))
        first = lives[max(lives)] if lives else (self.history.next(), self.world.clock.now)
        for number in core.lapsed:
            place = self._live[node.index].get(number)
            if place is not None:
                self.world.network.count("lapsed")
                self._end(place, first)
                again = Place(place.filter, node.index, place.began, place.began_us)
                again.number, again.got = number, place.got
                self.history.add_place(again)
                self._live[node.index][number] = self._placed[place.filter] = again
        core.lapsed.clear()

    def _start_publishing(self) -> None:
        config, clock = self.setup, self.world.clock
        start = self.started_at = clock.now + LEAD_IN
        interval = duration(config.interval)
        for event, at in enumerate(self.workload.times):
            self.over_at = max(self.over_at, start + at)
            clock.push(
                start + at, self._publish, range(event, event + 1), self.below(config.nodes), 0
            )
        for number, first in enumerate(
            range(0, len(self.workload.events) if not self.workload.times else 0, config.burst)
        ):
            self.over_at = start + number * interval
            last = min(first + config.burst, len(self.workload.events))
            clock.push(self.over_at, self._publish, range(first, last), self.below(config.nodes), 0)
        self._plan_stays(start)
        span = self.over_at - start
        for _ in range(config.churn if self.workload.filters else 0):
            clock.push(
                start + self.below(span + 1), self._leave, self.below(len(self.workload.filters))
            )
        for filter in range(len(self.workload.filters)) if config.route == "wander" else ():
            for _ in range(MOVES):
                clock.push(
                    start + self.below(span + 1),
                    self._move,
                    filter,
                    MOVING[self.below(len(MOVING))],
                )
        self.over_at = max(self.over_at, self.schedule_faults(start))
        if config.stop:
            stop = start + duration(config.stop)
            clock.call(stop, self.calm)

    def _plan_stays(self, start: int) -> None:
        clock = self.world.clock
        for filter, stays in enumerate(self.workload.stays or ()):
            # In the order of time, because stays that end and begin in one microsecond do so in
            # this order.
            for stay in stays:
                if stay.up > 0:
                    clock.push(start + stay.up, self._come, filter)
                if stay.down is not None:
                    clock.push(start + stay.down, self._go, filter)
                self.over_at = max(self.over_at, start + max(stay.up, stay.down or 0))

    def _come(self, filter: int, _y: None, _z: None) -> None:
        self.world.network.count("came")
        self._there[filter] = 1
        self._subscribe(filter, 0, None)

    def _go(self, filter: int, _y: None, _z: None) -> None:
        self.world.network.count("went")
        self._there[filter] = 0
        self._unsubscribe(filter, self._placed.get(filter), None)

    def _unsubscribe(self, filter: int, place: Place | None, _z: None) -> None:
        """The subscriber of a filter has gone.

        A node that stands still hears of it when it goes on. One that is down has no subscriptions.
        """
        if place is None or self._placed.get(filter) is not place or self._there[filter]:
            return
        node, clock = self.world.nodes[place.node], self.world.clock
        core = self._core(node)
        if core is None:
            clock.push(clock.now + PUBLISH_RETRY, self._unsubscribe, filter, place)
            return
        core.unsubscribe(place.number, clock.now)
        self._end(place)
        self.world.command(node)

    def _publish(self, events: range, wished: int, tries: int) -> None:
        """The wished node publishes. If it is down, the next one that is not down does."""
        clock, nodes = self.world.clock, self.world.nodes
        node = next(
            (n for n in nodes[wished:] + nodes[:wished] if n.machine is not None and not n.paused),
            None,
        )
        core = self._core(node) if node is not None else None
        done = 0
        if node is not None and core is not None:
            for index in events:
                event = Published(index, node.index, self.history.next(), clock.now)
                try:
                    topic, _ = self._topics[self.workload.topic_of_event(index)]
                    ticket = core.publish(topic, self.workload.events[index], clock.now)
                except (WindowFullError, TopicError):
                    self.world.network.count("publish waited")
                    break
                self.history.events.append(event)
                self._unsealed[node.index].append((event, ticket))
                done += 1
            self.world.command(node)
        self.published += done
        if done < len(events) and tries < RETRIES_MAX:
            clock.push(clock.now + PUBLISH_RETRY, self._publish, events[done:], wished, tries + 1)

    def _leave(self, filter: int, _y: None, _z: None) -> None:
        place = self._placed.get(filter)
        node = self.world.nodes[filter % len(self.world.nodes)]
        core, clock = self._core(node), self.world.clock
        if place is None or core is None:
            return
        self.world.network.count("churn")
        core.unsubscribe(place.number, clock.now)
        self._end(place)
        self.world.command(node)
        clock.push(clock.now + self.below(500_000), self._subscribe, filter, 0)

    def _move(self, filter: int, route: Route, _z: None) -> None:
        """Choose another route, if the subscription is in force and not on its way already."""
        place = self._placed.get(filter)
        node = self.world.nodes[filter % len(self.world.nodes)]
        core = self._core(node)
        if self.setup.is_unreached(node.index):
            # The node has no choice.
            return
        if (
            place is not None
            and core is not None
            and core.move(place.number, route, self.world.clock.now)
        ):
            self.world.network.count("moves")
            self.world.command(node)

    def _end(self, place: Place, at: tuple[int, int] | None = None) -> None:
        """``at`` is the tick and the time, if not now."""
        place.ended, place.ended_us = (
            (self.history.next(), self.world.clock.now) if at is None else at
        )
        self._gone[place.node][place.number] = self._live[place.node].pop(place.number)
        del self._placed[place.filter]

    # ------------------------------------------------------ what users see

    def called(self, node: Node) -> None:
        self._step = self.history.next()
        unsealed = self._unsealed[node.index]
        if unsealed:
            self._seal(node, unsealed)
        core = cast(Core, node.machine)
        if core.lapsed:
            self._lapsed(node, core)
        if core.entered:
            self._entered(node, core)
        changed = core.changed
        if changed:
            for publication in changed:
                self._look(node, publication)
            changed.clear()

    def _seal(self, node: Node, unsealed: list[tuple[Published, Ticket]]) -> None:
        open: list[tuple[Published, Ticket]] = []
        for event, ticket in unsealed:
            id = ticket.id
            if id is None:
                open.append((event, ticket))
                continue
            event.id = (node.peer, *id)
            self.history.by_id[event.id] = event
            newest = self.history.newest
            newest[node.peer, id[0]] = max(id[1], newest.get((node.peer, id[0]), 0))
            if ticket.publication.accepted:
                event.accepted = self.history.next()
        self._unsealed[node.index] = open

    def _look(self, node: Node, publication: Publication) -> None:
        for offset in range(publication.count):
            event = self.history.by_id.get(
                (node.peer, publication.incarnation, publication.first + offset)
            )
            if event is None:
                self.notes["unknown receipt"] = self.notes.get("unknown receipt", 0) + 1
                continue
            if publication.refused:
                # The publisher was told at once.
                event.lost = event.refused = True
                continue
            if event.accepted is None:
                event.accepted = self.history.next()
            if publication.matched is not None:
                for completed in self.book.hooks["completed"]:
                    completed(self.history, event, node.life)
                event.closed, event.life = self.history.next(), node.life
                if event.completed is None:
                    event.completed, event.matched = event.closed, publication.took(offset)
                    event.dropped = publication.lost(offset)
                    event.completed_us = self.world.clock.now

    def delivered(self, node: Node, effect: Deliver) -> None:
        book, now = self.book, self.world.clock.now
        tick, number = self.history.next(), effect.subscription
        place = self._live[node.index].get(number)
        was = place or self._gone[node.index].get(number)
        handling = self.world.handling
        hops = hops_of(handling.message) if handling is not None else 0
        for given in effect.events:
            id = (given.publisher, given.incarnation, given.sequence)
            self.world.digest.update(_HANDED.pack(now, node.index, number, *id))
            book.handed(node, number, id, given.values, place, was, now, hops, tick)
        if place is not None:
            self._take(node, place, len(effect.events))

    def _take(self, node: Node, place: Place, count: int) -> None:
        if not self._consumer:
            cast(Core, node.machine).taken(place.number, count, self.world.clock.now)
        else:
            life = node.life
            self.world.clock.call(
                self.world.clock.now + self._consumer, lambda: self._taken(node, life, place, count)
            )

    def _taken(self, node: Node, life: int, place: Place, count: int) -> None:
        core = self._core(node)
        if life != node.life or place.ended is not None:
            return
        # The consumer stands still with its node.
        if core is None:
            self.world.clock.call(
                self.world.clock.now + PUBLISH_RETRY, lambda: self._taken(node, life, place, count)
            )
            return
        core.taken(place.number, count, self.world.clock.now)
        self.world.command(node)

    def noted(self, node: Node, record: Record) -> None:
        super().noted(node, record)
        if type(record) is Member and record.change == "failed":
            # The node tells this after the receipts that the verdict completed, in the same step.
            # But the verdict came before them.
            self._dead.setdefault(record.peer, {}).setdefault(
                record.incarnation, (self._step, self.world.clock.now)
            )
        if type(record) is Discarded and not record.reported:
            id = (int(record.publisher, 16), record.incarnation, record.sequence)
            event, number = self.history.by_id.get(id), record.subscription
            where = self._live[node.index].get(number) or self._gone[node.index].get(number)
            if event is not None and where is not None:
                where.discarded[event.index] = None
        if type(record) is Unsubscribed and record.reason != "asked":
            place = self._live[node.index].get(record.subscription)
            if place is not None:
                self._end(place)
                self.world.clock.push(
                    self.world.clock.now + SUBSCRIBE_RETRY, self._subscribe, place.filter, 0
                )

    def sent(self, node: Node, packet: Packet) -> None:
        if not packet.ids:
            # It is a question about entries, and not an event.
            return
        by_id = self.history.by_id
        known = [by_id[id] for id in packet.ids if id in by_id]
        packet.events = tuple([event.index for event in known])
        if packet.ids[0][0] == node.peer:
            for event in known:
                if event.closed is not None and event.life != node.life:
                    # The publisher had no time to forget this event before it crashed.
                    event.closed = None
        for sent in self.book.hooks["sent"]:
            sent(self.history, node, packet)

    def arrived(self, node: Node, packet: Packet) -> None:
        if not packet.ids:
            return
        events, planes = packet.events, self._met[node.index]
        met = planes.setdefault(plane_of(packet.message), bytearray(len(self.workload.events)))
        if events and all(met[event] for event in events):
            # It is one more copy.
            return
        seen = self.seen[node.index]
        for event in events:
            met[event] = seen[event] = 1
        for arrived in self.book.hooks["arrived"]:
            arrived(self.history, node, packet)

    def started(self, node: Node) -> None:
        if node.incarnation == 0:
            return
        self._met[node.index] = {}
        clock = self.world.clock
        clock.call(clock.now, lambda: self._advertise(node, *self._topics))
        for filter in range(node.index, len(self.workload.filters), len(self.world.nodes)):
            clock.push(clock.now, self._subscribe, filter, 0)

    def crashed(self, node: Node) -> None:
        for place in list(self._live[node.index].values()):
            self._end(place)
            self.world.record(node, Unsubscribed(place.number, "crashed"))
        # The next life gives the same numbers again.
        self._gone[node.index].clear()
        self._unsealed[node.index].clear()
        for event in self.history.events:
            if (
                event.node == node.index
                and event.completed is None
                and not (self.setup.durable and event.accepted)
            ):
                event.lost = True

    # -------------------------------------------------------------- when it ends

    def unquiet(self) -> list[str]:
        """The reasons why the run is not over. The list is empty when everything has settled."""
        if self.started_at is None:
            missing = self._first - sum(
                place.returned is not None for place in self._placed.values()
            )
            return [
                (
                    f"{missing} of {self._first} subscriptions are not in force: is the topic "
                    "known everywhere?"
                )
            ]
        if self.world.clock.now < self.over_at:
            return ["faults or publications are still to come"]
        reasons = []
        if self.published < len(self.workload.events):
            reasons.append(
                f"{len(self.workload.events) - self.published} events could not be published"
            )
        nodes = self.world.nodes
        for filter in range(len(self.workload.filters)):
            placed, down = self._placed.get(filter), nodes[filter % len(nodes)].machine is None
            if self._there[filter] and (placed is None or placed.returned is None) and not down:
                reasons.append(f"filter {filter} is not subscribed")
            if not self._there[filter] and placed is not None and not down:
                reasons.append(
                    f"filter {filter} is still subscribed, though its subscriber has gone"
                )
        for event in self.history.events:
            if event.completed is None and not event.lost:
                if nodes[event.node].machine is None:
                    # All faults are over, so the publisher stays down.
                    event.lost = True
                else:
                    reasons.append(
                        f"event {event.index} of node {event.node} has no complete receipt"
                    )
            elif (
                event.completed is not None
                and event.closed is None
                and nodes[event.node].machine is not None
            ):
                # The event was complete once, but its publisher crashed before it could forget it,
                # and goes through it all again.
                reasons.append(
                    f"event {event.index} of node {event.node} is published again and has no "
                    "receipt for that yet"
                )
        if not self.world.network.settled():
            reasons.append("a link that is whole has an end that does not know")
        if self.world.network.in_flight_events:
            reasons.append(f"{self.world.network.in_flight_events} event messages are on their way")
        return reasons
