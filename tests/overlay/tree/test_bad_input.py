"""What a host must not say is rejected and counted, and the tree heals."""

from __future__ import annotations

import msgspec
import pytest

from gossamer.lab.tree.checkers import at_rest, deliveries
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.run import TreeRun
from gossamer.machine import Effect, LinkState, Micros, Note, Peer, Send
from gossamer.overlay.batch import Batch
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import SchemaContent
from gossamer.overlay.tree.host import TreeHost
from gossamer.overlay.tree.messages import (
    Announce,
    Attach,
    Carry,
    Laid,
    Notice,
    Reached,
    TreeMessage,
    Yield,
)
from gossamer.overlay.tree.reference import ZeroTree
from gossamer.overlay.tree.ring import IdealRing, Members

NOW = Micros(1)


class Wire:
    """One real host, and a peer that says anything over a link that is up.

    Keys have 4 bits. The host is 8 unless told otherwise. The peer is 4, which is the root, and 12
    is the child of 8. The owner of the host takes events when the test says so
    (``took``).
    """

    def __init__(self, key: int = 8) -> None:
        self.members = Members(4, [Host(8, 80, "a"), Host(4, 40, "b"), Host(12, 120, "c")])
        me = self.members.hosts[key]
        self.out: list[Effect] = []
        self.handed: list[Batch] = []
        self.receipts: list[tuple[int, ...]] = []
        self.host = TreeHost(
            me, TreeConfig(bits=4), ZeroTree(4), lambda _: IdealRing(me, self.members),
            SchemaContent(), lambda batch, *_: self.handed.append(batch),
            lambda life, first, counts: self.receipts.append(counts), self.out,
        )  # fmt: skip
        self.host.wake(NOW)
        self.host.link(Peer(40), LinkState.UP, NOW)
        self.out.clear()

    def say(self, body) -> list:
        self.host.receive(Peer(40), body, NOW)
        return self.take()

    def take(self) -> list:
        out = self.out.copy()
        self.out.clear()
        return out

    def publish(self) -> None:
        self.host.publish(Batch("t", 80, 1, 0, 1, 0, 0, 0, b"\x90"), NOW)

    def took(self, count: int) -> None:
        self.host.engine.took((80, 1, 0), (count,), NOW)

    def told(self, effects: list) -> list:
        return [e.message for e in effects if isinstance(e, Send)]


def reasons(effects: list) -> list[str]:
    return [effect.record.reason for effect in effects if isinstance(effect, Note)]


def test_a_claim_to_keys_that_are_anothers_is_rejected() -> None:
    wire = Wire()
    assert reasons(wire.say(Attach(Arc(0, Host(12, 120, "c")), False, False))) == [
        "a claim to the keys of another host"
    ]
    assert reasons(wire.say(Attach(Arc(4, Host(8, 40, "b")), True, False))) == [
        "a claim to the keys of this host"
    ]
    assert reasons(wire.say(Attach(Arc(5, Host(4, 40, "b")), True, False))) == [
        "a claim to the keys of this host"
    ]
    assert reasons(wire.say(Yield(Arc(4, Host(8, 40, "b"))))) == [
        "a claim to the keys of another host"
    ]
    assert wire.host.links.rejected == 4
    assert wire.host.hood.active == []


def test_a_parent_that_is_not_above_its_child_is_rejected() -> None:
    wire = Wire()
    # A leaf that claims to be the parent of the middle.
    effects = wire.say(Attach(Arc(3, Host(4, 40, "b")), True, False))
    assert reasons(effects) == ["a claim that turns parent and child around"]
    assert Notice(True) in wire.told(effects)


def test_a_claim_that_our_own_reckoning_does_not_bear_out_is_refused() -> None:
    wire = Wire(12)
    # True as to the keys, and no neighbour of 12.
    effects = wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    assert wire.host.hood.refused == 1
    assert Notice(True) in wire.told(effects)
    assert Peer(40) not in wire.host.hood.edges


def test_an_answer_to_what_was_never_announced_is_rejected() -> None:
    wire = Wire()
    wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    assert reasons(wire.say(Laid(77))) == ["an answer to no announcement"]


ALL = ((15, 15),)


def neighbour() -> Wire:
    """The peer is a neighbour of the host, and has not told the filters behind it."""
    wire = Wire()
    wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    assert wire.host.hood.active == [Peer(40)]
    return wire


def test_forged_reports_do_not_complete_a_receipt() -> None:
    wire = neighbour()
    wire.publish()
    wire.took(0)
    wire.take()
    # Of another round, of another batch, for other keys than those that were asked for.
    assert wire.say(Reached((80, 1, 0), 7, (), ALL, (5,))) == []
    assert wire.say(Reached((80, 1, 9), 0, (), ALL, (5,))) == []
    assert wire.say(Reached((80, 1, 0), 0, ((0, 3),), ALL, (5,))) == []
    effects = wire.say(Reached((80, 1, 0), 0, (), ALL, (5, 5)))
    assert reasons(effects) == ["report for another number of events"]
    effects = wire.say(Reached((80, 1, 0), 0, (), ((0, 16),), (5,)))
    assert "a report for keys that do not exist" in reasons(effects)
    assert wire.receipts == []


