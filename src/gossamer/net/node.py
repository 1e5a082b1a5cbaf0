"""``gossamer.Node``: the fabric for Python programs, on asyncio.

    async with gossamer.Node(join=["127.0.0.1:7400"]) as node:
        await node.advertise("weather", "country STRING, city STRING, temp INT")
        async with node.subscribe("weather", "country = 'CH' AND temp > 30") as events:
            async for event in events: ...
        # The event is accepted when publish returns, and complete when the receipt does.
        receipt = await node.publish("weather", {"country": "CH", "city": "Bern", "temp": 31})
        done = await receipt
        done.matched

It is not thread-safe: use a node from the event loop that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from msgspec import structs

from gossamer import trace
from gossamer.filters import Filter
from gossamer.machine import Deliver, LinkState, Peer
from gossamer.net.answers import answer
from gossamer.net.arguments import check_kinds, check_timeout, policy_of, route_of, start_of
from gossamer.net.connection import Connection
from gossamer.net.dialler import AddressError, Dialler, is_loopback, parse_address, reason_of
from gossamer.net.disk import Disk
from gossamer.net.driver import Driver, gone
from gossamer.net.errors import (
    NOT_STARTED,
    BarrierError,
    IdentityError,
    JoinError,
    NodeError,
    SlowSubscriberError,
    StorageError,
    UndeliveredError,
    failed_disk,
)
from gossamer.net.journal import Journal
from gossamer.net.keys import Keys
from gossamer.net.leaving import reported, said_goodbye
from gossamer.net.limits import PeerLimits
from gossamer.net.publishing import Done, Receipt, publish, publish_batch
from gossamer.net.source import Handle, Source
from gossamer.net.spin import SPIN_MOST, SPIN_SECONDS
from gossamer.net.status import describe, describe_found, describe_tree
from gossamer.net.subscription import Subscription, subscribe_many
from gossamer.net.tracefile import TraceFile
from gossamer.net.view import Changes, TopicView
from gossamer.net.waiting import WaitingCalls
from gossamer.node import NodeConfig, NodeCore, Route, SlowPolicy
from gossamer.node.bounds import check_whole
from gossamer.node.core import INCARNATION_KEY
from gossamer.node.follow import Wish
from gossamer.node.outbox import Outbox
from gossamer.node.retention import Retention
from gossamer.node.rights import Rights
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.proof import UNSIGNED, Proof

JOIN_SECONDS = 10.0
TOPIC_SECONDS = 10.0
# More than the grace for a neighbour whose link broke.
DRAIN_SECONDS = 10.0
# The time that advertise waits for the neighbours to confirm.
CONFIRM_SECONDS = 5.0


class Node:
    """A member of the fabric. Use it as ``async with Node(...) as node``."""

    def __init__(
        self,
        *,
        listen: str = "127.0.0.1:0",
        join: Iterable[str] = (),
        data_dir: str | Path | None = None,
        trace_dir: str | Path | None = None,
        k: int = 6,
        fabric: str = "",
        config: NodeConfig | None = None,
        insecure: bool = False,
        keys: str | Path | None = None,
        limits: PeerLimits | None = None,
        join_timeout: float = JOIN_SECONDS,
        join_required: bool = True,
        public_address: str = "",
        spin: float = SPIN_SECONDS,
        shared_memory: bool = True,
    ) -> None:
        """All times are in seconds.

        listen: host:port; port 0 picks a free one (see ``address``).
        join: addresses of nodes that are in the fabric already, or DNS names of many; without any,
            the node starts a new fabric.
        join_required: fail if no node answers in ``join_timeout`` seconds; if it is False, the node
            goes on alone, and goes on trying.
        public_address: where others reach this node, if that is not where it listens.
        data_dir: keeps this node's identity and outbox, so that accepted events survive a crash.
        trace_dir: the node writes its trace there as JSON lines, for ``gossamer pipeline verify``.
        k: the overlay stays connected when any k - 1 nodes fail at once; a node has about k links.
        fabric: a name; nodes talk only to nodes of the same fabric.
        keys: this node's key directory (gossamer keys issue): TLS with peers of the same authority,
            and with no others.
        limits: how much peers may take of this node (gossamer.PeerLimits).
        spin: the time to look for the next message before sleeping, while messages come in quick
            succession (0: never).
        shared_memory: large messages between nodes of one host and user lie in memory that both see
            (net/memory.py).
        insecure: allows listening beyond loopback without keys; then any program that can reach the
            port can take part.
        """
        self._listen = parse_address(listen)
        self._join = tuple([join] if isinstance(join, str) else join)
        for address in (*self._join, *([public_address] if public_address else ())):
            parse_address(address, dialled=True)
        self.public_address, self._join_required = public_address, join_required
        if keys is None and not insecure and not is_loopback(self._listen[0]):
            raise NodeError(
                f"{listen} is not loopback, and without keys anybody can take part: "
                "give the node keys (--keys DIR; "
                "gossamer keys init makes them), or accept that with --insecure (insecure=True)"
            )
        check_timeout("join_timeout", join_timeout)
        # A longer wait is better slept through.
        check_timeout("spin", spin, high=SPIN_MOST)
        self._keys, self._limits = Keys(keys) if keys is not None else None, limits
        if keys is None and limits is not None and limits.revocations_max_age:
            raise NodeError(
                "revocations_max_age is about lists of revoked certificates, which only a node "
                "with keys has: give the node keys (--keys DIR), or leave it out"
            )
        self._spin, self._shares = spin, shared_memory
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._trace = TraceFile(Path(trace_dir)) if trace_dir is not None else None
        self._fabric, self._join_timeout = fabric, join_timeout
        config = config or NodeConfig()
        if not isinstance(config, NodeConfig):
            raise NodeError(f"config is {config!r}; it must be a gossamer.NodeConfig")
        flood = structs.replace(config.flood, join=bool(self._join))
        try:
            check_whole("k", k, 1, 32)
            interest = structs.replace(config.interest or InterestConfig(), k=k, join=self._join)
        except ValueError as error:
            raise NodeError(str(error)) from None
        self._config = structs.replace(
            config, flood=flood, interest=interest, trace=config.trace or trace_dir is not None
        )
        self._subscriptions: dict[int, Subscription] = {}
        # A batch has been filled since the loop last had its turn.
        self._full = False
        # An event has been sent without waiting for company in this turn of the loop.
        self._eager = False
        self._closing: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._linked = asyncio.Event()
        self._view_readers: WeakSet[Changes] = WeakSet()
        # The node takes no more commands, and it closes at once.
        self._refuses = self._hurries = False
        # The node was disowned. It may have got its identity back since.
        self._has_lost_itself = False
        # All of the fabric is on this host so far.
        self._announces_loopback = False
        self._disk: Disk | None = None
        self._server: asyncio.Server | None = None
        self.address = ""
        self._core: NodeCore = NOT_STARTED
        self._outbox: Outbox = NOT_STARTED
        self._interest: Interest = NOT_STARTED
        self._driver: Driver = NOT_STARTED
        self._journal: Journal = NOT_STARTED
        self._waiting: WaitingCalls = NOT_STARTED
        self._dialler: Dialler = NOT_STARTED

    @property
    def peer(self) -> Peer:
        """This node's id."""
        return self._core.peer

    @property
    def incarnation(self) -> int:
        """The number of this life of the node, counted in its data directory."""
        return self._core.incarnation

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close(drain=DRAIN_SECONDS if kind is None else 0.0)

    async def start(self) -> None:
        """Listens and joins.

        Raises a JoinError if none of the addresses to join answers in time.
        """
        try:
            await self._start()
        except BaseException:
            self._refuses = True
            if self._dialler is not NOT_STARTED:
                # It closes at once, while the rest takes its turns.
                self._outbox.close()
                # It says goodbye, because others may have heard of this node already.
                await self.close(0.0)
            else:
                await self._release()
            raise

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        kept = None
        keys = self._keys
        mine: Peer | None = None
        rights: Rights | None = None
        proof: Proof = UNSIGNED
        if keys is not None:
            mine, rights = keys.identity.peer, keys.rights()
            proof = keys.proof(rights, self._fabric)
        peer, incarnation = Peer(secrets.randbits(64)) if mine is None else mine, 1
        if self._data_dir is not None:
            self._disk = Disk(self._data_dir, self._disk_failed, self._disk_works_again)
            kept = self._disk.kept()
            peer = self._disk.peer(mine)
            incarnation = int(kept.get(INCARNATION_KEY, b"0")) + 1
        rng = Random(secrets.randbits(64))
        self._core = NodeCore(
            peer,
            incarnation=incarnation,
            rng=rng,
            config=self._config,
            restored=kept,
            durable=self._disk is not None,
            ticket=Receipt,
            rights=rights,
            proof=proof,
            # The driver's clock starts at 0 a moment later.
            unix=time.time_ns() // 1000,
        )
        assert self._core.interest is not None
        self._interest, self._outbox = self._core.interest, self._core.outbox
        self._driver = Driver(
            self._core,
            peer,
            incarnation,
            deliver=self._delivered,
            after=self._after,
            address="",
            fabric=self._fabric,
            disk=self._disk,
            keys=keys,
            rights=rights,
            limits=self._limits,
            spin=self._spin,
            shares=self._shares,
            writer=self._trace.open(peer, incarnation) if self._trace is not None else None,
        )
        self._driver.met_twin = self._met_twin
        self._driver.disowned = self._disowned
        self._driver.revoked = self._core.vouch
        self._driver.renewed = lambda own: self._interest.certify(
            own.certificate, self._driver.now()
        )
        self._journal = Journal(trace.hex_peer(peer), self._driver.loop.time)
        self._waiting = WaitingCalls(self._core, self._driver, self._check_open, self._unstored)
        self._driver.noted, self._driver.before = self._noted, self._tell_blocked
        self._driver.ended = self._journal.ended
        self._driver.changed = self._link_changed
        self._dialler = Dialler(self._driver, self._join)
        self._driver.dial, self._dialler.alone = self._dialler.dial, self._linked.set
        host, port = self._listen
        try:
            self._server = await loop.create_server(
                lambda: Connection(self._driver, None), host, port
            )
        except OSError as error:
            remedy = "is a node running there? choose another address (port 0 picks one)"
            raise NodeError(
                f"cannot listen on {host}:{port}: {reason_of(error)}; {remedy}"
            ) from None
        self.address, host = bound(self._server)
        if not self.public_address and not ipaddress.ip_address(host).is_unspecified:
            # Others could not dial an unspecified address such as 0.0.0.0.
            self.public_address = self.address
            self._announces_loopback = is_loopback(host)
        if self.public_address:
            self._driver.address = self.public_address
            self._interest.readdress(self.public_address, self._driver.now())
        self._driver.wake()
        if self._join:
            await self._joined()

    async def _joined(self) -> None:
        try:
            async with asyncio.timeout(self._join_timeout):
                await self._linked.wait()
                # Without a link all addresses are our own, and this node is the first one.
                if self._driver.links:
                    # When this returns, this node knows everything that its neighbour knew.
                    await self._waiting.introduced()
        except TimeoutError:
            if not self._join_required:
                return
            raise JoinError.after(
                self._join, self._join_timeout, self._driver.last_problem
            ) from None

    async def close(self, drain: float = DRAIN_SECONDS) -> None:
        """Waits up to ``drain`` seconds for receipts, and then leaves the fabric politely.

        It goes on if the caller is cancelled. With 0 it does not wait for receipts, but still says
        goodbye for a second at most. A node that leaves silently is declared dead only after a
        timeout, and others wait that long. A second call with 0 while it is closing ends it at
        once.
        """
        if self._dialler is NOT_STARTED:
            if self._releasing is not None:
                await asyncio.shield(self._releasing)
            return
        check_timeout("drain", drain)
        if not drain:
            self._hurries = self._closing is not None
            self._waiting.hurry()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(drain))
        await asyncio.shield(self._closing)

    async def _close(self, drain: float) -> None:
        undelivered = 0
        try:
            refused, self._refuses = self._refuses, True
            # The node takes no new work. Accepted events get their time.
            self._core.outbox.close()
            self._waiting.refuse(NodeError("the node is closed"))
            if drain and not refused:
                await self._waiting.drained(drain)
            undelivered = self._core.outbox.unsettled
            if not self._driver.closing:
                for subscription in list(self._subscriptions.values()):
                    await subscription.close()
                if self._driver.links and not self._hurries:
                    if drain:
                        await reported(self._core, self._driver, lambda: self._hurries)
                    await said_goodbye(self._core, self._driver, lambda: self._hurries)
                self._core.leave(self._driver.now())
                self._driver.perform(self._core.wake(self._driver.now()))
        finally:
            await self._release()
        # With a data directory, accepted events are on disk and are published again at the next
        # start.
        if undelivered and drain and self._disk is None:
            raise UndeliveredError(
                f"closed with {undelivered} accepted events without a receipt after {drain:g} s; "
                "await their receipts before closing, or give the node a data_dir to keep them in"
            )

    async def _release(self) -> None:
        """Lets go of everything that start() took hold of, however far it got.

        It runs once, and to its end.
        """
        if self._releasing is None:
            self._releasing = asyncio.get_running_loop().create_task(self._let_go())
        await asyncio.shield(self._releasing)

    async def _let_go(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            if self._trace is not None:
                stack.callback(self._trace.close)
            if self._disk is not None:
                stack.push_async_callback(self._disk.close)
            if self._server is not None:
                self._server.close()
            if self._dialler is not NOT_STARTED:
                await self._dialler.stop()
                connections = list(self._driver.connections)
                # From here on nothing wakes the node.
                self._outbox.close()
                self._driver.close()
                self._waiting.fail(NodeError("the node is closed"))
                for reader in list(self._view_readers):
                    reader.wake()
                await gone(connections)

    async def advertise(
        self, topic: str, schema: str, *, retention: str = "", replace: bool = False
    ) -> None:
        """Makes a topic known, with its schema as Spark DDL text, for example ``country STRING,
        temp INT``.

        ``retention`` says how much of its events every publisher of the topic keeps for subscribers
        that come later or were away. It is an age ("1h"), a size ("64MB"), or both ("1h, 64MB").

        With ``replace`` this schema holds from now on, whatever was advertised before, also where
        others disagree about it. Events of a schema that it does not extend can no longer be read,
        and subscriptions to them end.

        Raises a SchemaConflictError if others advertise a schema that does not agree with this one.
        """
        self._check_open()
        kept = Retention.parse(retention) if retention else None
        self._core.advertise(topic, schema, self._driver.now(), kept, replace=replace)
        self._driver.wake()
        # When this returns the neighbours know the topic, and they pass it on. A neighbour that
        # does not confirm is told again, but the caller waits no longer.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_SECONDS):
                await self._waiting.confirmed()
        # A neighbour may have announced another schema meanwhile.
        self._core.topics.check(topic)

    def subscribe(
        self,
        topic: str,
        filter: str = "",
        *,
        timeout: float = TOPIC_SECONDS,
        slow: SlowPolicy | str = SlowPolicy.BLOCK,
        barrier: bool = False,
        source: str = "user",
        route: Route | str = Route.AUTO,
        group: str = "",
        name: str = "",
        since: str | datetime | timedelta | None = None,
        ordered: bool = False,
        gaps: bool = False,
    ) -> Subscription:
        """Subscribes to the events of a topic for which the filter is TRUE.

        The filter is the text of a SQL WHERE clause, and an empty one passes all events. The call
        waits up to ``timeout`` seconds for the topic to be advertised. It returns when every later
        publication finds the subscription.

        slow: the fate of events that are not taken in time. "block" holds publishers back, and cuts
            this subscription off after 5 s. "drop_oldest" drops and counts events.
        barrier: return only when every live node knows of it, or with a BarrierError.
        source: the service for which the node subscribes. A topic stays in this node's interest
            while any source wants it.
        route: the way of events to this node: "direct" (publishers send matching events in one
            hop), "skiplist" (by the filter's ordered part), "tree" (over one tree of all nodes),
            "flood" (every node gets every event), or "auto" (direct while at most 64 nodes want the
            topic, and beyond that the one that suits the filter).
        group: of all subscriptions to the topic with this group, one gets each event.
        name: makes the subscription durable. Events are kept on this node's disk until they are
            acknowledged (``Subscription.ack``). Events that it missed while it was down come from
            the publishers' retention.
        since: history: "beginning", a duration ("10m", timedelta) or a datetime.
        ordered: each publisher's events come in order.
        gaps: events that are lost are reported as a ``gossamer.Gap``. So it is with name, since and
            ordered too (docs/delivery.md).
        """
        check_timeout("timeout", timeout, 0.001)
        check_kinds(
            topic=(topic, str),
            filter=(filter, str),
            barrier=(barrier, bool),
            source=(source, str),
            group=(group, str),
            name=(name, str),
            ordered=(ordered, bool),
            gaps=(gaps, bool),
        )
        way, policy, wish = (
            route_of(route),
            policy_of(slow),
            Wish(name, start_of(since), ordered, gaps),
        )
        return Subscription(
            self,
            topic,
            filter,
            timeout,
            policy,
            barrier=barrier,
            source=source,
            route=way,
            group=group,
            wish=wish,
        )

    subscribe_many = subscribe_many

    async def forget(self, name: str) -> None:
        """Gives up a durable subscription of this node, with its position and all that is stored
        for it.
        """
        self._check_open()
        self._core.forget(name, self._driver.now())
        self._driver.wake()

    def source(self, name: str, handle: Handle) -> Source:
        """Subscriptions that a service outside the fabric decides on. Their events go to
        ``handle``.
        """
        return Source(self, name, handle)

    def view(self, topic: str | None = None) -> TopicView:
        """The nodes that want a topic, and the changes; without a topic, all nodes and their
        wishes.
        """
        return TopicView(self, topic)

    publish = publish
    publish_batch = publish_batch

    async def topic(self, topic: str, timeout: float = TOPIC_SECONDS) -> str:
        """The topic's schema. It waits until the topic is advertised.

        Raises a SchemaConflictError if there are two of them.
        """
        check_timeout("timeout", timeout)
        await self._waiting.topic(topic, timeout)
        self._core.topics.check(topic)
        return self._core.topics.schemas[topic].text

    def check_filter(self, topic: str, filter: str) -> str:
        """The filter's canonical text. Raises a FilterError or TopicError as ``subscribe``
        would.
        """
        return Filter.parse(filter, self._core.local.topic(topic).schema).text

    async def drain(self, timeout: float = DRAIN_SECONDS) -> int:
        """Waits until every accepted event has a complete receipt.

        It returns the number of events without one after ``timeout`` seconds.
        """
        check_timeout("timeout", timeout)
        return await self._waiting.drained(timeout)

    def status(self) -> dict[str, Any]:
        """The state of this node as plain data."""
        for subscription in self._subscriptions.values():
            if subscription._taken:
                subscription._tell()
        about: dict[str, Any] = {
            "address": self.address,
            "public_address": self.public_address,
            "data_dir": str(self._data_dir) if self._data_dir else None,
        }
        if self._disk is not None:
            failed = self._disk.failed
            about["disk"] = {
                "problem": failed_disk(self._data_dir, failed) if failed is not None else "",
                "failures": self._driver.counters["disk_failures"],
                "owed": self._disk.owed,
            }
        return about | describe(self._core, self._driver)

    def tree(self) -> list[dict[str, Any]]:
        """The dispatch tree of route "tree" over all members, with parents before their
        children.
        """
        assert self._core.tree is not None
        return describe_tree(self._core.tree.drawn())

    async def lookup(
        self, topic: str, event: Mapping[str, Any] | None = None, *, timeout: float = TOPIC_SECONDS
    ) -> list[dict[str, Any]]:
        """The subscriptions with route "skiplist" that would take this event.

        Without an event it gives all that the topic's list holds. Nothing is published: the
        question walks the list as an event would.
        """
        check_timeout("timeout", timeout)
        return describe_found(self._core, await self._waiting.lookup(topic, event, timeout))

    def answer(self, request: dict[str, Any], more: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        """Answers a request on the admin socket (answers.py)."""
        return answer(self, request, more)

    def _check_open(self) -> None:
        if self._refuses:
            raise NodeError("the node is closed")
        if self._has_lost_itself:
            self._check_identity()

    def _met_twin(self, incarnation: int) -> None:
        self._interest.meet_twin(incarnation, self._driver.now())
        self._disowned()

    def _disowned(self) -> None:
        """The program hears of an identity that is lost: its subscriptions end with the error."""
        self._has_lost_itself = True
        self._driver.loop.call_soon(self._end_subscriptions)

    def _end_subscriptions(self) -> None:
        try:
            self._check_identity()
        except IdentityError as error:
            for subscription in list(self._subscriptions.values()):
                subscription.disown(error)

    def _check_identity(self) -> None:
        """Raises an IdentityError while this node's identity counts nothing."""
        refusal = self._keys.refusal(self._keys.identity) if self._keys is not None else ""
        if refusal in ("revoked", "of another authority"):
            raise IdentityError(
                f"this node's certificate is {refusal}, so no other node talks to it; get other "
                "keys: gossamer keys issue AUTHORITY NAME --out DIR"
            )
        if self._interest.conflict:
            raise IdentityError(
                "another process uses this node's identity: "
                "are its keys or its data directory used twice? stop one"
            )
        self._has_lost_itself = False

    def _link_changed(self, peer: Peer, state: LinkState) -> None:
        if state is LinkState.UP:
            self._linked.set()
        link = self._driver.links.get(peer)
        if link is not None and self._announces_loopback and not is_loopback(link.address):
            self._withdraw()

    def _withdraw(self) -> None:
        """Withdraws the node's address.

        A link goes to another host. There an address on loopback would be that host's own, and no
        node could dial this one by it. So the others are told that there is no address, and
        subscriptions take a route that needs none (node/reach.py).
        """
        self._announces_loopback, self.public_address, self._driver.address = False, "", ""
        self._core.routing.withdraw(self._driver.now())
        self._journal.say(
            logging.WARNING,
            "others cannot dial this node: it listens on loopback",
            listens=self.address,
        )

    def _disk_failed(self, error: Exception) -> None:
        self._driver.last_problem = failed_disk(self._data_dir, error)
        self._driver.counters["disk_failures"] += 1
        self._journal.say(
            logging.ERROR,
            "the data directory failed",
            error=str(error),
            directory=str(self._data_dir),
        )

    def _disk_works_again(self) -> None:
        self._journal.say(
            logging.INFO, "the data directory works again", directory=str(self._data_dir)
        )

    def _unstored(self, what: str, then: str) -> StorageError:
        """The error for something that the data directory did not store."""
        error = self._disk.failed if self._disk is not None else None
        return StorageError.of(what, self._data_dir, error, then)

    def _tell_blocked(self) -> None:
        """Tells the machine how much slow consumers have taken."""
        for number in self._core.blocked():
            subscription = self._subscriptions.get(number)
            if subscription is not None and subscription._taken:
                self._core.taken(number, subscription._count_taken(), self._driver.now())

    def _turn_over(self) -> None:
        self._eager = False

    def _delivered(self, deliver: Deliver) -> None:
        subscription = self._subscriptions.get(deliver.subscription)
        if subscription is not None:
            subscription._deliver(deliver.events)

    def _after(self) -> None:
        self._waiting.settle()
        news = self._core.routing.view_changes
        if news:
            changes = news.copy()
            news.clear()
            self._journal.members(changes)
            for reader in list(self._view_readers):
                reader.put(changes)

    def _noted(self, record: trace.Record) -> None:
        self._journal.noted(record)
        if isinstance(record, trace.Advertised):
            self._waiting.advertised(record.topic)
        elif isinstance(record, trace.Unsubscribed) and record.reason != "asked":
            subscription = self._subscriptions.pop(record.subscription, None)
            if subscription is not None:
                problem = subscription.why_ended(record.reason, self._config.block)
                self._waiting.refused(subscription.number, problem)
                subscription._end(problem)


def bound(server: asyncio.Server) -> tuple[str, str]:
    """The address that the server listens on, as text, and its host alone."""
    host, port = server.sockets[0].getsockname()[:2]
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}"), host


__all__ = [
    "AddressError",
    "BarrierError",
    "Done",
    "JoinError",
    "Node",
    "NodeError",
    "Receipt",
    "SlowSubscriberError",
    "Subscription",
    "UndeliveredError",
]
