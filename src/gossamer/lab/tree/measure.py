"""``gossamer simulate tree``: the seed's experiment (section 4), and the same figures for fabrics
of any size.

Up to 5,000 hosts are simulated. Up to 300 the network grows from empty, join by join, as the seed's
does; larger ones start formed. Then, for ``measure``: a host joins, after ``interval`` one leaves,
and so on, with publications in between; or, with ``churn_per_second``, hosts are replaced all the
time while events are published. More hosts are looked at in their steady state (steady.py).

The reconfiguration area of a change is counted in the tree that has the host in question: after a
join, before a leave.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from random import Random
from statistics import fmean

import msgspec
from msgspec import Struct

from gossamer.lab.tree import steady
from gossamer.lab.tree.checkers import at_rest, deliveries, ring, shape
from gossamer.lab.tree.config import SIMULATED_MAX, Setup
from gossamer.lab.tree.run import TreeRun
from gossamer.overlay.tree.arcs import Host
from gossamer.overlay.tree.reference import ReferenceTree, make_tree
from gossamer.overlay.tree.ring import Members
from gossamer.sim.clock import duration
from gossamer.sim.traces import Traces
from gossamer.sim.world import Node

GROWN_MAX = 300
# Joins and leaves looked at in a steady state.
SAMPLED = 1_000
# Publications followed over a tree of many hosts.
STEADY_EVENTS_MAX = 20

Progress = Callable[[float], None]


class Spread(Struct, frozen=True):
    """How a number is distributed over the changes."""

    count: int
    mean: float
    max: int
    histogram: dict[str, int]

    @classmethod
    def of(cls, values: list[int]) -> Spread:
        counts = {str(value): values.count(value) for value in sorted(dict.fromkeys(values))}
        return cls(
            len(values), round(fmean(values), 3) if values else 0.0, max(values, default=0), counts
        )


class Measured(Struct, frozen=True, kw_only=True):
    hosts: int
    key_bits: int
    arity: int
    dht: str
    # False: the steady state, by its closed form.
    simulated: bool
    is_tree: bool
    degree: dict[str, int]
    degree_max: int
    depth_mean: float
    depth_max: int
    lookups_mean: float
    lookups_max: int
    contacted_mean: float
    contacted_max: int
    # Hosts that heard of other routes, for each change.
    announced_mean: float
    # Links that one change made or removed.
    links_max: int
    area_join: Spread
    area_leave: Spread
    copies_per_delivery: float
    expected: int
    delivered: int
    missed: int
    duplicate: int
    spurious: int
    replaced: int
    messages: int
    invariants_looked: (
        # With Chord, steps at which a list had changed and Zave's invariants were looked at.
        int
    )
    # Virtual seconds from the last publication until all was whole.
    seconds_quiet: float
    digest: str
    violations: list[str]

    @property
    def good(self) -> bool:
        return not self.violations


Told = Callable[["Changes"], None]


def measure(
    setup: Setup,
    progress: Progress = lambda _: None,
    told: Told = lambda _: None,
    traces: Traces | None = None,
) -> Measured:
    """``told`` is given what joins and leaves have changed, one by one, and ``traces`` what the
    users of the hosts did and saw. A steady state has neither.
    """
    return (
        simulated(setup, progress, told, traces)
        if setup.hosts <= SIMULATED_MAX
        else at_steady_state(setup, progress)
    )


# Simulated.


class Reconfiguration(Struct, frozen=True):
    """One change of the tree."""

    # Join or leave.
    what: str
    # Before it.
    hosts: int
    contacted: int
    # Made or removed.
    links: int
    area: int
    # After it.
    degree_max: int


class Changes:
    """What joins and leaves have changed, one by one."""

    def __init__(self, run: TreeRun) -> None:
        self.run = run
        self.contacted: list[int] = []
        self.announced: list[int] = []
        # Of these, outside the area and the way to the successor, whose keys the host had or gets.
        self.beyond: list[int] = []
        self.links: list[int] = []
        self.joins: list[int] = []
        self.leaves: list[int] = []
        self.each: list[Reconfiguration] = []
        # Who heard of other routes in the last change.
        self._told: list[int] = []

    def join(self, seconds: float) -> None:
        before = self.run.neighbours()
        key = self.run.free_key()
        self._watch(lambda: self.run.join(key), seconds, key)
        self._compare(before, self.run.neighbours(), self.joins, key)

    def leave(self, key: int, seconds: float, *, fails: bool = False) -> None:
        before = self.run.neighbours()
        self._watch(lambda: self.run.stop(key, leave=not fails), seconds, key)
        self._compare(self.run.neighbours(), before, self.leaves, key)

    def _watch(self, act: Callable[[], object], seconds: float, key: int) -> None:
        run = self.run
        before = run.up.get(key)
        run.contacts, run.told = {}, {}
        act()
        run.wait(seconds)
        # "once the algorithm has stabilized": Chord takes longer than an interval.
        run.until(run.whole, run.setup.seconds_max)
        subject = before or run.up[key]
        self.contacted.append(len([index for index in run.contacts if index != subject.index]))
        self._told = [run.hosts[index].key for index in run.told if index != subject.index]
        self.announced.append(len(self._told))
        run.contacts = run.told = None

    def _compare(
        self, without: steady.Tree, with_it: steady.Tree, areas: list[int], key: int
    ) -> None:
        old, new = _links(without), _links(with_it)
        changed = [link for link in (*old, *new) if (link in old) != (link in new)]
        self.links.append(len(changed))
        ends = dict.fromkeys(end for link in changed for end in link if end in with_it)
        areas.append(len(steady.area(ends, lambda each: with_it[each][0])))
        self._note(areas is self.joins, without, with_it)
        successor = self.run.truth.owner((key + 1) % (1 << self.run.setup.key_bits))
        moved = {key: None} if successor is None else {key: None, successor.high: None}
        touched = steady.area(ends | moved, lambda each: with_it[each][0])
        self.beyond.append(sum(each not in touched for each in self._told))

    def _note(self, joins: bool, without: steady.Tree, with_it: steady.Tree) -> None:
        after = with_it if joins else without
        self.each.append(
            Reconfiguration(
                what="join" if joins else "leave",
                hosts=len(without if joins else with_it),
                contacted=self.contacted[-1],
                links=self.links[-1],
                area=(self.joins if joins else self.leaves)[-1],
                degree_max=max(
                    (len(children) + (parent is not None) for parent, children in after.values()),
                    default=0,
                ),
            )
        )


def _links(tree: steady.Tree) -> dict[tuple[int, int], None]:
    return {
        (min(key, child), max(key, child)): None
        for key, (_, children) in tree.items()
        for child in children
    }


def grow(
    setup: Setup, progress: Progress = lambda _: None, traces: Traces | None = None
) -> TreeRun:
    """A fabric of the set size, at rest."""
    run = TreeRun(setup)
    run.world.traces = traces
    if setup.hosts <= GROWN_MAX:
        for number in range(setup.hosts):
            run.join(run.free_key())
            run.wait(duration(setup.grow) / 1e6)
            progress(0.3 * number / setup.hosts)
    else:
        keys: dict[int, None] = {}
        while len(keys) < setup.hosts:
            keys[run.free_key()] = None
        run.start_all(list(keys))
    run.until(run.quiet, setup.seconds_max)
    return run


def simulated(setup: Setup, progress: Progress, told: Told, traces: Traces | None) -> Measured:
    run = grow(setup, progress, traces)
    run.until(lambda: not ring(run), setup.seconds_max)
    violations = [] if run.quiet() else ["the network did not come to rest after it had grown"]
    violations += at_rest(run)[:5] if not violations else []
    copies, handed, lookups = run.copies, run.handed_over, _lookups(run)
    changes = Changes(run)
    run.watch.on = _meets_assumptions(run)
    replaced = (
        _churn(run, progress) if setup.churn_per_second else _by_turns(run, changes, progress)
    )
    told(changes)
    quiet = run.until(run.quiet, setup.seconds_max)
    if quiet is None:
        violations.append(f"not whole {setup.seconds_max:g} s after the last change")
    violations += at_rest(run)[:5] if quiet is not None else []
    if quiet is not None:
        run.until(lambda: not ring(run), setup.seconds_max)
        violations += ring(run)[:5]
    violations += [*run.watch.complaints[:5], *deliveries(run)]
    edges, depths = run.edges(), _depths(run.neighbours())
    degree = _histogram([len(near) for near in edges.values()])
    now = _lookups(run)
    reckonings = max(1, now[1] - lookups[1])
    return Measured(
        hosts=setup.hosts, key_bits=setup.key_bits, arity=setup.arity, dht=setup.dht,
        simulated=True,
        is_tree=not shape(edges), degree=degree, degree_max=max(map(int, degree), default=0),
        depth_mean=round(fmean(depths or [0]), 3), depth_max=max(depths, default=0),
        lookups_mean=round((now[0] - lookups[0]) / reckonings, 3), lookups_max=now[2],
        contacted_mean=round(fmean(changes.contacted or [0]), 3),
        contacted_max=max(changes.contacted, default=0),
        announced_mean=round(fmean(changes.announced or [0]), 3),
        links_max=max(changes.links, default=0),
        area_join=Spread.of(changes.joins), area_leave=Spread.of(changes.leaves),
        copies_per_delivery=round((run.copies - copies) / max(1, run.handed_over - handed), 3),
        expected=run.book.expected, delivered=run.book.delivered, missed=run.book.missed,
        duplicate=run.book.duplicate, spurious=run.book.spurious, replaced=replaced,
        messages=run.world.messages, invariants_looked=run.watch.looked,
        seconds_quiet=quiet if quiet is not None else -1.0,
        digest=run.world.digest.hexdigest(), violations=violations,
    )  # fmt: skip


def _meets_assumptions(run: TreeRun) -> bool:
    """Zave's: enough hosts that no change by turns breaks the invariant, and true verdicts."""
    enough = len(run.up) >= 2 * (run.config.successors + 1)
    return (
        run.setup.dht == "chord"
        and enough
        and not run.setup.loss
        and not run.setup.churn_per_second
        and not ring(run)
    )


