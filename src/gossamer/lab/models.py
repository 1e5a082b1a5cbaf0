"""Scale models: the three planes in their steady state, up to millions of nodes, in Spark's tasks.

The models are one DataFrame program with plane, size and parameter as columns. A row of ``plans``
is a fabric and a number of events, cut into parts with one task each. A task makes the fabric (a
pure function of the row), follows its events, and returns counts, and Spark adds them up. Every
result is an integer count, and an event's draw depends only on the row and its own number. So the
rows are the same for any number of parts, partitions or executors.

    skiplist   parameter k   hops of a walk; noise: events at an entry that does not want them;
                             load: events at an entry
    interest   parameter K   rounds until a node knows a change; copies of changes into a node;
                             degree
    tree       parameter 2   hops to a subscriber; depth, degree; noise and load as above; copies
                             of an event
    robustness parameter K   of the nodes that survive when a percentage fails at once: the number
                             that still hear of a change

The models are those beside the simulations (lab/skiplist/model.py, lab/interest/model.py,
lab/tree/model.py). Tests compare them with full runs. NumPy does a million nodes in seconds; a
compiler (numba) would save less than it takes to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from gossamer.pipeline.job import Stage
from gossamer.pipeline.tables import MODELS, parse_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

PLANES = ("skiplist", "interest", "tree", "robustness")
PARAMETERS = {"skiplist": 2, "interest": 6, "tree": 2, "robustness": 6}
"""The seeds' own parameters: k = 2, K = 6, binary."""
EVENTS = {"skiplist": 100_000, "interest": 16, "tree": 32, "robustness": 4}
"""The default number of events. A walk is cheap, but a change goes to every node."""
SHARE = 0.01
"""The share of a tree's hosts that want an event."""
WANTED = 0.4
"""The share of a skip list's events that some entry wants (as in the synthetic workload)."""
SIZE_MAX = 10_000_000
FAILED = (10, 20, 30, 40, 50, 60, 70)
"""Percent of the nodes that fail at once."""
SOURCES = 5
"""The number of survivors at which a change is started.

The one that reaches most counts, because a lone survivor says nothing about the rest.
"""

_BY_NODE = ("noise", "load", "copies")
"""These are counted node by node first. The table has the number of nodes for each value."""
_FABRIC = ("plane", "size", "parameter", "seed", "events")
_FABRIC_DDL = "plane STRING, size BIGINT, parameter BIGINT, seed BIGINT, events BIGINT"
_PLANS = f"{_FABRIC_DDL}, first BIGINT, last BIGINT"
_COUNTED = f"{_FABRIC_DDL}, what STRING, at BIGINT, count BIGINT"


class ModelError(ValueError):
    """An unknown model. The message gives the fault and the known ones."""


class Plan(Struct, frozen=True):
    """A fabric, and the number of events that are followed in it."""

    plane: str
    size: int
    parameter: int = 0
    """k, K or arity. 0 takes the seed's own."""
    seed: int = 0
    events: int = 0
    """0 takes the default of the plane."""

    def checked(self) -> Plan:
        if self.plane not in PLANES:
            raise ModelError(f"no model of {self.plane!r}; there are {', '.join(PLANES)}")
        parameter = self.parameter or PARAMETERS[self.plane]
        if self.plane == "tree" and parameter != 2:
            raise ModelError(
                f"the model of the tree is binary, not of arity {parameter}; simulate wider ones"
            )
        if not 2 <= self.size <= SIZE_MAX:
            raise ModelError(f"size is {self.size}; it must be from 2 to {SIZE_MAX:,}")
        if not 1 <= parameter <= 32 or (self.plane == "skiplist" and parameter < 2):
            raise ModelError(f"{self.plane}: parameter is {parameter}; it must be from 2 to 32")
        return Plan(self.plane, self.size, parameter, self.seed, self.events or EVENTS[self.plane])


