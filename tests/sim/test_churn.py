from __future__ import annotations

import gzip
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean, median, quantiles

import pytest

from gossamer.sim.churn import (
    HOUR,
    LONGEST,
    MINUTE,
    SECOND,
    Churn,
    ChurnError,
    Fitted,
    Leaving,
    Times,
    away_share,
    kaplan_meier,
    parse,
    read_sessions,
    schedule,
)

# All tests together take seconds.
pytestmark = pytest.mark.slow

REAL = Path(__file__).parents[2] / ".." / "shared" / "data" / "tor-churn" / "sessions_60d.csv.gz"
HEAD = "node_id,up_s,down_s,left_censored,right_censored\n"
# Node a: on since before the log, 10 s away, up 30 s, 20 s away, up 50 s or more. Node b: up 70 s,
# then gone.
SMALL = HEAD + "a,0,90,1,0\na,100,130,0,0\na,150,200,0,1\nb,20,90,0,0\n"


class OnlyRandom(Random):
    """Fails on whatever Python does not promise to keep."""

    def __getattribute__(self, name: str) -> object:
        assert name in ("random", "seed") or name.startswith("__"), (
            f"{name}() is used, but only random() has a stream that is kept"
        )
        return super().__getattribute__(name)


def written(folder: Path, text: str, name: str = "sessions.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def departures(found: tuple[Leaving, ...]) -> list[int]:
    return [leaving.at for leaving in found if leaving.at]


@pytest.mark.parametrize(
    ("text", "middle", "sigma"), [("server", 32 * HOUR, 2.38), ("client", 5.3 * MINUTE, 2.35)]
)
def test_sessions_are_lognormal_as_fitted_up_to_the_bound(
    text: str, middle: float, sigma: float
) -> None:
    churn, rng = parse(text), OnlyRandom(1)
    found = sorted(churn.up(rng) for _ in range(20_000))
    assert median(found) == pytest.approx(middle, rel=0.07)
    # The 16th percentile is one sigma below the median: the bound does not reach there.
    assert math.log(median(found) / found[3_173]) == pytest.approx(sigma, rel=0.04)
    assert found[-1] <= LONGEST
    # p95.
    expected = min(LONGEST, middle * math.exp(1.645 * sigma))
    assert found[19_000] == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("text", ["server", "client"])
def test_off_times_meet_all_three_quantiles(text: str) -> None:
    churn, rng = parse(text), OnlyRandom(2)
    cuts = quantiles((churn.down(rng) for _ in range(40_000)), n=100)
    assert cuts[49] == pytest.approx(2.4 * HOUR, rel=0.05)
    assert cuts[89] == pytest.approx(15 * HOUR, rel=0.06)
    assert cuts[98] == pytest.approx(210 * HOUR, rel=0.2)


@pytest.mark.parametrize(
    "times",
    [
        parse("server").ups,
        parse("server").downs,
        Fitted(HOUR, 0.5),
        Fitted(HOUR, 0.5, 1.0, 10 * HOUR),
    ],
)
def test_mean_and_rest_agree_with_the_draws(times: Times) -> None:
    rng = OnlyRandom(3)
    drawn = [times.draw(rng) for _ in range(60_000)]
    rests = [times.rest(rng) for _ in range(20_000)]
    assert mean(drawn) == pytest.approx(times.mean, rel=0.06)
    # Renewal theory: the rest at a random moment has mean E[X^2] / (2 E[X]), and density P(X > t) /
    # E[X].
    assert mean(rests) == pytest.approx(
        mean(length * length for length in drawn) / (2 * mean(drawn)), rel=0.06
    )
    for at in (times.mean / 4, times.mean, 2 * times.mean):
        below = mean(min(length, at) for length in drawn) / mean(drawn)
        assert mean(rest <= at for rest in rests) == pytest.approx(below, abs=0.02)


def test_kaplan_meier_by_hand() -> None:
    # 1 of 4 ends at 10; one is lost sight of at 15; 1 of the 2 left ends at 20; the last is open.
    found = kaplan_meier([(20, True), (10, True), (15, False), (30, False)], longest=99)
    assert found == [
        (10, pytest.approx(0.25)),
        (20, pytest.approx(0.375)),
        (99, pytest.approx(0.375)),
    ]
    # One that is lost sight of at the same length as another ends was still there.
    assert kaplan_meier([(5, False), (5, True)], longest=5) == [(5, 0.5), (5, 0.5)]
    assert kaplan_meier([(7, True)], longest=9) == [(7, 1.0)]


def test_a_file_plain_or_packed_with_its_censored_sessions(tmp_path: Path) -> None:
    plain = written(tmp_path, SMALL)
    packed = tmp_path / "sessions.csv.gz"
    packed.write_bytes(gzip.compress(SMALL.encode()))
    for path in (plain, str(packed)):
        churn, rng = parse(path), OnlyRandom(4)
        ups = [churn.up(rng) for _ in range(6_000)]
        # 30 s ended, 50 s went on, 70 s ended: a third and two thirds. The session of unknown age,
        # 90 s, is not among them.
        assert set(ups) == {30 * SECOND, 70 * SECOND}
        assert ups.count(30 * SECOND) / len(ups) == pytest.approx(1 / 3, abs=0.03)
        assert churn.ups.mean == pytest.approx((30 + 2 * 70) / 3 * SECOND)
        # b never came back: no off-time.
        assert {churn.down(rng) for _ in range(100)} == {10 * SECOND, 20 * SECOND}
        assert churn.downs.mean == pytest.approx(15 * SECOND)
        rests = [churn.downs.rest(rng) for _ in range(6_000)]
        assert mean(rests) == pytest.approx((10**2 + 20**2) / 2 / (2 * 15) * SECOND, rel=0.04)


def test_what_stays_open_has_the_length_of_the_longest_session(tmp_path: Path) -> None:
    churn, rng = (
        parse(written(tmp_path, HEAD + "a,0,500,1,0\nb,0,10,0,0\nb,15,95,0,1\n")),
        OnlyRandom(5),
    )
    assert {churn.up(rng) for _ in range(100)} == {10 * SECOND, 500 * SECOND}


def test_columns_and_rows_may_come_in_any_order(tmp_path: Path) -> None:
    head = "right_censored, down_s,note,up_s,left_censored,node_id\r\n"
    turned = head + "0,90,,20,0,b\r\n1,200,,150,0,a\r\n\r\n0,90,,0,1,a\r\n0,130,,100.0,0,a\r\n"
    ours, same = (
        parse(written(tmp_path, "\ufeff" + turned)),
        parse(written(tmp_path, SMALL, "small.csv")),
    )
    assert schedule(ours, 50, 60, 1.0, 1) == schedule(same, 50, 60, 1.0, 1) != ()


def test_a_gap_next_to_a_censored_end_is_no_off_time(tmp_path: Path) -> None:
    rows = "a,0,10,0,0\na,14,20,0,1\na,1000,1010,1,0\na,1014,1020,0,0\n"
    assert parse(written(tmp_path, HEAD + rows)).downs.mean == 4 * SECOND


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"line 1: the file is empty.*node_id, up_s"),
        ("\n\n", r"line 1: the file is empty"),
        (HEAD, r"line 1: no session follows"),
        ("node_id,up_s,left_censored\n1,2,0\n", r"line 1: no column down_s, right_censored;"),
        (HEAD + "a,0,10,0,0\na,20,30,0\n", r"line 3: 4 cells.* 5 columns"),
        (HEAD + "a,0,10,0,0,7\n", r"line 2: 6 cells"),
        (HEAD + "a,0,10,0,0\na,-5,30,0,0\n", r"line 3: up_s is '-5'; write a moment"),
        (HEAD + "a,0,soon,0,0\n", r"line 2: down_s is 'soon'"),
        (HEAD + "a,0,nan,0,0\n", r"line 2: down_s is 'nan'"),
        (HEAD + "a,0,inf,0,0\n", r"line 2: down_s is 'inf'"),
        (HEAD + "a,0,1e306,0,0\n", r"line 2: down_s is '1e306'"),
        (HEAD + "a,0,,0,0\n", r"line 2: down_s is ''"),
        (HEAD + "a,0,10,no,0\n", r"line 2: left_censored is 'no'; write 0 or 1"),
        (HEAD + "a,0,10,0,2\n", r"line 2: right_censored is '2'"),
        (HEAD + "a,50,10,0,0\n", r"line 2: down_s 10 is before up_s 50; these are moments"),
        (HEAD + "a,0,10,0,0\nb,0,5,0,0\na,9,20,0,0\n", r"line 4: node a .* line 2"),
        (HEAD + 'a,0,"10,0,0\n', r"line 2: unexpected end"),
        (HEAD + "a,0,10,1,0\na,20,30,0,1\n", r"no session both begins and ends"),
        (HEAD + "a,0,10,0,0\nb,20,30,0,0\n", r"no node comes back"),
        (HEAD + "a,0,10,0,0\na,10,30,0,0\n", r"no node comes back"),
    ],
)
def test_a_bad_file_is_named_with_the_line_and_the_remedy(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ChurnError, match=r"sessions\.csv.*" + says):
        parse(written(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    good = gzip.compress(SMALL.encode())
    for name, data in {
        "no.gz": b"not gzip",
        "cut.gz": good[:-12],
        "spoilt.gz": good[:10] + b"\xff" * 20 + good[30:],
        "latin.csv": b"\xe9,",
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ChurnError, match=rf"cannot read .*{name}"):
            parse(str(tmp_path / name))
    for text in ("sever", str(tmp_path), str(tmp_path / "nowhere.csv"), "", "nul\0"):
        with pytest.raises(ChurnError, match="server, client, or the path of a CSV"):
            parse(text)


@pytest.mark.parametrize(
    ("nodes", "seconds", "share"),
    [
        (-1, 60, 0.1),
        (9, -1, 0.1),
        (9, math.nan, 0.1),
        (9, 1e305, 0.1),
        (9, math.inf, 0.1),
        (9, 60, -0.1),
        (9, 60, math.nan),
        (9, 60, 61),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(nodes: int, seconds: float, share: float) -> None:
    with pytest.raises(ChurnError, match=r"zero or more|from 0 to 60"):
        schedule(parse("server"), nodes, seconds, share, 0)


def test_no_nodes_no_time_and_no_churn_are_an_empty_schedule() -> None:
    churn = parse("server")
    assert (
        schedule(churn, 0, 60, 0.1, 0)
        == schedule(churn, 9, 0, 0.1, 0)
        == schedule(churn, 9, 60, 0, 0)
        == ()
    )
    assert not departures(schedule(churn, 9, 60, 1e-300, 0))


@pytest.mark.parametrize("text", ["server", "client"])
def test_a_schedule_is_sorted_within_the_run_and_without_overlaps(text: str) -> None:
    found = schedule(parse(text), 300, 90.5, 1.0, 8)
    assert list(found) == sorted(found, key=lambda leaving: (leaving.at, leaving.node))
    assert all(0 <= leaving.at < leaving.until <= 90.5 * SECOND for leaving in found)
    assert {leaving.node for leaving in found} <= set(range(300))
    # Some nodes are away at the end.
    assert max(leaving.until for leaving in found) == 90.5 * SECOND
    nodes: defaultdict[int, list[Leaving]] = defaultdict(list)
    for leaving in found:
        nodes[leaving.node].append(leaving)
    assert any(len(own) > 2 for own in nodes.values())
    assert all(before.until < after.at for own in nodes.values() for before, after in pairwise(own))


def test_a_schedule_is_its_seeds() -> None:
    churn = parse("server")
    first = schedule(churn, 200, 60, 0.5, 5)
    assert first == schedule(parse("server"), 200, 60, 0.5, 5)
    assert first != schedule(churn, 200, 60, 0.5, 6)


def test_a_schedule_is_the_same_tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.sim.churn.Random", OnlyRandom)
    # These very numbers: a seed that is named in a report must replay under another version.
    found = schedule(parse("server"), 40, 60, 0.1, 7)
    assert [(leaving.at // 1_000, leaving.node, leaving.until // 1_000) for leaving in found] == [
        (0, 8, 7056),
        (0, 28, 15819),
        (1030, 13, 7969),
        (10389, 19, 17592),
        (21192, 23, 60000),
        (22233, 13, 38773),
        (37131, 19, 40989),
        (39008, 8, 39725),
        (57534, 28, 60000),
    ]


def small(folder: Path) -> Churn:
    return parse(written(folder, SMALL))


@pytest.mark.parametrize("text", ["server", "client", "file"])
def test_the_rate_and_the_share_away_hold_from_the_first_minute_to_the_last(
    tmp_path: Path, text: str
) -> None:
    churn = small(tmp_path) if text == "file" else parse(text)
    nodes, minutes, share = 6_000, 6, 0.2
    found = schedule(churn, nodes, minutes * 60, share, 11)
    begun = departures(found)
    assert len(begun) == pytest.approx(share * nodes * minutes, rel=0.06)
    for minute in range(minutes):
        count = sum(minute * MINUTE <= at < (minute + 1) * MINUTE for at in begun)
        assert count == pytest.approx(share * nodes, rel=0.12), f"minute {minute}"
        at = minute * MINUTE
        away = sum(leaving.at <= at < leaving.until for leaving in found) / nodes
        assert away == pytest.approx(away_share(churn), abs=0.02), f"minute {minute}"


def test_time_is_scaled_and_nothing_else(tmp_path: Path) -> None:
    churn = small(tmp_path)
    slow, fast = schedule(churn, 100, 600, 0.1, 3), schedule(churn, 100, 60, 1.0, 3)
    assert [(leaving.node, leaving.at // 10) for leaving in slow] == [
        (leaving.node, pytest.approx(leaving.at, abs=100)) for leaving in fast
    ]


needs_real = pytest.mark.skipif(
    not REAL.is_file(), reason="the Tor sessions (../shared/data/tor-churn) are not here"
)


@needs_real
def test_the_real_sessions_agree_with_the_fit_that_ships() -> None:
    real, fit, rng = parse(str(REAL)), parse("server"), OnlyRandom(9)
    assert median(real.up(rng) for _ in range(20_000)) == pytest.approx(32 * HOUR, rel=0.15)
    cuts = quantiles((real.down(rng) for _ in range(20_000)), n=100)
    assert [cuts[49] / HOUR, cuts[89] / HOUR, cuts[98] / HOUR] == pytest.approx(
        [2.4, 15, 210], rel=0.2
    )
    assert real.ups.mean == pytest.approx(fit.ups.mean, rel=0.15)
    assert away_share(real) == pytest.approx(away_share(fit), abs=0.02)


@needs_real
def test_the_real_sessions_make_a_schedule_of_the_rate_asked_for() -> None:
    found = schedule(read_sessions(str(REAL)), 3_000, 300, 0.1, 1)
    assert len(departures(found)) == pytest.approx(1_500, rel=0.12)
