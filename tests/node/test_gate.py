"""The gate: what relays carry counts only if its publisher has signed it."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gossamer.machine import SECOND, Deliver, Effect, LinkState, Message, Micros, Note, Peer, Send
from gossamer.node.core import NodeConfig, NodeCore
from gossamer.node.gate import BYTES_A_LINK, KNOWN_MAX, WAIT, Gate
from gossamer.node.planes import Route
from gossamer.overlay.batch import Batch, Group, Report
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.proof import BATCH
from gossamer.overlay.skiplist.messages import Carry, Part
from gossamer.sim.keys import SimulatedKeys
from gossamer.trace import Rejected

HERE, LIAR, FAR = Peer(1), Peer(2), Peer(3)
KEYS = SimulatedKeys(5)
NOW = Micros(1_000)


def made(first: int = 1, **other: Any) -> Batch:
    """A batch of FAR, signed."""
    rows = msgspec.msgpack.encode([[7]])
    batch = structs.replace(Batch("t", FAR, 1, first, 1, 1, 0, 1, rows), **other)
    return structs.replace(batch, signature=KEYS.signed(FAR, BATCH, batch.said()))


class At:
    """A node with keys, a subscription by flood, and a link to the liar."""

    def __init__(self, knows: bool = True) -> None:
        self.rights = KEYS.rights(KEYS.identity(HERE))
        self.core = core = NodeCore(
            HERE, incarnation=1, rng=Random(1), config=NodeConfig(interest=InterestConfig()),
            rights=self.rights, proof=KEYS.proof(self.rights), address="here",
        )  # fmt: skip
        core.advertise("t", "n INT", Micros(2))
        core.subscribe("t", "", Micros(3), route=Route.FLOOD)
        core.link(LIAR, LinkState.UP, Micros(4))
        core.flood.engine.link(LIAR, LinkState.UP, Micros(4))
        core.wake(Micros(5))
        self.rights.learn(LIAR, KEYS.identity(LIAR).certificate)
        if knows:
            self.learn()

    def learn(self) -> None:
        assert self.rights.learn(FAR, KEYS.identity(FAR).certificate)

    def get(self, message: Message, now: int = NOW) -> list[Effect]:
        return self.core.receive(LIAR, message, Micros(now))

    @property
    def remembered(self) -> int:
        return self.core.flood.remembered


def delivered(effects: list[Effect]) -> list[Any]:
    return [event["n"] for effect in effects if type(effect) is Deliver for event in effect.events]


def charged(effects: list[Effect]) -> list[str]:
    return [e.record.peer for e in effects if type(e) is Note and type(e.record) is Rejected]


def reports(effects: list[Effect]) -> list[bool]:
    return [e.message.whole for e in effects if type(e) is Send and type(e.message) is Report]


def test_what_its_publisher_has_signed_is_delivered() -> None:
    at = At()
    assert delivered(at.get(made())) == [7]
    assert at.remembered == 1


@pytest.mark.parametrize(
    "change",
    [
        {"rows": msgspec.msgpack.encode([[8]])},
        {"floor": 0},
        {"round": 2**40},
        {"first": 2},
        {"count": 2},
        {"incarnation": 2},
        {"topic": "other"},
        {"publisher": int(LIAR)},
        {"signature": b""},
        {"signature": bytes(64)},
    ],
    ids=str,
)
def test_what_a_relay_has_changed_reaches_no_table_and_is_charged_to_its_link(
    change: dict[str, Any],
) -> None:
    at = At()
    effects = at.get(structs.replace(made(), **change))
    assert delivered(effects) == []
    assert charged(effects) == [f"{LIAR:016x}"]
    assert at.remembered == 0
    assert at.core.gate is not None
    assert at.core.gate.forged == 1
    assert delivered(at.get(made())) == [7]


class OnTheSkipList(At):
    """The same with a subscription by the skip list, whose only entry is this node's."""

    def __init__(self) -> None:
        super().__init__()
        core, now = self.core, 10
        core.link(LIAR, LinkState.DOWN, Micros(now))
        core.subscribe("t", "n = 7", Micros(now), route=Route.SKIPLIST)
        while core.deadline <= 2 * SECOND:
            now = max(now, core.deadline)
            core.wake(Micros(now))
        core.link(LIAR, LinkState.UP, Micros(now))
        self.now = now

    def carry(self, **change: Any) -> list[Effect]:
        """The node gets a walk with two events, whose relay has changed it."""
        assert self.core.skiplist is not None
        [key] = self.core.skiplist._by_name("t", Micros(self.now)).machine.entries
        rows = msgspec.msgpack.encode([[7], [7]])
        group = Group("t", FAR, 1, 1, 2, 1, 0, 1, rows, b"", (1, 4))
        group = structs.replace(group, signature=KEYS.signed(FAR, BATCH, group.said()))
        part = Part((key, 0), (key + b"x", 0), key)
        return self.get(Carry(structs.replace(group, **change), (part,)), self.now)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": msgspec.msgpack.encode([[7], [8]])},
        {"numbers": (1, 5)},
        {"numbers": ()},
        {"floor": 0},
        {"round": 2**40},
        {"incarnation": 2},
        {"publisher": int(LIAR)},
        {"signature": b""},
    ],
    ids=str,
)
def test_a_walk_that_a_relay_has_changed_reaches_no_table_of_the_skip_list(
    change: dict[str, Any],
) -> None:
    at = OnTheSkipList()
    effects = at.carry(**change)
    assert delivered(effects) == []
    assert charged(effects) == [f"{LIAR:016x}"]
    assert at.core.skiplist is not None
    assert at.core.skiplist.remembered == 0
    assert delivered(at.carry(hops=9)) == [7, 7]
    assert at.core.skiplist.remembered == 2


