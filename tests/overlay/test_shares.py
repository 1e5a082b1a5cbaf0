"""Shares: a link that fills a table pushes out only its own entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossamer.machine import Effect, LinkState, Micros, Peer
from gossamer.overlay.batch import Batch, Report
from gossamer.overlay.delivery.lives import LIVES_A_LINK, LIVES_MAX
from gossamer.overlay.flood import Flood, FloodConfig
from gossamer.overlay.shares import Shares


def make(maximum: int = 8, share: int = 4, busy: tuple[int, ...] = ()) -> Shares[int, str]:
    return Shares(maximum, share, lambda key, value: key not in busy)


def test_a_link_pushes_out_its_own_longest_unused() -> None:
    table = make()
    for key in range(4):
        assert table.add(key, "a", 1)
    table.add(100, "b", 2)
    table.use(0, 1)
    for key in range(10, 20):
        assert table.add(key, "a", 1)
    assert table.get(100) == "b"
    assert [key for key, _ in table.items()] == [100, 16, 17, 18, 19]
    assert table.evicted == 10


def test_what_is_in_use_stays_and_then_there_is_no_room() -> None:
    table = make(busy=(0, 1, 2, 3))
    for key in range(4):
        assert table.add(key, "a", 1)
    assert not table.add(4, "a", 1)
    assert table.add(5, "mine", 1, always=True)
    assert len(table) == 5


def test_links_that_are_gone_make_room_first() -> None:
    table = make()
    for key in range(4):
        table.add(key, "gone", 1)
        table.add(key + 10, "here", 2)
    table.closed(1)
    # Another link brings the entry now, so it is not forgotten with the others.
    assert table.use(0, 3) == "gone"
    for key in range(20, 23):
        assert table.add(key, "new", 4)
    assert {key for key, _ in table.items()} == {0, 10, 11, 12, 13, 20, 21, 22}


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5), st.sampled_from("auc")), max_size=200)
)
def test_bounds_hold_whatever_happens(steps: list[tuple[int, int, str]]) -> None:
    table = make(busy=(7,))
    for key, link, what in steps:
        if what == "a" and table.get(key) is None:
            table.add(key, str(key), link)
        elif what == "u":
            assert table.use(key, link) == table.get(key)
        elif what == "c":
            table.closed(link)
        assert len(table) <= 8
        assert sum(len(share) for share in table._by_link.values()) == len(table)
        assert all(len(share) <= 4 for link, share in table._by_link.items() if link > 0)
        assert all(value == str(key) for key, value in table.items())


def test_a_peer_that_invents_publishers_makes_a_node_forget_nobody_else() -> None:
    """An attack that worked once: 65,536 invented publishers, and a batch would be handed over
    twice.
    """
    handed: list[Batch] = []

    def arrive(batch: Batch, now: Micros, *_: object) -> tuple[int, ...]:
        handed.append(batch)
        return ()

    out: list[Effect] = []
    node = Flood(Peer(1), FloodConfig(), arrive, lambda *_: None, lambda *_: None, out)
    engine = node.engine
    honest, liar = Peer(2), Peer(3)
    for peer in (honest, liar):
        node.link(peer, LinkState.UP, Micros(0))
    real = Batch("t", 2, 1, 1, 1, 1, 0, 1, b"\x91\x91\x01")
    node.receive(honest, real, Micros(0))
    assert handed == [real]
    for publisher in range(LIVES_MAX + 1000):
        key = (1000 + publisher, 1, 1)
        node.receive(liar, Batch("t", *key, 1, 1, 0, 1, b"\x91\x91\x01"), Micros(0))
        node.receive(honest, Report(*key, 0, True), Micros(0))
        out.clear()
    assert len(engine.lives) <= LIVES_A_LINK + 1
    handed.clear()
    node.receive(liar, real, Micros(1))
    assert handed == []
    assert sum(engine.batches_by.values()) == engine.remembered
    assert engine.bytes_by[liar] == 0
