"""The state of the plane at one node, and the changes that news makes: the seed's S and its
updates.

News of a peer is taken if it is greater than the record here. Then it is passed on to neighbours
that may lack it, and told to the owner. Anything else is not forwarded (paragraph 53: "will only
propagate news"). News of this node itself is answered if this node has not said it. It may come
from an old life that is still remembered somewhere, from a verdict, from another process of the
same name, or from a liar.
"""

from __future__ import annotations

from collections import Counter

from gossamer.machine import NEVER, SECOND, Effect, Keep, Micros, Note, Peer, Send, Store, Token
from gossamer.overlay.interest.barrier import Barriers
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.detector import Detector
from gossamer.overlay.interest.gossip import Gossip
from gossamer.overlay.interest.links import Links
from gossamer.overlay.interest.messages import Gone, News, Suspicion
from gossamer.overlay.interest.own import Own
from gossamer.overlay.interest.record import CHANGE, Known, Record, ViewChange, apply
from gossamer.overlay.interest.sync import Sync
from gossamer.overlay.interest.view import View
from gossamer.trace import Conflict, Dropped, Rejected, hex_peer

LIFE_KEY = "interest"
PEERS_KEY = "peers"
# Addresses on disk, by which the fabric is found again.
PEERS_KEPT = 64
KEEP_EVERY = Micros(10 * SECOND)
# Between answers to claims about this node, so that a liar cannot make it shout.
REFUTE_GAP = Micros(100_000)
# The same, once another process is known to use this name. Neither of the two can win.
CONFLICT_GAP = Micros(5 * SECOND)
CONFLICT_MEMORY = Micros(60 * SECOND)
# Answers to another life within a minute. Beyond them it is no old life but another process.
CONFLICTS = 3
# Bytes of records that change by one neighbour's news in a second.
CLAIM_BYTES = 64 << 20
# Seconds of it at once. A whole view of a million pairs has 12 MB.
CLAIM_BURST = 2
# The cost of a small record.
CLAIM_COST = 512
# The most neighbours whose news is counted.
SPENT_MAX = 1024
# Tokens of this plane are negative, because the node's own count up from 1.
FIRST_TOKEN = -1


