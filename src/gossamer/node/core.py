"""One node, sans-IO: topics, subscriptions, publications and their receipts, over several planes.

``NodeCore`` is a machine made of machines. ``Topics`` spreads advertisements. ``Interest`` keeps
the members, their links, and the topics that each member wants by each route. Behind each route
(planes.py) is a plane that carries batches. The node publishes a batch by every route that is in
use on its topic. The receipt is complete when all of them have reported, and ``matched`` is their
sum, because a subscription has one route. The batches that a plane hands over are matched against
this node's own subscriptions (local.py).

A subscription is *in force* when every later publication finds it. For that its plane has laid it,
and every live node knows of its route (a barrier of the interest plane). A node that joins
publishes nothing before it knows all that the fabric knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from gossamer.filters import Filter, Schema
from gossamer.machine import (
    SECOND,
    Effect,
    Keep,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
    Store,
    Token,
)
from gossamer.node.follow import Wish
from gossamer.node.follows import Follows
from gossamer.node.gate import Gate
from gossamer.node.history import Archive, HistoryMessage
from gossamer.node.local import Local, LocalSubscription, SlowPolicy
from gossamer.node.missed import MissedMessage
from gossamer.node.outbox import Limits, Outbox, Publication, Ticket, WindowFullError
from gossamer.node.planes import DirectPlane, FloodPlane, Route, RouteError
from gossamer.node.retention import SEQUENCE_MAX, Keeping, Retained, Retention
from gossamer.node.rights import Rights
from gossamer.node.routing import Routing
from gossamer.node.skiplist import SkipListPlane
from gossamer.node.topics import Adverts, AdvertsTaken, TopicError, Topics
from gossamer.node.tree import TreePlane
from gossamer.overlay.batch import NEIGHBOURS_MAX, Batch, Busy, Leave, Report
from gossamer.overlay.delivery.engine import Arrive, Complete
from gossamer.overlay.direct.messages import DirectMessage, Portion
from gossamer.overlay.flood import Flood, FloodConfig
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.core import Interest, InterestError
from gossamer.overlay.interest.messages import InterestMessage
from gossamer.overlay.proof import UNSIGNED, Proof
from gossamer.overlay.refused import Refused
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.messages import Carry, SkiplistMessage
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.messages import Carry as TreeCarry
from gossamer.overlay.tree.messages import TreeMessage
from gossamer.trace import (
    Completed,
    Dropped,
    Published,
    Rejected,
    Restored,
    Subscribing,
    Unsubscribed,
    hex_peer,
    plain,
)

INCARNATION_KEY = "incarnation"
PASSES_MAX = 8
_EVENTS: dict[type[Message], Route] = {
    Batch: Route.FLOOD,
    Portion: Route.DIRECT,
    Carry: Route.SKIPLIST,
    TreeCarry: Route.TREE,
}
"""The routes of event messages. All other event messages tell of the past."""

# The reason of the end of a durable subscription.
DISK_FAILED = "the data directory failed"
# The most events in open batches of all topics together, because the window counts only sealed
# events.
OPEN_MAX = 4096


class NodeConfig(Limits, frozen=True, kw_only=True):
    """Every limit of a node."""

    # The events that may wait for the consumer of one subscription.
    buffer: int = 16_384
    # Seconds that a full buffer holds publishers back before the subscription is cut off.
    block: float = 5.0
    # The subscriptions of this node.
    subscriptions: int = 1_000_000
    # The events that may wait on disk for one durable subscription to acknowledge them.
    durable: int = 262_144
    # The bytes of its own events that this node retains, all topics together.
    retained: int = 1 << 30
    # The most that this node retains of a topic whose retention another node has advertised, such
    # as "1d, 64MB". Without it, this node does as it is told.
    retention_max: str = ""
    # Whether to write a Note for each publication, hand-over and receipt.
    trace: bool = False
    # Parameters of the machines that carry events, for experiments and tests. Their times are in
    # microseconds, as the machines count; users have no need of them.
    flood: FloodConfig = FloodConfig()
    # None: another part opens links, there is no view, and the only route is flood.
    interest: InterestConfig | None = None
    # The lease is the time that a subscription may wait where events found no entry.
    skiplist: SkipConfig = SkipConfig(lease=2 * SECOND)
    tree: TreeConfig = TreeConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (
            ("trace", bool),
            ("retention_max", str),
            ("flood", FloodConfig),
            ("interest", InterestConfig | None),
            ("skiplist", SkipConfig),
            ("tree", TreeConfig),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind):
                wanted = getattr(kind, "__name__", str(kind))
                raise ValueError(f"{name} is {value!r}; it must be of type {wanted}")
        if self.retention_max:
            Retention.parse(self.retention_max)


class NodeCore:
    """The machine that a driver runs."""

    def __init__(
        self,
        peer: Peer,
        *,
        incarnation: int,
        rng: Random,
        config: NodeConfig | None = None,
        restored: Mapping[str, bytes] | None = None,
        durable: bool = False,
        ticket: Callable[[Publication, int], Ticket] = Ticket,
        address: str = "",
        rights: Rights | None = None,
        proof: Proof = UNSIGNED,
        unix: int = 0,
    ) -> None:
        """``unix`` is the time of day at ``now`` = 0, in microseconds."""
        self.peer, self.incarnation, self.rng, self.proof = peer, incarnation, rng, proof
        self.config = config = config or NodeConfig()
        self._out: list[Effect] = []
        self.topics = Topics(
            peer, Retention.parse(config.retention_max) if config.retention_max else None
        )
        self._out += self.topics.restore(restored or {})
        self.retained = Retained(durable=durable, total=config.retained, life=incarnation)
        self.outbox = Outbox(peer, incarnation, config, durable=durable, retained=self.retained)
        self.keeping = Keeping(self.outbox, self.topics.retentions, self._out, unix)
        self.interest: Interest | None = None
        if config.interest is not None:
            how: dict[str, Any] = {
                "incarnation": incarnation,
                "address": address,
                "durable": durable,
                "restored": restored,
            }
            self.interest = Interest(peer, rng=rng, config=config.interest, proof=proof, **how)
        self.local = Local(
            self.topics.schemas, self._out, buffer=config.buffer, tracing=config.trace,
            block=Micros(round(config.block * SECOND)),
            durable=config.durable, conflicts=self.topics.conflicts,
        )  # fmt: skip
        self.routing = Routing(
            self.interest, self.local, self._out, rng, self._complete, tracing=config.trace
        )
        self.flood = self.routing.flood = Flood(
            peer, config.flood, *self._owner(Route.FLOOD),
            self.routing.left_out, self._out, restarted=incarnation > 1,
        )  # fmt: skip
        if self.interest is not None:
            self.flood.doubts = self.interest.suspects.__contains__
        self.routing.debts.lacks = self.flood.engine.lacks
        self.routing.planes[Route.FLOOD] = FloodPlane(self.flood)
        self.follows = Follows(
            peer,
            Archive(
                self.outbox, self.topics.schemas, self.topics.retentions, self.topics.conflicts
            ),
            self.interest, self.local, self._out,
            token=self.outbox.token, use=self.routing.use, durable=durable, tracing=config.trace,
            restored=restored or {},
        )  # fmt: skip
        self.routing.heard, self.routing.missed = self.follows.changed, self.follows.missed
        self.follows.owes = self.routing.debts.__contains__
        self.routing.voided = self.outbox.voided
        self.routing.conflicts, self.routing.life = self.topics.conflicts, incarnation
        self.tree: TreePlane | None = None
        self.skiplist: SkipListPlane | None = None
        self.direct: DirectPlane | None = None
        # Publications that were accepted or completed since the driver last looked. The driver
        # clears it.
        self.changed: list[Publication] = []
        # Subscriptions that have come into force, subscriptions that were in force and are not
        # because others had taken this node for dead, and changes of the view. The driver clears
        # these lists.
        self.entered, self.lapsed = self.routing.entered, self.routing.lapsed
        self.view_changes = self.routing.view_changes
        self.subscriptions = self.local.subscriptions
        self._ticket, self._tracing = ticket, config.trace
        self._has_completed = False
        # An event that is estimated to be larger than this is measured.
        self._heavy = config.event_bytes // 4
        self._batch_events, self._batch_bytes = config.batch_events, config.batch_bytes
        # Refused messages that tell of the past.
        self._refused = Refused()
        # The version of the rights by which topics were judged last.
        self._judged = -1
        self.rights = self.local.rights = self.routing.rights = rights
        # Only where there are keys.
        self.gate: Gate | None = None
        self._known, self._numbers = self.local.topics, 0
        self._conflicts = self.topics.conflicts
        self._handlers: dict[type[Message], Callable[[Peer, Any, Micros], None]] = {
            Adverts: self._receive_topics, AdvertsTaken: self._receive_topics
        }  # fmt: skip
        for kind in (Batch, Report, Busy, Leave):
            self._handlers[kind] = partial(self.routing.receive, Route.FLOOD)
        for kind in HistoryMessage.__args__:
            self._handlers[kind] = self.follows.receive
        for kind in MissedMessage.__args__:
            self._handlers[kind] = self.routing.hear
        if self.interest is not None:
            self._compose(self.interest)
            if rights is not None:
                assert self.skiplist is not None
                assert self.direct is not None
                assert self.tree is not None
                self.interest.view.proves, self.skiplist.rights = rights.learn, rights
                self.direct.proven.rights = rights
                self.interest.certify(rights.me.certificate, Micros(0))
                self.topics.permits, self.topics.proof = rights.may_advertise, proof
                self.topics.certificate_of = rights.certificate
                self.gate = Gate(rights, proof, self._out)
                self.flood.engine.proof = self.tree.proof = self.skiplist.proof = proof
        if durable:
            # Stores keep their order, so no publication of this incarnation is on disk without this
            # record.
            self._out.append(
                Store(self.outbox.token(), (Keep(INCARNATION_KEY, b"%d" % incarnation),))
            )
        self.retained.restore(restored or {})
        self._again = self.outbox.restore(dict(restored or {}))
        # It learns the topics of an earlier life.
        self._learn(Micros(0))
        if restored is not None:
            self._out.append(
                Note(Restored(incarnation, sum(batch.count for batch, _ in self._again)))
            )

    def _owner(self, route: Route) -> tuple[Arrive, Complete]:
        """The functions to which a route hands its batches over, and pushes its receipts."""
        return partial(self.local.arrived, route), partial(self.routing.complete, route)

    def _compose(self, interest: Interest) -> None:
        """The planes that need members."""
        links, planes = lambda: list(interest.links), self.routing.planes
        self.direct = planes[Route.DIRECT] = DirectPlane(
            interest, self.rng, self.local, *self._owner(Route.DIRECT), self.routing.left_out,
            self._out,
        )  # fmt: skip
        self.skiplist = planes[Route.SKIPLIST] = SkipListPlane(
            self.peer, self.incarnation, self.rng, self.config.skiplist, interest,
            *self._owner(Route.SKIPLIST), self.routing.say, schemas=self.topics.schemas,
            links=links,
        )  # fmt: skip
        self.tree = planes[Route.TREE] = TreePlane(
            self.config.tree, interest, *self._owner(Route.TREE), links, self._out,
        )  # fmt: skip
        for kinds, handler in (
            (InterestMessage, self._receive_interest),
            (SkiplistMessage, partial(self.routing.receive, Route.SKIPLIST)),
            (TreeMessage, partial(self.routing.receive, Route.TREE)),
            (DirectMessage, partial(self.routing.receive, Route.DIRECT)),
        ):
            for kind in kinds.__args__:
                self._handlers[kind] = handler

    # ---------------------------------------------------------------- commands

    def advertise(
        self,
        topic: str,
        schema: str | Schema,
        now: Micros,
        retention: Retention | None = None,
        *,
        replace: bool = False,
    ) -> Schema:
        """``replace``: this schema holds from now on, whatever was advertised before."""
        if self.rights is not None:
            self.rights.check("advertise", topic)
        parsed = Schema.parse(schema) if isinstance(schema, str) else schema
        self._out += self.topics.advertise(topic, parsed, now, retention, replace=replace)
        self._learn(now)
        if self.direct is not None:
            self.direct.expect(topic, now)
            self.routing.again()
        return parsed

    def subscribe(
        self,
        topic: str,
        filter: str,
        now: Micros,
        policy: SlowPolicy = SlowPolicy.BLOCK,
        source: str = "user",
        route: Route = Route.AUTO,
        group: str = "",
        wish: Wish | None = None,
    ) -> int:
        """Returns the subscription's number, which is in ``entered`` once it is in force.

        ``group``: of all subscriptions to the topic with this name, one gets each event.
        Raises TopicError for a topic that is not known here (yet), SchemaConflictError,
        FilterError, RouteError, and TapError.
        """
        if self.rights is not None:
            self.rights.check("subscribe to", topic)
        self.topics.check(topic)
        known = self.local.topic(topic)
        parsed = Filter.parse(filter, known.schema)
        if len(self.local.subscriptions) >= self.config.subscriptions:
            raise TopicError(
                f"this node has {len(self.local.subscriptions)} subscriptions already, "
                "its maximum (subscriptions)"
            )
        if route is not Route.AUTO and route not in self.routing.planes:
            raise RouteError(
                f"route {route.value!r} needs a view of the fabric, "
                "which this node does not keep (interest)"
            )
        self.routing.check(group, route, alone=bool(wish))
        subscription = LocalSubscription(
            self._numbers + 1, known, parsed, policy, source, route, group
        )
        if self.config.trace:
            # It is the user's own text: the judge of the trace must not depend on our reading of
            # it.
            about = (wish.name, wish.start, group) if wish else ("", None, group)
            self._out.append(
                Note(Subscribing(subscription.number, topic, filter.strip() or "TRUE", *about))
            )
        if wish:
            self.follows.wish(subscription, wish, self.keeping.unix + now)
        try:
            self.routing.enter(subscription, now)
        except InterestError as error:
            self.follows.removed(subscription.number)
            raise TopicError(str(error)) from None
        self._numbers += 1
        self.local.add(subscription)
        return subscription.number

    def move(self, number: int, route: Route, now: Micros) -> bool:
        """Let a subscription that is in force take another route; returns whether it sets out."""
        subscription = self.local.subscriptions[number]
        if route is Route.AUTO or route not in self.routing.planes:
            raise RouteError(f"a subscription moves to a route of its own, not to {route.value!r}")
        self.routing.check(subscription.group, route)
        self.routing.stay(subscription)
        return self.routing.move(subscription, route, now)

    def unsubscribe(self, number: int, now: Micros, reason: str = "asked") -> None:
        subscription = self.local.remove(number)
        if subscription is None:
            return
        self.routing.abandon(subscription, now)
        self._report(now)
        if self.config.trace or reason != "asked":
            self._out.append(Note(Unsubscribed(number, reason)))

    def publish(self, topic: str, event: Mapping[str, Any], now: Micros) -> Ticket:
        """Accepts an event. It leaves with the next ``wake``, together with all other events that
        are published until then.
        """
        outbox = self.outbox
        if outbox.is_full:
            raise WindowFullError(
                f"{outbox.events} events without a receipt, the most allowed (window, window_bytes)"
            )
        if self.rights is not None:
            self.rights.check("publish to", topic)
        if self._conflicts:
            self.topics.check(topic)
        known = self._known.get(topic) or self.local.topic(topic)
        row, size = known.weighed(event)
        if size > self._heavy:
            outbox.measure(topic, row)
        publication = outbox.open.get(topic)
        if publication is not None and publication.width:
            self.seal(topic, now)
            publication = None
        if publication is None:
            publication = outbox.begin(topic)
        rows = publication.rows
        ticket = self._ticket(publication, len(rows))
        rows.append(row)
        publication.size += size
        if ticket.index == 0 and not self._tracing:
            outbox.open_lane(publication, known.lane, self._ticket, self._heavy)
        if self._tracing:
            publication.traced.append(plain(known.values(row)))
        if len(rows) >= self._batch_events or publication.size >= self._batch_bytes:
            self.seal(topic, now)
        outbox.opened += 1
        if outbox.opened >= OPEN_MAX:
            self.seal_all(now)
        return ticket

    def send_open(self, now: Micros) -> list[Effect]:
        """Sends the open batches, and leaves the rest to the next ``wake``."""
        self.seal_all(now)
        return self._flush(now)

    def lookup(self, topic: str, event: Mapping[str, Any] | None, now: Micros) -> int:
        """Asks the topic's skip list which subscriptions would take an event, or which there are.
        ``skiplist.found`` will have the answer.
        """
        known = self.local.topic(topic)
        if self.skiplist is None:
            raise RouteError(
                "look-ups need a view of the fabric, which this node does not keep (interest)"
            )
        self.routing.again()
        return self.skiplist.lookup(topic, known.row(event) if event is not None else None, now)

    def taken(self, number: int, count: int, now: Micros) -> None:
        """The consumer has taken this many events."""
        self.local.taken(number, count, now)
        if self.follows.follows:
            self.follows.taken(number, now)
        if self.local.released:
            self._report(now)

    def ack(self, number: int, offset: int, now: Micros, *, through: bool = False) -> Token:
        """Acknowledges an event of a durable subscription, or all events through it.
        ``follows.done`` will have the token once that is on disk. With 0 it is on disk already.
        """
        token = self.follows.ack(number, offset, now, through=through)
        if self.local.released:
            self._report(now)
        return token

    def forget(self, name: str, now: Micros) -> None:
        """Gives up a durable subscription, with all that is stored for it."""
        self._out += self.follows.forget(name)

    def leave(self, now: Micros) -> None:
        """Tells the neighbours that this node goes for good. With a view, ``say_goodbye`` comes
        first.
        """
        links = tuple(self.flood.engine.outstanding.links)
        if links:
            # Neighbours that have all opened other links already need not wait for each other.
            alone = (
                () if self.interest is not None and self.interest.may_go else links[:NEIGHBOURS_MAX]
            )
            self._out.append(Send(links, Leave(alone)))

    def say_goodbye(self, now: Micros) -> None:
        """Lets the neighbours open other links before this node's links go. ``interest.may_go``
        says when they have.
        """
        self.routing.leave(now)
        if self.interest is not None:
            self.interest.leave(now)

    # -------------------------------------------------------- what the driver reads

    def blocked(self) -> list[int]:
        """Subscriptions that hold publishers back now."""
        return list(self.local.blocked)

    @property
    def window_is_open(self) -> bool:
        return not self.outbox.is_full

    # ------------------------------------------------------------------ inputs

    @property
    def deadline(self) -> Micros:
        if self._out or self.outbox.open or self._again:
            return Micros(0)
        deadline = min(self.routing.deadline, self.keeping.deadline, self.local.unproved_at)
        if self.interest is not None:
            deadline = min(deadline, self.interest.deadline)
        if self.local.blocked:
            deadline = min(deadline, self.local.deadline)
        if self.follows.follows:
            deadline = min(deadline, self.follows.deadline)
        if self.gate is not None:
            deadline = min(deadline, self.gate.deadline)
        return deadline

    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        handler = self._handlers.get(type(message))
        refusal = (
            self.rights.judge(sender, message, self._name) if self.rights is not None else None
        )
        if refusal is not None:
            if refusal:
                self._out.append(Note(Rejected(hex_peer(sender), refusal)))
        elif handler is None:
            self._out.append(
                Note(Rejected(hex_peer(sender), f"unexpected {type(message).__name__}"))
            )
        else:
            if self.interest is not None and type(message).is_event:
                # Signs of life may wait behind it, where the link is slow.
                self.interest.heard(sender, now)
            if self.gate is None:
                handler(sender, message, now)
            else:
                self._pass_gate(self.gate, sender, message, now)
        return self._flush(now)

    def wake(self, now: Micros) -> list[Effect]:
        if self._again:
            again, self._again = self._again, []
            for batch, _ in again:
                self.routing.publish(batch, now)
        self.seal_all(now)
        self._prove(now)
        if self.local.unproved_at <= now:
            self.local.prove(now)
            self._report(now)
        # This comes before the planes act, because they hear of it.
        for subscription in self.local.overdue(now):
            self._out.append(
                Note(
                    Dropped(
                        "subscription",
                        subscription.backlog,
                        "slow: its events were not taken in time",
                    )
                )
            )
            self.unsubscribe(subscription.number, now, "slow")
        # The planes act on changes of the view, and the view acts on their commands.
        for _ in range(PASSES_MAX):
            self.routing.wake(now)
            self._settled(now)
            if self.interest is None or (
                self.interest.deadline > now and self.routing.deadline > now
            ):
                break
            self.routing.interest_says(self.interest.wake(now), now)
        self.keeping.wake(now)
        return self._flush(now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        self._out += self._refused.link(peer, state)
        self._prove(now)
        self._out += self.topics.link(peer, state, now)
        if self.interest is not None:
            self.routing.interest_says(self.interest.link(peer, state, now), now)
        self.routing.link(peer, state, now)
        self.follows.link(peer, state, now)
        return self._flush(now)

    def refused(self, peer: Peer, message: Message, now: Micros) -> list[Effect]:
        route = _EVENTS.get(type(message))
        if route is None:
            self._out += self._refused.keep(peer, message)
        else:
            self.routing.planes[route].refused(peer, message, now)
            self.routing.again()
        return self._flush(now)

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        # Other tokens are those of the interest plane, which waits for none.
        ready = self.outbox.stored(token) if token > 0 else None
        if ready is not None:
            batch, publication = ready
            self.routing.publish(batch, now)
            if publication.matched is None:
                # It is accepted; if it is complete as well, that has been told.
                self.changed.append(publication)
        elif token > 0 and self.topics.saved(token):
            pass
        elif token > 0 and self.follows.stored(token):
            self.local.stored(token)
            self._report(now)
        return self._flush(now)

    def unstored(self, tokens: Sequence[Token], now: Micros) -> list[Effect]:
        """The disk has failed.

        Events that were to be published are refused. Durable subscriptions end, and events that
        they could not store are reported as not taken. Everything else that this node does goes on.
        """
        # A Store that the driver has not taken yet may build on the failed ones, so it goes with
        # them.
        later = [one.token for one in self._out if type(one) is Store and one.is_awaited]
        self._out[:] = [one for one in self._out if type(one) is not Store or not one.is_awaited]
        tokens = [*tokens, *later]
        self.changed += self.outbox.unstored(tokens)
        lost, ended = self.follows.unstored(tokens)
        for token in lost:
            self.local.unstored(token)
        for number in ended:
            backlog = self.local.subscriptions[number].backlog
            self._out.append(Note(Dropped("subscription", backlog, DISK_FAILED)))
            self.unsubscribe(number, now, DISK_FAILED)
        self._report(now)
        return self._flush(now)

    # ------------------------------------------------------------------ inside

    def _receive_topics(self, sender: Peer, message: Any, now: Micros) -> None:
        self._out += self.topics.receive(sender, message, now)
        self._learn(now)

    def vouch(self) -> None:
        """Certificates were revoked, perhaps those of advertisers."""
        self._out += self.topics.vouch()

    def _receive_interest(self, sender: Peer, message: Any, now: Micros) -> None:
        assert self.interest is not None
        self.routing.interest_says(self.interest.receive(sender, message, now), now)
        self._prove(now)

    def _prove(self, now: Micros) -> None:
        """Takes up what waited for the proof of a node, if more nodes are proved by now."""
        rights = self.rights
        if rights is None:
            return
        if rights.version != self._judged:
            self._judged = rights.version
            if self.gate is not None:
                for one in self.gate.proved():
                    self._pass_gate(self.gate, one.sender, one.message, now)
        if self.gate is not None and self.gate.deadline <= now:
            for one in self.gate.expired(now):
                self._decline(one.sender, one.message, now)

    def _pass_gate(self, gate: Gate, sender: Peer, message: Message, now: Micros) -> None:
        admitted = gate.admits(sender, message, now)
        if admitted:
            self._handlers[type(message)](sender, message, now)
        elif admitted is None:
            self._decline(sender, message, now)

    def _decline(self, sender: Peer, message: Message, now: Micros) -> None:
        """Tells the sender of a relayed message that this node does not take it."""
        self.routing.planes[_EVENTS[type(message)]].decline(sender, message, now)
        self.routing.again()

    def _name(self, topic: int) -> str | None:
        """A topic's name by its hash."""
        return self.skiplist.name(topic.to_bytes(8, "big")) if self.skiplist is not None else None

    def _learn(self, now: Micros) -> None:
        """Tells the parts that look at content of new topics and schemas, and stores the news."""
        changed, self.topics.changed = self.topics.changed, []
        replaced, self.topics.replaced = self.topics.replaced, []
        self.outbox.close_lanes()
        for topic in replaced:
            self._end(topic, now)
        records = self.topics.records()
        if records and self.outbox.durable:
            token = self.outbox.token()
            self.topics.storing(token)
            self._out.append(Store(token, records))
        for topic in changed:
            self.local.learn(topic)
            if self.tree is not None and self.skiplist is not None:
                self.tree.learn(topic, self.topics.schemas[topic])
                self.skiplist.learn(topic)
        self.routing.again()
        self.keeping.learn()

    def _end(self, topic: str, now: Micros) -> None:
        """A topic's schema was replaced by one that cannot read its events.

        What this node has of the events ends here, and whoever waits for them is told. The disk
        forgets them before it hears of the replacement, so a crash in between makes nothing
        misread.
        """
        reason = f"the schema of topic {topic!r} was replaced"
        for subscription in list(self.local.subscriptions.values()):
            if subscription.topic.name == topic:
                self.unsubscribe(subscription.number, now, "replaced")
        if topic in self.outbox.open:
            self.outbox.voided[topic] = (self.incarnation, SEQUENCE_MAX)
            self.seal(topic, now)
        self.follows.void(topic, reason)
        unsettled, records = self.outbox.void(topic)
        if unsettled and self.outbox.durable:
            about = f"{reason}: events without a receipt are not published again after a restart"
            self._out.append(Note(Dropped("event", unsettled, about)))
        gone = self.retained.void(topic, self.outbox.voided[topic], self.keeping.unix + now)
        for group in (*gone, records) if self.outbox.durable else ():
            if group:
                self._out.append(Store(self.outbox.token(), tuple(group)))

    def seal(self, topic: str, now: Micros) -> None:
        rows = self.outbox.open[topic].rows
        packed = (self._known.get(topic) or self.local.topic(topic)).packed
        keeping, retain = self.keeping, topic in self.keeping.topics
        if retain:
            keeping.make_room(topic, now)
        publication, batch, effects = self.outbox.seal(topic, keeping.unix + now, retain, packed)
        for sequence, values in enumerate(publication.traced, publication.first):
            self._out.append(Note(Published(topic, sequence, self.incarnation, values)))
        publication.traced = []
        self._out += effects
        if batch is not None:
            self.routing.publish(batch, now, rows or None)
        if publication.width:
            packed.disown()

    def seal_all(self, now: Micros) -> None:
        for topic in list(self.outbox.open):
            self.seal(topic, now)
        self.outbox.opened = 0

    def _report(self, now: Micros) -> None:
        self.routing.report(now)

    def _flush(self, now: Micros) -> list[Effect]:
        if self.follows.follows:
            self.follows.flush(now)
            if self.local.released:
                self._report(now)
        if self._has_completed:
            self._settled(now)
        out = self._out.copy()
        self._out.clear()
        return out

    def _complete(self, incarnation: int, first: int, counts: tuple[int, ...]) -> None:
        """A receipt is complete."""
        publication, stores = self.outbox.complete(incarnation, first, counts)
        self._out += stores
        self.changed.append(publication)
        self._has_completed = True
        if self._tracing:
            for index in range(publication.count):
                took, lost = publication.took(index), publication.lost(index)
                self._out.append(Note(Completed(first + index, incarnation, took, lost)))

    def _settled(self, now: Micros) -> None:
        """Another node may have waited for receipts of this node, and they are complete now."""
        has_completed, self._has_completed = self._has_completed, False
        if has_completed and self.interest is not None:
            told = self.interest.settled(now)
            if told or self.interest.barriers_done:
                self.routing.interest_says(told, now)


__all__ = [
    "LocalSubscription",
    "NodeConfig",
    "NodeCore",
    "Route",
    "RouteError",
    "SlowPolicy",
    "Ticket",
    "WindowFullError",
]
