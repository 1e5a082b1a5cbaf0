"""Level 0: the sorted circle. Joining, leaving, noticing failures and repairing (section 3.3).

Every period an entry's gossip of level 0 goes to its right neighbour and is answered with a ``Beat``: who the neighbour has at its
left, and the entries that come after it. From that follows all of the upkeep:

- somebody nearer is in between: it becomes the right neighbour (a join from the other side, or a circle to be merged);
- the neighbour has this entry at its left: both ends agree, the gap is *sure*, and only then may an event be said to match
  nothing in it;
- the neighbour is silent, or its line broke: the next of the successor list takes its place.

A join walks to the entry at whose right it belongs; that one takes it in at once and answers. It is complete when the right
neighbour agrees as well and nobody relies on the old gap (leases.py). An old entry sends such a join now and then, through some
other member: whoever would take it in elsewhere is from another circle, and the two grow together like a zip.
"""

from __future__ import annotations

from gossamer.machine import NEVER, Micros, Peer
from gossamer.overlay.skiplist.entry import Entry, Link, insert
from gossamer.overlay.skiplist.host import Host, Members
from gossamer.overlay.skiplist.leases import Leases
from gossamer.overlay.skiplist.marks import Marks
from gossamer.overlay.skiplist.messages import HOPS_MAX, Absent, Ack, Beat, Gossip, Item, Join, Leave, Welcome
from gossamer.overlay.skiplist.position import Position, between
from gossamer.overlay.skiplist.route import toward

FAILED_MAX = 64
CHECKS_SOON = 3  # checks at an eighth, a quarter and half of the time before they come as rarely as configured
CHECK_DOUBT = 8  # periods after a repair
JOIN_HOPS_MAX = 256
DETOUR = 64  # hops that a join is charged for when the entry that it was sent to is not there
ATTEMPTS_MAX = 8  # joins through contacts that came to nothing, and an entry is on its own until a check succeeds
ASK_AGAIN = 4  # times a period that members are asked who is in the list
ASK_MAX = 64  # of them at once
GUESS = 3  # periods until a neighbour that was only a guess is believed to be the next
TELL_AGAIN = 8  # beats after which the successors are told again, changed or not: a message may have been lost


