"""Checkers of the interest plane: one property each, written so that they can fail.

    topics        a node's own record has exactly the topics that its users asked for
    agreement     once quiet, every live node's view is the truth: exactly the live nodes, each with
                  its newest record
    connectivity  once quiet, the links that are up stay connected when any K - 1 nodes are taken
                  away
    degrees       once quiet, no node has more links than the bound
    diameter      once quiet, no two nodes are further apart than the bound
    removals      no live node is taken out of a view
    burial        a life that is over, and that every view has dropped, never comes back
    hidden        a node that missed an unsubscription is told that the topic was left or came back
    exact         a ViewChange names exactly the differences from the last one to this observer
    news          nothing is said twice on a link, unless it was asked for
    hops          no change makes more hops than there are nodes

The checkers are told of steps (``changed``, ``commanded``, ...), and look at the whole fabric when
it is quiet (``quiet``).
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gossamer.lab.connectivity import diameter, vertex_connectivity
from gossamer.machine import LinkState, Message, Peer
from gossamer.overlay.interest.messages import Diff, Flip, Flips, Lone, News
from gossamer.overlay.interest.record import Known, Record, ViewChange
from gossamer.sim.checkers import Findings
from gossamer.sim.network import Packet
from gossamer.sim.world import AnyMachine, Node

# The most that messages can be late after the last view has dropped a dead life.
LATE = 5_000_000
# Messages that carry news.
NEWS = (Flip, Flips, News)
Item = Flip | Lone | Diff | Record


class ViewLike(Protocol):
    @property
    def members(self) -> Mapping[Peer, Known]: ...
    @property
    def digest(self) -> int: ...


class Member(AnyMachine, Protocol):
    """The attributes of a node's machine that the checkers read. ``Interest`` has them."""

    @property
    def record(self) -> Record: ...
    @property
    def view(self) -> ViewLike: ...


class Snapshot:
    """The fabric at one moment: the live nodes, the wishes of their users, and the links that are
    up at both ends.
    """

    def __init__(
        self,
        now: int,
        members: list[tuple[Node, Member]],
        wanted: Mapping[int, Mapping[bytes, Any]],
        adjacency: dict[int, list[int]],
    ) -> None:
        self.now, self.members, self.wanted, self.adjacency = now, members, wanted, adjacency


class Watch(Findings):
    """All methods may be left out."""

    def started(self, node: Node, now: int) -> None: ...
    def crashed(self, node: Node, now: int) -> None: ...
    def resumed(self, node: Node, now: int) -> None: ...
    def linked(self, node: Node, peer: Peer, state: LinkState, now: int) -> None: ...
    def commanded(self, node: Node, topic: bytes, left: bool, version: int) -> None: ...
    def changed(self, node: Node, change: ViewChange, now: int) -> None: ...
    def sending(
        self, node: Node, to: tuple[Peer, ...], message: Message, now: int, is_answer: bool
    ) -> None: ...
    def receiving(self, node: Node, sender: Node, packet: Packet, now: int) -> None: ...
    def quiet(self, fabric: Snapshot) -> None: ...


def _name(record: Record) -> str:
    return f"{record.peer:016x}, life {record.life}, version {record.version}"


def _pairs(record: Record | None) -> dict[bytes, int]:
    """For each topic its stamp.

    It reads the bytes on its own, as a second opinion on ``Record.pairs``.
    """
    if record is None:
        return {}
    topics, stamps = record.topics, record.stamps
    count = len(topics) // 8
    return {
        topics[8 * i : 8 * i + 8]: int.from_bytes(stamps[4 * i : 4 * i + 4], "big")
        for i in range(count)
    }


class Topics(Watch):
    name = "topics"

    def quiet(self, fabric: Snapshot) -> None:
        for node, member in fabric.members:
            wanted, has = fabric.wanted.get(node.index, {}), _pairs(member.record)
            missing = sum(topic not in has for topic in wanted)
            extra = sum(topic not in wanted for topic in has)
            if missing or extra:
                self.fail(
                    f"node {node.index}: its record lacks {missing} topics that its users want, "
                    f"and has {extra} they do not"
                )


