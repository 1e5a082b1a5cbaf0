"""Large batches of columns on routes with relays: they are cut into pieces, and the receipts of the
pieces become one.

By route direct up to 32,768 events travel together. By relays it is 4,096, because a report has a
number for each event there. Batches are made to suit the routes that are in use. A batch is larger
if a data directory restores it, or if a node subscribes by another route while the batch is on its
way to the disk. By route direct it stays whole, because a node that took it before a crash knows it
by its first number. Pieces begin at the same numbers in every life.
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from gossamer.node.local import Local
from gossamer.overlay.batch import BATCH_EVENTS_MAX, COLUMN_ROWS, Batch, spread

Counts = tuple[int, ...]
RELAYED_MAX = BATCH_EVENTS_MAX // COLUMN_ROWS


class Pieces:
    def __init__(self, local: Local) -> None:
        self._local = local
        # By the first events of their pieces.
        self.wholes: dict[tuple[int, int], Batch] = {}

    def waits(self, batch: Batch) -> bool:
        """Whether a batch cannot be cut yet: its topic's schema has not come."""
        return batch.count > RELAYED_MAX and not self._local.knows(batch.topic)

    def cut(self, batch: Batch) -> tuple[Batch, ...]:
        if batch.count <= RELAYED_MAX:
            return (batch,)
        packed = self._local.topic(batch.topic).packed
        try:
            record = packed.columns(batch.rows, batch.count)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # It is of another schema, or there is no pyarrow any more. It stays whole.
            return (batch,)
        found = []
        for start in range(0, batch.count, RELAYED_MAX):
            part = record.slice(start, RELAYED_MAX)
            first = batch.first + start
            found.append(
                structs.replace(batch, first=first, count=part.num_rows, rows=packed.pack(part))
            )
            self.wholes[batch.incarnation, first] = batch
        return tuple(found)

    def whole(self, incarnation: int, first: int, counts: Counts) -> tuple[int, Counts]:
        """The receipt of a piece as one of its batch: the first number of the batch, and the
        counts. For events of other pieces the counts are zero.
        """
        batch = self.wholes.get((incarnation, first))
        if batch is None:
            return first, counts
        start = first - batch.first
        count = min(RELAYED_MAX, batch.count - start)
        return batch.first, (
            *(0,) * start,
            *spread(counts or (0,), count),
            *(0,) * (batch.count - start - count),
        )

    def forget(self, incarnation: int, first: int) -> None:
        """A batch's receipt is complete."""
        batch = self.wholes.get((incarnation, first))
        if batch is not None:
            for start in range(0, batch.count, RELAYED_MAX):
                self.wholes.pop((incarnation, batch.first + start), None)
