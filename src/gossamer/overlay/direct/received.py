"""Portions at the subscribing node: each is handed over once, and answered each time it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gossamer.filters import loops
from gossamer.machine import Effect, Micros, Note, Peer, Send
from gossamer.overlay.batch import DISCARDED, WINDOW_MAX, Batch, parted, spread
from gossamer.overlay.delivery.engine import Arrive
from gossamer.overlay.delivery.lives import Lives
from gossamer.overlay.delivery.outstanding import Outstanding
from gossamer.overlay.direct.messages import Holding, Portion, Taken, brief
from gossamer.trace import Dropped, Duplicate, Rejected, hex_peer

# The most lives of publishers that are remembered.
LIVES_MAX = 65_536
# The most lives of one publisher. The lives that were unused longest are forgotten.
LIVES_EACH = 16
# The most portions of one life that are remembered. Another one waits until its floor has risen.
TAKEN_MAX = 1 << 18

Alike = tuple[int, int, int, str]
"""Portions that may have the same events: publisher, incarnation, first sequence number, group."""

BatchPart = tuple[int, int, int, int]
"""A portion: publisher, incarnation, first sequence number, part."""


class _Taken:
    """A portion that was handed over.

    A publisher that has crashed cuts its batches by the wishes that it knows in its new life. So
    other events may come under the same id, and the same events under another id.
    """

    __slots__ = ("alike", "before", "group", "matched", "places")

    def __init__(
        self, group: str, places: Sequence[int], before: dict[int, int], *alike: Alike
    ) -> None:
        self.group, self.places, self.before = group, places, before
        # By these, other portions of the batch find it, and the portions that it has replaced.
        self.alike = alike
        # None while the owner still has it.
        self.matched: tuple[int, ...] | None = None

    def took(self, matched: tuple[int, ...]) -> tuple[int, ...]:
        if self.before:
            counts = spread(matched or (0,), len(self.places))
            matched = tuple(
                [
                    self.before.get(place, count)
                    for place, count in zip(self.places, counts, strict=True)
                ]
            )
        self.matched = matched
        return matched


class Received:
    def __init__(
        self, me: Peer, arrive: Arrive, out: list[Effect], outstanding: Outstanding
    ) -> None:
        self._arrive, self._out, self._outstanding = arrive, out, outstanding
        # A publisher is the peer that sends, so a peer can fill only its own part of the table.
        self._lives: Lives[_Taken] = Lives(me, self._forget, most=LIVES_MAX, share=LIVES_EACH)
        self._alike: dict[Alike, list[_Taken]] = {}

    @property
    def remembered(self) -> int:
        return self._lives.remembered

    def _forget(self, taken: _Taken) -> None:
        # All portions of a batch fall below the floor together.
        for alike in taken.alike:
            self._alike.pop(alike, None)

    def portion(self, sender: Peer, message: Portion, now: Micros) -> None:
        first, part, floor, offsets = message.first, message.part, message.floor, message.offsets
        problem, places = "", offsets or range(message.count)
        if message.publisher != sender:
            problem = "events of somebody else"
        elif not places:
            problem = "no events"
        elif floor > first or first + places[-1] - floor > WINDOW_MAX:
            problem = "events outside their publisher's window"
        elif offsets and not loops.ascends(offsets):
            problem = "events out of order"
        if problem:
            self._out.append(Note(Rejected(hex_peer(sender), problem)))
            return
        life = self._lives.use(int(sender), message.incarnation, floor, int(sender))
        if life is None:
            self._put_off(sender, message, f"more than {LIVES_EACH} lives of one publisher")
            return
        known = life.batches.get((first, part))
        is_same = known is not None and known.group == message.group and known.places == places
        if is_same or first < life.floor:
            self._out.append(Note(Duplicate(hex_peer(sender), len(places))))
            self._answer(sender, message, known.matched if known is not None else ())
            return
        alike = (sender, message.incarnation, first, message.group)
        shares = self._alike.get(alike, ())
        if (known is not None and known.matched is None) or (
            shares and any(one.matched is None for one in shares)
        ):
            # A portion of an earlier life of the publisher is under way, and ends first.
            self._answer(sender, message, None)
            return
        if known is None and len(life.batches) >= TAKEN_MAX:
            self._put_off(sender, message, f"more than {TAKEN_MAX} portions of one publisher")
            return
        before: dict[int, int] = {}
        if shares:
            counts = {
                place: n for one in shares if one.matched
                for place, n in
                zip(one.places, spread(one.matched, len(one.places)), strict=True) if n
            }  # fmt: skip
            before = {place: counts[place] for place in places if place in counts} if counts else {}
        if known is None:
            entry = life.add((first, part), _Taken(message.group, places, before, alike))
        else:
            entry = _Taken(message.group, places, before, alike, *known.alike)
            life.batches[first, part] = entry
        self._alike.setdefault(alike, []).append(entry)
        matched = (
            self.hand_over(sender, message, 1, now, before) if len(before) < len(places) else ()
        )
        if matched is not None:
            self._answer(sender, message, entry.took(matched))
            return
        life.under_way += 1
        self._outstanding.owe((int(sender), *_id(message)), sender, now)

    def _put_off(self, sender: Peer, message: Portion, reason: str) -> None:
        self._out.append(Note(Dropped("batch", len(message.places), reason)))
        self._out.append(Send((sender,), Holding(*_id(message), False)))

    def _answer(self, sender: Peer, message: Portion, matched: tuple[int, ...] | None) -> None:
        self._out.append(
            Send(
                (sender,),
                Holding(*_id(message))
                if matched is None
                else _taken(message.incarnation, message.first, message.part, matched),
            )
        )

    def hand_over(
        self,
        publisher: Peer,
        message: Portion,
        hops: int,
        now: Micros,
        before: Mapping[int, int] | None = None,
    ) -> tuple[int, ...] | None:
        """Hands it to the owner. Returns the counts, or None if ``took`` will tell them later."""
        first, offsets = message.first, message.offsets or range(message.count)
        batch = Batch(
            message.topic, publisher, message.incarnation, first, len(offsets), message.floor, 0,
            hops, message.rows,
        )  # fmt: skip
        whole = offsets[-1] == len(offsets) - 1
        numbers: Sequence[int] = (
            range(first, first + len(offsets)) if whole else loops.shifted(offsets, first)
        )
        done = {first + place: count for place, count in before.items()} if before else {}
        return self._arrive(batch, now, numbers, message.group, message.part, done)

    def took(self, key: BatchPart, matched: tuple[int, ...]) -> None:
        publisher, incarnation, first, part = key
        life = self._lives.get(publisher, incarnation)
        taken = life.batches.get((first, part)) if life is not None else None
        if taken is not None:
            matched = taken.took(matched)
        if self._outstanding.answered(key) and life is not None:
            life.under_way -= 1
        self._out.append(Send((Peer(publisher),), _taken(incarnation, first, part, matched)))


def _taken(incarnation: int, first: int, part: int, counts: tuple[int, ...]) -> Taken:
    if len(counts) == 1 and counts[0] < DISCARDED:
        # This is the usual answer of a node with one subscription.
        return Taken(incarnation, first, part, counts)
    return Taken(incarnation, first, part, *parted(brief(counts)))


def _id(message: Portion) -> tuple[int, int, int]:
    return message.incarnation, message.first, message.part
