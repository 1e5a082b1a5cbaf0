"""Changes that some neighbours may not know yet, and the rounds that send them.

A round sends to each link only the changes that it lacks (paragraphs 30 and 51). A neighbour that
has told us a change, or has been told it, is left out. Changes of one node that gather between two
rounds become one change: the touched topics with their final state, from the base that our
neighbours were told before. Links with the same gaps share one message, which is encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable

from gossamer.machine import Message, Peer, Send
from gossamer.overlay.interest.messages import (
    ITEMS_MAX,
    NEWS_BYTES,
    Diff,
    Flip,
    Flips,
    Gone,
    Lone,
    News,
    OfferRecords,
    Suspicion,
)
from gossamer.overlay.interest.record import (
    CHANGE,
    LEFT,
    STAMP,
    TOPIC,
    TOPICS_MAX,
    Known,
    Record,
    pack_entries,
)

# Bytes of topics in whole records, to one link in one round. From there on records are offered.
OFFER_BYTES = 256
# Suspicions and deaths that wait for a round: one of each for a member.
RUMOURS_MAX = 65_536


class Fresh:
    """A changed record that has not been sent in a round yet."""

    __slots__ = ("base", "is_own", "known", "order", "record", "touched")

    def __init__(
        self, new: Known, base: int, touched: dict[bytes, bytes] | None, source: Peer | None
    ) -> None:
        self.record, self.order, self.base = new.record, new.order, base
        # The neighbours that have it.
        self.known: dict[Peer, None] = {} if source is None else {source: None}
        # This node's own record, which no neighbour can have yet.
        self.is_own = source is None
        # None: send the whole record.
        self.touched = touched


Rumour = Suspicion | Gone


class Gossip:
    def __init__(self, *, whole: bool) -> None:
        # The number of pending changes, for the threshold.
        self.changes = 0
        # A pending change began at this node.
        self.own = False
        # A pending change came from a neighbour.
        self.theirs = False
        self._whole = whole
        self._fresh: dict[Peer, Fresh] = {}
        self._rumours: dict[Rumour, dict[Peer, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._fresh or self._rumours)

    def changed(self, new: Known, base: int, changes: bytes | None, source: Peer | None) -> None:
        """A record is new here.

        ``changes`` are the topics that were touched after ``base``. None means that only the whole
        record is known.
        """
        self._count(source)
        record = new.record
        peer = Peer(record.peer)
        touched = None if changes is None or self._whole else _read(changes)
        before = self._fresh.get(peer)
        if before is not None and touched is not None:
            if before.touched is None or before.record.life != record.life:
                touched = None
            else:
                touched = before.touched | touched
                base = before.base
                if len(touched) > TOPICS_MAX:
                    # It is more than a change may hold.
                    touched = None
        self._fresh[peer] = Fresh(new, base, touched, source)

    def heard(self, source: Peer, peer: Peer, life: int, version: int) -> None:
        """A neighbour has told us a change that we know already, so it need not be told."""
        fresh = self._fresh.get(peer)
        if fresh is not None and fresh.record.version <= version and fresh.record.life == life:
            fresh.known[source] = None

    def rumour(self, rumour: Rumour, source: Peer | None) -> None:
        known = self._rumours.get(rumour)
        if known is None:
            if len(self._rumours) >= RUMOURS_MAX:
                # Suspicions are told again by the nodes that suspect, and deaths by the exchange of
                # digests.
                return
            self._count(source)
            known = self._rumours[rumour] = {}
        if source is not None:
            known[source] = None

    def _count(self, source: Peer | None) -> None:
        self.changes += 1
        if source is None:
            self.own = True
        else:
            self.theirs = True

    def drop(self, peer: Peer) -> None:
        """This record is needed no longer."""
        self._fresh.pop(peer, None)

    def round(self, links: Iterable[Peer]) -> list[Send]:
        """The messages of a round, with their receivers. Nothing is pending after this."""
        fresh, rumours = list(self._fresh.values()), list(self._rumours.items())
        self._fresh, self._rumours, self.changes = {}, {}, 0
        self.own = self.theirs = False
        if len(fresh) == 1 and not rumours:
            only = fresh[0]
            to = tuple(
                [link for link in links if link not in only.known and link != only.record.peer]
            )
            return [Send(to, message) for message in self._offer([only])] if to else []
        groups: dict[tuple[int, ...], list[Peer]] = {}
        for link in links:
            lacks = [
                place
                for place, item in enumerate(fresh)
                if link not in item.known and link != item.record.peer
            ]
            lacks += [
                place for place, (_, known) in enumerate(rumours, len(fresh)) if link not in known
            ]
            if lacks:
                groups.setdefault(tuple(lacks), []).append(link)
        sends: list[Send] = []
        for places, peers in groups.items():
            items: list[Fresh | Rumour] = [
                fresh[p] if p < len(fresh) else rumours[p - len(fresh)][0] for p in places
            ]
            sends += [Send(tuple(peers), message) for message in self._offer(items)]
        return sends

    def _offer(self, items: list[Fresh | Rumour]) -> list[Message]:
        """Messages for these items.

        Long whole records of other nodes are only offered, because most links have them by then.
        """
        if len(items) == 1 and isinstance(items[0], Fresh) and items[0].touched is not None:
            return [_lone(items[0])]
        whole = [
            item
            for item in items
            if isinstance(item, Fresh) and item.touched is None and not item.is_own
        ]
        if self._whole or sum(len(item.record.topics) for item in whole) < OFFER_BYTES:
            return list(pack(items))
        rest = [
            item
            for item in items
            if not (isinstance(item, Fresh) and item.touched is None and not item.is_own)
        ]
        offers = [
            OfferRecords(
                pack_entries(
                    {Peer(item.record.peer): item.order for item in whole[at : at + ITEMS_MAX]}
                )
            )
            for at in range(0, len(whole), ITEMS_MAX)
        ]
        return [*offers, *pack(rest)]


def _read(changes: bytes) -> dict[bytes, bytes]:
    return {
        changes[at : at + TOPIC]: changes[at + TOPIC : at + CHANGE]
        for at in range(0, len(changes), CHANGE)
    }


def _lone(item: Fresh) -> Message:
    record, touched = item.record, item.touched
    is_one = touched is not None and len(touched) == 1 and record.version == item.base + 1
    if touched is not None and is_one and not record.signature:
        ((topic, stamp),) = touched.items()
        return Flip(
            record.peer, record.life, record.version, int.from_bytes(topic, "big"), _number(stamp)
        )
    return pack([item])[0]


def _number(stamp: bytes) -> int:
    return -1 if stamp == LEFT else int.from_bytes(stamp, "big")


def flip_changes(topic: int, stamp: int) -> bytes:
    """A Flip's topic and stamp as packed changes."""
    return topic.to_bytes(TOPIC, "big") + (LEFT if stamp < 0 else stamp.to_bytes(STAMP, "big"))


