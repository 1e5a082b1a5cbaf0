"""Which classes are in use, and when each node gets to know: what the interest plane does for the
skip list in a node.

News of a class reaches each node within ``delay``, one sooner and the other later; after it,
everybody knows (the barrier). A node that starts gets all that anybody knows, as a newcomer gets
the whole view.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.filters.place import Class
from gossamer.machine import Micros

# Of the delay: a prime, so that nodes and classes spread over it.
STEPS = 1_009


class Directory:
    def __init__(self, delay: Micros) -> None:
        self._delay = delay
        self._of_node: dict[int, tuple[Class, ...]] = {}
        self._uses: dict[Class, int] = {}
        # When it was announced, and the how manieth class it is.
        self._since: dict[Class, tuple[Micros, int]] = {}
        self._started: dict[int, Micros] = {}
        self._number = 0

    def started(self, node: int, now: Micros) -> None:
        self._started[node] = now
        self.announce(node, (), now)

    def announce(self, node: int, classes: Sequence[Class], now: Micros) -> None:
        """The node uses these, and no others any longer."""
        before = self._of_node.get(node, ())
        self._of_node[node] = tuple(classes)
        for cls in classes:
            self._uses[cls] = self._uses.get(cls, 0) + 1
            if cls not in self._since:
                self._number += 1
                self._since[cls] = (now, self._number)
        for cls in before:
            self._uses[cls] -= 1
            if not self._uses[cls]:
                del self._uses[cls], self._since[cls]

    def known(self, node: int, now: Micros) -> list[Class]:
        """What this node has heard of."""
        started = self._started.get(node, Micros(0))
        found = []
        for cls, (since, number) in self._since.items():
            late = self._delay * ((node * 613 + number * 89) % STEPS) // STEPS
            if since <= started or since + late <= now:
                found.append(cls)
        return found

    def known_to_all_at(self, classes: Sequence[Class]) -> Micros:
        return Micros(max((self._since[cls][0] + self._delay for cls in classes), default=0))
