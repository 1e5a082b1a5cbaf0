"""Where an event goes next (section 3.4): pure decisions of one entry, from what it knows itself.

``spread`` cuts the interval that a walk owns into steps:
    Take      this entry is in the interval; so is nothing else up to the tile's end
    Empty     there is no entry in this part, and both ends of the gap agree on that
    Forward   this part belongs to that entry, which knows more
    Unsure    a neighbour is being replaced: nobody can say yet; to be asked again

"gossamer": links in both directions, around the circle. Where no known entry is in the interval, it lies between two known
ones, and the middle of that span, where it is known, says which of them is nearer: a walk may overshoot. Where several known
entries are in the interval, each gets a part of it at once.
"paper": greedy by comparison alone, never past the goal, on a line; contiguous matches one by one over level 0.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct

from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.position import Position, between


class Take(Struct, frozen=True, gc=False):
    high: Position


class Empty(Struct, frozen=True, gc=False):
    low: Position
    high: Position
    rightward: bool  # the gap at the right of this entry, else the one at its left
    whole: bool  # all of what the walk owned


class Forward(Struct, frozen=True, gc=False):
    to: Position
    low: Position
    high: Position
    bound: Position | None


class Unsure(Struct, frozen=True, gc=False):
    low: Position
    high: Position


Step = Take | Empty | Forward | Unsure


def spread(entry: Entry, low: Position, high: Position, bound: Position | None) -> list[Step]:
    """``bound``: the walk has been there, or knows of it, at the other side of the interval; there is no going back past it."""
    at = entry.at
    if low <= at < high:
        return _inside(entry, low, high)
    empty = _gap(entry, low, high)
    if empty is not None:
        return [empty]
    if entry.config.routing == "paper":
        return [Forward(_greedy(entry, low, high), low, high, None)]
    points, _ = entry.table()
    first, end = bisect_left(points, low), bisect_left(points, high)
    if first < end:
        return _share(points[first:end], low, high)
    to, other = _nearer(entry, low, bound)
    return [Forward(to, low, high, other)]


def toward(
    entry: Entry, place: Position, bound: Position | None
) -> tuple[Position, Position | None] | None:
    """The next entry on the way to the one at the left of a place, and the new bound; None if this is it."""
    at, right = entry.at, entry.right
    if right == at or place in (at, right) or between(at, place, right):
        return None
    return _nearer(entry, place, bound)


def _nearer(
    entry: Entry, place: Position, bound: Position | None
) -> tuple[Position, Position | None]:
    """Of the two known entries around a place the one that is nearer to it, and the other one as the new bound.

    Every step goes strictly between the last entry and its bound, so a walk ends even while the links are being rebuilt.
    """
    at, (points, mids) = entry.at, entry.table()
    first = bisect_left(points, place)
    before, after = points[first - 1], points[first % len(points)]
    if after == place:  # an entry that looks for its own place: what is wanted is before it
        after = points[(first + 1) % len(points)]
    # A known entry beyond the bound is no use: neither to go to, nor as the next bound.
    fresh_before = bound is None or not between(bound, place, at) or between(bound, before, at)
    fresh_after = bound is None or not between(at, place, bound) or between(at, after, bound)
    can_before, can_after = fresh_before and before != at, fresh_after and after not in (at, place)
    mid = mids[first - 1]
    if can_before and can_after:
        can_before = mid is None or _is_left(before, place, mid)
    if can_before:
        return before, after if fresh_after or after == at else bound
    if can_after:
        return after, before if fresh_before or before == at else bound
    return (entry.right if before == at else entry.left), bound


def _is_left(before: Position, place: Position, mid: Position) -> bool:
    """Whether the place comes before the middle of an arc that begins at ``before``."""
    if before < mid:
        return before < place <= mid
    return place > before or place <= mid


def _inside(entry: Entry, low: Position, high: Position) -> list[Step]:
    at, right, left = entry.at, entry.right, entry.left
    steps: list[Step] = []
    points = entry.table()[0] if entry.config.routing == "gossamer" else sorted({at, left, right})
    here, first, end = bisect_left(points, at), bisect_left(points, low), bisect_left(points, high)
    after, before = points[here + 1 : end], points[first:here]
    until = after[0] if after else high
    steps.append(Take(until) if _sure(entry, rightward=True) else Unsure(at, until))
    for number, place in enumerate(after):
        steps.append(
            Forward(place, place, after[number + 1] if number + 1 < len(after) else high, None)
        )
    if before:
        for number, place in enumerate(before):
            until = before[number + 1] if number + 1 < len(before) else at
            steps.append(Forward(place, place if number else low, until, None))
    elif low < at:
        sure = _sure(entry, rightward=False)
        steps.append(Empty(low, at, False, False) if sure else Unsure(low, at))
    return steps


def _sure(entry: Entry, *, rightward: bool) -> bool:
    link = (entry.rights if rightward else entry.lefts)[0]
    return link.sure if link is not None else entry.is_placed


def _gap(entry: Entry, low: Position, high: Position) -> Empty | Unsure | None:
    """The interval lies in one of the gaps beside this entry."""
    at = entry.at
    for rightward, neighbour in ((True, entry.right), (False, entry.left)):
        left, right = (at, neighbour) if rightward else (neighbour, at)
        if left < right:
            within = left < low and high <= right
        else:  # the gap between the last and the first; of a lone entry, everything
            within = left < low or high <= right
        if within:
            return (
                Empty(low, high, rightward, True)
                if _sure(entry, rightward=rightward)
                else Unsure(low, high)
            )
    return None


def _share(places: list[Position], low: Position, high: Position) -> list[Step]:
    """Each of these entries, all of them in the interval, gets the part from itself to the next; the first also what is before."""
    cuts = [low, *places[1:], high]
    return [
        Forward(place, cuts[number], cuts[number + 1], None) for number, place in enumerate(places)
    ]


def _greedy(entry: Entry, low: Position, high: Position) -> Position:
    """As the seed plainly does: the farthest neighbour that is not past the goal."""
    at, points = entry.at, entry.table()[0]
    if at < low:
        first = bisect_left(points, low)
        if first < len(points) and points[first] < high:
            return points[first]  # in the interval: no need to stop before it
        return points[first - 1] if points[first - 1] > at else entry.right
    end = bisect_left(points, high)
    if end and points[end - 1] >= low:
        return points[end - 1]
    return points[end] if points[end] < at else entry.left
