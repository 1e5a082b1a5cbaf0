"""How stages run, when a stage is skipped, and how its tables become visible.

This is the only module that reads and writes tables.

A **stage** is a function from tables to tables (``Stage.make``). Everything else that its rows
depend on is stated beside it: files, settings, code. These and the digests of the tables that it
reads make its **fingerprint**. A stage is skipped if it has the fingerprint of its last commit. So
a job that was killed continues where it was, and a job that runs a second time does nothing.

A commit has two phases. First every table is written under ``.staging`` and checked against its
contract. When all tables are sound, a manifest is put beside them, and from then on the commit is
decided. Then it is rolled forward: the old manifest goes, the tables are renamed into place, and
the new manifest comes last. If this job is killed in the middle, the next job finishes that. A
table is read only through the manifest of its stage. Therefore no reader sees tables that are
half-written, half-renamed or left over.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

import gossamer
from gossamer.pipeline import contracts, shipping
from gossamer.pipeline.contracts import Checked
from gossamer.pipeline.quiet import is_interrupt
from gossamer.pipeline.tables import TABLES, Table, plain

MANIFESTS, STAGING, SCRATCH = "_stages", ".staging", ".scratch"
WAVES = "_waves"
"""The committed runs of grids. They outlive the stage, so that a grid can grow."""
_JOB = "job"
S = TypeVar("S", bound=Struct)
MAKERS = {"models": "gossamer pipeline models", "figures": "gossamer reproduce"} | dict.fromkeys(
    ("grid", "measures", "spreads", "news", "reconfigurations"), "gossamer pipeline grid"
)
"""The command that makes a table, for tables that ``gossamer pipeline run`` does not make."""
HIDDEN = "Spark ignores files whose names begin with _ or a dot; rename it"


class JobError(ValueError):
    """A job that cannot be done. The message gives the cause and a remedy."""


class Stage(Struct, frozen=True):
    """One step of a job.

    The rows that it writes depend on the fields below, and on nothing else.
    """

    name: str
    make: Callable[[Step], Mapping[str, DataFrame]]
    """Returns the rows of every table in ``writes``, by name.

    It writes the files in ``products`` itself, at the places that ``Step.product`` gives.
    """
    writes: tuple[Table, ...] = ()
    reads: tuple[Table, ...] = ()
    products: tuple[str, ...] = ()
    """Files under ``out`` that are not tables."""
    files: tuple[Path, ...] = ()
    """Inputs from outside."""
    settings: Any = None
    """All other inputs, as plain data."""
    code: tuple[str, ...] = ()
    """Modules or packages whose source decides the rows.

    The stage runs again when one of them changes.
    """


class Manifest(Struct, frozen=True):
    """The record of a stage's commit, in ``out/_stages/NAME.json``."""

    stage: str
    fingerprint: str
    inputs: dict[str, str]
    """Each part of the fingerprint with its own digest, so that a later job can say which part
    changed.
    """
    tables: dict[str, Checked]
    products: tuple[str, ...]
    files: dict[str, int]
    """Every file of its tables and products with its size, to notice changes by hand."""
    seconds: float
    at: str
    gossamer: str


class StageStatus(Struct, frozen=True):
    stage: str
    state: str
    """One of done, stale, missing, waits and committed.

    "waits" means that an earlier stage must run first. "committed" means that another command made
    it, and only that command knows whether it is stale.
    """
    why: str
    rows: dict[str, int]
    seconds: float | None
    at: str | None


class Outcome(Struct, frozen=True):
    """The result of one stage."""

    stage: str
    skipped: bool
    why: str
    rows: dict[str, int]
    seconds: float


class Step:
    """The tools of a stage while it runs."""

    def __init__(self, spark: SparkSession, out: Path, stage: Stage, fingerprint: str) -> None:
        self.spark, self.out, self.stage = spark, out, stage
        self.staging = out / STAGING / stage.name
        self.scratch = out / SCRATCH / stage.name / fingerprint
        """A folder for results so far.

        It outlives a killed job and goes with the commit. Other inputs give another folder.
        """
        self._kept: list[DataFrame] = []

    def read(self, table: Table) -> DataFrame:
        if table not in self.stage.reads:
            raise AssertionError(
                f"stage {self.stage.name} does not state that it reads {table.name}"
            )
        return read(self.spark, table, self.out)

    def keep(self, rows: DataFrame) -> DataFrame:
        """Compute rows once that several tables are made of."""
        self._kept.append(rows.persist(StorageLevel.MEMORY_AND_DISK))
        return rows

    def product(self, name: str) -> Path:
        """The place for a file that becomes ``out / name``."""
        assert name in self.stage.products, (
            f"stage {self.stage.name} does not state that it writes {name}"
        )
        return self.staging / name

    def release(self) -> None:
        for rows in self._kept:
            rows.unpersist()


