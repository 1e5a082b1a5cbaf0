"""Runs the tests of docs/delivery.md's promises again and again. Every run must be clean.

python scripts/promises.py --times 10
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "delivery.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    times: int = parser.parse_args().times
    section = PAGE.read_text("utf-8").partition("## What Gossamer promises")[2]
    tests = list(dict.fromkeys(NAMED.findall(section.partition("\n## ")[0])))
    failed = 0
    for number in range(1, times + 1):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--no-header", *tests],
            cwd=PAGE.parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
        print(f"run {number} of {times}: {last} [{time.monotonic() - began:.0f} s]", flush=True)
        if done.returncode:
            failed += 1
            print(done.stdout[-4000:], flush=True)
    print(f"{times - failed} of {times} runs were clean, {len(tests)} tests each")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
