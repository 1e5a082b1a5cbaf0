"""The oracle's join beside DuckDB and Polars: events x filters (two equalities, one range), on the
same rows.

    python benchmarks/oracle.py        # 1,000,000 events x 100,000 filters, all cases: some minutes
    python benchmarks/oracle.py --case fine --events 100000 --filters 10000 --rounds 2
    python benchmarks/oracle.py --case fine --rounds 14 --warm 12 # the JVM's compilers at rest
    python benchmarks/oracle.py --growth  # the growth curve: 1/100 to 1 of the size
    python benchmarks/oracle.py --events 10000000 --filters 1000000 --case fine --memory 1g \\
        --engines spark --rounds 1

The work. A filter is `name = ... AND type = ... AND size >= ... AND size < ...`. Each engine goes
from Parquet files of events (event, name, type, size BIGINT) and filters to the number of pairs and
two checksums of them, which must be the same for all engines.

    spark         `gossamer.pipeline.oracle.matches`: it gets the filters as *text*, as the pipeline
                  does, and takes them apart
    columns       the same join by Spark, from the literals as columns: the difference is the cost
                  of the text
    duckdb        from the literals as columns; the same query in SQL
    polars        from the literals as columns; lazy scan, join, filter, streaming engine
    duckdb-texts  like duckdb, from the texts: string_split at the spaces, the quotes cut off
                  (faster than one regexp_extract with four groups, four of them, or split_part)
    polars-texts  like polars, from the texts: split_exact at the quotes, then at the spaces
                  (faster than extract_groups, or four times extract)
    floor         no join: Spark opens both files, and adds up the events' numbers and the lengths
                  of all strings and texts. A join in which Spark's own reader opens both files
                  cannot be much faster
    least         no join and no reading: both DataFrames are invented, and one Python task hands
                  over half as many invented pairs as there are events, which are added up like the
                  oracle's. A DataFrame of that many pairs from Python cannot be made much faster

The two engines from texts do the same work as `spark`, with one difference: they know beforehand
that all texts have one shape, the meaning of that shape, and that no string in them has a space or
a quote. The oracle knows none of this. It finds the shapes, lets Spark's parser read them, and
looks at every text. So each line has two ratios: to the faster of duckdb and polars, which begin at
columns (the bar: 2), and to the faster of the two that begin at texts.

Spark gets the files' schemas, as the pipeline's own reader does (`job.read`), so it does not have
to find them first.

At the end all cases are added up: the time of each engine for all cases, over the sum of the times
of each case's faster rival.

Cases differ in the number of filters that agree with an event in both equalities (at 100,000
filters): `fine` has 5, with ranges of a tenth; `coarse` 500, with ranges of a fiftieth; `skewed`
500, with widths from nothing to half, most of them narrow.

The method. Each engine runs in a process of its own with two threads, one after the other in every
round, and each round starts with the next engine. The first run in a process is the warm-up, in
which Spark compiles its code, and is printed by itself as `first`. The figure is the median of the
other runs, or of the runs after --warm: the JVM continues to compile for some ten rounds. `peak` is
the most memory of the engine's process (for Spark: the JVM, and its Python workers). --memory
bounds the JVM's heap and DuckDB's memory. `cpu` is processor time, user and system, of the engine's
process and its children. On a busy machine it says more than the clock does.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CASES = {"fine": (1000, 20), "coarse": (50, 4), "skewed": (50, 4)}
SIZE = 1_000_000_000
EVENTS_DDL = "event BIGINT, name STRING, type STRING, size BIGINT"
FILTERS_DDL = "filter BIGINT, text STRING, name STRING, type STRING, low BIGINT, high BIGINT"
FROM_COLUMNS, FROM_TEXTS = ("duckdb", "polars"), ("duckdb-texts", "polars-texts")
OF_SPARK = ("spark", "columns", "floor", "least")
ANSWERLESS = ("floor", "least")
ENGINES = (*OF_SPARK, *FROM_COLUMNS, *FROM_TEXTS)
THREADS = 2
Answer = tuple[int, int, int]
Used = tuple[int, float]
"""The most memory up to now, in bytes, and the processor time up to now, in seconds."""


def make(folder: Path, case: str, events: int, filters: int, seed: int) -> None:
    """Write events and filters as Parquet, the same for all engines."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    names, types = CASES[case]

    def words(count: int, kinds: int, letter: str) -> Any:
        chosen = pa.array(rng.integers(0, kinds, count).astype("int32"))
        return pa.DictionaryArray.from_arrays(
            chosen, pa.array([f"{letter}{n}" for n in range(kinds)])
        ).cast(pa.string())

    folder.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(folder / "events.parquet", schema := _events_schema()) as writer:
        for start in range(0, events, 1_000_000):
            count = min(1_000_000, events - start)
            columns = [
                pa.array(np.arange(start, start + count)),
                words(count, names, "n"),
                words(count, types, "t"),
                pa.array(rng.integers(0, SIZE, count)),
            ]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=250_000)
    low = rng.integers(0, SIZE, filters)
    width = {"fine": SIZE // 10, "coarse": SIZE // 50}.get(case)
    high = low + (
        np.full(filters, width) if width else (rng.random(filters) ** 4 * SIZE / 2).astype("int64")
    )
    name, kind = words(filters, names, "n"), words(filters, types, "t")
    rows = zip(name.to_pylist(), kind.to_pylist(), low.tolist(), high.tolist(), strict=True)
    texts = pa.array(
        [f"name = '{n}' AND type = '{t}' AND size >= {a} AND size < {b}" for n, t, a, b in rows]
    )
    table = {
        "filter": np.arange(filters),
        "text": texts,
        "name": name,
        "type": kind,
        "low": low,
        "high": high,
    }
    pq.write_table(pa.table(table), folder / "filters.parquet", row_group_size=50_000)


def _events_schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [("event", pa.int64()), ("name", pa.string()), ("type", pa.string()), ("size", pa.int64())]
    )