OnStage = Callable[[str, bool], None]
"""Called with the stage that begins, and whether it is skipped."""


def run(
    spark: Callable[[], SparkSession],
    out: Path,
    stages: Sequence[Stage],
    on_stage: OnStage = lambda stage, skipped: None,
    *,
    force: bool = False,
) -> list[Outcome]:
    """Run the stages in order, and skip those whose inputs did not change, unless forced.

    ``spark`` is called only when a stage needs it.
    """
    done = []
    with writing(out):
        for stage in stages:
            inputs = fingerprint_inputs(stage, out)
            why = "forced" if force else _why(stage, inputs, _manifest(out, stage.name), out)
            on_stage(stage.name, not why)
            if why:
                done.append(_do(spark(), stage, inputs, why, out))
            else:
                committed = _manifest(out, stage.name)
                assert committed is not None
                done.append(Outcome(stage.name, True, "", _rows(committed), committed.seconds))
    return done


def status(out: Path, stages: Sequence[Stage]) -> list[StageStatus]:
    """The state of each stage, as ``run`` would find it. This changes nothing and needs no JVM."""
    found: list[StageStatus] = []
    unsure: set[str] = set()
    for stage in stages:
        manifest = _manifest(out, stage.name)
        known = (_rows(manifest), manifest.seconds, manifest.at) if manifest else ({}, None, None)
        if waits := [table.name for table in stage.reads if table.name in unsure]:
            state, why = "waits" if manifest else "missing", f"waits for {', '.join(waits)}"
        else:
            try:
                why = _why(stage, fingerprint_inputs(stage, out), manifest, out)
            # An input is gone, or cannot be read any more.
            except JobError as error:
                why = str(error)
            state = "missing" if manifest is None else "stale" if why else "done"
        if state != "done":
            unsure |= {table.name for table in stage.writes}
        found.append(StageStatus(stage.name, state, why, *known))
    return found


def others(out: Path, stages: Sequence[Stage]) -> list[StageStatus]:
    """Commits of stages that belong to other commands: grids, models and figures."""
    named = {stage.name for stage in stages}
    return [
        StageStatus(one.stage, "committed", "", _rows(one), one.seconds, one.at)
        for one in _manifests(out)
        if one.stage not in named
    ]


def counts(out: Path) -> dict[str, int]:
    """The number of rows of each committed table."""
    return {name: rows for manifest in _manifests(out) for name, rows in _rows(manifest).items()}


def clean(out: Path, stages: Sequence[str] = ()) -> list[str]:
    """Remove everything that jobs made under ``out``, or the work of some stages.

    Return the names.
    """
    known = {manifest.stage: manifest for manifest in _manifests(out)}
    if unknown := [
        name for name in stages if name not in known and not (out / SCRATCH / name).exists()
    ]:
        there = (
            f"there are {', '.join(sorted(known))}" if known else f"nothing is committed in {out}"
        )
        raise JobError(f"no stage {unknown[0]!r} to clean; {there}")
    gone = []
    with writing(out) if out.is_dir() else contextlib.nullcontext():
        for name, manifest in known.items():
            if stages and name not in stages:
                continue
            # The manifest goes first, because a table that is half removed must not be read.
            (out / MANIFESTS / f"{name}.json").unlink()
            for thing in (*manifest.tables, *manifest.products):
                _remove(out / thing)
                gone.append(thing)
        for name in stages or [path.name for path in (out / SCRATCH).glob("*")]:
            _remove(out / SCRATCH / name)
        if not stages or "grid" in stages:
            _remove(out / WAVES)
    if not stages and out.is_dir():
        _remove(out / MANIFESTS)
        for folder in (out / SCRATCH, out / STAGING):
            if folder.is_dir():
                folder.rmdir()
    return gone


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Let one job at a time write under ``out``, and finish or clear the work of a killed job."""
    try:
        (out / MANIFESTS).mkdir(parents=True, exist_ok=True)
        opened = (out / MANIFESTS / ".lock").open("a")
    except OSError as error:
        raise JobError(
            f"{out}: no folder that can be written to ({error.strerror}); choose another with --out"
        ) from None
    with opened as lock:
        try:
            # The lock goes with the process, however the process ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JobError(
                f"another job is writing to {out}; wait for it, or choose another folder with --out"
            ) from None
        recover(out)
        yield


def remember(out: Path, wanted: Struct) -> None:
    """Keep the options of a job, so that ``status`` knows what the job would do."""
    with writing(out):
        _write_whole(
            out / MANIFESTS / _JOB, msgspec.json.format(msgspec.json.encode(wanted, enc_hook=str))
        )


def remembered(out: Path, kind: type[S]) -> S:
    try:
        data = (out / MANIFESTS / _JOB).read_bytes()
        return msgspec.json.decode(data, type=kind, dec_hook=lambda type, value: type(value))
    except (FileNotFoundError, NotADirectoryError):
        raise JobError(
            f"{out}: no job has run here; run one with: gossamer pipeline run --out {out}"
        ) from None
    except msgspec.DecodeError as error:
        raise JobError(
            f"{out / MANIFESTS / _JOB}: cannot be read ({error}); run the job again"
        ) from None


def recover(out: Path) -> None:
    """Finish the commit that a killed job had decided, and remove tables that it had not
    decided.
    """
    for left in sorted((out / STAGING).glob("*")):
        if (left / "manifest.json").is_file():
            _roll_forward(out, left)
        else:
            _remove(left)


def read(spark: SparkSession, table: Table, out: Path) -> DataFrame:
    """Read a table that was committed under ``out``."""
    _committed(table, out)
    return spark.read.schema(table.schema).parquet(literal(out / table.name))


def show(name: str, out: Path, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The first rows of a table in the order of its key, and its number of rows.

    This needs no JVM.
    """
    import pyarrow.dataset as ds

    if name not in TABLES:
        raise JobError(f"no table {name!r}; there are {', '.join(TABLES)}")
    table = TABLES[name]
    count = _committed(table, out).tables[name].rows
    whole = ds.dataset(out / name, format="parquet", exclude_invalid_files=False)
    # The table may be larger than memory, so this takes the smallest keys of each batch, then of
    # all.
    order = [(key, "ascending") for key in table.key]
    first = None
    for batch in whole.to_batches(columns=table.names):
        part = _smallest(batch, order, limit)
        first = part if first is None else _smallest(first, order, limit, part)
    return ([] if first is None else first.to_pylist()), count


