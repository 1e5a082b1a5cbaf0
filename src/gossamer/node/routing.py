"""All routes of a node: publications, receipts, the lives of subscriptions, and shared links.

A subscription is in force when every publication from then on finds it. ``life.py`` has the table
of its states, and this module takes the steps: a plane has laid the subscription, or a barrier of
the interest plane says that every live node knows of its route. So a batch goes by the routes that
its publisher's view has for the topic. If no node wants the topic, the batch goes nowhere. A node
that joins neither publishes nor subscribes before it knows the fabric.

Route *auto* means: "direct" while at most ``DIRECT_MAX`` nodes want a topic; beyond that "skiplist"
for filters with an ordered part and "tree" for others; and "flood" if this node cannot be dialled
(reach.py). When the choice changes, subscriptions move (moves.py).

The interest plane knows all links. It proposes to close those that neither end wants for the
overlay. A link that another plane needs, or has used lately, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from gossamer.filters import Filter
from gossamer.filters.place import ALL
from gossamer.machine import (
    NEVER,
    SECOND,
    Deliver,
    Dial,
    Effect,
    Hangup,
    LinkState,
    Micros,
    Note,
    Peer,
    Send,
)
from gossamer.node.life import LIFE, State, Step
from gossamer.node.local import Local, LocalSubscription
from gossamer.node.missed import Debts, Heard, Missed
from gossamer.node.moves import Moves
from gossamer.node.pieces import RELAYED_MAX, Pieces
from gossamer.node.planes import BITS, Plane, Route, Rows, check_group, is_end
from gossamer.node.reach import LINKED, Reach
from gossamer.node.retention import Id
from gossamer.node.rights import Rights
from gossamer.node.tree import TreePlane
from gossamer.overlay.batch import Batch, Leave, Left, added
from gossamer.overlay.delivery.engine import Complete
from gossamer.overlay.flood import Flood
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.record import ViewChange, read_stamp
from gossamer.trace import Dropped, Member, Subscribed, Unsubscribed, hex_peer

# While at most this number of nodes want a topic, route auto means direct.
DIRECT_MAX = 64
# A subscription goes back to route direct when only this number of nodes want the topic.
DIRECT_AGAIN = 48
AUTO_EVERY = Micros(2 * SECOND)
# This is longer than any plane waits for an answer.
LINK_IDLE = Micros(15 * SECOND)
EARLY_AGAIN = Micros(SECOND // 4)


class _Receipt:
    """A batch of ours that waits for the reports of some routes."""

    __slots__ = ("matched", "routes", "serial")

    def __init__(self, routes: int, serial: int) -> None:
        self.routes, self.serial = routes, serial
        self.matched: tuple[int, ...] = ()


class Routing:
    """``entered`` has the subscriptions that came into force, ``lapsed`` those that were in force
    and are not, and ``view_changes`` the news; the owner takes them. ``completed`` is called with
    each receipt.
    """

    def __init__(
        self,
        interest: Interest | None,
        local: Local,
        out: list[Effect],
        rng: Random,
        completed: Complete,
        *,
        tracing: bool,
    ) -> None:
        self.planes: dict[Route, Plane] = {}
        # The deadlines of the planes as of the last look; empty: look again (``deadline``).
        self._dues: dict[Route, Micros] = {}
        self.rights: Rights | None = None
        # The version of the rights that ``_uses`` was made by.
        self._judged = 0
        self.completed = completed
        self.entered: list[int] = []
        self.lapsed: list[int] = []
        self.view_changes: list[ViewChange] = []
        self.debts = Debts(out, self._address)
        # The owner sets these.
        self.missed: Callable[[Missed, Micros], None] = lambda message, now: None
        self.heard: Callable[[ViewChange, Micros], None] = lambda change, now: None
        self.flood: Flood
        self._interest, self._local, self._out, self._tracing = interest, local, out, tracing
        self._rng = rng
        # In the order of publishing.
        self._receipts: dict[tuple[int, int], _Receipt] = {}
        self._published = 0
        # The subscriptions that have asked for a place and are not in force.
        self._entering: dict[int, LocalSubscription] = {}
        # The subscriptions that wait for each barrier.
        self._barriers: dict[int, list[int]] = {}
        # The routes in use on each topic, in the present view.
        self._uses: dict[str, list[Route]] = {}
        # The time when a plane last used each link.
        self._used: dict[Peer, Micros] = {}
        self._synced = interest is None
        # For each topic, the last event that can be read no longer.
        self.voided: Mapping[str, Id] = {}
        # Topics whose schemas do not agree.
        self.conflicts: Mapping[str, object] = {}
        # This node's incarnation.
        self.life = 0
        # Batches that were published before this node knew the fabric, or that an earlier life
        # published and whose topic is not known yet.
        self._early: list[tuple[Batch, Rows]] = []
        # Subscriptions that wait until this node knows the fabric.
        self._waiting: dict[int, LocalSubscription] = {}
        self._pieces = Pieces(local)
        self._early_at: Micros = NEVER
        # The time of the next look whether subscriptions should move.
        self._auto_at: Micros = NEVER
        self._autos: dict[int, LocalSubscription] = {}
        self.moves: Moves | None = None
        # The subscriptions that move.
        self._moving: Mapping[int, object] = {}
        self._reach: Reach | None = None
        if interest is not None:
            self._reach = Reach(interest, local)
            self.moves = Moves(interest, local, self.planes)
            self._moving = self.moves.under_way
            interest.publishes(lambda: self._published, self._is_settled)

    # -------------------------------------------------------------------- publishing

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> None:
        """``rows`` are the batch's rows, decoded, if the caller has them."""
        if self.voided and (batch.incarnation, batch.first) <= self.voided.get(batch.topic, (0, 0)):
            # The topic's schema was replaced after this batch was accepted, so nobody can read it.
            self.completed(batch.incarnation, batch.first, (0,) * batch.count)
            return
        is_early = not self._synced and not self._is_synced(now)
        routes = self._routes(batch.topic) if not is_early else []
        if batch.incarnation < self.life:
            # An earlier life accepted this batch. It waits until the topic is known here, and until
            # its schemas agree, because the others would refuse it. A publication of this life gets
            # an error instead.
            is_early = is_early or batch.topic in self.conflicts
            for route in routes:
                is_early = (
                    is_early
                    or not self.planes[route].knows(batch.topic)
                    or self._pieces.waits(batch)
                )
        if is_early:
            self._early.append((batch, rows))
            self._early_at = min(self._early_at, Micros(now + EARLY_AGAIN))
            return
        if not routes:
            self.completed(batch.incarnation, batch.first, (0,) * batch.count)
            return
        self._published += 1
        parts = [(routes[0], batch)]
        if len(routes) > 1 or batch.count > RELAYED_MAX:
            relayed = self._pieces.cut(batch) if routes != [Route.DIRECT] else ()
            parts = [
                (route, one)
                for route in routes
                for one in ((batch,) if route is Route.DIRECT else relayed)
            ]
        self._receipts[batch.incarnation, batch.first] = _Receipt(len(parts), self._published)
        dues = self._dues
        for route, one in parts:
            plane = self.planes[route]
            plane.publish(one, now, rows)
            if dues:
                dues[route] = plane.deadline
        if self._entering or self._moving:
            for route in routes:
                self._settle(route, now)

    def _is_settled(self, mark: int) -> bool:
        """Whether all that was published up to this count has its receipts."""
        return not self._receipts or next(iter(self._receipts.values())).serial > mark

    def _is_synced(self, now: Micros) -> bool:
        assert self._interest is not None
        self._synced = self._interest.is_synced(now)
        if self._synced and (self._early or self._waiting):
            self._early_at = now
        return self._synced

    def _routes(self, topic: str) -> list[Route]:
        """The routes in use on a topic."""
        if self._interest is None:
            return [Route.FLOOD]
        if self.rights is not None and self.rights.version != self._judged:
            self._judged = self.rights.version
            self._uses.clear()
        routes = self._uses.get(topic)
        if routes is None:
            used = 0
            for peer, stamp in self._interest.interested(topic).items():
                if self.rights is None or self.rights.may_subscribe(peer, topic):
                    used |= read_stamp(stamp)[1]
            routes = self._uses[topic] = [route for route in self.planes if used & BITS[route]]
        return routes

    def is_direct(self, topic: str) -> bool:
        """Whether events on a topic go to their subscribers without a relay."""
        return self._synced and self._routes(topic) == [Route.DIRECT]

    # ----------------------------------------------------------------- subscriptions

    def choose(self, topic: str, filter: Filter, group: str, present: Route | None = None) -> Route:
        """The route that suits a subscription in the present view."""
        if self._interest is None or self._reach is None:
            return Route.FLOOD
        if not self._reach.is_dialled and not group:
            return Route.FLOOD
        nodes = len(self._interest.interested(topic))
        few = DIRECT_MAX if present in (None, Route.DIRECT) else DIRECT_AGAIN
        if group or nodes <= few:
            return Route.DIRECT
        return (
            Route.SKIPLIST if all(place.cls != ALL for place in filter.placements()) else Route.TREE
        )

    def move(self, subscription: LocalSubscription, route: Route, now: Micros) -> bool:
        """Lets a subscription that is in force take another route. Returns whether that has
        begun.
        """
        if (
            self.moves is None
            or subscription.state is not State.IN_FORCE
            or subscription.route is route
        ):
            return False
        self.moves.begin(subscription, route, now)
        return True

    def check(self, group: str, route: Route, *, alone: bool = False) -> None:
        """Raises RouteError if a subscription cannot take this route."""
        if self._reach is not None:
            self._reach.check(route, group)
        if group:
            check_group(group, route if self._interest is not None else Route.FLOOD, alone=alone)

    def stay(self, subscription: LocalSubscription) -> None:
        """The program has chosen the route, so this node no longer does."""
        subscription.is_auto = False
        self._autos.pop(subscription.number, None)

    def _look_at_autos(self, now: Micros) -> None:
        self._auto_at = NEVER
        for subscription in self._autos.values():
            topic = subscription.topic.name
            route = self.choose(topic, subscription.filter, subscription.group, subscription.route)
            if route is not subscription.route and not self.move(subscription, route, now):
                self._auto_at = Micros(now + AUTO_EVERY)

    def enter(self, subscription: LocalSubscription, now: Micros) -> None:
        """Place a subscription. Its number is in ``entered`` when it is in force.

        Raises InterestError if there is no room.
        """
        interest = self._interest
        self._dues.clear()
        topic, number = subscription.topic.name, subscription.number
        if not self._synced and not self._is_synced(now):
            self._waiting[number] = subscription
            self._early_at = min(self._early_at, Micros(now + EARLY_AGAIN))
            return
        if subscription.route is Route.AUTO:
            subscription.is_auto = interest is not None
            subscription.route = self.choose(topic, subscription.filter, subscription.group)
            # If the subscription was put off, it listens already.
            if number in self._local.subscriptions:
                self._local.ignore(subscription, Route.AUTO)
                self._local.listen(subscription, subscription.route)
        route = subscription.route
        if interest is not None:
            assert self._reach is not None
            self._reach.check(route, subscription.group)
            interest.subscribe(topic, now, BITS[route], subscription.source)
            self._uses.pop(topic, None)
        try:
            self.planes[route].subscribe(
                number, topic, subscription.filter, subscription.group, now
            )
        except ValueError:
            if interest is not None:
                interest.unsubscribe(topic, now, BITS[route], subscription.source)
            raise
        if subscription.is_auto:
            self._autos[number] = subscription
        if route is Route.FLOOD:
            self._step(subscription, Step.LAY)
        if interest is None:
            # Nobody has to know of it.
            self._step(subscription, Step.KNOW)
            return
        if route is Route.DIRECT and self._reach is not None:
            self._reach.look(now)
        barrier = interest.barrier(now)
        self._entering[number] = subscription
        self._barriers[barrier] = [number]
        self._settle(route, now)

    def waits_for(self, number: int) -> str:
        """A text that says why a subscription is not in force, or why a barrier is not reached."""
        interest = self._interest
        subscription = self._entering.get(number)
        if number in self._waiting:
            return "this node is still joining: it does not know yet what the fabric knows"
        reasons: list[str] = []
        if interest is not None and (subscription is None or Step.KNOW in LIFE[subscription.state]):
            peers = ", ".join(map(hex_peer, interest.unanswered))
            members = f"{len(interest.view.members)} members"
            reasons.append(
                f"of {members}, not confirmed yet by {peers} and whoever is asked through them"
                if peers
                else f"not confirmed yet by all of {members}"
            )
            if interest.suspects:
                reasons.append(
                    f"suspected to be dead: {', '.join(map(hex_peer, interest.suspects))}"
                )
        if subscription is not None and Step.LAY in LIFE[subscription.state]:
            route = subscription.route
            plane = self.planes[route]
            detail = plane.waits_for(number) if isinstance(plane, TreePlane) else ""
            reasons.append(detail or f"its place on route {route.value!r} is not ready")
        return "; ".join(reasons)

    def abandon(self, subscription: LocalSubscription, now: Micros) -> None:
        """The subscription has ended."""
        self._dues.clear()
        subscription.step(Step.END)
        if self._waiting.pop(subscription.number, None) is not None:
            return
        self._entering.pop(subscription.number, None)
        self._autos.pop(subscription.number, None)
        if self.moves is not None:
            self.moves.abandon(subscription, now)
        self.planes[subscription.route].unsubscribe(subscription.number, now)
        if self._interest is not None:
            topic = subscription.topic.name
            self._interest.unsubscribe(topic, now, BITS[subscription.route], subscription.source)
            self._uses.pop(topic, None)

    def _renew(self, interest: Interest, now: Micros) -> None:
        """The others had taken this node for dead, and forgotten its places. It lays them again."""
        for plane in self.planes.values():
            plane.renew(now)
        barrier = interest.barrier(now)
        for subscription in self._local.subscriptions.values():
            number = subscription.number
            if number not in self._waiting:
                if subscription.in_force:
                    self.lapsed.append(number)
                subscription.step(Step.RENEW)
                if subscription.route is Route.FLOOD:
                    subscription.step(Step.LAY)
                self._entering[number] = subscription
        self._barriers = {barrier: list(self._entering)}
        if self.moves is not None:
            self.moves.renew(now)

    def _step(self, subscription: LocalSubscription, step: Step) -> None:
        """Take one of the two steps that lead into force, unless the subscription has taken it."""
        if step not in LIFE[subscription.state]:
            return
        subscription.step(step)
        if subscription.state is not State.IN_FORCE:
            return
        number = subscription.number
        self._entering.pop(number, None)
        if self._tracing and not subscription.was_in_force:
            self._out.append(Note(Subscribed(number)))
        subscription.was_in_force = True
        self.entered.append(number)
        if number in self._moving:
            # The subscription had lapsed while it moved, and its move goes on.
            subscription.step(Step.MOVE)

    def _settle(self, route: Route, now: Micros) -> None:
        self._dues.clear()
        for number in self.planes[route].take_laid():
            if self.moves is not None:
                self.moves.laid(number, route, now)
            subscription = self._entering.get(number)
            if subscription is not None and subscription.route is route:
                self._step(subscription, Step.LAY)
        arrived = self.moves.arrived if self.moves is not None else []
        while arrived:
            number = arrived.pop()
            # The place on its old route need not be waited for.
            subscription = self._entering.get(number)
            if subscription is not None:
                self._step(subscription, Step.LAY)

    # ------------------------------------------------------------------------ inputs

    @property
    def deadline(self) -> Micros:
        """When ``wake`` is due.

        The driver asks for it after every call, and a plane's deadline changes only if the plane is
        called. So an event costs a look at the plane of its route, and every other call costs a
        look at all of them (``again``).
        """
        least = self._early_at if self._early_at < self._auto_at else self._auto_at
        if self.debts.deadline < least:
            least = self.debts.deadline
        reach, dues = self._reach, self._dues
        if reach is not None:
            least = min(least, reach.dial_at, reach.tell_at)
        if not dues:
            for route, plane in self.planes.items():
                dues[route] = plane.deadline
        return min(least, *dues.values())

    def receive(self, route: Route, sender: Peer, message: Any, now: Micros) -> None:
        if route is not Route.FLOOD and self._interest is not None:
            self._used[sender] = now
        plane = self.planes[route]
        plane.receive(sender, message, now)
        if self._dues:
            self._dues[route] = plane.deadline
        if self._entering or self._moving:
            self._settle(route, now)

    def again(self) -> None:
        """The owner has called a plane, so the deadlines are looked at again."""
        self._dues.clear()

    def wake(self, now: Micros) -> None:
        self._dues.clear()
        if self._early_at <= now:
            self._early_at = Micros(now + EARLY_AGAIN)
            if self._synced or self._is_synced(now):
                self._do_early(now)
        if self._auto_at <= now:
            self._look_at_autos(now)
        if self._reach is not None and min(self._reach.dial_at, self._reach.tell_at) <= now:
            self._out += self._reach.wake(now)
        for route, plane in self.planes.items():
            if plane.deadline <= now:
                plane.wake(now)
                if self._entering or self._moving:
                    self._settle(route, now)
        if self.debts.deadline <= now:
            self.debts.wake(now)

    def withdraw(self, now: Micros) -> None:
        """Nobody can dial this node, so its subscriptions may need another route.

        That holds also for those whose route the program has chosen.
        """
        assert self._reach is not None
        self._reach.withdraw(now)
        for number, subscription in self._local.subscriptions.items():
            if (
                subscription.route in LINKED
                and not subscription.group
                and number not in self._waiting
            ):
                subscription.is_auto, self._autos[number] = True, subscription
        self._auto_at = now if self._autos else NEVER

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        self._dues.clear()
        if state is LinkState.DOWN or state is LinkState.CUT:
            self._used.pop(peer, None)
            if self._reach is not None:
                self._reach.look(now)
        if self.debts.link(peer, state, now):
            self._tell(peer, [state], now)
        elif state is LinkState.UP:
            self.flood.hold(peer, now)
        elif state is LinkState.DOWN or state is LinkState.CUT:
            self.flood.link(peer, state, now)

    def _tell(self, peer: Peer, states: list[LinkState], now: Micros) -> None:
        self._dues.clear()
        for state in states:
            for route, plane in self.planes.items():
                plane.link(peer, state, now)
                if self._entering or self._moving:
                    self._settle(route, now)

    def hear(self, sender: Peer, message: Missed | Heard, now: Micros) -> None:
        """Events were completed without this node, or a peer has heard of those without it."""
        if type(message) is Missed:
            if self.debts.receive(sender, message, now):
                self.missed(message, now)
        else:
            assert type(message) is Heard
            self._tell(sender, self.debts.heard(sender, message), now)

    def left_out(self, left: Left, now: Micros) -> None:
        """Events were completed without a peer that may be alive, and it has to hear of that."""
        self.debts.owe((left,), now)

    def _address(self, peer: Peer) -> str | None:
        known = self._interest.view.members.get(peer) if self._interest is not None else None
        return known.record.address if known is not None else None

    def leave(self, now: Micros) -> None:
        self._dues.clear()
        for plane in self.planes.values():
            plane.leave(now)

    def report(self, now: Micros) -> None:
        """Reports that slow consumers held back may go."""
        self._dues.clear()
        released, self._local.released = self._local.released, []
        for route, key, matched in released:
            self.planes[route].took(key, matched, now)
            if self._entering or self._moving:
                self._settle(route, now)

    def say(self, effects: list[Effect], now: Micros) -> None:
        """Pass on the effects of a plane's machine, and note which links it uses."""
        links: Mapping[Peer, object] = self._interest.links if self._interest is not None else {}
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                for peer in effect.to:  # type: ignore[union-attr]
                    if peer in links:
                        self._used[peer] = now
            elif kind is Hangup:
                self._part(effect.peer)  # type: ignore[union-attr]
            # A node without an address cannot be dialled.
            elif kind is Dial and not effect.address:  # type: ignore[union-attr]
                continue
            self._out.append(effect)

    def complete(self, route: Route, incarnation: int, first: int, counts: tuple[int, ...]) -> None:
        """A route's part of a receipt is complete: all nodes that it serves have reported."""
        if self._pieces.wholes and route is not Route.DIRECT:
            first, counts = self._pieces.whole(incarnation, first, counts)
        receipt = self._receipts[incarnation, first]
        receipt.routes -= 1
        both = receipt.matched and counts
        receipt.matched = added(receipt.matched, counts) if both else receipt.matched or counts
        if not receipt.routes:
            del self._receipts[incarnation, first]
            if self._pieces.wholes:
                self._pieces.forget(incarnation, first)
            self.completed(incarnation, first, receipt.matched)

    # ---------------------------------------------------------------------- the view

    def interest_says(self, effects: list[Effect], now: Micros) -> None:
        """Tell the planes and the owner of changes of the view, and keep links that planes need."""
        interest = self._interest
        assert interest is not None
        self._dues.clear()
        for effect in effects:
            if type(effect) is Deliver:
                self._changed(effect.events, now)  # type: ignore[arg-type]
                continue
            if type(effect) is Hangup:
                if self.needs(effect.peer, now):
                    interest.kept(effect.peer, now)
                    continue
                self._part(effect.peer)
            self._out.append(effect)
        if interest.barriers_done:
            self._known(interest, now)
        if not self._synced and (self._early or self._waiting):
            self._is_synced(now)

    def _part(self, peer: Peer) -> None:
        """A link is about to be closed on purpose, so flood need not wait for it to come back."""
        self.flood.unlink(peer)
        self._out.append(Send((peer,), Leave()))

    def use(self, peer: Peer, now: Micros) -> None:
        if self._interest is not None and peer in self._interest.links:
            self._used[peer] = now

    def needs(self, peer: Peer, now: Micros) -> bool:
        """Whether a plane other than the interest plane wants the link to this peer to stay."""
        used = self._used.get(peer)
        if (
            peer in self.debts
            or (used is not None and now - used < LINK_IDLE)
            or (self._reach is not None and self._reach.holds_on)
        ):
            return True
        return any(plane.needs(peer) for plane in self.planes.values())

    def _changed(self, changes: tuple[ViewChange, ...], now: Micros) -> None:
        self.view_changes += changes
        for change in changes:
            self.heard(change, now)
            if self._reach is not None:
                self._reach.look(now)
            # The change concerns the topics that a node wants, or its address.
            if change.is_told:
                self._uses.clear()
                # The time is drawn, so that subscriptions of many nodes do not move all at once.
                if self._autos and self._auto_at == NEVER:
                    self._auto_at = Micros(now + 1 + int(AUTO_EVERY * self._rng.random()))
            for plane in self.planes.values():
                plane.changed(change, now)
            if is_end(change):
                self._tell(change.peer, self.debts.forgive(change.peer), now)
            if (
                change.reason == "new life"
                and self._interest is not None
                and change.peer == self._interest.me
            ):
                self._renew(self._interest, now)
            if self._tracing and change.reason != "news":
                record = change.after if change.after is not None else change.before
                assert record is not None
                self._out.append(
                    Note(Member(hex_peer(change.peer), record.incarnation, change.reason))
                )

    def _known(self, interest: Interest, now: Micros) -> None:
        """Barriers were reached that this module or a plane asked for, and others that are the
        owner's.
        """
        others: list[int] = []
        for barrier in interest.barriers_done:
            numbers = self._barriers.pop(barrier, None)
            if numbers is None:
                ours = self.moves is not None and self.moves.known(barrier, now)
                if not ours and not any(
                    plane.known(barrier, now) for plane in self.planes.values()
                ):
                    others.append(barrier)
                continue
            for number in numbers:
                subscription = self._entering.get(number)
                if subscription is not None:
                    self._step(subscription, Step.KNOW)
        # Moves go on by barriers.
        if self._reach is not None:
            self._reach.look(now)
        # Barriers that came meanwhile are seen at the next call.
        interest.barriers_done[:] = others
        for route in self.planes if self._entering or self._moving else ():
            self._settle(route, now)

    def _do_early(self, now: Micros) -> None:
        """This node knows the fabric now: publish and subscribe everything that was put off."""
        self._early_at = NEVER
        waiting, self._waiting = self._waiting, {}
        for subscription in waiting.values():
            try:
                self.enter(subscription, now)
            except ValueError as error:
                self._local.remove(subscription.number)
                self._out.append(Note(Dropped("subscription", 1, str(error))))
                self._out.append(Note(Unsubscribed(subscription.number, f"refused: {error}")))
        self.report(now)
        early, self._early = self._early, []
        for batch, rows in early:
            self.publish(batch, now, rows)
