"""The machine of route direct by itself: the portions that it repeats, and the peers that it takes
for silent.
"""

from __future__ import annotations

import msgspec
import pytest

from gossamer.filters import Schema
from gossamer.filters.packed import Packed
from gossamer.machine import (
    MILLISECOND,
    NEVER,
    SECOND,
    Dial,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
)
from gossamer.overlay.batch import Batch, Left
from gossamer.overlay.delivery.outstanding import PATIENCE
from gossamer.overlay.direct.core import Direct
from gossamer.overlay.direct.messages import Holding, Portion, Taken, Wanted, Watch
from gossamer.overlay.direct.told import DIAL_AGAIN, Told
from gossamer.trace import Rejected

ME, OTHER = Peer(1), Peer(2)


class Two:
    """This node and one that takes everything."""

    version = 0

    def __init__(self) -> None:
        self.form = Packed(Schema.parse("temp INT"))

    def packed(self, topic: str) -> Packed:
        return self.form

    def takers(self, topic: str) -> list[Peer]:
        return [OTHER]

    def address(self, peer: Peer) -> str | None:
        return "node-2"

    def hash(self, topic: str) -> int:
        return 7


class Owned(Direct):
    """A machine whose owner has one subscription that takes everything: ``takes`` is its answer."""

    def __init__(self) -> None:
        self.takes: tuple[int, ...] | None = (1,)
        self.handed: list[Batch] = []
        self.receipts: list[tuple[int, int, tuple[int, ...]]] = []
        self.left: list[Left] = []

        def arrive(batch: Batch, *_: object) -> tuple[int, ...] | None:
            self.handed.append(batch)
            return self.takes

        super().__init__(ME, 1, Two(), arrive, lambda *one: self.receipts.append(one),
                         lambda left, now: self.left.append(left), [])  # fmt: skip

    def said(self) -> list[Message]:
        found = [effect.message for effect in self.out if isinstance(effect, Send)]
        self.out.clear()
        return found


@pytest.fixture
def machine() -> Owned:
    """It has sent one portion, which nobody has answered."""
    direct = Owned()
    direct.link(OTHER, LinkState.UP, Micros(0))
    rows = msgspec.msgpack.encode([(1,)])
    batch = Batch("weather", ME, 1, 1, 1, 1, 0, 0, rows)
    direct.publish(batch, Micros(0))
    watch = next(
        send.message
        for send in direct.out
        if isinstance(send, Send) and isinstance(send.message, Watch)
    )
    direct.receive(OTHER, Wanted(7, 5, 0, 1, 1, ((1, "", ""),), watch.session), Micros(0))
    direct.wake(Micros(0))
    assert any(isinstance(send, Send) and isinstance(send.message, Portion) for send in direct.out)
    direct.out.clear()
    return direct


def cut(direct: Direct) -> bool:
    said = [note.record for note in direct.out if isinstance(note, Note)]
    direct.out.clear()
    return any(isinstance(record, Rejected) and record.cut for record in said)


def test_one_who_does_not_report_is_cut_off_after_a_while(machine: Owned) -> None:
    when = []
    while machine.deadline < 2 * PATIENCE:
        now = machine.deadline
        machine.wake(now)
        if cut(machine):
            when.append(now)
    assert len(when) == 1
    assert PATIENCE <= when[0] <= PATIENCE + 4 * SECOND


def test_a_node_behind_a_full_queue_is_not_silent(machine: Owned) -> None:
    machine.link(OTHER, LinkState.FULL, Micros(1))
    while machine.deadline < 3 * PATIENCE:
        machine.wake(machine.deadline)
        assert not cut(machine)
    machine.link(OTHER, LinkState.READY, Micros(3 * PATIENCE))
    while machine.deadline < 6 * PATIENCE:
        machine.wake(machine.deadline)
        if cut(machine):
            return
    pytest.fail("its queue has drained, and it says nothing")


@pytest.mark.parametrize("late", [3 * SECOND, 40 * SECOND])
def test_a_node_that_wakes_up_late_does_not_blame_others_for_it(machine: Owned, late: int) -> None:
    """A busy node finds answers in its sockets only after its timers. The time in which it was busy
    is no silence of others.
    """
    slept = 0
    while slept < 2 * PATIENCE:
        now = Micros(machine.deadline + late)
        slept += late
        machine.wake(now)
        awake = now - slept
        assert not cut(machine) or awake >= PATIENCE, (now, slept)
        if awake >= PATIENCE:
            return
    machine.receive(OTHER, Taken(1, 1, 0, (1,)), now)
    assert machine.receipts == [(1, 1, (1,))]


def test_what_is_slept_through_is_not_slept_through_for_ever(machine: Owned) -> None:
    machine.wake(Micros(machine.deadline + 40 * SECOND))
    assert not cut(machine)
    ends = machine.deadline + 2 * PATIENCE
    while machine.deadline <= ends:
        machine.wake(machine.deadline)
        if cut(machine):
            return
    pytest.fail("a silent peer holds receipts for ever")


