"""The public API is typed: a user's program passes mypy --strict, and its mistakes do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(gossamer.__file__).parent / "py.typed").exists()


def test_everything_public_is_there() -> None:
    for name in gossamer.__all__:
        assert getattr(gossamer, name) is not None


@pytest.mark.slow
def test_a_users_program_under_mypy_strict() -> None:
    program = HERE / "program.py"
    # These are the project's own settings, which are strict. mypy does not read again the sources
    # that ``make test`` has just read.
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    expected = {
        (number, found[1])
        for number, line in enumerate(program.read_text().splitlines(), 1)
        if (found := re.search(r"# refused: ([\w-]+)$", line))
    }
    pattern = re.compile(
        rf"^{re.escape(str(program.relative_to(ROOT)))}:(\d+): error: .*\[([\w-]+)\]$"
    )
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    said = {(int(m[1]), m[2]) for line in lines if (m := pattern.match(line))}
    assert len(lines) == len(expected), done.stdout + done.stderr
    assert said == expected, done.stdout + done.stderr