class State:
    def __init__(
        self,
        me: Peer,
        config: InterestConfig,
        own: Own,
        view: View,
        links: Links,
        gossip: Gossip,
        detector: Detector,
        sync: Sync,
        barriers: Barriers,
        *,
        durable: bool,
    ) -> None:
        self.me, self.config, self.own, self.view, self.links = me, config, own, view, links
        self.gossip, self.detector, self.sync, self.barriers = gossip, detector, sync, barriers
        self.counters: Counter[str] = Counter()
        self.out: list[Effect] = []
        self.changes: list[ViewChange] = []
        # Another process uses this node's name.
        self.conflict = False
        self.has_left = False
        self._durable = durable
        self._refuted_at = Micros(-SECOND)
        self._refutes: list[Micros] = []
        self._twin_at = Micros(-SECOND)
        self._kept_at = Micros(0)
        self._kept: bytes = b""
        self._tokens = FIRST_TOKEN
        self._spent: dict[Peer, tuple[int, Micros]] = {}
        self._put(self._know(own.record), Micros(0))
        self.keep_life()

    def diff(
        self,
        sender: Peer,
        peer: Peer,
        life: int,
        version: int,
        base: int,
        changes: bytes,
        now: Micros,
    ) -> None:
        known = self.view.members.get(peer)
        if peer == self.me:
            self._about_me(life, version, None, now)
        elif known is None:
            if not self._is_buried(sender, peer, life):
                # It asks for the whole record, because the base is not here.
                self.out += self.sync.want(sender, [peer], now)
        else:
            record = known.record
            if life < record.life or (life == record.life and version <= record.version):
                self.gossip.heard(sender, peer, life, version)
            elif life > record.life or base > record.version:
                self.out += self.sync.want(sender, [peer], now)
            else:
                self._adopt(sender, apply(record, version, changes), record.version, changes, now)

    def whole(self, sender: Peer, record: Record, now: Micros) -> None:
        peer = Peer(record.peer)
        self.sync.came(peer)
        if peer == self.me:
            self._about_me(record.life, record.version, record, now)
            return
        known = self.view.members.get(peer)
        if known is not None:
            here = known.record
            if (record.life, record.version) < (here.life, here.version):
                return
            if record == here:
                self.gossip.heard(sender, peer, record.life, record.version)
                return
        elif self._is_buried(sender, peer, record.life):
            return
        self._adopt(sender, record, 0, None, now)

    def suspicion(self, sender: Peer, claim: Suspicion, now: Micros) -> None:
        if claim.peer == self.me:
            if claim.life == self.own.record.life and claim.version >= self.own.record.version:
                self.detector.strained()
                self._refute(now)
        else:
            self.detector.accused(claim, sender, now)

    def gone(self, sender: Peer, gone: Gone, now: Micros) -> None:
        peer = Peer(gone.peer)
        if peer == self.me:
            if gone.life >= self.own.record.life and not self.has_left:
                self.counters["declared dead"] += 1
                self._answer_life(gone.life, now)
            return
        known = self.view.members.get(peer)
        if known is None or known.record.life > gone.life:
            if known is None and not self.view.is_dead(peer, gone.life):
                self.view.remove(peer, gone.life, now, left=gone.left)
            elif known is not None:
                # The sender does not know of the new life.
                self._tell(sender, known.record)
            return
        suspect = self.detector.suspects.get(peer)
        if suspect is None or suspect.condemned == NEVER:
            self.gossip.rumour(gone, sender)
        if self.detector.condemned(gone, now):
            self.bury(peer, gone.life, now, left=gone.left)

    def renew(self, record: Record, base: int, changes: bytes | None, now: Micros) -> None:
        """This node's own record is new."""
        known = self._know(record)
        self._put(known, now)
        self.gossip.changed(known, base, changes, None)

    def _refute(self, now: Micros) -> None:
        """Answers that this node is alive: the same interest, in a greater version."""
        if now - self._refuted_at >= REFUTE_GAP and not self.own.is_worn:
            self._refuted_at = now
            self.counters["refuted"] += 1
            record, base = self.own.change(b"")
            self.renew(record, base, b"", now)

    def _about_me(self, life: int, version: int, record: Record | None, now: Micros) -> None:
        """A neighbour has news of this node itself.

        It may be the node's own news, an old life, another process of the same name, or a lie.
        """
        mine = self.own.record
        if (life, version) < (mine.life, mine.version) or record == mine:
            return
        if life == mine.life and version == mine.version and record is None:
            return
        self._answer_life(life, now)

    def _answer_life(self, life: int, now: Micros) -> None:
        if (
            now - self._refuted_at < (CONFLICT_GAP if self.conflict else REFUTE_GAP)
            or self.has_left
        ):
            return
        self._refuted_at = now
        self._refutes = [at for at in self._refutes if now - at < CONFLICT_MEMORY] + [now]
        if len(self._refutes) > CONFLICTS:
            self._conflict_with(life >> 8)
        self.new_life(max(self.own.record.life, life) // 256 + 1, now)

    def _conflict_with(self, incarnation: int) -> None:
        if not self.conflict:
            self.conflict = True
            self.out.append(Note(Conflict(hex_peer(self.me), incarnation)))

    def meet_twin(self, incarnation: int, now: Micros) -> None:
        """Another process of the same name was met, not only heard of."""
        self._twin_at = now
        self._conflict_with(incarnation)

    def calm_down(self, now: Micros) -> None:
        """Ends a conflict that has not shown for a while. It is called once a beat."""
        if self.conflict and now - max(self._refuted_at, self._twin_at) >= CONFLICT_MEMORY:
            self.conflict = False

    def new_life(self, incarnation: int, now: Micros) -> None:
        self.counters["new lives"] += 1
        self.renew(self.own.live_again(incarnation), 0, None, now)
        self.keep_life()

    def _adopt(
        self, sender: Peer, record: Record, base: int, changes: bytes | None, now: Micros
    ) -> None:
        """Takes news, tells the owner, and passes it on to neighbours that may lack it."""
        if not self._affords(sender, record, now):
            # Views differ now. The exchange of digests mends that in its own time.
            self.counters["claims dropped"] += 1
            self.out.append(
                Note(Dropped("claim", 1, "more news than one neighbour may bring in a second"))
            )
            return
        known = self.view.learn(record, flipped=changes is not None and len(changes) == CHANGE)
        if known is None:
            self.reject(sender, "a malformed record")
            return
        here = self.view.members.get(Peer(record.peer))
        if here is not None and known.order <= here.order:
            return
        refusal = self.view.refuses(record)
        if refusal:
            self.counters["refused"] += 1
            self.out.append(Note(Dropped("record", 1, refusal)))
            return
        self._put(known, now)
        self.gossip.changed(known, base, changes, sender)
        if self.detector.suspects:
            self.detector.renewed(Peer(record.peer), record.life, record.version)
        if self.barriers.active:
            self.out += self.barriers.changed(Peer(record.peer), now)

    def _affords(self, sender: Peer, record: Record, now: Micros) -> bool:
        """Whether a neighbour may bring about this change now.

        A change of a large record costs a hash of all of it, so changes are measured by their
        bytes.
        """
        spent, since = self._spent.get(sender, (0, now))
        spent = (
            max(0, spent - (now - since) * CLAIM_BYTES // SECOND)
            + len(record.topics)
            + len(record.stamps)
            + CLAIM_COST
        )
        if spent > CLAIM_BYTES * CLAIM_BURST:
            return False
        self._spent.pop(sender, None)
        self._spent[sender] = (spent, now)
        if len(self._spent) > SPENT_MAX:
            del self._spent[next(iter(self._spent))]
        return True

    def _put(self, known: Known, now: Micros) -> None:
        change = self.view.put(known, now)
        if change.is_told:
            self.changes.append(change)
        if change.reason != "news":
            self.links.deadline = min(self.links.deadline, Micros(now + self.config.settle))

    def bury(self, peer: Peer, life: int, now: Micros, *, left: bool) -> None:
        change = self.view.remove(peer, life, now, left=left)
        self.detector.removed(peer)
        self.gossip.drop(peer)
        self.out += self.barriers.closed(peer, now)
        if change is not None:
            self.changes.append(change)
            self.links.deadline = min(self.links.deadline, Micros(now + self.config.settle))

    def _is_buried(self, sender: Peer, peer: Peer, life: int) -> bool:
        """Whether the life is over. Then the neighbour that brings news of it is told."""
        if not self.view.is_dead(peer, life):
            return False
        tomb = self.view.tombs[peer]
        self.out.append(Send((sender,), News(gone=(Gone(peer, tomb.life, tomb.left),))))
        return True

    def _tell(self, peer: Peer, record: Record) -> None:
        self.out.append(Send((peer,), News(records=(record,))))

    def _know(self, record: Record) -> Known:
        known = self.view.learn(record)
        assert known is not None, "our own record is malformed"
        return known

    def reject(self, sender: Peer, reason: str) -> None:
        self.counters["rejected"] += 1
        self.out.append(Note(Rejected(hex_peer(sender), reason)))

    def keep_life(self) -> None:
        if self._durable:
            self._store(Keep(LIFE_KEY, b"%d" % self.own.record.incarnation))

    def keep_peers(self, now: Micros) -> None:
        """Keeps some addresses of members, so that a whole fabric that restarts finds itself."""
        if not self._durable or now - self._kept_at < KEEP_EVERY:
            return
        self._kept_at = now
        members = self.view.members
        some = [(members[peer].record.address, peer) for peer in self.links.up if peer in members][
            :PEERS_KEPT
        ]
        kept = "\n".join(
            sorted(f"{address} {peer:016x}" for address, peer in some if address)
        ).encode()
        if kept and kept != self._kept:
            self._kept = kept
            self._store(Keep(PEERS_KEY, kept))

    def _store(self, keep: Keep) -> None:
        self.out.append(Store(Token(self._tokens), (keep,)))
        self._tokens -= 1
