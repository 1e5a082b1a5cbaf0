"""Values as bytes that compare as the values do (memcomparable, after FoundationDB's tuple layer).

`encode(a) < encode(b)` if and only if Spark's ORDER BY puts a before b. NULL comes first, and
FALSE before TRUE. -0.0 is equal to 0.0, and NaN comes after infinity. Strings compare by their
UTF-8 bytes. An encoding may be a prefix of another encoding of the same type ('' of '\\0', for
example). Then the longer one goes on with FF, and no following encoding begins with FF. So
encodings that are put one after the other compare as tuples do. Integers of every width share one
form, and so do FLOAT and DOUBLE: an attribute that widens keeps its keys.

    NULL                00
    anything else       01, then
      BOOLEAN           00 or 01
      integers          8 bytes, big-endian, sign bit flipped
      FLOAT, DOUBLE     8 bytes of IEEE 754, sign bit flipped; all bits flipped when negative
      DATE              4 bytes: days since 0001-01-01, plus 1
      TIMESTAMP         8 bytes: microseconds since 1970, as integers
      STRING, BINARY    the bytes with 00 written 00 FF, then 00 as the end

No UTF-8 text contains FF, so the strings that start with p are those between 01 p and 01 p FF
(`prefix_range`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

NULL = b"\x00"

_FLIP = 1 << 63
_MASK = (1 << 64) - 1
_DOUBLE = struct.Struct(">d")
_UNSIGNED = struct.Struct(">Q")
_NAN = b"\x01" + _UNSIGNED.pack(0x7FF8_0000_0000_0000 | _FLIP)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def encode(value: Any) -> bytes:
    """The bytes of one value of a row."""
    return _ENCODE[type(value)](value)


def encode_all(values: Iterable[Any]) -> bytes:
    """The bytes of a tuple."""
    return b"".join(map(encode, values))


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """A pair (low, high) of bytes.

    A string s starts with `prefix` if and only if low <= encode(s) < high.
    """
    low = b"\x01" + prefix.encode().replace(b"\x00", b"\x00\xff")
    return low, low + b"\xff"


def _integer(value: int) -> bytes:
    return b"\x01" + _UNSIGNED.pack((value + _FLIP) & _MASK)


def _double(value: float) -> bytes:
    if value != value:
        return _NAN
    # -0.0 + 0.0 is 0.0.
    (bits,) = _UNSIGNED.unpack(_DOUBLE.pack(value + 0.0))
    return b"\x01" + _UNSIGNED.pack(bits ^ _MASK if bits & _FLIP else bits | _FLIP)


def _bytes(value: bytes) -> bytes:
    return b"\x01" + value.replace(b"\x00", b"\x00\xff") + b"\x00"


def _timestamp(value: datetime) -> bytes:
    return _integer((value - _EPOCH) // _MICROSECOND)


_ENCODE: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: NULL,
    bool: lambda value: b"\x01\x01" if value else b"\x01\x00",
    int: _integer,
    float: _double,
    str: lambda value: _bytes(value.encode()),
    bytes: _bytes,
    date: lambda value: b"\x01" + value.toordinal().to_bytes(4, "big"),
    datetime: _timestamp,
}
