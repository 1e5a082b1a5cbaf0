"""Places in a topic's dictionary order, and the circle that they form.

A position is (key, peer): identical filters of several nodes are neighbours, ordered by peer.
Intervals of positions are [low, high). The seed's footnote 3 closes the list to a circle, so that
the last entry's right neighbour is the first.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

KEY_MAX = 4_096

Key = Annotated[bytes, Meta(max_length=KEY_MAX)]
# Msgpack itself ends at 64 bits.
Uint64 = Annotated[int, Meta(ge=0)]
Position = tuple[Key, Uint64]
Interval = tuple[Position, Position]


def between(left: Position, place: Position, right: Position) -> bool:
    """Whether one comes to the place on the way from left, rightward, before right. From a place
    around to itself is all else.
    """
    if left < right:
        return left < place < right
    return place > left or place < right


def beyond(key: bytes) -> bytes:
    """The least key that is greater than all that start with this one."""
    kept = key.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else key


def cut(end: bytes) -> bytes:
    """An end of an interval of keys, no longer than a key may be.

    The same entries are beyond it: an entry whose key is its beginning is not, and no entry's key
    can be longer than that.
    """
    return end if len(end) <= KEY_MAX else beyond(end[:KEY_MAX])
