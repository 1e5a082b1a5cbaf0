"""Tiles of an interval, and events that walk together.

Events of one publisher that look in the same interval take exactly the same way, so one ``Carry`` has all of them: the first as
if it were alone, the others beside it. A tile has the count of the first, and those of the others: one for each, or one number
that is that of each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from gossamer.overlay.batch import DISCARDED, bounded, joined, parted
from gossamer.overlay.skiplist.messages import (
    NUMBER_MAX,
    PAYLOAD_MAX,
    TILES_MAX,
    TOGETHER_MAX,
    Carry,
    Tile,
)
from gossamer.overlay.skiplist.position import Interval, Position
from gossamer.overlay.skiplist.receipts import Publication

TOGETHER_BYTES = 1 << 20  # of events that walk together, unless one alone has more
TILES_BYTES = 2 << 20  # of one report, roughly: it must fit a frame, whatever peers have said


def is_sound(message: Carry) -> bool:
    """Whether what a peer says of the others can be: they come after the first, in order, there is something of each, and all
    of it together is not more than one event may be, so that it can be sent on.
    """
    numbers = (message.sequence, *message.others)
    size = len(message.payload) + sum(map(len, message.payloads))
    return (
        size <= PAYLOAD_MAX
        and len(message.others) == len(message.payloads)
        and all(a < b for a, b in pairwise(numbers))
    )


def tile_of(message: Carry, low: Position, high: Position, counts: Sequence[int]) -> Tile:
    """So many took the events of a walk there."""
    others = _brief(tuple(counts[1:])) if message.others else None
    return Tile(low, high, counts[0], message.hops, 0, others)


def suits(tile: Tile, message: Carry) -> bool:
    """Whether a tile has as many counts as the walk has events."""
    if tile.others is None or not message.others:
        return tile.others is None and not message.others
    return len(tile.others) in (1, len(message.others))


def count_at(tile: Tile, place: int) -> int:
    """Of one event of the walk."""
    if not place:
        return tile.matched
    assert tile.others is not None
    return tile.others[place - 1 if len(tile.others) > 1 else 0]


def as_sent(tile: Tile) -> Tile:
    """A tile as it travels, with what was matched and what was dropped apart."""
    if tile.matched < DISCARDED and (not tile.others or max(tile.others) < DISCARDED):
        return tile
    matched, dropped = parted((tile.matched, *(tile.others or ())))
    others = matched[1:] if tile.others is not None else None
    return Tile(tile.low, tile.high, matched[0], tile.hops, tile.noise, others, dropped)


def as_counted(tile: Tile) -> Tile | None:
    """A tile as it came, with its counts as this node counts; None if they do not fit each other."""
    if not tile.dropped:
        return tile
    counts = joined((tile.matched, *(tile.others or ())), tile.dropped)
    if counts is None:
        return None
    others = counts[1:] if tile.others is not None else None
    return Tile(tile.low, tile.high, counts[0], tile.hops, tile.noise, others)


def merge_tiles(tiles: list[Tile], noise: int) -> tuple[Tile, ...]:
    """Fewer tiles: those that touch become one. The noise of the node itself goes with the first."""
    merged: list[Tile] = []
    run: list[Tile] = []  # that touch
    for tile in sorted(tiles, key=lambda tile: (tile.low, tile.high)):
        if run and run[-1].high == tile.low:
            run.append(tile)
        elif not run or run[-1].high <= tile.low:
            merged += _one(run)
            run = [tile]
    merged += _one(run)
    if merged and noise:
        first = merged[0]
        passed = min(first.noise + noise, NUMBER_MAX)
        merged[0] = Tile(first.low, first.high, first.matched, first.hops, passed, first.others)
    return tuple(merged)


Settled = tuple[list[Tile], list[Interval]]
"""Tiles that count, and what is missing beside them."""


def settle(tiles: Sequence[Tile], message: Carry, room: int) -> Settled:
    """What merged tiles make of the interval of a walk. When they leave more pieces of it than there is room for, those that come
    later do not count: all after them is one piece, and will be asked for again.
    """
    counted: list[Tile] = []
    missing: list[Interval] = []
    done = message.low
    for tile in tiles:
        if done < tile.low:
            if len(missing) >= room:
                break
            missing.append((done, tile.low))
        counted.append(tile)
        done = tile.high
    if done < message.high:
        missing.append((done, message.high))
    return counted, missing


def reportable(tiles: Sequence[Tile]) -> tuple[Tile, ...]:
    """As many as a report has room for; what is left out will be asked for again."""
    sizes = accumulate(
        [
            40
            + len(tile.low[0])
            + len(tile.high[0])
            + 5 * len(tile.others or ())
            + 5 * len(tile.dropped)
            for tile in tiles[:TILES_MAX]
        ]
    )
    return tuple(tiles[: bisect_right(list(sizes), TILES_BYTES)])


def together(publications: Sequence[Publication]) -> Iterator[list[Publication]]:
    """Publications that look in the same interval, in parts that may walk together."""
    part: list[Publication] = []
    size = 0
    for publication in sorted(publications, key=lambda one: one.sequence):
        size += len(publication.payload)
        if part and (len(part) >= TOGETHER_MAX or size > TOGETHER_BYTES):
            yield part
            part, size = [], len(publication.payload)
        part.append(publication)
    if part:
        yield part


def _one(run: list[Tile]) -> list[Tile]:
    """One tile for all of these, if there are any."""
    if len(run) < 2:
        return run
    matched = bounded(sum([tile.matched for tile in run]))
    noise = min(sum([tile.noise for tile in run]), NUMBER_MAX)
    others = _sum([tile.others for tile in run if tile.others is not None])
    return [
        Tile(run[0].low, run[-1].high, matched, max([tile.hops for tile in run]), noise, others)
    ]


def _sum(several: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Counts of the same events together. It costs no more than there are numbers in them: a peer may send very many of one."""
    if not several:
        return None
    alike = sum([counts[0] for counts in several if len(counts) == 1])
    each = [counts for counts in several if len(counts) > 1]
    return _brief(
        tuple(
            [bounded(alike + sum(counts)) for counts in zip(*each, strict=True)] or [bounded(alike)]
        )
    )


def _brief(counts: tuple[int, ...]) -> tuple[int, ...]:
    """As they travel: most often all are the same."""
    return counts[:1] if counts.count(counts[0]) == len(counts) else counts
