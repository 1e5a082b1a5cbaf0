"""The owners of keys: the interface that the tree asks of a DHT (section 3), and two providers.

The three properties. 1: the keys of a host are one arc. 2: each key has one owner. 3: each host
knows its own keys (``arc``).

``IdealRing`` is the seed's abstract component (section 4.1): one consistent object that all hosts
share, which never errs. ``ViewRing`` is fed by a part of the node that knows the members, the
interest plane. So each host has its own ring, and the rings may differ for a moment. Both providers
know every host and answer at once. Chord (lab/tree/chord.py) asks other hosts; its answers come
later, in ``found``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any, Protocol

from gossamer.machine import NEVER, LinkState, Micros, Peer
from gossamer.overlay.tree.arcs import BITS_MAX, Arc, Host
from gossamer.overlay.tree.reference import Neighbours, ReferenceTree


class RingError(ValueError):
    """A ring that cannot be."""


class TooManyHostsError(RingError):
    """More hosts than keys.

    The number of nodes of the reference tree bounds that of the hosts (section 3.1).
    """


class TakenError(RingError):
    """Two hosts with one key."""


class Ring(Protocol):
    """What a host knows of the ring. A machine as well, for providers that talk to others."""

    bits: int
    me: Host
    # Answers are never wrong for long without a change of ``arc``, a notice or a broken link
    # following.
    steady: bool
    # Answers that came later: the key, and the owner's arc or None (ask again).
    found: list[tuple[int, Arc | None]]

    @property
    def deadline(self) -> Micros: ...

    @property
    def arc(self) -> Arc | None:
        """This host's keys.

        None while it is not a member, or the hosts beside it do not know yet that it is one.
        """

    def lookup(self, key: int, now: Micros) -> Arc | None:
        """The arc that holds the key, if known here; None: the answer will be in ``found``."""

    def receive(self, sender: Peer, message: Any, now: Micros) -> None: ...
    def wake(self, now: Micros) -> None: ...
    def link(self, peer: Peer, state: LinkState, now: Micros) -> None: ...
    def failed(self, peer: Peer, now: Micros) -> None:
        """Nobody answers at this host's address."""


class Members:
    """Hosts in the order of their keys, and the arc of each."""

    def __init__(self, bits: int, hosts: Iterable[Host] = ()) -> None:
        if not 1 <= bits <= BITS_MAX:
            raise RingError(f"keys of {bits} bits; from 1 to {BITS_MAX} are possible")
        self.bits = bits
        self.keys: list[int] = []
        self.hosts: dict[int, Host] = {}
        # Counts changes.
        self.version = 0
        for host in hosts:
            self.add(host)

    def add(self, host: Host) -> None:
        if host.key >> self.bits:
            raise RingError(f"key {host.key} does not fit into {self.bits} bits")
        if len(self.keys) >> self.bits:
            raise TooManyHostsError(
                f"{1 << self.bits} keys are all taken: no room for another host"
            )
        if host.key in self.hosts:
            raise TakenError(f"key {host.key} is the key of another host")
        insort(self.keys, host.key)
        self.version += 1
        self.hosts[host.key] = host

    def remove(self, key: int) -> Host | None:
        host = self.hosts.pop(key, None)
        if host is not None:
            del self.keys[bisect_left(self.keys, key)]
            self.version += 1
        return host

    def owner(self, key: int) -> Arc | None:
        keys = self.keys
        if not keys:
            return None
        place = bisect_left(keys, key)
        if place == len(keys):
            place = 0
        return Arc(keys[place - 1], self.hosts[keys[place]])

    def __len__(self) -> int:
        return len(self.keys)


class KnownRing:
    """A ring whose members are all known here."""

    steady = True
    deadline = NEVER

    def __init__(self, me: Host, members: Members) -> None:
        self.me, self.members, self.bits = me, members, members.bits
        self.found: list[tuple[int, Arc | None]] = []
        self._arc: Arc | None = None
        self._version = -1

    @property
    def arc(self) -> Arc | None:
        if self._version != self.members.version:
            self._version = self.members.version
            arc = self.members.owner(self.me.key)
            if arc != self._arc:
                self._arc = arc if arc is not None and arc.host == self.me else None
        return self._arc

    def lookup(self, key: int, now: Micros) -> Arc | None:
        arc = self.members.owner(key % (1 << self.bits))
        if arc is None:
            self.found.append((key, None))
        return arc

    def receive(self, sender: Peer, message: Any, now: Micros) -> None:
        """Such a ring sends no messages, and gets none."""

    def wake(self, now: Micros) -> None: ...

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None: ...

    def failed(self, peer: Peer, now: Micros) -> None:
        """The part of the node that feeds the members decides which host is one."""


class IdealRing(KnownRing):
    """All hosts share one ``Members``: the same consistent view for everybody."""


class ViewRing(KnownRing):
    """This host's own view of the members.

    Of several that claim one key the smallest peer has it, wherever one asks.
    """

    def __init__(self, me: Host, bits: int, hosts: Iterable[Host] = ()) -> None:
        super().__init__(me, Members(bits, hosts))
        # By key: members that claim it too, and have it when the smallest is gone.
        self._others: dict[int, list[Host]] = {}

    def learn(self, host: Host) -> bool:
        """A member, perhaps at another address than before.

        Returns whether its key has another owner now.
        """
        known, others = self.members.hosts.get(host.key), self._others.get(host.key, [])
        if known == host or host in others:
            return False
        claims = [
            one
            for one in (*others, known, host)
            if one is not None and (one is host or one.peer != host.peer)
        ]
        first = min(claims, key=lambda one: one.peer)
        claims.remove(first)
        if claims:
            self._others[host.key] = claims
        if first == known:
            return False
        if known is not None:
            self.members.remove(known.key)
        self.members.add(first)
        return True

    def forget(self, host: Host) -> bool:
        others = self._others.get(host.key, [])
        if host in others:
            others.remove(host)
        has_gone = self.members.hosts.get(host.key) == host
        if has_gone:
            self.members.remove(host.key)
            if others:
                others.remove(heir := min(others, key=lambda one: one.peer))
                self.members.add(heir)
        if not others:
            self._others.pop(host.key, None)
        return has_gone


def reckon(tree: ReferenceTree, members: Members, key: int) -> Neighbours:
    """The neighbours of the host with this key, when every host is known.

    This is the closed form over the whole ring.
    """
    arc = members.owner(key)
    assert arc is not None
    asking = tree.neighbours(arc)
    try:
        wanted = next(asking)
        while True:
            owner = members.owner(wanted)
            assert owner is not None
            wanted = asking.send(owner)
    except StopIteration as done:
        found: Neighbours = done.value
        return found