class Agreement(Watch):
    name = "agreement"

    def quiet(self, fabric: Snapshot) -> None:
        truth = {node.peer: member.record for node, member in fabric.members}
        index = {node.peer: node.index for node, _ in fabric.members}
        for node, member in fabric.members:
            members = member.view.members
            for peer, record in truth.items():
                known = members.get(peer)
                if known is None:
                    self.fail(
                        f"node {node.index} does not know node {index[peer]} ({_name(record)})"
                    )
                elif known.record is not record and known.record != record:
                    self.fail(
                        f"node {node.index} has node {index[peer]} as {_name(known.record)}; right "
                        f"is {_name(record)}"
                    )
            for peer, known in members.items():
                if peer not in truth:
                    self.fail(f"node {node.index} holds {_name(known.record)}, which is not alive")
        if len({member.view.digest for _, member in fabric.members}) > 1 and not self.count:
            self.fail("the views are equal, their digests are not")


class Connectivity(Watch):
    name = "connectivity"

    def __init__(self, k: int) -> None:
        super().__init__()
        self._k, self.found = k, 0

    def quiet(self, fabric: Snapshot) -> None:
        nodes = len(fabric.adjacency)
        self.found = vertex_connectivity(fabric.adjacency) if nodes > 1 else 0
        if self.found < min(self._k, nodes - 1):
            self.fail(
                f"{self.found} nodes can cut this fabric of {nodes} apart; it takes {self._k} or "
                "all others"
            )


class Degrees(Watch):
    name = "degrees"

    def __init__(self, bound: int) -> None:
        super().__init__()
        self._bound = bound

    def quiet(self, fabric: Snapshot) -> None:
        for index, others in fabric.adjacency.items():
            if len(others) > self._bound:
                self.fail(f"node {index} has {len(others)} links; at most {self._bound} are right")


def degree_bound(k: int) -> int:
    """K links of a node's own choice, and those of the nodes that choose it. Most choices are
    mutual.

    Below K = 3 the overlay is a ring.
    """
    return 2 * k + 3 if k > 2 else 2


def diameter_bound(nodes: int, k: int) -> int:
    """The bound that the overlay promises (overlay/interest/graph.py).

    It is near that of random regular graphs. Below K = 3 the overlay is a ring.
    """
    if nodes <= k + 1:
        return 1
    return math.ceil(math.log(nodes) / math.log(k - 1)) + 3 if k > 2 else nodes // 2


class Diameter(Watch):
    name = "diameter"

    def __init__(self, k: int) -> None:
        super().__init__()
        self._k, self.found = k, 0

    def quiet(self, fabric: Snapshot) -> None:
        nodes = len(fabric.adjacency)
        self.found = diameter(fabric.adjacency) if nodes > 1 else 0
        if nodes > 1 and not 0 <= self.found <= diameter_bound(nodes, self._k):
            self.fail(
                f"{self.found} hops across {nodes} nodes; at most {diameter_bound(nodes, self._k)} "
                "are right"
            )


class Removals(Watch):
    """``life`` tells a peer's present life. It is None if the peer is down."""

    name = "removals"

    def __init__(self, life: Callable[[Peer], int | None]) -> None:
        super().__init__()
        self._life = life

    def changed(self, node: Node, change: ViewChange, now: int) -> None:
        before = change.before
        if change.reason == "left" or change.after is not None:
            # The peer said so itself, or it is not removed.
            return
        if before is not None and self._life(change.peer) == before.life:
            self.fail(
                f"node {node.index} took {_name(before)} out of its view at {now / 1e6:.3f} s, and "
                "it is alive"
            )


