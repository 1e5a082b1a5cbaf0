"""Fan-out: a grid of 64 simulations on one core and on all of them, through the same command's
code.

Both have the same runs and the same tables. The sessions have started, and one small grid has
warmed their workers, before the clock starts. With ``--rounds`` the two take turns, and the median
counts. Two comparisons without Spark run the same runs in a plain process pool, and one after the
other in this process.

    python benchmarks/grid.py                 64 runs, three rounds
    python benchmarks/grid.py --runs 16 --rounds 1 --json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gossamer
from gossamer.lab.experiments import Cell, cells, execute

OPTIONS = {"key_bits": 8, "measure": "30s"}


def grid_cells(runs: int) -> list[Cell]:
    """Trees of 60 hosts, which take about a second each."""
    return cells(["tree"], [60], seeds=range(runs), options=OPTIONS)


def one(cell: Cell) -> str:
    return execute(cell.overlay, cell.flags()).digest


def on_spark(cores: int, runs: int) -> dict[str, float]:
    """Seconds of the grid on a session with this number of cores."""
    from gossamer.lab import grid
    from gossamer.pipeline.session import SMALL, session

    with (
        session("grid", f"local[{cores}]", conf=SMALL) as spark,
        tempfile.TemporaryDirectory() as folder,
    ):
        warm = cells(
            ["tree"], [5], seeds=range(2 * cores), options={"key_bits": 8, "measure": "1s"}
        )
        grid.run_waves(spark, warm, Path(folder) / "warm")
        began = time.perf_counter()
        results = grid.run_waves(spark, grid_cells(runs), Path(folder) / "grid", wave=runs)
        seconds = time.perf_counter() - began
        good = results.where("status = 'ok'").count()
    assert good == runs, f"{runs - good} runs are not good"
    return {"seconds": seconds}


def in_pool(processes: int, runs: int) -> dict[str, float]:
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(
            pool.map(
                one,
                cells(
                    ["tree"],
                    [5],
                    seeds=range(2 * processes),
                    options={"key_bits": 8, "measure": "1s"},
                ),
            )
        )
        began = time.perf_counter()
        list(pool.map(one, grid_cells(runs)))
        return {"seconds": time.perf_counter() - began}


def alone(processes: int, runs: int) -> dict[str, float]:
    began = time.perf_counter()
    for cell in grid_cells(runs):
        one(cell)
    return {"seconds": time.perf_counter() - began}


WAYS = {"spark": on_spark, "pool": in_pool, "loop": alone}


def apart(way: str, cores: int, runs: int) -> float:
    """Measure in a process of its own, so that no round warms the next."""
    command = [sys.executable, __file__, "--way", way, "--cores", str(cores), "--runs", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--way", choices=list(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if given.way:
        print(json.dumps(WAYS[given.way](given.cores, given.runs)))
        return 0
    took: dict[str, list[float]] = {}
    plan = (("spark, 1 core", "spark", 1), (f"spark, {given.cores} cores", "spark", given.cores),
            (f"process pool, {given.cores}", "pool", given.cores),
            ("plain loop", "loop", 1))  # fmt: skip
    for _ in range(given.rounds):
        for name, way, cores in plan:
            took.setdefault(name, []).append(apart(way, cores, given.runs))
    seconds = {name: statistics.median(each) for name, each in took.items()}
    speedups = [one / many for one, many in zip(took[plan[0][0]], took[plan[1][0]], strict=True)]
    speedup = statistics.median(speedups)
    found: dict[str, Any] = {
        "gossamer": gossamer.__version__, "python": platform.python_version(),
        "cores": given.cores, "runs": given.runs,
        "seconds": seconds, "speedup": speedup, "load": os.getloadavg()[0],
        "reached": speedup >= 1.8,
    }  # fmt: skip
    if given.as_json:
        print(json.dumps(found))
    else:
        print(
            f"gossamer {gossamer.__version__}, Python {platform.python_version()}, {given.runs} "
            f"runs, median of {given.rounds}"
        )
        for name, value in seconds.items():
            print(f"  {name:<24} {value:>8.1f} s   {given.runs / value:>6.2f} runs/s")
        print(
            f"  {given.cores} cores / 1 core         {speedup:>8.2f} x   >= 1.8   "
            f"{'yes' if found['reached'] else 'NO'}"
        )
        print(f"  load of the machine at the end {found['load']:.1f}")
    shutil.rmtree("spark-warehouse", ignore_errors=True)
    return 0 if found["reached"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
