"""The links that the overlay should have, the links that are up, and how one becomes the other.

The member set implies the overlay (graph.py), so a node knows its neighbours without asking. Two
nodes whose views differ for a moment may disagree. So each end of a link says whether it wants the
link, and a link is closed only when neither end has wanted it for a while. A node that lacks some
of its neighbours wants all the links that it has. So no link goes before its replacement is up.

Lost peers are remembered with their addresses and dialled now and then, so that two halves of a
partition find each other. The rate is shared: the whole fabric, however large it is, makes about
two attempts a second on each lost peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from gossamer.machine import MILLISECOND, NEVER, Dial, Effect, Hangup, Micros, Peer, Send
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.messages import Want
from gossamer.overlay.interest.view import View

# The greater peer waits this long for the smaller one to dial.
SECOND_DIALLER = Micros(300 * MILLISECOND)
# Attempts a second on each lost peer, from the whole fabric.
LOST_DIALS = 2.0
# Lost peers that one node dials at once.
LOST_A_TICK = 4


class Link:
    """A link that is up."""

    __slots__ = (
        "differs",
        "greeted",
        "heard",
        "mine",
        "refused",
        "theirs",
        "unwanted_since",
        "up_at",
    )

    def __init__(self, now: Micros) -> None:
        self.up_at = self.heard = now
        # The peer has said its name.
        self.greeted = False
        # This end wants the link.
        self.mine = False
        # The other end wants it.
        self.theirs = False
        self.unwanted_since = NEVER
        # There are too many links. The peer is told our view, and the link is closed.
        self.refused = False
        # Signs of life in a row with another digest.
        self.differs = 0

    @property
    def is_wanted(self) -> bool:
        return self.mine or self.theirs or not self.greeted


class Links:
    def __init__(
        self,
        me: Peer,
        config: InterestConfig,
        view: View,
        rng: Random,
        named: Mapping[str, Peer | None] | None = None,
    ) -> None:
        """``named`` has the peers that are expected at the addresses to begin with, as far as
        they are known.
        """
        self.up: dict[Peer, Link] = {}
        # With the time since when.
        self.wanted: dict[Peer, Micros] = {}
        # Wanted peers that are not linked, with the time since when.
        self.missing: dict[Peer, Micros] = {}
        self.deadline = Micros(0)
        # Hung up by us.
        self.closing: dict[Peer, None] = {}
        # This node leaves: its links serve the others only.
        self.leaving = False
        self._me, self._config, self._view, self._rng = me, config, view, rng
        self._named = named or {}
        self._membership = -1
        self._lost_joins: list[str] = []
        # The addresses of members.
        self._taken: set[str] = set()
        self._lost_at = -1
        # With the time of the last attempt.
        self._dialled: dict[str, Micros] = {}
        self._joins = 0

    def opened(self, peer: Peer, now: Micros) -> Link:
        link = self.up[peer] = Link(now)
        link.refused = len(self.up) > self._config.links_max and peer not in self.wanted
        link.mine = self._wants(peer)
        self.missing.pop(peer, None)
        self.closing.pop(peer, None)
        self.deadline = min(self.deadline, Micros(now + self._config.settle))
        return link

    def closed(self, peer: Peer, now: Micros) -> bool:
        """A link is closed. Returns whether this node closed it."""
        self.up.pop(peer, None)
        if peer in self.wanted:
            self.missing.setdefault(peer, now)
            known = self._view.members.get(peer)
            if known is not None:
                # It is dialled again at once: a broken connection is not a dead host.
                self._dialled.pop(known.record.address, None)
        self.deadline = min(self.deadline, Micros(now + self._config.settle))
        return self.closing.pop(peer, 0) is None

    def kept(self, peer: Peer, now: Micros) -> None:
        """The link was not hung up after all."""
        self.closing.pop(peer, None)
        link = self.up.get(peer)
        if link is not None:
            link.refused = False
            if link.unwanted_since != NEVER:
                link.unwanted_since = now
            link.up_at = now

    def carriers(self) -> list[Peer]:
        """The links that news goes over.

        The news that this node leaves goes over all links, because a peer may not have said yet
        whether it wants one.
        """
        return [
            peer
            for peer, link in self.up.items()
            if link.greeted and (link.mine or link.theirs or self.leaving)
        ]

    def _wants(self, peer: Peer) -> bool:
        if self.leaving:
            return False
        # Some neighbour is not linked yet, so every link counts.
        if peer in self.wanted or self.missing:
            return True
        # A newcomer that knows no other member wants any link.
        return len(self._view.members) == 1 and peer not in self._view.tombs

    def upkeep(self, now: Micros) -> list[Effect]:
        """Brings the links nearer to the wanted ones. ``deadline`` says when to look again."""
        config, view = self._config, self._view
        effects: list[Effect] = []
        if view.membership != self._membership:
            self._membership = view.membership
            before = self.wanted
            self.wanted = {peer: before.get(peer, now) for peer in view.neighbours(self._me)}
        self.missing = {
            peer: self.missing.get(peer, now) for peer in self.wanted if peer not in self.up
        }
        for peer in self.missing if not self.leaving else ():
            effects += self._dial_member(peer, now)
        effects += self._tell_wants(now)
        effects += self._close_unwanted(now)
        effects += self._dial_joins(now)
        self.deadline = self._next(now)
        if len(self._dialled) > 4 * config.links_max:
            self._dialled = {a: at for a, at in self._dialled.items() if at + config.dial > now}
        return effects

    def _next(self, now: Micros) -> Micros:
        config = self._config
        if self.missing:
            return Micros(now + config.settle)
        if len(self._view.members) == 1 and config.join:
            return Micros(now + config.dial // 4)
        if any(
            link.refused or not link.greeted or link.unwanted_since != NEVER
            for link in self.up.values()
        ):
            return Micros(now + config.linger // 4)
        return NEVER

    def _dial_member(self, peer: Peer, now: Micros) -> list[Effect]:
        known = self._view.members.get(peer)
        if known is None or not known.record.address:
            return []
        if self._me > peer and now - self.missing[peer] < SECOND_DIALLER:
            return []
        return self._dial(known.record.address, peer, now)

    def _dial(self, address: str, peer: Peer | None, now: Micros) -> list[Effect]:
        last = self._dialled.get(address)
        if last is not None and now - last < self._config.dial:
            return []
        self._dialled[address] = now
        return [Dial(address, peer)]

    def _dial_joins(self, now: Micros) -> list[Effect]:
        """Dials the addresses to begin with, in turn, while this node is alone."""
        join = self._config.join
        if not join or len(self._view.members) > 1 or self.up:
            return []
        if not self._joins:
            # A random start, so that not all newcomers dial the first address.
            self._joins = 1 + int(self._rng.random() * len(join))
        self._joins += 1
        address = join[self._joins % len(join)]
        return [Dial(address, self._named.get(address))]

    def dial_lost(self, now: Micros) -> list[Effect]:
        """Tries some of the lost peers, once a second. Perhaps only the network was broken."""
        view, rng = self._view, self._rng
        chance = LOST_DIALS / max(1, len(view.members))
        if self._lost_at != view.membership and (view.tombs or self._config.join):
            self._lost_at = view.membership
            self._taken = {member.record.address for member in view.members.values()}
            # An address to begin with whose node is not a member is lost, too.
            self._lost_joins = [
                address for address in self._config.join if address not in self._taken
            ]
        if not view.tombs and not self._lost_joins:
            return []
        addresses: list[tuple[str, Peer | None]] = [
            (address, self._named.get(address)) for address in self._lost_joins
        ]
        addresses += [
            (tomb.address, peer)
            for peer, tomb in view.tombs.items()
            if tomb.address
            and not tomb.gone.left
            # By a node that came after it.
            and tomb.address not in self._taken
        ]
        expected = chance * len(addresses)
        count = min(LOST_A_TICK, int(expected) + (rng.random() < expected % 1))
        effects: list[Effect] = []
        for _ in range(count):
            effects += self._dial(*addresses[int(rng.random() * len(addresses))], now)
        return effects

    def _tell_wants(self, now: Micros) -> list[Effect]:
        turned: dict[bool, list[Peer]] = {True: [], False: []}
        for peer, link in self.up.items():
            mine = self._wants(peer)
            if mine != link.mine:
                link.mine = mine
                turned[mine].append(peer)
            unwanted = (
                not mine and link.greeted and not (link.theirs and peer in self._view.members)
            )
            if not unwanted:
                link.unwanted_since = NEVER
            elif link.unwanted_since == NEVER:
                link.unwanted_since = now
        return [Send(tuple(peers), Want(mine)) for mine, peers in turned.items() if peers]

    def _close_unwanted(self, now: Micros) -> list[Effect]:
        config = self._config
        effects: list[Effect] = []
        for peer, link in self.up.items():
            is_stranger = not link.greeted and now - link.up_at > 4 * config.linger
            if link.refused and peer in self.wanted:
                link.refused = False
            overdue = link.refused and now - link.up_at > config.linger
            if peer not in self.closing and (
                is_stranger or overdue or now - link.unwanted_since >= config.linger
            ):
                self.closing[peer] = None
                effects.append(Hangup(peer))
        excess = len(self.up) - 2 * config.links_max
        # There is no room even for peers that are only told our view.
        if excess > 0:
            for peer, link in list(self.up.items())[::-1]:
                if excess > 0 and link.refused and peer not in self.closing:
                    self.closing[peer] = None
                    effects.append(Hangup(peer))
                    excess -= 1
        return effects
