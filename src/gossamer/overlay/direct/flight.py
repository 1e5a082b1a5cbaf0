"""What a publisher has on its way: topics, batches, and the portions of them."""

from __future__ import annotations

from collections import deque

from gossamer.filters.packed import Packed
from gossamer.machine import NEVER, Micros, Peer
from gossamer.overlay.batch import Batch
from gossamer.overlay.direct.plan import Payload, Plan


class Taker:
    """What is known of one node's wants on one topic."""

    __slots__ = ("asked_at", "epoch", "have", "latest", "session", "since", "wants")

    def __init__(self, session: int, since: Micros) -> None:
        self.session = session
        self.since = since  # it has said nothing, with a link; by the clock that stands while this node sleeps
        self.epoch = self.have = 0
        self.latest = -1  # not told anything yet
        self.wants: dict[int, tuple[str, str]] = {}
        self.asked_at = NEVER

    @property
    def is_ready(self) -> bool:
        return self.have == self.latest


class Source:
    """A topic that is published here."""

    def __init__(self, name: str, hash: int, packed: Packed) -> None:
        self.name, self.hash, self.packed = name, hash, packed
        self.takers: dict[Peer, Taker] = {}
        self.plan: Plan | None = None
        self.held: deque[Flight] = deque()  # until all filters are known
        self.seen = (-1, 0)  # the view as of which ``takers`` are the right ones
        self.is_known = False  # the filters of all takers are known, as of that view
        self.used = Micros(0)


class Flight:
    """A batch of ours on its way."""

    __slots__ = (
        "batch",
        "each",
        "most",
        "parts",
        "payload",
        "sending",
        "source",
        "total",
        "tried",
        "waiting",
    )

    def __init__(self, source: Source, batch: Batch, payload: Payload) -> None:
        self.source, self.batch, self.payload = source, batch, payload
        self.sending = 0  # more portions are about to go: it is not done, though none waits
        self.waiting = 0  # portions without an answer
        self.parts: dict[Peer, int] = {}  # how many each node was sent
        self.each = 0  # so many nodes' subscriptions took all events alike;
        self.total: list[int] = []  # and how many each event, once somebody has told them apart
        self.most = 0  # none of these is larger
        self.tried: dict[
            tuple[str, int], list[Peer]
        ] = {}  # by group and offset: members that did not take it