class Burial(Watch):
    name = "burial"

    def __init__(self) -> None:
        super().__init__()
        # For each (peer, life) the nodes whose view has it.
        self._holders: dict[tuple[int, int], dict[int, None]] = {}
        # For each node and peer the life.
        self._holds: dict[int, dict[int, int]] = {}
        # For each life that is over, the time when the last view dropped it.
        self._dead: dict[tuple[int, int], int] = {}
        # For each node the time when it goes through the messages that came while it stood still.
        self._resumed: dict[int, int] = {}

    def resumed(self, node: Node, now: int) -> None:
        self._resumed[node.index] = now

    def started(self, node: Node, now: int) -> None:
        self._holds[node.index] = {}
        machine: Any = node.machine
        # One of 256 nodes that begin without memory draws its old life again.
        self._dead.pop((node.peer, machine.record.life), None)
        # These are the records that its disk kept.
        for peer, known in machine.view.members.items():
            if peer != node.peer:
                self._hold(node.index, peer, known.record.life)

    def crashed(self, node: Node, now: int) -> None:
        for peer, life in self._holds.pop(node.index, {}).items():
            self._release(node.index, peer, life, now)
        ended: Any = node.ended
        self._dead[node.peer, ended.record.life] = now

    def changed(self, node: Node, change: ViewChange, now: int) -> None:
        held = self._holds.setdefault(node.index, {})
        if change.after is None:
            life = held.pop(change.peer, None)
            if life is not None:
                self._release(node.index, change.peer, life, now)
            return
        life, before = change.after.life, held.get(change.peer)
        if life == before:
            return
        key = (int(change.peer), life)
        since = self._dead.get(key)
        is_backlog = self._resumed.get(node.index) == now
        if (
            since is not None
            and not self._holders.get(key)
            and now > since + LATE
            and not is_backlog
        ):
            self.fail(
                f"node {node.index} took up {_name(change.after)} at {now / 1e6:.3f} s: "
                f"that life is over, and the last view had dropped it at {since / 1e6:.3f} s"
            )
        if before is not None:
            self._release(node.index, change.peer, before, now)
        self._hold(node.index, change.peer, life)

    def _hold(self, index: int, peer: int, life: int) -> None:
        self._holds[index][peer] = life
        self._holders.setdefault((peer, life), {})[index] = None

    def _release(self, index: int, peer: int, life: int, now: int) -> None:
        holders = self._holders[peer, life]
        holders.pop(index, None)
        if not holders and (peer, life) in self._dead:
            self._dead[peer, life] = now


class Hidden(Watch):
    name = "hidden"

    def __init__(self) -> None:
        super().__init__()
        # For each (peer, life) and topic the versions that left the topic.
        self._left: dict[tuple[int, int], dict[bytes, list[int]]] = {}

    def commanded(self, node: Node, topic: bytes, left: bool, version: int) -> None:
        if left:
            machine: Any = node.machine
            insort(
                self._left.setdefault((node.peer, machine.record.life), {}).setdefault(topic, []),
                version,
            )

    def changed(self, node: Node, change: ViewChange, now: int) -> None:
        before, after = change.before, change.after
        if before is None or after is None:
            return
        if before.life != after.life:
            told = dict.fromkeys((*change.left, *change.returned))
            for topic in _pairs(before):
                if topic not in told:
                    self.fail(
                        f"node {node.index} was not told that {topic.hex()} ended with "
                        f"{_name(before)}"
                    )
            return
        for topic, versions in self._left.get((int(change.peer), after.life), {}).items():
            missed = bisect_right(versions, after.version)
            if not missed or versions[missed - 1] <= before.version or topic not in _pairs(before):
                continue
            if topic not in change.left and topic not in change.returned:
                self.fail(
                    f"node {node.index} was not told that {change.peer:016x} left {topic.hex()} in "
                    "version "
                    f"{versions[missed - 1]}, between {before.version} and {after.version}"
                )


