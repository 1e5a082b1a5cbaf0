"""The types of the extension that _native.pyx compiles to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

VERSION: int
Row = tuple[Any, ...]

class Weighed:
    size: int

class Shape:
    def __init__(
        self,
        names: tuple[str, ...],
        types: Iterable[str],
        required: Iterable[bool],
        event: Callable[..., Any],
    ) -> None: ...
    def rows(self, mappings: Iterable[Any], slow: Callable[[Any], Row]) -> list[Row]: ...
    def lane(
        self,
        value_bytes: int,
        topic: str,
        publication: Weighed,
        rows: list[Row],
        ticket: Callable[[Any, int], Any],
        most: int,
        most_bytes: int,
        heavy: int,
    ) -> Callable[[str, Mapping[str, Any]], Any]: ...
    def decode(self, data: bytes | bytearray | memoryview) -> list[Row] | None: ...
    def events(
        self, topic: str, publisher: int, incarnation: int, numbers: Sequence[int], rows: list[Row]
    ) -> list[Any] | None: ...

def shares(
    rows: list[Row],
    where: tuple[int, ...],
    known: dict[Any, tuple[int, ...]],
    answer: Callable[[Row], tuple[int, ...]],
    takers: int,
) -> list[list[int]]: ...

class Passing:
    def __init__(
        self,
        tests: tuple[tuple[int, int, int, int, frozenset[Any]], ...],
        slow: Callable[..., list[int]],
    ) -> None: ...
    def __call__(self, rows: Sequence[Row]) -> list[int]: ...

class Cutter:
    def __init__(self, data: bytes) -> None: ...
    def cut(self, places: Sequence[int]) -> bytes | None: ...

def tally(total: list[int], places: Sequence[int], matched: tuple[int, ...]) -> None: ...
def ascends(places: tuple[int, ...]) -> bool: ...
def shifted(places: Sequence[int], by: int) -> list[int]: ...
def lend(file: int, size: int, stamp: int) -> None: ...
def fence() -> None: ...

class Mapped:
    def __init__(self, file: int, size: int) -> None: ...

def place(data: Any) -> tuple[int, int] | None: ...
