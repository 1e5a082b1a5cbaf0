"""The path of one event: its files and Python calls, from `publish` to the subscriber's `anext` and
to the receipt.

    python benchmarks/path.py            # routes direct, tree and skiplist
    python benchmarks/path.py --json
    python benchmarks/path.py --trace direct   # the calls of one lone event, in order

The method. Two live nodes run in one process, in pure Python, because the compiled loops would hide
calls. Some events warm the path. Then one lone event is published, and `sys.setprofile` sees every
call of a Python function of gossamer, on both sides, until the consumer has the event and the
publisher has its receipt. A file counts once, whatever the number of its calls. The numbers vary by
a few calls, because timers of the nodes fall into the counted time; the figure is the median of
--rounds lone events. `subscribe` is counted in the same way, until the subscription is in force.

The number of files is the amount that a newcomer has to read to follow one event. The numbers of
calls are the cost of each lone event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

os.environ["GOSSAMER_PURE"] = "1"

import gossamer

ROOT = str(Path(gossamer.__file__).parent) + os.sep
ROUTES = ("direct", "tree", "skiplist")
WARM = 20
ROW = {"country": "CH", "temp": 31}


class Count:
    """Calls of functions of gossamer, and the files of these functions."""

    def __init__(self, trace: bool = False) -> None:
        # With `trace`, a line for each call, indented by its depth.
        self.lines: list[str] | None = [] if trace else None
        self.depth = 0
        self.calls = 0
        self.files: dict[str, None] = {}
        self.at_hand_over: tuple[int, int] | None = None

    def see(self, frame: FrameType, event: str, argument: Any) -> None:
        if not frame.f_code.co_filename.startswith(ROOT):
            return
        if event == "return":
            self.depth -= 1
        elif event == "call":
            self.calls += 1
            file = frame.f_code.co_filename[len(ROOT) :]
            self.files[file] = None
            if self.lines is not None:
                name = f"{'  ' * self.depth}{frame.f_code.co_qualname}"
                self.lines.append(f"{self.calls:>4} {file:<32} {name}")
            self.depth += 1

    def handed_over(self) -> None:
        self.at_hand_over = (self.calls, len(self.files))
        if self.lines is not None:
            self.lines.append("---- the subscriber has the event")


@contextmanager
def counting(trace: bool = False) -> Iterator[Count]:
    count = Count(trace)
    sys.setprofile(count.see)
    try:
        yield count
    finally:
        sys.setprofile(None)


async def lone(
    publisher: gossamer.Node, events: gossamer.Subscription, trace: bool = False
) -> Count:
    """Publish one event, and wait for the hand-over and for the receipt."""

    async def take() -> None:
        await anext(events)
        count.handed_over()

    taking = asyncio.create_task(take())
    await asyncio.sleep(0)
    with counting(trace) as count:
        receipt = await publisher.publish("weather", ROW)
        await receipt
        calls = count.calls
        await taking
    count.calls = calls
    return count


async def measure(route: str, rounds: int) -> dict[str, Any]:
    async with gossamer.Node() as publisher, gossamer.Node(join=[publisher.address]) as reader:
        await publisher.advertise("weather", "country STRING, temp INT")
        with counting() as subscribing:
            events = reader.subscribe("weather", "temp > 30", route=route)
            await events.__aenter__()
        for _ in range(WARM):
            await lone(publisher, events)
        counts = [await lone(publisher, events) for _ in range(rounds)]
        await events.__aexit__(None, None, None)
    handed = [count.at_hand_over for count in counts if count.at_hand_over is not None]
    assert len(handed) == rounds
    return {
        "route": route,
        "files": statistics.median_low(files for _, files in handed),
        "calls_to_hand_over": statistics.median_low(calls for calls, _ in handed),
        "calls_to_receipt": statistics.median_low(count.calls for count in counts),
        "subscribe_files": len(subscribing.files),
        "subscribe_calls": subscribing.calls,
    }


async def traced(route: str, subscribing: bool) -> list[str]:
    """The calls of one lone event, or of one subscription, in order."""
    async with gossamer.Node() as publisher, gossamer.Node(join=[publisher.address]) as reader:
        await publisher.advertise("weather", "country STRING, temp INT")
        with counting(subscribing) as count:
            events = reader.subscribe("weather", "temp > 30", route=route)
            await events.__aenter__()
        if not subscribing:
            for _ in range(WARM):
                await lone(publisher, events)
            count = await lone(publisher, events, trace=True)
        await events.__aexit__(None, None, None)
    return count.lines or []


def imported() -> int:
    """Lines of the modules that `import gossamer` and a running node have loaded, comments
    included.
    """
    files = {
        module.__file__
        for name, module in sys.modules.items()
        if name.split(".")[0] == "gossamer" and getattr(module, "__file__", None)
    }
    return sum(
        Path(str(file)).read_bytes().count(b"\n") for file in files if str(file).endswith(".py")
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trace", choices=ROUTES, help="print the calls of one lone event")
    parser.add_argument(
        "--subscribing", action="store_true", help="with --trace: print the calls of subscribing"
    )
    options = parser.parse_args()
    if options.trace:
        print(*asyncio.run(traced(options.trace, options.subscribing)), sep="\n")
        return
    results = [asyncio.run(measure(route, options.rounds)) for route in ROUTES]
    if options.json:
        print(json.dumps({"routes": results, "lines_imported": imported()}))
        return
    print("route      files to anext   calls to anext   to the receipt   subscribe: files   calls")
    for one in results:
        print(
            f"{one['route']:<10} {one['files']:>14} {one['calls_to_hand_over']:>16} "
            f"{one['calls_to_receipt']:>16} {one['subscribe_files']:>18} "
            f"{one['subscribe_calls']:>7}"
        )
    print(f"lines that a live node has imported: {imported():,}")


if __name__ == "__main__":
    main()
