"""Joining (section 3.3), where an entry looks for its place and is taken in.

A join walks to the entry at whose right the newcomer belongs. That entry takes the newcomer in at
once and answers. The join is complete when the right neighbour agrees as well and no publisher
relies on the old gap (leases.py). An old entry sends such a join now and then, through some other
member. An entry that would take it in elsewhere is from another circle, and the two circles grow
together like a zip.

A join goes over several links, and no node tells a newcomer that one of them broke on the way. So
the newcomer asks again after a while, as does an entry that asks members whether they are in the
list.
"""

from __future__ import annotations

from gossamer.machine import NEVER, Micros, Peer
from gossamer.overlay.skiplist.beside import Beside
from gossamer.overlay.skiplist.entry import Entry, toward
from gossamer.overlay.skiplist.host import Members
from gossamer.overlay.skiplist.messages import HOPS_MAX, Absent, Join, Welcome
from gossamer.overlay.skiplist.position import Position, between

# The first checks come after an eighth, a quarter and half of the configured time. The later ones
# come as rarely as configured.
CHECKS_SOON = 3
JOIN_HOPS_MAX = 256
# A join is charged this number of hops when the entry that it was sent to is not there.
DETOUR = 16
# A check has this number of hops, and k + 1 more for each level. They are ample in a list that has
# its long links, and until then the check can wait.
CHECK_HOPS = 8
# When this number of joins through contacts has come to nothing, an entry is on its own until a
# check succeeds.
ATTEMPTS_MAX = 8
# An entry asks members this number of times in each period whether they are in the list.
ASK_AGAIN = 4
# It asks at most this number of members at once.
ASK_MAX = 64


class Placed:
    """An entry has found its place, after this number of hops. The owner of the list gets it."""

    __slots__ = ("at", "hops")

    def __init__(self, at: Position, hops: int) -> None:
        self.at, self.hops = at, hops


class Joined:
    """An entry's join is complete, so every event from now on is due."""

    __slots__ = ("at",)

    def __init__(self, at: Position) -> None:
        self.at = at


