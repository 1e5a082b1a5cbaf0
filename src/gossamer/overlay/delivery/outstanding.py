"""What peers still owe this node, and what this node owes them, link by link.

A *part* of a batch goes to one peer, which answers for it once. While a link is up nothing on it is
lost, so a part is sent once. Three things may keep it from its peer:

    the link is down          the part waits until the link is up again, or its owner gives it up
    the queue is full         the part waits for READY; likewise where the link is held (``hold``)
    the queue has refused it  likewise: the driver hands the message back (``refused``)

A peer that owes an answer and cannot give it yet says so now and then. A peer that says nothing for
``patience`` is to be cut off, unless its queue is full or bytes move on its link. This node's clock
for other nodes' silence stands still while this node itself is too busy to hear them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from gossamer.machine import (
    MILLISECOND,
    NEVER,
    SECOND,
    Effect,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
)
from gossamer.trace import Rejected, hex_peer

PATIENCE = Micros(15 * SECOND)
"""Longest silence about a part. It is more than a slow subscriber's ``block``."""

LATE = 250 * MILLISECOND
"""An event loop may be this late without having been asleep."""


class Part:
    """A part that one peer answers for."""

    __slots__ = ("key", "message", "of", "peer", "region", "sign")

    def __init__(self, peer: Peer, key: Hashable, message: Message, region: Any, of: Any) -> None:
        self.peer, self.key, self.message = peer, key, message
        self.region = region
        # The record that waits for the answer.
        self.of = of
        # When the peer last gave a sign, by the clock that stands while this node sleeps.
        self.sign = Micros(0)


class Link:
    """One link that is up."""

    __slots__ = ("is_open", "kept", "parts")

    def __init__(self) -> None:
        self.is_open = True
        self.parts: dict[Hashable, Part] = {}
        # Parts among these that the queue has not taken.
        self.kept: dict[Hashable, Part] = {}


