"""Fuzzing, briefly; `make swarm` does ten minutes of it."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.cli.app import app
from gossamer.machine import Message, Micros, Peer
from gossamer.node import NodeCore
from gossamer.node.gate import Gate
from gossamer.node.topics import Topics
from gossamer.node.wire import FRAME_MAX, Unframer, WireError, encode
from gossamer.overlay.interest.view import View
from gossamer.sim.fuzz import KINDS, Failure, Maker, episode


@pytest.mark.parametrize("number", [0, 1])
def test_a_node_survives_anything(number: int) -> None:
    counts: Counter[str] = Counter()
    assert episode(2026, number, steps=1200, counts=counts) is None
    assert counts["delivered"] > 10
    assert counts["refused"] > 50
    assert sum(counts[kind.__name__] > 0 for kind in KINDS) > 30


def test_the_same_seed_is_the_same_episode() -> None:
    runs = []
    for _ in range(2):
        counts: Counter[str] = Counter()
        assert episode(7, 3, steps=300, counts=counts) is None
        runs.append(counts)
    assert runs[0] == runs[1]


def test_it_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = NodeCore.receive

    def fragile(self: NodeCore, sender: Peer, message: Message, now: Micros) -> Any:
        if sender == 66 and type(message).__name__ == "Probe":
            raise ZeroDivisionError("planted")
        return receive(self, sender, message, now)

    monkeypatch.setattr(NodeCore, "receive", fragile)
    failed = episode(1, 0)
    assert isinstance(failed, Failure)
    assert "planted" in failed.what
    found = CliRunner().invoke(
        app, ["simulate", "fuzz", "--seed", "1", "--episode", "0"], standalone_mode=False
    )
    assert found.return_value == 1
    assert "gossamer simulate fuzz --seed 1 --episode 0" in found.output


def believe_anything(monkeypatch: pytest.MonkeyPatch, machine: type, check: str) -> str:
    """The first failure of a few episodes in which a check of signatures says yes to everything."""
    monkeypatch.setattr(machine, check, lambda *arguments: True)
    failed = [episode(2026, number, steps=600) for number in range(1, 13, 2)]
    return next(failure.what for failure in failed if failure is not None)


@pytest.mark.parametrize(
    ("machine", "check", "about"),
    [
        (View, "is_signed", "believes of node"),
        (View, "has_lived", "believes a farewell"),
        (Topics, "_is_proved", "believes"),
        (Gate, "_proves", "no honest node has published it"),
    ],
)
def test_it_finds_a_node_that_believes_a_member_too_much(
    monkeypatch: pytest.MonkeyPatch, machine: type, check: str, about: str
) -> None:
    assert about in believe_anything(monkeypatch, machine, check)


@pytest.mark.parametrize(
    "kind", KINDS, ids=lambda kind: f"{kind.__module__.split('.')[-2]}.{kind.__name__}"
)
def test_every_kind_of_message_can_be_made(kind: type[Message]) -> None:
    maker = Maker(Random(kind.__name__))
    for _ in range(50):
        made = msgspec.convert(maker._make(maker._infos[kind], 0), kind)
        assert Unframer().feed(encode(made)) == [made]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=8), st.booleans())
def test_the_codec_takes_any_bytes(parts: list[bytes], framed: bool) -> None:
    unframer = Unframer(stranger=not framed)
    try:
        for part in parts:
            if framed:
                part = len(part).to_bytes(4, "big") + part
            for message in unframer.feed(part):
                assert len(encode(message)) <= FRAME_MAX + 4
        unframer.end()
    except WireError as error:
        assert error.reason


@settings(deadline=None)
@given(st.integers(0, 2**32), st.data())
def test_the_codec_takes_bent_frames(seed: int, data: st.DataObject) -> None:
    frame = bytearray(encode(Maker(Random(seed)).message()))
    for _ in range(data.draw(st.integers(1, 6))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        for message in Unframer().feed(bytes(frame)):
            encode(message)
    except WireError as error:
        assert error.reason in ("garbage", "wrong shape")