@pytest.mark.parametrize("is_taken_first", [True, False])
def test_a_report_that_also_names_the_key_of_its_receiver_holds_and_the_receiver_counts_itself(
    is_taken_first: bool,
) -> None:
    """While links are being made, two neighbours may have heard of a newcomer, and answer for it to
    each other.
    """
    wire = neighbour()
    wire.publish()
    everything = Reached((80, 1, 0), 0, (), ALL, (5,))
    if is_taken_first:
        wire.took(1)
        wire.say(everything)
    else:
        wire.say(everything)
        assert wire.receipts == [], "only the host itself can say which events were taken there"
        wire.took(1)
    assert wire.receipts == [(6,)]


def test_a_batch_that_comes_back_to_its_publisher_is_not_counted_a_second_time() -> None:
    wire = neighbour()
    wire.publish()
    wire.took(1)
    wire.host.link(Peer(120), LinkState.UP, NOW)
    wire.say(Reached((80, 1, 0), 0, (), ()))
    wire.host.wake(Micros(NOW + wire.host.config.again))
    [again] = [message for message in wire.told(wire.take()) if type(message) is Carry]
    # All keys are missing but those of the host itself, and they are one arc.
    assert (again.want, again.batch.round) == (((8, 4),), 1)
    [answer] = wire.told(wire.say(Carry(again.batch, ())))
    assert answer == Reached((80, 1, 0), 1, (), ())
    wire.host.receive(Peer(120), Reached((80, 1, 0), 1, again.want, ALL, (2,)), NOW)
    assert wire.receipts == [(3,)]
    assert len(wire.handed) == 1


def test_a_report_says_nothing_about_keys_that_its_sender_was_not_asked_for() -> None:
    wire = neighbour()
    wire.publish()
    wire.took(0)
    wire.say(Reached((80, 1, 0), 0, (), ((12, 2),)))
    wire.host.wake(Micros(NOW + wire.host.config.again))
    [carried] = [message for message in wire.told(wire.take()) if type(message) is Carry]
    assert carried.want == ((2, 4),)
    assert list(wire.host.engine.outstanding.unlinked) == [120]
    wire.say(Reached((80, 1, 0), 1, ((2, 4),), ALL))
    assert wire.receipts == [], "the other missing arc has another owner, which has not answered"


@pytest.mark.parametrize(
    "batch",
    [
        # It is below its own floor, or too far ahead of it.
        Batch("t", 7, 1, 3, 1, 9, 0, 0, b""),
        Batch("t", 7, 1, 2**21, 1, 0, 0, 0, b""),
        # It has gone too far.
        Batch("t", 7, 1, 0, 1, 0, 0, 65_536, b""),
    ],
)
def test_batches_out_of_bounds_are_rejected(batch: Batch) -> None:
    wire = Wire()
    [reason] = reasons(wire.say(Carry(batch, ((0, 0),))))
    assert reason in ("batch outside its publisher's window", "batch has gone too far")
    assert wire.handed == []


def test_keys_that_do_not_exist_are_rejected() -> None:
    wire = Wire()
    wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    assert reasons(wire.say(Announce(1, ((0, 99),), False, False, False))) == [
        "keys that do not exist"
    ]
    assert reasons(wire.say(Carry(Batch("t", 7, 1, 0, 1, 0, 0, 0, b""), ((0, 99),)))) == [
        "keys that do not exist"
    ]


def test_the_codec_refuses_what_has_no_bounds() -> None:
    decoder = msgspec.msgpack.Decoder(TreeMessage)
    pieces = tuple((n, n) for n in range(300))
    frame = msgspec.msgpack.encode(Announce(1, pieces, False, False, False))
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(frame)


class Liar(TreeHost):
    """Claims twice the keys it owns, as its children's and its parent's, whenever it wakes."""

    lying = False

    def wake(self, now: Micros) -> None:
        arc = self.ring.arc
        if arc is not None and self.lying:
            for peer, edge in list(self.hood.edges.items()):
                self.links.say(
                    peer, Attach(Arc(arc.low ^ 1 << 62, arc.host), edge.mine, False), now
                )
                self.links.say(peer, Attach(Arc(arc.low, arc.host), False, False), now)
                self.links.say(peer, Attach(Arc(arc.low, arc.host), True, False), now)
                self.links.say(peer, Laid(2**40), now)
        super().wake(now)


def test_the_tree_heals_when_a_liar_stops() -> None:
    run = TreeRun(Setup(hosts=12, seed=8), make_host=Liar)
    for _ in range(12):
        run.join(run.free_key())
        run.wait(0.1)
    assert run.until(run.quiet, 30) is not None
    liar = list(run.up.values())[5]
    run.machine(liar).lying = True
    for _ in range(10):
        run.world.command(liar)
        run.wait(0.3)
        run.publish(list(run.up.values())[1])
    run.machine(liar).lying = False
    assert sum(run.rejected.values()) > 10
    assert {
        "a claim that turns parent and child around",
        "an answer to no announcement",
    } <= set(run.rejected)
    assert run.until(run.quiet, 60) is not None
    assert at_rest(run) == []
    assert deliveries(run) == []