def test_a_forged_floor_and_a_forged_round_stop_nothing() -> None:
    """One forged batch made all later events of its publisher late for ever."""
    at = At()
    at.get(structs.replace(made(2**52), floor=2**52))
    at.get(structs.replace(made(2), round=2**53))
    assert delivered(at.get(made(1))) == [7]
    assert delivered(at.get(made(2))) == [7]


def test_hops_are_the_relays_own() -> None:
    assert delivered(At().get(structs.replace(made(), hops=9))) == [7]


def test_the_same_signature_is_checked_once() -> None:
    at = At()
    KEYS.judged = 0
    for _ in range(5):
        at.get(made())
    assert KEYS.judged == 1


def test_an_unknown_publisher_is_waited_for_and_then_its_events_are_taken() -> None:
    at = At(knows=False)
    effects = at.get(made())
    assert delivered(effects) == []
    assert charged(effects) == []
    at.learn()
    assert delivered(at.core.wake(Micros(NOW + 10))) == [7]


def test_an_invented_publisher_leaves_nothing_behind_and_its_relay_is_charged() -> None:
    at = At(knows=False)
    at.get(made())
    effects = at.core.wake(Micros(NOW + WAIT))
    assert charged(effects) == [f"{LIAR:016x}"]
    assert reports(effects) == [False]
    assert at.remembered == 0
    assert at.core.gate is not None
    assert at.core.gate._bytes == 0
    assert at.core.gate._bytes_by == {}


def test_a_forgery_that_waits_is_refused_when_the_publisher_is_known() -> None:
    at = At(knows=False)
    at.get(structs.replace(made(), rows=msgspec.msgpack.encode([[8]])))
    at.learn()
    effects = at.core.wake(Micros(NOW + 10))
    assert delivered(effects) == []
    assert charged(effects) == [f"{LIAR:016x}"]


def test_one_link_cannot_fill_the_room_of_all() -> None:
    at = At(knows=False)
    rows = bytes(BYTES_A_LINK // 2)
    declined = [reports(at.get(made(first, rows=rows))) for first in range(1, 9)]
    assert declined == [[], *([False] for _ in range(7))]
    other = at.core.receive(HERE, made(1, rows=rows), NOW)
    assert reports(other) == []


def test_what_the_gate_remembers_is_bounded() -> None:
    at = At()
    gate = at.core.gate
    assert isinstance(gate, Gate)
    for first in range(1, KNOWN_MAX + 100):
        assert gate.admits(LIAR, made(first), NOW)
    assert len(gate._known) == KNOWN_MAX
