"""Route tree in a node: each batch is answered, and it counts only if its publisher signed it."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.node.test_gate import FAR, HERE, KEYS, LIAR, At, charged

from gossamer.machine import Effect, LinkState, Micros, Send
from gossamer.node.core import NodeConfig, NodeCore
from gossamer.node.gate import WAIT
from gossamer.node.planes import Route
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.proof import BATCH
from gossamer.overlay.tree.arcs import Host
from gossamer.overlay.tree.messages import Carry, Reached

NOW = Micros(1_000)
ALL = ((2**64 - 1, 2**64 - 1),)


def carried(first: int = 1, **other: Any) -> Carry:
    """A batch of FAR for all keys, signed by FAR."""
    rows = msgspec.msgpack.encode([[7]])
    batch = Batch("t", FAR, 1, first, 1, 1, 0, 1, rows)
    batch = structs.replace(batch, signature=KEYS.signed(FAR, BATCH, batch.said()))
    return Carry(structs.replace(batch, **other), ())


class OnTree(At):
    """A node with keys and a subscription by tree; the liar is linked to it."""

    def __init__(self, knows: bool = True) -> None:
        self.rights = KEYS.rights(KEYS.identity(HERE))
        self.core = core = NodeCore(
            HERE, incarnation=1, rng=Random(1), config=NodeConfig(interest=InterestConfig()),
            address="here", rights=self.rights, proof=KEYS.proof(self.rights),
        )  # fmt: skip
        core.advertise("t", "n INT", Micros(2))
        core.subscribe("t", "", Micros(3), route=Route.TREE)
        core.link(LIAR, LinkState.UP, Micros(4))
        core.wake(Micros(5))
        assert core.tree is not None
        assert core.tree.host is not None
        self.tree, self.host = core.tree, core.tree.host
        self.rights.learn(LIAR, KEYS.identity(LIAR).certificate)
        if knows:
            self.learn()

    @property
    def remembered(self) -> int:
        return self.tree.remembered


def answers(effects: list[Effect]) -> list[Reached]:
    return [e.message for e in effects if type(e) is Send and type(e.message) is Reached]


def test_a_batch_that_its_publisher_has_signed_is_taken_and_answered() -> None:
    at = OnTree()
    [answer] = answers(at.get(carried()))
    assert (answer.want, answer.pieces, answer.matched) == ((), ALL, (1,))
    assert at.remembered == 1


@pytest.mark.parametrize("change", [{"floor": 0}, {"round": 5}, {"rows": b"\x91\x91\x08"}])
def test_a_relay_can_change_neither_events_nor_floor_nor_round(change: dict[str, Any]) -> None:
    at = OnTree()
    effects = at.get(carried(**change))
    assert charged(effects) == [f"{LIAR:016x}"]
    assert answers(effects) == []
    assert at.remembered == 0


def test_a_batch_of_a_publisher_that_stays_unknown_is_answered_with_nothing_reached() -> None:
    at = OnTree(knows=False)
    assert answers(at.get(carried())) == []
    later = Micros(NOW + WAIT)
    assert at.core.deadline <= later
    [answer] = answers(at.core.link(LIAR, LinkState.READY, later))
    assert (answer.want, answer.pieces, answer.matched) == ((), (), ())
    assert at.remembered == 0


def test_a_node_that_does_not_know_the_fabric_yet_answers_for_no_key() -> None:
    """It would take the keys of members that it does not know for its own."""
    at = At()
    assert at.core.tree is not None
    at.core.tree._interest.is_synced = lambda now: False  # type: ignore[method-assign]
    [answer] = answers(at.get(carried()))
    assert (answer.want, answer.pieces) == ((), ())
    assert at.core.tree.host is None


def test_each_round_of_a_publisher_is_signed() -> None:
    at = OnTree()
    assert at.tree._ring is not None
    at.tree._ring.learn(Host(LIAR, LIAR, "there"))
    at.host.changed(LIAR)
    at.host.wake(NOW)
    at.host.routes.tables[LIAR] = None
    at.tree.publish(Batch("t", HERE, 1, 1, 1, 1, 0, 0, b"rows"), NOW)
    del at.host.routes.tables[LIAR]
    at.host.receive(LIAR, Reached((HERE, 1, 1), 0, (), ()), NOW)
    effects = at.core.wake(Micros(NOW + at.host.config.again))
    batches = [e.message.batch for e in effects if type(e) is Send and type(e.message) is Carry]
    assert [batch.round for batch in batches] == [0, 1]
    for batch in batches:
        assert KEYS.proof(at.rights).proves(HERE, BATCH, batch.said(), batch.signature)
