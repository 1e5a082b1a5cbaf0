"""Every option of ``gossamer node``, in one table that gives its flag, its environment variable and
its TOML key.

    name "data_dir"   ->   --data-dir   GOSSAMER_DATA_DIR   data_dir = "..." in the file

To add an option, add a line. ``to`` names the place of its value: ``node.NAME`` is an argument of
``gossamer.Node``, ``limits.NAME`` a field of ``gossamer.NodeConfig``, ``peers.NAME`` one of
``gossamer.PeerLimits``, and ``run`` is for the command itself. A flag wins over the environment,
the environment over the file, and the file over the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from msgspec import Struct

from gossamer.cli.common import DEFAULT_ADDRESS
from gossamer.cli.kinds import (
    Address,
    Addresses,
    Bytes,
    Choice,
    Count,
    Directory,
    Keeps,
    Kind,
    Seconds,
    Topics,
    YesNo,
)
from gossamer.net.limits import PeerLimits
from gossamer.net.spin import SPIN_MOST, SPIN_SECONDS
from gossamer.node import NodeConfig
from gossamer.node.bounds import SECONDS, SECONDS_MAX, WHOLE

F = TypeVar("F", bound=Callable[..., Any])
PREFIX = "GOSSAMER_"
_LIMITS, _PEERS = NodeConfig(), PeerLimits()
BLOCK_LEAST, BLOCK_MOST = SECONDS["block"]


class Option(Struct, frozen=True):
    name: str
    kind: Kind
    default: Any
    to: str
    help: str

    @property
    def flag(self) -> str:
        word = self.name.removesuffix("s") if isinstance(self.kind, Topics) else self.name
        return "--" + word.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


OPTIONS = (
    Option("listen", Address(), DEFAULT_ADDRESS, "node.listen",
           "The address at which this node listens; port 0 picks a free port."),
    Option("public_address", Address(), "", "node.public_address",
           "The address at which other nodes reach this one, if it differs from the listening "
           "address (behind address translation, in a container)."),
    Option("join", Addresses(), (), "node.join",
           "A node of the fabric, or a DNS name of many; may be given several times."),
    Option("join_required", YesNo(), True, "node.join_required",
           "Fail if no node answers there in time; otherwise continue alone and keep trying."),
    Option("wait", Seconds(), 10.0, "node.join_timeout",
           "Seconds to wait for a node to answer there."),
    Option("spin", Seconds(SPIN_MOST), SPIN_SECONDS, "node.spin",
           "Seconds to look for the next message before sleeping, while messages come in quick "
           "succession; 0: never."),
    Option("shared_memory", YesNo(), True, "node.shared_memory",
           "Large messages from and to nodes of the same host and user lie in memory that both "
           "see."),
    Option("fabric", Kind(), "", "node.fabric",
           "Only nodes of the same fabric name talk to each other."),
    Option("k", Count(1, 32), 6, "node.k",
           "Any K - 1 nodes may fail at once; a node has about K links."),
    Option("data_dir", Directory(), None, "node.data_dir",
           "Keep identity and outbox here: accepted events survive a crash."),
    Option("trace_dir", Directory(), None, "node.trace_dir",
           "Write traces for 'gossamer pipeline verify' here."),
    Option("keys", Directory(), None, "node.keys",
           "This node's keys (gossamer keys issue): TLS with nodes of the same authority."),
    Option("insecure", YesNo(), False, "node.insecure",
           "Listen beyond loopback without keys, open to anybody."),
    Option("topics", Topics(), {}, "run",
           "A topic to advertise, with its schema [@ RETENTION]; may be given several times."),
    Option("drain", Seconds(), 10.0, "run",
           "Seconds to wait for receipts after SIGTERM or Ctrl-C; a second signal ends at once."),
    Option("metrics_address", Address(bare_port=True), "", "run",
           "Serve /metrics (Prometheus), /healthz and /readyz here; a bare port is on 127.0.0.1."),
    Option("log_format", Choice("text", "json"), "text", "run",
           "The form of log lines on standard error, for people or for machines."),
    Option("log_level", Choice("debug", "info", "warning", "error"), "info", "run",
           "The lowest level that is logged."),
    Option("window", Count(*WHOLE["window"]), _LIMITS.window, "limits.window",
           "The most events without a receipt; beyond that, publishing waits."),
    Option("window_bytes", Bytes(*WHOLE["window_bytes"]), _LIMITS.window_bytes,
           "limits.window_bytes",
           "The most bytes without a receipt; beyond that, publishing waits."),
    Option("batch_events", Count(*WHOLE["batch_events"]), _LIMITS.batch_events,
           "limits.batch_events", "The most events that travel together."),
    Option("batch_bytes", Bytes(*WHOLE["batch_bytes"]), _LIMITS.batch_bytes,
           "limits.batch_bytes", "A batch is sent when it has about this number of bytes."),
    Option("event_bytes", Bytes(*WHOLE["event_bytes"]), _LIMITS.event_bytes,
           "limits.event_bytes", "The largest event."),
    Option("buffer", Count(*WHOLE["buffer"]), _LIMITS.buffer, "limits.buffer",
           "The most events that may wait for one subscription."),
    Option("block", Seconds(BLOCK_MOST, least=BLOCK_LEAST), _LIMITS.block, "limits.block",
           "Seconds that a full buffer holds publishers back before the subscription is cut off."),
    Option("subscriptions", Count(*WHOLE["subscriptions"]), _LIMITS.subscriptions,
           "limits.subscriptions", "The most subscriptions of this node."),
    Option("retained", Bytes(*WHOLE["retained"]), _LIMITS.retained, "limits.retained",
           "The most bytes that this node retains of its publications, all topics together."),
    Option("retention_max", Keeps(), "", "limits.retention_max",
           "The most that this node retains of a topic whose retention another node has "
           "advertised, such as '1d, 64MB'."),
    Option("connections", Count(8, 1 << 20), _PEERS.connections, "peers.connections",
           "The most open connections in all."),
    Option("address_connections", Count(1, 1 << 20), _PEERS.address_connections,
           "peers.address_connections", "The most open connections from one address."),
    Option("peer_messages", Count(1, 1 << 30), _PEERS.messages, "peers.messages",
           "Messages a second from one peer; a peer that sends more is cut off."),
    Option("revocations_max_age", Seconds(SECONDS_MAX), _PEERS.revocations_max_age,
           "peers.revocations_max_age",
           "Talk to no node while this node's list of revoked certificates is older than this "
           "number of seconds; 0: any age will do."),
    Option("peer_bytes", Bytes(1, 1 << 40), _PEERS.bytes, "peers.bytes",
           "Bytes a second from one peer; a peer that sends more is cut off."),
)  # fmt: skip

BY_NAME = {option.name: option for option in OPTIONS}


class _Type(click.ParamType[Any]):
    """A flag's text, read by its kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.text(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def options(command: F) -> F:
    """Add all options as flags.

    The command gets ``flags``, with None for each flag that was not given.
    """
    for option in reversed(OPTIONS):
        about = f"{option.help}  [{option.variable}{_default(option)}]"
        if isinstance(option.kind, YesNo):
            words = f"{option.flag}/--no-{option.flag[2:]}"
            command = click.option(words, option.name, default=None, help=about)(command)
        else:
            command = click.option(
                option.flag, option.name, type=_Type(option.kind), multiple=option.kind.many,
                default=None, metavar=option.kind.metavar, help=about,
            )(command)  # fmt: skip
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        envvar="GOSSAMER_CONFIG",
        help="A TOML file with options.  [GOSSAMER_CONFIG]",
    )(command)


def _default(option: Option) -> str:
    shown = option.kind.show(option.default)
    if shown in ("", [], {}) or isinstance(shown, bool):
        return ""
    return f"; default {shown:g}" if isinstance(shown, float) else f"; default {shown}"
