"""The steps of a run that checkers may hear of.

Each checker hears only of those that it has a method for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gossamer.sim.checkers import Findings


class Hooks:
    """For each step, the methods of the checkers that want to hear of it."""

    def __init__(self, kind: type[Findings], names: Iterable[str]) -> None:
        self._kind = kind
        self._told: dict[str, list[Callable[..., None]]] = {name: [] for name in names}

    def add(self, checker: Findings) -> None:
        for name, told in self._told.items():
            if getattr(type(checker), name) is not getattr(self._kind, name):
                told.append(getattr(checker, name))

    def __getitem__(self, name: str) -> list[Callable[..., None]]:
        return self._told[name]
