"""What a node counts for those who watch it: events by topic, and everything dropped or rejected by its reason.

Reasons come from this program, but may quote what a peer sent: quotes are cut out, and the number of different reasons and
topics is bounded, so that nobody can fill the table from outside.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

REASONS_MAX = 128
TOPICS_MAX = 4096  # as many as a node knows (node/topics.py)
OTHER = "other"
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBER = re.compile(r"\d[\d,.]*")


class TopicTally:
    """One topic at this node."""

    __slots__ = ("delivered", "dropped", "matched", "published")

    def __init__(self) -> None:
        self.published = 0  # events of this node whose receipts are complete
        self.matched = 0  # subscriptions that took them, by these receipts
        self.dropped = 0  # subscriptions that had discarded them, by these receipts
        self.delivered = 0  # events handed to subscriptions of this node


class Tally:
    def __init__(self) -> None:
        self.topics: dict[str, TopicTally] = {}
        self.dropped: Counter[tuple[str, str]] = Counter()  # (what, reason) -> how many
        self.rejected: Counter[str] = Counter()  # reason -> how many messages

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
        """For ``status``."""
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
    """A reason without what it quotes, and without numbers: the same for all cases of the same kind."""
    text = _NUMBER.sub(
        "N", _QUOTED.sub("...", reason.partition(": ")[0] if "'" in reason else reason)
    )
    return text[:80].strip() or OTHER