def _by_turns(run: TreeRun, changes: Changes, progress: Progress) -> int:
    """The seed's setting: a join, after the interval a leave, and so on; publications once each has
    settled.
    """
    setup = run.setup
    interval, whole = duration(setup.interval) / 1e6, duration(setup.measure) / 1e6
    turns = max(2, int(whole / interval))
    publishers = _publishers(run)
    published = 0
    for turn in range(turns):
        progress(0.3 + 0.7 * turn / turns)
        if turn % 2 == 0:
            changes.join(interval * 0.8)
        else:
            keys = [key for key in run.up if key not in publishers]
            if keys:
                changes.leave(keys[run.below(len(keys))], interval * 0.8, fails=turn % 4 == 1)
        while published < setup.events * (turn + 1) // turns:
            run.publish(publishers[list(publishers)[published % len(publishers)]])
            published += 1
        run.wait(interval * 0.2)
    return 0


def _churn(run: TreeRun, progress: Progress) -> int:
    """Hosts are replaced at a steady rate while events are published, and nothing waits."""
    setup = run.setup
    steps = max(1, int(duration(setup.measure) / 100_000))
    publishers = _publishers(run)
    published = replaced = 0
    owed = 0.0
    for step in range(steps):
        progress(0.3 + 0.7 * step / steps)
        while published < setup.events * (step + 1) // steps:
            run.publish(publishers[list(publishers)[published % len(publishers)]])
            published += 1
        owed += setup.hosts * setup.churn_per_second / 10
        while owed >= 1:
            owed -= 1
            keys = [key for key in run.up if key not in publishers]
            if keys:
                run.stop(keys[run.below(len(keys))], leave=replaced % 2 == 0)
                run.join(run.free_key())
                replaced += 1
        run.wait(0.1)
    return replaced


