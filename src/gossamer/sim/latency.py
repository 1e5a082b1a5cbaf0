"""The time that a message takes: models with short names, the same in files and commands.

    constant:1ms             every message takes this time
    uniform:1ms:10ms         drawn for each message
    lognormal:20ms:0.5       drawn for each message: median, sigma
    weibull                  drawn for each pair: round-trip times as measured on PlanetLab (k 1.38,
                             scale 160 ms)
    weibull:1.38:160ms       the same, with your own shape and scale
    matrix:rtt.txt.gz        round-trip times in ms from a file: a square matrix, white space
                             between the numbers

Round-trip times are halved. Where they are fixed for a pair, each message adds up to 5 % of jitter.
Draws use ``random()`` only, the one method of ``random.Random`` whose stream Python promises to
keep.
"""

from __future__ import annotations

import gzip
import math
import zlib
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Protocol

from gossamer.sim.clock import DurationError, duration

JITTER = 0.05
RTT_SHAPE, RTT_SCALE_US = 1.38, 160_000.0
# A message never arrives at the instant at which it was sent.
DELAY_MIN = 1


class LatencyError(ValueError):
    """A latency text or an RTT file that cannot be used. It says why, and which can be used."""


class Latency(Protocol):
    def base(self, a: int, b: int) -> int:
        """The part that is fixed for this pair of nodes, in microseconds.

        It is the same both ways.
        """

    def delay(self, base: int, rng: Random) -> int:
        """The time of one message, in microseconds."""


class Constant:
    def __init__(self, delay: int) -> None:
        self._delay = max(DELAY_MIN, delay)

    def base(self, a: int, b: int) -> int:
        return self._delay

    def delay(self, base: int, rng: Random) -> int:
        return base


class Uniform:
    def __init__(self, low: int, high: int) -> None:
        if low > high:
            raise LatencyError(
                f"uniform latency from {low} us to {high} us: the first must not be more than the "
                "second"
            )
        self._low, self._range = max(DELAY_MIN, low), high - low

    def base(self, a: int, b: int) -> int:
        return self._low

    def delay(self, base: int, rng: Random) -> int:
        return base + int(self._range * rng.random())


class Lognormal:
    def __init__(self, median: int, sigma: float) -> None:
        self._median, self._sigma = median, sigma

    def base(self, a: int, b: int) -> int:
        return self._median

    def delay(self, base: int, rng: Random) -> int:
        # Box-Muller, from random() alone.
        radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
        normal = radius * math.cos(2.0 * math.pi * rng.random())
        return max(DELAY_MIN, int(base * math.exp(self._sigma * normal)))


class _PerPair:
    def delay(self, base: int, rng: Random) -> int:
        return base + int(base * JITTER * rng.random())


class Weibull(_PerPair):
    def __init__(self, shape: float, scale: float, seed: int) -> None:
        self._shape, self._scale, self._seed = shape, scale, seed

    def base(self, a: int, b: int) -> int:
        low, high = min(a, b), max(a, b)
        rng = Random(f"rtt {self._seed} {low} {high}")
        rtt = self._scale * (-math.log(1.0 - rng.random())) ** (1.0 / self._shape)
        return max(DELAY_MIN, int(rtt / 2))


class Matrix(_PerPair):
    """Nodes get rows of the matrix in an order drawn from the seed.

    If there are more nodes than rows, nodes share rows.
    """

    def __init__(self, rows: tuple[tuple[float, ...], ...], seed: int) -> None:
        self._rows = rows
        rng = Random(f"rows {seed}")
        self._order = sorted(range(len(rows)), key=lambda _: rng.random())

    def base(self, a: int, b: int) -> int:
        count = len(self._rows)
        there = self._rows[self._order[a % count]][self._order[b % count]]
        back = self._rows[self._order[b % count]][self._order[a % count]]
        return max(DELAY_MIN, round((there + back) * 1_000 / 4))


@lru_cache(maxsize=4)
def read_matrix(path: str) -> tuple[tuple[float, ...], ...]:
    """A square matrix of round-trip times in milliseconds, with white space between the numbers.

    A file ``.gz`` is unpacked.
    """
    try:
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if path.endswith(".gz") else data).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise LatencyError(f"cannot read the RTT matrix {path}: {error}") from None
    rows: list[tuple[float, ...]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = tuple(float(word) for word in line.split())
        except ValueError as error:
            raise LatencyError(f"{path}, line {number}: {error}") from None
        if not all(math.isfinite(value) and value >= 0 for value in row):
            raise LatencyError(
                f"{path}, line {number}: a round-trip time must be a number of ms, zero or more"
            )
        rows.append(row)
    if not rows:
        raise LatencyError(f"{path} is empty; a square matrix of round-trip times in ms is needed")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows):
            raise LatencyError(
                f"{path}: row {number} has {len(row)} numbers, but there are {len(rows)} rows: not "
                "square"
            )
    return tuple(rows)


FORMS = (
    "constant:1ms, uniform:1ms:10ms, lognormal:20ms:0.5, weibull, weibull:1.38:160ms, matrix:FILE"
)


def parse(text: str, seed: int) -> Latency:
    """The model that a text names. Draws for each pair come from the seed."""
    kind, _, rest = text.partition(":")
    if kind == "matrix" and rest:
        return Matrix(read_matrix(rest), seed)
    words = rest.split(":") if rest else []
    try:
        match kind, words:
            case "constant", [delay]:
                return Constant(duration(delay))
            case "uniform", [low, high]:
                return Uniform(duration(low), duration(high))
            case "lognormal", [median, sigma]:
                return Lognormal(duration(median), float(sigma))
            case "weibull", []:
                return Weibull(RTT_SHAPE, RTT_SCALE_US, seed)
            case "weibull", [shape, scale] if float(shape) > 0:
                return Weibull(float(shape), duration(scale), seed)
    except DurationError as error:
        raise LatencyError(f"latency {text!r}: {error}") from None
    except ValueError:
        pass
    raise LatencyError(f"unknown latency {text!r}; known forms: {FORMS}")
