"""The subscriptions of one node in one list, from a filter to the moment when its events are due.

A subscription is **ready** when all entries at its keys have joined and every publisher knows the
classes of those keys. Until then an event might not look there. The owner of the list spreads
``announced`` (a node does so with the interest record), and says ``confirmed`` when every node has
it (the barrier). Places move when a node's filters have become too many. Then the old entries stay
until each subscription is ready at the new ones, and the old classes stay announced until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gossamer.filters.filter import Filter
from gossamer.filters.place import Class
from gossamer.machine import Micros
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.places import Places


class Subscriber:
    def __init__(self, machine: SkipList, places: Places) -> None:
        self.machine, self.places, self.classes = machine, places, places.classes
        # These subscriptions are ready, each at its keys.
        self._served: dict[int, tuple[bytes, ...]] = {}
        # These subscriptions are not ready at the keys that they have now.
        self._waiting: dict[int, None] = {}
        self._news: list[int] = []
        # Each entry has its class here, also an entry that is to go.
        self._class_of: dict[bytes, Class] = {}

    @property
    def filters(self) -> dict[int, Filter]:
        return self.places.filters

    @property
    def announced(self) -> tuple[Class, ...]:
        """The classes that every publisher must know this node to use."""
        return self.classes.own

    def subscribe(self, number: int, filter: Filter, now: Micros) -> None:
        if number in self.filters:
            raise ValueError(f"subscription {number} is there already")
        _, withdrawn = self.places.add(number, filter)
        moved = bool(withdrawn) or bool(self.places.until)
        touched = list(self.filters) if moved else [number]
        self._waiting.update(dict.fromkeys(touched))
        self._enter(self.places.keys if moved else self.places.keys_of(number), now)
        self._settle(touched, now)

    def unsubscribe(self, number: int, now: Micros) -> None:
        self.places.remove(number)
        self._waiting.pop(number, None)
        self._served.pop(number, None)
        self._news = [other for other in self._news if other != number]
        self._sweep(now)

    def renew(self, now: Micros) -> None:
        """Let the entries join anew, with the classes that they have, because other nodes have
        forgotten this one. No subscription is ready before.
        """
        self._served.clear()
        self._news.clear()
        self._class_of.clear()
        self._waiting = dict.fromkeys(self.filters)
        self.classes.unsettle()
        for key in list(self.machine.entries):
            self.machine.withdraw(key, now)
        self._sweep(now)
        self._settle(list(self._waiting), now)

    def joined(self, now: Micros) -> None:
        """Note that an entry of this node has joined."""
        self._settle(list(self._waiting), now)

    def confirmed(self, classes: Iterable[Class], now: Micros) -> None:
        """Note that every publisher knows that this node uses these classes. ``announced`` had them
        when the owner asked.
        """
        self.classes.confirm(classes)
        self._settle(list(self._waiting), now)

    def ready(self) -> list[int]:
        """Return the subscriptions that have become ready since the last call."""
        news, self._news = self._news, []
        return news

    def matching(self, row: tuple[Any, ...]) -> list[int]:
        """Return the subscriptions that take an event that has come to any entry of this node."""
        return self.places.matching(row)

    def answer(self, key: bytes, row: tuple[Any, ...] | None) -> list[tuple[int, str]]:
        """Answer a look-up that has come to this entry with its subscriptions, or with those of
        them that want the event.
        """
        found = [
            number
            for number in self.places.at(key)
            if row is None or self.filters[number].matches_row(row)
        ]
        return [(number, self.filters[number].text) for number in found]

    # -------------------------------------------------------------------------- inside

    def _enter(self, keys: Iterable[bytes], now: Micros) -> None:
        entries, most = self.machine.entries, self.machine.config.entries_max
        for key in keys if not self.machine.has_left else ():
            until = self.places.until.get(key)
            if key in entries:
                self.machine.extend(key, until, now)
            # If there is no room, the entry comes when an old one has gone.
            elif len(entries) < most:
                self.machine.enter(key, now, until)
                self._class_of[key] = self.places.class_of[key]

    def _settle(self, numbers: list[int], now: Micros) -> None:
        entries, class_of = self.machine.entries, self.places.class_of
        moved = False
        for number in numbers:
            keys = self.places.keys_of(number)
            if all(
                key in entries and entries[key].is_joined and self.classes.is_settled(class_of[key])
                for key in keys
            ):
                del self._waiting[number]
                if number not in self._served:
                    self._news.append(number)
                moved = moved or self._served.get(number, ()) != tuple(keys)
                self._served[number] = tuple(keys)
        if moved:
            self._sweep(now)

    def _sweep(self, now: Micros) -> None:
        """Withdraw the entries that no subscription relies on, and enter those that had no room."""
        entries, wanted = self.machine.entries, self.places.keys
        if len(entries) > len(wanted):
            relied = {key for keys in self._served.values() for key in keys}
            for key in [key for key in entries if key not in wanted and key not in relied]:
                self.machine.withdraw(key, now)
                del self._class_of[key]
        self._enter(wanted, now)
        used = dict.fromkeys((*self._class_of.values(), *self.places.class_of.values()))
        for cls in [cls for cls in self.classes.own if cls not in used]:
            self.classes.retire(cls)