def _publishers(run: TreeRun) -> dict[int, Node]:
    """They stay: what a publisher that has died did not get done, nobody promised."""
    return dict(list(run.up.items())[: run.setup.publishers])


def _lookups(run: TreeRun) -> tuple[int, int, int]:
    hoods = [run.machine(node).hood for node in run.up.values()]
    return (
        sum(h.lookups for h in hoods),
        sum(h.reckoned for h in hoods),
        max((h.lookups_max for h in hoods), default=0),
    )


def _depths(tree: steady.Tree) -> list[int]:
    level = [key for key, (parent, _) in tree.items() if parent is None]
    found: list[int] = []
    depth = 0
    while level and depth <= len(tree):
        found += [depth] * len(level)
        level = [child for key in level for child in tree[key][1] if child in tree]
        depth += 1
    return found


def _histogram(values: list[int]) -> dict[str, int]:
    return {str(value): values.count(value) for value in sorted(dict.fromkeys(values))}


# Steady state.


def at_steady_state(setup: Setup, progress: Progress = lambda _: None) -> Measured:
    rng = Random(f"steady {setup.seed}")
    tree = make_tree(setup.protocol())

    def draw() -> int:
        return (int(rng.random() * 2**53) << 11 | int(rng.random() * 2**11)) >> (
            64 - setup.key_bits
        )

    keys: dict[int, None] = {}
    while len(keys) < setup.hosts:
        keys[draw()] = None
    members = Members(setup.key_bits)
    for place, key in enumerate(sorted(keys)):
        members.add(Host(key, place))
    rest = steady.Rest(tree, members, lambda share: progress(0.7 * share))
    depths, degrees = rest.depths(), rest.degrees()
    joins, leaves = _sampled(
        tree, members, draw, list(keys), lambda share: progress(0.7 + 0.25 * share)
    )
    events = min(setup.events, STEADY_EVENTS_MAX)
    placed = list(rest.links)
    floods = [rest.flood(placed[int(rng.random() * len(placed))]) for _ in range(events)]
    copies, delivered = sum(c for c, _ in floods), sum(d for _, d in floods)
    expected = events * len(placed)
    digest = blake2b(
        msgspec.msgpack.encode([list(rest.links.items()), floods]), digest_size=16
    ).hexdigest()
    contacted = [each.hosts for each in (*joins, *leaves)]
    violations = [] if rest.is_tree() else ["not a tree"]
    return Measured(
        hosts=setup.hosts, key_bits=setup.key_bits, arity=setup.arity, dht="ideal", simulated=False,
        is_tree=rest.is_tree(), degree={str(k): v for k, v in degrees.items()},
        degree_max=max(degrees),
        depth_mean=round(fmean(depths), 3), depth_max=max(depths),
        lookups_mean=round(fmean(rest.lookups), 3), lookups_max=max(rest.lookups),
        contacted_mean=round(fmean(contacted), 3), contacted_max=max(contacted), announced_mean=0.0,
        links_max=max(each.links for each in (*joins, *leaves)),
        area_join=Spread.of([each.area for each in joins]),
        area_leave=Spread.of([each.area for each in leaves]),
        copies_per_delivery=round(copies / max(1, delivered), 3), expected=expected,
        delivered=delivered, missed=expected - delivered, duplicate=0, spurious=0, replaced=0,
        messages=0, invariants_looked=0, seconds_quiet=0.0,
        digest=digest, violations=violations,
    )  # fmt: skip


def _sampled(
    tree: ReferenceTree,
    members: Members,
    draw: Callable[[], int],
    keys: list[int],
    progress: Progress,
) -> tuple[list[steady.Change], list[steady.Change]]:
    """What joins of hosts with random keys would change, and leaves of hosts that are there."""
    joins, leaves = [], []
    for number in range(SAMPLED):
        progress(number / SAMPLED)
        key = draw()
        if key not in members.hosts:
            joins.append(steady.change(tree, members, Host(key, len(keys))))
        host = members.remove(keys[number * len(keys) // SAMPLED])
        assert host is not None
        leaves.append(steady.change(tree, members, host))
        members.add(host)
    return joins, leaves
