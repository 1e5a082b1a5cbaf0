"""Chord as Zave corrected it: a ring kept by hosts that each know a few others.

A member knows its predecessor and a list of its next r successors. It asks one question at a time,
of one host, and while the answer is on its way it answers the questions of others with
``Occupied``: so each change is a step of two hosts, as in her proof, and no host reads a state that
is about to change. The steps:

    join        find the place; copy the whole list of the host before it; only then be a member
    stabilise   ask the first successor: take it and its list, without the last; if it is dead, drop
                it and ask the next;
                then, as a second step, ask its predecessor if that is closer, and take it and its
                list: never an unasked one
    rectify     on a ``Notify``: ask the old predecessor; replace it if it is dead, or if the new
                one is closer

Rings of one to r hosts need no other rules: lists end before they come back to their owner, and a
host without successors owns all keys. Two rings never meet by these rules. So hosts that were given
up are remembered and asked now and then; when one answers and the ring does not know it, the news
of it (``Met``) runs through both rings over the fingers, and every host looks itself up in the
other one: its successor in both together is the closer of its two.
"""

from __future__ import annotations

from random import Random
from typing import Any

from gossamer.lab.tree.lookup import Lookups
from gossamer.machine import MILLISECOND, NEVER, LinkState, Micros, Peer
from gossamer.overlay.tree.arcs import Arc, Host, between, within
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import Ask, Find, Met, Nearer, Notify, Occupied, Owner, State

# Hosts named in one answer.
NEARER_MAX = 4
OCCUPIED_WAIT = Micros(30 * MILLISECOND)
MEETINGS_MAX = 1024
# A look-up in a ring that is merging may find nobody.
MEET_TRIES = 4
CANDIDATES_MAX = 16


class Question:
    """The one that is under way."""

    __slots__ = ("at", "host", "kind", "token", "tries")

    def __init__(self, kind: str, host: Host, token: int) -> None:
        self.kind, self.host, self.token = kind, host, token
        self.tries, self.at = 0, NEVER


