"""Every table of the pipeline in one place: its grain, its key and its columns.

The columns are written as Spark DDL. This module reads the DDL itself, so that ``gossamer pipeline
tables`` needs no Spark. ``contracts`` checks that the rows of a table keep to its definition.

All integers are BIGINT. A narrower type would save nothing in Parquet and overflows in ANSI mode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_HEAD = re.compile(r"\s*(\w+): (.*)\n\s*one row is (.*)\n\s*key: (.*)\n")
_COLUMN = re.compile(r"(\w+) ([\w<>]+)( NOT NULL)?\s+COMMENT '((?:[^']|'')*)'")


class Column(Struct, frozen=True):
    name: str
    type: str
    meaning: str
    required: bool = True


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
        """Names and types only: rows are checked for NULL after they are written."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def schema(self) -> StructType:
        return parse_schema(self.ddl)


def parse_schema(ddl: str) -> StructType:
    """Let Spark itself read the text of a schema."""
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def _table(text: str) -> Table:
    """Read a definition: three lines about the table, then its columns as DDL."""
    head = _HEAD.match(text)
    assert head is not None, text
    ddl = text[head.end() :]
    columns = tuple(
        Column(found[1], found[2], " ".join(found[4].replace("''", "'").split()), bool(found[3]))
        for found in _COLUMN.finditer(ddl)
    )
    assert not _COLUMN.sub("", ddl).strip(" ,\n"), f"{head[1]}: not every column was read"
    return Table(head[1], head[2], head[3], tuple(head[4].split(", ")), columns)


_RUN = "run BIGINT NOT NULL COMMENT 'the run'"
_EVENT = "event BIGINT NOT NULL COMMENT 'the event: 0 .. events - 1'"
_FILTER = "filter BIGINT NOT NULL COMMENT 'the filter: 0 .. filters - 1'"
_TOPIC = "topic STRING NOT NULL COMMENT 'the topic'"
_PEER = "peer STRING NOT NULL COMMENT 'the peer, as its trace names it'"
_VALUES = """values STRING NOT NULL
        COMMENT 'the attributes as JSON, to be read by the topic''s schema'"""
_ORIGIN = """source STRING NOT NULL COMMENT 'the file that the row was read from',
    line BIGINT NOT NULL COMMENT 'its line there, or its row, feature or stanza, from 1'"""
_SEED = "seed BIGINT NOT NULL COMMENT 'reproduces the run'"
_REPLAY = "replay STRING NOT NULL COMMENT 'the command that repeats this run'"
_DIGEST = "digest STRING COMMENT 'hash of the run''s whole trace'"
_HOPS = "hops BIGINT NOT NULL COMMENT 'links that it crossed'"
_OWN_COUNT = "BIGINT COMMENT 'the simulator''s own count'"
_ORDER = "place in the order of all actions and observations of users in the run"
_VIRTUAL = "virtual microseconds since the workload began"

