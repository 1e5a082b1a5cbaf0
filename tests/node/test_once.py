"""Batches of a stream that may be published again are accepted once, over all lives of the
publisher.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from gossamer.filters import EventError
from gossamer.machine import Keep, Micros, Peer, Store
from gossamer.node import NodeCore
from gossamer.node.core import OPEN_MAX
from gossamer.node.outbox import STREAMS_MAX
from gossamer.node.together import publish_columns

NOW = Micros(1000)


def core(disk: dict[str, bytes] | None = None, life: int = 1) -> NodeCore:
    made = NodeCore(
        Peer(1),
        incarnation=life,
        rng=Random(1),
        durable=disk is not None,
        restored=disk if life > 1 else None,
    )
    made.advertise("t", "n INT", NOW)
    return made


def run(made: NodeCore, disk: dict[str, bytes]) -> None:
    for effect in made.wake(NOW):
        if isinstance(effect, Store):
            for record in effect.records:
                if isinstance(record, Keep):
                    disk[record.key] = record.value
            made.stored(effect.token, NOW)


def batch(made: NodeCore, *numbers: int) -> Any:
    return made.local.topic("t").packed.record(
        pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int32())})
    )


def test_what_was_accepted_is_left_out_when_it_comes_again() -> None:
    disk: dict[str, bytes] = {}
    one = core(disk)
    assert len(publish_columns(one, "t", batch(one, 1, 2), NOW, once=("q", (0, 0)))) == 1
    assert publish_columns(one, "t", batch(one, 1, 2), NOW, once=("q", (0, 0))) == []
    assert len(publish_columns(one, "t", batch(one, 3), NOW, once=("q", (0, 1)))) == 1
    assert len(publish_columns(one, "t", batch(one, 1), NOW, once=("other", (0, 0)))) == 1
    run(one, disk)
    again = core(disk, life=2)
    assert again.outbox.unsettled == 4
    assert publish_columns(again, "t", batch(again, 3), NOW, once=("q", (0, 1))) == []
    assert len(publish_columns(again, "t", batch(again, 4), NOW, once=("q", (1, 0)))) == 1
    assert len(publish_columns(again, "t", batch(again, 4), NOW)) == 1


def test_a_number_is_on_disk_with_its_batch_and_not_without() -> None:
    disk: dict[str, bytes] = {}
    one = core(disk)
    one.wake(NOW)
    publish_columns(one, "t", batch(one, 1), NOW, once=("q", (7, 0)))
    [store] = [effect for effect in one.wake(NOW) if isinstance(effect, Store)]
    assert {record.key.partition("/")[0] for record in store.records} == {"out", "once", "trim"}


def test_a_number_that_the_disk_refused_may_come_again() -> None:
    disk: dict[str, bytes] = {}
    one = core(disk)
    publish_columns(one, "t", batch(one, 1), NOW, once=("q", (0, 0)))
    run(one, disk)
    for number in (1, 2):
        publish_columns(one, "t", batch(one, 2), NOW, once=("q", (0, number)))
    tokens = [effect.token for effect in one.wake(NOW) if isinstance(effect, Store)]
    one.unstored(tokens, NOW)
    assert one.outbox.once == {"q": (0, 0, 0)}
    for number in (1, 2):
        assert publish_columns(one, "t", batch(one, 2), NOW, once=("q", (0, number)))
    run(one, disk)
    again = core(disk, life=2)
    assert again.outbox.once == {"q": (0, 2, 0)}
    assert again.outbox.unsettled == 3


@pytest.mark.parametrize("rows", [2_048, 2_049, 4_096, 10_000])
def test_of_any_size(rows: int) -> None:
    one = core({})
    parts = publish_columns(one, "t", batch(one, *range(rows)), NOW, once=("q", (0, 0)))
    assert sum(count for _, _, count in parts) == rows
    assert all(publication.first >= 0 for publication, _, _ in parts), (
        "each is a batch of its own, which is sealed"
    )
    assert publish_columns(one, "t", batch(one, *range(rows)), NOW, once=("q", (0, 0))) == []


def test_a_number_is_stored_with_its_own_batch_whatever_else_is_open() -> None:
    one = core({})
    one.advertise("u", "n INT", NOW)
    one.wake(NOW)
    for number in range(OPEN_MAX - 1000):
        one.publish("u", {"n": number}, NOW)
    publish_columns(one, "t", batch(one, *range(1500)), NOW, once=("q", (0, 0)))
    stores = [effect for effect in one.wake(NOW) if isinstance(effect, Store)]
    assert len(stores) == 2
    for store in stores:
        keys = [record.key.partition("/")[0] for record in store.records]
        topic = next(
            record.key.partition("/")[2]
            for record in store.records
            if record.key.startswith("trim/")
        )
        assert ("once" in keys) == (topic == "t")


def test_streams_are_bounded() -> None:
    one = core()
    for number in range(STREAMS_MAX):
        one.outbox.mark(str(number), (0,))
    with pytest.raises(EventError, match="1024 streams"):
        one.outbox.mark("one more", (0,))
