"""Nodes that come and go: session lengths and off-times as they were measured.

    server              sessions of Tor relays: lognormal, median 32 h, sigma 2.38
    client              sessions of users: lognormal, median 5.3 min, sigma 2.35; off-times as for
                        servers
    sessions.csv.gz     your own log: node_id, up_s, down_s (moments in seconds), left_censored,
                        right_censored (0 or 1)

Departures at a steady rate and of equal lengths would be kinder than any network is. Measured
sessions have a heavy tail: most nodes stay for long, and those that go do so again and again. At
any moment 6 % of servers are away, and 91 % of clients. Nobody measured the off-times of clients,
so a client that is up 1.4 h on average stays away as long as a relay does, 13 h.

The fits. Off-times have median 2.4 h, p90 15 h and p99 210 h. A lognormal through the first two has
its p99 at 67 h. So the part above p90 has a sigma of its own, and all three are met. Nothing is
longer than 60 days, the time observed. Without this bound, 78 % of the mean server session (543 h)
would come from sessions longer than anybody has watched. With it the mean is 197 h, and the relays
show 219 h of being up for each departure.

The file. A session that was on when the observation began (left-censored) has an unknown age, and
is there because it is long, so it is left out. A session that was still on at the end
(right-censored) has at least this length, and counts as such by Kaplan and Meier's estimate. The
part that these sessions leave open gets the length of the longest session in the file. An off-time
is the gap between two sessions of one node. A node that never came back has no off-time, because
here every node comes back. Each draw is independent. In truth the same nodes keep flapping, and
that is not modelled.

Draws use ``random()`` only, the one method of ``random.Random`` whose stream Python promises to
keep.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from msgspec import Struct

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND
# The relays were observed for this time.
LONGEST = 60 * 24 * HOUR
# Quantiles of the normal distribution.
Z90, Z99 = 1.2815515655446004, 2.3263478740408408
SERVER_MEDIAN, SERVER_SIGMA = 32 * HOUR, 2.38
CLIENT_MEDIAN, CLIENT_SIGMA = 5.3 * MINUTE, 2.35
OFF_MEDIAN, OFF_P90, OFF_P99 = 2.4 * HOUR, 15 * HOUR, 210 * HOUR
# In seconds. No log has more.
MOMENT_MAX = 1e12
# Every node leaves once a second. More is a slip of the pen.
SHARE_MAX = 60.0

COLUMNS = ("node_id", "up_s", "down_s", "left_censored", "right_censored")
FORMS = "server, client, or the path of a CSV file (may be .gz) with the columns " + ", ".join(
    COLUMNS
)


class ChurnError(ValueError):
    """A churn text, a file of sessions or a request that cannot be used. It says where, why, and
    which texts can be used.
    """


class Times(Protocol):
    """A distribution of lengths of time, in microseconds."""

    @property
    def mean(self) -> float: ...

    def draw(self, rng: Random) -> int:
        """One length, from its beginning."""

    def rest(self, rng: Random) -> int:
        """The rest of the length that a look at a random moment finds under way."""


class Churn(Protocol):
    @property
    def ups(self) -> Times: ...

    @property
    def downs(self) -> Times: ...

    def up(self, rng: Random) -> int:
        """The length of one session, in microseconds."""

    def down(self, rng: Random) -> int:
        """The length of one absence, in microseconds."""


class Renewal:
    """Sessions and off-times in turn, each drawn on its own."""

    def __init__(self, ups: Times, downs: Times) -> None:
        self.ups, self.downs = ups, downs

    def up(self, rng: Random) -> int:
        return self.ups.draw(rng)

    def down(self, rng: Random) -> int:
        return self.downs.draw(rng)


def _normal(rng: Random) -> float:
    # Box-Muller, from random() alone.
    radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
    return radius * math.cos(2.0 * math.pi * rng.random())


def _below(z: float) -> float:
    """The share of the normal distribution that is below z."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


class _Piece(NamedTuple):
    """For normal draws z in [low, high) the length is exp(log + sigma * z).

    The weight is their part of the mean.
    """

    low: float
    high: float
    log: float
    sigma: float
    weight: float


def _piece(low: float, high: float, log: float, sigma: float) -> _Piece:
    weight = math.exp(log + sigma * sigma / 2.0) * (_below(high - sigma) - _below(low - sigma))
    return _Piece(low, high, log, sigma, weight)


