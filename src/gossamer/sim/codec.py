"""The real wire in the simulator. Every message becomes a frame and comes out of one. This module
also says which events are in a message.
"""

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
            # These are events of long ago, which come once.
            return ()
        if isinstance(message, Portion):
            return tuple(
                (message.publisher, message.incarnation, message.first + place)
                for place in message.places
            )
        batch = message.batch if isinstance(message, Branch | Carry) else message
        assert isinstance(batch, Batch)
        return tuple((batch.publisher, batch.incarnation, number) for number in batch.events)


def floor_of(message: Message) -> int | None:
    """The publisher's floor that a message with events tells."""
    floor: int | None = (
        message.batch.floor
        if isinstance(message, Branch | Carry)
        else getattr(message, "floor", None)
    )
    return floor


def plane_of(message: Message) -> str:
    """The plane of a node to which a message with events belongs, by its attribute there."""
    return {Branch: "tree", Carry: "skiplist", Portion: "direct"}.get(type(message), "flood")


def hops_of(message: Message) -> int:
    """The number of hops that the events in a message have made."""
    if isinstance(message, Portion):
        return 1
    hops: int = (
        message.batch.hops if isinstance(message, Branch | Carry) else getattr(message, "hops", 0)
    )
    return hops
