"""Experiments: one fabric, one kind of trouble, one demand. Each gives a verdict with figures.

crashes     K - 1 nodes die at once: every survivor hears of every change, without waiting for
            repair
loss        half of all messages are lost for 30 s: nobody is taken for dead, and the views
            agree afterwards
pause       a quarter of the nodes stands still for 5 s: nobody is taken for dead
partition   two halves for ten minutes: equal views within 2 s of healing
restart     all nodes restart without memory within 10 s, twice: equal views, and nobody is
            shadowed by an old life
churn       one node in ten comes or goes each minute: equal views afterwards, and no dead life
            comes back
flips       a million subscriptions and unsubscriptions: memory stays flat
dead        one process and one host die: the time until every view has dropped them
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any, cast

import msgspec
from msgspec import Struct

from gossamer.lab.connectivity import vertex_connectivity
from gossamer.lab.interest.checkers import (
    Agreement,
    Burial,
    Connectivity,
    Exact,
    Hidden,
    NewsOnly,
    Removals,
    Topics,
    Watch,
)
from gossamer.lab.interest.config import Setup
from gossamer.lab.interest.measure import Progress, cold_start, settle
from gossamer.lab.interest.run import InterestRun, Make, Trail, make_interest
from gossamer.lab.memory import rare_collections
from gossamer.machine import NEVER, Deliver, LinkState, Micros, Peer, Send
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.core import Interest
from gossamer.sim import churn as churning
from gossamer.sim.rules import Cut, Loss
from gossamer.sim.world import BreachError, Node

# In a fabric with more nodes, checkers that read every topic of every change cost more than the
# run.
THOROUGH_MAX = 150
TRIALS = 6
# The seconds from healing to equal views.
HEAL_MAX = 2.0
LOSS, LOSS_S = 0.5, 30.0
PAUSE_S = 5.0
RESTART_S = 10.0
CHURN_MINUTES, CHURN_SHARE = 10, 0.10
# The seconds until every view has dropped a process, and a host.
RESET_MAX, SILENT_MAX = 3.0, 15.0
# The number of looks at the overlay during churn.
LOOKS = 60
LEAVES = 12
FLIPS = 1_000_000
# The bytes from one tenth of the flips to all of them.
GROWTH_MAX = 64 << 10


class Options(Struct, frozen=True, kw_only=True):
    """The options of some experiments."""

    # The seconds of trouble. 0 stands for the experiment's own time.
    lasts: float = 0.0
    # A text that sim/churn.py understands.
    churn: str = "server"
    flips: int = FLIPS


class Verdict(Struct, frozen=True, kw_only=True):
    scenario: str
    demand: str
    figures: dict[str, float | int | str]
    # The reasons why the demand is not met.
    reasons: list[str]
    digest: str = ""
    messages: int = 0

    @property
    def good(self) -> bool:
        return not self.reasons


class Trouble:
    """A fabric that has started and settled, with its checkers; experiments make the trouble."""

    def __init__(self, setup: Setup, options: Options, progress: Progress, make: Make) -> None:
        self.setup, self.options, self.progress = setup, options, progress
        self.run = InterestRun(setup, make=make)
        self.reasons: list[str] = []
        self.figures: dict[str, float | int | str] = {}
        self.removals = Removals(self.run.life)
        self.burial = Burial()
        thorough: list[Watch] = (
            [Hidden(), Exact(), NewsOnly()] if setup.nodes <= THOROUGH_MAX else []
        )
        for watch in (Agreement(), Topics(), self.burial, *thorough):
            self.run.watch(watch)

    def begin(self) -> None:
        cold = cold_start(self.run, lambda share: self.progress(0.3 * share))
        if cold is None or not settle(self.run):
            self.reasons.append("the fabric did not become whole before the trouble began")
        self.figures["nodes"], self.figures["k"] = self.setup.nodes, self.setup.k

    def demand(self, is_met: bool, text: str) -> None:
        if not is_met:
            self.reasons.append(text)

    def changing(self, seconds: float, each: float) -> None:
        """Changes at random nodes, from now on and all along."""
        clock = self.run.world.clock
        for number in range(1, int(seconds / each)):
            clock.push(clock.now + int(number * each * 1e6), self._change)

    def _change(self, _x: None, _y: None, _z: None) -> None:
        node = self.run.random_node()
        if node is not None and self.run.rng.random() < 0.3:
            self.run.flap(node)
        elif node is not None:
            self.run.change(node)

    def agree(self, seconds: float, name: str) -> None:
        """Demand equal views within this time, and ask the checkers then."""
        took = self.run.until(self.run.agree, seconds)
        self.figures[name] = -1.0 if took is None else took
        self.demand(took is not None, f"the views do not agree {seconds:g} s later")

    def go(self, seconds: float, low: float, high: float) -> None:
        """Let time pass, with progress."""
        clock = self.run.world.clock
        began, end = clock.now, clock.now + int(seconds * 1e6)
        while clock.now < end:
            self.run.wait(min(1.0, (end - clock.now) / 1e6))
            self.progress(low + (high - low) * (clock.now - began) / (end - began))


def crashes(trouble: Trouble) -> str:
    run, setup = trouble.run, trouble.setup
    count = min(setup.k - 1, setup.nodes - 2)
    times: list[float] = []
    for trial in range(TRIALS):
        nodes = list(run.world.nodes)
        if trial % 2:
            victims = sorted(nodes, key=lambda _: run.rng.random())[:count]
        else:
            # The hardest choice is all but one of some node's neighbours.
            near = run.snapshot().adjacency[run.below(len(nodes))]
            victims = [nodes[index] for index in near][:count]
        for node in victims:
            run.world.crash(node)
        trails: list[Trail] = []
        for number in range(5):
            node = cast(Node, run.random_node())
            record = cast(Any, node.machine).record
            trails.append(
                Trail(node.peer, record.life, record.version + 1, node.index, run.world.clock.now)
            )
            run.change(node)
            del number
        took = run.until(lambda: all(_known(run, trail) for trail in trails), 5.0, 1_000)  # noqa: B023
        trouble.demand(
            took is not None, f"trial {trial}: not every survivor heard of every change within 5 s"
        )
        times.append(took if took is not None else 5.0)
        run.wait(12.0)
        for node in victims:
            run.world.restart(node)
        trouble.demand(
            run.until(lambda: run.agree() and run.is_woven(), 30.0) is not None,
            f"trial {trial}: no repair",
        )
        run.wait(1.0)
        trouble.progress(0.3 + 0.7 * (trial + 1) / TRIALS)
    trouble.figures |= {
        "crashed at once": count,
        "trials": TRIALS,
        "heard by all, worst ms": round(max(times) * 1000, 3),
    }
    trouble.demand(max(times) < 0.4, "somebody heard only after links were repaired")
    run.look(Connectivity(setup.k))
    return "every survivor hears of every change, at once"


def _known(run: InterestRun, trail: Trail) -> bool:
    for _, member in run.live():
        known = member.view.members.get(trail.peer)
        if known is None or (known.record.life, known.record.version) < (trail.life, trail.version):
            return False
    return True


def loss(trouble: Trouble) -> str:
    run = trouble.run
    seconds = trouble.options.lasts or LOSS_S
    run.watch(trouble.removals)
    rule = Loss(LOSS, Random(f"loss {trouble.setup.seed}"))
    run.world.network.rules.append(rule)
    trouble.changing(seconds, 0.2)
    trouble.go(seconds, 0.3, 1.0)
    run.world.network.rules.remove(rule)
    trouble.agree(10.0, "agree_s")
    _no_removals(trouble)
    trouble.figures |= {"lost messages": rule.fired, "lasted_s": seconds}
    run.wait(5.0)
    run.look()
    return (
        f"{LOSS:.0%} of the messages lost for {seconds:g} s: no live node is removed, "
        "views agree after"
    )


def _no_removals(trouble: Trouble) -> None:
    trouble.figures["false_removals"] = trouble.removals.count


def pause(trouble: Trouble) -> str:
    run = trouble.run
    seconds = trouble.options.lasts or PAUSE_S
    run.watch(trouble.removals)
    some = sorted(run.world.nodes, key=lambda _: run.rng.random())[
        : max(1, trouble.setup.nodes // 4)
    ]
    for node in some:
        run.world.pause(node)
    trouble.changing(seconds, 0.2)
    trouble.go(seconds, 0.3, 0.8)
    for node in some:
        run.world.resume(node)
    trouble.agree(10.0, "agree_s")
    trouble.go(20.0, 0.8, 1.0)
    _no_removals(trouble)
    trouble.figures |= {"paused": len(some), "lasted_s": seconds}
    run.until(run.agree, 5.0)
    run.look()
    return f"a quarter of the nodes stands still for {seconds:g} s: no live node is removed"


def partition(trouble: Trouble) -> str:
    run, setup = trouble.run, trouble.setup
    seconds = trouble.options.lasts or 600.0
    order = sorted(range(setup.nodes), key=lambda _: run.rng.random())
    cut = Cut(tuple(order[: setup.nodes // 2]))
    run.world.cut(cut)
    trouble.changing(seconds, max(0.2, seconds / 300))
    trouble.go(seconds, 0.3, 1.0)
    sizes = sorted({len(member.view.members) for _, member in run.live()})
    run.world.heal(cut)
    trouble.agree(30.0, "heal_s")
    heal = cast(float, trouble.figures["heal_s"])
    trouble.demand(
        0 <= heal <= HEAL_MAX, f"healing took {heal:g} s; at most {HEAL_MAX:g} s is right"
    )
    trouble.figures |= {
        "lasted_s": seconds,
        "members seen before healing": ", ".join(map(str, sizes)),
    }
    trouble.demand(
        run.until(run.is_woven, 30.0) is not None, "the overlay is not as wanted 30 s after healing"
    )
    run.until(run.agree, 5.0)
    run.look(connectivity := Connectivity(setup.k))
    trouble.reasons += connectivity.told()
    return f"two halves for {seconds:g} s: equal views within {HEAL_MAX:g} s of healing"


def restart(trouble: Trouble) -> str:
    run = trouble.run
    clock = run.world.clock
    for storm in range(2):
        for node in run.world.nodes:
            at = clock.now + int(run.rng.random() * RESTART_S * 1e6)
            clock.call(at, lambda node=node: run.world.crash(node))  # type: ignore[misc]
            clock.call(at + 200_000, lambda node=node: run.world.restart(node, wipe=True))  # type: ignore[misc]
        trouble.go(RESTART_S + 0.3, 0.3 + 0.35 * storm, 0.65 + 0.35 * storm)
        trouble.agree(30.0, f"agree_s after storm {storm + 1}")
    trouble.demand(run.until(run.is_woven, 30.0) is not None, "the overlay is not as wanted")
    run.wait(15.0)
    run.until(run.agree, 5.0)
    run.look()
    return (
        f"all nodes restart without memory within {RESTART_S:g} s, twice: equal views, "
        "nobody is shadowed"
    )


def _settled(run: InterestRun) -> dict[int, list[int]]:
    """The links between nodes that have been up for a second. Newcomers still look for theirs."""
    before = run.world.clock.now - 1_000_000
    adjacency = run.snapshot().adjacency
    settled = {index: links for index, links in adjacency.items() if run.up_since[index] <= before}
    return {index: [far for far in links if far in settled] for index, links in settled.items()}


def _depart(run: InterestRun, node: Node, kind: int) -> None:
    """A node departs with a goodbye, as a process, or with its host."""
    if kind == 0:
        run.world.leave(node)
    else:
        run.world.crash(node, silent=kind == 2)


def churn(trouble: Trouble) -> str:
    run, setup = trouble.run, trouble.setup
    seconds = trouble.options.lasts or CHURN_MINUTES * 60.0
    clock, start = run.world.clock, run.world.clock.now
    source = churning.parse(trouble.options.churn)
    leaves = 0
    for number, leaving in enumerate(
        churning.schedule(source, setup.nodes, seconds, CHURN_SHARE, setup.seed)
    ):
        node = run.world.nodes[leaving.node]
        leaves += leaving.at > 0
        clock.push(start + leaving.at, _depart, run, node, number % 3)
        clock.call(start + leaving.until, lambda node=node: run.world.restart(node))  # type: ignore[misc]
    trouble.changing(seconds, 0.5)
    least = setup.nodes
    for look in range(LOOKS):
        # No look comes at the end, because all nodes that are away come back then, at once.
        if look:
            least = min(least, vertex_connectivity(_settled(run)))
        trouble.go(
            (seconds + 0.1) / LOOKS, 0.3 + 0.7 * look / LOOKS, 0.3 + 0.7 * (look + 1) / LOOKS
        )
    # A node may have left a moment before it came back.
    for node in run.world.nodes:
        run.world.restart(node)
    trouble.agree(30.0, "agree_s")
    trouble.demand(run.until(run.is_woven, 30.0) is not None, "the overlay is not as wanted")
    trouble.figures |= {
        "departures": leaves,
        "least connectivity seen": least,
        "lasted_s": seconds,
        "sessions": trouble.options.churn,
    }
    run.wait(15.0)
    run.until(run.agree, 5.0)
    run.look(connectivity := Connectivity(setup.k))
    trouble.reasons += connectivity.told()
    return (
        f"{CHURN_SHARE:.0%} of the nodes come or go each minute: equal views afterwards, "
        "no resurrection"
    )


def leave(trouble: Trouble) -> str:
    run, setup = trouble.run, trouble.setup
    least, count, slowest = setup.nodes, min(LEAVES, setup.nodes // 3), 0.0
    for number in range(count):
        node, began = cast(Node, run.random_node()), run.world.clock.now
        run.world.leave(node)
        # Two seconds, with a look every 20 ms.
        for _ in range(100):
            run.wait(0.02)
            left = len(run.live())
            found = vertex_connectivity(run.snapshot().adjacency)
            least = min(least, found)
            trouble.demand(
                found >= min(setup.k, left - 1),
                f"connectivity {found} while node {node.index} left",
            )
            if node.machine is not None:
                slowest = max(slowest, (run.world.clock.now - began) / 1e6)
        trouble.progress(0.3 + 0.7 * (number + 1) / count)
    trouble.agree(10.0, "agree_s")
    trouble.figures |= {
        "left": count,
        "least connectivity": least,
        "slowest to go_s": round(slowest, 3),
    }
    run.look()
    return f"{count} nodes leave one by one: at every moment the fabric is K-connected"


def dead(trouble: Trouble) -> str:
    run = trouble.run
    for name, silent, most in (("reset_s", False, RESET_MAX), ("silent_s", True, SILENT_MAX)):
        node = cast(Node, run.random_node())
        run.world.crash(node, silent=silent)
        peer = node.peer
        took = run.until(lambda: not any(peer in m.view.members for _, m in run.live()), 60.0)  # noqa: B023
        trouble.figures[name] = -1.0 if took is None else took
        trouble.demand(
            took is not None and took <= most, f"{name} is {took}; at most {most:g} s is right"
        )
        trouble.demand(run.until(run.agree, 10.0) is not None, "the views do not agree afterwards")
        run.until(run.is_woven, 30.0)
        run.look()
    return (
        f"a dead process is out of every view within {RESET_MAX:g} s, "
        f"a lost host within {SILENT_MAX:g} s"
    )


EXPERIMENTS: dict[str, Callable[[Trouble], str]] = {
    "crashes": crashes, "loss": loss, "pause": pause, "partition": partition,
    "restart": restart, "churn": churn, "leave": leave, "dead": dead,
}  # fmt: skip
NAMES = (*EXPERIMENTS, "flips")


def experiment(
    name: str,
    setup: Setup,
    options: Options | None = None,
    progress: Progress | None = None,
    make: Make = make_interest,
) -> Verdict:
    options, progress = options or Options(), progress or (lambda _: None)
    if name == "flips":
        return flips(setup, options, progress)
    trouble = Trouble(setup, options, progress, make)
    demand = name
    try:
        with rare_collections():
            trouble.begin()
            demand = EXPERIMENTS[name](trouble)
    except BreachError as breach:
        trouble.reasons.append(f"contract: {breach}")
    world = trouble.run.world
    trouble.figures["virtual_s"] = round(world.clock.now / 1e6, 3)
    return Verdict(
        scenario=name,
        demand=demand,
        figures=trouble.figures,
        reasons=trouble.reasons + trouble.run.told(),
        digest=world.digest.hexdigest(),
        messages=world.messages,
    )


# ------------------------------------------------------------------------ flips


class Wired:
    """A few machines that are joined only by function calls, for runs of millions of steps."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.now = Micros(1_000_000)
        self.machines = [
            Interest(
                Peer(index + 1),
                incarnation=1,
                address=f"node-{index}",
                rng=Random(f"wired {seed} {index}"),
                config=InterestConfig(),
            )
            for index in range(nodes)
        ]
        # The number of view changes.
        self.told = 0
        for one in self.machines:
            for other in self.machines:
                if one is not other:
                    self._carry(one, one.link(other.me, LinkState.UP, self.now))

    def _carry(self, machine: Interest, effects: list[Any]) -> None:
        for effect in effects:
            if type(effect) is Send:
                for peer in effect.to:
                    far = self.machines[peer - 1]
                    self._carry(far, far.receive(machine.me, effect.message, self.now))
            elif type(effect) is Deliver:
                self.told += len(effect.events)

    def pass_time(self, micros: int) -> None:
        """Wake every machine that is due, in order of time."""
        end = self.now + micros
        while True:
            due = min(self.machines, key=lambda machine: machine.deadline)
            if due.deadline > end:
                break
            self.now = Micros(max(self.now, due.deadline))
            self._carry(due, due.wake(self.now))
        self.now = Micros(end)