class Fitted:
    """A lognormal by its median and sigma, above p90 with a sigma of its own if one is given.

    No length is above ``longest``.
    """

    def __init__(
        self, median: float, sigma: float, tail_sigma: float | None = None, longest: int = LONGEST
    ) -> None:
        tail = sigma if tail_sigma is None else tail_sigma
        log, tail_log = math.log(median), math.log(median) + (sigma - tail) * Z90
        top = (math.log(longest) - tail_log) / tail
        assert top > Z90, "the bound is in the tail"
        self._longest = longest
        self._pieces = (_piece(-math.inf, Z90, log, sigma), _piece(Z90, top, tail_log, tail))
        self.mean = sum(piece.weight for piece in self._pieces) + longest * _below(-top)

    def draw(self, rng: Random) -> int:
        z = _normal(rng)
        for piece in self._pieces:
            if z < piece.high:
                return int(math.exp(piece.log + piece.sigma * z))
        return self._longest

    def rest(self, rng: Random) -> int:
        # A random moment falls into a length in proportion to that length. Weighting a lognormal by
        # its values moves the normal distribution behind it up by sigma. Within that length the
        # moment is anywhere.
        spot = rng.random() * self.mean
        for piece in self._pieces:
            if spot < piece.weight:
                z = math.inf
                while not piece.low <= z < piece.high:
                    z = _normal(rng) + piece.sigma
                return int(math.exp(piece.log + piece.sigma * z) * rng.random())
            spot -= piece.weight
        return int(self._longest * rng.random())


class Observed:
    """Lengths from a file, each with its weight."""

    def __init__(self, weighted: Sequence[tuple[int, float]]) -> None:
        self._lengths = [length for length, _ in weighted]
        self._by_count = list(accumulate(weight for _, weight in weighted))
        self._by_length = list(accumulate(length * weight for length, weight in weighted))
        self.mean = self._by_length[-1] / self._by_count[-1]

    def draw(self, rng: Random) -> int:
        return self._pick(self._by_count, rng)

    def rest(self, rng: Random) -> int:
        return int(self._pick(self._by_length, rng) * rng.random())

    def _pick(self, sums: list[float], rng: Random) -> int:
        # A product may round up to the last sum itself.
        return self._lengths[min(bisect_right(sums, rng.random() * sums[-1]), len(sums) - 1)]


def kaplan_meier(lengths: Iterable[tuple[int, bool]], longest: int) -> list[tuple[int, float]]:
    """Lengths, each with whether its end was seen, as (length, probability).

    The probability that is left open is put at ``longest``.
    """
    found = sorted(lengths)
    weighted: list[tuple[int, float]] = []
    still, left = len(found), 1.0
    for length, group in groupby(found, key=lambda one: one[0]):
        ends = [ended for _, ended in group]
        if any(ends):
            gone = left * sum(ends) / still
            weighted.append((length, gone))
            left -= gone
        still -= len(ends)
    if left > 1e-12:
        weighted.append((longest, left))
    return weighted


class _Session(NamedTuple):
    up: int
    down: int
    left: bool
    right: bool
    line: int


def _moment(name: str, word: str) -> int:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MOMENT_MAX:
        raise ChurnError(f"{name} is {word!r}; write a moment in seconds, zero or more")
    return round(value * SECOND)


def _flag(name: str, word: str) -> bool:
    if word.strip() not in ("0", "1"):
        raise ChurnError(f"{name} is {word!r}; write 0 or 1")
    return word.strip() == "1"


def _rows(lines: Iterator[list[str]]) -> Iterator[list[str]]:
    """The wanted columns of each row, in the order of COLUMNS, whatever their order in the file."""
    head = [word.strip() for word in next(lines, [])]
    if not any(head):
        raise ChurnError(
            f"the file is empty or its first line is; it must name the columns {', '.join(COLUMNS)}"
        )
    missing = [name for name in COLUMNS if name not in head]
    if missing:
        raise ChurnError(
            f"no column {', '.join(missing)}; the first line must name the columns "
            f"{', '.join(COLUMNS)}"
        )
    places = [head.index(name) for name in COLUMNS]
    for row in lines:
        if not row:
            continue
        if len(row) != len(head):
            raise ChurnError(
                f"{len(row)} cells, but the first line names {len(head)} columns; write one cell "
                "for each"
            )
        yield [row[place] for place in places]


