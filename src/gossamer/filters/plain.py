"""Events from JSON, with the types that the schema asks for.

JSON has no times, no bytes and no NaN.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from gossamer.filters.model import EventError
from gossamer.filters.schema import Schema

_NON_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def from_plain(schema: Schema, values: dict[str, Any]) -> dict[str, Any]:
    """The same event, with times from text and bytes from base64.

    Attributes that the schema does not have stay as they are.
    """
    typed = dict(values)
    for name, kind in zip(schema.names, get_args(schema.row_type), strict=True):
        value = values.get(name)
        if value is None:
            continue
        if kind == float | None and value in _NON_FINITE:
            typed[name] = float(value)
            continue
        try:
            typed[name] = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise EventError(f"{name}: {error}") from None
    return typed


def event_of(schema: Schema, text: bytes) -> dict[str, Any]:
    """An event from JSON, with the types that the schema asks for."""
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EventError(f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise EventError(f"not a JSON object but {type(values).__name__}")
    return from_plain(schema, values)
