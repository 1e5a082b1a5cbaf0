"""Look-ups on a Chord ring, one step at a time: ask a host, be told of nearer ones, until the owner
answers for itself.

The asking host keeps the way in its own hands, so a host that dies on the way costs one repetition
and not the look-up.
"""

from __future__ import annotations

from collections.abc import Callable

from gossamer.machine import NEVER, Micros, Peer
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import Find, Nearer, Owner

# More than any ring needs; a circle of liars ends here.
STEPS_MAX = 128
LOOKUPS_MAX = 1024


class Lookup:
    __slots__ = ("asked", "at", "key", "purpose", "steps", "tried", "tries", "ways")

    def __init__(self, key: int, purpose: str, ways: list[Host]) -> None:
        self.key, self.purpose = key, purpose
        # Hosts to ask, the best last.
        self.ways = ways
        self.asked: Host | None = None
        self.tried: dict[int, None] = {}
        self.at = NEVER
        self.tries = self.steps = 0


class Lookups:
    """Those under way.

    ``done`` is told the purpose, the key, and the owner's arc, or None if nobody knew.
    """

    def __init__(
        self,
        me: Host,
        config: TreeConfig,
        links: Links,
        done: Callable[[str, int, Arc | None, Micros], None],
    ) -> None:
        self._me, self._config, self._links, self._done = me, config, links, done
        self._under_way: dict[int, Lookup] = {}
        self._token = 0
        self.deadline = NEVER

    def start(self, key: int, purpose: str, ways: list[Host], now: Micros) -> None:
        if len(self._under_way) >= LOOKUPS_MAX:
            self._done(purpose, key, None, now)
            return
        self._token += 1
        lookup = self._under_way[self._token] = Lookup(
            key, purpose, [host for host in ways if host.peer != self._me.peer]
        )
        self._next(self._token, lookup, now)

    def busy(self, purpose: str) -> bool:
        return any(lookup.purpose == purpose for lookup in self._under_way.values())

    def receive(self, sender: Peer, message: Owner | Nearer, now: Micros) -> bool:
        """Returns whether the message was expected."""
        lookup = self._under_way.get(message.token)
        if lookup is None or lookup.asked is None or lookup.asked.to != sender:
            return False
        if type(message) is Owner:
            if message.arc.host.to != sender or not message.arc.has(lookup.key):
                # It answers for keys that it does not own, or was not asked for.
                return False
            del self._under_way[message.token]
            self._done(lookup.purpose, lookup.key, message.arc, now)
        elif type(message) is Nearer:
            fresh = [
                h for h in message.hosts if h.peer not in lookup.tried and h.peer != self._me.peer
            ]
            lookup.ways += reversed(fresh)
            self._next(message.token, lookup, now)
        return True

    def failed(self, peer: Peer, now: Micros) -> None:
        """Nobody lives there: whoever was asked there is asked no more."""
        for token, lookup in list(self._under_way.items()):
            if lookup.asked is not None and lookup.asked.to == peer and token in self._under_way:
                self._next(token, lookup, now)

    def wake(self, now: Micros) -> None:
        if now < self.deadline:
            return
        for token, lookup in list(self._under_way.items()):
            if lookup.at <= now and token in self._under_way:
                if lookup.tries < self._config.answer_tries and lookup.asked is not None:
                    self._ask(token, lookup, lookup.asked, now)
                else:
                    self._next(token, lookup, now)
        self.deadline = min((lookup.at for lookup in self._under_way.values()), default=NEVER)

    def _next(self, token: int, lookup: Lookup, now: Micros) -> None:
        lookup.tries = 0
        lookup.steps += 1
        while lookup.ways and lookup.steps <= STEPS_MAX:
            host = lookup.ways.pop()
            if host.peer not in lookup.tried:
                lookup.tried[host.peer] = None
                self._ask(token, lookup, host, now)
                return
        del self._under_way[token]
        self._done(lookup.purpose, lookup.key, None, now)

    def _ask(self, token: int, lookup: Lookup, host: Host, now: Micros) -> None:
        lookup.asked = host
        lookup.tries += 1
        lookup.at = Micros(now + self._config.answer)
        self.deadline = min(self.deadline, lookup.at)
        self._links.send(host, Find(token, lookup.key), now)
