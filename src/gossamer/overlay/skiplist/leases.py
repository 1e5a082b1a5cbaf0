"""Leases of empty gaps, which are a safe form of the seed's "proxy filter" (section 3.4).

A dead end tells the publisher the gap that its event fell into. The publisher holds back further
events for that gap until ``lease`` after it *sent* the event. The granting entry counts from a
later moment, so it always outlives the lease. Entries at both ends of a gap grant leases for it.
When an entry joins into the gap, both ends revoke their leases. They say ``clear`` to the newcomer
once every lessee has answered or its lease has run out. The join is complete only then, so no due
event is held back.

A newcomer passes ``clear`` on only when it has been told so itself. Of two entries that join into
one gap, each hears it from its own side. No lease lasts longer than ``lease`` after both neighbours
have known an entry. So the entry need not wait longer than that, whichever node has died meanwhile.

An heir does not know the lessees of the entry that died. It says ``clear`` only when any lease must
have run out (``free_*_at``). A revocation may overtake the report that brings the lease, and the
numbers settle that.

A node begins a list anew when all others have left or died. It has no neighbour to ask, though
leases of the old list may be about. So a lease holds only within one **epoch**. That is a number
that the owner of the list changes whenever it hears of a new member while the members are few. A
subscription is not ready before every publisher has heard of its node.
"""

from __future__ import annotations

from gossamer.machine import NEVER, Micros
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.host import Host
from gossamer.overlay.skiplist.messages import Gap, Revoke, Revoked
from gossamer.overlay.skiplist.position import Position

# A publisher remembers at most this number of gaps.
HELD_MAX = 4_096
# One gap has at most this number of lessees.
LESSEES_MAX = 256


