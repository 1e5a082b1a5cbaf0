"""The interest plane of one node, sans-IO.

Every node knows which nodes want which topic, and learns of each change. ``Interest`` is the
machine. It holds the node's own record and its view of all others, and connects the parts:

    view      the members and their interests
    gossip    news that some neighbours lack, and the rounds that send it
    links     the K-connected overlay
    sync      makes two views equal, digests first
    detector  signs of life, suspicions, verdicts
    barrier   learns when every live node knows something
    names     turns hashes back into names
    state     the changes that news makes, and the replies

The seed's pseudo-code (paragraphs 47 to 54) is ``subscribe``, ``unsubscribe``, ``_round``,
``link``, and ``State.diff``, ``whole`` and ``gone``. ALGORITHM.md beside this file compares it with
the seed and gives the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from gossamer.machine import (
    NEVER,
    SECOND,
    Deliver,
    Dial,
    Effect,
    LinkState,
    Message,
    Micros,
    Peer,
    Send,
    Token,
)
from gossamer.overlay.interest.barrier import Barriers
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.detector import Detector, Suspect
from gossamer.overlay.interest.gossip import Gossip, flip_changes
from gossamer.overlay.interest.links import Link, Links
from gossamer.overlay.interest.messages import (
    AskRecords,
    Barrier,
    Beat,
    Buckets,
    Flip,
    Flips,
    Gone,
    Greet,
    Have,
    NameAsk,
    NameTell,
    News,
    OfferRecords,
    Probe,
    Reached,
    Vouch,
    Want,
)
from gossamer.overlay.interest.names import Names
from gossamer.overlay.interest.own import InterestError, Own
from gossamer.overlay.interest.record import CHANGE, INCARNATION_MAX, Pool, Record, topic_hash
from gossamer.overlay.interest.state import LIFE_KEY, PEERS_KEY, State
from gossamer.overlay.interest.sync import Sync
from gossamer.overlay.interest.view import View
from gossamer.overlay.proof import FAREWELL, UNSIGNED, Proof

# When all nodes are newcomers: a whole fabric starts, or restarts, at once.
SURE_AFTER = 3 * SECOND
# None of the addresses to begin with has answered. Then this node is the fabric.
ALONE_AFTER = 10 * SECOND
# Looks at the neighbours in each beat.
TICKS = 4
# A round waits at most this many times ``coalesce``: usually, when busy, and in a rush.
WAITS, BUSY_WAITS, RUSH_WAITS = 2, 8, 32
# Times ``busy``. In a rush a whole fabric starts, or restarts, at once. Then there are fewer and
# larger rounds.
RUSH = 20
# Beyond this incarnation the file is damaged: a node would have begun a life a second for months.
RESTORED_MAX = INCARNATION_MAX // 2
_PEER = re.compile("[0-9a-f]{16}")


class Interest:
    """The machine.

    ``Deliver(0, changes)`` hands its owner the changes of the view, as ``ViewChange``.
    """

    def __init__(
        self,
        me: Peer,
        *,
        incarnation: int,
        address: str,
        rng: Random,
        config: InterestConfig,
        pool: Pool | None = None,
        durable: bool = False,
        restored: Mapping[str, bytes] | None = None,
        hash: Callable[[str], bytes] = topic_hash,
        proof: Proof = UNSIGNED,
    ) -> None:
        remembered = _read_peers(restored)
        # Another node may be at a remembered address by now, so a peer is expected there. A node
        # that was given no addresses has only the remembered ones. It takes any peer that answers
        # there, because nodes without a data directory or keys come back under other names.
        named = {
            address: peer
            for address, peer in remembered.items()
            if config.join and address not in config.join
        }
        if remembered:
            config = replace(config, join=tuple(dict.fromkeys([*config.join, *remembered])))
        self.me, self.config, self.rng = me, config, rng
        incarnation = max(1, incarnation, _read_life(restored) + 1)
        self.view = View(
            config.k,
            members_max=config.members_max,
            pairs_max=config.pairs_max,
            pool=pool,
            proof=proof,
        )
        self.names = Names(hash)
        self._proof = proof
        self._own = Own(me, incarnation, int(rng.random() * 256), address, self.names, proof)
        self._gossip = Gossip(whole=config.news == "whole")
        self._links = Links(me, config, self.view, rng, named)
        self._detector = Detector(me, config, self.view, self._links, self._gossip, rng)
        self._sync = Sync(me, self.view)
        self._sync.sure = not config.join
        self._barriers = Barriers(me, self.view, self._links)
        # The numbers of barriers that were reached, for the owner to take.
        self.barriers_done = self._barriers.done
        self._state = State(
            me,
            config,
            self._own,
            self.view,
            self._links,
            self._gossip,
            self._detector,
            self._sync,
            self._barriers,
            durable=durable,
        )
        self.counters = self._state.counters
        self._commanded = False
        self._round_at: Micros = NEVER
        self._is_coalescing = False
        self._waits = WAITS
        # Changes since the last beat.
        self._recent = 0
        self._last_round = Micros(0)
        self._tick_at = Micros(0)
        self._began: Micros | None = None
        self._ticks = int(rng.random() * TICKS)
        self._handlers: dict[type[Message], Callable[[Peer, Any, Micros], None]] = {
            Flip: self._flip,
            Flips: self._flips,
            News: self._news,
            Greet: self._greet,
            Want: self._want,
            Beat: self._beat,
            Probe: self._probe,
            Vouch: self._vouch,
            Buckets: self._on_buckets,
            Have: self._on_have,
            OfferRecords: self._on_offer,
            AskRecords: self._on_ask,
            Barrier: self._on_barrier,
            Reached: self._on_barrier,
            NameAsk: self._name_ask,
            NameTell: self._name_tell,
        }

    @property
    def record(self) -> Record:
        """This node's own record."""
        return self._own.record

    @property
    def links(self) -> dict[Peer, Link]:
        return self._links.up

    @property
    def neighbours(self) -> tuple[Peer, ...]:
        """The peers that the overlay links to this node, by the view of this moment."""
        return self.view.neighbours(self.me)

    @property
    def suspects(self) -> dict[Peer, Suspect]:
        return self._detector.suspects

    def is_synced(self, now: Micros) -> bool:
        """Whether this node has once known everything that the fabric knows, or knows of no fabric.

        Before that, its view says little.
        """
        sync = self._sync
        if not sync.sure and self._began is not None:
            here = now - self._began
            sync.sure = (sync.equal and here > SURE_AFTER) or (
                not self._links.up and here > ALONE_AFTER
            )
        return sync.sure

    @property
    def conflict(self) -> bool:
        """Another process uses this node's name."""
        return self._state.conflict

    @property
    def strain(self) -> int:
        return self._detector.strain

    def interested(self, topic: str) -> dict[Peer, bytes]:
        """The peers that want a topic, and their stamps."""
        return self.view.interested(self.names.hash(topic))

    def subscribe(self, topic: str, now: Micros, routes: int = 0, source: str = "user") -> None:
        """Wants a topic, by some routes.

        Several sources may want it, several times. The topic is left when no source wants it any
        longer.
        """
        self._change(self._own.join(topic, routes, source), now)

    def unsubscribe(self, topic: str, now: Micros, routes: int = 0, source: str = "user") -> None:
        self._change(self._own.part(topic, routes, source), now)

    def drop_source(self, source: str, now: Micros) -> None:
        """A source is gone. Topics that only this source wanted are left."""
        self._change(self._own.drop_source(source), now)

    def leave(self, now: Micros) -> None:
        """Says goodbye. Neighbours that lose a link by it open another one first."""
        self._state.has_left = self._links.leaving = True
        # The round starts at once, whatever starts rounds otherwise.
        self._links.deadline = self._round_at = Micros(0)
        gone = Gone(self.me, self.record.life, True)
        signature = self._proof.sign(FAREWELL, gone.said)
        self._gossip.rumour(replace(gone, signature=signature), None)
        self._command()

    @property
    def may_go(self) -> bool:
        """After ``leave``: each neighbour has opened another link and needs its link to this
        node no longer.
        """
        return not any(link.theirs for link in self._links.up.values())

    def barrier(self, now: Micros, *, settled: bool = False) -> int:
        """A number that is in ``barriers_done`` once every live node has this node's present
        record.

        With ``settled``, each of them also waits for the receipts of everything that it published
        before it had the record.
        """
        self._command()
        return self._barriers.ask(self.record.life, self.record.version, now, settled=settled)

    @property
    def unanswered(self) -> list[Peer]:
        """The neighbours that this node's barriers wait for now."""
        return self._barriers.waits_for

    def publishes(self, mark: Callable[[], int], is_settled: Callable[[int], bool]) -> None:
        """Sets how the owner counts its publications, and whether all up to some count have
        their receipts.
        """
        self._barriers.mark, self._barriers.is_settled = mark, is_settled

    def settled(self, now: Micros) -> list[Effect]:
        """Receipts are complete."""
        return self._barriers.settled(now) if self._barriers.active else []

    def ask_names(self, topics: Iterable[bytes], now: Micros) -> int:
        """Asks for names that are not known here, and returns the number of questions.

        A peer that knows a name and is not linked is dialled. Then the caller asks again.
        """
        asked = 0
        for topic in self.names.unknown(topics):
            holders = self.view.interested(topic)
            linked = next((peer for peer in holders if peer in self._links.up), None)
            if linked is not None:
                self._state.out += self.names.question(linked, [topic])
                asked += 1
            elif holders:
                holder = next(iter(holders))
                address = self.view.members[holder].record.address
                if address:
                    self._state.out.append(Dial(address, holder))
        self._command()
        return asked

    def readdress(self, address: str, now: Micros) -> None:
        """This node can be reached at another address."""
        if address != self.record.address:
            base = self.record.version
            self._state.renew(self._own.move(address), base, None, now)
            self._command()

    def meet_twin(self, incarnation: int, now: Micros) -> None:
        """Another process has this node's name.

        Two processes that know no other node would never hear of each other by the news of others.
        """
        self._state.meet_twin(incarnation, now)
        self._command()

    def say(self, extra: bytes, now: Micros) -> None:
        """Sets the bytes that every other node keeps beside this node's interest. They are
        opaque here.
        """
        if extra != self.record.extra:
            base = self.record.version
            self._state.renew(self._own.add(extra), base, None, now)
            self._command()

    def certify(self, certificate: bytes, now: Micros) -> None:
        """Sets the proof of this node's identity for every other node. It is opaque here."""
        if certificate != self.record.certificate:
            base = self.record.version
            self._state.renew(self._own.certify(certificate), base, None, now)
            self._command()

    def kept(self, peer: Peer, now: Micros) -> None:
        """A ``Hangup`` was not carried out, because another plane uses the link.

        This plane proposes it again after a while.
        """
        self._links.kept(peer, now)

    def _change(self, changes: bytes, now: Micros) -> None:
        if changes:
            if self._own.is_worn:
                self._state.next_life(now)
            record, base = self._own.change(changes)
            self._state.renew(record, base, changes, now)
            self._command()

    def _command(self) -> None:
        self._commanded = True

    @property
    def deadline(self) -> Micros:
        if self._commanded or self._state.out or self._state.changes:
            return Micros(0)
        answer_at = self._state.answer_at if self._state.owed else NEVER
        return min(
            self._round_at, self._tick_at, self._links.deadline, self._barriers.deadline, answer_at
        )

    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        if sender in self._links.up:
            self.heard(sender, now)
            handler = self._handlers.get(type(message))
            if handler is not None:
                handler(sender, message, now)
                if self._gossip:
                    self._schedule(now)
        return self._flush()

    def wake(self, now: Micros) -> list[Effect]:
        self._commanded = False
        if self._began is None:
            self._began = now
        if now >= self._tick_at:
            self._tick(now)
        if now >= self._state.answer_at:
            self._state.answer_owed(now)
        if now >= self._links.deadline:
            self._state.out += self._links.upkeep(now)
        if now >= self._barriers.deadline:
            self._state.out += self._barriers.wake(now)
        self._schedule(now)
        if now >= self._round_at:
            self._round(now)
        return self._flush()

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        if state is LinkState.UP:
            link = self._links.opened(peer, now)
            self._detector.up(peer)
            self._state.out.append(Send((peer,), self._greeting(link.mine)))
        elif state is LinkState.DOWN or state is LinkState.CUT:
            ours = self._links.closed(peer, now)
            if not ours:
                self._detector.reset(peer, now)
            self._state.out += self._barriers.closed(peer, now)
            self._sync.closed(peer)
        elif state is LinkState.MOVING:
            self.heard(peer, now)
        return self._flush()

    def heard(self, peer: Peer, now: Micros) -> None:
        """Something came from a peer, whatever it was, or reached it."""
        link = self._links.up.get(peer)
        if link is not None:
            link.heard = now
            if self._detector.suspects or self._detector.asked:
                self._state.out += self._detector.heard(peer, now)

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        return []

    def _schedule(self, now: Micros) -> None:
        """Sets the time of the next round: at once past the threshold, soon after news, else at
        the period.
        """
        gossip, config = self._gossip, self.config
        if not gossip or self._round_at <= now:
            return
        if (
            config.threshold
            and gossip.changes >= config.threshold
            and (self._gossip.own or not config.coalesce)
        ):
            self._round_at = now
        elif config.coalesce and (self._gossip.theirs or not (config.threshold or config.period)):
            if not self._is_coalescing:
                self._is_coalescing = True
                # The wait is drawn, so that the messages of two neighbours do not cross.
                soon = now + 1 + int(config.coalesce * self._waits * self.rng.random())
                self._round_at = min(self._round_at, Micros(soon))
        elif config.period and self._round_at == NEVER:
            self._round_at = Micros(max(now, self._last_round + config.period))

    def _round(self, now: Micros) -> None:
        self._round_at, self._last_round = NEVER, now
        self._is_coalescing = False
        self._recent += self._gossip.changes
        self._waits = max(self._waits, self._pace())
        if self._gossip:
            self._state.out += self._gossip.round(self._links.carriers())
            self.counters["rounds"] += 1

    def _pace(self) -> int:
        """How long rounds wait, by the changes since the last beat."""
        many = self.config.busy * self.config.beat
        return (
            WAITS
            if self._recent * SECOND < many
            else BUSY_WAITS
            if self._recent * SECOND < RUSH * many
            else RUSH_WAITS
        )

    def _tick(self, now: Micros) -> None:
        config = self.config
        each = config.beat // TICKS
        if self._tick_at and now - self._tick_at > config.beat:
            self._detector.slept(now)
            self.counters["slept"] += 1
        self._tick_at = Micros(now + each)
        self._ticks += 1
        self._state.out += self._detector.tick(now)
        while self._detector.verdicts:
            self._state.condemn(*self._detector.verdicts.pop(), now)
        if self._ticks % TICKS == 0:
            self._waits, self._recent = self._pace(), 0
            links = tuple(peer for peer, link in self._links.up.items() if link.greeted)
            if links:
                self._state.out.append(Send(links, Beat(self.view.digest, self.is_synced(now))))
            self._state.out += self._links.dial_lost(now)
            self.view.forget(Micros(now - config.forget))
            self._state.keep_peers(now)
            self._state.calm_down(now)

    def _greet(self, sender: Peer, message: Greet, now: Micros) -> None:
        link = self._links.up[sender]
        if message.record.peer != sender:
            self._state.reject(sender, "a greeting in another's name")
            return
        link.greeted, link.theirs = True, message.want
        self._state.whole(sender, message.record, now)
        self._state.out += self._sync.greeted(sender, message.digest, message.members, message.sure)
        self._links.deadline = min(self._links.deadline, Micros(now + self.config.settle))

    def _greeting(self, wants: bool) -> Greet:
        return Greet(self.record, self.view.digest, len(self.view.members), wants, self._sync.sure)

    def _want(self, sender: Peer, message: Want, now: Micros) -> None:
        self._links.up[sender].theirs = message.want
        self._links.deadline = min(self._links.deadline, Micros(now + self.config.settle))

    def _flip(self, sender: Peer, message: Flip, now: Micros) -> None:
        changes = flip_changes(message.topic, message.stamp)
        self._state.diff(
            sender,
            Peer(message.peer),
            message.life,
            message.version,
            message.version - 1,
            changes,
            b"",
            now,
        )

    def _flips(self, sender: Peer, message: Flips, now: Micros) -> None:
        for place, flip in enumerate(message.flips):
            changes = flip_changes(flip.topic, flip.stamp)
            self._state.diff(
                sender,
                Peer(flip.peer),
                flip.life,
                flip.version,
                flip.version - 1,
                changes,
                message.signature(place),
                now,
            )

    def _news(self, sender: Peer, message: News, now: Micros) -> None:
        for diff in message.diffs:
            if len(diff.changes) % CHANGE or diff.base >= diff.version:
                self._state.reject(sender, "a malformed change")
                continue
            self._state.diff(
                sender,
                Peer(diff.peer),
                diff.life,
                diff.version,
                diff.base,
                diff.changes,
                diff.signature,
                now,
            )
        for record in message.records:
            self._state.whole(sender, record, now)
        for claim in message.suspicions:
            self._state.suspicion(sender, claim, now)
        for gone in message.gone:
            self._state.gone(sender, gone, now)

    def _beat(self, sender: Peer, message: Beat, now: Micros) -> None:
        link = self._links.up[sender]
        if link.greeted:
            self._state.out += self._sync.beat(sender, link, message.digest, message.sure, now)

    def _probe(self, sender: Peer, message: Probe, now: Micros) -> None:
        if message.peer == self.me:
            self._state.out.append(Send((sender,), Beat(self.view.digest, self.is_synced(now))))
        else:
            self._state.out += self._detector.probe(sender, Peer(message.peer), now)

    def _vouch(self, sender: Peer, message: Vouch, now: Micros) -> None:
        self._detector.vouch(Peer(message.peer), now)

    def _on_buckets(self, sender: Peer, message: Buckets, now: Micros) -> None:
        self._take(sender, self._sync.buckets(sender, message))

    def _on_have(self, sender: Peer, message: Have, now: Micros) -> None:
        self._take(sender, self._sync.have(sender, message, now))

    def _on_offer(self, sender: Peer, message: OfferRecords, now: Micros) -> None:
        self._take(sender, self._sync.offer(sender, message, now))

    def _on_ask(self, sender: Peer, message: AskRecords, now: Micros) -> None:
        self._take(sender, self._sync.ask(sender, message))

    def _on_barrier(self, sender: Peer, message: Barrier | Reached, now: Micros) -> None:
        self._state.out += self._barriers.receive(sender, message, now)

    def _name_ask(self, sender: Peer, message: NameAsk, now: Micros) -> None:
        self._take(sender, self.names.ask(sender, message))

    def _name_tell(self, sender: Peer, message: NameTell, now: Micros) -> None:
        self.names.tell(message)

    def _take(self, sender: Peer, effects: list[Effect] | None) -> None:
        if effects is None:
            self._state.reject(sender, "a malformed message of the interest plane")
        else:
            self._state.out += effects

    def _flush(self) -> list[Effect]:
        state = self._state
        if state.changes:
            state.out.append(Deliver(0, tuple(state.changes)))
            state.changes = []
        out, state.out = state.out, []
        return out


def _read_life(restored: Mapping[str, bytes] | None) -> int:
    """The incarnation on disk. One that no node can have come to by living is taken for damage."""
    value = (restored or {}).get(LIFE_KEY, b"0")
    found = int(value) if len(value) <= 8 and value.isdigit() else 0
    return found if found <= RESTORED_MAX else 0


def _read_peers(restored: Mapping[str, bytes] | None) -> dict[str, Peer | None]:
    """Addresses, and the peers that were there. Older files have no peers."""
    text = (restored or {}).get(PEERS_KEY, b"").decode("utf-8", "replace")
    found: dict[str, Peer | None] = {}
    for line in text.split("\n"):
        address, _, peer = line.partition(" ")
        if address:
            found[address] = Peer(int(peer, 16)) if _PEER.fullmatch(peer) else None
    return found


__all__ = ["Interest", "InterestError"]
