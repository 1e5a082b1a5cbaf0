"""Faults as data: the entries under ``[[fault]]`` of a scenario file, put on the clock.

``at`` counts from the first publication. ``nodes`` names the nodes. Without it, ``share`` of them
is drawn from the seed.
"""

from __future__ import annotations

from random import Random

from msgspec import Struct

from gossamer.sim.clock import duration
from gossamer.sim.rules import Clog, Cut
from gossamer.sim.world import Node, World


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    at: str
    lasts: str
    nodes: tuple[int, ...] = ()
    share: float = 0.25

    def times(self) -> tuple[int, int]:
        """The times when it begins and when it is over."""
        begin = duration(self.at)
        return begin, begin + duration(self.lasts)

    def pick(self, count: int, rng: Random, most: int) -> tuple[int, ...]:
        if self.nodes:
            return tuple(node for node in self.nodes if node < count)
        order = sorted(range(count), key=lambda _: rng.random())
        return tuple(order[: max(1, min(most, round(count * self.share)))])


class Partition(Fault, frozen=True, kw_only=True, tag="partition", tag_field="kind"):
    """Messages between these nodes and the others are lost."""

    share: float = 0.4
    # Only messages from these nodes to the others are lost.
    one_way: bool = False
    # No link breaks. Messages vanish and nobody is told.
    silent: bool = False


class Clogging(Fault, frozen=True, kw_only=True, tag="clog", tag_field="kind"):
    """Messages to and from these nodes are held, then arrive in one burst."""


class Swizzle(Fault, frozen=True, kw_only=True, tag="swizzle", tag_field="kind"):
    """Swizzle-clogging: clog these nodes one by one, then unclog them in another order."""

    share: float = 0.5


class Crash(Fault, frozen=True, kw_only=True, tag="crash", tag_field="kind"):
    """The processes die, and their writes are torn. After ``lasts`` they start again.

    ``lasts = "0s"`` means that they stay down.
    """

    share: float = 0.1
    # The hosts are gone, too, and nobody is told (dialled links only).
    silent: bool = False
    # The nodes come back with empty disks.
    wipe: bool = False


class Leave(Fault, frozen=True, kw_only=True, tag="leave", tag_field="kind"):
    """The nodes say goodbye and go. After ``lasts`` they come back.

    ``lasts = "0s"`` means that they stay away.
    """

    share: float = 0.01


class Pause(Fault, frozen=True, kw_only=True, tag="pause", tag_field="kind"):
    """The processes stand still (SIGSTOP), then go on."""

    share: float = 0.1


class FullDisk(Fault, frozen=True, kw_only=True, tag="disk-full", tag_field="kind"):
    """A write that somebody waits for is refused. Any other is done when there is room again."""

    share: float = 0.25


AnyFault = Partition | Clogging | Swizzle | Crash | Leave | Pause | FullDisk


def schedule(fault: AnyFault, world: World, start: int, rng: Random) -> int:
    """Put a fault on the clock. Returns the time when it is over."""
    begin, end = fault.times()
    begin, end = start + begin, start + end
    call = world.clock.call
    chosen = fault.pick(
        len(world.nodes),
        rng,
        len(world.nodes) - 1 if isinstance(fault, Partition) else len(world.nodes),
    )
    if isinstance(fault, Partition):
        cut = Cut(chosen, one_way=fault.one_way)
        call(begin, lambda: world.cut(cut, silent=fault.silent))
        call(end, lambda: world.heal(cut, silent=fault.silent))
    elif isinstance(fault, Clogging):
        _clog(world, chosen, begin, end)
    elif isinstance(fault, Swizzle):
        # The first half of the time clogs, the second half releases in an order of its own.
        half = (end - begin) // 2
        for node in chosen:
            _clog(world, (node,), begin + int(half * rng.random()), end - int(half * rng.random()))
    else:
        for index in chosen:
            _stop(fault, world, world.nodes[index], begin, end)
    return end


def _clog(world: World, nodes: tuple[int, ...], begin: int, end: int) -> None:
    clog = Clog(nodes)
    world.clock.call(begin, lambda: world.clog(clog))
    world.clock.call(end, lambda: world.unclog(clog))


def _stop(
    fault: Crash | Leave | Pause | FullDisk, world: World, node: Node, begin: int, end: int
) -> None:
    call = world.clock.call
    if isinstance(fault, Crash | Leave):
        call(
            begin,
            lambda: (
                world.crash(node, silent=fault.silent)
                if isinstance(fault, Crash)
                else world.leave(node)
            ),
        )
        if end > begin:
            call(end, lambda: world.restart(node, wipe=isinstance(fault, Crash) and fault.wipe))
    elif isinstance(fault, Pause):
        call(begin, lambda: world.pause(node))
        call(end, lambda: world.resume(node))
    else:
        call(begin, lambda: world.fill_disk(node))
        call(end, lambda: world.drain_disk(node))
