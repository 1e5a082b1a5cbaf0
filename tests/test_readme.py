"""The README's worked example runs as it is printed, and its numbers are this suite's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def run(number: int) -> list[str]:
    code = re.findall(r"```python\n(.*?)```", README, re.S)[number]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.live
def test_the_worked_example() -> None:
    first, second = run(0)
    assert first == "1 subscription took it"
    assert re.fullmatch(r"Geneva \(\d+, 1, 1\)", second)


@pytest.mark.live
def test_the_example_of_the_view() -> None:
    assert run(1) == ["1 node wants weather", "joined left"]


def test_every_command_that_is_named_exists() -> None:
    from gossamer.cli.app import app

    named = set(re.findall(r"^gossamer (\w+)", README, re.M))
    assert named
    assert named <= set(app.list_commands(None))  # type: ignore[arg-type]


def test_the_filter_error_is_what_the_filters_say() -> None:
    from gossamer.filters import Filter, FilterError, Schema

    [shown] = re.findall(r"```\n(unknown attribute.*?)\n```", README, re.S)
    with pytest.raises(FilterError) as caught:
        Filter.parse(
            shown.splitlines()[1].strip(), Schema.parse("country STRING, city STRING, temp INT")
        )
    assert str(caught.value) == shown