class Level0:
    def __init__(self, host: Host, leases: Leases, marks: Marks) -> None:
        self._host, self._leases, self._marks = host, leases, marks

    # ------------------------------------------------------------------------ join

    def join(self, entry: Entry, now: Micros) -> None:
        """Look for the entry's place: from another entry of this node, or through a contact; with neither, it is the first."""
        host = self._host
        if entry.is_placed:
            self._check_later(entry, now)
        else:
            entry.check_at = Micros(now + 2 * host.config.period)
            host.sooner(entry.check_at)
        near = None if entry.is_placed else host.nearest(entry.at)
        if near is not None:
            self.receive_join(host.me, Join(host.topic, entry.at, 0, near.at[0], None, entry.born), now)
        elif host.members is not None and not entry.is_placed:
            self._ask_around(entry, host.members, now)
        elif (contact := host.contact()) is not None and (entry.is_placed or entry.attempts < ATTEMPTS_MAX):
            entry.attempts += 1
            host.send(contact, Join(host.topic, entry.at, born=entry.born), now)
        elif not entry.is_placed:
            self._found(entry, now)

    def _ask_around(self, entry: Entry, members: Members, now: Micros) -> None:
        """Where members are known, only the least of them may begin a list, and only when no other is in it.

        So there is one beginning, though many join at once. Whoever asks is known to those whom it asks (``is_known``), so of two
        that are not in the list and ask each other the greater waits for the less.
        """
        host = self._host
        entry.check_at = Micros(now + host.config.period // ASK_AGAIN + 1)
        host.sooner(entry.check_at)
        if next(iter(host.entries.values())) is not entry or not members.is_known():
            return  # one of this node's entries is enough to ask
        others = [int(peer) for peer in host.contacts() if peer != host.me]
        least = min(others, default=None)
        if least is None or host.me < least:
            ask = [peer for peer in others if peer not in entry.refused][:ASK_MAX]
            if not ask:
                self._found(entry, now)
                return
        else:
            ask = list(dict.fromkeys((least, others[int(host.rng.random() * len(others))])))
        for peer in ask:
            host.send(peer, Join(host.topic, entry.at, born=entry.born), now)

    def _refused(self, by: Peer, members: Members, now: Micros) -> None:
        """That member is not in the list. If no other is, this may be the one to begin it."""
        host = self._host
        entry = next(iter(host.entries.values()), None)
        if entry is None or any(other.is_placed for other in host.entries.values()):
            return
        entry.refused[int(by)] = None
        others = [peer for peer in host.contacts() if peer != host.me]
        if members.is_known() and all(peer in entry.refused and host.me < peer for peer in others):
            self._found(entry, now)
            for other in host.entries.values():
                if other is not entry:
                    self.join(other, now)

    def _check_later(self, entry: Entry, now: Micros) -> None:
        """Look at whether the place is right: soon after it was in doubt, then ever more rarely."""
        check = self._host.config.check
        wait = self._host.config.period * max(2, check >> max(0, CHECKS_SOON - entry.checks))
        entry.checks += 1
        entry.check_at = Micros(now + wait) if check else NEVER
        self._host.sooner(entry.check_at)

    def _found(self, entry: Entry, now: Micros) -> None:
        """Be the first. If there are others after all, the checks will find them."""
        entry.is_placed = True
        # Publishers have heard of a new member (leases.py, epochs); of a further entry of an old one they have not.
        entry.cleared_left = entry.cleared_right = not entry.follows
        entry.attempts = 0
        entry.refused.clear()
        entry.check_at = (
            Micros(now + self._host.config.period * self._host.config.check) if self._host.config.check else NEVER
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
            # From another entry, the bound says nothing: without a price such a walk could go around for ever.
            hops, bound = hops + (DETOUR if message.to is not None else 0), None
            entry = self._other(place)
        if hops > JOIN_HOPS_MAX:
            return  # the newcomer will try again
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
                    host.send(following[1], Join(host.topic, place, hops + 1, following[0], bound, message.born), now)
                return
            nearer = host.entries.get(following[0])
            if nearer is None or nearer is entry or not nearer.is_placed or hops >= JOIN_HOPS_MAX:
                return
            entry, hops = nearer, hops + 1

    def _other(self, place: Position) -> Entry | None:
        """The nearest entry of this node that is not the one that looks for its place itself."""
        host = self._host
        entry = host.nearest(place)
        if entry is not None and entry.at == place:
            others = [other for other in host.entries.values() if other.is_placed and other is not entry]
            entry = max(others, key=lambda other: (other.at < place, other.at), default=None)
        return entry

    def _take_in(self, entry: Entry, place: Position, hops: int, born: int, now: Micros) -> None:
        """The place is between this entry and its right neighbour, or is that neighbour."""
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
        rights = tuple(link.at for link in entry.rights[1:] if link is not None and link.at != place)
        clear = self._leases.is_clear(entry, rightward=True, now=now)
        welcome = Welcome(
            host.topic, place[0], entry.at, tuple(after[: config.successors]), lefts, rights, min(hops, HOPS_MAX), clear,
            self._marks.for_newcomer(entry, place),
        )  # fmt: skip
        if place[1] == host.me:
            self.receive_welcome(host.me, welcome, now)  # at once: the next of this node's entries may come right behind it
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
            entry.learn(message.lefts, False, now)
            entry.learn(message.rights, True, now)
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
        """Is the join complete?"""
        right, left = entry.rights[0], entry.lefts[0]
        if entry.is_joined or not entry.is_placed or not (right is None or right.sure) or not (left is None or left.sure):
            return
        entry.agreed_at = min(entry.agreed_at, now)
        outlived = now >= entry.agreed_at + self._host.config.lease
        if (entry.cleared_left and entry.cleared_right) or outlived:
            entry.is_joined = entry.cleared_left = entry.cleared_right = True
            self._host.deliver(Joined(entry.at))

    # ---------------------------------------------------------------------- upkeep

    def gossip(self, entry: Entry, to: Position, items: tuple[Item, ...], now: Micros) -> None:
        """The message of level 0: heartbeat, Figure 2, and what rides on them."""
        clear = self._leases.is_clear(entry, rightward=True, now=now)
        marks = self._marks.to_pass_on(entry, to, now)
        self._host.send(to[1], Gossip(self._host.topic, to[0], 0, items, (), clear, marks, True, entry.born), now)

    def probe(self, entry: Entry, now: Micros) -> None:
        """Talk to the right neighbour now instead of at the period."""
        link = entry.rights[0]
        if link is not None:
            self.gossip(entry, link.at, (Item(entry.at, 0),), now)

    def beat(self, entry: Entry, to: Position, now: Micros) -> None:
        host = self._host
        clear = self._leases.is_clear(entry, rightward=False, now=now)
        after: tuple[Position, ...] | None = tuple(entry.successors[: host.config.successors])
        if entry.told is not None and entry.told[:2] == (to, after) and entry.told[2] % TELL_AGAIN:
            entry.told, after = (*entry.told[:2], entry.told[2] + 1), None
        else:
            assert after is not None
            entry.told = (to, after, 1)
        host.send(to[1], Beat(host.topic, to[0], entry.at, entry.left, after, clear, entry.born), now)

    def receive_gossip(self, sender: Peer, message: Gossip, now: Micros) -> None:
        host, at = self._host, message.items[0].at
        if at[1] != sender:
            host.reject(sender, "gossip in another's name")
            return
        entry = host.entries.get(message.to)
        if entry is None or not entry.is_placed:
            if entry is None:
                host.send(sender, Absent(host.topic, (message.to, host.me), host.births), now)
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
            # The old left neighbour is gone. Who relied on the gap at its other side is not known here, unless it has said so.
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
                self.probe(entry, now)  # who joins at the right may be waiting for that
            self._hear(sender, entry, message, now)
            if message.marks and self._marks.keep(entry, message.marks, now):
                self.probe(entry, now)
            if entry.rights[0] is None:  # two entries: each is the other's neighbour at both sides
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

    def receive_beat(self, sender: Peer, message: Beat, now: Micros) -> None:
        host = self._host
        entry = host.entries.get(message.to)
        if message.at[1] != sender:
            host.reject(sender, "a beat in another's name")
            return
        link = entry.rights[0] if entry is not None else None
        if entry is None or link is None or link.at != message.at:
            if entry is not None and link is not None and not link.sure and message.at in entry.successors:
                entry.answered[message.at] = now
            return  # else of an earlier neighbour
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
                    self.beat(entry, entry.left, now)  # lists of successors fill at once, not by one entry a period
            self.settle(entry, now)
        elif between(entry.at, message.left, link.at):
            if now - entry.failed.get(message.left, Micros(-(10**12))) > host.config.silence * host.config.period:
                entry.successors = insert(entry.successors, message.left, host.config.successors)
                self._set_right(entry, message.left, now)
                self.probe(entry, now)
        elif message.left != message.at:
            host.reject(sender, "a left neighbour that is not at its left")

    def _in_order(self, entry: Entry, first: Position, others: tuple[Position, ...]) -> list[Position]:
        """The successor list, as far as it runs rightward from here without coming around."""
        found = [first]
        for place in others:
            if not between(found[-1], place, entry.at) or place == entry.at:
                break
            found.append(place)
        return found[: self._host.config.successors]

    def _set_right(self, entry: Entry, at: Position, now: Micros) -> None:
        if entry.right != at or entry.rights[0] is None:
            self._leases.void(entry, rightward=True, now=now)
            entry.put(0, True, at, now)
            entry.successors = insert(entry.successors, at, self._host.config.successors)

    def _set_left(self, entry: Entry, at: Position, now: Micros) -> None:
        if entry.left != at or entry.lefts[0] is None:
            self._leases.void(entry, rightward=False, now=now)
            entry.put(0, False, at, now).sure = True

    # --------------------------------------------------------------------- failure

    def look(self, entry: Entry, now: Micros) -> None:
        """Once a period: has a neighbour fallen silent?"""
        right, left = entry.rights[0], entry.lefts[0]
        if right is not None and self._is_silent(right, now, doubted=not right.sure and bool(entry.answered)):
            self.fail_right(entry, now)
        if left is not None and self._is_silent(left, now):
            left.sure = False
        if not entry.is_joined:
            self.settle(entry, now)

    def _is_silent(self, link: Link, now: Micros, doubted: bool = False) -> bool:
        """Whether to give a neighbour up. ``doubted``: it has not agreed, and others behind it have answered."""
        config = self._host.config
        periods = 1 if doubted else config.silence
        return now - link.heard > periods * config.period and not self._host.lives(link.at[1])

    def fail_right(self, entry: Entry, now: Micros) -> None:
        """The right neighbour is gone: the next of the successor list takes its place, or the first that is known to be there."""
        host, gone = self._host, entry.right
        host.counters["repairs"] += 1
        if len(entry.failed) >= FAILED_MAX:
            entry.failed.pop(next(iter(entry.failed)))
        entry.failed[gone] = now
        entry.checks = 0
        entry.check_at = min(entry.check_at, Micros(now + CHECK_DOUBT * host.config.period)) if host.config.check else NEVER
        entry.drop_long(gone)
        entry.successors = [at for at in entry.successors if at != gone]
        guesses = not entry.successors
        if guesses:
            others = [link.at for _, rightward, link in entry.links() if rightward and link.at != gone]
            entry.successors = others[:1]
        self._leases.void(entry, rightward=True, now=now)
        entry.free_right_at = Micros(now + host.config.lease)
        if entry.successors:
            known = [number for number, at in enumerate(entry.successors) if at in entry.answered]
            entry.successors = entry.successors[known[0] if known else 0 :]
            link = entry.put(0, True, entry.successors[0], now)
            if guesses:  # others may be in between: time for them to say so, before this gap is called empty
                link.guess_until = Micros(now + GUESS * host.config.period)
            # Several neighbours may be dead: ask all who may come next, so that the first of those alive is known.
            self.probe(entry, now)
            for place in entry.successors[1:]:
                host.send(
                    place[1], Gossip(host.topic, place[0], 0, (Item(entry.at, 0),), claims=False, born=entry.born), now
                )
        elif entry.lefts[0] is not None and entry.left != gone:
            entry.put(0, True, entry.left, now)  # around the circle, which is all that is known
            entry.successors = [entry.left]
            self.probe(entry, now)
        else:
            self._orphan(entry, now)

    def _orphan(self, entry: Entry, now: Micros) -> None:
        """Nobody is left. Through a contact, or as the only one."""
        entry.drop(0, True)
        entry.drop(0, False)
        entry.is_placed = False
        self.join(entry, now)

    def peer_down(self, peer: Peer, now: Micros) -> None:
        for entry in self._host.entries.values():
            entry.drop_long(int(peer))
            entry.successors = [at for at in entry.successors if at[1] != peer or at == entry.right]
            left, right = entry.lefts[0], entry.rights[0]
            if left is not None and left.at[1] == peer:
                left.sure = False
            if right is not None and right.at[1] == peer:
                self.fail_right(entry, now)

    # --------------------------------------------------------------------- leaving

    def leave(self, entry: Entry, now: Micros) -> None:
        """Politely: neighbours at all levels are told, and who comes next."""
        host = self._host
        after = tuple(at for at in entry.successors if at[1] != host.me or at[0] in host.entries)
        message = Leave(host.topic, entry.at, entry.left, after, self._leases.is_relied_on(entry, now), entry.born)
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
                free_at = entry.free_right_at
                self.fail_right(entry, now)
                if not message.leased:
                    entry.free_right_at = free_at
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
            if host.members is None and not entry.is_placed and entry.attempts > 2 and host.me < sender:
                self._found(entry, now)  # two that have lost everybody: one of them must begin
            elif host.members is None and not entry.is_placed:
                entry.check_at = min(entry.check_at, Micros(now + host.config.period // 4 + 1))  # another contact
                host.sooner(entry.check_at)
            left, right = entry.lefts[0], entry.rights[0]
            if left is not None and left.at == gone and _is_meant(left, message.born):
                left.sure = False
            if right is not None and right.at == gone != entry.at and _is_meant(right, message.born):
                self.fail_right(entry, now)


def _is_meant(link: Link | None, born: int) -> bool:
    """Whether a farewell means this neighbour, and not an entry that was there before it. Unknown: yes."""
    return link is None or not born or link.born <= born


class Placed:
    """An entry has found its place, after so many hops; delivered to the owner of the list."""

    __slots__ = ("at", "hops")

    def __init__(self, at: Position, hops: int) -> None:
        self.at, self.hops = at, hops


class Joined:
    """An entry's join is complete: every event from now on is due."""

    __slots__ = ("at",)

    def __init__(self, at: Position) -> None:
        self.at = at
