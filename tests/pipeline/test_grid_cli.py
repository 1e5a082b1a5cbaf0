"""The commands grid, models and reproduce: what they refuse before Spark starts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from gossamer.cli.app import app


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pipeline grid --out x --overlay tree --fault fire", "no fault 'fire'; there are none, loss, churn"),
        ("pipeline grid --out x --overlay tree --set colour=1", "no option 'colour'"),
        ("pipeline grid --out x --overlay tree --set colour", "'colour' is not NAME=VALUE"),
        ("pipeline grid --out x --overlay tree --size 0", "hosts is 0"),
        ("pipeline grid --out x --overlay ring", "'ring' is not one of"),
        ("pipeline grid --out x --overlay flood --seeds 0-5000 --size 5,6,7", "runs are more than 10,000"),
        ("pipeline models --out x --plane tree --parameter 4", "the model of the tree is binary"),
        ("pipeline models --out x --size 1", "size is 1"),
        ("reproduce --out x --trace no/such/place", "no/such/place: no such file or folder"),
    ],
)
def test_misuse_is_one_line_before_spark_starts(words: str, said: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2
    assert said in done.output


def test_the_group_has_them_all() -> None:
    text = CliRunner().invoke(app, ["pipeline", "--help"]).output
    for name in ("run", "status", "tables", "show", "clean", "verify", "grid", "models"):
        assert f"\n  {name} " in text
