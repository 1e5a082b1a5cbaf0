"""The tree's messages as frames: every message of a simulation goes through this, so what cannot
travel fails there.
"""

from __future__ import annotations

import msgspec

from gossamer.machine import Message
from gossamer.overlay.tree.messages import Carry, TreeMessage
from gossamer.sim.network import EventId

# A frame's length, as on the wire.
HEADER = 4


class TreeCodec:
    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode_into
        self._decode = msgspec.msgpack.Decoder(TreeMessage).decode

    def encode(self, message: Message) -> bytes:
        buffer = bytearray(HEADER)
        self._encode(message, buffer, HEADER)
        buffer[:HEADER] = (len(buffer) - HEADER).to_bytes(HEADER, "big")
        return bytes(buffer)

    def decode(self, frame: bytes) -> Message:
        message: Message = self._decode(memoryview(frame)[HEADER:])
        return message

    def ids(self, message: Message) -> tuple[EventId, ...]:
        assert isinstance(message, Carry)
        batch = message.batch
        return tuple(
            (batch.publisher, batch.incarnation, batch.first + offset)
            for offset in range(batch.count)
        )
