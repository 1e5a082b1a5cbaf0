"""Places in a topic's dictionary order, and the circle that they form.

A position is (key, peer), so identical filters of several nodes are neighbours, ordered by peer.
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
    """Return whether the way rightward from left comes to the place before it comes to right. The
    way from a place around to itself comes to all others.
    """
    if left < right:
        return left < place < right
    return place > left or place < right


def beyond(key: bytes) -> bytes:
    """Return the least key that is greater than all that start with this one."""
    kept = key.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else key


def cut(end: bytes) -> bytes:
    """Return an end of an interval of keys that is no longer than a key may be.

    The same entries are beyond the new end as beyond the old one. An entry whose key is the
    beginning of the old end is beyond neither, and no entry's key is longer than that beginning.
    """
    return end if len(end) <= KEY_MAX else beyond(end[:KEY_MAX])
