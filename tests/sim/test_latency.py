from __future__ import annotations

import gzip
import math
from pathlib import Path
from random import Random
from statistics import mean, median, pstdev

import pytest

from gossamer.sim.latency import LatencyError, parse, read_matrix


def draws(text: str, count: int = 4_000) -> list[int]:
    model, rng = parse(text, 7), Random(1)
    base = model.base(0, 1)
    return [model.delay(base, rng) for _ in range(count)]


def test_constant() -> None:
    assert dict.fromkeys(draws("constant:2ms")) == {2_000: None}


def test_uniform_stays_within_its_bounds() -> None:
    found = draws("uniform:1ms:10ms")
    assert 1_000 <= min(found) < 1_100
    assert 9_900 < max(found) <= 10_000
    assert mean(found) == pytest.approx(5_500, rel=0.03)


def test_lognormal_has_its_median_and_spread() -> None:
    found = draws("lognormal:20ms:0.5")
    assert median(found) == pytest.approx(20_000, rel=0.05)
    assert pstdev(math.log(value) for value in found) == pytest.approx(0.5, rel=0.05)


def test_weibull_is_drawn_per_pair_and_is_as_fitted() -> None:
    model = parse("weibull", 3)
    found = [model.base(0, b) for b in range(1, 3_000)]
    # Half a round trip; the mean of a Weibull is scale * gamma(1 + 1 / k).
    assert mean(found) == pytest.approx(160_000 * math.gamma(1 + 1 / 1.38) / 2, rel=0.05)
    assert model.base(4, 9) == model.base(9, 4)
    assert parse("weibull", 4).base(4, 9) != model.base(4, 9)
    assert parse("weibull:1.38:160ms", 3).base(4, 9) == model.base(4, 9)
    assert (
        model.base(4, 9) <= model.delay(model.base(4, 9), Random(0)) <= 1.05 * model.base(4, 9) + 1
    )


def test_matrix_from_a_file_plain_or_packed(tmp_path: Path) -> None:
    text = "0 10 20\n10\t0 30\n20 30 0\n\n"
    plain, packed = tmp_path / "rtt.txt", tmp_path / "rtt.txt.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_matrix(str(plain)) == read_matrix(str(packed))
    model = parse(f"matrix:{packed}", 1)
    pairs = sorted(model.base(a, b) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert pairs == [5_000, 10_000, 15_000]
    # There are more nodes than rows, and nodes share rows.
    assert model.base(0, 1) == model.base(1, 0) == model.base(3, 4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("1 2\n3", "not square"),
        ("1 2\n3 4\n5 6", "not square"),
        ("1 x\n3 4", "line 1"),
        ("0 nan\n1 0", "line 1"),
        ("0 1\n-1 0", "line 2"),
    ],
)
def test_a_bad_matrix_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(LatencyError, match=says):
        read_matrix(str(path))


def test_a_matrix_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(LatencyError, match=r"nowhere\.txt"):
        read_matrix(str(tmp_path / "nowhere.txt"))
    packed = tmp_path / "bad.gz"
    packed.write_bytes(b"not gzip")
    with pytest.raises(LatencyError, match=r"bad\.gz"):
        read_matrix(str(packed))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "constant",
        "constant:1",
        "uniform:5ms:1ms",
        "uniform:1ms",
        "weibull:0:1ms",
        "lognormal:1ms:x",
        "matrix:",
    ],
)
def test_a_bad_text_says_what_is_known(text: str) -> None:
    with pytest.raises(LatencyError, match=r"constant:1ms|must not be more|is no duration"):
        parse(text, 0)