def pack(items: Iterable[Fresh | Rumour | Record]) -> list[Flips | News]:
    """Items as messages of bounded size, in order."""
    messages: list[Flips | News] = []
    lone: list[Lone] = []
    signatures: list[bytes] = []
    diffs: list[Diff] = []
    records: list[Record] = []
    suspicions: list[Suspicion] = []
    gone: list[Gone] = []
    size = count = 0

    def close() -> None:
        nonlocal size, count
        if lone:
            messages.append(Flips(tuple(lone), b"".join(signatures)))
        if count > len(lone):
            messages.append(News(tuple(diffs), tuple(records), tuple(suspicions), tuple(gone)))
        signatures.clear()
        for items in (lone, diffs, records, suspicions, gone):
            items.clear()
        size = count = 0

    for item in items:
        if isinstance(item, Suspicion):
            suspicions.append(item)
        elif isinstance(item, Gone):
            gone.append(item)
        else:
            record = item if isinstance(item, Record) else item.record
            touched = None if isinstance(item, Record) else item.touched
            if touched is None:
                records.append(record)
                size += (
                    len(record.topics)
                    + len(record.stamps)
                    + len(record.address)
                    + len(record.extra)
                    + len(record.certificate)
                    + len(record.signature)
                )
            elif (
                len(touched) == 1
                and not isinstance(item, Record)
                and record.version == item.base + 1
            ):
                ((topic, stamp),) = touched.items()
                lone.append(
                    Lone(
                        record.peer,
                        record.life,
                        record.version,
                        int.from_bytes(topic, "big"),
                        _number(stamp),
                    )
                )
                signatures.append(record.signature)
                size += len(record.signature)
            else:
                assert not isinstance(item, Record)
                changes = b"".join([topic + stamp for topic, stamp in touched.items()])
                diffs.append(
                    Diff(
                        record.peer,
                        record.life,
                        record.version,
                        item.base,
                        changes,
                        record.signature,
                    )
                )
                size += len(changes) + len(record.signature)
        size += 40
        count += 1
        if size >= NEWS_BYTES or count >= ITEMS_MAX:
            close()
    close()
    return messages