def plans(spark: SparkSession, wanted: Sequence[Plan], parts: int = 2) -> DataFrame:
    """Each plan in ``parts`` parts, with a row for each."""
    rows = []
    for plan in dict.fromkeys(each.checked() for each in wanted):
        cut = min(parts, plan.events)
        for part in range(cut):
            bounds = part * plan.events // cut, (part + 1) * plan.events // cut
            rows.append((plan.plane, plan.size, plan.parameter, plan.seed, plan.events, *bounds))
    return spark.createDataFrame(rows, _PLANS).repartitionByRange(
        max(1, len(rows)), *_FABRIC, "first"
    )


def models(planned: DataFrame) -> DataFrame:
    """The rows of ``models`` from plans."""
    schema = parse_schema(_COUNTED)

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for row in batch.to_pylist():
                for what, at, count in _followed(row):
                    same = [
                        pa.repeat(pa.scalar(value), len(at))
                        for value in (*(row[name] for name in _FABRIC), what)
                    ]
                    columns = [*same, pa.array(at, pa.int64()), pa.array(count, pa.int64())]
                    yield pa.RecordBatch.from_arrays(
                        columns, names=[*_FABRIC, "what", "at", "count"]
                    )

    keys = (*_FABRIC, "what")
    added = (
        planned.mapInArrow(each, schema).groupBy(*keys, "at").agg(sf.sum("count").alias("count"))
    )
    by_node = sf.col("what").isin(*_BY_NODE)
    value = sf.when(by_node, sf.col("count")).otherwise(sf.col("at"))
    many = sf.when(by_node, sf.lit(1)).otherwise(sf.col("count"))
    spread = added.groupBy(*keys, value.alias("at")).agg(sf.sum(many).alias("count"))
    # A task reports only nodes with a value above zero. The missing nodes have zero. One pass
    # computes both, because for each part of a union Spark would follow all events again.
    whole = spread.groupBy(*keys).agg(
        sf.collect_list(sf.struct("at", "count")).alias("each"), sf.sum("count").alias("told")
    )
    left = sf.col("size") - sf.col("told")
    idle = sf.when(
        by_node & (left > 0), sf.struct(sf.lit(0).cast("BIGINT").alias("at"), left.alias("count"))
    )
    rows = sf.explode(sf.array_compact(sf.array_append("each", idle))).alias("row")
    return whole.select(*keys, rows).select(*keys, "row.*").select(*MODELS.names)


def summary(rows: DataFrame) -> DataFrame:
    """Mean, median, 99th percentile and maximum of each distribution."""
    keys = (*_FABRIC, "what")
    up_to = Window.partitionBy(*keys).orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
    ranked = rows.withColumn("upto", sf.sum("count").over(up_to)).withColumn(
        "all", sf.sum("count").over(Window.partitionBy(*keys))
    )

    def rank(share: float) -> Any:
        return sf.min(
            sf.when(sf.col("upto") >= sf.ceil(sf.col("all") * sf.lit(share)), sf.col("at"))
        )

    return ranked.groupBy(*keys).agg(
        (sf.sum(sf.col("at") * sf.col("count")) / sf.sum("count")).alias("mean"),
        rank(0.5).alias("p50"),
        rank(0.99).alias("p99"),
        sf.max("at").alias("most"),
    )


def stage(wanted: Sequence[Plan], parts: int = 2) -> Stage:
    """The models as a stage of a job. The number of parts changes nothing in the rows."""
    checked = [plan.checked() for plan in wanted]
    return Stage(
        "models",
        lambda step: {"models": models(plans(step.spark, checked, parts))},
        writes=(MODELS,),
        settings=[to_builtins(plan) for plan in checked],
        code=("gossamer.machine", "gossamer.overlay", "gossamer.sim", "gossamer.lab.models"),
    )


