"""The steps of a run that checkers are told of: each checker only hears of those that it has a method for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gossamer.sim.checkers import Findings


class Hooks:
    """For each step that checkers may be told of, the methods of those that want to be told of it."""

    def __init__(self, kind: type[Findings], names: Iterable[str]) -> None:
        self._kind = kind
        self._told: dict[str, list[Callable[..., None]]] = {name: [] for name in names}

    def add(self, checker: Findings) -> None:
        for name, told in self._told.items():
            if getattr(type(checker), name) is not getattr(self._kind, name):
                told.append(getattr(checker, name))

    def __getitem__(self, name: str) -> list[Callable[..., None]]:
        return self._told[name]
