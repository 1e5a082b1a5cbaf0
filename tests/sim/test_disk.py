from __future__ import annotations

from random import Random

from gossamer.machine import Forget, Keep, Store, Token
from gossamer.sim.disk import Disk


def store(token: int, *records: Keep | Forget) -> Store:
    return Store(Token(token), records)


def keep(key: str, value: bytes = b"v") -> Keep:
    return Keep(key, value)


def test_writes_finish_in_order_and_take_turns() -> None:
    disk = Disk(Random(0))
    assert disk.ask(store(1, keep("a", b"1")), now=100, latency=10) == 110
    assert disk.ask(store(2, keep("a", b"2"), keep("b")), now=105, latency=10) == 120
    assert [done.token for done in disk.finish()] == [1]
    assert disk.contents == {"a": b"1"}
    assert [done.token for done in disk.finish()] == [2]
    assert disk.contents == {"a": b"2", "b": b"v"}
    assert disk.finish() == []


def test_forget() -> None:
    disk = Disk(Random(0))
    disk.ask(store(1, keep("a"), Forget("a"), Forget("never there")), 0, 1)
    disk.finish()
    assert disk.contents == {}


def test_a_crash_keeps_every_possible_prefix_sometimes_and_nothing_else() -> None:
    kept: dict[tuple[str, ...], int] = {}
    for seed in range(300):
        disk = Disk(Random(seed))
        disk.ask(store(1, keep("safe")), 0, 1)
        disk.finish()
        disk.ask(store(2, keep("a"), keep("b")), 0, 1)
        disk.ask(store(3, keep("c")), 0, 1)
        disk.crash()
        assert disk.pending == []
        assert disk.torn == 4 - len(disk.contents)
        key = tuple(disk.contents)
        kept[key] = kept.get(key, 0) + 1
    assert sorted(kept) == [("safe",), ("safe", "a"), ("safe", "a", "b"), ("safe", "a", "b", "c")]
    assert min(kept.values()) > 40


def test_a_full_disk_refuses_what_is_awaited_and_nothing_else() -> None:
    disk = Disk(Random(0))
    disk.full = True
    disk.ask(store(1, keep("a")), 0, 1)
    disk.ask(Store(Token(2), (keep("b"),), is_awaited=True), 0, 1)
    disk.ask(store(3, keep("c")), 0, 1)
    assert [refused.token for refused in disk.refuse()] == [2]
    disk.full = False
    assert [done.token for _ in range(3) for done in disk.finish()] == [1, 3]


def test_a_full_disk_finishes_nothing() -> None:
    disk = Disk(Random(0))
    disk.full = True
    disk.ask(store(1, keep("a")), 0, 1)
    assert disk.finish() == []
    assert disk.contents == {}
    disk.full = False
    assert [done.token for done in disk.finish()] == [1]
