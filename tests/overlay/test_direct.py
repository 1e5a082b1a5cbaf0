"""The direct plane's machine by itself: whom it takes for silent."""

from __future__ import annotations

import msgspec
import pytest

from gossamer.filters import Schema
from gossamer.filters.packed import Packed
from gossamer.machine import MILLISECOND, NEVER, SECOND, LinkState, Micros, Note, Peer, Send
from gossamer.overlay.batch import Batch
from gossamer.overlay.direct.core import PATIENCE, Direct
from gossamer.overlay.direct.messages import Portion, Taken, Wanted, Watch
from gossamer.overlay.direct.plan import Payload
from gossamer.overlay.direct.told import DIAL_AGAIN, Told
from gossamer.trace import Rejected

ME, OTHER = Peer(1), Peer(2)


class Two:
    """This node and one that takes everything."""

    version = 0

    def takers(self, topic: str) -> list[Peer]:
        return [OTHER]

    def address(self, peer: Peer) -> str | None:
        return "node-2"

    def hash(self, topic: str) -> int:
        return 7


@pytest.fixture
def machine() -> Direct:
    """It has sent one portion, which nobody has answered."""
    direct = Direct(ME, 1, Two(), lambda *_: ())
    direct.link(OTHER, LinkState.UP, Micros(0))
    packed = Packed(Schema.parse("temp INT"))
    rows = msgspec.msgpack.encode([(1,)])
    batch = Batch("weather", ME, 1, 1, 1, 1, 0, 0, rows)
    direct.publish(batch, Payload(batch, packed), packed, Micros(0))
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


def test_one_who_does_not_report_is_cut_off_after_a_while(machine: Direct) -> None:
    when = []
    while machine.deadline < 2 * PATIENCE:
        now = machine.deadline
        machine.wake(now)
        if cut(machine):
            when.append(now)
    assert len(when) == 1
    assert PATIENCE <= when[0] <= PATIENCE + 4 * SECOND


@pytest.mark.parametrize("late", [3 * SECOND, 40 * SECOND])
def test_a_node_that_wakes_up_late_does_not_blame_others_for_it(machine: Direct, late: int) -> None:
    """A busy node finds answers in its sockets only after its timers: what it slept through is nobody's silence."""
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
    assert machine.finished == [(1, 1, (1,))]


def test_what_is_slept_through_is_not_slept_through_for_ever(machine: Direct) -> None:
    machine.wake(Micros(machine.deadline + 40 * SECOND))
    assert not cut(machine)
    ends = machine.deadline + 2 * PATIENCE
    while machine.deadline <= ends:
        machine.wake(machine.deadline)
        if cut(machine):
            return
    pytest.fail("a silent peer holds receipts for ever")


def test_a_loop_that_is_always_a_little_late_still_cuts_off_who_is_silent(machine: Direct) -> None:
    now = Micros(0)
    while now < 2 * PATIENCE:
        now = Micros(max(machine.deadline, now) + 10 * MILLISECOND)
        machine.expect(
            "weather", machine._sources["weather"].packed, now
        )  # something is due all the time
        machine.wake(Micros(now + 10 * MILLISECOND))
        if cut(machine):
            break
    assert PATIENCE <= now <= PATIENCE + 4 * SECOND


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