class Exact(Watch):
    name = "exact"

    def __init__(self) -> None:
        super().__init__()
        self.empty = 0
        # For each node the sum of its changes.
        self._shown: dict[int, dict[Peer, Record]] = {}

    def started(self, node: Node, now: int) -> None:
        machine: Any = node.machine
        self._shown[node.index] = {
            p: known.record for p, known in machine.view.members.items() if p != node.peer
        }

    def changed(self, node: Node, change: ViewChange, now: int) -> None:
        shown = self._shown.setdefault(node.index, {})
        before, after = change.before, change.after
        was, old, new = shown.get(change.peer), _pairs(before), _pairs(after)
        where = f"node {node.index}, {change.peer:016x} at {now / 1e6:.3f} s"
        if was is not before and (
            _pairs(was) != old or (was.life if was else -1) != (before.life if before else -1)
        ):
            self.fail(f"{where}: the change does not start from the last one told")
        if before is not None and after is not None and before.life == after.life and old == new:
            # A greater version of the same interest. It is exact, but nobody needed to be told.
            self.empty += 1
        new_life = before is not None and after is not None and before.life != after.life
        joined = [topic for topic in new if topic not in old]
        left = [topic for topic in old if topic not in new]
        returned = [t for t in new if t in old and (new_life or old[t] >> 2 != new[t] >> 2)]
        for what, right, said in (
            ("joined", joined, change.joined), ("left", left, change.left),
            ("returned", returned, change.returned)
        ):  # fmt: skip
            if sorted(right) != sorted(said):
                self.fail(f"{where}: {what} names {len(said)} topics, right are {len(right)}")
        if after is None:
            shown.pop(change.peer, None)
        else:
            shown[change.peer] = after

    def quiet(self, fabric: Snapshot) -> None:
        for node, member in fabric.members:
            shown = dict(self._shown.get(node.index, {}))
            for peer, known in member.view.members.items():
                told = shown.pop(peer, None)
                if peer != node.peer and (
                    told is None
                    or told.life != known.record.life
                    or _pairs(told) != _pairs(known.record)
                ):
                    self.fail(
                        f"node {node.index}: its changes do not add up to its view at {peer:016x}"
                    )
            if shown:
                self.fail(
                    f"node {node.index}: its changes add up to {len(shown)} members that its view "
                    "has not"
                )


class NewsOnly(Watch):
    """A node says nothing twice of its own accord, in rounds.

    The (life, version) that it tells of each peer rises on each link. Answers are another matter,
    because a node that asks again is told again. So are suspicions, which may be dropped and raised
    anew.
    """

    name = "news"

    def __init__(self) -> None:
        super().__init__()
        # For each (sender, receiver) the last news.
        self._said: dict[tuple[int, Peer], dict[int, tuple[int, int]]] = {}

    def linked(self, node: Node, peer: Peer, state: LinkState, now: int) -> None:
        if state in (LinkState.UP, LinkState.DOWN):
            self._said.pop((node.index, peer), None)

    def crashed(self, node: Node, now: int) -> None:
        for key in [key for key in self._said if key[0] == node.index]:
            del self._said[key]

    def sending(
        self, node: Node, to: tuple[Peer, ...], message: Message, now: int, is_answer: bool
    ) -> None:
        if is_answer or not isinstance(message, NEWS):
            return
        items = contents(message)
        for peer in to:
            said = self._said.setdefault((node.index, peer), {})
            for item in items:
                order = (item.life, item.version)
                if order <= said.get(item.peer, (-1, -1)):
                    what = (
                        f"{type(item).__name__} of {item.peer:016x}, life {item.life}, "
                        f"version {item.version}"
                    )
                    self.fail(
                        f"node {node.index} told {peer:016x} again at {now / 1e6:.3f} s: {what}"
                    )
                else:
                    said[item.peer] = order


def contents(message: Message) -> tuple[Item, ...]:
    """The records and changes in a message that carries news."""
    if isinstance(message, Flip):
        return (message,)
    if isinstance(message, Flips):
        return message.flips
    return (*message.diffs, *message.records) if isinstance(message, News) else ()


class Hops(Watch):
    name = "hops"

    def travelled(self, hops: int, nodes: int) -> None:
        if hops > nodes:
            self.fail(f"a change travelled {hops} hops in a fabric of {nodes} nodes")