def test_a_loop_that_is_always_a_little_late_still_cuts_off_who_is_silent(machine: Owned) -> None:
    now = Micros(0)
    while now < 2 * PATIENCE:
        now = Micros(max(machine.deadline, now) + 10 * MILLISECOND)
        # Something is due all the time.
        machine.expect("weather", now)
        machine.wake(Micros(now + 10 * MILLISECOND))
        if cut(machine):
            break
    assert PATIENCE <= now <= PATIENCE + 4 * SECOND


def portions(direct: Owned) -> list[int]:
    return [message.first for message in direct.said() if isinstance(message, Portion)]


def test_a_portion_is_sent_once_while_the_link_is_up(machine: Owned) -> None:
    while machine.deadline < PATIENCE:
        machine.wake(machine.deadline)
        assert portions(machine) == []
    machine.receive(OTHER, Taken(1, 1, 0, (1,)), PATIENCE)
    assert machine.receipts == [(1, 1, (1,))]
    assert not machine.needs(OTHER)


def test_a_portion_whose_link_breaks_goes_again_over_the_next_one(machine: Owned) -> None:
    machine.link(OTHER, LinkState.DOWN, Micros(1))
    assert machine.needs(OTHER)
    machine.wake(machine.deadline)
    assert [effect.address for effect in machine.out if isinstance(effect, Dial)] == ["node-2"]
    machine.out.clear()
    machine.wake(machine.deadline)
    assert [effect.address for effect in machine.out if isinstance(effect, Dial)] == ["node-2"]
    machine.link(OTHER, LinkState.UP, Micros(2))
    assert portions(machine) == [1]
    machine.receive(OTHER, Taken(1, 1, 0, (1,)), Micros(3))
    machine.receive(OTHER, Taken(1, 1, 0, (1,)), Micros(3))
    assert machine.receipts == [(1, 1, (1,))]


def test_a_portion_that_a_full_queue_refused_waits_until_the_link_is_ready(machine: Owned) -> None:
    portion = Portion("weather", 1, 1, 1, 0, 1, (), "", b"", 1)
    machine.refused(OTHER, portion, Micros(1))
    machine.wake(machine.deadline)
    assert portions(machine) == []
    machine.link(OTHER, LinkState.READY, Micros(2))
    assert portions(machine) == [1]


def test_a_portion_for_which_there_is_no_room_is_sent_again_later(machine: Owned) -> None:
    machine.receive(OTHER, Holding(1, 1, 0, False), Micros(1))
    assert portions(machine) == []
    machine.wake(machine.deadline)
    assert portions(machine) == [1]


@pytest.mark.parametrize("end", ["gone", "cut"])
def test_nobody_waits_for_a_node_that_is_dead_or_cut_off(machine: Owned, end: str) -> None:
    if end == "gone":
        machine.gone(OTHER, Micros(1))
    else:
        machine.link(OTHER, LinkState.CUT, Micros(1))
    assert machine.receipts == [(1, 1, (0,))]
    assert not machine.outstanding.unlinked


def test_a_node_that_cannot_answer_yet_says_so_and_answers_when_it_can(machine: Owned) -> None:
    portion = Portion("weather", int(OTHER), 1, 5, 0, 5, (), "", b"rows", 1)
    machine.takes = None
    machine.receive(OTHER, portion, Micros(0))
    assert [type(message) for message in machine.said()] == []
    machine.wake(machine.deadline)
    assert Holding(1, 5, 0) in machine.said()
    machine.receive(OTHER, portion, Micros(0))
    assert machine.said() == [Holding(1, 5, 0)]
    machine.took((int(OTHER), 1, 5, 0), (1,), Micros(1))
    assert machine.said() == [Taken(1, 5, 0, (1,))]
    machine.receive(OTHER, portion, Micros(2))
    assert machine.said() == [Taken(1, 5, 0, (1,))]
    assert len(machine.handed) == 1
    assert not machine.outstanding.owed


def test_a_change_of_filters_is_told_once_over_each_link_and_without_one_the_peer_is_dialled() -> (
    None
):
    told = Told(7)
    told.linked(OTHER, Micros(0))
    assert told.watch(OTHER, Watch(5, 0, 0, 1), Micros(1)) is not None
    assert told.watch(OTHER, Watch(5, 7, 0, 1), Micros(1)) is None
    told.unlinked(OTHER, Micros(1))
    told.subscribe(1, 5, "temp > 30", "", Micros(2))
    # There is no link: the caller dials, and looks again.
    assert [peer for peer, _ in told.wake(Micros(2))] == [OTHER]
    assert told.deadline == 2 + DIAL_AGAIN
    told.linked(OTHER, Micros(3))
    [(_, first)] = told.wake(told.deadline)
    assert told.deadline == NEVER
    assert told.wake(Micros(60 * SECOND)) == []
    told.unlinked(OTHER, Micros(61 * SECOND))
    told.linked(OTHER, Micros(62 * SECOND))
    assert told.wake(told.deadline) == [(OTHER, first)]
    assert not told.laid
    told.watch(OTHER, Watch(5, 7, first.version, 1), Micros(63 * SECOND))
    assert told.laid == [1]
