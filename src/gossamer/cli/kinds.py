"""The kinds of an option's value. A kind reads text (a flag, a variable) or TOML, and shows a value
again.

Each kind raises ``ValueError``, or a group of them, with the fault and the right form. The caller
adds the place.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from gossamer.filters import Schema, SchemaError
from gossamer.node.retention import Retention, RetentionError

_BYTES = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
}


class Kind:
    """Plain text."""

    metavar = "TEXT"
    # True for a flag that may be given several times.
    many = False

    def text(self, given: str) -> Any:
        """Read a flag or an environment variable."""
        return given

    def value(self, given: Any) -> Any:
        """Read a value from TOML."""
        if not isinstance(given, str):
            raise ValueError(f"{given!r} is not text; write it in quotes")
        return self.text(given)

    def show(self, value: Any) -> Any:
        """The value in the form of JSON and TOML."""
        return value


class Address(Kind):
    """A host:port. A bare port is on this machine alone."""

    metavar = "HOST:PORT"

    def __init__(self, *, bare_port: bool = False) -> None:
        self._bare_port = bare_port

    def text(self, given: str) -> str:
        from gossamer.net.dialler import parse_address

        given = given.strip()
        if self._bare_port and re.fullmatch(":?[0-9]{1,5}", given):
            given = f"127.0.0.1:{given.removeprefix(':')}"
        if given:
            parse_address(given)
        return given


class Addresses(Address):
    """Several addresses: a repeated flag, a list in TOML, or words between commas or spaces in a
    variable.
    """

    many = True

    def text(self, given: str) -> tuple[str, ...]:  # type: ignore[override]
        one = super().text
        return tuple(one(part) for part in re.split(r"[\s,]+", given) if part)

    def value(self, given: Any) -> tuple[str, ...]:
        if isinstance(given, str):
            return self.text(given)
        if not isinstance(given, list) or not all(isinstance(part, str) for part in given):
            raise ValueError(f'{given!r} is not a list of addresses; write ["host:port", ...]')
        return tuple(address for part in given for address in self.text(part))

    def show(self, value: Any) -> Any:
        return list(value)


class Directory(Kind):
    metavar = "DIR"

    def text(self, given: str) -> Path | None:
        return Path(given) if given else None

    def show(self, value: Any) -> Any:
        return str(value) if value is not None else ""


class Count(Kind):
    """A whole number within limits."""

    metavar = "N"

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def text(self, given: str) -> int:
        try:
            number = int(given.replace("_", ""))
        except ValueError:
            raise ValueError(f"{given!r} is not a whole number") from None
        return self.value(number)

    def value(self, given: Any) -> int:
        if not isinstance(given, int) or isinstance(given, bool):
            raise ValueError(f"{given!r} is not a whole number")
        if not self.low <= given <= self.high:
            raise ValueError(f"{given} must be from {self.low} to {self.high}")
        return given


class Bytes(Count):
    """A size, such as 1048576 or "1 MiB"."""

    metavar = "BYTES"

    def text(self, given: str) -> int:
        found = re.fullmatch(r"\s*([0-9_]+)\s*([A-Za-z]*)\s*", given)
        if found is None or found[2].lower() not in _BYTES:
            raise ValueError(f"{given!r} is not a size; write bytes, or for example 32MiB")
        return super().value(int(found[1].replace("_", "")) * _BYTES[found[2].lower()])

    def value(self, given: Any) -> int:
        return self.text(given) if isinstance(given, str) else super().value(given)


class Seconds(Kind):
    metavar = "SECONDS"

    def __init__(self, most: float = math.inf, *, least: float = 0.0) -> None:
        self.least, self.most = least, most

    def text(self, given: str) -> float:
        try:
            seconds = float(given)
        except ValueError:
            raise ValueError(f"{given!r} is not a number of seconds") from None
        return self.value(seconds)

    def value(self, given: Any) -> float:
        if (
            not isinstance(given, (int, float))
            or isinstance(given, bool)
            or not 0 <= given < math.inf
        ):
            raise ValueError(f"{given!r} is not a number of seconds")
        if given > self.most:
            raise ValueError(f"{given:g} seconds is too long, and must be at most {self.most:g}")
        if given < self.least:
            raise ValueError(f"{given:g} seconds is too short, and must be at least {self.least:g}")
        return float(given)


class Keeps(Kind):
    """An age, a size or both, such as "1h, 64MB"."""

    metavar = "RETENTION"

    def text(self, given: str) -> str:
        return Retention.parse(given).text if given else ""


class YesNo(Kind):
    metavar = ""

    def text(self, given: str) -> bool:
        word = given.strip().lower()
        if word in ("1", "true", "yes", "on"):
            return True
        if word in ("0", "false", "no", "off", ""):
            return False
        raise ValueError(f"{given!r} is neither yes nor no; write true or false")

    def value(self, given: Any) -> bool:
        if not isinstance(given, bool):
            raise ValueError(f"{given!r} is neither true nor false")
        return given


class Choice(Kind):
    def __init__(self, *choices: str) -> None:
        self.choices = choices
        self.metavar = "|".join(choices)

    def text(self, given: str) -> str:
        word = given.strip().lower()
        if word not in self.choices:
            raise ValueError(f"{given!r} must be one of {', '.join(self.choices)}")
        return word


class Topics(Kind):
    """Topics by name, each (schema, retention).

    The text is NAME=SCHEMA or NAME=SCHEMA @ RETENTION. In TOML it is ``[topics]`` with ``name =
    "schema"``, or ``[topics.name]`` with ``schema`` and ``retention``.
    """

    metavar = "NAME=SCHEMA"
    many = True

    def text(self, given: str) -> dict[str, tuple[str, str]]:
        found = {}
        for part in filter(None, (part.strip() for part in re.split(r"[;\n]", given))):
            name, equals, about = part.partition("=")
            if not equals:
                raise ValueError(
                    f"{part!r} is not a topic; write NAME=SCHEMA, "
                    'for example "weather=city STRING, temp INT"'
                )
            schema, _, retention = about.partition("@")
            found[name.strip()] = self._topic(name.strip(), schema.strip(), retention.strip())
        return found

    def value(self, given: Any) -> dict[str, tuple[str, str]]:
        if not isinstance(given, dict):
            raise ValueError(
                f"{given!r} is not a table; write [topics] and below it "
                'weather = "city STRING, temp INT"'
            )
        found, problems = {}, []
        for name, about in given.items():
            try:
                found[name] = self._given(name, about)
            except ValueError as error:
                problems.append(error)
        if problems:
            raise ExceptionGroup("topics", problems)
        return found

    def _given(self, name: str, about: Any) -> tuple[str, str]:
        one = about if isinstance(about, dict) else {"schema": about}
        unknown = [key for key in one if key not in ("schema", "retention")]
        if unknown or "schema" not in one:
            has = ", ".join(map(repr, one)) or "nothing"
            raise ValueError(
                f"topic {name!r} has {has}; it takes 'schema' and, if wanted, 'retention'"
            )
        if not all(isinstance(text, str) for text in one.values()):
            raise ValueError(
                f"the schema or retention of topic {name!r} is not text; write it in quotes"
            )
        return self._topic(name, one["schema"], one.get("retention", ""))

    def show(self, value: Any) -> Any:
        return {
            name: {"schema": schema, "retention": retention} if retention else schema
            for name, (schema, retention) in value.items()
        }

    @staticmethod
    def _topic(name: str, schema: str, retention: str) -> tuple[str, str]:
        if not name:
            raise ValueError("a topic without a name")
        try:
            return Schema.parse(schema).text, Retention.parse(retention).text if retention else ""
        except SchemaError as error:
            raise ValueError(f"the schema of topic {name!r}: {error}") from None
        except RetentionError as error:
            raise ValueError(f"topic {name!r}: {error}") from None
