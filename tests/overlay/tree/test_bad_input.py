"""What a host must not say is rejected and counted, and the tree heals."""

from __future__ import annotations

import msgspec
import pytest

from gossamer.lab.tree.checkers import at_rest, deliveries
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.run import TreeRun
from gossamer.machine import LinkState, Micros, Note, Peer, Send
from gossamer.overlay.batch import Batch
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import SchemaContent
from gossamer.overlay.tree.forward import UNASKED_FOR
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
    """One real host, and a peer that says what it likes over a link that is up.

    Keys have 4 bits. The host is 8 unless told otherwise, the peer 4, which is the root; 12 is the child of 8.
    """

    def __init__(self, key: int = 8) -> None:
        self.members = Members(4, [Host(8, 80, "a"), Host(4, 40, "b"), Host(12, 120, "c")])
        me = self.members.hosts[key]
        self.host = TreeHost(
            me,
            TreeConfig(bits=4),
            ZeroTree(4),
            lambda _: IdealRing(me, self.members),
            SchemaContent(),
        )
        self.host.wake(NOW)
        self.host.link(Peer(40), LinkState.UP, NOW)

    def say(self, body) -> list:
        return self.host.receive(Peer(40), body, NOW)

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
    effects = wire.say(
        Attach(Arc(3, Host(4, 40, "b")), True, False)
    )  # a leaf that claims to be the parent of the middle
    assert reasons(effects) == ["a claim that turns parent and child around"]
    assert Notice(True) in wire.told(effects)


def test_a_claim_that_our_own_reckoning_does_not_bear_out_is_refused() -> None:
    wire = Wire(12)
    effects = wire.say(
        Attach(Arc(12, Host(4, 40, "b")), True, False)
    )  # true as to the keys, and no neighbour of 12
    assert wire.host.hood.refused == 1
    assert Notice(True) in wire.told(effects)
    assert Peer(40) not in wire.host.hood.edges


def test_an_answer_to_what_was_never_announced_is_rejected() -> None:
    wire = Wire()
    wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    assert reasons(wire.say(Laid(77))) == ["an answer to what was never announced"]


def test_what_was_taken_by_an_offer_is_owed_a_report_until_its_round_comes_but_not_for_ever() -> (
    None
):
    wire = Wire()
    wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    forward = wire.host.forward
    for first in (0, 1, 2):
        wire.say(
            Carry(Batch("t", 40, 1, first, 1, 0, 0, 0, b"\x90"), ())
        )  # for no keys: it was offered
        wire.host.took((40, 1, first), (first,), NOW)
    assert forward.under_way(NOW) == [(40, 1, 1), (40, 1, 2)]  # nobody here took the first one
    wire.say(Carry(Batch("t", 40, 1, 1, 1, 0, 1, 0, b"\x90"), ((4, 8),)))
    assert forward.under_way(NOW) == [(40, 1, 2)]
    assert forward.under_way(Micros(NOW + UNASKED_FOR)) == []
    wire.say(
        Carry(Batch("t", 40, 1, 3, 1, 3, 0, 0, b"\x90"), ())
    )  # its floor: all before it have their receipts
    assert forward.under_way(NOW) == []


def test_forged_reports_do_not_complete_a_receipt() -> None:
    wire = Wire()
    wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    assert wire.host.hood.active == [Peer(40)]
    wire.host.publish(Batch("t", 80, 1, 0, 1, 0, 0, 0, b"\x90"), NOW)
    wire.host.took((80, 1, 0), (0,), NOW)
    wire.host.wake(NOW)
    before = wire.host.forward.late
    wire.say(Reached((80, 1, 0), 7, ((0, 0),), (5,)))  # another round
    wire.say(Reached((80, 1, 9), 0, ((0, 0),), (5,)))  # no such batch
    assert wire.host.forward.late == before + 2
    effects = wire.say(Reached((80, 1, 0), 0, ((0, 0),), (5, 5)))
    assert reasons(effects) == ["a report for another number of events"]
    effects = wire.say(Reached((80, 1, 0), 0, ((0, 16),), (5,)))
    assert "a report for keys that do not exist" in reasons(effects)
    assert wire.host.finished == []


@pytest.mark.parametrize("order", ["taken first", "reported first"])
def test_a_report_that_also_names_our_own_key_holds_for_the_others_and_we_count_ourselves(
    order: str,
) -> None:
    wire = Wire()
    wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    wire.host.publish(Batch("t", 80, 1, 0, 1, 0, 0, 0, b"\x90"), NOW)
    everything = Reached((80, 1, 0), 0, ((15, 15),), (5,))
    if order == "taken first":
        wire.host.took((80, 1, 0), (1,), NOW)
        wire.say(everything)
    else:
        wire.say(everything)
        assert wire.host.finished == [], "nobody but we can say what is taken here"
        wire.host.took((80, 1, 0), (1,), NOW)
    assert [one.matched for one in wire.host.finished] == [(6,)]


