"""Topic names, and the weight of messages with names in place of hashes (claim 4).

They serve for accounting only.

Names have 13 to 32 characters, 24 on average: a path of three words and a number, as applications
write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gossamer.machine import Message
from gossamer.overlay.interest.messages import Diff, Flip, Flips, Greet, Lone, News
from gossamer.overlay.interest.record import CHANGE, TOPIC, Record, topic_hash

# The bytes of a frame's header.
HEADER = 4
_FIELDS = ("orders", "sensors", "prices", "logs", "telemetry", "alerts", "inventory", "users")
_PLACES = (
    "eu",
    "us-east",
    "asia",
    "geneva",
    "zurich",
    "haifa",
    "new-york",
    "frankfurt",
    "sao-paulo",
)
_KINDS = ("raw", "daily", "updates", "errors", "v2", "audit", "minute")


def topic_name(number: int) -> str:
    field, rest = number % len(_FIELDS), number // len(_FIELDS)
    place, kind = _PLACES[rest % len(_PLACES)], _KINDS[rest // len(_PLACES) % len(_KINDS)]
    return f"{_FIELDS[field]}/{place}/{kind}/{number}"


class Names:
    """``topics`` names, their hashes, and the names of hashes."""

    def __init__(self, topics: int) -> None:
        self.names = [topic_name(number) for number in range(topics)]
        self.hashes = [topic_hash(name) for name in self.names]
        self.by_hash: dict[bytes, str] = dict(zip(self.hashes, self.names, strict=True))
        self._by_name: dict[str, bytes] = dict(zip(self.names, self.hashes, strict=True))

    def hash(self, name: str) -> bytes:
        return self._by_name[name]


_encoder = msgspec.msgpack.Encoder()


def named_size(message: Message, names: Mapping[bytes, str]) -> int:
    """The bytes of the frame that carries the same message with names.

    A message without topics has its own size.
    """
    return HEADER + len(_encoder.encode(_twin(message, names)))


def _twin(message: Any, names: Mapping[bytes, str]) -> Any:
    kind = type(message)
    if kind is Flip or kind is Lone:
        name = names.get(message.topic.to_bytes(TOPIC, "big"), "")
        body = [message.peer, message.life, message.version, name, message.stamp]
        return [30, *body] if kind is Flip else body
    if kind is News:
        named = ([_twin(item, names) for item in part] for part in (message.diffs, message.records))
        return [31, *named, list(message.suspicions), list(message.gone)]
    if kind is Flips:
        return [44, [_twin(item, names) for item in message.flips], message.signatures]
    if kind is Diff:
        at = range(0, len(message.changes), CHANGE)
        changes = [
            [names.get(message.changes[a : a + 8], ""), message.changes[a + 8 : a + 12]] for a in at
        ]
        return [
            message.peer,
            message.life,
            message.version,
            message.base,
            changes,
            message.signature,
        ]
    if kind is Record:
        topics = [
            names.get(message.topics[a : a + 8], "") for a in range(0, len(message.topics), TOPIC)
        ]
        return [
            message.peer,
            message.life,
            message.version,
            message.address,
            topics,
            message.stamps,
            message.extra,
            message.certificate,
            message.signature,
        ]
    if kind is Greet:
        record = _twin(message.record, names)
        return [32, record, message.digest, message.members, message.want, message.sure]
    return message
