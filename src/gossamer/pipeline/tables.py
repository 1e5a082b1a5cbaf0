"""Every table of the pipeline in one place: its grain, its key and its columns. ``contracts`` checks that rows keep to them.

The definitions are plain data, so that ``gossamer pipeline tables`` needs no Spark. Integers are BIGINT throughout: a
narrower type saves nothing in Parquet and overflows in ANSI mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Column(Struct, frozen=True):
    name: str
    type: str
    """Spark DDL."""
    meaning: str
    required: bool = True
    """Never NULL."""


class Table(Struct, frozen=True):
    name: str
    meaning: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def schema(self) -> StructType:
        return parse_schema(self.ddl)


def parse_schema(ddl: str) -> StructType:
    """Spark's own reading of a schema's text."""
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def _required(name: str, type: str, meaning: str) -> Column:
    return Column(name, type, meaning)


def _optional(name: str, type: str, meaning: str) -> Column:
    return Column(name, type, meaning, required=False)


_RUN = _required("run", "BIGINT", "the run")
_EVENT = _required("event", "BIGINT", "the event: 0 .. events - 1")
_FILTER = _required("filter", "BIGINT", "the filter: 0 .. filters - 1")
_TOPIC = _required("topic", "STRING", "the topic")
_PEER = _required("peer", "STRING", "the peer, as its trace names it")
_VALUES = _required("values", "STRING", "the attributes as JSON, to be read by the topic's schema")
_ORDER = "place in the order of all that users did and saw in the run"
_VIRTUAL = "virtual microseconds since the workload began"
_ORIGIN = (
    _required("source", "STRING", "file it was read from"),
    _required("line", "BIGINT", "its line there, or its row, feature or stanza, from 1"),
)

PEERS = Table(
    "peers",
    "who occurs in the traces",
    "one peer",
    ("peer",),
    (
        _PEER,
        _required("items", "BIGINT", "different items that it holds"),
        _required("sessions", "BIGINT", "sessions that are known of it"),
    ),
)
ITEMS = Table(
    "items",
    "what is held, published or asked for: a file, an earthquake, an event of a live fabric",
    "one item of one topic, different from all others in its attributes",
    ("item",),
    (
        _required("item", "BIGINT", "0 .. items - 1, in the order of topic, source and line"),
        _TOPIC,
        _required("schema", "STRING", "the topic's attributes, as Spark DDL text"),
        _VALUES,
        _required("holders", "BIGINT", "peers that hold it"),
        *_ORIGIN,
    ),
)
HOLDINGS = Table(
    "holdings",
    "who holds which item",
    "one item held by one peer",
    ("peer", "item"),
    (
        _PEER,
        _required("item", "BIGINT", "the item"),
        _required("times", "BIGINT", "how often; a live node may publish the same values again"),
        *_ORIGIN,
    ),
)
SESSIONS = Table(
    "sessions",
    "when peers were there",
    "one stay of one peer",
    ("peer", "session"),
    (
        _PEER,
        _required("session", "BIGINT", "0, 1, .. in the order of time"),
        _required("up_us", "BIGINT", "when it came, microseconds since the trace began"),
        _optional("down_us", "BIGINT", "when it went; NULL: it stayed beyond the end of the trace"),
        _required("began", "BOOLEAN", "false: it was there before the trace began"),
        *_ORIGIN,
    ),
)
RTTS = Table(
    "rtts",
    "round-trip times that were measured between places",
    "one pair of places, in one direction",
    ("a", "b"),
    (
        _required("a", "BIGINT", "one place: 0 .. places - 1"),
        _required("b", "BIGINT", "the other"),
        _required("rtt_us", "BIGINT", "microseconds there and back"),
        *_ORIGIN,
    ),
)
QUARANTINE = Table(
    "quarantine",
    "rows that could not be used, as they were found",
    "one broken row",
    ("source", "line"),
    (
        *_ORIGIN,
        _required("table", "STRING", "the table that it was meant for"),
        _required("reason", "STRING", "why it cannot be used"),
        _required("row", "STRING", "the text of the row, at most 1,000 characters of it"),
    ),
)
TOPICS = Table(
    "topics",
    "the topics of the workload",
    "one topic",
    ("topic",),
    (
        _TOPIC,
        _required("schema", "STRING", "its attributes, as Spark DDL text"),
        _required("filters", "BIGINT", "filters on it"),
        _required("events", "BIGINT", "events on it"),
    ),
)
FILTERS = Table(
    "filters",
    "the subscriptions of the workload",
    "one filter",
    ("filter",),
    (
        _FILTER,
        _TOPIC,
        _required("peer", "STRING", "whose it is"),
        _required("shape", "STRING", "exact, range, prefix, ...: how the text was built"),
        _required("text", "STRING", "the filter: a WHERE clause over the topic's attributes"),
    ),
)
EVENTS = Table(
    "events",
    "the publications of the workload",
    "one event",
    ("event",),
    (
        _EVENT,
        _TOPIC,
        _required("peer", "STRING", "who publishes it; without a trace, anybody"),
        _required(
            "at_us", "BIGINT", "when it is published, microseconds since the workload begins"
        ),
        _VALUES,
    ),
)
CHURN = Table(
    "churn",
    "when the peers of the workload come and go, and with them their subscriptions; without "
    "churn empty: all are always there",
    "one stay of one peer",
    ("peer", "session"),
    (
        _PEER,
        _required("session", "BIGINT", "0, 1, .. in the order of time"),
        _required(
            "up_us",
            "BIGINT",
            "when it comes and subscribes, microseconds since the workload begins; 0: before that",
        ),
        _optional("down_us", "BIGINT", "when it unsubscribes and goes; NULL: it stays to the end"),
    ),
)
MATCHES = Table(
    "matches",
    "with churn, what the filters match, whoever is there; empty without: then it is all in "
    "expected",
    "one event that one filter matches",
    ("event", "filter"),
    (_EVENT, _FILTER),
)
EXPECTED = Table(
    "expected",
    "what the filters ask for, by Spark's own reading of their text; with churn, by plan: who "
    "comes is served within a second",
    "one event that one filter matches, and that its subscriber may get",
    ("event", "filter"),
    (
        _EVENT,
        _FILTER,
        _required(
            "due",
            "BOOLEAN",
            "true: must be delivered; false: may be, because its subscriber comes or goes just "
            "then",
        ),
    ),
)
RUNS = Table(
    "runs",
    "simulations: the configuration, and what the simulator says of itself",
    "one simulation",
    ("run",),
    (
        _RUN,
        _required("overlay", "STRING", "flood, ..."),
        _required("nodes", "BIGINT", "number of nodes"),
        _required("filters", "BIGINT", "filters of the workload; filter i lives on node i % nodes"),
        _required("events", "BIGINT", "events of the workload"),
        _required("degree", "BIGINT", "links a node"),
        _required("seed", "BIGINT", "reproduces the run"),
        _required("latency", "STRING", "latency model of a link"),
        _required("loss", "DOUBLE", "share of messages lost"),
        _required("breaks", "DOUBLE", "chance for each message that its link breaks"),
        _required("status", "STRING", "ok or failed"),
        _optional("error", "STRING", "why it failed"),
        _required("replay", "STRING", "the command that does this run again"),
        _optional("digest", "STRING", "hash of the run's whole trace"),
        _optional("sim_expected", "BIGINT", "the simulator's own count"),
        _optional("sim_delivered", "BIGINT", "the simulator's own count"),
        _optional("sim_missed", "BIGINT", "the simulator's own count"),
        _optional("sim_duplicate", "BIGINT", "the simulator's own count"),
        _optional("sim_spurious", "BIGINT", "the simulator's own count"),
        _optional("copies", "BIGINT", "events that arrived at nodes, every copy counted"),
        _optional(
            "violations", "ARRAY<STRING>", "invariants that the simulator's checkers saw broken"
        ),
    ),
)
SUBSCRIPTIONS = Table(
    "subscriptions",
    "when the simulations' subscribers were subscribed: with churn, once for each stay of a "
    "filter's peer",
    "one call of subscribe, to the end of the subscription",
    ("run", "subscription"),
    (
        _RUN,
        _required("subscription", "BIGINT", "ordinal in the run"),
        _FILTER,
        _required("node", "BIGINT", "where: 0 .. nodes - 1"),
        _required("subscribing_at", "BIGINT", f"subscribe was called: {_ORDER}"),
        _optional(
            "subscribed_at", "BIGINT", "it had returned: from here on events are due; NULL: never"
        ),
        _optional("ended_at", "BIGINT", "the subscription ended; NULL: never"),
        _required(
            "subscribing_us",
            "BIGINT",
            f"subscribe was called: {_VIRTUAL}; what was set up before is negative",
        ),
        _optional("subscribed_us", "BIGINT", "it had returned"),
        _optional("ended_us", "BIGINT", "the subscription ended"),
    ),
)
PUBLICATIONS = Table(
    "publications",
    "when the simulations' events were published",
    "one event in one run",
    ("run", "event"),
    (
        _RUN,
        _EVENT,
        _required("node", "BIGINT", "who published it: 0 .. nodes - 1"),
        _required("published_at", "BIGINT", f"publish was called: {_ORDER}"),
        _optional("completed_at", "BIGINT", "its receipt was complete; NULL: never"),
        _required("published_us", "BIGINT", f"publish was called: {_VIRTUAL}"),
        _optional("completed_us", "BIGINT", "its receipt was complete"),
    ),
)
DELIVERIES = Table(
    "deliveries",
    "what the simulations delivered",
    "one hand-over of an event to a filter's subscriber (a repeated one is a second row)",
    ("run", "delivery"),
    (
        _RUN,
        _required("delivery", "BIGINT", "ordinal in the run"),
        _required(
            "event", "BIGINT", "the event: 0 .. events - 1; -1: one that was never published"
        ),
        _required("filter", "BIGINT", "the filter: 0 .. filters - 1; -1: none"),
        _required("node", "BIGINT", "where it was handed over: 0 .. nodes - 1"),
        _required(
            "subscription",
            "BIGINT",
            "to which of the run's subscriptions; -1: there never was such a one",
        ),
        _required("handed_at", "BIGINT", f"when: {_ORDER}"),
        _required("latency_us", "BIGINT", "virtual time since publication"),
        _required("hops", "BIGINT", "links it crossed"),
    ),
)
LOADS = Table(
    "loads",
    "what each node had to carry",
    "one node in one run",
    ("run", "node"),
    (
        _RUN,
        _required("node", "BIGINT", "0 .. nodes - 1"),
        _required("received", "BIGINT", "events that arrived, every copy counted"),
        _required("delivered", "BIGINT", "hand-overs to its subscriptions"),
        _required(
            "noise", "BIGINT", "different events that arrived although no filter here matches them"
        ),
        _required("sent_bytes", "BIGINT", "bytes sent"),
    ),
)
NEWS = Table(
    "news",
    "how changes of interest spread (seed 000)",
    "one change in one run, as it became known at one node",
    ("run", "change", "node"),
    (
        _RUN,
        _required("change", "BIGINT", "ordinal in the run"),
        _required("node", "BIGINT", "who learnt it: 0 .. nodes - 1"),
        _required("latency_us", "BIGINT", "virtual time since the change"),
        _required("hops", "BIGINT", "links it crossed"),
    ),
)
RECONFIGURATIONS = Table(
    "reconfigurations",
    "what a join or a leave changes in the dispatch tree (seed 002)",
    "one join or leave in one run",
    ("run", "reconfiguration"),
    (
        _RUN,
        _required("reconfiguration", "BIGINT", "ordinal in the run"),
        _required("what", "STRING", "join or leave"),
        _required("hosts", "BIGINT", "hosts in the tree before it"),
        _required("contacted", "BIGINT", "other hosts that took part in it"),
        _required("links", "BIGINT", "links made or removed"),
        _required("area", "BIGINT", "hosts of the reconfiguration area"),
        _required("degree_max", "BIGINT", "highest degree in the tree after it"),
    ),
)
GRID = Table(
    "grid",
    "simulations of any overlay: the configuration, and how it went",
    "one simulation; its number is a hash of everything it was told",
    ("run",),
    (
        _RUN,
        _required("overlay", "STRING", "flood, interest, skiplist, tree"),
        _required("size", "BIGINT", "nodes, entries or hosts"),
        _required(
            "parameter", "BIGINT", "links a node (flood), K (interest), k (skiplist), arity (tree)"
        ),
        _required("seed", "BIGINT", "reproduces the run"),
        _required("fault", "STRING", "the kind of trouble; none: a calm run"),
        _required("options", "STRING", "what else it was told, as JSON"),
        _required("replay", "STRING", "the command that does this run again"),
        _required(
            "status",
            "STRING",
            "ok; bad: it ended, and something was missed or broken; failed: it did not end",
        ),
        _optional("error", "STRING", "why it is bad or failed"),
        _optional("digest", "STRING", "hash of the run's whole trace"),
    ),
)
MEASURES = Table(
    "measures",
    "what the runs of the grid measured, one number each",
    "one figure of one run",
    ("run", "name"),
    (
        _RUN,
        _required("name", "STRING", "as the overlay's simulation calls it"),
        _required("value", "DOUBLE", "the number"),
    ),
)
SPREADS = Table(
    "spreads",
    "how what the runs of the grid measured is distributed",
    "one value of one figure of one run",
    ("run", "name", "at"),
    (
        _RUN,
        _required("name", "STRING", "hops, noise, degree, area_join, area_leave"),
        _required("at", "BIGINT", "the value"),
        _required("count", "BIGINT", "how many have it: events, nodes, changes"),
    ),
)
MODELS = Table(
    "models",
    "the planes in their steady state, by vectorised models",
    "one value of one figure of one modelled fabric",
    ("plane", "size", "parameter", "seed", "events", "what", "at"),
    (
        _required("plane", "STRING", "skiplist, interest, tree, robustness"),
        _required("size", "BIGINT", "nodes, entries or hosts"),
        _required("parameter", "BIGINT", "k, K or arity"),
        _required("seed", "BIGINT", "reproduces the fabric and its events"),
        _required("events", "BIGINT", "events, changes or trials that were followed"),
        _required("what", "STRING", "hops, rounds, depth, degree, noise, load, copies, ..."),
        _required("at", "BIGINT", "the value"),
        _required("count", "BIGINT", "how many have it: events, nodes, hosts"),
    ),
)
FIGURES = Table(
    "figures",
    "the numbers of the seeds' figures, beside what the seeds' texts state",
    "one number of one figure",
    ("figure", "name"),
    (
        _required("figure", "STRING", "the seed and its figure: 001-3a, ..."),
        _required("name", "STRING", "what the number is"),
        _required("found", "DOUBLE", "what was found here"),
        _optional("stated", "DOUBLE", "what the seed's text states; NULL: it states none"),
    ),
)
METRICS = Table(
    "metrics",
    "the runs, judged by the oracle",
    "one simulation that ended",
    ("run",),
    (
        _RUN,
        _required("overlay", "STRING", "flood, ..."),
        _required("nodes", "BIGINT", "number of nodes"),
        _required("seed", "BIGINT", "reproduces the run"),
        _required(
            "expected",
            "BIGINT",
            "pairs (event, filter) that the oracle expects: those that were due",
        ),
        _required("delivered", "BIGINT", "expected pairs that were delivered"),
        _required("missed", "BIGINT", "expected pairs that were not"),
        _required(
            "allowed",
            "BIGINT",
            "pairs delivered though they need not have been: the subscriber came or went just then",
        ),
        _required("duplicate", "BIGINT", "hand-overs beyond the first of a pair"),
        _required("spurious", "BIGINT", "hand-overs that the oracle does not expect"),
        _required(
            "strayed",
            "BIGINT",
            "with churn: stays that nobody kept, subscriptions outside of any stay, events not "
            "published",
        ),
        _required(
            "agrees",
            "BOOLEAN",
            "the simulator's own counts are the oracle's, and it did what the workload says",
        ),
        _optional(
            "copies_per_delivery",
            "DOUBLE",
            "events that arrived at nodes, every copy counted, for one delivered pair",
        ),
        _optional(
            "noise",
            "DOUBLE",
            "noise events at a node / all events, mean over nodes (as in seed 001)",
        ),
        _optional("noise_node_max", "DOUBLE", "the same at the worst node"),
        _optional("hops_mean", "DOUBLE", "links crossed, mean over deliveries"),
        _optional("hops_max", "BIGINT", "links crossed, worst delivery"),
        _optional("latency_ms_p50", "DOUBLE", "virtual time from publication to hand-over, median"),
        _optional("latency_ms_p99", "DOUBLE", "the same, 99th percentile"),
    ),
)

TABLES: Mapping[str, Table] = MappingProxyType(
    {
        table.name: table
        for table in (
            *(PEERS, ITEMS, HOLDINGS, SESSIONS, RTTS, QUARANTINE),
            *(TOPICS, FILTERS, EVENTS, CHURN, MATCHES, EXPECTED),
            *(RUNS, SUBSCRIPTIONS, PUBLICATIONS, DELIVERIES, LOADS, METRICS),
            *(GRID, MEASURES, SPREADS, NEWS, RECONFIGURATIONS, MODELS, FIGURES),
        )
    }
)


def plain(table: Table) -> dict[str, Any]:
    """A table as JSON shows it."""
    return {
        "table": table.name,
        "meaning": table.meaning,
        "grain": table.grain,
        "key": list(table.key),
        "columns": [
            {"name": c.name, "type": c.type, "required": c.required, "meaning": c.meaning}
            for c in table.columns
        ],
    }
