"""Links that machines open and close themselves: addresses, dialling, hanging up.

A dial takes a round trip, and then both ends are told UP. Nothing happens, which is counted, if
nobody lives at the address, if a partition (in either direction) or a clog is in between, or if the
two are joined already. A paused process can be dialled as any other, because its kernel answers. It
hears of the link when it goes on.

A node that hangs up is told DOWN at once, and the far end after the messages that are on its way. A
process that dies is noticed after a while. A host that dies leaves a half-open link. It is found by
its silence, or when something is sent to the host after it is back, or when the host's own new
connection takes the place of the old one.
"""

from __future__ import annotations

from collections.abc import Callable

from gossamer.machine import Peer
from gossamer.sim.network import Link, Network
from gossamer.sim.rules import SILENCE


class Switchboard:
    """``life`` tells the life of a node. It is 0 if the node is down."""

    def __init__(self, network: Network, life: Callable[[int], int]) -> None:
        self._network, self._life = network, life
        self._clock = network.clock
        self._at: dict[str, int] = {}
        self._by_peer: dict[Peer, int] = {}
        network.knocked = self._knocked

    def add(self, index: int, address: str) -> None:
        assert address not in self._at, f"two nodes at {address}"
        if address:
            self._at[address] = index
        self._by_peer[self._network.peer(index)] = index

    def by_peer(self, peer: Peer) -> int:
        return self._by_peer[peer]

    def dial(self, index: int, address: str, peer: Peer | None = None) -> None:
        network, far = self._network, self._at.get(address)
        network.count("dial")
        if far is not None and peer not in (None, network.peer(far)):
            network.count("dial of somebody else")
        elif far is None or not self._life(far) or not self._can_meet(index, far):
            network.count("dial unanswered")
        elif far == index or self._joined(index, far):
            network.count("dial needless")
        else:
            at = self._clock.now + network.one_way(index, far) + network.one_way(far, index)
            self._clock.push(at, self._meet, index, far, (self._life(index), self._life(far)))

    def hang_up(self, index: int, peer: Peer) -> bool:
        """Close this end. The caller tells the machine. Returns whether there was a link."""
        network = self._network
        link = network.links[index].get(peer)
        if link is None or not link.pair.dialled:
            network.count("hangup of nothing")
            return False
        network.count("hangup")
        network.hang_up(link)
        network.lose(link, max(link.last, self._clock.now + network.one_way(index, link.to)))
        return True

    def lost(self, end: Link, *, silent: bool) -> None:
        """The process at this end is gone.

        The far end notices after a while, or by the silence if the host is gone, too.
        """
        self._network.lose(end, self._clock.now + SILENCE if silent else self._network.later())

    def _meet(self, index: int, far: int, lives: tuple[int, int]) -> None:
        if (self._life(index), self._life(far)) != lives or not self._can_meet(index, far):
            self._network.count("dial unanswered")
        elif self._joined(index, far):
            # Both ends have dialled at once.
            self._network.count("dial needless")
        else:
            self._network.connect(index, far)

    def _can_meet(self, a: int, b: int) -> bool:
        return self._network.passes(a, b) and self._network.passes(b, a)

    def _joined(self, a: int, b: int) -> bool:
        link = self._network.links[a].get(self._network.peer(b))
        return link is not None and link.up and link.back.up

    def _knocked(self, link: Link) -> None:
        """A message came over a link whose far end is gone.

        If that end's host is there, it says so.
        """
        if self._life(link.to) and self._network.passes(link.to, link.sender):
            self._network.lose(
                link.back, self._clock.now + self._network.one_way(link.to, link.sender)
            )