class Outstanding:
    def __init__(
        self,
        out: list[Effect],
        key: Callable[[Any], Hashable],
        sign: Callable[[Any], Message],
        *,
        patience: Micros = PATIENCE,
    ) -> None:
        """``key`` tells which part a message is, and ``sign`` makes the message that asks for
        patience.

        All nodes of a fabric have the same ``patience``. A node that waits says so four times
        meanwhile.
        """
        self.links: dict[Peer, Link] = {}
        self.patience, self.sign_every = patience, Micros(patience // 4)
        self.sent_again = 0
        # The whole time for which this node has slept through its timers.
        self.overslept = Micros(0)
        # Answers that this node owes: the peer, and when it was last told to wait.
        self.owed: dict[Hashable, tuple[Peer, Micros]] = {}
        # Parts whose peers have no link now.
        self.unlinked: dict[Peer, dict[Hashable, Part]] = {}
        # Parts for which the peer has no room now: it is asked again after a while.
        self._put_off: dict[tuple[Peer, Hashable], Part] = {}
        self._out, self._key, self._sign = out, key, sign
        self._waiting = 0
        # When to look for signs of life. NEVER if no peer owes an answer, and this node owes none.
        self.deadline: Micros = NEVER

    def waits_for(self, peer: Peer) -> bool:
        """Whether the peer owes an answer."""
        link = self.links.get(peer)
        return bool(self.unlinked.get(peer) or (link is not None and link.parts))

    # ------------------------------------------------------------------ parts of ours

    def send(self, part: Part, now: Micros) -> bool:
        """Send a part, or keep it until that is possible. Returns whether there is a link."""
        link = self.links.get(part.peer)
        if self.deadline == NEVER:
            self.deadline = Micros(now + self.sign_every)
        self._waiting += 1
        part.sign = Micros(now - self.overslept)
        if link is None:
            self.unlinked.setdefault(part.peer, {})[part.key] = part
            return False
        link.parts[part.key] = part
        if link.is_open:
            self._out.append(Send((part.peer,), part.message))
        else:
            link.kept[part.key] = part
        return True

    def send_alike(self, parts: list[Part], now: Micros) -> None:
        """Send parts with one message, which is encoded once. Parts without a link wait for one."""
        if self.deadline == NEVER:
            self.deadline = Micros(now + self.sign_every)
        self._waiting += len(parts)
        to: list[Peer] = []
        for part in parts:
            part.sign = Micros(now - self.overslept)
            link = self.links.get(part.peer)
            if link is None:
                self.unlinked.setdefault(part.peer, {})[part.key] = part
                continue
            link.parts[part.key] = part
            if link.is_open:
                to.append(part.peer)
            else:
                link.kept[part.key] = part
        if to:
            self._out.append(Send(tuple(to), parts[0].message))

    def find(self, peer: Peer, key: Hashable) -> Part | None:
        """The part for which the peer owes an answer."""
        link = self.links.get(peer)
        return link.parts.get(key) if link is not None else None

    def close(self, part: Part) -> None:
        """The part has been answered, or no branch waits for it any more."""
        link = self.links.get(part.peer)
        if link is not None and link.parts.pop(part.key, None) is not None:
            self._waiting -= 1
            if link.kept:
                link.kept.pop(part.key, None)
        else:
            unlinked = self.unlinked.get(part.peer)
            if unlinked is not None and unlinked.pop(part.key, None) is not None:
                self._waiting -= 1
                if not unlinked:
                    del self.unlinked[part.peer]
        if not self._waiting and not self.owed:
            self.deadline = NEVER

    def give_up(self, peer: Peer) -> list[Part]:
        """No branch waits for this peer any more. Returns the parts that it owed."""
        link = self.links.get(peer)
        parts = list(self.unlinked.pop(peer, {}).values())
        if link is not None:
            parts += link.parts.values()
            link.parts, link.kept = {}, {}
        self._waiting -= len(parts)
        if not self._waiting and not self.owed:
            self.deadline = NEVER
        return parts

    def heard(self, peer: Peer, key: Hashable, now: Micros) -> None:
        """The peer asks for patience."""
        part = self.find(peer, key)
        if part is not None:
            part.sign = Micros(now - self.overslept)

    def put_off(self, peer: Peer, key: Hashable, now: Micros) -> None:
        """The peer has no room for the part."""
        part = self.find(peer, key)
        if part is not None:
            part.sign = Micros(now - self.overslept)
            self._put_off[peer, key] = part

    def refused(self, peer: Peer, message: Message) -> None:
        """The queue to the peer was full and did not take this message. READY follows."""
        link = self.links.get(peer)
        key = self._key(message)
        if link is not None and key in link.parts:
            link.is_open = False
            link.kept[key] = link.parts[key]

    # ------------------------------------------------------------------ answers of ours

    def owe(self, key: Hashable, peer: Peer, now: Micros) -> None:
        """This node will answer the peer later."""
        if self.deadline == NEVER:
            self.deadline = Micros(now + self.sign_every)
        self.owed[key] = (peer, now)

    def answered(self, key: Hashable) -> bool:
        """This node has answered, or no peer waits for it. Returns whether it owed that answer."""
        is_owed = self.owed.pop(key, None) is not None
        if not self._waiting and not self.owed:
            self.deadline = NEVER
        return is_owed

    # -------------------------------------------------------------------------- links

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Part]:
        """Returns the parts that were lost, for which the peer will not answer.

        They wait for the link to come back, unless their owner closes them.
        """
        if state is LinkState.UP:
            self._open(peer, self.links.setdefault(peer, Link()))
            waiting = self.unlinked.pop(peer, {})
            self._waiting -= len(waiting)
            self.sent_again += len(waiting)
            for part in waiting.values():
                self.send(part, now)
            return []
        link = self.links.get(peer)
        if link is None:
            return []
        if state is LinkState.READY:
            self._open(peer, link)
            return []
        if state is LinkState.FULL:
            link.is_open = False
            return []
        if state is LinkState.MOVING:
            # It is slow, and its peer is not silent.
            for part in link.parts.values():
                part.sign = Micros(now - self.overslept)
            return []
        del self.links[peer]
        if link.parts:
            self.unlinked.setdefault(peer, {}).update(link.parts)
        return list(link.parts.values())

    def hold(self, peer: Peer) -> None:
        """There is a link, and nothing may go over it before ``link`` says that it is up."""
        self.links.setdefault(peer, Link()).is_open = False

    def _open(self, peer: Peer, link: Link) -> None:
        link.is_open = True
        kept, link.kept = link.kept, {}
        for part in kept.values():
            self._out.append(Send((peer,), part.message))

    def woken(self, due: Micros, now: Micros) -> None:
        """This node has woken up for a timer that was due then."""
        if now - due > LATE:
            self.overslept = Micros(self.overslept + now - due)

    def wake(self, now: Micros) -> list[Part]:
        """Returns the parts of peers that have said nothing for too long."""
        if now < self.deadline:
            return []
        if not self._waiting and not self.owed:
            self.deadline = NEVER
            return []
        self.deadline = Micros(now + self.sign_every)
        put_off, self._put_off = self._put_off, {}
        for (peer, key), part in put_off.items():
            if self.find(peer, key) is part and key not in self.links[peer].kept:
                self.sent_again += 1
                self._out.append(Send((peer,), part.message))
        for key, (peer, since) in self.owed.items():
            if now - since >= self.sign_every and peer in self.links:
                self.owed[key] = (peer, now)
                self._out.append(Send((peer,), self._sign(key)))
        awake = now - self.overslept
        mute: list[Part] = []
        for peer, link in self.links.items():
            if not link.is_open:
                # The queue is full, so the peer may not have got any of them yet.
                for part in link.parts.values():
                    part.sign = Micros(awake)
                continue
            silent = [part for part in link.parts.values() if awake - part.sign >= self.patience]
            if silent:
                self._out.append(Note(Rejected(hex_peer(peer), "does not report", cut=True)))
                for part in silent:
                    part.sign = Micros(awake)
                mute += silent
        return mute
