"""Counters for the operators of a node.

It counts events by topic, and everything dropped or rejected by its reason. Reasons come from this
program, but they may quote text from a peer. Quotes are cut out, and the number of different
reasons and topics is bounded, so that peers cannot fill the table.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

REASONS_MAX = 128
# The most topics that a node knows (node/topics.py).
TOPICS_MAX = 4096
OTHER = "other"
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBER = re.compile(r"\d[\d,.]*")


class TopicTally:
    """The counters of one topic at this node."""

    __slots__ = ("delivered", "dropped", "matched", "published")

    def __init__(self) -> None:
        # Events of this node whose receipts are complete.
        self.published = 0
        # Subscriptions that took them, by these receipts.
        self.matched = 0
        # Subscriptions that had discarded them, by these receipts.
        self.dropped = 0
        # Events handed to subscriptions of this node.
        self.delivered = 0


class Tally:
    def __init__(self) -> None:
        self.topics: dict[str, TopicTally] = {}
        # By the kind of thing and the reason.
        self.dropped: Counter[tuple[str, str]] = Counter()
        # Messages by the reason.
        self.rejected: Counter[str] = Counter()

    def topic(self, name: str) -> TopicTally:
        found = self.topics.get(name)
        if found is None:
            if len(self.topics) >= TOPICS_MAX:
                name = OTHER
            found = self.topics.setdefault(name, TopicTally())
        return found

    def drop(self, what: str, count: int, reason: str) -> None:
        key = (what, plain_reason(reason))
        if key not in self.dropped and len(self.dropped) >= REASONS_MAX:
            key = (
                (what, OTHER)
                if (what, OTHER) in self.dropped or len(self.dropped) < 2 * REASONS_MAX
                else (OTHER, OTHER)
            )
        self.dropped[key] += count

    def reject(self, reason: str) -> None:
        key = plain_reason(reason)
        if key not in self.rejected and len(self.rejected) >= REASONS_MAX:
            key = OTHER
        self.rejected[key] += 1

    def plain(self) -> dict[str, Any]:
        return {
            "topics": {
                name: {
                    "published": one.published,
                    "matched": one.matched,
                    "dropped": one.dropped,
                    "delivered": one.delivered,
                }
                for name, one in self.topics.items()
            },
            "dropped": [
                {"what": what, "reason": reason, "count": n}
                for (what, reason), n in self.dropped.items()
            ],
            "rejected": [{"reason": reason, "count": n} for reason, n in self.rejected.items()],
        }


def plain_reason(reason: str) -> str:
    """A reason without its quotes and numbers: the same for all cases of the same kind."""
    text = _NUMBER.sub(
        "N", _QUOTED.sub("...", reason.partition(": ")[0] if "'" in reason else reason)
    )
    return text[:80].strip() or OTHER