def _followed(row: dict[str, Any]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(what, at, count) of one part. Values of the fabric itself come with the first part."""
    follow = {
        "skiplist": _skiplist,
        "interest": _interest,
        "tree": _tree,
        "robustness": _robustness,
    }[row["plane"]]
    yield from follow(
        row["size"], row["parameter"], row["seed"], row["events"], row["first"], row["last"]
    )


def _spread(what: str, values: np.ndarray) -> tuple[str, np.ndarray, np.ndarray]:
    """The number of nodes for each value."""
    import numpy as np

    counts = np.bincount(values)
    at = np.flatnonzero(counts)
    return what, at, counts[at]


def _each(what: str, counts: np.ndarray) -> tuple[str, np.ndarray, np.ndarray]:
    """The nodes with a value above zero, and their values."""
    import numpy as np

    at = np.flatnonzero(counts)
    return what, at, counts[at]


Found = Iterator[tuple[str, "np.ndarray", "np.ndarray"]]


def _skiplist(size: int, k: int, seed: int, events: int, first: int, last: int) -> Found:
    import numpy as np

    from gossamer.lab.skiplist.model import Model

    rng = np.random.Generator(np.random.PCG64([seed, size, k]))
    sources = rng.integers(0, size, events)[first:last]
    wanted = (rng.random(events) < WANTED)[first:last]
    targets = 2 * rng.integers(0, size, events)[first:last] + np.where(wanted, 0, 1)
    hops, visits = Model(size, k).walk(sources, targets)
    yield _spread("hops", hops)
    yield _each("load", visits)
    noise = visits.copy()
    # An event at an entry that wanted it is not noise.
    np.subtract.at(noise, targets[wanted & (hops > 0)] // 2, 1)
    yield _each("noise", noise)


@lru_cache(maxsize=1)
def _overlay(size: int, k: int, seed: int) -> Any:
    from gossamer.lab.interest.model import Overlay, draw_peers

    return Overlay(draw_peers(size, seed), k)


def _interest(size: int, k: int, seed: int, events: int, first: int, last: int) -> Found:
    import numpy as np

    overlay = _overlay(size, k, seed)
    sources = np.random.Generator(np.random.PCG64([seed, size, k, 1])).integers(0, size, events)[
        first:last
    ]
    if first == 0:
        yield _spread("degree", overlay.degree)
    copies = np.zeros(size, dtype=np.int64)
    for source in sources:
        rounds = overlay.rounds(int(source))
        yield _spread("rounds", np.delete(rounds, source))
        copies += overlay.copies(rounds)
    yield _each("copies", copies)


@lru_cache(maxsize=1)
def _hosts(size: int, seed: int) -> Any:
    from gossamer.lab.tree.model import Tree, draw_keys

    return Tree(draw_keys(size, seed))


def _tree(size: int, arity: int, seed: int, events: int, first: int, last: int) -> Found:
    import numpy as np

    from gossamer.lab.tree.model import draw_event

    tree = _hosts(size, seed)
    if first == 0:
        yield _spread("depth", tree.depth)
        yield _spread("degree", tree.degree)
    noise, load = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for number in range(first, last):
        rng = np.random.Generator(np.random.PCG64([seed, size, arity, number]))
        source, wants = draw_event(rng, size, SHARE)
        touched, copies = tree.carries(source, wants)
        load += touched
        touched[source] = False
        noise += touched & ~wants
        yield _spread("hops", tree.distances(source)[wants])
        yield "copies_of_event", np.array([copies], dtype=np.int64), np.array([1], dtype=np.int64)
    yield _each("load", load)
    yield _each("noise", noise)


def _robustness(size: int, k: int, seed: int, events: int, first: int, last: int) -> Found:
    import numpy as np

    from gossamer.lab.interest.model import survivors

    overlay = _overlay(size, k, seed)
    at, left, reached = (
        np.array(FAILED),
        np.zeros(len(FAILED), dtype=np.int64),
        np.zeros(len(FAILED), dtype=np.int64),
    )
    for number in range(first, last):
        rng = np.random.Generator(np.random.PCG64([seed, size, k, 2, number]))
        for place, percent in enumerate(FAILED):
            alive = survivors(size, percent / 100, rng)
            starts = rng.permutation(np.flatnonzero(alive))[:SOURCES]
            left[place] += alive.sum()
            reached[place] += max(
                int((overlay.rounds(int(start), alive) >= 0).sum()) for start in starts
            )
    yield "survivors", at, left
    yield "reached", at, reached
