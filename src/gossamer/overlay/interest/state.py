"""The state of the plane at one node, and the changes that news makes: the seed's S and its
updates.

News of a peer is taken if it is greater than the record here, and if the peer has signed it. Then
it is passed on to neighbours that may lack it, and told to the owner. Anything else is not
forwarded (paragraph 53: "will only propagate news"). News of this node itself is answered if this
node has not said it. With keys such news comes from an old life that is still remembered somewhere,
or from another process with the same keys. Without keys it may also come from a liar.

A verdict is the word of others. So it speaks only of a life that the peer has had itself, the peer
has a moment to answer, and the answer wins. Answers are paced, but none is left out.
"""

from __future__ import annotations

from collections import Counter

from gossamer.machine import NEVER, SECOND, Effect, Keep, Micros, Note, Peer, Send, Store, Token
from gossamer.overlay.interest.barrier import Barriers
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.detector import Detector
from gossamer.overlay.interest.gossip import Gossip
from gossamer.overlay.interest.links import Links
from gossamer.overlay.interest.messages import Gone, News, Suspicion, verdict
from gossamer.overlay.interest.own import Own
from gossamer.overlay.interest.record import CHANGE, LIFE_MAX, Known, Record, ViewChange, apply
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
# Between answers to another process, once it is known to use this name. Neither of the two can win.
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
# Changes that led to no signed record, while the neighbour is asked for the whole record.
DOUBTS_MAX = 4096
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
        # The random bits of this node's lives.
        self._nonce = own.record.life & 0xFF
        self._refuted_at = Micros(-SECOND)
        # An answer that waits because another one was just given: "", "suspicion", or "verdict".
        self.owed = ""
        self._doubts: dict[tuple[Peer, Peer], None] = {}
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
        signature: bytes,
        now: Micros,
    ) -> None:
        known = self.view.members.get(peer)
        if peer == self.me:
            if (life, version) > (self.own.record.life, self.own.record.version):
                # Only the whole record can show that this node has said it in another life.
                self._doubt(sender, peer, now)
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
                after = apply(record, version, changes, signature)
                self._adopt(sender, after, record.version, changes, now)

    def whole(self, sender: Peer, record: Record, now: Micros) -> None:
        peer = Peer(record.peer)
        self.sync.came(peer)
        if peer == self.me:
            self._about_me(sender, record, now)
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
                self._answer("suspicion", now)
        else:
            self.detector.accused(claim, sender, now)

    def gone(self, sender: Peer, gone: Gone, now: Micros) -> None:
        peer = Peer(gone.peer)
        known = self.view.members.get(peer)
        if peer != self.me and known is not None and known.record.life > gone.life:
            # The sender does not know of the new life.
            self._tell(sender, known.record)
            return
        if known is None and self.view.is_dead(peer, gone.life):
            return
        if known is not None and known.record.life == gone.life and not gone.left:
            # This node has the proof of that life itself.
            gone = verdict(known)
        elif known is None or gone.life >= known.record.life:
            has_lived = self.view.has_lived(gone)
            if has_lived is False:
                self.reject(sender, "a death that the peer's own signature does not bear out")
            if not has_lived:
                return
        if peer == self.me:
            self._gone_me(gone, now)
            return
        if known is None:
            self.view.remove(gone, now)
            return
        suspect = self.detector.suspects.get(peer)
        if suspect is None or suspect.condemned == NEVER:
            self.gossip.rumour(gone, sender)
        if self.detector.condemned(gone, now):
            self.bury(gone, now)

    def _gone_me(self, gone: Gone, now: Micros) -> None:
        mine = self.own.record.life
        if gone.life < mine or self.has_left:
            return
        self.counters["declared dead"] += 1
        if gone.life == mine:
            self._answer("verdict", now)
        else:
            self._answer_life(gone.life, now)

    def renew(self, record: Record, base: int, changes: bytes | None, now: Micros) -> None:
        """This node's own record is new."""
        known = self._know(record)
        self._put(known, now)
        self.gossip.changed(known, base, changes, None)

    def _answer(self, claim: str, now: Micros) -> None:
        """Answers that this node is alive: in a greater version after a suspicion, and in a new
        life after a verdict, because some nodes may have carried it out.

        If another answer was just given, this one follows it.
        """
        # A verdict asks for more than a suspicion, and is the greater word.
        claim = max(self.owed, claim)
        if now - self._refuted_at < REFUTE_GAP:
            self.owed = claim
            return
        self._refuted_at, self.owed = now, ""
        if claim == "verdict" or self.own.is_worn:
            self.new_life(self.own.record.life + 1, now)
        else:
            self.counters["refuted"] += 1
            record, base = self.own.change(b"")
            self.renew(record, base, b"", now)

    @property
    def answer_at(self) -> Micros:
        """When an answer is due that had to wait."""
        is_due = self.owed and not self.has_left
        return Micros(self._refuted_at + REFUTE_GAP) if is_due else NEVER

    def answer_owed(self, now: Micros) -> None:
        self._answer(self.owed, now)

    def _about_me(self, sender: Peer, record: Record, now: Micros) -> None:
        """A neighbour has a record of this node itself.

        It may be the node's own one, of an old life, of another process of the same name, or a lie.
        """
        mine = self.own.record
        if (record.life, record.version) < (mine.life, mine.version) or record == mine:
            return
        if not self.view.is_signed(Known(record)):
            self._forged(sender)
            return
        self._doubts.pop((sender, self.me), None)
        self._answer_life(record.life, now)

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
        self.new_life((max(self.own.record.life, life) // 256 + 1) << 8 | self._nonce, now)

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

    def next_life(self, now: Micros) -> None:
        """Begins a new life because the present one is worn out."""
        self.new_life(self.own.record.life + 1, now)

    def new_life(self, life: int, now: Micros) -> None:
        if life > LIFE_MAX:
            # Without keys a liar can claim the last life.
            self.counters["no life left"] += 1
            return
        self.counters["new lives"] += 1
        before = self.own.record.incarnation
        self.renew(self.own.live_again(life), 0, None, now)
        # A restart begins the next incarnation, whatever lives this one has had.
        if self.own.record.incarnation != before:
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
        if not self.view.is_signed(known):
            if changes is None:
                self._forged(sender)
            else:
                self._doubt(sender, Peer(record.peer), now)
            return
        self._doubts.pop((sender, Peer(record.peer)), None)
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

    def _doubt(self, sender: Peer, peer: Peer, now: Micros) -> None:
        """A change led to no record that its owner has signed.

        The owner may have signed two records of one version, of which this node has another one
        than the sender. So the sender is asked for the whole record, and charged if it brings more
        such changes before that one.
        """
        key = (sender, peer)
        if key in self._doubts:
            self._forged(sender)
        self._doubts[key] = None
        if len(self._doubts) > DOUBTS_MAX:
            del self._doubts[next(iter(self._doubts))]
        self.out += self.sync.want(sender, [peer], now)

    def _forged(self, sender: Peer) -> None:
        self.counters["forged"] += 1
        self.reject(sender, "a record that its node has not signed")

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

    def bury(self, gone: Gone, now: Micros) -> None:
        peer = Peer(gone.peer)
        change = self.view.remove(gone, now)
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
        self.out.append(Send((sender,), News(gone=(self.view.tombs[peer].gone,))))
        return True

    def _tell(self, peer: Peer, record: Record) -> None:
        self.out.append(Send((peer,), News(records=(record,))))

    def condemn(self, peer: Peer, life: int, now: Micros) -> None:
        """Carries out this node's own verdict."""
        known = self.view.members.get(peer)
        if known is not None and known.record.life == life:
            gone = verdict(known)
            self.gossip.rumour(gone, None)
            self.bury(gone, now)

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
