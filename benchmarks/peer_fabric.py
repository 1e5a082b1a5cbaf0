"""The cases of `peers.py` that only gossamer has: many hops, and very many subscriptions in one
node.

*hops*: 30 nodes run in six processes on loopback, and the first node publishes. By each route (skip
list, tree) the other 29 subscribe, each to a quarter of the events by a range of values. First 300
events come one by one, 10 ms apart; they give the latency from publish to hand-over, and the hops
as the fabric counts them. Then events come without a pause for about two seconds; they give the
events a second until the last receipt, the processor time of all six processes, and the messages
that all nodes received, heartbeats and reports included.

*idle*: one node gets a million subscriptions that no event matches, `city = '...' AND temp BETWEEN
...`, and one that takes every event. A publisher in another process floods it before and after.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec

from peer_systems import EVERYTHING, SCHEMA, make_events, run_loop
from rivals import Line, limit_lifetime

PROCESSES = 6
PACED, PACE_S = 300, 0.01
IDLE_EVENTS = 100_000
IDLE_REPEATS = 3
ROUTES = ("skiplist", "tree")


class Part(msgspec.Struct, kw_only=True):
    """The orders for one process of the fabric."""

    # publish or take, hold or flood
    role: str
    nodes: int = 0
    # The number of its first node.
    first: int = 0
    join: str = ""
    events: int = 0
    timeout_s: float = 60.0
    # `Line` needs this field.
    core: int | None = None


def run_worker(kind: str, text: str) -> None:
    part = msgspec.json.decode(text, type=Part)
    limit_lifetime(part)  # type: ignore[arg-type]
    line = Line(part)  # type: ignore[arg-type]
    main = {"hops": _hops, "idle": _idle}[kind]
    run_loop(main(part, line))


def text_of(part: Part) -> str:
    return msgspec.json.encode(part).decode()


# -- many hops


def filter_of(number: int) -> str:
    low = number * 7 % 60
    return f"temp BETWEEN {low} AND {low + 19}"


def wants(number: int, temp: int) -> bool:
    low = number * 7 % 60
    return low <= temp <= low + 19


class _Taker:
    """One node's subscriptions by each route, and their hand-overs."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.counts = dict.fromkeys(ROUTES, 0)
        self.latencies_us: dict[str, list[float]] = {route: [] for route in ROUTES}
        self.hops: dict[str, list[int]] = {route: [] for route in ROUTES}
        self.is_paced = True
        self._routes: dict[int, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        noted = node._driver.noted

        def note(record: Any) -> None:
            noted(record)
            if type(record).__name__ == "Delivered" and record.subscription in self._routes:
                self.hops[self._routes[record.subscription]].append(record.hops)

        node._driver.noted = note

    async def subscribe(self, number: int, timeout_s: float) -> None:
        for route in ROUTES:
            events = await self.node.subscribe(
                f"hop-{route}", filter_of(number), route=route, timeout=timeout_s
            )
            self._routes[events.number] = route
            self._tasks.append(asyncio.create_task(self._take(route, events)))

    async def _take(self, route: str, events: Any) -> None:
        async for event in events:
            if self.is_paced:
                self.latencies_us[route].append((time.monotonic_ns() - event.values["at"]) / 1000)
            self.counts[route] += 1

    def flood(self) -> None:
        """From here on the hand-overs are only counted, so the fabric need not note each of
        them.
        """
        self.is_paced = False
        self.node._core.local._tracing = self.node._core._tracing = False


async def _hops(part: Part, line: Line) -> None:
    import gossamer

    async with contextlib.AsyncExitStack() as stack:
        nodes: list[Any] = []
        for _ in range(part.nodes):
            join = [part.join] if part.join else [nodes[0].address] if nodes else []
            # The notes have the hops.
            config = gossamer.NodeConfig(trace=True)
            nodes.append(
                await stack.enter_async_context(
                    gossamer.Node(join=join, config=config, join_timeout=part.timeout_s)
                )
            )
        publisher = nodes[0] if part.role == "publish" else None
        if publisher is not None:
            for route in ROUTES:
                await publisher.advertise(f"hop-{route}", SCHEMA)
        line.say("address", address=nodes[0].address)
        await line.hear_async("subscribe")
        takers = [_Taker(node) for node in nodes if node is not publisher]
        skipped = part.nodes - len(takers)
        await asyncio.gather(
            *(
                one.subscribe(part.first + skipped + place, part.timeout_s)
                for place, one in enumerate(takers)
            )
        )
        line.say("ready")
        await line.hear_async("paced")
        if publisher is not None:
            for route in ROUTES:
                await _publish_paced(publisher, route)
            line.say("published")
        await line.hear_async("report")
        latencies = {
            route: [us for one in takers for us in one.latencies_us[route]] for route in ROUTES
        }
        line.say(
            "paced",
            latencies_us=latencies,
            hops={r: [h for one in takers for h in one.hops[r]] for r in ROUTES},
        )
        for one in takers:
            one.flood()
        for route in ROUTES:
            await line.hear_async(f"flood {route}")
            before = [one.counts[route] for one in takers]
            cpu_ns, messages = (
                time.process_time_ns(),
                sum(n._driver.counters["messages_in"] for n in nodes),
            )
            line.say("flooding")
            if publisher is not None:
                await line.hear_async("go")
                line.say("flooded", **await _flood(publisher, route, part.events))
            await line.hear_async("report")
            counts = [one.counts[route] - b for one, b in zip(takers, before, strict=True)]
            line.say(
                "counted", counts=counts, cpu_ns=time.process_time_ns() - cpu_ns,
                messages=sum(n._driver.counters["messages_in"] for n in nodes) - messages,
            )  # fmt: skip
        await line.hear_async("end")


async def _publish_paced(publisher: Any, route: str) -> None:
    receipts = []
    for event in make_events(PACED):
        receipts.append(
            await publisher.publish(f"hop-{route}", {**event, "at": time.monotonic_ns()})
        )
        await asyncio.sleep(PACE_S)
    for receipt in receipts:
        await receipt


async def _flood(publisher: Any, route: str, events: int) -> dict[str, Any]:
    """Publish as fast as receipts allow, until about two seconds are over or all events are sent,
    in whole runs through the values.
    """
    started, receipts = time.monotonic(), []
    made = make_events(events)
    while len(receipts) < events and time.monotonic() - started < 2.0:
        for _ in range(80):
            receipts.append(await publisher.publish(f"hop-{route}", next(made)))
    matched = 0
    for receipt in receipts:
        matched += (await receipt).matched
    return {"events": len(receipts), "seconds": time.monotonic() - started, "matched": matched}


async def measure_hops(worker: Any, args: Any) -> dict[str, Any]:
    """Run the fabric; `worker` is the harness's `Worker`."""
    each = -(-args.nodes // PROCESSES)
    async with contextlib.AsyncExitStack() as stack:
        workers: list[Any] = []
        join, first = "", 0
        while first < args.nodes:
            part = Part(role="take" if workers else "publish", nodes=min(each, args.nodes - first),
                first=first, join=join,
                        events=80_000, timeout_s=args.timeout)  # fmt: skip
            one = await stack.enter_async_context(
                worker.start(f"hops {first}", "hops", text_of(part), args.timeout)
            )
            join = join or (await one.expect("address"))["address"]
            if workers:
                await one.expect("address")
            workers.append(one)
            first += part.nodes
        for one in workers:
            one.tell("subscribe")
        for one in workers:
            await one.expect("ready")
        for one in workers:
            one.tell("paced")
        await workers[0].expect("published")
        for one in workers:
            one.tell("report")
        paced = [await one.expect("paced") for one in workers]
        return {
            "nodes": args.nodes, "processes": len(workers), "paced_events": PACED,
            **{route: await _flooded(workers, route, paced, args.nodes) for route in ROUTES},
        }  # fmt: skip


async def _flooded(
    workers: list[Any], route: str, paced: list[dict[str, Any]], nodes: int
) -> dict[str, Any]:
    from wire import SystemFailedError

    for one in workers:
        one.tell(f"flood {route}")
    for one in workers:
        await one.expect("flooding")
    workers[0].tell("go")
    flooded = await workers[0].expect("flooded")
    for one in workers:
        one.tell("report")
    said = [await one.expect("counted") for one in workers]
    if route == ROUTES[-1]:
        for one in workers:
            one.tell("end")
    counts = [count for one in said for count in one["counts"]]
    runs = flooded["events"] // 80
    expected = [runs * sum(wants(number, temp) for temp in range(80)) for number in range(1, nodes)]
    latencies = sorted(us for one in paced for us in one["latencies_us"][route])
    hops = [count for one in paced for count in one["hops"][route]]
    due = sum(wants(number, n % 80) for number in range(1, nodes) for n in range(PACED))
    if counts != expected or flooded["matched"] != sum(expected) or len(latencies) != due:
        raise SystemFailedError(
            f"{route}: {sum(counts):,} of {sum(expected):,} delivered, receipts say "
            f"{flooded['matched']:,}; "
            f"{len(latencies):,} of {due:,} in the paced part"
        )
    messages, cpu_us = (
        sum(one["messages"] for one in said),
        sum(one["cpu_ns"] for one in said) / 1000,
    )
    mean, p50 = statistics.mean(hops), latencies[len(latencies) // 2]
    return {
        "events_per_s": flooded["events"] / flooded["seconds"],
        "deliveries_per_s": sum(counts) / flooded["seconds"],
        "events": flooded["events"],
        "hops_mean": mean,
        "hops_max": max(hops),
        "p50_ms": p50 / 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] / 1000,
        "latency_per_hop_us": p50 / mean,
        "messages_per_event": messages / flooded["events"],
        "cpu_us_per_message": cpu_us / messages,
        "cpu_us_per_delivery_and_hop": cpu_us / (sum(counts) * mean),
    }


# -- very many subscriptions


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _idle(part: Part, line: Line) -> None:
    import gossamer

    if part.role == "flood":
        async with gossamer.Node(listen="127.0.0.1:0") as node:
            await node.advertise("idle", SCHEMA)
            line.say("address", address=node.address)
            while True:
                await line.hear_async("flood")
                started = time.monotonic()
                for event in make_events(part.events):
                    receipt = await node.publish("idle", event)
                await receipt
                left = await node.drain(part.timeout_s)
                line.say("flooded", seconds=time.monotonic() - started, left=left)
    # The default is a million, and there is one more subscription.
    room = gossamer.NodeConfig(subscriptions=part.events + 1)
    async with (
        gossamer.Node(join=[part.join], config=room) as node,
        node.subscribe("idle", EVERYTHING, timeout=part.timeout_s) as events,
    ):
        count = 0

        async def take() -> None:
            nonlocal count
            async for _ in events:
                count += 1

        task = asyncio.create_task(take())
        line.say("ready")
        await line.hear_async("add")
        before, started = resident_bytes(), time.monotonic()
        filters = (
            f"city = 'city {n}' AND temp BETWEEN {n % 50} AND {n % 50 + 20}"
            for n in range(part.events)
        )
        many = await node.subscribe_many("idle", filters, timeout=part.timeout_s)
        line.say(
            "added",
            seconds=time.monotonic() - started,
            bytes=resident_bytes() - before,
            subscriptions=len(many),
        )
        await line.hear_async("count")
        async with asyncio.timeout(part.timeout_s):
            # Every receipt is complete, but the consumer still takes the last events.
            while events.backlog:
                await asyncio.sleep(0.01)
        line.say(
            "counted",
            count=count,
            taken=sum(one.backlog for one in many),
            bytes=resident_bytes() - before,
        )
        task.cancel()
        await line.hear_async("end")
        # The process does not say a million polite goodbyes.
        os._exit(0)


async def measure_idle(worker: Any, args: Any) -> dict[str, Any]:
    from wire import SystemFailedError

    # The texts are parsed one by one.
    timeout_s = max(args.timeout, args.subscriptions / 500)
    flood = Part(role="flood", events=IDLE_EVENTS, timeout_s=timeout_s)
    async with worker.start("idle flood", "idle", text_of(flood), timeout_s) as publisher:
        address = (await publisher.expect("address"))["address"]
        hold = Part(role="hold", events=args.subscriptions, join=address, timeout_s=timeout_s)
        async with worker.start("idle hold", "idle", text_of(hold), timeout_s) as holder:
            await holder.expect("ready")

            async def rate(times: int) -> float:
                rates = []
                for _ in range(times):
                    publisher.tell("flood")
                    said = await publisher.expect("flooded")
                    if said["left"]:
                        raise SystemFailedError(f"{said['left']} events without a receipt")
                    rates.append(IDLE_EVENTS / said["seconds"])
                return statistics.median(rates)

            await rate(1)
            before = await rate(IDLE_REPEATS)
            holder.tell("add")
            added = await holder.expect("added")
            # The first batch lays out the index.
            await rate(1)
            after = await rate(IDLE_REPEATS)
            holder.tell("count")
            counted = await holder.expect("counted")
            if counted["count"] != IDLE_EVENTS * 2 * (IDLE_REPEATS + 1) or counted["taken"]:
                raise SystemFailedError(
                    f"the subscription beside them got {counted['count']:,} events"
                )
            holder.tell("end")
            return {
                "subscriptions": added["subscriptions"],
                "seconds_to_subscribe": added["seconds"],
                "bytes_each": counted["bytes"] / added["subscriptions"],
                "events_per_s_before": before,
                "events_per_s_with_them": after,
                "ratio": after / before,
            }
