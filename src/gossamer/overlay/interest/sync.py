"""Making two views equal: digests first, then the differences, in bounded messages.

This happens on a new link (claim 6), and when signs of life keep showing another digest. One end
sends the digests of the parts of its view (``Buckets``). The other end answers with its entries of
the parts that differ (``Have``: peer, life, version). The first end sends the records that the
other end lacks, and asks for those that it lacks itself. A newcomer that knows only itself is sent
everything at once. The cost is that of the difference, and a whole view is never repeated. A record
that is new to the receiver goes on as news, and a known record does not.
"""

from __future__ import annotations

import struct

from gossamer.machine import MILLISECOND, SECOND, Effect, Micros, Peer, Send
from gossamer.overlay.interest.gossip import pack
from gossamer.overlay.interest.links import Link
from gossamer.overlay.interest.messages import (
    BUCKETS_MAX,
    HAVE_ENTRY,
    ITEMS_MAX,
    AskRecords,
    Beat,
    Buckets,
    Gone,
    Have,
    OfferRecords,
)
from gossamer.overlay.interest.record import Record, pack_entries, read_entries
from gossamer.overlay.interest.view import View

# A view that changed later than this differs because news is on its way.
QUIET = Micros(300 * MILLISECOND)
# A record that a neighbour was asked for and has not sent may be asked for again after this. The
# neighbour lives. It may not have the record any longer, or be busy.
ASK_AGAIN = Micros(1 * SECOND)
ENTRIES_A_MESSAGE = 4096
ASKED_MAX = 65_536


class Sync:
    def __init__(self, me: Peer, view: View) -> None:
        # The number of exchanges that this node started.
        self.started = 0
        # A neighbour has once had exactly the same view.
        self.equal = False
        # That neighbour's view was the fabric's, and so is this one.
        self.sure = False
        self._me, self._view = me, view
        # Records on their way to this node, with the time of the question and the peer that was
        # asked. The oldest come first.
        self._asked: dict[Peer, tuple[Micros, Peer]] = {}

    def greeted(self, peer: Peer, digest: int, members: int, sure: bool) -> list[Effect]:
        """A new link: its far end has sent the digest of its view."""
        view = self._view
        if digest == view.digest:
            self.equal, self.sure = True, self.sure or sure
            return []
        if len(view.members) <= 1:
            return []
        # It is a newcomer. The sign of life tells it when it has everything.
        if members <= 1:
            whole = self._send(
                peer, [known.record for other, known in view.members.items() if other != peer], []
            )
            return [*whole, Send((peer,), Beat(view.digest, self.sure))]
        return self.start(peer) if self._me < peer else []

    def beat(self, peer: Peer, link: Link, digest: int, sure: bool, now: Micros) -> list[Effect]:
        """A sign of life, with the digest of its sender's view."""
        view = self._view
        if digest == view.digest:
            link.differs = 0
            self.equal, self.sure = True, self.sure or sure
            return []
        link.differs += 1
        # One end is enough, but it may not have noticed.
        first = self._me < peer
        if (first and (now - view.changed_at > QUIET or link.differs >= 3)) or link.differs >= 5:
            link.differs = 0
            return self.start(peer)
        return []

    def start(self, peer: Peer) -> list[Effect]:
        self.started += 1
        digests = self._view.bucket_digests(self._view.parts())
        return [Send((peer,), Buckets(struct.pack(f">{len(digests)}Q", *digests)))]

    def buckets(self, peer: Peer, message: Buckets) -> list[Effect] | None:
        """Answers digests. None means that the message is malformed."""
        parts, rest = divmod(len(message.digests), 8)
        if rest or not 0 < parts <= BUCKETS_MAX or parts & parts - 1:
            return None
        view = self._view
        theirs = struct.unpack(f">{parts}Q", message.digests)
        differing = [
            place
            for place, (a, b) in enumerate(zip(theirs, view.bucket_digests(parts), strict=True))
            if a != b
        ]
        effects: list[Effect] = []
        # The parts for each message.
        each = max(1, ENTRIES_A_MESSAGE * parts // max(1, len(view.members)))
        for start in range(0, len(differing), each):
            some = bytes(differing[start : start + each])
            effects.append(
                Send((peer,), Have(parts, some, pack_entries(view.entries(parts, some))))
            )
        return effects

    def have(self, peer: Peer, message: Have, now: Micros) -> list[Effect] | None:
        if BUCKETS_MAX % message.parts or len(message.entries) % HAVE_ENTRY:
            return None
        view = self._view
        mine = view.entries(message.parts, message.buckets)
        theirs = read_entries(message.entries)
        records: list[Record] = []
        gone: list[Gone] = []
        wanted: list[Peer] = []
        for other, order in theirs.items():
            here = mine.get(other)
            if here is None:
                if view.is_dead(other, order[0]):
                    gone.append(view.tombs[other].gone)
                elif other not in view.members:
                    wanted.append(other)
            elif order > here:
                wanted.append(other)
            elif order < here:
                records.append(view.members[other].record)
        records += [
            view.members[other].record for other in mine if other not in theirs and other != peer
        ]
        return self._send(peer, records, gone) + self.want(peer, wanted, now)

    def offer(self, peer: Peer, message: OfferRecords, now: Micros) -> list[Effect] | None:
        """The sender has these records. This node asks for those that are news."""
        if len(message.entries) % HAVE_ENTRY:
            return None
        view, members = self._view, self._view.members
        wanted = []
        for other, order in read_entries(message.entries).items():
            known = members.get(other)
            if known is None:
                if not view.is_dead(other, order[0]):
                    wanted.append(other)
            elif order > known.order:
                wanted.append(other)
        return self.want(peer, wanted, now)

    def want(self, peer: Peer, wanted: list[Peer], now: Micros) -> list[Effect]:
        """Asks for records, but not twice at a time.

        It also asks for records of this node itself, because a claim about this node may need an
        answer.
        """
        asked = self._asked
        never = (Micros(-ASK_AGAIN), peer)
        ask = [other for other in wanted if asked.get(other, never)[0] + ASK_AGAIN <= now]
        for other in ask:
            asked.pop(other, None)
            asked[other] = now, peer
            if len(asked) > ASKED_MAX:
                del asked[next(iter(asked))]
        return [
            Send((peer,), AskRecords(struct.pack(f">{len(some)}Q", *some)))
            for start in range(0, len(ask), ITEMS_MAX)
            if (some := ask[start : start + ITEMS_MAX])
        ]

    def closed(self, peer: Peer) -> None:
        """A link is down. Records that were asked for over it do not come, and may be asked for
        elsewhere.
        """
        self._asked = {other: asked for other, asked in self._asked.items() if asked[1] != peer}

    def came(self, peer: Peer) -> None:
        """A record has arrived."""
        self._asked.pop(peer, None)

    def ask(self, peer: Peer, message: AskRecords) -> list[Effect] | None:
        count, rest = divmod(len(message.peers), 8)
        if rest:
            return None
        view = self._view
        records: list[Record] = []
        gone: list[Gone] = []
        for other in dict.fromkeys(struct.unpack(f">{count}Q", message.peers)):
            known = view.members.get(other)
            if known is not None:
                records.append(known.record)
            elif other in view.tombs:
                gone.append(view.tombs[other].gone)
        return self._send(peer, records, gone)

    def _send(self, peer: Peer, records: list[Record], gone: list[Gone]) -> list[Effect]:
        return [Send((peer,), message) for message in pack([*records, *gone])]