class Leases:
    def __init__(self, host: Host) -> None:
        self._host = host
        # This node relies on these gaps. The key is the entry that granted the lease, and the side
        # of it.
        self.gaps: dict[tuple[Position, bool], tuple[Gap, Micros, int]] = {}
        # This node takes no lease on an event that was sent up to this time, because it may have
        # forgotten a revocation.
        self._distrust = Micros(-1)
        # The leases of these entries are revoked up to the number. The node remembers that until
        # any such lease is over.
        self._void: dict[Position, tuple[int, Micros]] = {}

    # -------------------------------------------------------------------- granting

    def grant(self, entry: Entry, rightward: bool, publisher: int, now: Micros) -> Gap | None:
        """Return the gap at this side, for this publisher to rely on."""
        lessees = entry.lessees_right if rightward else entry.lessees_left
        if not self._host.config.lease or not entry.is_joined:
            return None
        if publisher not in lessees and len(lessees) >= LESSEES_MAX:
            self._prune(lessees, now)
            if len(lessees) >= LESSEES_MAX:
                return None
        lessees[publisher] = Micros(now + self._host.config.lease)
        entry.number += 1
        left, right = (entry.at, entry.right) if rightward else (entry.left, entry.at)
        return Gap(left, right, entry.at, entry.number)

    def is_relied_on(self, entry: Entry, now: Micros) -> bool:
        """Return whether a publisher may hold a lease of a gap beside this entry. The lease was
        granted by this entry, or by one whose heir it is.
        """
        for lessees in (entry.lessees_left, entry.lessees_right):
            self._prune(lessees, now)
        clear = self.is_clear(entry, rightward=True, now=now) and self.is_clear(
            entry, rightward=False, now=now
        )
        return bool(entry.lessees_left or entry.lessees_right) or not clear

    def void(self, entry: Entry, rightward: bool, now: Micros) -> None:
        """Take back the leases of the gap at this side, which has changed."""
        lessees = entry.lessees_right if rightward else entry.lessees_left
        self._prune(lessees, now)
        for peer, until in lessees.items():
            if peer == self._host.me:
                self._drop(entry.at, entry.number, now)
                continue
            self._host.send(peer, Revoke(self._host.topic, entry.at, entry.number), now)
            entry.waits[peer] = (until, entry.number)
            entry.lower = min(entry.lower, until)
            self._host.sooner(entry.lower)
        lessees.clear()

    def remind(self, entry: Entry, now: Micros) -> None:
        """Repeat once a period the revocations without an answer, which may have been lost."""
        for peer, (until, number) in entry.waits.items():
            if until > now:
                self._host.send(peer, Revoke(self._host.topic, entry.at, number), now)

    def is_clear(self, entry: Entry, rightward: bool, now: Micros) -> bool:
        """Return whether no publisher relies any longer on the gap that was at this side before.

        A newcomer knows that only of gaps from its own time on. Of the time before, the neighbour
        at its other side must say so.
        """
        if entry.waits:
            self._outlive(entry, now)
        told = entry.is_joined or (entry.cleared_left if rightward else entry.cleared_right)
        return (
            told
            and not entry.waits
            and now >= (entry.free_right_at if rightward else entry.free_left_at)
        )

    def wake(self, entry: Entry, now: Micros) -> bool:
        """Return whether the last lease that the entry waited for has just run out."""
        before = bool(entry.waits)
        self._outlive(entry, now)
        return before and not entry.waits

    def _outlive(self, entry: Entry, now: Micros) -> None:
        for peer in [peer for peer, (until, _) in entry.waits.items() if until <= now]:
            del entry.waits[peer]
        entry.lower = min((until for until, _ in entry.waits.values()), default=NEVER)

    def _prune(self, lessees: dict[int, Micros], now: Micros) -> None:
        for peer in [peer for peer, until in lessees.items() if until <= now]:
            del lessees[peer]

    def receive_revoked(self, sender: int, message: Revoked, now: Micros) -> Entry | None:
        """Return the entry if it waits for no other lessee now."""
        entry = self._host.entries.get(message.by[0])
        if entry is None or entry.at != message.by:
            return None
        waits = entry.waits.get(sender)
        if waits is None or message.number < waits[1]:
            # This is the answer to an earlier revocation.
            return None
        del entry.waits[sender]
        self._outlive(entry, now)
        return entry if not entry.waits else None

    # --------------------------------------------------------------------- holding

    def hold(self, gap: Gap, sent_at: Micros, now: Micros, epoch: int = 0) -> None:
        """Take the lease that a report has brought for an event of that time and epoch."""
        until = Micros(sent_at + self._host.config.lease)
        void = self._void.get(gap.by)
        if (
            until <= now
            or sent_at <= self._distrust
            or (void is not None and gap.number <= void[0])
        ):
            return
        if len(self.gaps) >= HELD_MAX:
            self.gaps.pop(next(iter(self.gaps)))
        self.gaps[gap.by, gap.left == gap.by] = (gap, until, epoch)

    def is_held(self, low: Position, high: Position, now: Micros) -> bool:
        """Return whether the interval is known to be empty."""
        present = self._host.epoch()
        for by, (gap, until, epoch) in list(self.gaps.items()):
            if until <= now or epoch != present:
                del self.gaps[by]
            elif gap.left < gap.right:
                if gap.left < low and high <= gap.right:
                    return True
            elif gap.left < low or high <= gap.right:
                return True
        return False

    def receive_revoke(self, sender: int, message: Revoke, now: Micros) -> None:
        if message.by[1] != sender:
            return
        self._drop(message.by, message.number, now)
        self._host.counters["revoked"] += 1
        self._host.send(sender, Revoked(self._host.topic, message.by, message.number), now)

    def _drop(self, by: Position, number: int, now: Micros) -> None:
        for side in (False, True):
            held = self.gaps.get((by, side))
            if held is not None and held[0].number <= number:
                del self.gaps[by, side]
        for place in [place for place, (_, until) in self._void.items() if until <= now]:
            del self._void[place]
        if len(self._void) >= HELD_MAX:
            self._void.pop(next(iter(self._void)))
            self._distrust = now
        self._void[by] = (number, Micros(now + 2 * self._host.config.lease))

    @property
    def held(self) -> list[tuple[Gap, Micros]]:
        """The gaps that this node relies on, each with the end of its lease."""
        present = self._host.epoch()
        return [(gap, until) for gap, until, epoch in self.gaps.values() if epoch == present]
