"""The work that every system under `wire.py` does, and the three rivals that do it.

The work has two phases, both between one publisher process and one subscriber process on loopback:

    flood   The publisher makes `Work.events` dicts of four attributes, one at a time, and publishes
            each through the system's per-event call. The subscriber decodes each to a dict, counts
            it, and sums one of its fields.
    ping    The publisher sends one event. The subscriber decodes it, encodes it again and sends it
            back. The publisher decodes it and notes the time. This is done `Work.pings` times,
            after `WARM_UP_PINGS` that do not count.

A system is two functions, `publish(work, line)` and `subscribe(work, line)`. Each runs in a process
of its own and talks to the harness over its `Line` (JSON lines on stdin and stdout) in this fixed
conversation:

    publisher                         subscriber (knows the publisher's address)
    -> address                        -> ready      (from here on nothing published is lost)
    <- flood   -> flooded             -> received
    <- ping    -> pinged              <- echo       -> echoing      -> echoed

The settings are the fastest that we found in which nothing is lost. Each function states them and
the reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec

WARM_UP_PINGS = 200
# Microseconds. The value is wide enough for `at` to take its full eight bytes.
AT_START = 1_700_000_000_000_000
PLACES = [
    ("Bosnia and Herzegovina", "Banja Luka, Republika Srpska"),
    ("United Arab Emirates", "Abu Dhabi, Al Reem Island"),
    ("Papua New Guinea", "Port Moresby, Central Province"),
    ("Trinidad and Tobago", "San Fernando, Trinidad"),
    ("Saint Kitts and Nevis", "Basseterre, Saint Kitts"),
    ("United States of America", "San Francisco, California"),
    ("Dominican Republic", "Santo Domingo de Guzmán"),
    ("United Kingdom", "Kingston upon Hull, Yorkshire"),
]
Event = dict[str, Any]
encode: Callable[[Event], bytes] = msgspec.msgpack.Encoder().encode
decode: Callable[[bytes], Event] = msgspec.msgpack.Decoder().decode


class Work(msgspec.Struct, kw_only=True):
    """The orders for one worker process."""

    system: str
    role: str
    events: int
    pings: int
    timeout_s: float
    # The core for the ping phase. None leaves the placement to the kernel.
    core: int | None = None
    # The publisher's address (for nats the server's), if the worker has to know it.
    address: str = ""


def make_events(count: int) -> Iterator[Event]:
    """The events of one flood: different from each other, and the same for every system."""
    for number in range(count):
        country, city = PLACES[number & 7]
        yield {"country": country, "city": city, "temp": number % 60 - 15, "at": AT_START + number}


def expected_sum(count: int) -> int:
    """The sum of the `at` fields of `make_events(count)`."""
    return count * AT_START + count * (count - 1) // 2


def mean_event_bytes() -> float:
    sizes = [len(encode(event)) for event in make_events(480)]
    return sum(sizes) / len(sizes)


class Line:
    """A worker's conversation with the harness."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._started = (0, 0)
        # Libraries may print (zenoh logs to stdout), so the line keeps stdout for itself, and other
        # output goes to stderr.
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(self, word: str, **fields: Any) -> None:
        self._out.write(json.dumps({"word": word, **fields}) + "\n")
        self._out.flush()

    def hear(self, word: str) -> None:
        heard = sys.stdin.readline().strip()
        if heard != word:
            raise SystemExit(f"expected {word!r} from the harness, got {heard!r}")

    async def hear_async(self, word: str) -> None:
        """Like `hear`, while the event loop still serves the system's own traffic."""
        await asyncio.to_thread(self.hear, word)

    def start(self) -> None:
        """Note the time and the processor time from which the flood counts."""
        self._started = (time.monotonic_ns(), time.process_time_ns())

    def flooded(self) -> None:
        started_ns, cpu_ns = self._started
        self.say("flooded", started_ns=started_ns, cpu_ns=time.process_time_ns() - cpu_ns)

    def received(self, count: int, total: int, finished_ns: int) -> None:
        cpu_ns = time.process_time_ns() - self._started[1]
        self.say("received", count=count, total=total, finished_ns=finished_ns, cpu_ns=cpu_ns)

    def pin(self) -> None:
        """Put every thread of this process on its core.

        A thread that starts later inherits the core.
        """
        if self.work.core is not None:
            for task in Path("/proc/self/task").iterdir():
                os.sched_setaffinity(int(task.name), {self.work.core})

    def pinged(self, times_ns: list[int]) -> None:
        counted = sorted(times_ns[WARM_UP_PINGS:])
        p50, p99 = (
            counted[min(len(counted) - 1, len(counted) * percent // 100)] / 1000
            for percent in (50, 99)
        )
        self.say("pinged", count=len(counted), p50_us=p50, p99_us=p99)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run an asyncio system, on uvloop if it is installed: gossamer and nats-py alike."""
    try:
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# -- pyzmq: blocking PUSH/PULL. PUB drops at its high-water mark, and PUSH waits. The asyncio
# wrapper is ten times slower. Without a high-water mark nothing is dropped, memory is the bound,
# and it is nearly a third faster than the default of 1,000.


def _zmq_socket(kind: str, work: Work) -> Any:
    import zmq

    sock: Any = zmq.Context.instance().socket(getattr(zmq, kind))
    sock.sndhwm = sock.rcvhwm = 0
    sock.sndtimeo = sock.rcvtimeo = int(work.timeout_s * 1000)
    sock.linger = 0
    return sock


def publish_pyzmq(work: Work, line: Line) -> None:
    push, pull = _zmq_socket("PUSH", work), _zmq_socket("PULL", work)
    ports = [sock.bind_to_random_port("tcp://127.0.0.1") for sock in (push, pull)]
    line.say("address", address=" ".join(f"tcp://127.0.0.1:{port}" for port in ports))
    # This returns once the subscriber is connected.
    push.send(b"")
    line.hear("flood")
    line.start()
    for event in make_events(work.events):
        push.send(encode(event))
    line.flooded()
    line.hear("ping")
    line.pin()
    times_ns = []
    for event in make_events(WARM_UP_PINGS + work.pings):
        before_ns = time.monotonic_ns()
        push.send(encode(event))
        decode(pull.recv())
        times_ns.append(time.monotonic_ns() - before_ns)
    line.pinged(times_ns)


def subscribe_pyzmq(work: Work, line: Line) -> None:
    import zmq

    pull, push = _zmq_socket("PULL", work), _zmq_socket("PUSH", work)
    for sock, address in zip((pull, push), work.address.split(), strict=True):
        sock.connect(address)
    pull.recv()
    line.say("ready")
    line.start()
    count = total = 0
    try:
        while count < work.events:
            total += decode(pull.recv())["at"]
            count += 1
    except zmq.Again:
        # The missing events are reported as a loss.
        pass
    line.received(count, total, time.monotonic_ns())
    line.hear("echo")
    line.pin()
    line.say("echoing")
    for _ in range(WARM_UP_PINGS + work.pings):
        push.send(encode(decode(pull.recv())))
    line.say("echoed")
    # Closing now could cut off the last echo.
    line.hear("end")


# -- eclipse-zenoh: peer to peer over one TCP link, no multicast scouting, callbacks, congestion
# control that waits. Callbacks run in zenoh's Python thread (its default): straight from its Rust
# threads they are four times slower.

# The pause comes before the flood, once both sides are up, and is not timed. Without it zenoh
# 1.10.2 lost the first events in 6 runs of 151, although the publisher's `matching_status` was
# already true: it does not say that the route is in use. With the pause it lost none in 151 runs.
ZENOH_SETTLE_S = 0.2


def _zenoh_session(endpoints: dict[str, list[str]]) -> Any:
    import zenoh

    config: dict[str, Any] = {"mode": "peer", "scouting": {"multicast": {"enabled": False}}}
    config |= {side: {"endpoints": addresses} for side, addresses in endpoints.items()}
    return zenoh.open(zenoh.Config.from_json5(json.dumps(config)))


def _zenoh_publisher(session: Any, key: str, *, express: bool) -> Any:
    """A publisher that waits and does not drop.

    `express` skips the batching, which is right for a lone ping.
    """
    import zenoh

    return session.declare_publisher(
        key, congestion_control=zenoh.CongestionControl.BLOCK, express=express
    )


def _zenoh_wait_matched(publisher: Any, work: Work) -> None:
    """Wait until the other side's subscription is known, because messages before that are
    dropped.
    """
    give_up = time.monotonic() + work.timeout_s
    while not publisher.matching_status:
        if time.monotonic() > give_up:
            raise SystemExit("the zenoh subscription did not become known")
        time.sleep(0.005)


def publish_zenoh(work: Work, line: Line) -> None:
    address = f"tcp/127.0.0.1:{free_port()}"
    with _zenoh_session({"listen": [address]}) as session:
        back = threading.Semaphore(0)

        def pong(sample: Any) -> None:
            decode(sample.payload.to_bytes())
            back.release()

        session.declare_subscriber("pong", pong)
        wire = _zenoh_publisher(session, "wire", express=False)
        ping = _zenoh_publisher(session, "ping", express=True)
        line.say("address", address=address)
        for publisher in (wire, ping):
            _zenoh_wait_matched(publisher, work)
        line.hear("flood")
        time.sleep(ZENOH_SETTLE_S)
        line.start()
        for event in make_events(work.events):
            wire.put(encode(event))
        line.flooded()
        line.hear("ping")
        line.pin()
        times_ns = []
        for event in make_events(WARM_UP_PINGS + work.pings):
            before_ns = time.monotonic_ns()
            ping.put(encode(event))
            if not back.acquire(timeout=work.timeout_s):
                raise SystemExit("a ping was lost")
            times_ns.append(time.monotonic_ns() - before_ns)
        line.pinged(times_ns)


def subscribe_zenoh(work: Work, line: Line) -> None:
    with _zenoh_session({"connect": [work.address], "listen": []}) as session:
        count = total = finished_ns = echoes = 0
        done, echoed = threading.Event(), threading.Event()

        def take(sample: Any) -> None:
            nonlocal count, total, finished_ns
            total += decode(sample.payload.to_bytes())["at"]
            count += 1
            if count == work.events:
                finished_ns = time.monotonic_ns()
                done.set()

        def echo(sample: Any) -> None:
            nonlocal echoes
            pong.put(encode(decode(sample.payload.to_bytes())))
            echoes += 1
            if echoes == WARM_UP_PINGS + work.pings:
                echoed.set()

        pong = _zenoh_publisher(session, "pong", express=True)
        _zenoh_wait_matched(pong, work)
        session.declare_subscriber("wire", take)
        session.declare_subscriber("ping", echo)
        line.say("ready")
        line.start()
        done.wait(work.timeout_s)
        line.received(count, total, finished_ns)
        line.hear("echo")
        line.pin()
        line.say("echoing")
        echoed.wait(work.timeout_s)
        line.say("echoed")
        line.hear("end")


# -- nats-py: core NATS through a nats-server that the harness starts. The subscription's pending
# limits are lifted, because beyond them nats-py drops. The same holds for the server's
# `max_pending` (see `wire.py`).


def publish_nats(work: Work, line: Line) -> None:
    run_loop(_publish_nats(work, line))


def subscribe_nats(work: Work, line: Line) -> None:
    run_loop(_subscribe_nats(work, line))


async def _nats_client(work: Work) -> Any:
    import nats

    return await nats.connect(work.address, allow_reconnect=False, skip_subject_validation=True)


async def _publish_nats(work: Work, line: Line) -> None:
    client = await _nats_client(work)
    pongs = (await client.subscribe("pong")).messages
    await client.flush()
    line.say("address", address=work.address)
    await line.hear_async("flood")
    line.start()
    for event in make_events(work.events):
        await client.publish("wire", encode(event))
    await client.flush(timeout=int(work.timeout_s))
    line.flooded()
    await line.hear_async("ping")
    line.pin()
    times_ns = []
    async with asyncio.timeout(work.timeout_s):
        for event in make_events(WARM_UP_PINGS + work.pings):
            before_ns = time.monotonic_ns()
            await client.publish("ping", encode(event))
            decode((await anext(pongs)).data)
            times_ns.append(time.monotonic_ns() - before_ns)
    line.pinged(times_ns)
    await client.close()


async def _subscribe_nats(work: Work, line: Line) -> None:
    client = await _nats_client(work)
    count = total = finished_ns = 0
    done = asyncio.Event()

    async def take(message: Any) -> None:
        nonlocal count, total, finished_ns
        total += decode(message.data)["at"]
        count += 1
        if count == work.events:
            finished_ns = time.monotonic_ns()
            done.set()

    await client.subscribe("wire", cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
    pings = (await client.subscribe("ping")).messages
    # The server knows both subscriptions then.
    await client.flush()
    line.say("ready")
    line.start()
    try:
        async with asyncio.timeout(work.timeout_s):
            await done.wait()
    except TimeoutError:
        # The missing events are reported as a loss.
        pass
    line.received(count, total, finished_ns)
    await line.hear_async("echo")
    line.pin()
    line.say("echoing")
    async with asyncio.timeout(work.timeout_s):
        for _ in range(WARM_UP_PINGS + work.pings):
            await client.publish("pong", encode(decode((await anext(pings)).data)))
    line.say("echoed")
    await line.hear_async("end")
    await client.close()


def limit_lifetime(work: Work) -> None:
    """End this process even if it hangs and the harness is gone.

    The default action of SIGALRM is to terminate.
    """
    signal.alarm(int(4 * work.timeout_s) + 10)
