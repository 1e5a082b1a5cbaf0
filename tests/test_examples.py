"""The examples run, and print the expected lines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
# The counts of fan_out.py, computed another way.
WANTED = [sum(n % 8 == desk and n % 100 >= 50 for n in range(800)) for desk in range(8)]
PRINTED = {
    "hello.py": ["Geneva: taken by 1", "Zurich: taken by 0", "got Geneva, 31 degrees"],
    "fan_out.py": [
        "800 trades, 400 wanted by a subscriber",
        " ".join(map(str, ["taken by desk:", *WANTED])),
    ],
    "durable_publisher.py": [
        "publisher: accepted 5",
        "publisher: killed",
        "publisher: back, life 2",
        "archive: got [0.0, 1.0, 2.0, 3.0, 4.0], 0 left in the outbox",
    ],
    "worker.py": [
        "40 jobs, 40 taken",
        "40 results, all right: True",
        "refused: attribute 'job' is INT, not str: 'forty-one'",
    ],
    "presence.py": [
        "wanted by []",
        "joined viewer",
        "wanted by ['viewer']",
        "frame 1",
        "left viewer",
        "wanted by []",
    ],
}


@pytest.mark.live
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == PRINTED[name]


def test_the_readme_lists_every_example() -> None:
    listed = set(re.findall(r"^\| `(\w+\.py)`", (FOLDER / "README.md").read_text(), re.M))
    assert listed == {path.name for path in FOLDER.glob("*.py")}
    assert set(PRINTED) <= listed
