"""What traces hold is what JSON can carry."""

from __future__ import annotations

import json

from gossamer import trace


def test_nan_and_infinities_become_strings_at_any_depth() -> None:
    nan, inf = float("nan"), float("inf")
    values = {"a": nan, "b": 1.5, "p": {"x": inf, "q": {"y": -inf, "z": None}}, "s": "inf"}
    plain = trace.plain(values)
    assert plain == {
        "a": "NaN",
        "b": 1.5,
        "p": {"x": "Infinity", "q": {"y": "-Infinity", "z": None}},
        "s": "inf",
    }
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    # The function returns a copy.
    assert values["p"] == {"x": inf, "q": {"y": -inf, "z": None}}
