"""Every message between nodes, in one union, and the frames that carry them.

It is sans-IO: bytes go in, and messages come out. A frame is a length (4 bytes, big-endian) and one
message as msgpack. The message is an array whose first element is its tag, so that fields may be
added at the end. The codec lives here and not in ``net``
(docs/decisions/0004-codec-lives-in-node.md): the simulator passes every message through it too, and
the two drivers do not import each other.

A connection opens with a ``Hello`` from both sides, which says the version that its sender speaks.
Nodes of different versions do not talk. A change to the meaning of a message raises ``VERSION``,
and so does a message that is added or removed. A Hello keeps its first fields in every version, so
that each side can say which versions met. Bytes that are not a frame of a known message are a
``WireError``. Its ``reason`` is one of REASONS, which the driver counts, and the connection ends.
"""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Any

import msgspec
from msgspec import Meta, structs

from gossamer.filters import loops
from gossamer.filters.packed import Bytes, is_columns
from gossamer.machine import Message
from gossamer.node.history import HistoryMessage
from gossamer.node.missed import MissedMessage
from gossamer.node.topics import Adverts, AdvertsTaken
from gossamer.overlay.batch import (
    BATCH_BYTES_MAX,
    Batch,
    Busy,
    Leave,
    Report,
    Uint64,
)
from gossamer.overlay.direct.messages import DirectMessage
from gossamer.overlay.interest.messages import InterestMessage
from gossamer.overlay.skiplist.messages import SkiplistMessage
from gossamer.overlay.tree.messages import TreeMessage

MAGIC = "gossamer"
VERSION = 3
FRAME_MAX = 8 << 20
_HEADER = 4
_size_at = Struct(">I").unpack_from

# Bytes of a list of revoked certificates. This is enough for about 100,000 of them.
REVOKED_MAX = 4 << 20
# The most authorities that a fabric has at a time. While its authority changes it has two.
AUTHORITIES_MAX = 4
# Bytes of the first frame of a connection.
HELLO_MAX = 4096
# From this number of bytes on, a large field is written from its place, and not copied into a
# frame.
APART_BYTES = 16 << 10
# A frame of a size between these two is read straight into its own memory. That happens after 1/16
# of it has arrived. So a peer that only announces a large frame gets no memory for it.
ROOM_BYTES = (32 << 10, BATCH_BYTES_MAX - 4096)
ROOM_SHARE = 16
# Columns begin best at multiples of this number of bytes.
ALIGNED = 64

REASONS = (
    "oversized",
    "garbage",
    "wrong shape",
    "wrong version",
    "no hello",
    "second hello",
    "does not report",
    "flood",
    "dribbles",
    "false identity",
    "false list",
    "expired",
    "revoked",
    "truncated",
)
# No honest peer causes these, or the sender is no longer a peer. A truncated frame is not among
# them, because a crash leaves one too.
MISCONDUCT = REASONS[:-1]

Address = Annotated[str, Meta(max_length=255)]


class Hello(Message, frozen=True, array_like=True, tag=1):
    """The first message on a connection, from both sides."""

    magic: Annotated[str, Meta(max_length=16)]
    # The lowest and the highest version that the sender speaks. Both are VERSION today. Nodes of
    # versions 1 and 2 spoke several versions, and read both fields.
    version_min: Annotated[int, Meta(ge=0, le=65535)]
    version_max: Annotated[int, Meta(ge=0, le=65535)]
    peer: Uint64
    incarnation: Annotated[int, Meta(ge=0, le=2**53)]
    # Where others can reach this node; empty if they cannot.
    address: Address
    # Nodes of different fabrics do not talk.
    fabric: Annotated[str, Meta(max_length=255)] = ""
    # Names the lists of revoked certificates that the sender has; 0 if it has none.
    revocations: Annotated[int, Meta(ge=0)] = 0
    # A random number from the start of the process. It tells this process from another one with the
    # same id. 0: not told.
    process: Uint64 = 0
    # Whether the sender understands ``Memory`` and the messages that belong to it.
    memory: bool = False


class Ping(Message, frozen=True, array_like=True, tag=3):
    """Sent when a link has been silent. The receiver answers with a Pong."""


class Pong(Message, frozen=True, array_like=True, tag=4):
    pass


class Revocations(Message, frozen=True, array_like=True, tag=5):
    """An authority's signed list of certificates that count no longer.

    Of one authority the list with the greatest number is the latest.
    """

    authority: Uint64
    number: Uint64
    signed: Annotated[bytes, Meta(max_length=REVOKED_MAX)]


class Memory(Message, frozen=True, array_like=True, tag=6):
    """Where a node of the same host finds memory with large messages of the sender
    (net/memory.py).
    """

    process: Annotated[int, Meta(ge=0, lt=2**31)]
    descriptor: Annotated[int, Meta(ge=0, lt=2**31)]
    size: Annotated[int, Meta(ge=1 << 20, le=256 << 20)]
    # The proof that the memory is the sender's own, and meant for this link.
    proof: Annotated[bytes, Meta(max_length=32)]


