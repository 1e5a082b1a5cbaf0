"""Frames decode alike, whichever way they are cut. Other bytes are an error with a reason."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.filters import loops
from gossamer.filters.packed import COLUMNS_MARK, is_columns
from gossamer.node import history, missed, wire
from gossamer.node.topics import Advert, Adverts, AdvertsTaken, Rival, Rule
from gossamer.overlay.batch import BATCH_EVENTS_MAX, Batch, Busy, Group, Leave, Report
from gossamer.overlay.direct import messages as direct
from gossamer.overlay.interest import messages as interest
from gossamer.overlay.interest.record import Record
from gossamer.overlay.skiplist import messages as skiplist
from gossamer.overlay.tree import messages as tree
from gossamer.overlay.tree.arcs import Arc, Host

HELLO_2 = "000000279b01a8676f7373616d657201020705ae3132372e302e302e313a37343030a5706c616e740363c3"
HOST = Host(2**63, 7, "127.0.0.1:7400")
ARC = Arc(1, HOST)
MESSAGES = [
    wire.Hello(wire.MAGIC, 3, 3, 2**64 - 1, 3, "127.0.0.1:7400"),
    wire.Ping(),
    wire.Pong(),
    wire.Revocations(7, 2**63, b"signed"),
    wire.Memory(1234, 5, 64 << 20, b"proof"),
    wire.MemorySeen(b"x" * 16),
    wire.InMemory(1 << 18, 7, 1 << 20, b"\x90"),
    wire.MemoryTaken(2**64 - 1),
    history.AskPast("weather", 1, 2, (1, 7), 0, True, "temp > 30"),
    history.Past(
        "weather", 1, 2, (history.PastPart(1, 8, 3, (0, 2), b"\x91\x91\x01"),), (1, 10), False,
        (1, 5), 17, (2, 1), (2, 7), 3,
    ),
    Batch("weather", 7, 1, 10, 2, 9, 0, 3, b"\x92\x91\x01\x91\x02"),
    Report(7, 1, 10, 0, True, (1, 0)),
    Report(7, 1, 10, 0, False),
    Leave((1, 2)),
    Busy(7, 1, 10, 0),
    Adverts(
        (Advert("weather", "country STRING", 1, 7, Rule(3600, 1 << 20), (Rival("a INT", 9),)),)
    ),
    AdvertsTaken(),
    interest.Flip(2**64 - 1, 257, 3, 2**63, -1),
    interest.Flips((interest.Lone(7, 257, 3, 5, 4),)),
    interest.News(
        (interest.Diff(7, 257, 5, 3, b"12345678\0\0\0\1"),),
        (Record(7, 257, 5, "127.0.0.1:7400", b"12345678", b"\0\0\0\1"),),
        (interest.Suspicion(7, 257, 5, 8, True),),
        (interest.Gone(7, 257, False),),
    ),
    interest.Greet(Record(7, 257, 1), 2**64 - 1, 3, True),
    interest.Want(False),
    interest.Beat(2**64 - 1),
    interest.Probe(7),
    interest.Vouch(7),
    interest.Buckets(b"12345678"),
    interest.Have(1, b"\0", b"x" * 20),
    interest.OfferRecords(b"x" * 20),
    interest.AskRecords(b"12345678"),
    interest.Barrier(7, 1, 257, 3),
    interest.Reached(7, 1, 2**64 - 1),
    interest.NameAsk(b"12345678"),
    interest.NameTell(("weather",)),
    skiplist.Gossip(
        5, b"k", 0, (skiplist.Item((b"a", 7), 0), skiplist.Item((b"b", 8), 1)), ((b"c", 9),), True,
        (), True, 3,
    ),
    skiplist.Beat(5, b"k", (b"a", 7), (b"b", 8), ((b"c", 9),), False, 2**40),
    skiplist.Ack(5, b"k", 2, (b"a", 7), ((b"c", 9),)),
    skiplist.Join(5, (b"a", 7), 3, b"k", (b"c", 9), 4),
    skiplist.Welcome(5, b"k", (b"a", 7), ((b"b", 8),), ((b"c", 9),), ((b"d", 9),), 2, True),
    skiplist.Leave(5, (b"a", 7), (b"b", 8), ((b"c", 9),), False, 4),
    skiplist.Absent(5, (b"a", 7), 4),
    skiplist.Carry(
        Group("weather", 7, 1, 10, 3, 9, 0, 3, b"rows", b"signed", (10, 11, 14)),
        (skiplist.Part((b"a", 0), (b"b", 0), b"k", (b"c", 9)), skiplist.Part((b"x", 0), (b"y", 0))),
        True,
    ),
    skiplist.Report(
        5, 7, 1, 10, 0, (b"a", 0), (skiplist.Covered((b"a", 0), (b"b", 0), 3),), (1, 0, 2),
        (0, 1, 0),
        (skiplist.Gap((b"a", 7), (b"b", 8), (b"a", 7), 1),),
    ),
    skiplist.Busy(5, 7, 1, 10, 0, (b"a", 0)),
    skiplist.Ask(5, 3, (skiplist.Part((b"a", 0), (b"b", 0)),), b"row"),
    skiplist.Told(
        5, 3, (b"a", 0), (skiplist.Covered((b"a", 0), (b"b", 0), 0),),
        (skiplist.Ahead(7, skiplist.Part((b"b", 0), (b"c", 0), b"k")),),
        (skiplist.Hit((b"a", 7), ((1, "temp > 30"),)),), 2,
    ),
    skiplist.Revoke(5, (b"a", 7), 3),
    skiplist.Revoked(5, (b"a", 7), 3),
    tree.Find(1, 2**64 - 1),
    tree.Owner(1, ARC),
    tree.Nearer(1, (HOST,)),
    tree.Ask(1),
    tree.State(1, HOST, (HOST,)),
    tree.Occupied(1),
    tree.Notify(HOST),
    tree.Met(2**64 - 1, HOST),
    tree.Reached((7, 1, 10), 0, ((1, 4),), ((1, 2),), (1,)),
    tree.Carry(Batch("weather", 7, 1, 10, 1, 9, 0, 3, b"\x91\x91\x01"), ((1, 2),)),
    tree.Attach(ARC, True, False),
    tree.Notice(True),
    tree.Yield(ARC),
    tree.Yielded(),
    tree.Announce(1, ((1, 2),), False, True, False, (("t", "a > 1"),)),
    tree.Laid(3),
    tree.Waits((7, 1, 10), 0, ((1, 4),)),
    direct.Watch(5, 0, 0),
    direct.Wanted(5, 1, 0, 2, 3, ((1, "temp > 30", ""), (2, None, "workers"))),
    direct.Unwatch(5),
    direct.Portion("weather", 7, 1, 10, 0, 9, (0, 2), "workers", b"\x92\x91\x01\x91\x02"),
    direct.Taken(1, 10, 0, (1, 0)),
    direct.Holding(1, 10, 0),
    missed.Missed("weather", 7, 1, 10, 12, True),
    missed.Heard("weather", 7, 1, 10, 12),
]  # fmt: skip


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def test_every_message_class_is_in_the_union_and_has_its_own_tag() -> None:
    kinds = get_args(wire.AnyMessage)
    assert {type(message) for message in MESSAGES} == set(kinds)
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)


def test_byte_by_byte_feeding_decodes_alike() -> None:
    data = b"".join(wire.encode(message) for message in MESSAGES)
    unframer = wire.Unframer()
    got = [
        message for index in range(len(data)) for message in unframer.feed(data[index : index + 1])
    ]
    unframer.end()
    assert got == MESSAGES == wire.Unframer().feed(data)


@given(st.lists(st.sampled_from(MESSAGES), max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_any_cut_decodes_alike(messages: list, cuts: list[int]) -> None:
    data = b"".join(wire.encode(message) for message in messages)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    unframer = wire.Unframer()
    got = [m for a, b in itertools.pairwise(places) for m in unframer.feed(data[a:b])]
    assert got == messages


def large_messages() -> list[wire.AnyMessage]:
    """Return each message with a field that may be large, in several sizes. Around these sizes,
    frames are made or read in another way.
    """
    kinds = [message for message in MESSAGES if type(message).bulk]
    assert (
        {type(message) for message in kinds}
        == {kind for kind in get_args(wire.AnyMessage) if kind.bulk}
        != set()
    )
    edges = [wire.APART_BYTES, *wire.ROOM_BYTES, 1 << 16]
    sizes = [edge + more for edge in edges for more in (-200, -1, 0, 1)]
    return [
        msgspec.structs.replace(kind, **{type(kind).bulk: bytes(size)})
        for kind in kinds
        for size in sizes
    ]


@pytest.mark.parametrize(
    "message", large_messages(), ids=lambda m: f"{type(m).__name__}-{len(getattr(m, type(m).bulk))}"
)
def test_what_is_large_is_written_from_where_it_is(message: wire.AnyMessage) -> None:
    data = wire.encode(message)
    frame = wire.framed(message)
    assert len(frame) == len(data)
    if isinstance(frame, wire.Pieces):
        assert b"".join(frame.pieces) == data
        assert all(frame.pieces), "an empty piece is one too many for asyncio's transport"
        assert any(piece is getattr(message, type(message).bulk) for piece in frame.pieces)
    else:
        assert frame == data
        assert len(getattr(message, type(message).bulk)) < wire.APART_BYTES


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([*MESSAGES[:4], *large_messages()]), min_size=1, max_size=4),
    st.integers(1000, 1 << 18),
)
def test_reading_into_the_room_of_a_frame_decodes_alike(messages: list, most: int) -> None:
    """Read as a connection does. It reads into the room where there is some, and otherwise into a
    buffer that is used again.
    """
    data = memoryview(b"".join(wire.encode(message) for message in messages))
    unframer, scratch, got, at = (
        wire.Unframer(),
        memoryview(bytearray(wire.ROOM_BYTES[0] * 2)),
        [],
        0,
    )
    rooms = 0
    while at < len(data):
        room = unframer.room()
        into = room if room is not None else scratch
        rooms += room is not None
        count = min(most, len(into), len(data) - at)
        into[:count] = data[at : at + count]
        got += unframer.feed(scratch[:count]) if room is None else unframer.filled(count)
        # No bytes that were read stay in the buffer.
        scratch[:] = bytes(len(scratch))
        at += count
    unframer.end()
    assert got == messages
    small = max(len(wire.encode(message)) for message in messages) < wire.ROOM_BYTES[0]
    assert not (small and rooms)


def test_a_large_frame_has_room_of_its_own_and_is_truncated_in_it() -> None:
    data = wire.encode(large_messages()[8])
    unframer, some = wire.Unframer(), len(data) // wire.ROOM_SHARE + 1
    assert unframer.feed(data[:some]) == []
    room = unframer.room()
    assert room is not None
    assert len(room) == len(data) - some
    with pytest.raises(wire.WireError, match=f"{some} bytes of an unfinished frame"):
        unframer.end()
    # The bytes are fed, as with TLS.
    assert unframer.feed(data[some:] + wire.encode(wire.Ping())) == [
        large_messages()[8],
        wire.Ping(),
    ]
    assert unframer.room() is None


@pytest.mark.parametrize("size", [wire.ROOM_BYTES[0], wire.ROOM_BYTES[1] - 4, wire.FRAME_MAX])
def test_who_only_says_that_much_is_to_come_gets_no_memory_for_it(size: int) -> None:
    unframer = wire.Unframer()
    unframer.feed(struct.pack(">I", size) + bytes(size // wire.ROOM_SHARE - 10))
    assert unframer.room() is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">I", wire.FRAME_MAX + 1), "oversized"),
        (b"GET / HTTP/1.1\r\n\r\n", "oversized"),
        (frame(b"\xc1\xc1\xc1"), "garbage"),
        (frame(b""), "garbage"),
        (frame(b"\x92\x0a"), "wrong shape"),
        (frame(msgspec.msgpack.encode({"tag": 10})), "wrong shape"),
        (frame(msgspec.msgpack.encode([99, 1, 2])), "wrong shape"),
        (frame(msgspec.msgpack.encode([10, "t", -1, 1, 1, 1, 1, 0, 0, b""])), "wrong shape"),
        (frame(msgspec.msgpack.encode([10, "t", 1, 1, 1, 40_000, 1, 0, 0, b""])), "wrong shape"),
        (frame(msgspec.msgpack.encode([11, 1, 1, 1, 0, True, [-1]])), "wrong shape"),
        (frame(b"\x91" * 5000), "wrong shape"),
        (frame(msgspec.msgpack.encode([20, [["t" * 256, "a INT"]]])), "wrong shape"),
    ],
)
def test_bad_bytes_have_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.Unframer().feed(data)
    assert caught.value.reason == reason


def test_a_frame_cut_off_at_the_end_is_truncated() -> None:
    unframer = wire.Unframer()
    unframer.feed(wire.encode(wire.Ping())[:-1])
    with pytest.raises(wire.WireError) as caught:
        unframer.end()
    assert caught.value.reason == "truncated"


@given(st.binary(max_size=300))
def test_arbitrary_bytes_decode_or_are_refused(data: bytes) -> None:
    for candidate in (data, frame(data)):
        try:
            wire.Unframer().feed(candidate)
        except wire.WireError as error:
            assert error.reason in wire.REASONS


def test_nodes_of_one_version_talk() -> None:
    wire.check(wire.Hello(wire.MAGIC, wire.VERSION, wire.VERSION, 1, 1, ""))


@pytest.mark.parametrize(
    ("low", "high", "theirs"), [(1, 2, "versions 1 to 2"), (2, 2, "version 2"), (7, 7, "version 7")]
)
def test_a_node_of_another_version_is_refused_with_both_versions(
    low: int, high: int, theirs: str
) -> None:
    said = rf"this node speaks wire version {wire.VERSION} and the peer {theirs}; only nodes of one"
    with pytest.raises(wire.WireError, match=said) as caught:
        wire.check(wire.Hello(wire.MAGIC, low, high, 1, 1, ""))
    assert caught.value.reason == "wrong version"


def test_a_hello_of_wire_version_2_can_be_read() -> None:
    """The bytes are those that the last commit of that version wrote."""
    [hello] = wire.Unframer(stranger=True).feed(bytes.fromhex(HELLO_2))
    assert isinstance(hello, wire.Hello)
    assert (hello.version_min, hello.version_max, hello.peer) == (1, 2, 7)


def read(data: bytes, first: int) -> list[wire.AnyMessage]:
    """Read as a connection does. The ``first`` bytes come from a buffer that is used again, and the
    rest goes to its place.
    """
    unframer, scratch = wire.Unframer(), bytearray(data[:first])
    got = unframer.feed(scratch)
    scratch[:] = bytes(len(scratch))
    room = unframer.room()
    if room is None:
        return [*got, *unframer.feed(data[first:])]
    room[:] = data[first : first + len(room)]
    return [*got, *unframer.filled(len(room)), *unframer.feed(data[first + len(room) :])]


@pytest.mark.parametrize(
    "kind", [one for one in MESSAGES if type(one).bulk], ids=lambda m: type(m).__name__
)
def test_columns_stay_where_they_were_read(kind: wire.AnyMessage) -> None:
    field = type(kind).bulk
    columns = COLUMNS_MARK + bytes(range(256)) * 1000
    message = msgspec.structs.replace(kind, **{field: columns})
    (got,) = read(wire.encode(message), 20_000)
    found = getattr(got, field)
    assert bytes(found) == columns
    assert msgspec.structs.replace(got, **{field: columns}) == message
    assert wire.encode(got) == wire.encode(message), "it can be passed on"
    assert b"".join(wire.framed(got).pieces) == wire.encode(message)  # type: ignore[union-attr]
    assert is_columns(found)
    if loops.native is not None:
        assert isinstance(found, memoryview)
        assert np.frombuffer(found, np.uint8).ctypes.data % wire.ALIGNED == 0
    rows = msgspec.structs.replace(kind, **{field: b"\x91" + columns})
    assert read(wire.encode(rows), 20_000) == [rows], "rows are bytes"


def outcome(messages: Callable[[], list[wire.AnyMessage]]) -> Any:
    try:
        return [wire.encode(message) for message in messages()]
    except wire.WireError as error:
        return error.reason


@settings(max_examples=300)
@given(st.sampled_from([one for one in MESSAGES if type(one).bulk]), st.data())
def test_a_message_that_is_taken_apart_where_it_lies_is_judged_as_any_other(
    kind: wire.AnyMessage, draw: st.DataObject
) -> None:
    columns = COLUMNS_MARK + bytes(40_000)
    data = bytearray(wire.encode(msgspec.structs.replace(kind, **{type(kind).bulk: columns})))
    edge = len(data) - len(columns)
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(
            st.one_of(st.integers(4, edge + 2), st.integers(len(data) - 30, len(data) - 1))
        )
        data[place] = draw.draw(st.integers(0, 255))
    assert outcome(lambda: read(bytes(data), 20_000)) == outcome(
        lambda: wire.Unframer().feed(bytes(data))
    )


def test_a_batch_whose_last_event_no_message_could_name_is_refused() -> None:
    """The fuzzer found a node that told others of such a batch in a message that they refused."""
    for first, is_read in ((2**53 - BATCH_EVENTS_MAX, True), (2**53 - BATCH_EVENTS_MAX + 1, False)):
        for message in (
            Batch("t", 7, 1, first, BATCH_EVENTS_MAX, first, 0, 0, b""),
            direct.Portion("t", 7, 1, first, 0, first, (), "", b"", BATCH_EVENTS_MAX),
        ):
            if is_read:
                assert wire.Unframer().feed(wire.encode(message)) == [message]
            else:
                with pytest.raises(wire.WireError):
                    wire.Unframer().feed(wire.encode(message))