def _sessions(path: str, text: str) -> dict[str, list[_Session]]:
    """Each node's sessions, in order of time."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    nodes: defaultdict[str, list[_Session]] = defaultdict(list)
    try:
        for node, up, down, left, right in _rows(reader):
            one = _Session(
                _moment("up_s", up),
                _moment("down_s", down),
                _flag("left_censored", left),
                _flag("right_censored", right),
                reader.line_num,
            )
            if one.down < one.up:
                raise ChurnError(
                    f"down_s {down} is before up_s {up}; these are moments, not lengths, and "
                    "down_s is the later"
                )
            nodes[node.strip()].append(one)
    except (ChurnError, csv.Error) as error:
        raise ChurnError(f"{path}, line {max(1, reader.line_num)}: {error}") from None
    for node, sessions in nodes.items():
        sessions.sort()
        for before, after in pairwise(sessions):
            if after.up < before.down:
                raise ChurnError(
                    f"{path}, line {after.line}: node {node} comes up in the middle of its session "
                    f"in line {before.line}; "
                    "give each node its own node_id, and merge sessions that overlap"
                )
    return nodes


@lru_cache(maxsize=4)
def read_sessions(path: str) -> Renewal:
    """Sessions and off-times as a file has them; ``.gz`` is unpacked."""
    try:
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if path.endswith(".gz") else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, ValueError) as error:
        raise ChurnError(
            f"cannot read the sessions in {path}: {error}; churn is one of: {FORMS}"
        ) from None
    nodes = _sessions(path, text)
    every = [one for sessions in nodes.values() for one in sessions]
    if not every:
        raise ChurnError(f"{path}, line 1: no session follows; write one line for each session")
    lengths = [(one.down - one.up, not one.right) for one in every if not one.left]
    if not any(ended and length for length, ended in lengths):
        raise ChurnError(
            f"{path}: no session both begins and ends while observed; a longer log is needed"
        )
    gaps = [
        (after.up - before.down, True)
        for sessions in nodes.values()
        for before, after in pairwise(sessions)
        if not (before.right or after.left)
    ]
    if not any(gap for gap, _ in gaps):
        raise ChurnError(
            f"{path}: no node comes back, so there is no off-time; a longer log is needed"
        )
    longest = max(one.down - one.up for one in every)
    return Renewal(Observed(kaplan_meier(lengths, longest)), Observed(kaplan_meier(gaps, longest)))


def parse(text: str) -> Churn:
    """The churn that a text names."""
    off = Fitted(
        OFF_MEDIAN, math.log(OFF_P90 / OFF_MEDIAN) / Z90, math.log(OFF_P99 / OFF_P90) / (Z99 - Z90)
    )
    match text:
        case "server":
            return Renewal(Fitted(SERVER_MEDIAN, SERVER_SIGMA), off)
        case "client":
            return Renewal(Fitted(CLIENT_MEDIAN, CLIENT_SIGMA), off)
        case "":
            raise ChurnError(f"no churn is named; known: {FORMS}")
    return read_sessions(text)


class Leaving(Struct, frozen=True, order=True):
    """A node is away from ``at`` to ``until``, in microseconds.

    At 0 the node was away before, and there is no departure.
    """

    at: int
    node: int
    until: int


def away_share(churn: Churn) -> float:
    """The expected share of the nodes that are away at any moment.

    The scale of time does not change it.
    """
    return churn.downs.mean / (churn.ups.mean + churn.downs.mean)


def schedule(
    churn: Churn, nodes: int, seconds: float, share_per_minute: float, seed: int
) -> tuple[Leaving, ...]:
    """Every absence in a run, by time.

    On expectation ``share_per_minute`` of all nodes leave in each minute. Sessions and off-times
    are stretched by one factor, so their proportions stay as measured. A node leaves once in the
    sum of a mean session and a mean off-time. The run starts in the steady state. A node is away at
    0 with the probability that it has at any time (``away_share``). A session or absence that was
    under way at 0 has only its rest before it. So the rate holds from the first minute on. An
    absence that outlasts the run ends with it.
    """
    if nodes < 0:
        raise ChurnError(f"churn among {nodes} nodes: the number must be zero or more")
    if not (math.isfinite(seconds * SECOND) and seconds >= 0):
        raise ChurnError(
            f"churn for {seconds} s: the time must be a number of seconds, zero or more"
        )
    if not 0 <= share_per_minute <= SHARE_MAX:
        raise ChurnError(
            f"churn of {share_per_minute} of the nodes a minute: must be from 0 to {SHARE_MAX:g}; "
            "10 % a minute is 0.10"
        )
    end = int(seconds * SECOND)
    if share_per_minute == 0 or end == 0:
        return ()
    rng = Random(f"churn {seed}")
    cycle = churn.ups.mean + churn.downs.mean
    stretch = MINUTE / (share_per_minute * cycle)

    def scaled(length: int) -> int:
        # The part past the end does not matter.
        return max(1, round(min(length * stretch, end)))

    found: list[Leaving] = []
    for node in range(nodes):
        if rng.random() * cycle < churn.downs.mean:
            back = scaled(churn.downs.rest(rng))
            found.append(Leaving(0, node, min(back, end)))
            at = back + scaled(churn.up(rng))
        else:
            at = scaled(churn.ups.rest(rng))
        while at < end:
            back = at + scaled(churn.down(rng))
            found.append(Leaving(at, node, min(back, end)))
            at = back + scaled(churn.up(rng))
    return tuple(sorted(found))