class MemorySeen(Message, frozen=True, array_like=True, tag=7):
    """Reply to ``Memory``: the token read from the memory, which proves that it was opened."""

    token: Annotated[bytes, Meta(max_length=16)]


class InMemory(Message, frozen=True, array_like=True, tag=8):
    """A message with its large field in that memory, under a stamp.

    Both ends enforce the limit on bytes that lie there untaken (net/memory.py).
    """

    at: Annotated[int, Meta(ge=0, le=256 << 20)]
    stamp: Uint64
    size: Annotated[int, Meta(ge=1, le=BATCH_BYTES_MAX)]
    # The message as msgpack, with an empty large field.
    message: Annotated[bytes, Meta(max_length=ROOM_BYTES[0])]


class MemoryTaken(Message, frozen=True, array_like=True, tag=9):
    """The number of messages that were copied out of the memory, in all."""

    count: Uint64


AnyMessage = (
    Hello
    | Ping
    | Pong
    | Revocations
    | Memory
    | MemorySeen
    | InMemory
    | MemoryTaken
    | Batch
    | Report
    | Busy
    | Leave
    | Adverts
    | AdvertsTaken
    | HistoryMessage
    | MissedMessage
    | InterestMessage
    | SkiplistMessage
    | TreeMessage
    | DirectMessage
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)
# By the tag of a message: which field may hold many bytes.
_bulky = {
    kind.__struct_config__.tag: kind.__struct_fields__.index(kind.bulk) + 1
    for kind in AnyMessage.__args__
    if kind.bulk
}


class WireError(Exception):
    """A peer may not send these bytes."""

    def __init__(self, reason: str, detail: str = "") -> None:
        assert reason in REASONS
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


def encode(message: Message) -> bytes:
    """The message as a frame."""
    body = _encoder.encode(message)
    size = len(body)
    assert size <= FRAME_MAX, f"a {type(message).__name__} of {size} bytes does not fit a frame"
    return size.to_bytes(_HEADER, "big") + body


class Pieces:
    """A frame that is written in one go from several places."""

    __slots__ = ("_size", "in_memory", "pieces")

    def __init__(self, *pieces: Bytes, in_memory: bytes = b"") -> None:
        """``in_memory`` is the frame for a peer that sees the memory of the large field."""
        self.in_memory = in_memory
        # No piece is empty: asyncio's transport of Python 3.12 would never be done with it.
        self.pieces: tuple[Bytes, ...] = tuple(filter(None, pieces))
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size


Frame = bytes | Pieces


def framed(message: Message) -> Frame:
    """The message as a frame.

    A large field (``Message.bulk``) stays in its place, to be written from there.
    """
    bulk = type(message).bulk
    if not bulk or len(getattr(message, bulk)) < APART_BYTES:
        return encode(message)
    fields: list[Any] = [type(message).__struct_config__.tag, *structs.astuple(message)]
    at = type(message).__struct_fields__.index(bulk) + 1
    data: Bytes = fields[at]
    # Both lists are short, so the head of each is one byte. The frame has one head for all its
    # fields.
    head, tail = _encoder.encode(fields[:at])[1:], _encoder.encode(fields[at + 1 :])[1:]
    length = (
        b"\xc5" + len(data).to_bytes(2, "big")
        if len(data) < 1 << 16
        else b"\xc6" + len(data).to_bytes(4, "big")
    )
    size = 1 + len(head) + len(length) + len(data) + len(tail)
    assert len(fields) < 16
    assert size <= FRAME_MAX, f"a {type(message).__name__} of {size} bytes does not fit a frame"
    in_memory = b""
    if (place := loops.place(data)) is not None:
        fields[at] = b""
        in_memory = encode(InMemory(*place, len(data), _encoder.encode(fields)))
    return Pieces(
        size.to_bytes(_HEADER, "big") + bytes((0x90 | len(fields),)) + head + length,
        data,
        tail,
        in_memory=in_memory,
    )


def filled(in_memory: InMemory, data: memoryview) -> AnyMessage:
    """The message of ``in_memory`` with its large field, which lay elsewhere."""
    message = _decode(in_memory.message)
    bulk = type(message).bulk
    if (
        not bulk
        or not type(message).is_event
        or len(getattr(message, bulk))
        or not is_columns(data)
    ):
        raise WireError("wrong shape", "no message of columns")
    structs.force_setattr(message, bulk, data)
    return message


def check(hello: Hello) -> None:
    """Raises a WireError if the sender of this Hello and this node cannot talk."""
    if hello.magic != MAGIC:
        raise WireError("garbage", "not a gossamer node")
    low, high = hello.version_min, hello.version_max
    if not low <= VERSION <= high:
        theirs = f"version {high}" if low == high else f"versions {low} to {high}"
        raise WireError(
            "wrong version",
            f"this node speaks wire version {VERSION} and the peer {theirs}; only nodes of one "
            "version talk, so install the same gossamer on all of them",
        )


