"""The commands grid, models and reproduce refuse wrong options before Spark starts."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

pytest.importorskip("pyspark")

from gossamer.cli.app import app
from gossamer.cli.bars import Stages
from gossamer.cli.pipeline import wave_bar
from gossamer.lab import grid
from gossamer.lab.experiments import cells


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "pipeline grid --out x --overlay tree --fault fire",
            "no fault 'fire'; there are none, loss, churn",
        ),
        ("pipeline grid --out x --overlay tree --set colour=1", "no option 'colour'"),
        ("pipeline grid --out x --overlay tree --set colour", "'colour' is not NAME=VALUE"),
        ("pipeline grid --out x --overlay tree --size 0", "hosts is 0"),
        ("pipeline grid --out x --overlay ring", "'ring' is not one of"),
        (
            "pipeline grid --out x --overlay flood --seeds 0-5000 --size 5,6,7",
            "runs are more than 10,000",
        ),
        ("pipeline models --out x --plane tree --parameter 4", "the model of the tree is binary"),
        ("pipeline models --out x --size 1", "size is 1"),
        ("reproduce --out x --trace no/such/place", "no/such/place: no such file or folder"),
        (f"reproduce --out x --trace {__file__}", "it needs files.csv.gz"),
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


def test_runs_of_another_file_are_not_taken_up(tmp_path: Path) -> None:
    """The number of a run is a hash of its flags, and these contain a path."""
    trace, folder, rtts = tmp_path / "t.csv.gz", tmp_path / "folder", tmp_path / "rtts.txt"
    folder.mkdir()
    rtts.write_text("0 1\n1 0\n")
    by_file = cells(["skiplist"], [20], options={"workload": "trace", "trace": str(trace)})
    by_folder = cells(["skiplist"], [20], options={"workload": "trace", "trace": str(folder)})
    by_matrix = cells(["flood"], [20], options={"latency": f"matrix:{rtts}"})
    for wanted, path in ((by_file, trace), (by_folder, folder / "files.csv.gz"), (by_matrix, rtts)):
        # The version of two missing files.
        before = grid.version(wanted)
        path.write_text("0 1\n2 0\n")
        assert grid.stage(wanted).files == (path,)
        assert grid.version(wanted) != before
    assert (
        grid.version(cells(["skiplist"], [20], options={"trace": "sample"})) == grid.code_version()
    )


def test_a_log_shows_each_wave() -> None:
    printed = io.StringIO()
    with Stages(console=Console(file=printed)) as progress:
        wave_bar(progress, progress.add_task("runs", total=70))(16, 70)
    assert " 16 of 70 runs\n" in printed.getvalue()
