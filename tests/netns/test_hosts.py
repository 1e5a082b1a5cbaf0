"""Five hosts with real network stacks, bad weather, cuts, kills and pauses: no event is lost or
repeated.

Everything is judged twice. Each durable subscription must have been handed every accepted event
that its filter wants (by the lists that the hosts keep). The Spark oracle must find nothing missed,
duplicate or spurious in the nodes' traces.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gossamer
from netns.host import event
from netns.lab import Host, Lab, until, why_not

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gossamer.pipeline.verify import Verdict

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.slow]

SCHEMA = "host INT, n INT, shard INT, place STRING"
HOSTS = 5
WEATHER = {"delay_ms": 2.0, "jitter_ms": 6.0, "loss": 0.02, "duplicate": 0.03}

# On each host one subscription, by every route: the filter, and the same in Python for the hosts'
# own lists.
WANTED: list[tuple[str, str, Callable[[dict[str, object]], bool]]] = [
    ("auto", "", lambda e: True),
    ("direct", "shard = 1", lambda e: e["shard"] == 1),
    (
        "skiplist",
        "place = 'place-3' AND shard <= 2",
        lambda e: e["place"] == "place-3" and e["shard"] <= 2,
    ),  # type: ignore[operator]
    ("tree", "shard IN (0, 3)", lambda e: e["shard"] in (0, 3)),
    ("flood", "host <> 4 AND place LIKE 'place-%'", lambda e: e["host"] != 4),
]


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    if reason := why_not():
        pytest.skip(reason)


def name_of(host: Host) -> str:
    return f"tap-{host.number}"


async def subscribe(host: Host) -> None:
    route, filter, _ = WANTED[host.number]
    await host.ask(do="subscribe", name=name_of(host), filter=filter, route=route)


async def begin(lab: Lab) -> None:
    """Nodes, subscriptions and publishers on all hosts; returns when events flow."""
    first, *others = lab.hosts
    await first.start()
    await asyncio.gather(*(host.start(first) for host in others))
    await first.ask(do="advertise", schema=SCHEMA)
    await asyncio.gather(*(subscribe(host) for host in lab.hosts))
    await asyncio.gather(*(host.ask(do="publish", first=0) for host in lab.hosts))
    await more(lab.hosts, 20)


async def together(hosts: list[Host], members: int) -> None:
    """Until each of them counts this number of members."""

    async def is_so() -> bool:
        return all([await host.members() == members for host in hosts])

    await until(is_so, f"{members} members in the view of each of {len(hosts)} hosts")


async def more(hosts: list[Host], count: int) -> None:
    """Until each of them has accepted this number of further events."""
    goals = [(host, len(host.accepted()) + count) for host in hosts]
    await until(
        lambda: all(len(host.accepted()) >= goal for host, goal in goals),
        f"{count} more events on each host",
    )


async def end(lab: Lab) -> int:
    """No further events. Every receipt completes, and every accepted event is where it is wanted.

    Returns their number.
    """
    await asyncio.gather(*(host.ask(do="hush") for host in lab.hosts))
    left = await asyncio.gather(*(host.ask(do="drain") for host in lab.hosts))
    assert [one["left"] for one in left] == [0] * HOSTS
    accepted = {(host.number, number) for host in lab.hosts for number in host.accepted()}
    due = {
        host: {pair for pair in accepted if WANTED[host.number][2](event(*pair))}
        for host in lab.hosts
    }
    for host, wanted in due.items():
        missing = lambda host=host, wanted=wanted: wanted - host.seen(name_of(host))  # noqa: E731
        try:
            await until(lambda missing=missing: not missing(), "all that is due")
        except AssertionError:
            lost = sorted(missing())
            raise AssertionError(
                f"host {host.number}: {len(lost)} of {len(wanted)} not handed over: {lost[:5]}"
            ) from None
    await lab.stop()
    return sum(len(wanted) for wanted in due.values())


def judge(spark: SparkSession, lab: Lab, due: int) -> Verdict:
    from gossamer.pipeline.verify import verify

    verdict = verify(spark, lab.traces)
    assert (verdict.missed, verdict.duplicate, verdict.spurious, verdict.broken) == (0, 0, 0, 0), (
        verdict.examples
    )
    assert verdict.subscriptions == HOSTS
    assert verdict.delivered + verdict.allowed >= due > 1000
    return verdict


async def bad_weather(base: Path) -> tuple[Lab, int]:
    async with Lab(base, HOSTS) as lab:
        await lab.weather(**WEATHER)
        await begin(lab)
        # What host 1 says does not reach hosts 2 and 3; it hears them well.
        await lab.ways([(1, 2), (1, 3)], cut=True)
        await more(lab.hosts, 100)
        await lab.weather(**WEATHER)
        # Host 4 loses its cable until the others give it up. It goes on publishing into its outbox.
        alone, others = lab.hosts[4], lab.hosts[:4]
        alone.cable(plugged=False)
        await together(others, HOSTS - 1)
        await more(others, 50)
        alone.cable(plugged=True)
        await together(lab.hosts, HOSTS)
        await more(lab.hosts, 50)
        counts = await lab.counts()
        # There was bad weather.
        assert min(counts["lost"], counts["duplicated"], counts["cut"]) > 20, counts
        return lab, await end(lab)


async def kills(base: Path) -> tuple[Lab, int]:
    async with Lab(base, HOSTS) as lab:
        await lab.weather(**WEATHER)
        await begin(lab)
        killed, paused = lab.hosts[1], lab.hosts[3]
        # SIGKILL, with events on their way in and out.
        await killed.kill()
        assert paused.node is not None
        paused.node.signal(signal.SIGSTOP)
        awake = [lab.hosts[0], lab.hosts[2], lab.hosts[4]]
        await together(awake, len(awake))
        await more(awake, 50)
        paused.node.signal(signal.SIGCONT)
        await killed.start(*awake)
        await subscribe(killed)
        await killed.ask(do="publish", first=max(killed.accepted()) + 1000)
        await more(lab.hosts, 50)
        await lab.ways(
            [(a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b and (a < 2) != (b < 2)],
            cut=True,
        )
        await more(lab.hosts, 100)
        await lab.weather(**WEATHER)
        await together(lab.hosts, HOSTS)
        return lab, await end(lab)


def test_loss_duplication_a_one_way_partition_and_a_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    verdict = judge(spark, *gossamer.run(bad_weather(tmp_path)))
    assert (verdict.incomplete, verdict.torn) == (0, 0)


def test_kills_a_pause_and_two_halves(spark: SparkSession, tmp_path: Path) -> None:
    verdict = judge(spark, *gossamer.run(kills(tmp_path)))
    assert verdict.nodes == HOSTS
