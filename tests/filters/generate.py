"""Random (schema, filter text, events) for the comparison with Spark. Imports nothing of gossamer.

Everything comes from one `random.Random`, so a seed names a case. Values are drawn from small pools
full of edges (NaN, -0.0, ends of ranges, line terminators, supplementary planes). Literals are
drawn from near those values, so that verdicts are TRUE often enough. `Batch.features` counts the
features of the texts.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

STRINGS = [
    *(
        "",
        "a",
        "b",
        "A",
        "ab",
        "abc",
        "abcabc",
        "aab",
        "b1",
        "a b",
        "cab",
        "1",
        "42",
        "x_y",
        "50%",
        "a%b",
        "a_b",
        "_",
        "%",
    ),
    *(
        "a\\b",
        "\\",
        "it's",
        'say "x"',
        "a\nb",
        "a\n",
        "\n",
        "a\r",
        "a\r\n",
        "\r\n",
        "\ra",
        "a\u2028",
        "b\u0085",
        "\u2029",
    ),
    *(
        "\t",
        "a\x0b",
        "\x00",
        "a\x00b",
        "é",
        "e\u0301",
        "ß",
        "ÿ",
        "\ue000",
        "\uffff",
        "\U0001f600",
        "\U0001f600a",
    ),
    *(
        "a\U00010000",
        "日本",
        "ﬃ",
        "naïve",
        "#x",
        "/a/b",
        "a.b",
        "(a)",
        "[a]",
        "a{2}",
        "^a$",
        "-",
        "aaa",
        "bbb ccc",
    ),
]
BINARIES = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x01",
    b"a",
    b"ab",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\x00",
    b"a\xff",
]
DOUBLES = [
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        0.0,
        -0.0,
        0.1,
        0.5,
        1.0,
        1.5,
        -1.5,
        2.5,
        100.0,
        1e300,
        -1e300,
        5e-324,
    ),
    *(
        3.4028234663852886e38,
        16777217.0,
        9007199254740992.0,
        9007199254740994.0,
        9.223372036854775807e18,
        1 / 3,
    ),
]
SMALL = [0, 1, -1, 2, 3, 5, 7, 10, 30, 42, 100, -100, 126, 127, -127, -128]
INTEGERS = {
    "TINYINT": SMALL,
    "SMALLINT": [*SMALL, 32767, -32768, 1000, 129],
    "INT": [*SMALL, 2**31 - 1, -(2**31), 2**24 + 1, 2**24, 10**6],
    "BIGINT": [
        *SMALL,
        2**63 - 1,
        -(2**63),
        2**53 + 1,
        2**53,
        2**53 - 1,
        2**31,
        -(2**31) - 1,
        2**62 + 1,
        10**18,
    ],
}
DATES = [
    date(2024, 2, 29),
    date(2024, 1, 1),
    date(1970, 1, 1),
    date(1969, 12, 31),
    date(1582, 10, 10),
    date(1, 1, 1),
]
DATES += [date(9999, 12, 31), date(2024, 3, 1), date(2023, 12, 31), date(1900, 2, 28)]
TIMES = [datetime(d.year, d.month, d.day, tzinfo=UTC) for d in DATES[:5]]
TIMES += [
    t + timedelta(hours=h, microseconds=u)
    for t in TIMES
    for h, u in ((2, 0), (23, 1), (0, 999_999), (10, 500_000))
]
TIMES += [datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
TYPES = [
    "STRING",
    "STRING",
    "BINARY",
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "TIMESTAMP",
    "DATE",
]
NUMERIC = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
OPS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]
NAMES = [
    "country",
    "city",
    "temp",
    "At",
    "user",
    "date",
    "timestamp",
    "x",
    "r",
    "class",
    "type",
    "year",
    "é",
    "two words",
]
NAMES += ["order", "b`q", "select", "n1", "_u", "Value", "size", "left"]


def as_float(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


POOLS: dict[str, list[Any]] = {
    "STRING": STRINGS,
    "BINARY": BINARIES,
    "BOOLEAN": [True, False],
    "FLOAT": [as_float(v) for v in DOUBLES],
    "DOUBLE": DOUBLES,
    "TIMESTAMP": TIMES,
    "DATE": DATES,
    **INTEGERS,
}


@dataclass
class Batch:
    """One schema, its events as nested mappings (with missing keys), and texts over it."""

    ddl: str
    events: list[dict[str, Any]]
    texts: list[str]
    features: Counter[str] = field(default_factory=Counter)


def batch(seed: int, texts: int, events: int) -> Batch:
    rng = random.Random(seed)
    names = rng.sample(NAMES, rng.randint(4, 8))
    kinds = rng.sample(TYPES, len(names))
    columns = dict(zip(names, kinds, strict=True))
    nested = (
        {"lat": "DOUBLE", "In Side": rng.choice(TYPES), "b": "BOOLEAN"}
        if rng.random() < 0.5
        else {}
    )
    ddl = ", ".join(f"{_quote(n, True)} {k}" for n, k in columns.items())
    if nested:
        ddl += f", loc STRUCT<{', '.join(f'{_quote(n, True)}: {k}' for n, k in nested.items())}>"
    made = []
    for _ in range(events):
        event = {n: rng.choice(POOLS[k]) for n, k in columns.items() if rng.random() > 0.12}
        event |= {n: None for n in columns if n not in event and rng.random() < 0.5}
        if nested and rng.random() > 0.1:
            event["loc"] = {
                n: rng.choice(POOLS[k]) for n, k in nested.items() if rng.random() > 0.12
            }
        made.append(event)
    found = Batch(ddl, made, [])
    leaves = [((n,), k) for n, k in columns.items()] + [(("loc", n), k) for n, k in nested.items()]
    writer = Writer(rng, leaves, found.features)
    found.texts = [writer.text() for _ in range(texts)]
    return found


def _quote(name: str, always: bool = False) -> str:
    plain = (
        name.isascii() and name.isidentifier() and name.lower() not in ("select", "order", "left")
    )
    return name if plain and not always else f"`{name.replace('`', '``')}`"


class Writer:
    """Writes filters over typed columns."""

    def __init__(
        self, rng: random.Random, leaves: list[tuple[tuple[str, ...], str]], features: Counter[str]
    ) -> None:
        self.rng = rng
        self.leaves = leaves
        self.features = features

    def _saw(self, feature: str, text: str) -> str:
        self.features[feature] += 1
        return text

    def text(self) -> str:
        return self.expression(self.rng.choice([0, 0, 1, 1, 2, 3]))

    def expression(self, depth: int) -> str:
        rng = self.rng
        if depth == 0:
            return self.predicate()
        roll = rng.random()
        if roll < 0.25:
            bang = rng.random() < 0.2
            word = "!" if bang else self._word("NOT") + " "
            inner = self.expression(depth - 1)
            # Without parentheses NOT still takes the whole predicate. With AND and OR inside it
            # takes the first one only.
            return self._saw("NOT", f"{word}({inner})" if rng.random() < 0.7 else f"{word}{inner}")
        joint = f" {self._word('AND' if roll < 0.55 else 'OR')} "
        parts = [self.expression(depth - 1) for _ in range(rng.choice([2, 2, 3]))]
        shown = [f"({p})" if rng.random() < 0.6 else p for p in parts]
        return self._saw("AND" if roll < 0.55 else "OR", joint.join(shown))

    def predicate(self) -> str:
        rng = self.rng
        path, kind = rng.choice(self.leaves)
        name = self._name(path)
        makers: list[tuple[int, Callable[[str, str], str]]] = [
            (8, self._compare),
            (3, self._between),
            (4, self._in),
            (2, self._null),
        ]
        makers += [(2, self._pair)]
        if kind == "STRING":
            makers += [(10, self._like), (8, self._rlike)]
        if kind == "BOOLEAN":
            makers += [(8, lambda name, kind: self._saw("bare boolean", name))]
        if rng.random() < 0.02:
            return self._constant()
        return rng.choices([m for _, m in makers], [w for w, _ in makers])[0](name, kind)

    def _name(self, path: tuple[str, ...]) -> str:
        if len(path) > 1:
            self.features["struct"] += 1
        shown = [n.swapcase() if n.isascii() and self.rng.random() < 0.1 else n for n in path]
        return ".".join(_quote(n, self.rng.random() < 0.1) for n in shown)

    def _word(self, word: str) -> str:
        return self.rng.choice([word, word, word.lower(), word.capitalize()])

    def _maybe_not(self) -> str:
        if self.rng.random() < 0.3:
            return self._saw("NOT over NULL", self._word("NOT") + " ")
        return ""

    def _compare(self, name: str, kind: str) -> str:
        op = self.rng.choice(OPS)
        literal = self.literal(kind)
        if self.rng.random() < 0.1:
            return self._saw("literal left", f"{literal} {op} {name}")
        if self.rng.random() < 0.1:
            return f"({name}) {op} ({literal})"
        return f"{name} {op} {literal}" if self.rng.random() < 0.8 else f"{name}{op}{literal}"

    def _between(self, name: str, kind: str) -> str:
        no = self._maybe_not()
        low, high = self.rng.choice(POOLS[kind]), self.rng.choice(POOLS[kind])
        if low > high:
            self.features["BETWEEN reversed"] += 1
        self.features["BETWEEN"] += 1
        ends = f"{self.literal(kind, low)} {self._word('AND')} {self.literal(kind, high)}"
        return f"{name} {no}{self._word('BETWEEN')} {ends}"

    def _in(self, name: str, kind: str) -> str:
        no = self._maybe_not()
        several = [self.literal(kind) for _ in range(self.rng.randint(1, 5))]
        if self.rng.random() < 0.25:
            several.insert(self.rng.randrange(len(several) + 1), self._saw("IN with NULL", "NULL"))
        return self._saw("IN", f"{name} {no}{self._word('IN')} ({', '.join(several)})")

    def _null(self, name: str, kind: str) -> str:
        return self._saw(
            "IS NULL",
            f"{name} {self._word('IS')} "
            f"{self._word('NOT') + ' ' if self.rng.random() < 0.5 else ''}NULL",
        )

    def _pair(self, name: str, kind: str) -> str:
        others = [p for p, k in self.leaves if k == kind or (kind in NUMERIC and k in NUMERIC)]
        return self._saw(
            "two attributes", f"{name} {self.rng.choice(OPS)} {self._name(self.rng.choice(others))}"
        )

    def _constant(self) -> str:
        return self._saw(
            "constant",
            self.rng.choice(
                ["TRUE", "false", "NULL", "1 = 1.0", "'a' < 'b'", "NULL = NULL", "1 > 2L"]
            ),
        )

    # Literals.

    def literal(self, kind: str, value: Any = None) -> str:
        rng = self.rng
        if value is None:
            if rng.random() < 0.03:
                return self._saw("literal NULL", "NULL")
            value = rng.choice(POOLS[kind])
        if kind in NUMERIC:
            return self._number(kind, value)
        if kind == "STRING":
            return self.string(value)
        if kind == "BOOLEAN":
            return self._word(str(value).upper())
        if kind == "BINARY":
            digits = value.hex()
            return self._saw(
                "BINARY", rng.choice([f"X'{digits}'", f"x'{digits.upper()}'", f'X"{digits}"'])
            )
        if kind == "DATE":
            short = value.day == 1 and rng.random() < 0.3
            text = f"{value.year:04}-{value.month}" if short else value.isoformat()
            return self._saw("DATE", f"{self._word('DATE')} '{text}'")
        return self._timestamp(value)

    def _timestamp(self, value: datetime) -> str:
        self.features["TIMESTAMP"] += 1
        zone, minutes = self.rng.choice(
            [
                ("", 0),
                ("Z", 0),
                ("+02:00", 120),
                ("-05:30", -330),
                ("+14:00", 840),
                ("-18:00", -1080),
            ]
        )
        local = value.replace(tzinfo=None) + timedelta(minutes=minutes)
        if zone:
            self.features["TIMESTAMP with zone"] += 1
        text = local.isoformat(sep=self.rng.choice("T "))
        if not zone and (local.hour, local.minute, local.second, local.microsecond) == (0, 0, 0, 0):
            text = text[: self.rng.choice([10, 19])]
        return f"{self._word('TIMESTAMP')} '{text}{zone}'"

    def _number(self, kind: str, value: float) -> str:
        """A number at or next to `value`, in one of Spark's spellings."""
        rng = self.rng
        if value != value or value in (float("inf"), float("-inf")):
            value = rng.choice([0.5, 1e38, -1e38, 3.4028235e38])
        if rng.random() < 0.3:
            value += rng.choice([1, -1, 0.5, -0.5, 0.1])
        whole = int(value) if abs(value) < 1e19 else 7
        form = rng.choice(
            ["whole", "whole", "long", "decimal", "double", "exponent", "float", "BD", "huge"]
        )
        if form == "huge":
            beyond = (
                [10**19, -(10**19), 2**63, -(2**63) - 1]
                if kind in ("FLOAT", "DOUBLE")
                else [2**31, 2**40, -(2**33)]
            )
            return self._saw("beyond the type", str(rng.choice(beyond)))
        if form == "long" and -(2**63) <= whole < 2**63:
            return self._saw("L", f"{whole}{rng.choice('Ll')}")
        if form in ("decimal", "BD"):
            part = rng.choice(["0", "0.5", "0.25", "0.1", "0.000000000000000001"])
            exact = f"{Decimal(whole if abs(whole) < 2**63 - 2 else 9) + Decimal(part):f}"
            return self._saw(
                "DECIMAL", exact + ("BD" if form == "BD" else "" if "." in exact else ".0")
            )
        if form == "double":
            return self._saw("DOUBLE", f"{value!r}{rng.choice('Dd')}")
        if form == "exponent":
            return self._saw("DOUBLE", f"{float(value):.17e}")
        if form == "float" and 1e-30 < abs(value) < 3e38:
            return self._saw("F", f"{value!r}F")
        return str(whole if -(2**63) <= whole < 2**63 else 9)

    def string(self, value: str, raw_share: float = 0.15) -> str:
        rng = self.rng
        if any(ord(c) > 0xFFFF for c in value):
            self.features["supplementary plane"] += 1
        if not value.isascii():
            self.features["non-ASCII"] += 1
        quote = rng.choice("'''\"")
        if rng.random() < raw_share and quote not in value:
            return self._saw("raw string", f"{rng.choice('rR')}{quote}{value}{quote}")
        out = []
        for c in value:
            if c == "\\":
                out.append("\\\\")
            elif c == quote:
                out.append(rng.choice([f"\\{c}", c + c]))
            elif c in "\n\r\t\0" and rng.random() < 0.7:
                out.append({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}[c])
            elif rng.random() < 0.05:
                units = c.encode("utf-16-be")
                points = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
                short = "".join(f"\\u{p}" for p in points)
                out.append(self._saw("unicode escape", rng.choice([short, f"\\U{ord(c):08X}"])))
            else:
                out.append(c)
        cut = rng.randint(1, len(out)) if out and rng.random() < 0.05 else 0
        if cut:
            return self._saw(
                "strings in a row",
                f"{quote}{''.join(out[:cut])}{quote} {quote}{''.join(out[cut:])}{quote}",
            )
        return f"{quote}{''.join(out)}{quote}"

    # Patterns.

    def _like(self, name: str, kind: str) -> str:
        rng = self.rng
        escape = rng.choice(["\\", "\\", "\\", "#", "!", "/", "^", "a", "é"])
        out: list[str] = []
        for c in rng.choice(STRINGS) + rng.choice(["", "", rng.choice(STRINGS)]):
            roll = rng.random()
            if roll < 0.12:
                out.append("_")
            elif roll < 0.24:
                out.append("%")
            elif roll < 0.3:
                out.append(rng.choice(["%", "_"]) + rng.choice(["%", "_"]))
            elif c in ("%", "_", escape):
                out.append(
                    self._saw("LIKE escape", escape + c) if rng.random() < 0.8 or c == escape else c
                )
            else:
                out.append(c)
        if rng.random() < 0.6:
            out.append("%")
        if rng.random() < 0.3:
            out.insert(0, "%")
        text = self.string("".join(out))
        if escape != "\\":
            shown = self._saw("LIKE ESCAPE", f" {self._word('ESCAPE')} '{escape}'")
        else:
            shown = ""
        return self._saw("LIKE", f"{name} {self._maybe_not()}{self._word('LIKE')} {text}{shown}")

    def _rlike(self, name: str, kind: str) -> str:
        word = self.rng.choice(["RLIKE", "rlike", "REGEXP"])
        text = self.string(self.regex(2, outermost=True), raw_share=0.5)
        return self._saw("RLIKE", f"{name} {self._maybe_not()}{word} {text}")

    def regex(self, depth: int, outermost: bool = False) -> str:
        rng = self.rng
        alternatives = []
        for _ in range(rng.choice([1, 1, 1, 2])):
            parts = [self._piece(depth) for _ in range(rng.choice([1, 1, 2, 3]))]
            start = "^" if rng.random() < 0.2 else ""
            end = self._saw("RLIKE $", "$") if outermost and rng.random() < 0.3 else ""
            alternatives.append(start + "".join(parts) + end)
        return "|".join(alternatives)

    def _piece(self, depth: int) -> str:
        rng = self.rng
        atoms = [
            "a",
            "b",
            "c",
            "a",
            "b",
            " ",
            "1",
            ".",
            r"\d",
            r"\w",
            r"\s",
            r"\D",
            r"\W",
            r"\S",
            "[a-c]",
            "[^a]",
            "[^\\w]",
        ]
        atoms += [
            "é",
            "\U0001f600",
            "[\U0001f600-\U0001f64f]",
            r"\.",
            r"\\",
            r"\n",
            r"[\r\n]",
            "[_%-]",
            r"[\d.]",
            "[é-ÿ]",
            "'",
            r"\-",
        ]
        atom = rng.choice(atoms)
        if depth and rng.random() < 0.25:
            # The group must match some text, so that it may be repeated.
            opening, first = rng.choice(["(", "(?:"]), rng.choice(atoms)
            atom = f"{opening}{first}{self.regex(depth - 1).replace('^', '')})"
            if any(q in atom for q in ("[a", "[\\w", "|")):
                return atom
        return atom + rng.choice(
            ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "+?", "*?", "{2,}"]
        )
