"""The state of the plane at one node, and how news changes it: the seed's S, its updates, and what is told of them.

News of a peer is taken if it is greater than what is here, passed on to neighbours that may lack it, and told to the owner;
anything else is not forwarded (paragraph 53: "will only propagate news"). News of this node itself is answered, if it is not what
this node has said: an old life that is still remembered somewhere, a verdict, another process of the same name, or a lie.
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
PEERS_KEPT = 64  # addresses on disk, to find the fabric again by
KEEP_EVERY = Micros(10 * SECOND)
REFUTE_GAP = Micros(
    100_000
)  # between answers to what others say of this node: a liar cannot make it shout
CONFLICT_GAP = Micros(
    5 * SECOND
)  # the same, once another process is known to use this name: neither can win
CONFLICT_MEMORY = Micros(60 * SECOND)
CONFLICTS = (
    3  # answers to another life within a minute: then it is no old life, it is another process
)
CLAIM_BYTES = 64 << 20  # of records that change by one neighbour's news, a second
CLAIM_BURST = 2  # seconds of it at once: a whole view of a million pairs is 12 MB
CLAIM_COST = 512  # of a small one
SPENT_MAX = 1024  # neighbours
FIRST_TOKEN = -1  # tokens of this plane are negative: the node's own count up from 1


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
        self.conflict = False  # another process uses this node's name
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

    # -------------------------------------------------------------------- news

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
                self.out += self.sync.want(
                    sender, [peer], now
                )  # the whole of it: its base is not here
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
                self._tell(sender, known.record)  # it does not know of the new life
            return
        suspect = self.detector.suspects.get(peer)
        if suspect is None or suspect.condemned == NEVER:
            self.gossip.rumour(gone, sender)
        if self.detector.condemned(gone, now):
            self.bury(peer, gone.life, now, left=gone.left)

    # ------------------------------------------------------------ own record

    def renew(self, record: Record, base: int, changes: bytes | None, now: Micros) -> None:
        """This node's own record is new."""
        known = self._know(record)
        self._put(known, now)
        self.gossip.changed(known, base, changes, None)

    def _refute(self, now: Micros) -> None:
        """I am alive: the same interest, in a greater version."""
        if now - self._refuted_at >= REFUTE_GAP and not self.own.is_worn:
            self._refuted_at = now
            self.counters["refuted"] += 1
            record, base = self.own.change(b"")
            self.renew(record, base, b"", now)

    def _about_me(self, life: int, version: int, record: Record | None, now: Micros) -> None:
        """Somebody tells of this node itself: what it said, an old life, another process of the same name, or a lie."""
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
        """Once a beat: a conflict that has not shown for a while is over."""
        if self.conflict and now - max(self._refuted_at, self._twin_at) >= CONFLICT_MEMORY:
            self.conflict = False

    def new_life(self, incarnation: int, now: Micros) -> None:
        self.counters["new lives"] += 1
        self.renew(self.own.live_again(incarnation), 0, None, now)
        self.keep_life()

    # ------------------------------------------------------------ view changes

    def _adopt(
        self, sender: Peer, record: Record, base: int, changes: bytes | None, now: Micros
    ) -> None:
        """News: take it, tell the owner, and pass it on to those who may not have it."""
        if not self._affords(sender, record, now):
            self.counters["claims dropped"] += (
                1  # views differ now, which the exchange of digests mends in its own time
            )
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
        if self.barriers.is_waiting:
            self.out += self.barriers.changed(Peer(record.peer), now)

    def _affords(self, sender: Peer, record: Record, now: Micros) -> bool:
        """A change of a large record costs a hash of all of it: what a neighbour may bring about is measured in that."""
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
        """News of a life that is over: whoever brings it should know."""
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

    # -------------------------------------------------------------------- disk

    def keep_life(self) -> None:
        if self._durable:
            self._store(Keep(LIFE_KEY, b"%d" % self.own.record.incarnation))

    def keep_peers(self, now: Micros) -> None:
        """Some addresses of members, so that a whole fabric that restarts finds itself."""
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
