"""Every message that travels between nodes, in one union, and the frames that carry them. Sans-IO: bytes in, messages out.

A frame is a length (4 bytes, big-endian) and one message as msgpack: an array whose first element is the message's tag, so
that fields may be added at the end. It lives here and not in ``net``, because the simulator passes every message through it
too, and the two drivers do not import each other.

A connection opens with a ``Hello`` from both sides, which says the version that its sender speaks. Nodes
of different versions do not talk. Whoever changes what a message means, adds one, or takes one away
raises ``VERSION``. A Hello keeps its first fields in every version, so that each side can say which
versions met. Anything that is not a frame of a known message is a ``WireError``: its ``reason`` is one of
REASONS, counted by the driver, and the connection ends.
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
    Inquiry,
    Leave,
    Lost,
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

REVOKED_MAX = 4 << 20  # bytes of a list of revoked certificates: about 100,000 of them
HELLO_MAX = 4096  # the first frame of a connection
APART_BYTES = 16 << 10  # bytes of a message that are written as they are, not copied into a frame
ROOM_BYTES = (
    32 << 10,
    BATCH_BYTES_MAX - 4096,
)  # frames of this size are read straight into memory of their own,
ROOM_SHARE = (
    16  # once so much of them is there: who only says that much is to come gets no memory for it
)
ALIGNED = 64  # bytes: where columns like to begin

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
MISCONDUCT = REASONS[
    :-1
]  # what no honest peer does, or who is no longer a peer; a truncated frame is also what a crash leaves

Address = Annotated[str, Meta(max_length=255)]


class Hello(Message, frozen=True, array_like=True, tag=1):
    """The first message on a connection, from both sides."""

    magic: Annotated[str, Meta(max_length=16)]
    # The lowest and the highest version that the sender speaks. Both are VERSION today; nodes of
    # versions 1 and 2 spoke several, and read both fields.
    version_min: Annotated[int, Meta(ge=0, le=65535)]
    version_max: Annotated[int, Meta(ge=0, le=65535)]
    peer: Uint64
    incarnation: Annotated[int, Meta(ge=0, le=2**53)]
    address: Address  # where others can reach this node; empty if they cannot
    fabric: Annotated[str, Meta(max_length=255)] = ""  # nodes of different fabrics do not talk
    revocations: Annotated[int, Meta(ge=0)] = (
        0  # the number of the sender's list of revoked certificates
    )
    process: Uint64 = 0  # drawn at each start: tells oneself from another process that has the same id; 0: not told
    memory: bool = False  # whether it understands ``Memory`` and what belongs to it


class Ping(Message, frozen=True, array_like=True, tag=3):
    """Sent when a link has been silent; whoever hears it answers with a Pong."""


class Pong(Message, frozen=True, array_like=True, tag=4):
    pass


class Revocations(Message, frozen=True, array_like=True, tag=5):
    """The authority's signed list of certificates that count no longer; the greatest number is the latest."""

    number: Uint64
    signed: Annotated[bytes, Meta(max_length=REVOKED_MAX)]


class Memory(Message, frozen=True, array_like=True, tag=6):
    """Where a node of the same host finds memory in which large messages of the sender's lie (net/memory.py)."""

    process: Annotated[int, Meta(ge=0, lt=2**31)]
    descriptor: Annotated[int, Meta(ge=0, lt=2**31)]
    size: Annotated[int, Meta(ge=1 << 20, le=256 << 20)]
    proof: Annotated[
        bytes, Meta(max_length=32)
    ]  # that it is the sender's own, and meant for this link


class Seen(Message, frozen=True, array_like=True, tag=7):
    """The answer of who has found it: what it read there."""

    token: Annotated[bytes, Meta(max_length=16)]


class Lies(Message, frozen=True, array_like=True, tag=8):
    """A message whose bulk lies in that memory, under a stamp. Both ends hold to how much may lie there untaken (net/memory.py)."""

    at: Annotated[int, Meta(ge=0, le=256 << 20)]
    stamp: Uint64
    size: Annotated[int, Meta(ge=1, le=BATCH_BYTES_MAX)]
    message: Annotated[bytes, Meta(max_length=ROOM_BYTES[0])]  # as msgpack, its bulk empty


class Taken(Message, frozen=True, array_like=True, tag=9):
    """So many of them were copied, in all."""

    count: Uint64