class Chord:
    steady = False

    def __init__(
        self,
        me: Host,
        config: TreeConfig,
        links: Links,
        rng: Random,
        contacts: tuple[Host, ...] = (),
    ) -> None:
        """Without contacts it is the first of its ring."""
        self.me, self.config, self.bits = me, config, config.bits
        self.member = not contacts
        self.predecessor: Host | None = me if self.member else None
        self.successors: list[Host] = []
        # By exponent: the owner of me + 2^e.
        self.fingers: dict[int, Host] = {}
        self.found: list[tuple[int, Arc | None]] = []
        # Given up, by peer.
        self.passive: dict[int, Host] = {}
        # Closer successors that were taken.
        self.adopted = 0
        # Answers that nobody had asked for, or that could not be true.
        self.refused = 0
        self._links, self._rng, self._contacts = links, rng, contacts
        self._lookups = Lookups(me, config, links, self._looked_up)
        self._question: Question | None = None
        self._token = 0
        # Whether the hosts on both sides know that this host is between them.
        self._before_knows = self._after_knows = self.member
        self._arc: Arc | None = None
        # The host that has notified this one.
        self._rectify: Host | None = None
        # Hosts that may be closer than the successor, and are asked first.
        self._candidates: dict[int, Host] = {}
        self._stabilise_at = self._finger_at = self._passive_at = Micros(0)
        self._exponent = config.bits - 1
        self._met: dict[int, None] = {}
        # Look-ups in other rings: the host that told of the ring, and the tries that are left.
        self._meetings: dict[int, tuple[Host, int]] = {}

    # ---------------------------------------------------------------- interface

    @property
    def deadline(self) -> Micros:
        at = self._question.at if self._question is not None else self._stabilise_at
        at = min(at, self._lookups.deadline)
        return min(at, self._finger_at, self._passive_at) if self.member else at

    @property
    def arc(self) -> Arc | None:
        """Our keys, once the hosts on both sides know us: until then others may take them for
        theirs, or ours be theirs.
        """
        return self._keys if self._before_knows and self._after_knows else None

    @property
    def _keys(self) -> Arc | None:
        before = self.predecessor
        if not self.member or before is None:
            return None
        if self._arc is None or self._arc.low != before.key:
            self._arc = Arc(before.key, self.me)
        return self._arc

    def lookup(self, key: int, now: Micros) -> Arc | None:
        key %= 1 << self.bits
        arc = self._keys
        if arc is not None and arc.has(key):
            return arc
        self._lookups.start(key, "found", self._ways(key), now)
        return None

    def meet(self, host: Host, now: Micros) -> None:
        """A host that may be of another ring."""
        if self.member and host.peer != self.me.peer:
            self.passive[host.peer] = host
            self._passive_at = now

    def known(self, peer: Peer) -> bool:
        """Whether the ring needs the link to it."""
        return any(host.peer == peer for host in (*self.successors, *self.fingers.values())) or (
            self.predecessor is not None and self.predecessor.peer == peer
        )

    def failed(self, peer: Peer, now: Micros) -> None:
        """Nobody answers at its address: it is dead, for all that can be known."""
        for host in (*self.successors, *self.fingers.values()):
            if host.peer == peer:
                self._give_up(host)
        self.fingers = {e: host for e, host in self.fingers.items() if host.peer != peer}
        if self._candidates.pop(peer, None) is not None:
            self._be_alone()
        self._lookups.failed(peer, now)
        question = self._question
        if question is not None and question.host.to == peer:
            self._question = None
            self._unanswered(question, now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if state is LinkState.DOWN:
            for host in (
                *self.successors,
                *((self.predecessor,) if self.predecessor is not None else ()),
            ):
                # A verdict, or another link, soon.
                if host.peer == peer:
                    self._links.dial(host, now)
        elif state is LinkState.UP and peer in self.passive:
            # It lives.
            self._passive_at = now

    def receive(self, sender: Peer, message: Any, now: Micros) -> None:
        kind = type(message)
        if kind is Find:
            self._answer_find(sender, message, now)
        elif kind is Owner or kind is Nearer:
            self.refused += not self._lookups.receive(sender, message, now)
        elif kind is Ask:
            busy = self._question is not None or not self.member
            answer = (
                Occupied(message.token)
                if busy
                else State(message.token, self.predecessor, tuple(self.successors))
            )
            self._reply(sender, answer, now)
        elif kind is State or kind is Occupied:
            self._answered(sender, message, now)
        elif kind is Notify:
            if message.host.peer != sender or message.host.key >> self.bits:
                self.refused += 1
            elif self.member:
                self._rectify = message.host
                self._before_knows = self._before_knows or message.host == self.predecessor
        elif kind is Met:
            self._hear(message, now)
        self._advance(now)

    def wake(self, now: Micros) -> None:
        self._lookups.wake(now)
        question = self._question
        if question is not None and question.at <= now:
            if question.tries >= self.config.answer_tries:
                # Alive, for its link is up, and silent: another time.
                self._question = None
                if question.kind == "closer" and not self.successors:
                    self._candidates = {question.host.peer: question.host, **self._candidates}
                self._stabilise_at = min(self._stabilise_at, self._later(now, self.config.answer))
            else:
                self._put(question, now)
        if not self.member:
            if self._stabilise_at <= now:
                self._stabilise_at = self._later(now, self.config.stabilise)
                if self._question is None and not self._lookups.busy("join"):
                    self._lookups.start(self.me.key, "join", list(self._contacts), now)
        else:
            if self._finger_at <= now:
                self._finger_at = self._later(now, self.config.fingers)
                self._refresh_finger(now)
            if self._passive_at <= now:
                self._passive_at = self._later(now, self.config.passive)
                self._knock(now)
        self._advance(now)

    # ----------------------------------------------------------------- the steps

    def _advance(self, now: Micros) -> None:
        """Ask the next question, if none is under way."""
        if not self.member or self._question is not None:
            return
        if self._rectify is not None:
            new, old = self._rectify, self.predecessor
            self._rectify = None
            if old is None or old == self.me:
                self.predecessor = new
            elif old.peer != new.peer:
                self._rectify = new
                self._ask("rectify", old, now)
                return
        if self._candidates:
            _, host = self._candidates.popitem()
            if between(self.me.key, host.key, self._first.key):
                self._ask("closer", host, now)
                return
        if self._stabilise_at <= now:
            self._stabilise_at = self._later(now, self.config.stabilise)
            if self.successors:
                self._ask("successor", self.successors[0], now)
            elif self.predecessor is not None and self.predecessor != self.me:
                # Alone, until somebody notified us.
                self._ask("closer", self.predecessor, now)

    @property
    def _first(self) -> Host:
        return self.successors[0] if self.successors else self.me

    def _answered(self, sender: Peer, message: State | Occupied, now: Micros) -> None:
        question = self._question
        if question is None or question.token != message.token or question.host.to != sender:
            # Late.
            return
        if type(message) is Occupied:
            if question.kind == "rectify":
                self._question = None
                self._replace(question.host, alive=True, now=now)
            else:
                question.at = self._later(now, OCCUPIED_WAIT)
            return
        assert type(message) is State
        if message.predecessor is not None and message.predecessor.key >> self.bits:
            self.refused += 1
            return
        self._question = None
        host, kind = question.host, question.kind
        if kind == "rectify":
            self._replace(host, alive=True, now=now)
        elif kind == "successor":
            self._after_knows = self._after_knows or message.predecessor == self.me
            self._adopt(host, message.successors)
            closer = message.predecessor
            if (
                closer is not None
                and closer.peer != self.me.peer
                and between(self.me.key, closer.key, host.key)
            ):
                self._ask("closer", closer, now)
            else:
                self._notify(now)
        elif kind == "closer":
            if between(self.me.key, host.key, self._first.key) or not self.successors:
                self.adopted += 1
                if not self.successors:
                    # One that lives is enough: those in between will be found.
                    self._candidates = {}
                self._adopt(host, message.successors)
                self._stabilise_at = (
                    # There may be another in between: go on until there is none.
                    now
                )
            self._notify(now)
        elif kind == "place":
            before = message.predecessor
            if before is None or before.peer == host.peer:
                self._join(host, message, now)
            elif before.peer == self.me.peer:
                # It remembers an earlier life of this host.
                self._ask("before", host, now)
            else:
                self._ask("before", before, now)
        elif kind == "before":
            self._join(host, message, now)

    def _join(self, before: Host, state: State, now: Micros) -> None:
        first = state.successors[0] if state.successors else before
        if first.peer == self.me.peer and len(state.successors) > 1:
            first = state.successors[1]
        if not between(before.key, self.me.key, first.key) or before.key == self.me.key:
            # The ring has changed: find the place again.
            self._stabilise_at = self._later(now, OCCUPIED_WAIT)
            return
        listed = [host for host in state.successors if host.peer != self.me.peer]
        self.successors = self._cut(listed or [before])
        self.predecessor, self.member = before, True
        self._stabilise_at = self._finger_at = now
        self._passive_at = self._later(now, self.config.passive)

    def _unanswered(self, question: Question, now: Micros) -> None:
        """The host that was asked is dead."""
        host, kind = question.host, question.kind
        if kind == "rectify":
            self._replace(host, alive=False, now=now)
        elif kind == "successor":
            self._give_up(host)
            self.successors = [each for each in self.successors if each.peer != host.peer]
            self._stabilise_at = now
            if not self.successors:
                self._lose_all()
        elif kind == "closer":
            self._be_alone()
            self._notify(now)
        elif kind in ("place", "before"):
            self._stabilise_at = self._later(now, OCCUPIED_WAIT)
        self._advance(now)

    def _lose_all(self) -> None:
        """No successor is left.

        Ask whoever else is known, and be alone only when nobody can be reached.

        To own all keys at once would be to answer for hosts that live, and that a list of one or
        two did not name.
        """
        before = (self.predecessor,) if self.predecessor is not None else ()
        # The likeliest last: asked first.
        known = (
            *self.passive.values(),
            *self._contacts,
            *self.fingers.values(),
            *before,
        )
        self._candidates = {host.peer: host for host in known if host.peer != self.me.peer}
        self._before_knows = self._after_knows = False
        self._be_alone()

    def _be_alone(self) -> None:
        if not self.successors and not self._candidates:
            self.predecessor = self.me
            self._before_knows = self._after_knows = True

    def _replace(self, old: Host, *, alive: bool, now: Micros) -> None:
        new, self._rectify = self._rectify, None
        if (
            new is not None
            and self.predecessor == old
            and (not alive or between(old.key, new.key, self.me.key))
        ):
            if not alive:
                self._give_up(old)
            self.predecessor = new

    def _adopt(self, host: Host, listed: tuple[Host, ...]) -> None:
        self.successors = self._cut([host, *listed])
        self.passive.pop(host.peer, None)

    def _cut(self, hosts: list[Host]) -> list[Host]:
        """Up to r of them, ending before we come round to ourselves; keys that do not fit this ring
        are no hosts.
        """
        found: list[Host] = []
        for host in hosts:
            if (
                host.peer == self.me.peer
                or host.key == self.me.key
                or len(found) == self.config.successors
            ):
                break
            if host.key >> self.bits:
                self.refused += 1
                break
            found.append(host)
        return found

    def _notify(self, now: Micros) -> None:
        if self.successors:
            self._links.send(self.successors[0], Notify(self.me), now)

    # ------------------------------------------------------------------ questions

    def _ask(self, kind: str, host: Host, now: Micros) -> None:
        self._token += 1
        self._question = Question(kind, host, self._token)
        self._put(self._question, now)

    def _put(self, question: Question, now: Micros) -> None:
        question.tries += 1
        question.at = Micros(now + self.config.answer)
        self._links.send(question.host, Ask(question.token), now)

    def _reply(self, peer: Peer, message: Any, now: Micros) -> None:
        self._links.send(Host(0, peer), message, now) if peer in self._links.up else None

    def _later(self, now: Micros, wait: Micros) -> Micros:
        return Micros(now + 1 + int(wait * (0.5 + self._rng.random())))

    def _give_up(self, host: Host) -> None:
        if host.peer != self.me.peer:
            self.passive[host.peer] = host
            while len(self.passive) > self.config.passive_max:
                del self.passive[next(iter(self.passive))]

    # ------------------------------------------------------------------- look-ups

    def _answer_find(self, sender: Peer, message: Find, now: Micros) -> None:
        arc = self._keys
        if message.key >> self.bits:
            self.refused += 1
        elif arc is not None and arc.has(message.key):
            self._reply(sender, Owner(message.token, arc), now)
        elif self.member:
            ways = [host for host in self._ways(message.key) if host.peer != sender][-NEARER_MAX:]
            self._reply(sender, Nearer(message.token, tuple(reversed(ways))), now)
        else:
            self._reply(sender, Nearer(message.token, ()), now)

    def _ways(self, key: int) -> list[Host]:
        """Known hosts, the best to ask for this key last: the owner as we see it, else the closest
        before the key.
        """
        if not self.member:
            return list(reversed(self._contacts))
        hosts = {host.peer: host for host in (*self.successors, *self.fingers.values())}
        if self.predecessor is not None:
            hosts.setdefault(self.predecessor.peer, self.predecessor)
        hosts.pop(self.me.peer, None)
        size, before = 1 << self.bits, self.me.key
        for host in self.successors:
            if within(before, key, host.key):
                rest = sorted(
                    (h for h in hosts.values() if h is not host), key=lambda h: (h.key - key) % size
                )
                return [*rest[-2:], *self.successors[:1], host]
            before = host.key
        return sorted(hosts.values(), key=lambda host: (host.key - key) % size)

    def _looked_up(self, purpose: str, key: int, arc: Arc | None, now: Micros) -> None:
        if purpose == "found":
            self.found.append((key, arc))
        elif purpose == "join":
            if arc is None:
                self._stabilise_at = self._later(now, OCCUPIED_WAIT)
            elif not self.member and self._question is None:
                self._ask("place", arc.host, now)
        elif purpose == "finger":
            exponent = ((key - self.me.key) % (1 << self.bits)).bit_length() - 1
            if arc is not None and arc.host.peer != self.me.peer:
                self.fingers[exponent] = arc.host
                self.passive.pop(arc.host.peer, None)
        elif purpose == "stranger":
            host = next((h for h in self.passive.values() if h.key == key), None)
            if host is not None:
                if arc is not None and arc.host.peer == host.peer:
                    # It is in this ring.
                    del self.passive[host.peer]
                elif arc is not None and host.to in self._links.up:
                    self._begin_meeting(host, now)
        elif purpose.startswith("meet "):
            self._met_owner(int(purpose[5:]), arc, now)

    def _refresh_finger(self, now: Micros) -> None:
        """One exponent after the other, from half the ring down to the reach of the successors."""
        reach = (self.successors[-1].key - self.me.key) % (1 << self.bits) if self.successors else 0
        if not self.successors or 1 << self._exponent <= reach:
            self._exponent = self.bits - 1
            self.fingers = {e: host for e, host in self.fingers.items() if 1 << e > reach}
            if 1 << self._exponent <= reach:
                return
        key = (self.me.key + (1 << self._exponent)) % (1 << self.bits)
        self._exponent = self._exponent - 1 if self._exponent else self.bits - 1
        self._lookups.start(key, "finger", self._ways(key), now)

    # ------------------------------------------------------------------- meetings

    def _knock(self, now: Micros) -> None:
        """Try one of those that were given up.

        If a link comes up it lives; if our ring does not know it, two rings have met.
        """
        for peer, host in list(self.passive.items()):
            if host.to in self._links.up and not self._lookups.busy("stranger"):
                self._lookups.start(host.key, "stranger", self._ways(host.key), now)
                return
            del self.passive[peer]
            # The next one next time.
            self.passive[peer] = host
            self._links.dial(host, now)
            return

    def _begin_meeting(self, host: Host, now: Micros) -> None:
        del self.passive[host.peer]
        meeting = int(self._rng.random() * 2**53)
        self._links.send(host, Met(meeting, self.me), now)
        self._hear(Met(meeting, host), now)

    def _hear(self, message: Met, now: Micros) -> None:
        if not self.member or message.meeting in self._met or message.host.key >> self.bits:
            return
        self._met[message.meeting] = None
        while len(self._met) > MEETINGS_MAX:
            del self._met[next(iter(self._met))]
        told: dict[int, None] = {self.me.peer: None, message.host.peer: None}
        for host in (*self.fingers.values(), *self.successors):
            if host.peer not in told:
                told[host.peer] = None
                self._links.send(host, message, now)
        if len(self._meetings) < MEETINGS_MAX:
            self._meetings[message.meeting] = (message.host, MEET_TRIES)
            self._look_across(message.meeting, now)

    def _look_across(self, meeting: int, now: Micros) -> None:
        host, _ = self._meetings[meeting]
        key = (self.me.key + 1) % (1 << self.bits)
        self._lookups.start(key, f"meet {meeting}", [host], now)

    def _met_owner(self, meeting: int, arc: Arc | None, now: Micros) -> None:
        host, tries = self._meetings.pop(meeting)
        if arc is not None:
            if (
                between(self.me.key, arc.host.key, self._first.key)
                and len(self._candidates) < CANDIDATES_MAX
            ):
                self._candidates[arc.host.peer] = arc.host
        elif tries > 1:
            self._meetings[meeting] = (host, tries - 1)
            self._look_across(meeting, now)


__all__ = ["Chord"]