def spark_engine(
    folder: Path, memory: str | None, engine: str, stack: contextlib.ExitStack
) -> tuple[Callable[[], Answer], Callable[[], Used]]:
    """The oracle from the filters' text, or the bare join from columns, or only reading, which
    answers nothing.
    """
    import pyarrow.parquet as pq
    from pyspark.sql import functions as sf

    from gossamer.pipeline import oracle
    from gossamer.pipeline.session import session

    conf = {"spark.driver.memory": memory or "4g", "spark.sql.shuffle.partitions": "8"}
    spark = stack.enter_context(session("oracle benchmark", f"local[{THREADS}]", conf=conf))

    handed = pq.read_metadata(folder / "events.parquet").num_rows // 2

    def hand_over(task: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        for _ in task:
            numbers = pa.array(np.arange(handed))
            yield pa.RecordBatch.from_arrays([numbers, numbers], names=["event", "filter"])

    def run() -> Answer:
        events = spark.read.schema(EVENTS_DDL).parquet(str(folder / "events.parquet"))
        filters = spark.read.schema(FILTERS_DDL).parquet(str(folder / "filters.parquet"))
        if engine == "floor":
            lengths = (sf.sum(sf.octet_length(name)) for name in ("name", "type"))
            events.agg(sf.sum("event"), sf.sum("size"), *lengths).first()
            filters.agg(sf.sum("filter"), sf.sum(sf.octet_length("text"))).first()
            return 0, 0, 0
        if engine == "least":
            events.select("event", sf.struct("name", "type", "size").alias("values"))
            filters.select("filter", "text")
            pairs = spark.range(0, 1, 1, 1).mapInArrow(hand_over, "event BIGINT, filter BIGINT")
        elif engine == "columns":
            both = events.join(filters.hint("merge"), on=["name", "type"], how="inner")
            pairs = both.where("size >= low AND size < high").select("event", "filter")
        else:
            values = events.select("event", sf.struct("name", "type", "size").alias("values"))
            pairs = oracle.matches(values, filters.select("filter", "text"))
        row = pairs.agg(
            sf.count(sf.lit(1)),
            sf.sum(sf.expr("event % 1009")),
            sf.sum(sf.expr("(event ^ filter) % 1013")),
        ).first()
        assert row is not None
        return (0, 0, 0) if engine in ANSWERLESS else (row[0], row[1] or 0, row[2] or 0)

    def used() -> Used:
        java = _below(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
        return sum(_peak(pid) for pid in java), _own()[1] + sum(_seconds(pid) for pid in java)

    return run, used


def _below(pid: int) -> list[int]:
    """A process and all its living descendants."""
    with contextlib.suppress(OSError):
        started = [
            path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")
        ]
        return [pid, *(below for words in started for word in words for below in _below(int(word)))]
    return []


def _peak(pid: int) -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    return 0


def _seconds(pid: int) -> float:
    """The processor time of a process and of its children that have ended."""
    with contextlib.suppress(OSError):
        ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, ticks[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def duckdb_engine(
    folder: Path, memory: str | None, texts: bool
) -> tuple[Callable[[], Answer], Callable[[], Used]]:
    import duckdb

    base = duckdb.connect()
    base.execute(f"SET threads = {THREADS}")
    if memory:
        base.execute(f"SET memory_limit = '{memory.upper()}B'")

    filters = f"'{folder}/filters.parquet'"
    # A text is: name = 'n1' AND type = 't2' AND size >= 3 AND size < 4
    if texts:
        words = f"(SELECT filter, string_split(text, ' ') AS w FROM {filters})"
        taken = (
            "w[3][2:-2] AS name, w[7][2:-2] AS type, w[11]::BIGINT AS low, w[15]::BIGINT AS high"
        )
        filters = f"(SELECT filter, {taken} FROM {words})"

    def run() -> Answer:
        found = base.execute(
            f"""SELECT count(*), sum(event % 1009), sum(xor(event, filter) % 1013)
            FROM '{folder}/events.parquet' e JOIN {filters} f
            ON e.name = f.name AND e.type = f.type AND e.size >= f.low AND e.size < f.high"""
        ).fetchone()
        assert found is not None
        return found[0], int(found[1] or 0), int(found[2] or 0)

    return run, _own


def polars_engine(
    folder: Path, memory: str | None, texts: bool
) -> tuple[Callable[[], Answer], Callable[[], Used]]:
    import polars as pl

    def apart(filters: pl.LazyFrame) -> pl.LazyFrame:
        """The parts between the quotes, and the fifth and ninth word after the last quote."""
        quoted = pl.col("text").str.split_exact("'", 4).struct
        words = quoted.field("field_4").str.split_exact(" ", 8).alias("words")
        found = filters.select(
            "filter",
            quoted.field("field_1").alias("name"),
            quoted.field("field_3").alias("type"),
            words,
        )
        ends = [
            (pl.col("words").struct.field(f"field_{at}").cast(pl.Int64)).alias(name)
            for at, name in ((4, "low"), (8, "high"))
        ]
        return found.select("filter", "name", "type", *ends)

    def run() -> Answer:
        events, filters = (
            pl.scan_parquet(folder / f"{name}.parquet") for name in ("events", "filters")
        )
        pairs = events.join(
            apart(filters) if texts else filters.drop("text"), on=["name", "type"]
        ).filter((pl.col("size") >= pl.col("low")) & (pl.col("size") < pl.col("high")))
        checks = pairs.select(
            pl.len().alias("n"),
            (pl.col("event") % 1009).sum().alias("a"),
            ((pl.col("event") ^ pl.col("filter")) % 1013).sum().alias("b"),
        )
        row = checks.collect(engine="streaming").row(0)
        return int(row[0]), int(row[1]), int(row[2])

    return run, _own


def _own() -> Used:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def serve(engine: str, folder: Path, memory: str | None) -> None:
    """Run in a process of its own: one run for each line on stdin."""
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if engine in OF_SPARK:
            run, used = spark_engine(folder, memory, engine, stack)
        else:
            library = {"duckdb": duckdb_engine, "polars": polars_engine}[
                engine.removesuffix("-texts")
            ]
            run, used = library(folder, memory, engine in FROM_TEXTS)
        print(json.dumps({"start": time.perf_counter() - began}), flush=True)
        for _ in sys.stdin:
            began, (_, before) = time.perf_counter(), used()
            answer = run()
            seconds, (peak, after) = time.perf_counter() - began, used()
            print(
                json.dumps(
                    {"seconds": seconds, "cpu": after - before, "answer": answer, "peak": peak}
                ),
                flush=True,
            )


class Engine:
    """A contender's process."""

    def __init__(self, name: str, folder: Path, memory: str | None) -> None:
        words = [sys.executable, __file__, "--serve", name, "--folder", str(folder)]
        env = {**os.environ, "POLARS_MAX_THREADS": str(THREADS)}
        self.name, self.times, self.cpu, self.peak = name, [], [], 0
        self.process = subprocess.Popen(
            words + (["--memory", memory] if memory else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )
        self.failed = "start" not in self._said()
        self.answer: Answer | None = None

    times: list[float]
    cpu: list[float]

    def _said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def run(self) -> None:
        if self.failed:
            return
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        said = self._said()
        if not said:
            # The process is gone, most likely because it was out of memory.
            self.failed = True
            return
        self.times.append(said["seconds"])
        self.cpu.append(said["cpu"])
        self.answer, self.peak = tuple(said["answer"]), said["peak"]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def measure(
    case: str, events: int, filters: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """One line for each contender."""
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        make(Path(folder), case, events, filters, options.seed)
        engines = [Engine(name, Path(folder), options.memory) for name in options.engines]
        for turn in range(options.warm + options.rounds):
            for place in range(len(engines)):
                engines[(turn + place) % len(engines)].run()
        for engine in engines:
            engine.end()
    answers = {
        engine.answer
        for engine in engines
        if engine.answer is not None and engine.name not in ANSWERLESS
    }
    if len(answers) > 1:
        raise SystemExit(
            f"{case}: the contenders differ: { {engine.name: engine.answer for engine in engines} }"
        )
    lines = []
    for engine in engines:
        line: dict[str, Any] = {
            "case": case,
            "events": events,
            "filters": filters,
            "engine": engine.name,
        }
        if engine.failed or not engine.times:
            lines.append(line | {"failed": True})
            continue
        rest = engine.times[options.warm :]
        assert engine.answer is not None
        lines.append(
            line
            | {
                "pairs": engine.answer[0],
                "seconds": round(statistics.median(rest), 3),
                "first": round(engine.times[0], 3),
            }
            | {"cpu": round(statistics.median(engine.cpu[options.warm :]), 2)}
            | {
                "all": [round(seconds, 3) for seconds in engine.times],
                "peak_mb": engine.peak // 2**20,
            }
        )
    for ratio, rivals in (("to_columns", FROM_COLUMNS), ("to_texts", FROM_TEXTS)):
        faster = min(
            (line["seconds"] for line in lines if line["engine"] in rivals and "seconds" in line),
            default=None,
        )
        for line in lines if faster else ():
            if "seconds" in line:
                line[ratio] = round(line["seconds"] / faster, 2)
    return lines


def show(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        head = (
            f"{line['case']:<7} {line['events']:>11,} x {line['filters']:>9,}  {line['engine']:<12}"
        )
        if "failed" in line:
            print(f"{head} failed (its process ended)")
            continue
        print(
            f"{head} {line['seconds']:8.2f} s (first {line['first']:6.2f}) cpu "
            f"{line['cpu']:7.2f} s peak {line['peak_mb']:>6,} MB "
            f"{line['pairs']:>12,} pairs{_ratios(line, 'the faster rival')}",
            flush=True,
        )


def together(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sums over the cases of one size, with a line for each engine.

    An engine that failed in a case has no sum.
    """
    cases = list(dict.fromkeys(line["case"] for line in lines))
    took = {(line["case"], line["engine"]): line["seconds"] for line in lines if "seconds" in line}

    def total(engines: tuple[str, ...]) -> float | None:
        """The sum of the fastest of these engines in each case."""
        fastest = [
            min((took[case, one] for one in engines if (case, one) in took), default=None)
            for case in cases
        ]
        return (
            None if None in fastest else sum(seconds for seconds in fastest if seconds is not None)
        )

    rivals = {"to_columns": total(FROM_COLUMNS), "to_texts": total(FROM_TEXTS)}
    added = []
    for engine in dict.fromkeys(line["engine"] for line in lines):
        if len(cases) < 2 or engine in ANSWERLESS or (seconds := total((engine,))) is None:
            continue
        ratios = {name: round(seconds / faster, 2) for name, faster in rivals.items() if faster}
        added.append(
            {
                "case": "all",
                "cases": cases,
                "engine": engine,
                "seconds": round(seconds, 3),
                **ratios,
            }
        )
    return added


def show_together(added: list[dict[str, Any]]) -> None:
    for line in added:
        print(
            f"all cases added together ({' + '.join(line['cases'])})  {line['engine']:<12} "
            f"{line['seconds']:8.2f} s"
            f"{_ratios(line, 'the faster rivals')}"
        )


def _ratios(line: dict[str, Any], rivals: str) -> str:
    kinds = (("to_columns", "columns"), ("to_texts", "texts"))
    return ",".join(
        f" {line[ratio]:6.2f} x {rivals} from {kind}" for ratio, kind in kinds if ratio in line
    )


def _positive(word: str) -> int:
    if (number := int(word)) < 1:
        raise ValueError
    return number


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--filters", type=int, default=100_000)
    parser.add_argument("--case", action="append", choices=list(CASES), help="default: all")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--rounds", type=_positive, default=3, help="after the warm-up")
    parser.add_argument(
        "--warm", type=_positive, default=1, help="rounds that are left out as warm-up"
    )
    parser.add_argument("--memory", help="such as 1g: for the JVM's heap, and DuckDB")
    parser.add_argument(
        "--growth", action="store_true", help="1/100, 1/30, 1/10, 1/3 of the size as well"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead")
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.folder, options.memory)
        return
    if not options.json:
        versions = ", ".join(
            f"{name} {importlib.metadata.version(name)}" for name in ("pyspark", "duckdb", "polars")
        )
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"{versions}"
        )
    whole = []
    for case in options.case or CASES:
        for share in (100, 30, 10, 3, 1) if options.growth else (1,):
            lines = measure(case, options.events // share, options.filters // share, options)
            if options.json:
                print("\n".join(json.dumps(line) for line in lines), flush=True)
            else:
                show(lines)
            whole += lines if share == 1 else []
    added = together(whole)
    if options.json:
        print("".join(f"{json.dumps(line)}\n" for line in added), end="", flush=True)
    else:
        show_together(added)


if __name__ == "__main__":
    main()
