"""The systems that `peers.py` measures, each with the fastest settings in which no message is lost.

A rival carries bytes, and the bytes are the same for all rivals (`Load`): one event as msgpack, a
list of 256 events as msgpack, or a record batch of 1,000 rows as Arrow IPC. A subscriber decodes
every message, counts events and sums their `at`. In the fan-out it gets everything and keeps the
eighth that it wants, because no rival looks at values. Gossamer has two functions of its own: its
publisher hands over dicts or record batches, its subscribers state a filter, and every receipt is
checked.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from rivals import (
    AT_START,
    PLACES,
    WARM_UP_PINGS,
    Line,
    _nats_client,
    _zenoh_publisher,
    _zenoh_session,
    decode,
    encode,
    free_port,
)
from rivals import run_loop as run_loop

SCHEMA = "country STRING, city STRING, temp INT, at BIGINT"
# This filter is evaluated for each event, and is always TRUE.
EVERYTHING = "temp > -1000"
LIST_EVENTS = 256
BATCH_ROWS = 1000
SUBSCRIBERS = 8
# The pause before a flood. Without it the first events may be lost (rivals.py).
ZENOH_SETTLE_S = 0.3
REDIS_PIPELINE = 500


class Job(msgspec.Struct, kw_only=True):
    """The orders for a worker process.

    It has the fields of `rivals.Work`, so that its `Line` serves here, too.
    """

    system: str
    # publish or subscribe
    role: str
    # one, lists, fanout, fanlists, arrow, ping
    case: str
    events: int
    timeout_s: float
    # The number of the subscriber.
    number: int = 0
    address: str = ""
    core: int | None = None
    route: str = ""

    @property
    def fans_out(self) -> bool:
        return self.case in ("fanout", "fanlists")

    @property
    def has_lists(self) -> bool:
        return self.case in ("lists", "fanlists")

    @property
    def subscribers(self) -> int:
        return SUBSCRIBERS if self.fans_out else 1


def make_events(count: int) -> Iterator[dict[str, Any]]:
    """Different events, the same for every system.

    `temp` goes through 0 .. 79, so an eighth is a range of ten.
    """
    for number in range(count):
        country, city = PLACES[number & 7]
        yield {"country": country, "city": city, "temp": number % 80, "at": AT_START + number}


def wanted(events: int, number: int | None) -> tuple[int, int]:
    """The number of events that a subscriber wants, and the sum of their `at`.

    If ``number`` is None, it wants all.
    """
    if number is None:
        return events, events * AT_START + events * (events - 1) // 2
    numbers = [
        n
        for at in range(0, events, 80)
        for n in range(at + 10 * number, min(at + 10 * number + 10, events))
    ]
    return len(numbers), len(numbers) * AT_START + sum(numbers)


def record_batches(rows: int) -> list[Any]:
    """The record batches of one flood: a hundred different ones, taken in turn."""
    import pyarrow as pa

    schema = pa.schema(
        [("country", pa.string()), ("city", pa.string()), ("temp", pa.int32()), ("at", pa.int64())]
    )
    events = list(make_events(min(rows, 100 * BATCH_ROWS)))
    made = [
        pa.RecordBatch.from_pylist(events[at : at + BATCH_ROWS], schema)
        for at in range(0, len(events), BATCH_ROWS)
    ]
    return [made[number % len(made)] for number in range(rows // BATCH_ROWS)]


def batches_sum(rows: int) -> int:
    import pyarrow.compute as pc

    return sum(int(pc.sum(batch.column(3)).as_py()) for batch in record_batches(rows))


def warm_arrow() -> tuple[Any, Any]:
    """Load pyarrow and use its functions once, because that takes longer than a flood."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pc.sum(pa.array([1, 2]))
    return pa, pc