def flips(setup: Setup, options: Options, progress: Progress) -> Verdict:
    """Flips at one node of a small fabric, a few in each round.

    Memory after a tenth of the flips is compared with memory after all.
    """
    nodes, each, topics = 4, 8, 16
    wired = Wired(nodes, setup.seed)
    wired.pass_time(5_000_000)
    rng = Random(f"flips {setup.seed}")
    machine = wired.machines[0]
    has = [False] * topics
    rounds = max(10, options.flips // each)
    tracemalloc.start(1)
    early = 0
    for number in range(rounds):
        for _ in range(each):
            topic = int(rng.random() * topics)
            (machine.unsubscribe if has[topic] else machine.subscribe)(f"topic/{topic}", wired.now)
            has[topic] = not has[topic]
        wired.pass_time(5_000)
        if number == rounds // 10:
            gc.collect()
            early = tracemalloc.get_traced_memory()[0]
        if number % 1_000 == 0:
            progress(number / rounds)
    wired.pass_time(2_000_000)
    gc.collect()
    growth = tracemalloc.get_traced_memory()[0] - early
    tracemalloc.stop()
    reasons = []
    views = [
        msgspec.msgpack.encode(known.record)
        for m in wired.machines
        for p, known in m.view.members.items()
        if p == machine.me
    ]
    if any(view != views[0] for view in views):
        reasons.append("the views do not agree afterwards")
    if growth > GROWTH_MAX:
        reasons.append(
            f"memory grew by {growth} bytes from a tenth of the flips to all; at most {GROWTH_MAX} "
            "is flat"
        )
    if machine.deadline == NEVER:
        reasons.append("the machine stopped")
    figures: dict[str, float | int | str] = {
        "flips": rounds * each, "nodes": nodes, "growth_bytes": growth, "view changes": wired.told,
    }  # fmt: skip
    return Verdict(
        scenario="flips",
        demand="memory is flat after a million flips",
        figures=figures,
        reasons=reasons,
    )
