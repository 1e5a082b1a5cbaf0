"""The real wire in the simulator: every message becomes a frame and comes out of one; and which events are in it."""

from __future__ import annotations

from gossamer.machine import Message
from gossamer.node.history import Past
from gossamer.node.wire import Unframer, encode
from gossamer.overlay.batch import Batch
from gossamer.overlay.direct.messages import Portion
from gossamer.overlay.skiplist.messages import Carry
from gossamer.overlay.tree.messages import Carry as Branch
from gossamer.sim.network import EventId


class WireCodec:
    """The real wire: frames as a socket would carry them."""

    encode = staticmethod(encode)

    def __init__(self) -> None:
        self._feed = Unframer().feed

    def decode(self, frame: bytes) -> Message:
        (message,) = self._feed(frame)
        return message

    def ids(self, message: Message) -> tuple[EventId, ...]:
        if isinstance(message, Past):
            return ()  # events of long ago, which come once
        if isinstance(message, Portion):
            return tuple(
                (message.publisher, message.incarnation, message.first + place)
                for place in message.places
            )
        batch = message.batch if isinstance(message, Branch | Carry) else message
        assert isinstance(batch, Batch)
        return tuple((batch.publisher, batch.incarnation, number) for number in batch.events)


def floor_of(message: Message) -> int | None:
    """The publisher's floor, as a message with events tells it."""
    floor: int | None = (
        message.batch.floor if isinstance(message, Branch | Carry) else getattr(message, "floor", None)
    )
    return floor


def plane_of(message: Message) -> str:
    """Which plane of a node a message with events belongs to, by its attribute there."""
    return {Branch: "tree", Carry: "skiplist", Portion: "direct"}.get(type(message), "flood")


def hops_of(message: Message) -> int:
    """How far the events in a message have come."""
    if isinstance(message, Portion):
        return 1
    hops: int = message.batch.hops if isinstance(message, Branch | Carry) else getattr(message, "hops", 0)
    return hops
