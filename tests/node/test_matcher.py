"""Many subscriptions of one node are matched by an index, with the same outcome as one by one."""

from __future__ import annotations

from random import Random

from gossamer.machine import Deliver, Effect, Micros, Peer
from gossamer.node import NodeCore, Route
from gossamer.node.matcher import INDEX_FROM
from gossamer.node.outbox import _encoder
from gossamer.overlay.batch import Batch

NOW = Micros(1000)
DDL = "country STRING, temp INT"


def core() -> NodeCore:
    node = NodeCore(Peer(1), incarnation=1, rng=Random(1))
    node.advertise("weather", DDL, NOW)
    node.wake(NOW)
    return node


def texts(count: int) -> list[str]:
    kinds = (
        "temp = {n}",
        "temp BETWEEN {n} AND {m}",
        "country = 'c{c}' AND temp > {n}",
        "country LIKE 'c{c}%' OR temp = {n}",
        "",
    )
    return [kinds[n % 5].format(n=n % 90, m=n % 90 + 2, c=n % 7) for n in range(count)]


def taken(effects: list[Effect]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for effect in effects:
        if isinstance(effect, Deliver):
            found.setdefault(effect.subscription, []).extend(
                event.sequence for event in effect.events
            )
    return found


ROWS = [(f"c{n % 9}" if n % 5 else None, n % 100 if n % 7 else None) for n in range(60)]


def test_the_index_and_one_by_one_agree_on_rows_and_columns() -> None:
    node = core()
    filters = {node.subscribe("weather", text, NOW): text for text in texts(5 * INDEX_FROM)}
    node.wake(NOW)
    topic = node.local.topic("weather")
    for gone in list(filters)[::3]:
        node.unsubscribe(gone, NOW)
        del filters[gone]
    matches = {number: node.subscriptions[number].filter.matches_row for number in filters}
    first = 1
    packed = topic.packed
    record = packed.from_values([topic.values(row) for row in ROWS])
    for data, rows in (
        (_encoder.encode(ROWS), ROWS),
        (packed.pack(record), ROWS),
        (_encoder.encode(ROWS[:1]), ROWS[:1]),
    ):
        batch = Batch("weather", 9, 1, first, len(rows), 1, 0, 0, data)
        counts = node.local.arrived(Route.FLOOD, batch, NOW)
        assert topic.matchers[Route.FLOOD] is not None
        expected = {
            n: [first + at for at, row in enumerate(rows) if passes(row)]
            for n, passes in matches.items()
        }
        assert taken(node.wake(NOW)) == {n: places for n, places in expected.items() if places}
        assert counts == tuple(sum(passes(row) for passes in matches.values()) for row in rows)
        first += len(rows)
        # It joins the index that is there.
        added = node.subscribe("weather", "temp >= 0", NOW)
        matches[added] = node.subscriptions[added].filter.matches_row
        node.wake(NOW)


def test_the_index_goes_with_the_subscriptions() -> None:
    node = core()
    numbers = [node.subscribe("weather", "temp > 5", NOW) for _ in range(2000)]
    batch = Batch("weather", 9, 1, 1, 1, 1, 0, 0, _encoder.encode([("CH", 9)]))
    assert node.local.arrived(Route.FLOOD, batch, NOW) == (2000,)
    matcher = node.local.topic("weather").matchers[Route.FLOOD]
    assert matcher is not None
    for number in numbers[:1500]:
        node.unsubscribe(number, NOW)
    assert len(matcher.index) == 500
    # The index was laid anew, with the subscriptions that were left.
    assert len(matcher._by_place) < 2000
    batch = Batch("weather", 9, 1, 2, 1, 1, 0, 0, _encoder.encode([("CH", 9)]))
    assert node.local.arrived(Route.FLOOD, batch, NOW) == (500,)
    for number in numbers[1500:]:
        node.unsubscribe(number, NOW)
    assert not node.local.topic("weather").matchers
