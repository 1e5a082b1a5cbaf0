"""A node's log for its operator, through Python's ``logging`` (loggers ``gossamer.*``).

Each line has a short fixed text and fields (``extra={"fields": {...}}``), so that it can be
searched. Events that peers can cause again and again are logged once in ``QUIET_SECONDS``, with the
number of times that they were left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from gossamer import trace
from gossamer.net.tally import plain_reason
from gossamer.overlay.interest.record import ViewChange

QUIET_SECONDS = 10.0
# The most different lines that are held back at a time.
QUIET_MAX = 256

log = logging.getLogger("gossamer")
# A library logs nothing unless the program asks for it.
log.addHandler(logging.NullHandler())


def say(level: int, text: str, **fields: Any) -> None:
    if log.isEnabledFor(level):
        log.log(level, text, extra={"fields": fields})


class Journal:
    """Turns the records of one node into log lines."""

    def __init__(self, node: str, clock: Callable[[], float]) -> None:
        self._node, self._clock = node, clock
        # When a line was logged last, and how often it was left out since.
        self._said: dict[tuple[str, str], tuple[float, int]] = {}
        self._kinds: dict[type[Any], Callable[[Any], None]] = {
            trace.Rejected: self._rejected,
            trace.Dropped: self._dropped,
            trace.Linked: self._linked,
            trace.Conflict: self._conflict,
            trace.SchemaConflict: self._schema_conflict,
            trace.Restored: self._restored,
            trace.Gapped: self._gapped,
            trace.Advertised: self._advertised,
        }

    def noted(self, record: trace.Record) -> None:
        kind = self._kinds.get(type(record))
        if kind is not None:
            kind(record)

    def say(self, level: int, text: str, **fields: Any) -> None:
        say(level, text, node=self._node, **fields)

    def quietly(self, level: int, text: str, reason: str, **fields: Any) -> None:
        """Logs a line at most once in ``QUIET_SECONDS`` for each kind of reason."""
        key, now = (text, plain_reason(reason)), self._clock()
        at, missed = self._said.get(key, (-QUIET_SECONDS, 0))
        if now - at < QUIET_SECONDS:
            self._said[key] = (at, missed + 1)
            return
        if key not in self._said and len(self._said) >= QUIET_MAX:
            self._said.pop(next(iter(self._said)))
        self._said[key] = (now, 0)
        more = {"not_said": missed} if missed else {}
        self.say(level, text, reason=reason, **fields, **more)

    def ended(self, where: str, reason: str, detail: str) -> None:
        self.quietly(logging.WARNING, "connection closed", reason, where=where, detail=detail)

    def _rejected(self, record: trace.Rejected) -> None:
        self.quietly(
            logging.WARNING, "message rejected", record.reason, peer=record.peer, cut=record.cut
        )

    def _dropped(self, record: trace.Dropped) -> None:
        self.quietly(
            logging.WARNING, "dropped", record.reason, what=record.what, count=record.count
        )

    def _linked(self, record: trace.Linked) -> None:
        levels = {"up": logging.INFO, "down": logging.INFO, "cut": logging.WARNING}
        level = levels.get(record.state, logging.DEBUG)
        self.say(level, f"link {record.state}", peer=record.peer)

    def members(self, changes: Iterable[ViewChange]) -> None:
        """Logs the members that came and went.

        It does not use the trace's records, because these are made only for a node that writes a
        trace.
        """
        for change in changes:
            record, peer = (
                change.after if change.after is not None else change.before,
                trace.hex_peer(change.peer),
            )
            is_own_start = change.reason == "joined" and peer == self._node
            if change.reason != "news" and record is not None and not is_own_start:
                level = logging.WARNING if change.reason == "failed" else logging.INFO
                self.say(
                    level, f"member {change.reason}", peer=peer, incarnation=record.incarnation
                )

    def _conflict(self, record: trace.Conflict) -> None:
        self.quietly(
            logging.ERROR,
            "identity used twice",
            "another process uses this node's identity: "
            "are its keys or its data directory used twice?",
        )

    def _schema_conflict(self, record: trace.SchemaConflict) -> None:
        self.quietly(
            logging.ERROR,
            "schemas do not agree",
            f"topic {record.topic!r} is ({record.here}) here and ({record.schema}) at node "
            f"{record.peer}; say which one holds: gossamer advertise TOPIC SCHEMA --replace",
            topic=record.topic,
            peer=record.peer,
        )

    def _gapped(self, record: trace.Gapped) -> None:
        self.quietly(
            logging.WARNING,
            "gap",
            record.reason,
            publisher=record.publisher,
            subscription=record.subscription,
        )

    def _restored(self, record: trace.Restored) -> None:
        self.say(logging.INFO, "restored", incarnation=record.incarnation, events=record.events)

    def _advertised(self, record: trace.Advertised) -> None:
        self.say(logging.DEBUG, "topic known", topic=record.topic, schema=record.schema)
