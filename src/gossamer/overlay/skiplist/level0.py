"""Level 0: the sorted circle. Leaving, noticing failures and repairing (section 3.3).

Every period an entry's gossip of level 0 goes to its right neighbour. The neighbour answers with a
``Beat``, which names its left neighbour and the entries that come after it. All of the upkeep
follows from that:

- If a nearer entry is in between, it becomes the right neighbour. It has joined from the other
  side, or it is of another circle, and the two circles merge.
- If the neighbour has this entry at its left, both ends agree, and the gap is *sure*. Only then may
  a node say that an event matches nothing in it.
- If the neighbour is silent, or its line broke, the next entry of the successor list takes its
  place.

The module joining.py has the joins.
"""

from __future__ import annotations

from gossamer.machine import NEVER, Micros, Peer
from gossamer.overlay.skiplist.entry import Entry, Link, insert
from gossamer.overlay.skiplist.joining import Joining
from gossamer.overlay.skiplist.messages import Absent, Ack, Beat, Gossip, Item, Join, Leave
from gossamer.overlay.skiplist.position import Position, between

FAILED_MAX = 64
# An entry checks its place at the latest this number of periods after a repair.
CHECK_DOUBT = 8
# A neighbour that was only a guess is believed to be the next one after this number of periods.
GUESS = 3