def _smallest(rows: Any, order: list[tuple[str, str]], limit: int, more: Any = None) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    both = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if more is not None:
        both = pa.concat_tables([both, more])
    return (
        both.take(pc.select_k_unstable(both, k=min(limit, len(both)), sort_keys=order))
        if len(both)
        else both
    )


def write(rows: DataFrame, table: Table, place: Path) -> Checked:
    """Write rows as Parquet and check them against the table's contract."""
    contracts.check_schema(rows, table)
    rows.write.mode("overwrite").parquet(str(place))
    return contracts.check_rows(
        rows.sparkSession.read.schema(table.schema).parquet(literal(place)), table
    )


def fingerprint_inputs(stage: Stage, out: Path) -> dict[str, str]:
    """Everything that the stage's rows depend on, each with its digest."""
    committed = {
        name: checked.digest
        for manifest in _manifests(out)
        for name, checked in manifest.tables.items()
    }
    inputs = {f"table {table.name}": committed.get(table.name, "missing") for table in stage.reads}
    inputs |= {f"file {path}": _digest_file(path) for path in stage.files}
    inputs |= {f"code {name}": digest_code(name) for name in stage.code}
    inputs["settings"] = _digest(msgspec.json.encode(stage.settings, order="deterministic"))
    return inputs | {
        "tables": _digest(msgspec.json.encode([plain(table) for table in stage.writes]))
    }


def _why(stage: Stage, inputs: dict[str, str], manifest: Manifest | None, out: Path) -> str:
    """Why the stage must run. Empty if its last commit still holds."""
    if manifest is None:
        return "never run"
    if changed := [
        name for name in (inputs | manifest.inputs) if inputs.get(name) != manifest.inputs.get(name)
    ]:
        return f"changed: {', '.join(changed)}"
    if manifest.files != _files(out, [*manifest.tables, *manifest.products]):
        return "its files were changed by hand"
    return ""


def _do(spark: SparkSession, stage: Stage, inputs: dict[str, str], why: str, out: Path) -> Outcome:
    began = time.perf_counter()
    fingerprint = _fingerprint(inputs)
    step = Step(spark, out, stage, fingerprint)
    _remove(step.staging)
    step.staging.mkdir(parents=True)
    try:
        made = stage.make(step)
        assert set(made) == {table.name for table in stage.writes}, (
            f"stage {stage.name} made {sorted(made)}"
        )
        checked = {
            table.name: write(made[table.name], table, step.staging / table.name)
            for table in stage.writes
        }
    except BaseException as error:
        # After an interrupt tasks write there until Spark ends, and would complain. ``recover``
        # removes the folder later.
        if not is_interrupt(error):
            shutil.rmtree(step.staging, ignore_errors=True)
        raise
    finally:
        step.release()
    seconds = round(time.perf_counter() - began, 3)
    files = _files(step.staging, [*checked, *stage.products])
    manifest = Manifest(
        stage.name,
        fingerprint,
        inputs,
        checked,
        stage.products,
        files,
        seconds,
        _now(),
        gossamer.__version__,
    )
    # From here on the commit is decided.
    _write_whole(step.staging / "manifest.json", msgspec.json.format(msgspec.json.encode(manifest)))
    _roll_forward(out, step.staging)
    _remove(out / SCRATCH / stage.name)
    return Outcome(stage.name, False, why, _rows(manifest), seconds)