class LateRing(IdealRing):
    """Look-ups are answered later."""

    def lookup(self, key: int, now: Micros) -> Arc | None:
        return None


def test_a_round_that_came_back_to_us_does_not_count_us_twice() -> None:
    """The consumer was slow, the look-up took its time: when the report of the round comes, we have counted ourselves already."""
    wire = Wire()
    ring = LateRing(wire.host.me, Members(4, [Host(8, 80, "a"), Host(4, 40, "b")]))
    host = wire.host = TreeHost(
        ring.me, TreeConfig(bits=4), ZeroTree(4), lambda _: ring, SchemaContent()
    )
    host.wake(NOW)
    host.link(Peer(40), LinkState.UP, NOW)
    wire.say(Attach(Arc(8, Host(4, 40, "b")), True, False))
    host.publish(Batch("t", 80, 1, 0, 1, 0, 0, 0, b"\x90"), NOW)
    wire.say(Reached((80, 1, 0), 0, (), ()))
    first = Micros(NOW + host.config.round)
    host.wake(first)
    [key] = host.forward._lookups
    host.forward.found(key, ring.members.owner(key), Micros(first + 200_000))
    outgoing = host.forward._outgoing[80, 1, 0]
    [(number, round)] = outgoing.rounds.items()
    wire.say(
        Carry(Batch("t", 80, 1, 0, 1, 0, number, 2, b"\x90"), round.want.pieces())
    )  # its keys are ours too
    host.took((80, 1, 0), (1,), first)
    host.wake(Micros(first + host.config.round))
    assert outgoing.matched == (1,)
    wire.say(Reached((80, 1, 0), number, ((15, 15),), (1,)))  # honest: the one is ours
    assert outgoing.matched == (1,)
    assert host.finished == [], "the other keys are asked for again"


def test_a_later_round_that_names_our_key_before_we_have_taken_the_batch_is_asked_for_again() -> (
    None
):
    wire = Wire()
    wire.say(Attach(Arc(12, Host(4, 40, "b")), True, False))
    wire.host.publish(Batch("t", 80, 1, 0, 1, 0, 0, 0, b"\x90"), NOW)
    wire.say(Reached((80, 1, 0), 0, (), ()))  # knows nothing of it
    later = Micros(NOW + wire.host.config.round)
    wire.host.wake(later)
    asked = wire.host.forward._outgoing[80, 1, 0].rounds
    [round] = [number for number, each in asked.items() if each.peer == Peer(40)]
    effects = wire.say(Reached((80, 1, 0), round, ((15, 15),), (5,)))
    assert "a report for the key of this host" in reasons(effects)
    assert round not in asked
    wire.host.took((80, 1, 0), (1,), later)
    assert wire.host.finished == [], "the five were not counted: they are asked again"


@pytest.mark.parametrize(
    "batch",
    [
        Batch("t", 7, 1, 3, 1, 9, 0, 0, b""),  # below its own floor
        Batch("t", 7, 1, 2**21, 1, 0, 0, 0, b""),  # too far ahead of it
        Batch("t", 7, 1, 0, 1, 0, 0, 65_536, b""),  # has gone too far
    ],
)
def test_batches_out_of_bounds_are_rejected(batch: Batch) -> None:
    wire = Wire()
    assert reasons(wire.say(Carry(batch, ((0, 0),)))) == ["a batch outside its publisher's window"]


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
    """Claims twice the keys it owns, as its children's and its parent's, whenever it tells anybody."""

    def wake(self, now: Micros):
        arc = self.ring.arc
        if arc is not None and self.lying:
            for peer, edge in list(self.hood.edges.items()):
                self.links.say(
                    peer, Attach(Arc(arc.low ^ 1 << 62, arc.host), edge.mine, False), now
                )
                self.links.say(peer, Attach(Arc(arc.low, arc.host), False, False), now)
                self.links.say(peer, Attach(Arc(arc.low, arc.host), True, False), now)
                self.links.say(peer, Laid(2**40), now)
        return super().wake(now)

    lying = False


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
        "an answer to what was never announced",
    } <= set(run.rejected)
    assert run.until(run.quiet, 60) is not None
    assert at_rest(run) == []
    assert deliveries(run) == []