PEERS = _table(f"""
    peers: the peers of the traces
    one row is one peer
    key: peer
    {_PEER},
    items BIGINT NOT NULL COMMENT 'different items that it holds',
    sessions BIGINT NOT NULL COMMENT 'sessions that are known of it'
""")
ITEMS = _table(f"""
    items: the things that are held, published or asked for: a file, an earthquake, a live event
    one row is one item of one topic, different from all others in its attributes
    key: item
    item BIGINT NOT NULL COMMENT '0 .. items - 1, in the order of topic, source and line',
    {_TOPIC},
    schema STRING NOT NULL COMMENT 'the topic''s attributes, as Spark DDL text',
    {_VALUES},
    holders BIGINT NOT NULL COMMENT 'peers that hold it',
    {_ORIGIN}
""")
HOLDINGS = _table(f"""
    holdings: the items that each peer holds
    one row is one item held by one peer
    key: peer, item
    {_PEER},
    item BIGINT NOT NULL COMMENT 'the item',
    times BIGINT NOT NULL
        COMMENT 'how often; a live node may publish the same values again',
    {_ORIGIN}
""")
SESSIONS = _table(f"""
    sessions: the times when peers were there
    one row is one stay of one peer
    key: peer, session
    {_PEER},
    session BIGINT NOT NULL COMMENT '0, 1, .. in the order of time',
    up_us BIGINT NOT NULL COMMENT 'when it came, microseconds since the trace began',
    down_us BIGINT COMMENT 'when it went; NULL: it stayed beyond the end of the trace',
    began BOOLEAN NOT NULL COMMENT 'false: it was there before the trace began',
    {_ORIGIN}
""")
RTTS = _table(f"""
    rtts: round-trip times that were measured between places
    one row is one pair of places, in one direction
    key: a, b
    a BIGINT NOT NULL COMMENT 'one place: 0 .. places - 1',
    b BIGINT NOT NULL COMMENT 'the other place',
    rtt_us BIGINT NOT NULL COMMENT 'microseconds there and back',
    {_ORIGIN}
""")
QUARANTINE = _table(f"""
    quarantine: rows that could not be used, as they were found
    one row is one broken row
    key: source, line
    {_ORIGIN},
    table STRING NOT NULL COMMENT 'the table that it was meant for',
    reason STRING NOT NULL COMMENT 'why it cannot be used',
    row STRING NOT NULL COMMENT 'the text of the row, at most 1,000 characters of it'
""")
TOPICS = _table(f"""
    topics: the topics of the workload
    one row is one topic
    key: topic
    {_TOPIC},
    schema STRING NOT NULL COMMENT 'its attributes, as Spark DDL text',
    filters BIGINT NOT NULL COMMENT 'filters on it',
    events BIGINT NOT NULL COMMENT 'events on it'
""")
FILTERS = _table(f"""
    filters: the subscriptions of the workload
    one row is one filter
    key: filter
    {_FILTER},
    {_TOPIC},
    peer STRING NOT NULL COMMENT 'the peer that subscribes',
    shape STRING NOT NULL COMMENT 'exact, range, prefix, ...: how the text was built',
    text STRING NOT NULL COMMENT 'the filter: a WHERE clause over the topic''s attributes'
""")
EVENTS = _table(f"""
    events: the publications of the workload
    one row is one event
    key: event
    {_EVENT},
    {_TOPIC},
    peer STRING NOT NULL COMMENT 'the peer that publishes it; any peer without a trace',
    at_us BIGINT NOT NULL
        COMMENT 'when it is published, microseconds since the workload begins',
    {_VALUES}
""")
CHURN = _table(f"""
    churn: the times when peers come and subscribe, and go again; without churn empty
    one row is one stay of one peer
    key: peer, session
    {_PEER},
    session BIGINT NOT NULL COMMENT '0, 1, .. in the order of time',
    up_us BIGINT NOT NULL
        COMMENT 'when it comes and subscribes, microseconds since the workload begins;
        0: before that',
    down_us BIGINT COMMENT 'when it unsubscribes and goes; NULL: it stays to the end'
""")
MATCHES = _table(f"""
    matches: with churn, all that filters match, whether or not a peer is there; without churn empty
    one row is one event that one filter matches
    key: event, filter
    {_EVENT}, {_FILTER}
""")
EXPECTED = _table(f"""
    expected: the events that filters ask for; with churn, by plan: a peer is served within a second
    one row is one event that one filter matches, and that its subscriber may get
    key: event, filter
    {_EVENT},
    {_FILTER},
    due BOOLEAN NOT NULL
        COMMENT 'true: must be delivered; false: may be, because its subscriber comes or goes
        just then'
""")
RUNS = _table(f"""
    runs: simulations: the configuration, and the simulator's own result
    one row is one simulation
    key: run
    {_RUN},
    overlay STRING NOT NULL COMMENT 'flood, ...',
    nodes BIGINT NOT NULL COMMENT 'number of nodes',
    filters BIGINT NOT NULL
        COMMENT 'filters of the workload; filter i lives on node i % nodes',
    events BIGINT NOT NULL COMMENT 'events of the workload',
    degree BIGINT NOT NULL COMMENT 'links of a node',
    {_SEED},
    latency STRING NOT NULL COMMENT 'latency model of a link',
    loss DOUBLE NOT NULL COMMENT 'share of packets that are lost',
    breaks DOUBLE NOT NULL COMMENT 'chance for each message that its link breaks',
    status STRING NOT NULL COMMENT 'ok or failed',
    error STRING COMMENT 'why it failed',
    {_REPLAY},
    {_DIGEST},
    sim_expected {_OWN_COUNT},
    sim_delivered {_OWN_COUNT},
    sim_missed {_OWN_COUNT},
    sim_duplicate {_OWN_COUNT},
    sim_spurious {_OWN_COUNT},
    copies BIGINT COMMENT 'events that arrived at nodes, every copy counted',
    violations ARRAY<STRING> COMMENT 'invariants that the simulator''s checkers saw broken'
""")
SUBSCRIPTIONS = _table(f"""
    subscriptions: the simulations' subscriptions; with churn, one for each stay of a peer
    one row is one call of subscribe, to the end of the subscription
    key: run, subscription
    {_RUN},
    subscription BIGINT NOT NULL COMMENT 'ordinal in the run',
    {_FILTER},
    node BIGINT NOT NULL COMMENT 'the subscribing node: 0 .. nodes - 1',
    subscribing_at BIGINT NOT NULL COMMENT 'subscribe was called: {_ORDER}',
    subscribed_at BIGINT COMMENT 'it had returned: from here on events are due; NULL: never',
    ended_at BIGINT COMMENT 'the subscription ended; NULL: never',
    subscribing_us BIGINT NOT NULL
        COMMENT 'subscribe was called: {_VIRTUAL}; negative for those before the beginning',
    subscribed_us BIGINT COMMENT 'it had returned',
    ended_us BIGINT COMMENT 'the subscription ended'
""")
PUBLICATIONS = _table(f"""
    publications: the times when the simulations' events were published
    one row is one event in one run
    key: run, event
    {_RUN},
    {_EVENT},
    node BIGINT NOT NULL COMMENT 'the publishing node: 0 .. nodes - 1',
    published_at BIGINT NOT NULL COMMENT 'publish was called: {_ORDER}',
    completed_at BIGINT COMMENT 'its receipt was complete; NULL: never',
    published_us BIGINT NOT NULL COMMENT 'publish was called: {_VIRTUAL}',
    completed_us BIGINT COMMENT 'its receipt was complete'
""")
DELIVERIES = _table(f"""
    deliveries: the hand-overs of the simulations
    one row is one hand-over of an event to a filter's subscriber (a repeated one is a second row)
    key: run, delivery
    {_RUN},
    delivery BIGINT NOT NULL COMMENT 'ordinal in the run',
    event BIGINT NOT NULL
        COMMENT 'the event: 0 .. events - 1; -1: one that was never published',
    filter BIGINT NOT NULL COMMENT 'the filter: 0 .. filters - 1; -1: none',
    node BIGINT NOT NULL COMMENT 'where it was handed over: 0 .. nodes - 1',
    subscription BIGINT NOT NULL
        COMMENT 'the subscription of the run; -1: there never was such a subscription',
    handed_at BIGINT NOT NULL COMMENT 'when: {_ORDER}',
    latency_us BIGINT NOT NULL COMMENT 'virtual time since publication',
    {_HOPS}
""")
LOADS = _table(f"""
    loads: the load of each node
    one row is one node in one run
    key: run, node
    {_RUN},
    node BIGINT NOT NULL COMMENT '0 .. nodes - 1',
    received BIGINT NOT NULL COMMENT 'events that arrived, every copy counted',
    delivered BIGINT NOT NULL COMMENT 'hand-overs to its subscriptions',
    noise BIGINT NOT NULL
        COMMENT 'different events that arrived although no filter here matches them',
    sent_bytes BIGINT NOT NULL COMMENT 'bytes sent'
""")
NEWS = _table(f"""
    news: how changes of interest spread (seed 000)
    one row is one change in one run, at the moment when one node learned it
    key: run, change, node
    {_RUN},
    change BIGINT NOT NULL COMMENT 'ordinal in the run',
    node BIGINT NOT NULL COMMENT 'the node that learned it: 0 .. nodes - 1',
    latency_us BIGINT NOT NULL COMMENT 'virtual time since the change',
    {_HOPS}
""")
RECONFIGURATIONS = _table(f"""
    reconfigurations: the changes of the dispatch tree by a join or a leave (seed 002)
    one row is one join or leave in one run
    key: run, reconfiguration
    {_RUN},
    reconfiguration BIGINT NOT NULL COMMENT 'ordinal in the run',
    what STRING NOT NULL COMMENT 'join or leave',
    hosts BIGINT NOT NULL COMMENT 'hosts in the tree before it',
    contacted BIGINT NOT NULL COMMENT 'other hosts that took part in it',
    links BIGINT NOT NULL COMMENT 'links made or removed',
    area BIGINT NOT NULL COMMENT 'hosts of the reconfiguration area',
    degree_max BIGINT NOT NULL COMMENT 'highest degree in the tree after it'
""")
GRID = _table(f"""
    grid: simulations of any overlay: the configuration and the result
    one row is one simulation; its number is a hash of its whole configuration
    key: run
    {_RUN},
    overlay STRING NOT NULL COMMENT 'flood, interest, skiplist, tree',
    size BIGINT NOT NULL COMMENT 'nodes, entries or hosts',
    parameter BIGINT NOT NULL
        COMMENT 'links of a node (flood), K (interest), k (skiplist), arity (tree)',
    {_SEED},
    fault STRING NOT NULL COMMENT 'the kind of trouble; none: a calm run',
    options STRING NOT NULL COMMENT 'the other options, as JSON',
    {_REPLAY},
    status STRING NOT NULL
        COMMENT 'ok; bad: it ended, and something was missed or broken; failed: it did not end',
    error STRING COMMENT 'why it is bad or failed',
    {_DIGEST}
""")
MEASURES = _table(f"""
    measures: the numbers that the runs of the grid measured
    one row is one figure of one run
    key: run, name
    {_RUN},
    name STRING NOT NULL COMMENT 'as the overlay''s simulation calls it',
    value DOUBLE NOT NULL COMMENT 'the number'
""")
SPREADS = _table(f"""
    spreads: the distributions that the runs of the grid measured
    one row is one value of one figure of one run
    key: run, name, at
    {_RUN},
    name STRING NOT NULL COMMENT 'hops, noise, degree, area_join, area_leave',
    at BIGINT NOT NULL COMMENT 'the value',
    count BIGINT NOT NULL COMMENT 'how many have it: events, nodes, changes'
""")
MODELS = _table("""
    models: the planes in their steady state, by vectorised models
    one row is one value of one figure of one modelled fabric
    key: plane, size, parameter, seed, events, what, at
    plane STRING NOT NULL COMMENT 'skiplist, interest, tree, robustness',
    size BIGINT NOT NULL COMMENT 'nodes, entries or hosts',
    parameter BIGINT NOT NULL COMMENT 'k, K or arity',
    seed BIGINT NOT NULL COMMENT 'reproduces the fabric and its events',
    events BIGINT NOT NULL COMMENT 'events, changes or trials that were followed',
    what STRING NOT NULL COMMENT 'hops, rounds, depth, degree, noise, load, copies, ...',
    at BIGINT NOT NULL COMMENT 'the value',
    count BIGINT NOT NULL COMMENT 'how many have it: events, nodes, hosts'
""")
FIGURES = _table("""
    figures: the numbers of the seeds' figures, beside the numbers in the seeds' texts
    one row is one number of one figure
    key: figure, name
    figure STRING NOT NULL COMMENT 'the seed and its figure: 001-3a, ...',
    name STRING NOT NULL COMMENT 'the name of the number',
    found DOUBLE NOT NULL COMMENT 'the number that was found here',
    stated DOUBLE COMMENT 'the number in the seed''s text; NULL: it states none'
""")
METRICS = _table(f"""
    metrics: the runs, judged by the oracle
    one row is one simulation that ended
    key: run
    {_RUN},
    overlay STRING NOT NULL COMMENT 'flood, ...',
    nodes BIGINT NOT NULL COMMENT 'number of nodes',
    {_SEED},
    expected BIGINT NOT NULL
        COMMENT 'pairs (event, filter) that the oracle expects: those that were due',
    delivered BIGINT NOT NULL COMMENT 'expected pairs that were delivered',
    missed BIGINT NOT NULL COMMENT 'expected pairs that were not',
    allowed BIGINT NOT NULL
        COMMENT 'pairs delivered that were not due: the subscriber came or went just then',
    duplicate BIGINT NOT NULL COMMENT 'hand-overs beyond the first of a pair',
    spurious BIGINT NOT NULL COMMENT 'hand-overs that the oracle does not expect',
    strayed BIGINT NOT NULL
        COMMENT 'with churn: stays without a subscription, subscriptions outside of any stay,
        events that were not published',
    agrees BOOLEAN NOT NULL
        COMMENT 'the simulator''s own counts are the oracle''s, and it followed the workload',
    copies_per_delivery DOUBLE
        COMMENT 'events that arrived at nodes, every copy counted, for one delivered pair',
    noise DOUBLE
        COMMENT 'noise events at a node / all events, mean over nodes (as in seed 001)',
    noise_node_max DOUBLE COMMENT 'the same at the worst node',
    hops_mean DOUBLE COMMENT 'links crossed, mean over deliveries',
    hops_max BIGINT COMMENT 'links crossed, worst delivery',
    latency_ms_p50 DOUBLE COMMENT 'virtual time from publication to hand-over, median',
    latency_ms_p99 DOUBLE COMMENT 'the same, 99th percentile'
""")

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
    """A table in the form that JSON output shows."""
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