def _roll_forward(out: Path, staging: Path) -> None:
    """Put a decided commit in place.

    A killed job can leave this at any point, and the next job repeats it.
    """
    decided = staging / "manifest.json"
    manifest = msgspec.json.decode(decided.read_bytes(), type=Manifest)
    place = out / MANIFESTS / f"{manifest.stage}.json"
    # Until the new manifest is there, no reader sees these tables.
    place.unlink(missing_ok=True)
    for thing in (*manifest.tables, *manifest.products):
        if (staging / thing).exists():
            _remove(out / thing)
            (staging / thing).rename(out / thing)
    decided.replace(place)
    _remove(staging)


def _committed(table: Table, out: Path) -> Manifest:
    """The manifest of the stage that committed a table."""
    for manifest in _manifests(out):
        if table.name in manifest.tables:
            return manifest
    maker = MAKERS.get(table.name, "gossamer pipeline run")
    raise JobError(f"no table {table.name} in {out}; make it with: {maker} --out {out}")


def _manifests(out: Path) -> list[Manifest]:
    return [
        found
        for path in sorted((out / MANIFESTS).glob("*.json"))
        if (found := _manifest(out, path.stem)) is not None
    ]


def _manifest(out: Path, stage: str) -> Manifest | None:
    """A stage without a readable manifest runs again."""
    try:
        return msgspec.json.decode((out / MANIFESTS / f"{stage}.json").read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _rows(manifest: Manifest) -> dict[str, int]:
    return {name: checked.rows for name, checked in manifest.tables.items()}


def _files(folder: Path, things: Iterable[str]) -> dict[str, int]:
    """The files of tables and products, by their path under the folder."""
    found = [
        path
        for thing in things
        for path in ((folder / thing), *(folder / thing).rglob("*"))
        if path.is_file()
    ]
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(found)}


def digest_code(name: str) -> str:
    """The digest of the source of a module, or of all modules of a package."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise AssertionError(f"no module {name}")
    origin = Path(spec.origin)
    paths = sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
    return _digest(b"\n".join(_digest(path.read_bytes()).encode() for path in paths))


def _fingerprint(inputs: dict[str, str]) -> str:
    return _digest(msgspec.json.encode(inputs, order="deterministic"))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _digest_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except FileNotFoundError:
        raise JobError(f"{path}: no such file") from None
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror})") from None


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the machine fails."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_lines(
    spark: SparkSession, paths: Iterable[Path], separator: str | None = None
) -> DataFrame:
    """The lines of text files (plain or .gz) as (source, line, row).

    Lines are numbered from 1, however Spark splits the files.
    """
    found = spark.read.text([literal(path) for path in paths], lineSep=separator).select(
        source_column().alias("source"),
        sf.col("_metadata.file_block_start").alias("block"),
        # These ids are consecutive inside a block.
        sf.monotonically_increasing_id().alias("place"),
        sf.col("value").alias("row"),
    )
    blocks = found.groupBy("source", "block").agg(
        sf.min("place").alias("first"), sf.count(sf.lit(1)).alias("size")
    )
    before = (
        Window.partitionBy("source").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    )
    starts = blocks.select(
        "source",
        "block",
        "first",
        sf.coalesce(sf.sum("size").over(before), sf.lit(0)).alias("before"),
    )
    numbered = found.join(sf.broadcast(starts), on=["source", "block"], how="inner")
    return numbered.select(
        "source", (sf.col("place") - sf.col("first") + sf.col("before") + 1).alias("line"), "row"
    )


def cut(rows: DataFrame) -> DataFrame:
    """The same rows, computed once, and without the plan that made them.

    Spark goes through the whole plan of its input at every step and in every query. For small data
    that takes most of the time. The rows are freed when no variable refers to them.

    On a cluster the rows keep their plan: an executor may be lost, and its rows are then made
    again.
    """
    if shipping.is_local(rows.sparkSession.sparkContext.master or "local"):
        return rows.localCheckpoint(eager=False)
    return rows.persist()


def is_hidden(path: Path) -> bool:
    """Whether Spark would silently read nothing from this path."""
    return path.resolve().name.startswith(("_", "."))


def source_column() -> Column:
    """The path of the file that a row is from, in the form that its owner wrote.

    Spark gives a URI.
    """
    uri = sf.col("_metadata.file_path")
    encoded = sf.replace(sf.regexp_replace(uri, "^file:(//)?", ""), sf.lit("+"), sf.lit("%2B"))
    return sf.url_decode(encoded)


def literal(path: Path) -> str:
    """Escape a path, because Spark reads paths as patterns."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path.resolve()))