class Joining(Beside):
    def join(self, entry: Entry, now: Micros) -> None:
        """Look for the entry's place, from another entry of this node or through a contact. If
        there is neither, the entry is the first.
        """
        host = self._host
        if entry.is_placed:
            self._check_later(entry, now)
        else:
            entry.check_at = Micros(now + 2 * host.config.period)
            host.sooner(entry.check_at)
        near = None if entry.is_placed else host.nearest(entry.at)
        if near is not None:
            self.receive_join(
                host.me, Join(host.topic, entry.at, 0, near.at[0], None, entry.born), now
            )
        elif host.members is not None and not entry.is_placed:
            self._ask_around(entry, host.members, now)
        elif (contact := host.contact()) is not None and (
            entry.is_placed or entry.attempts < ATTEMPTS_MAX
        ):
            entry.attempts += 1
            allowed = (
                CHECK_HOPS + (host.config.k + 1) * len(entry.times)
                if entry.is_placed
                else JOIN_HOPS_MAX
            )
            host.send(
                contact,
                Join(host.topic, entry.at, max(0, JOIN_HOPS_MAX - allowed), born=entry.born),
                now,
            )
        elif not entry.is_placed:
            self._found(entry, now)

    def _ask_around(self, entry: Entry, members: Members, now: Micros) -> None:
        """Ask the known members whether they are in the list.

        Only the least of the members may begin a list, and only when no other is in it. So there is
        one beginning, though many join at once. A member that asks is known to those that it asks
        (``is_known``). So of two members that are not in the list and ask each other, the greater
        waits for the less.
        """
        host = self._host
        entry.check_at = Micros(now + host.config.period // ASK_AGAIN + 1)
        host.sooner(entry.check_at)
        if next(iter(host.entries.values())) is not entry or not members.is_known():
            # One of this node's entries is enough to ask.
            return
        others = [int(peer) for peer in host.contacts() if peer != host.me]
        least = min(others, default=None)
        if least is None or host.me < least:
            ask = [peer for peer in others if peer not in entry.refused][:ASK_MAX]
            if not ask:
                self._begin(entry, others, now)
                return
        else:
            ask = list(dict.fromkeys((least, others[int(host.rng.random() * len(others))])))
        for peer in ask:
            host.send(peer, Join(host.topic, entry.at, born=entry.born), now)

    def _refused(self, by: Peer, members: Members, now: Micros) -> None:
        """Note that the member is not in the list. If no other is, this node may begin it."""
        host = self._host
        entry = next(iter(host.entries.values()), None)
        if entry is None or any(other.is_placed for other in host.entries.values()):
            return
        entry.refused[int(by)] = None
        others = [int(peer) for peer in host.contacts() if peer != host.me]
        if members.is_known() and all(peer in entry.refused and host.me < peer for peer in others):
            self._begin(entry, others, now)

    def _begin(self, entry: Entry, others: list[int], now: Micros) -> None:
        """Begin the list when all others have said twice that they are not in it.

        The first member that said so may have joined a list afterwards. The last other member of
        that list may then have left, and have said so too. The first one stays in that list.
        """
        host = self._host
        if others and not entry.refused_twice:
            entry.refused_twice = True
            entry.refused.clear()
            for peer in others[:ASK_MAX]:
                host.send(peer, Join(host.topic, entry.at, born=entry.born), now)
            return
        self._found(entry, now)
        for other in host.entries.values():
            if other is not entry:
                self.join(other, now)

    def _check_later(self, entry: Entry, now: Micros) -> None:
        """Plan the next check of the place. Checks come soon after a doubt, then ever more
        rarely.
        """
        check = self._host.config.check
        wait = self._host.config.period * max(2, check >> max(0, CHECKS_SOON - entry.checks))
        entry.checks += 1
        entry.check_at = Micros(now + wait) if check else NEVER
        self._host.sooner(entry.check_at)

    def _found(self, entry: Entry, now: Micros) -> None:
        """Begin as the first entry. If there are others after all, the checks will find them."""
        entry.is_placed = True
        # Publishers have heard of a new member (leases.py, epochs). They have not heard of a
        # further entry of an old member.
        entry.cleared_left = entry.cleared_right = not entry.follows
        entry.attempts = 0
        entry.refused.clear()
        entry.refused_twice = False
        entry.check_at = (
            Micros(now + self._host.config.period * self._host.config.check)
            if self._host.config.check
            else NEVER
        )
        entry.start(now)
        self._host.sooner(now)
        self.settle(entry, now)

    def receive_join(self, sender: Peer, message: Join, now: Micros) -> None:
        host, place, hops, bound = self._host, message.at, message.hops, message.bound
        entry = host.entries.get(message.to) if message.to is not None else None
        if message.to is not None and entry is None:
            host.send(sender, Absent(host.topic, (message.to, host.me), host.births), now)
        if entry is None or not entry.is_placed or entry.at == place:
            # The bound says nothing to another entry, from which the walk goes on. Without a price
            # such a walk could go around for ever.
            hops, bound = hops + (DETOUR if message.to is not None else 0), None
            entry = self._other(place)
        if hops > JOIN_HOPS_MAX:
            # The newcomer will try again.
            return
        if entry is None:
            host.send(place[1], Absent(host.topic, (b"", host.me), host.births), now)
            return
        while True:
            step = toward(entry, place, bound)
            if step is None:
                if entry.at != place:
                    self._take_in(entry, place, hops, message.born, now)
                return
            following, bound = step
            if following[1] != host.me:
                if hops < JOIN_HOPS_MAX:
                    host.send(
                        following[1],
                        Join(host.topic, place, hops + 1, following[0], bound, message.born),
                        now,
                    )
                return
            nearer = host.entries.get(following[0])
            if nearer is None or nearer is entry or not nearer.is_placed or hops >= JOIN_HOPS_MAX:
                return
            entry, hops = nearer, hops + 1

    def _other(self, place: Position) -> Entry | None:
        """Return the nearest entry of this node, except the one that looks for its place."""
        host = self._host
        entry = host.nearest(place)
        if entry is not None and entry.at == place:
            others = [
                other for other in host.entries.values() if other.is_placed and other is not entry
            ]
            entry = max(others, key=lambda other: (other.at < place, other.at), default=None)
        return entry

    def _take_in(self, entry: Entry, place: Position, hops: int, born: int, now: Micros) -> None:
        """Take in an entry whose place is between this entry and its right neighbour. The right
        neighbour itself may ask too.
        """
        host, config = self._host, self._host.config
        old = list(entry.successors)
        if place != entry.right:
            entry.failed.pop(place, None)
            self._set_right(entry, place, now)
            host.counters["joins"] += 1
        right = entry.rights[0]
        if right is not None:
            right.born = max(right.born, born)
        after = [at for at in old if at != place] or [entry.at]
        lefts = tuple(link.at for link in entry.lefts[1:] if link is not None and link.at != place)
        rights = tuple(
            link.at for link in entry.rights[1:] if link is not None and link.at != place
        )
        clear = self._leases.is_clear(entry, rightward=True, now=now)
        welcome = Welcome(
            host.topic, place[0], entry.at, tuple(after[: config.successors]), lefts, rights,
            min(hops, HOPS_MAX), clear,
            self._marks.for_newcomer(entry, place),
        )  # fmt: skip
        if place[1] == host.me:
            # The entry is placed at once, because the next of this node's entries may come right
            # behind it.
            self.receive_welcome(host.me, welcome, now)
        else:
            host.send(place[1], welcome, now)

    def receive_welcome(self, sender: Peer, message: Welcome, now: Micros) -> None:
        host = self._host
        entry = host.entries.get(message.to)
        if entry is None:
            host.send(sender, Absent(host.topic, (message.to, host.me), host.births), now)
            return
        if message.left[1] != sender or message.left == entry.at or not message.successors:
            host.reject(sender, "a welcome that makes no sense")
            return
        first = message.successors[0]
        if first != message.left and not between(message.left, entry.at, first):
            host.reject(sender, "a welcome to another place")
            return
        new = not entry.is_placed
        if new:
            entry.is_placed, entry.attempts = True, 0
            entry.refused.clear()
            entry.refused_twice = False
            entry.learn(message.lefts, False, now)
            entry.learn(message.rights, True, now)
            # The entries at the other ends have nearer neighbours, so they need not hear of these
            # links.
            entry.fresh.clear()
            entry.checks = 0
            self._check_later(entry, now)
            host.deliver(Placed(entry.at, message.hops))
        if new or entry.lefts[0] is None or between(entry.left, message.left, entry.at):
            self._set_left(entry, message.left, now)
            entry.cleared_left = message.clear
        if new or entry.rights[0] is None or between(entry.at, first, entry.right):
            entry.successors = [at for at in message.successors if at != entry.at]
            if entry.successors:
                self._set_right(entry, first, now)
        self._marks.keep(entry, message.marks, now)
        if message.left == entry.left:
            self.beat(entry, entry.left, now)
        if new:
            entry.start(now)
            host.sooner(now)
        self.settle(entry, now)

    def settle(self, entry: Entry, now: Micros) -> None:
        """Complete the join if nothing stands against it any longer."""
        right, left = entry.rights[0], entry.lefts[0]
        if (
            entry.is_joined
            or not entry.is_placed
            or not (right is None or right.sure)
            or not (left is None or left.sure)
        ):
            return
        entry.agreed_at = min(entry.agreed_at, now)
        outlived = now >= entry.agreed_at + self._host.config.lease
        if (entry.cleared_left and entry.cleared_right) or outlived:
            entry.is_joined = entry.cleared_left = entry.cleared_right = True
            self._host.deliver(Joined(entry.at))