def _decode(body: bytes | bytearray | memoryview) -> AnyMessage:
    try:
        message: AnyMessage = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise WireError("wrong shape", str(error)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WireError("garbage", str(error)) from None
    return message


def _decode_room(body: memoryview, bulk: tuple[int, int, int] | None) -> AnyMessage:
    """As ``_decode``, for memory that is the message's own. Its columns stay in their place."""
    if bulk is None or bulk[2] > len(body) or bulk[2] - bulk[1] > BATCH_BYTES_MAX:
        return _decode(body)
    field, start, end = bulk
    message = _decode(b"".join((body[:field], b"\xc4\x00", body[end:])))
    structs.force_setattr(message, type(message).bulk, body[start:end])
    return message


class Unframer:
    """Turns bytes into messages, however the bytes are cut.

    The reader of a socket may read the rest of a large frame into ``room``, and then call
    ``filled``. So the frame is not copied again.
    """

    def __init__(self, *, stranger: bool = False) -> None:
        # It is smaller until the first message.
        self._frame_max = HELLO_MAX if stranger else FRAME_MAX
        self._rest = bytearray()
        # The number of bytes that the next step needs. So a slow dribble costs no parsing.
        self._need = _HEADER
        # The place of a large frame, without its header.
        self.place: memoryview | None = None
        # Where its columns are, as ``loops.bulk`` gives it.
        self._bulk: tuple[int, int, int] | None = None
        self._filled = 0

    def room(self) -> memoryview | None:
        """The place for the rest of a frame. None means that bytes are to be fed."""
        return self.place[self._filled :] if self.place is not None else None

    def filled(self, count: int) -> list[AnyMessage]:
        """``count`` more bytes are in the ``room``. Returns the message if it is complete."""
        assert self.place is not None
        self._filled += count
        if self._filled < len(self.place):
            return []
        body, self.place, self._frame_max = self.place, None, FRAME_MAX
        return [_decode_room(body, self._bulk)]

    def _make_room(self, size: int, begun: memoryview) -> None:
        """Makes a place for a frame of this size, of which some has come."""
        self._bulk = bulk = loops.bulk(begun, _bulky)
        shift = -bulk[1] % ALIGNED if bulk is not None else 0
        self.place, self._filled = loops.room(size + shift)[shift:], len(begun)
        self.place[: self._filled] = begun

    def feed(self, data: bytes | bytearray | memoryview) -> list[AnyMessage]:
        """The messages that are complete now.

        Nothing of ``data`` is kept. After a WireError the connection cannot be used any more.
        """
        if not self._rest and self.place is None and len(data) >= _HEADER:
            (size,) = _size_at(data)
            # A lone message comes as exactly one frame.
            if len(data) == size + _HEADER and size <= self._frame_max:
                self._frame_max = FRAME_MAX
                return [_decode(data[_HEADER:])]
        messages: list[AnyMessage] = []
        view = memoryview(data)
        start, end = 0, len(data)
        if self.place is not None:
            start = min(end, len(self.place) - self._filled)
            self.place[self._filled : self._filled + start] = view[:start]
            messages += self.filled(start)
        # A frame that has begun is completed, and no more than that is copied.
        while self._rest and start < end:
            more = view[start : start + self._need - len(self._rest)]
            self._rest += more
            start += len(more)
            if len(self._rest) < self._need:
                return messages
            if self._need == _HEADER and (size := self._size(self._rest, 0)):
                self._need += size
                continue
            messages.append(_decode(memoryview(self._rest)[_HEADER:]))
            self._rest, self._need, self._frame_max = bytearray(), _HEADER, FRAME_MAX
        while end - start >= _HEADER:
            stop = start + _HEADER + self._size(data, start)
            if stop > end:
                self._need = stop - start
                if ROOM_BYTES[0] <= self._need <= min(ROOM_BYTES[1], (end - start) * ROOM_SHARE):
                    self._make_room(self._need - _HEADER, view[start + _HEADER :])
                    self._need = _HEADER
                    return messages
                break
            messages.append(_decode(view[start + _HEADER : stop]))
            start, self._frame_max = stop, FRAME_MAX
        self._rest += view[start:]
        return messages

    def _size(self, data: bytes | bytearray | memoryview, at: int) -> int:
        size: int = _size_at(data, at)[0]
        if size > self._frame_max:
            raise WireError(
                "oversized", f"a frame of {size} bytes; at most {self._frame_max} are allowed"
            )
        return size

    def end(self) -> None:
        """The other side has closed. Raises a WireError if part of a frame is left."""
        left = self._filled + _HEADER if self.place is not None else len(self._rest)
        if left:
            raise WireError("truncated", f"{left} bytes of an unfinished frame")