class Load:
    """The messages of a case as bytes: how to make them, and how to take them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.count = self.total = self.finished_ns = self.messages = 0
        self.expect = -(
            -job.events
            // {"arrow": BATCH_ROWS, "lists": LIST_EVENTS, "fanlists": LIST_EVENTS}.get(job.case, 1)
        )
        self.take: Callable[[Any], None] = getattr(self, f"_take_{job.case}")
        self._arrow = warm_arrow() if job.case == "arrow" else (None, None)
        self._schema = record_batches(BATCH_ROWS)[0].schema if job.case == "arrow" else None
        self._batches = (
            record_batches(job.events) if job.case == "arrow" and job.role == "publish" else []
        )

    def messages_out(self) -> Iterable[Any]:
        events = make_events(self.job.events)
        if self.job.case == "arrow":
            return (batch.serialize().to_pybytes() for batch in self._batches)
        if self.job.has_lists:
            lists = iter(lambda: list(islice(events, LIST_EVENTS)), [])  # type: ignore[arg-type]
            return (encode(some) for some in lists)
        return map(encode, events)

    def _done(self) -> None:
        self.messages += 1
        if self.messages == self.expect:
            self.finished_ns = time.monotonic_ns()

    def _take_one(self, data: Any) -> None:
        self.total += decode(data)["at"]
        self.count += 1
        self._done()

    def _take_lists(self, data: Any) -> None:
        some: Any = decode(data)
        self.total += sum([event["at"] for event in some])
        self.count += len(some)
        self._done()

    def _take_fanout(self, data: Any) -> None:
        event = decode(data)
        if event["temp"] // 10 == self.job.number:
            self.total += event["at"]
            self.count += 1
        self._done()

    def _take_fanlists(self, data: Any) -> None:
        some: Any = decode(data)
        mine = [event["at"] for event in some if event["temp"] // 10 == self.job.number]
        self.total += sum(mine)
        self.count += len(mine)
        self._done()

    def _take_arrow(self, data: Any) -> None:
        pa, pc = self._arrow
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
        self.total += pc.sum(batch.column(3)).as_py()
        self.count += batch.num_rows
        self._done()


def said_received(line: Line, load: Load) -> None:
    line.received(load.count, load.total, load.finished_ns or time.monotonic_ns())


# -- gossamer


def publish_gossamer(job: Job, line: Line) -> None:
    run_loop(_publish_gossamer(job, line))


def subscribe_gossamer(job: Job, line: Line) -> None:
    run_loop(_subscribe_gossamer(job, line))


def filter_of(job: Job) -> str:
    return (
        f"temp BETWEEN {10 * job.number} AND {10 * job.number + 9}" if job.fans_out else EVERYTHING
    )


async def _publish_gossamer(job: Job, line: Line) -> None:
    import gossamer

    async with gossamer.Node(listen="127.0.0.1:0") as node:
        await node.advertise("wire", SCHEMA)
        line.say("address", address=node.address)
        if job.case == "ping":
            await _ping_gossamer(node, job, line)
            return
        batches = record_batches(job.events) if job.case == "arrow" else []
        # The libraries for columns are loaded first, as for the other systems and at the
        # subscribers.
        if job.case == "arrow":
            warm_arrow()
            import gossamer.filters.mask
        await line.hear_async("go")
        events, receipts = make_events(job.events), []
        publish, batch_of = node.publish, node.publish_batch
        line.start()
        if job.case == "arrow":
            receipts = [await batch_of("wire", batch) for batch in batches]
        elif job.has_lists:
            receipts = [
                await batch_of("wire", some)
                for some in iter(lambda: list(islice(events, LIST_EVENTS)), [])
            ]
        else:
            receipts = [await publish("wire", event) for event in events]
        # Every receipt is complete then.
        await node.drain(job.timeout_s)
        line.flooded()
        if job.case == "arrow" or job.has_lists:
            took = sum([sum((await receipt).matched) for receipt in receipts])
        else:
            took = sum(receipt.matched for receipt in receipts)
        if took != job.events:
            raise SystemExit(f"the receipts say that {took} events were taken, not {job.events}")
        await line.hear_async("end")


async def _ping_gossamer(node: Any, job: Job, line: Line) -> None:
    async with node.subscribe("pong", EVERYTHING, timeout=job.timeout_s, **_route(job)) as pongs:
        line.say("ready")
        await line.hear_async("go")
        line.pin()
        times_ns = []
        async with asyncio.timeout(job.timeout_s):
            for event in make_events(WARM_UP_PINGS + job.events):
                before_ns = time.monotonic_ns()
                await node.publish("wire", event)
                (await anext(pongs)).values  # noqa: B018 (decoded to a dict here if not before)
                times_ns.append(time.monotonic_ns() - before_ns)
        line.pinged(times_ns)
        await line.hear_async("end")


def _route(job: Job) -> dict[str, str]:
    return {"route": job.route} if job.route else {}


async def _subscribe_gossamer(job: Job, line: Line) -> None:
    import gossamer

    async with gossamer.Node(listen="127.0.0.1:0", join=[job.address]) as node:
        if job.case == "ping":
            await node.advertise("pong", SCHEMA)
        _, pc = warm_arrow() if job.case == "arrow" else (None, None)
        if job.case == "arrow":
            import gossamer.filters.mask
        async with node.subscribe(
            "wire", filter_of(job), timeout=job.timeout_s, **_route(job)
        ) as events:
            line.say("ready")
            line.start()
            if job.case == "ping":
                await line.hear_async("go")
                line.pin()
                line.say("echoing")
                echoes = 0
                async for event in events:
                    await node.publish("pong", event.values)
                    echoes += 1
                    if echoes == WARM_UP_PINGS + job.events:
                        break
                await line.hear_async("end")
                return
            count = total = 0
            want, _ = wanted(job.events, job.number if job.fans_out else None)
            try:
                async with asyncio.timeout(job.timeout_s):
                    if pc is not None:
                        async for batch in events.batches():
                            total += pc.sum(batch.column(3)).as_py()
                            count += batch.num_rows
                            if count == want:
                                break
                    elif job.has_lists:
                        async for some in events.lists():
                            total += sum([event.values["at"] for event in some])
                            count += len(some)
                            if count == want:
                                break
                    else:
                        async for event in events:
                            total += event.values["at"]
                            count += 1
                            if count == want:
                                break
            except TimeoutError:
                # The missing events are reported as a loss.
                pass
            line.received(count, total, time.monotonic_ns())
            await line.hear_async("end")


# -- pyzmq: blocking PUSH/PULL, PUB/SUB in the fan-out. Without a high-water mark nothing is
# dropped, and it is the fastest.


def _zmq(kind: str, job: Job) -> Any:
    import zmq

    sock: Any = zmq.Context.instance().socket(getattr(zmq, kind))
    sock.sndhwm = sock.rcvhwm = 0
    sock.sndtimeo = sock.rcvtimeo = int(job.timeout_s * 1000)
    sock.linger = 0
    if kind == "SUB":
        sock.setsockopt(zmq.SUBSCRIBE, b"")
    return sock


def publish_pyzmq(job: Job, line: Line) -> None:
    out, back = _zmq("XPUB" if job.fans_out else "PUSH", job), _zmq("PULL", job)
    ports = [sock.bind_to_random_port("tcp://127.0.0.1") for sock in (out, back)]
    line.say("address", address=" ".join(f"tcp://127.0.0.1:{port}" for port in ports))
    if job.fans_out:
        for _ in range(job.subscribers):
            # Each subscriber says hello when it has its socket.
            back.recv()
        # XPUB passes the first subscription on. The later ones are the same and known by then.
        out.recv()
        time.sleep(0.2)
    else:
        # This returns once the subscriber is connected.
        out.send(b"")
    if job.case == "ping":
        line.say("ready")
    load = Load(job) if job.case != "ping" else None
    line.hear("go")
    if load is None:
        line.pin()
        times_ns = []
        for event in make_events(WARM_UP_PINGS + job.events):
            before_ns = time.monotonic_ns()
            out.send(encode(event))
            decode(back.recv())
            times_ns.append(time.monotonic_ns() - before_ns)
        line.pinged(times_ns)
    else:
        messages = load.messages_out()
        line.start()
        send = out.send
        for data in messages:
            send(data)
        line.flooded()
    line.hear("end")


def subscribe_pyzmq(job: Job, line: Line) -> None:
    import zmq

    into, back = _zmq("SUB" if job.fans_out else "PULL", job), _zmq("PUSH", job)
    for sock, address in zip((into, back), job.address.split(), strict=True):
        sock.connect(address)
    load = Load(job) if job.case != "ping" else None
    if job.fans_out:
        back.send(b"")
    else:
        into.recv()
    line.say("ready")
    line.start()
    if load is None:
        line.hear("go")
        line.pin()
        line.say("echoing")
        for _ in range(WARM_UP_PINGS + job.events):
            back.send(encode(decode(into.recv())))
        line.hear("end")
        return
    recv = into.recv
    try:
        # This loop is written in line, as a user would write it.
        if job.case == "one":
            count = total = 0
            while count < job.events:
                total += decode(recv())["at"]
                count += 1
            load.count, load.total, load.finished_ns = count, total, time.monotonic_ns()
        else:
            take = load.take
            while not load.finished_ns:
                take(recv())
    except zmq.Again:
        # The missing events are reported as a loss.
        pass
    said_received(line, load)
    line.hear("end")


# -- eclipse-zenoh: peer to peer, callbacks in its Python thread, congestion control that waits


def publish_zenoh(job: Job, line: Line) -> None:
    address = f"tcp/127.0.0.1:{free_port()}"
    with _zenoh_session({"listen": [address]}) as session:
        back = threading.Semaphore(0)

        def pong(sample: Any) -> None:
            decode(sample.payload.to_bytes())
            back.release()

        session.declare_subscriber("pong", pong)
        wire = _zenoh_publisher(session, "wire", express=job.case == "ping")
        line.say("address", address=address)
        if job.case == "ping":
            line.say("ready")
        load = Load(job) if job.case != "ping" else None
        line.hear("go")
        give_up = time.monotonic() + job.timeout_s
        while not wire.matching_status:
            if time.monotonic() > give_up:
                raise SystemExit("the zenoh subscription did not become known")
            time.sleep(0.005)
        time.sleep(ZENOH_SETTLE_S)
        if load is None:
            line.pin()
            times_ns = []
            for event in make_events(WARM_UP_PINGS + job.events):
                before_ns = time.monotonic_ns()
                wire.put(encode(event))
                if not back.acquire(timeout=job.timeout_s):
                    raise SystemExit("a ping was lost")
                times_ns.append(time.monotonic_ns() - before_ns)
            line.pinged(times_ns)
        else:
            messages, put = load.messages_out(), wire.put
            line.start()
            for data in messages:
                put(data)
            line.flooded()
        line.hear("end")


def subscribe_zenoh(job: Job, line: Line) -> None:
    with _zenoh_session({"connect": [job.address], "listen": []}) as session:
        if job.case == "ping":
            pong = _zenoh_publisher(session, "pong", express=True)
            session.declare_subscriber(
                "wire", lambda sample: pong.put(encode(decode(sample.payload.to_bytes())))
            )
            line.say("ready")
            line.hear("go")
            line.pin()
            line.say("echoing")
            line.hear("end")
            return
        load, done = Load(job), threading.Event()

        def take(sample: Any) -> None:
            load.take(sample.payload.to_bytes())
            if load.finished_ns:
                done.set()

        session.declare_subscriber("wire", take)
        line.say("ready")
        line.start()
        done.wait(job.timeout_s)
        said_received(line, load)
        line.hear("end")


# -- nats-py: core NATS. The pending limits of client and server are lifted, because beyond them
# messages are dropped.


def publish_nats(job: Job, line: Line) -> None:
    run_loop(_publish_nats(job, line))


def subscribe_nats(job: Job, line: Line) -> None:
    run_loop(_subscribe_nats(job, line))


async def _publish_nats(job: Job, line: Line) -> None:
    client = await _nats_client(job)  # type: ignore[arg-type]
    pongs = (await client.subscribe("pong")).messages
    await client.flush()
    line.say("address", address=job.address)
    if job.case == "ping":
        line.say("ready")
    load = Load(job) if job.case != "ping" else None
    await line.hear_async("go")
    if load is None:
        line.pin()
        times_ns = []
        for event in make_events(WARM_UP_PINGS + job.events):
            before_ns = time.monotonic_ns()
            await client.publish("wire", encode(event))
            decode((await anext(pongs)).data)
            times_ns.append(time.monotonic_ns() - before_ns)
        line.pinged(times_ns)
    else:
        messages = load.messages_out()
        line.start()
        for data in messages:
            await client.publish("wire", data)
        await client.flush(timeout=int(job.timeout_s))
        line.flooded()
    await line.hear_async("end")
    await client.close()


async def _subscribe_nats(job: Job, line: Line) -> None:
    client = await _nats_client(job)  # type: ignore[arg-type]
    if job.case == "ping":
        pings = (await client.subscribe("wire")).messages
        await client.flush()
        line.say("ready")
        await line.hear_async("go")
        line.pin()
        line.say("echoing")
        for _ in range(WARM_UP_PINGS + job.events):
            await client.publish("pong", encode(decode((await anext(pings)).data)))
        await line.hear_async("end")
        return
    load, done = Load(job), asyncio.Event()

    async def take(message: Any) -> None:
        load.take(message.data)
        if load.finished_ns:
            done.set()

    await client.subscribe("wire", cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
    await client.flush()
    line.say("ready")
    line.start()
    try:
        async with asyncio.timeout(job.timeout_s):
            await done.wait()
    except TimeoutError:
        # The missing events are reported as a loss.
        pass
    said_received(line, load)
    await line.hear_async("end")
    await client.close()


# -- mosquitto: quality of service 0, all its queues unlimited (peers.py). gmqtt runs on asyncio,
# and paho with its own thread.


def publish_gmqtt(job: Job, line: Line) -> None:
    run_loop(_gmqtt(job, line, _gmqtt_publish))


def subscribe_gmqtt(job: Job, line: Line) -> None:
    run_loop(_gmqtt(job, line, _gmqtt_subscribe))


async def _gmqtt(job: Job, line: Line, main: Any) -> None:
    from gmqtt import Client

    client = Client(f"{job.role}-{job.number}-{os.getpid()}")
    subscribed = asyncio.Event()
    client.on_subscribe = lambda *_: subscribed.set()
    host, port = job.address.split(":")
    await client.connect(host, int(port))
    await main(job, line, client, subscribed)
    await client.disconnect()


async def _gmqtt_publish(job: Job, line: Line, client: Any, subscribed: asyncio.Event) -> None:
    back: asyncio.Queue[bytes] = asyncio.Queue()

    def on_message(_client: Any, _topic: str, payload: bytes, _qos: int, _properties: Any) -> int:
        back.put_nowait(payload)
        return 0

    client.on_message = on_message
    client.subscribe("pong", qos=0)
    await asyncio.wait_for(subscribed.wait(), job.timeout_s)
    line.say("address", address=job.address)
    if job.case == "ping":
        line.say("ready")
    load = Load(job) if job.case != "ping" else None
    await line.hear_async("go")
    if load is None:
        line.pin()
        times_ns = []
        for event in make_events(WARM_UP_PINGS + job.events):
            before_ns = time.monotonic_ns()
            client.publish("wire", encode(event), qos=0)
            decode(await back.get())
            times_ns.append(time.monotonic_ns() - before_ns)
        line.pinged(times_ns)
    else:
        line.start()
        for number, data in enumerate(load.messages_out()):
            client.publish("wire", data, qos=0)
            if number & 255 == 255:
                # gmqtt writes to the transport and never waits, so this lets the loop send.
                await asyncio.sleep(0)
        line.flooded()
    await line.hear_async("end")


async def _gmqtt_subscribe(job: Job, line: Line, client: Any, subscribed: asyncio.Event) -> None:
    done = asyncio.Event()
    load = Load(job) if job.case != "ping" else None

    def on_message(_client: Any, _topic: str, payload: bytes, _qos: int, _properties: Any) -> int:
        if load is None:
            client.publish("pong", encode(decode(payload)), qos=0)
        else:
            load.take(payload)
            if load.finished_ns:
                done.set()
        return 0

    client.on_message = on_message
    client.subscribe("wire", qos=0)
    await asyncio.wait_for(subscribed.wait(), job.timeout_s)
    line.say("ready")
    line.start()
    if load is None:
        await line.hear_async("go")
        line.pin()
        line.say("echoing")
    else:
        try:
            async with asyncio.timeout(job.timeout_s):
                await done.wait()
        except TimeoutError:
            # The missing events are reported as a loss.
            pass
        said_received(line, load)
    await line.hear_async("end")


def _paho(job: Job, on_message: Any, topic: str) -> Any:
    import paho.mqtt.client as mqtt

    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2, client_id=f"{job.role}-{job.number}-{os.getpid()}"
    )
    client.max_queued_messages_set(0)
    subscribed = threading.Event()
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = on_message
    host, port = job.address.split(":")
    client.connect(host, int(port))
    client.loop_start()
    client.subscribe(topic, qos=0)
    if not subscribed.wait(job.timeout_s):
        raise SystemExit("mosquitto did not confirm the subscription")
    return client


def publish_paho(job: Job, line: Line) -> None:
    back = threading.Semaphore(0)

    def pong(_client: Any, _data: Any, message: Any) -> None:
        decode(message.payload)
        back.release()

    client = _paho(job, pong, "pong")
    line.say("address", address=job.address)
    if job.case == "ping":
        line.say("ready")
    load = Load(job) if job.case != "ping" else None
    line.hear("go")
    if load is None:
        line.pin()
        times_ns = []
        for event in make_events(WARM_UP_PINGS + job.events):
            before_ns = time.monotonic_ns()
            client.publish("wire", encode(event), qos=0)
            if not back.acquire(timeout=job.timeout_s):
                raise SystemExit("a ping was lost")
            times_ns.append(time.monotonic_ns() - before_ns)
        line.pinged(times_ns)
    else:
        line.start()
        for data in load.messages_out():
            client.publish("wire", data, qos=0)
        line.flooded()
    line.hear("end")


def subscribe_paho(job: Job, line: Line) -> None:
    done = threading.Event()
    load = Load(job) if job.case != "ping" else None

    def take(client: Any, _data: Any, message: Any) -> None:
        if load is None:
            client.publish("pong", encode(decode(message.payload)), qos=0)
        else:
            load.take(message.payload)
            if load.finished_ns:
                done.set()

    _client = _paho(job, take, "wire")
    line.say("ready")
    line.start()
    if load is None:
        line.hear("go")
        line.pin()
        line.say("echoing")
    else:
        done.wait(job.timeout_s)
        said_received(line, load)
    line.hear("end")


# -- redis-py with hiredis: PUBLISH in pipelines of 500 without a transaction. One call for each
# event is a tenth as fast.


def _redis(job: Job) -> Any:
    import redis

    host, port = job.address.split(":")
    return redis.Redis(host, int(port), socket_timeout=job.timeout_s)


def publish_redis(job: Job, line: Line) -> None:
    client = _redis(job)
    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe("pong")
    # This message is the confirmation.
    pubsub.get_message(timeout=job.timeout_s)
    line.say("address", address=job.address)
    if job.case == "ping":
        line.say("ready")
    load = Load(job) if job.case != "ping" else None
    line.hear("go")
    if load is None:
        line.pin()
        times_ns = []
        messages = (message for message in pubsub.listen() if message["type"] == "message")
        for event in make_events(WARM_UP_PINGS + job.events):
            before_ns = time.monotonic_ns()
            client.publish("wire", encode(event))
            decode(next(messages)["data"])
            times_ns.append(time.monotonic_ns() - before_ns)
        line.pinged(times_ns)
    else:
        pipeline = client.pipeline(transaction=False)
        line.start()
        every = REDIS_PIPELINE if job.case in ("one", "fanout") else 4
        for number, data in enumerate(load.messages_out(), 1):
            pipeline.publish("wire", data)
            if number % every == 0:
                pipeline.execute()
        pipeline.execute()
        line.flooded()
    line.hear("end")


def subscribe_redis(job: Job, line: Line) -> None:
    import redis

    client = _redis(job)
    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe("wire")
    pubsub.get_message(timeout=job.timeout_s)
    load = Load(job) if job.case != "ping" else None
    line.say("ready")
    line.start()
    messages = (message["data"] for message in pubsub.listen() if message["type"] == "message")
    if load is None:
        line.hear("go")
        line.pin()
        line.say("echoing")
        for _ in range(WARM_UP_PINGS + job.events):
            client.publish("pong", encode(decode(next(messages))))
        line.hear("end")
        return
    try:
        for data in messages:
            load.take(data)
            if load.finished_ns:
                break
    except redis.TimeoutError:
        # The missing events are reported as a loss.
        pass
    said_received(line, load)
    line.hear("end")


# -- pynng: one pair of sockets for each subscriber, because its publish/subscribe drops. So the
# fan-out sends each event eight times.


def publish_pynng(job: Job, line: Line) -> None:
    import pynng

    socks = []
    for _ in range(job.subscribers):
        sock = pynng.Pair0(
            recv_timeout=int(job.timeout_s * 1000),
            send_timeout=int(job.timeout_s * 1000),
            send_buffer_size=8192,
        )
        address = f"tcp://127.0.0.1:{free_port()}"
        sock.listen(address)
        socks.append((sock, address))
    line.say("address", address=" ".join(address for _, address in socks))
    if job.case == "ping":
        line.say("ready")
    load = Load(job) if job.case != "ping" else None
    line.hear("go")
    sends = [sock.send for sock, _ in socks]
    if load is None:
        line.pin()
        times_ns = []
        ((sock, _),) = socks
        for event in make_events(WARM_UP_PINGS + job.events):
            before_ns = time.monotonic_ns()
            sock.send(encode(event))
            decode(sock.recv())
            times_ns.append(time.monotonic_ns() - before_ns)
        line.pinged(times_ns)
    else:
        line.start()
        for data in load.messages_out():
            for send in sends:
                send(data)
        line.flooded()
    line.hear("end")


def subscribe_pynng(job: Job, line: Line) -> None:
    import pynng

    sock = pynng.Pair0(
        recv_timeout=int(job.timeout_s * 1000),
        send_timeout=int(job.timeout_s * 1000),
        recv_buffer_size=8192,
    )
    sock.dial(job.address.split()[job.number], block=True)
    load = Load(job) if job.case != "ping" else None
    line.say("ready")
    line.start()
    if load is None:
        line.hear("go")
        line.pin()
        line.say("echoing")
        for _ in range(WARM_UP_PINGS + job.events):
            sock.send(encode(decode(sock.recv())))
        line.hear("end")
        return
    try:
        take, recv = load.take, sock.recv
        while not load.finished_ns:
            take(recv())
    except pynng.Timeout:
        # The missing events are reported as a loss.
        pass
    said_received(line, load)
    line.hear("end")


def jsonable(job: Job) -> str:
    return json.dumps(msgspec.to_builtins(job))
