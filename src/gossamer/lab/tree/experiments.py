"""Experiments beside the seed's own: two rings that meet, and the failure of the root beside that
of a rendezvous tree.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import cast

from msgspec import Struct

from gossamer.lab.tree.checkers import at_rest, deliveries
from gossamer.lab.tree.chord import Chord
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.measure import grow
from gossamer.lab.tree.run import TreeRun, truth
from gossamer.lab.tree.steady import Tree
from gossamer.overlay.tree.arcs import between, within
from gossamer.overlay.tree.ring import Members

Progress = Callable[[float], None]
# Between looks.
STEP = 250_000
MERGE_MAX = 120.0


class Merged(Struct, frozen=True, kw_only=True):
    """Two rings that met."""

    hosts: int
    # Virtual seconds from their meeting until there is one ring; -1: never.
    seconds_ring: float
    # The same until there is one tree.
    seconds_tree: float
    # The same in rounds of stabilisation.
    rounds_ring: float
    rounds_tree: float
    log2_hosts: float
    messages: int
    # The messages until they met.
    messages_before: int
    digest: str
    violations: list[str]

    @property
    def good(self) -> bool:
        return not self.violations


def merge(setup: Setup, progress: Progress = lambda _: None) -> Merged:
    """Two formed rings of half the hosts each; one host of one hears of one of the other."""
    run = TreeRun(setup)
    keys: dict[int, None] = {}
    while len(keys) < setup.hosts:
        keys[run.free_key()] = None
    listed = list(keys)
    halves = listed[: setup.hosts // 2], listed[setup.hosts // 2 :]
    run.start_all(*halves)
    members = [Members(setup.key_bits, [run.truth.hosts[key] for key in half]) for half in halves]

    def formed() -> bool:
        reckoned = run.neighbours()
        return all(
            reckoned.get(key) == near
            for each in members
            for key, near in truth(run.tree, each).items()
        )

    violations = (
        []
        if run.until(formed, setup.seconds_max) is not None
        else ["the two rings have not formed their trees"]
    )
    before = run.world.messages
    progress(0.2)
    node = run.up[halves[0][0]]
    cast(Chord, run.machine(node).ring).meet(run.truth.hosts[halves[1][0]], run.world.clock.now)
    start = run.world.clock.now
    run.world.command(node)
    took: list[float] = []
    looks: tuple[Callable[[], bool], ...] = (lambda: one_ring(run), run.whole)
    for done in looks:
        run.until(done, MERGE_MAX, STEP)
        took.append((run.world.clock.now - start) / 1e6 if done() else -1.0)
        progress(0.2 + 0.4 * len(took))
    violations += [
        text
        for text, seconds in zip(("not one ring", "not one tree"), took, strict=True)
        if seconds < 0
    ]
    period = run.config.stabilise / 1e6
    return Merged(
        hosts=setup.hosts, seconds_ring=took[0], seconds_tree=took[1],
        rounds_ring=round(took[0] / period, 2), rounds_tree=round(took[1] / period, 2),
        log2_hosts=round(log2(setup.hosts), 2), messages=run.world.messages - before,
        messages_before=before, digest=run.world.digest.hexdigest(), violations=violations,
    )  # fmt: skip


def one_ring(run: TreeRun) -> bool:
    """First successors and predecessors are those of all hosts together."""
    keys = sorted(run.up)
    for place, key in enumerate(keys):
        chord = cast(Chord, run.machine(run.up[key]).ring)
        if chord.predecessor is None or chord.predecessor.key != keys[place - 1]:
            return False
        if not chord.successors or chord.successors[0].key != keys[(place + 1) % len(keys)]:
            return False
    return True


class RootFailure(Struct, frozen=True, kw_only=True):
    """The root is gone: what that means here, and in a rendezvous tree (the seed's section 5)."""

    hosts: int
    # Hosts that heard of it.
    contacted: int
    links_changed: int
    # Virtual seconds until the tree is whole.
    seconds: float
    missed: int
    # Hosts that start a new join procedure: all of them.
    rendezvous_rejoining: int
    rendezvous_links_changed: int
    rendezvous_degree_max: int
    digest: str
    violations: list[str]

    @property
    def good(self) -> bool:
        return not self.violations


def root_failure(setup: Setup, progress: Progress = lambda _: None) -> RootFailure:
    run = grow(setup, progress)
    progress(0.7)
    before = run.neighbours()
    root = next(key for key, (parent, _) in before.items() if parent is None)
    old = rendezvous(run.truth)
    others = [node for key, node in run.up.items() if key != root]
    run.contacts = {}
    # Under way when it happens.
    run.publish(others[0])
    start = run.world.clock.now
    run.stop(root)
    violations = (
        []
        if run.until(run.agreed, setup.seconds_max, 10_000) is not None
        else ["the tree is not whole again"]
    )
    seconds = (run.world.clock.now - start) / 1e6
    run.publish(others[-1])
    if run.until(run.quiet, setup.seconds_max) is None:
        violations.append("not at rest again")
    else:
        violations += at_rest(run)[:5]
    violations += deliveries(run)
    new = rendezvous(run.truth)
    after = _links(run.neighbours())
    links = _links(before)
    return RootFailure(
        hosts=setup.hosts, contacted=len(run.contacts),
        links_changed=len(links.keys() ^ after.keys()),
        seconds=seconds, missed=run.book.missed, rendezvous_rejoining=len(new),
        rendezvous_links_changed=sum(old.get(key) != parent for key, parent in new.items()),
        rendezvous_degree_max=max((list(new.values()).count(key) for key in new), default=0),
        digest=run.world.digest.hexdigest(), violations=violations,
    )  # fmt: skip


def _links(tree: Tree) -> dict[tuple[int, int], None]:
    return {
        (min(key, child), max(key, child)): None
        for key, (_, children) in tree.items()
        for child in children
    }


def rendezvous(members: Members, key: int = 0) -> dict[int, int | None]:
    """Each host's parent when all route to one key over Chord's fingers: the next host on the way,
    None for the root.
    """
    found: dict[int, int | None] = {}
    size = 1 << members.bits
    root = members.owner(key)
    for host in members.keys:
        arc = members.owner(host)
        assert arc is not None
        assert root is not None
        if host == root.high:
            found[host] = None
            continue
        after = members.owner((host + 1) % size)
        assert after is not None
        best = after.high
        if not within(host, key, best):
            for exponent in range(members.bits):
                finger = members.owner((host + (1 << exponent)) % size)
                assert finger is not None
                if (
                    between(host, finger.high, key)
                    and (key - finger.high) % size < (key - best) % size
                ):
                    best = finger.high
        found[host] = best
    return found
