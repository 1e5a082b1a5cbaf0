"""``route = direct`` in a node: the view says who takes a topic this way, and where they are; overlay/direct does the rest."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from gossamer.filters import Filter, Schema
from gossamer.filters.tree import TRUE
from gossamer.machine import Effect, Micros, Note, Peer
from gossamer.node.local import Local
from gossamer.node.planes import BITS, Key, Plane, Route, Rows, is_end
from gossamer.node.rights import Rights
from gossamer.overlay.batch import Batch
from gossamer.overlay.delivery.engine import Arrive, Complete, LeftOut
from gossamer.overlay.direct.core import Direct
from gossamer.overlay.direct.plan import Payload
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.record import ViewChange, read_stamp
from gossamer.trace import Dropped

_BIT = BITS[Route.DIRECT]
EPOCHS = 2**52


class _Members:
    def __init__(self, interest: Interest) -> None:
        self.rights: Rights | None = None
        self._interest = interest

    @property
    def version(self) -> int:
        """Counts changes of what ``takers`` says that the view does not tell."""
        return self.rights.version if self.rights is not None else 0

    def takers(self, topic: str) -> list[Peer]:
        rights = self.rights
        return [
            peer
            for peer, stamp in self._interest.interested(topic).items()
            if read_stamp(stamp)[1] & _BIT and (rights is None or rights.may_subscribe(peer, topic))
        ]

    def address(self, peer: Peer) -> str | None:
        known = self._interest.view.members.get(peer)
        return known.record.address if known is not None else None

    def hash(self, topic: str) -> int:
        return int.from_bytes(self._interest.names.hash(topic), "big")


class DirectPlane(Plane):
    def __init__(
        self,
        interest: Interest,
        rng: Random,
        schemas: dict[str, Schema],
        local: Local,
        arrive: Arrive,
        complete: Complete,
        left_out: LeftOut,
        out: list[Effect],
    ) -> None:
        epoch = 1 + int(
            rng.random() * EPOCHS
        )  # what an earlier life has told is not mistaken for this one's
        self.members = _Members(interest)
        self.machine = machine = Direct(
            interest.me, epoch, self.members, arrive, complete, left_out, out
        )
        self.receive, self.wake, self.link = machine.receive, machine.wake, machine.link  # type: ignore[method-assign]
        self.needs, self.renew = machine.needs, machine.renew  # type: ignore[method-assign]
        self.refused = machine.refused  # type: ignore[method-assign]
        self._me, self._schemas, self._local = interest.me, schemas, local
        self._complete, self._out = complete, out
        self._topics: dict[int, str] = {}  # by subscription

    @property
    def remembered(self) -> int:
        return self.machine.remembered

    def about(self) -> dict[str, Any]:
        """What this node knows of others' filters, as plain data."""
        return {"watched": self.machine.watched, "resent": self.machine.resent}

    # ---------------------------------------------------------------------- inputs

    @property
    def deadline(self) -> Micros:
        return self.machine.deadline

    def changed(self, change: ViewChange, now: Micros) -> None:
        before, after = change.before, change.after
        if change.peer == self._me:
            return
        if is_end(change):
            self.machine.gone(change.peer, now, anew=after is not None)
        elif (
            change.is_interest
            or before is None
            or (after is not None and before.address != after.address)
        ):
            self.machine.view_changed(now)

    # -------------------------------------------------------------------- commands

    def subscribe(self, number: int, topic: str, filter: Filter, group: str, now: Micros) -> None:
        weakened = filter.weakened
        self._topics[number] = topic
        self.machine.subscribe(
            number, topic, "" if weakened.tree == TRUE else weakened.text, group, now
        )

    def unsubscribe(self, number: int, now: Micros) -> None:
        self.machine.unsubscribe(number, self._topics.pop(number), now)

    def take_laid(self) -> list[int]:
        laid, self.machine.told.laid = self.machine.told.laid, []
        return laid

    def knows(self, topic: str) -> bool:
        return topic in self._schemas

    def expect(self, topic: str, now: Micros) -> None:
        """Somebody here has advertised the topic, and will perhaps publish on it."""
        self.machine.expect(topic, self._local.topic(topic).packed, now)

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> None:
        packed = self._local.topic(batch.topic).packed
        try:
            payload = Payload(batch, packed, rows)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            # Of an earlier life, when the topic had another schema: nobody takes them.
            reason = f"events on {batch.topic!r}: {error}"
            self._out.append(Note(Dropped("event", batch.count, reason)))
            self._complete(batch.incarnation, batch.first, (0,) * batch.count)
            return
        self.machine.publish(batch, payload, packed, now)

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> None:
        self.machine.took((key[0], key[1], key[2], key[3]), matched, now)
