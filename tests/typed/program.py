"""A user's program as mypy --strict reads it: every public call has the right type.

Nothing runs it; see test_typed.py.

A line that must be refused ends with ``# refused: CODE``.
"""

from __future__ import annotations

from typing import Any, assert_type

import gossamer
from gossamer import blocking


async def main() -> int:
    async with gossamer.Node(
        listen="127.0.0.1:0", join=["127.0.0.1:7400"], data_dir="state", k=4
    ) as node:
        assert_type(node, gossamer.Node)
        assert_type(node.address, str)
        await node.advertise("weather", "country STRING, temp INT")
        receipt = await node.publish("weather", {"country": "CH", "temp": 31})
        assert_type(receipt, gossamer.Receipt)
        assert_type(receipt.done, bool)
        done = await receipt
        assert_type(done, gossamer.Done)
        assert_type(done.matched, int)
        async with node.subscribe(
            "weather", "temp > 30", slow="drop_oldest", barrier=True, route="tree"
        ) as events:
            assert_type(events, gossamer.Subscription)
            async for event in events:
                assert_type(event, gossamer.Event)
                assert_type(event.id, tuple[int, int, int])
        subscription = await node.subscribe("weather")
        assert_type(subscription, gossamer.Subscription)
        assert_type(await anext(subscription), gossamer.Event)
        assert_type(node.view("weather").nodes(), list[gossamer.Interested])
        async for change in node.view().changes():
            assert_type(change, gossamer.Change)
        assert_type(await node.lookup("weather", {"temp": 3}), list[dict[str, Any]])
        assert_type(await node.drain(), int)
        assert_type(node.status(), dict[str, Any])
        await node.publish("weather", 3)  # refused: arg-type
        await node.advertise("weather")  # refused: call-arg
        node.subscribe("weather", tmeout=3)  # refused: call-arg
    gossamer.Node(listne="127.0.0.1:0")  # refused: call-arg
    return done.matched


def synchronous() -> None:
    with blocking.Node(join=["127.0.0.1:7400"], k=4) as node:
        assert_type(node, blocking.Node)
        node.advertise("weather", "country STRING, temp INT")
        assert_type(node.publish("weather", {"temp": 3}), blocking.Receipt)
        assert_type(node.publish("weather", {"temp": 3}).wait(1.0), gossamer.Done)
        assert_type(node.publish_many("weather", [{"temp": 3}]).wait(), list[gossamer.Done])
        assert_type(node.publish_batch("weather", [{"temp": 3}]).wait(), gossamer.BatchDone)
        with node.subscribe("weather", "temp > 30", barrier=True) as events:
            assert_type(events, blocking.Subscription)
            for event in events:
                assert_type(event, gossamer.Event)
            assert_type(events.next(timeout=1.0), gossamer.Event)
        assert_type(node.view("weather"), list[gossamer.Interested])
        assert_type(node.changes().next(1.0), gossamer.Change)
        assert_type(node.lookup("weather"), list[dict[str, Any]])
        node.advertise("weather", schema=3)  # refused: arg-type
        node.subscribe("weather", tmeout=3)  # refused: call-arg
    blocking.Node(listne="127.0.0.1:0")  # refused: call-arg


def filters() -> None:
    schema = gossamer.Schema.parse("country STRING, temp INT")
    assert_type(schema, gossamer.Schema)
    parsed = gossamer.Filter.parse("temp > 30", schema)
    assert_type(parsed, gossamer.Filter)
    assert_type(parsed.text, str)


assert_type(gossamer.run(main()), int)