class Level0(Joining):
    """The parts of level 0 together."""

    # ---------------------------------------------------------------------- upkeep

    def receive_gossip(self, sender: Peer, message: Gossip, now: Micros) -> None:
        host, at = self._host, message.items[0].at
        if at[1] != sender:
            host.reject(sender, "gossip in another's name")
            return
        entry = host.entries.get(message.to)
        if entry is None:
            host.send(sender, Absent(host.topic, (message.to, host.me), host.births), now)
            return
        if not entry.is_placed:
            if not message.level and message.claims and at != entry.at:
                # The sender knows this entry from before it lost its place, or the welcome is lost.
                # The entry may not find back by itself, because walks to its place end at it.
                host.send(int(sender), Join(host.topic, entry.at, 0, at[0], None, entry.born), now)
            return
        if message.level:
            self._hear(sender, entry, message, now)
            chain = entry.answer(message.level)
            if chain is not None:
                host.send(sender, Ack(host.topic, at[0], message.level, entry.at, chain), now)
            return
        if at == entry.at:
            host.reject(sender, "a message whose first entry is not its sender's")
            return
        if not message.claims:
            self.beat(entry, at, now)
            return
        left = entry.lefts[0]
        if left is None or between(left.at, at, entry.at):
            self._set_left(entry, at, now)
        elif left.at != at and (not left.sure or self._is_silent(left, now)):
            # The old left neighbour is gone. This entry does not know which publishers relied on
            # the gap at its other side, unless the neighbour has said that there are none.
            self._set_left(entry, at, now)
            if not left.is_free:
                entry.free_left_at = Micros(now + host.config.lease)
        if entry.left == at:
            link = entry.lefts[0]
            assert link is not None
            link.heard, link.sure, link.born = now, True, max(link.born, message.born)
            told = message.clear and not entry.cleared_left
            entry.cleared_left = entry.cleared_left or message.clear
            if told:
                # A newcomer at the right may be waiting for that.
                self.probe(entry, now)
            self._hear(sender, entry, message, now)
            if message.marks and self._marks.keep(entry, message.marks, now):
                self.probe(entry, now)
            # The circle has two entries, so each is the other's neighbour at both sides.
            if entry.rights[0] is None:
                self._set_right(entry, at, now)
                entry.successors = [at]
                self.probe(entry, now)
        self.beat(entry, at, now)
        self.settle(entry, now)

    def _hear(self, sender: Peer, entry: Entry, message: Gossip, now: Micros) -> None:
        levels = len(entry.times)
        reason = entry.hear(message.level, message.items, message.chain, now)
        if reason is not None:
            self._host.reject(sender, reason)
        if len(entry.times) > levels:
            self._host.sooner(entry.next_at)
        if entry.fresh:
            for level, to, items in entry.prompts(now):
                self.weave(entry, level, to, items, now)

    def receive_beat(self, sender: Peer, message: Beat, now: Micros) -> None:
        host = self._host
        entry = host.entries.get(message.to)
        if message.at[1] != sender:
            host.reject(sender, "a beat in another's name")
            return
        link = entry.rights[0] if entry is not None else None
        if entry is None or link is None or link.at != message.at:
            if (
                entry is not None
                and link is not None
                and not link.sure
                and message.at in entry.successors
            ):
                entry.answered[message.at] = now
            # Any other beat comes from an earlier neighbour, and means nothing now.
            return
        link.heard, link.born = now, max(link.born, message.born)
        if message.left == entry.at:
            link.sure = now >= link.guess_until
            entry.answered.clear()
            told = message.clear and not entry.cleared_right
            entry.cleared_right = entry.cleared_right or message.clear
            if told and entry.lefts[0] is not None:
                self.beat(entry, entry.left, now)
            if message.successors is not None:
                before = list(entry.successors)
                entry.follow(self._in_order(entry, message.at, message.successors))
                if entry.successors != before and entry.lefts[0] is not None:
                    # The left neighbour hears of it now, so successor lists fill at once, and not
                    # by one entry a period.
                    self.beat(entry, entry.left, now)
            self.settle(entry, now)
        elif between(entry.at, message.left, link.at):
            if (
                now - entry.failed.get(message.left, Micros(-(10**12)))
                > host.config.silence * host.config.period
            ):
                entry.successors = insert(entry.successors, message.left, host.config.successors)
                self._set_right(entry, message.left, now)
                self.probe(entry, now)
        elif message.left != message.at:
            host.reject(sender, "a left neighbour that is not at its left")

    def _in_order(
        self, entry: Entry, first: Position, others: tuple[Position, ...]
    ) -> list[Position]:
        """Return the successor list, as far as it runs rightward from here without coming
        around.
        """
        found = [first]
        for place in others:
            if not between(found[-1], place, entry.at) or place == entry.at:
                break
            found.append(place)
        return found[: self._host.config.successors]

    # --------------------------------------------------------------------- failure

    def look(self, entry: Entry, now: Micros) -> None:
        """Look once a period whether a neighbour has fallen silent."""
        right, left = entry.rights[0], entry.lefts[0]
        if right is not None and self._is_silent(
            right, now, doubted=not right.sure and bool(entry.answered)
        ):
            self.fail_right(entry, now)
        if left is not None and self._is_silent(left, now):
            left.sure = False
        if not entry.is_joined:
            self.settle(entry, now)

    def _is_silent(self, link: Link, now: Micros, doubted: bool = False) -> bool:
        """Return whether to give a neighbour up. A neighbour is ``doubted`` if it has not agreed
        and others behind it have answered.
        """
        config = self._host.config
        periods = 1 if doubted else config.silence
        return now - link.heard > periods * config.period and not self._host.lives(link.at[1])

    def fail_right(self, entry: Entry, now: Micros) -> None:
        """Replace the right neighbour, which is gone. The next entry of the successor list takes
        its place, or the first one that is known to be there.
        """
        host, gone = self._host, entry.right
        host.counters["repairs"] += 1
        if len(entry.failed) >= FAILED_MAX:
            entry.failed.pop(next(iter(entry.failed)))
        entry.failed[gone] = now
        entry.checks = 0
        entry.check_at = (
            min(entry.check_at, Micros(now + CHECK_DOUBT * host.config.period))
            if host.config.check
            else NEVER
        )
        entry.drop_long(gone)
        entry.successors = [at for at in entry.successors if at != gone]
        guesses = not entry.successors
        if guesses:
            others = [
                link.at for _, rightward, link in entry.links() if rightward and link.at != gone
            ]
            entry.successors = others[:1]
        self._leases.void(entry, rightward=True, now=now)
        entry.free_right_at = Micros(now + host.config.lease)
        if entry.successors:
            known = [number for number, at in enumerate(entry.successors) if at in entry.answered]
            entry.successors = entry.successors[known[0] if known else 0 :]
            link = entry.put(0, True, entry.successors[0], now)
            # Other entries may be in between. They get some time to say so before this gap is
            # called empty.
            if guesses:
                link.guess_until = Micros(now + GUESS * host.config.period)
            # Several neighbours may be dead. The entry asks all that may come next, so that it
            # learns which is the first one alive.
            self.probe(entry, now)
            for place in entry.successors[1:]:
                host.send(
                    place[1],
                    Gossip(
                        host.topic, place[0], 0, (Item(entry.at, 0),), claims=False, born=entry.born
                    ),
                    now,
                )
        elif entry.lefts[0] is not None and entry.left != gone:
            # The left neighbour is the only entry that is known, so it is also the right one,
            # around the circle.
            entry.put(0, True, entry.left, now)
            entry.successors = [entry.left]
            self.probe(entry, now)
        else:
            self._orphan(entry, now)

    def _stay(self, entry: Entry, now: Micros) -> None:
        """Let the entry keep its place, because all others of the list are gone.

        An orphan gives up its place and asks around. If this entry did so, another node could begin
        a list that lacks this entry, although events are due to it.
        """
        host = self._host
        host.counters["repairs"] += 1
        for rightward in (True, False):
            self._leases.void(entry, rightward, now)
            entry.drop(0, rightward)
        entry.free_left_at = entry.free_right_at = Micros(now + host.config.lease)
        entry.successors = []
        self.settle(entry, now)

    def _orphan(self, entry: Entry, now: Micros) -> None:
        """Let an entry that knows no other entry join again, through a contact or as the only
        one.
        """
        entry.drop(0, True)
        entry.drop(0, False)
        entry.is_placed = False
        self.join(entry, now)

    def peer_down(self, peer: Peer, now: Micros) -> None:
        for entry in self._host.entries.values():
            alone = self._were_all(entry, peer)
            entry.drop_long(int(peer))
            entry.successors = [at for at in entry.successors if at[1] != peer or at == entry.right]
            left, right = entry.lefts[0], entry.rights[0]
            if alone:
                self._stay(entry, now)
                continue
            if left is not None and left.at[1] == peer:
                left.sure = False
            if right is not None and right.at[1] == peer:
                self.fail_right(entry, now)

    def _were_all(self, entry: Entry, peer: Peer) -> bool:
        """Return whether all other entries of the circle are that peer's. Then the circle is known
        as a whole, and both ends are agreed on.
        """
        left, right = entry.lefts[0], entry.rights[0]
        return (
            left is not None and left.sure and right is not None and right.sure
            and len(entry.successors) < self._host.config.successors
            and all(at[1] == peer for at in (left.at, right.at, *entry.successors))
        )  # fmt: skip

    # --------------------------------------------------------------------- leaving

    def leave(self, entry: Entry, now: Micros) -> None:
        """Tell the neighbours at all levels politely that the entry goes, and name their next
        neighbours.
        """
        host = self._host
        after = tuple(at for at in entry.successors if at[1] != host.me or at[0] in host.entries)
        message = Leave(
            host.topic,
            entry.at,
            entry.left,
            after,
            self._leases.is_relied_on(entry, now),
            entry.born,
        )
        told = dict.fromkeys(link.at[1] for _, _, link in entry.links())
        for peer in told:
            host.send(peer, message, now)

    def receive_leave(self, sender: Peer, message: Leave, now: Micros) -> None:
        host, gone = self._host, message.at
        if gone[1] != sender:
            host.reject(sender, "a farewell in another's name")
            return
        for entry in host.entries.values():
            if entry.at == gone:
                continue
            entry.drop_long(gone)
            if entry.left == gone and _is_meant(entry.lefts[0], message.born):
                link = entry.lefts[0]
                assert link is not None
                link.sure, link.is_free = False, not message.leased
            if entry.right == gone and not _is_meant(entry.rights[0], message.born):
                continue
            if entry.right == gone:
                after = [at for at in message.successors if at not in (gone, entry.at)]
                entry.successors = [gone, *after][: host.config.successors]
                free_left_at, free_right_at = entry.free_left_at, entry.free_right_at
                others = any(link.at != gone for _, _, link in entry.links())
                if entry.left == gone and message.left == entry.at and not after and not others:
                    # The two entries were each other's neighbours at both sides.
                    self._stay(entry, now)
                    if not message.leased:
                        entry.free_left_at = free_left_at
                else:
                    self.fail_right(entry, now)
                if not message.leased:
                    entry.free_right_at = free_right_at
            else:
                entry.successors = [at for at in entry.successors if at != gone]

    def receive_absent(self, sender: Peer, message: Absent, now: Micros) -> None:
        host, gone = self._host, message.at
        host.counters["absent"] += 1
        if gone[1] != sender:
            host.reject(sender, "absent in another's name")
            return
        if host.members is not None and not gone[0]:
            self._refused(sender, host.members, now)
        for entry in host.entries.values():
            entry.drop_long(gone)
            if (
                host.members is None
                and not entry.is_placed
                and entry.attempts > 2
                and host.me < sender
            ):
                # Two nodes have lost all others, so one of them must begin the list.
                self._found(entry, now)
            elif host.members is None and not entry.is_placed:
                # The next attempt goes through another contact.
                entry.check_at = min(entry.check_at, Micros(now + host.config.period // 4 + 1))
                host.sooner(entry.check_at)
            left, right = entry.lefts[0], entry.rights[0]
            if left is not None and left.at == gone and _is_meant(left, message.born):
                left.sure = False
            if (
                right is not None
                and right.at == gone != entry.at
                and _is_meant(right, message.born)
            ):
                self.fail_right(entry, now)


def _is_meant(link: Link | None, born: int) -> bool:
    """Return whether a farewell means this neighbour, and not an entry that was there before it.
    The answer is yes if that is not known.
    """
    return link is None or not born or link.born <= born