AnyMessage = (
    Hello
    | Ping
    | Pong
    | Revocations
    | Memory
    | Seen
    | Lies
    | Taken
    | Batch
    | Report
    | Busy
    | Inquiry
    | Lost
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
_bulky = {
    kind.__struct_config__.tag: kind.__struct_fields__.index(kind.bulk) + 1
    for kind in AnyMessage.__args__
    if kind.bulk
}  # which field of a message may hold many bytes, by its tag


class WireError(Exception):
    """The bytes are not what a peer may send."""

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

    __slots__ = ("_size", "lies", "pieces")

    def __init__(self, *pieces: Bytes, lies: bytes = b"") -> None:
        """``lies``: the frame to write instead for who sees the memory that the bulk lies in."""
        self.lies = lies
        self.pieces: tuple[Bytes, ...] = tuple(
            filter(None, pieces)
        )  # none is empty: asyncio's transport of Python 3.12 would never be done with it
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size


Frame = bytes | Pieces


def framed(message: Message) -> Frame:
    """The message as a frame, for who can write what is large in it (``Message.bulk``) from where it is."""
    bulk = type(message).bulk
    if not bulk or len(getattr(message, bulk)) < APART_BYTES:
        return encode(message)
    fields: list[Any] = [type(message).__struct_config__.tag, *structs.astuple(message)]
    at = type(message).__struct_fields__.index(bulk) + 1
    data: Bytes = fields[at]
    # Both lists are short: their heads are one byte each, and the frame has one for all its fields.
    head, tail = _encoder.encode(fields[:at])[1:], _encoder.encode(fields[at + 1 :])[1:]
    length = (
        b"\xc5" + len(data).to_bytes(2, "big")
        if len(data) < 1 << 16
        else b"\xc6" + len(data).to_bytes(4, "big")
    )
    size = 1 + len(head) + len(length) + len(data) + len(tail)
    assert len(fields) < 16
    assert size <= FRAME_MAX, f"a {type(message).__name__} of {size} bytes does not fit a frame"
    lies = b""
    if (place := loops.place(data)) is not None:
        fields[at] = b""
        lies = encode(Lies(*place, len(data), _encoder.encode(fields)))
    return Pieces(
        size.to_bytes(_HEADER, "big") + bytes((0x90 | len(fields),)) + head + length,
        data,
        tail,
        lies=lies,
    )


def filled(lies: Lies, data: memoryview) -> AnyMessage:
    """The message of which only the bulk lay elsewhere; here it is."""
    message = _decode(lies.message)
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
    """A WireError if its sender and this node cannot talk."""
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
    """As ``_decode``, of memory that is the message's own: its columns stay where they are."""
    if bulk is None or bulk[2] > len(body) or bulk[2] - bulk[1] > BATCH_BYTES_MAX:
        return _decode(body)
    field, start, end = bulk
    message = _decode(b"".join((body[:field], b"\xc4\x00", body[end:])))
    structs.force_setattr(message, type(message).bulk, body[start:end])
    return message


class Unframer:
    """Bytes to messages, however the bytes are cut.

    Who reads from a socket may read the rest of a large frame into ``room``, and say so with ``filled``: it is not copied again.
    """

    def __init__(self, *, stranger: bool = False) -> None:
        self._frame_max = HELLO_MAX if stranger else FRAME_MAX  # until the first message
        self._rest = bytearray()
        self._need = (
            _HEADER  # bytes that make the next step possible: a slow dribble costs no parsing
        )
        self._room: memoryview | None = None  # of a large frame, without its header
        self._bulk: tuple[int, int, int] | None = (
            None  # where its columns are, as ``loops.bulk`` says
        )
        self._filled = 0

    def room(self) -> memoryview | None:
        """Where the rest of a frame has its place; None: bytes are to be fed."""
        return self._room[self._filled :] if self._room is not None else None

    def filled(self, count: int) -> list[AnyMessage]:
        """So many bytes more are in the ``room``; the message if that is all of it."""
        assert self._room is not None
        self._filled += count
        if self._filled < len(self._room):
            return []
        body, self._room, self._frame_max = self._room, None, FRAME_MAX
        return [_decode_room(body, self._bulk)]

    def _make_room(self, size: int, begun: memoryview) -> None:
        """A frame of this size has begun."""
        self._bulk = bulk = loops.bulk(begun, _bulky)
        shift = -bulk[1] % ALIGNED if bulk is not None else 0
        self._room, self._filled = loops.room(size + shift)[shift:], len(begun)
        self._room[: self._filled] = begun

    def feed(self, data: bytes | bytearray | memoryview) -> list[AnyMessage]:
        """The messages that are complete now; nothing of ``data`` is kept. After a WireError the connection is of no more use."""
        if not self._rest and self._room is None and len(data) >= _HEADER:
            (size,) = _size_at(data)
            if (
                len(data) == size + _HEADER and size <= self._frame_max
            ):  # one frame, as a lone message comes
                self._frame_max = FRAME_MAX
                return [_decode(data[_HEADER:])]
        messages: list[AnyMessage] = []
        view = memoryview(data)
        start, end = 0, len(data)
        if self._room is not None:
            start = min(end, len(self._room) - self._filled)
            self._room[self._filled : self._filled + start] = view[:start]
            messages += self.filled(start)
        while (
            self._rest and start < end
        ):  # what has begun is completed, and no more is copied than that
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
        """The other side has closed: nothing may be left over."""
        left = self._filled + _HEADER if self._room is not None else len(self._rest)
        if left:
            raise WireError("truncated", f"{left} bytes of an unfinished frame")
