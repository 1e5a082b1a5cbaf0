"""Every option of ``gossamer node``, in one table: its flag, its environment variable and its TOML key come from its line.

    name "data_dir"   ->   --data-dir   GOSSAMER_DATA_DIR   data_dir = "..." in the file

To add an option, add a line. ``to`` says where its value goes: ``node.NAME`` is an argument of ``gossamer.Node``, ``limits.NAME``
a field of ``gossamer.NodeConfig``, ``peers.NAME`` one of ``gossamer.PeerLimits``, ``run`` is for the command itself. What wins:
flag, then environment, then file, then default.
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
    Kind,
    Seconds,
    Topics,
    YesNo,
)
from gossamer.net.limits import PeerLimits
from gossamer.net.spin import SPIN_MOST, SPIN_SECONDS
from gossamer.node import NodeConfig
from gossamer.node.bounds import SECONDS, WHOLE

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
    Option("listen", Address(), DEFAULT_ADDRESS, "node.listen", "Where this node listens; port 0 picks one."),
    Option(
        "public_address", Address(), "", "node.public_address",
        "Where others reach this node, if that is not where it listens (behind a translation, in a container).",
    ),
    Option("join", Addresses(), (), "node.join", "A node of the fabric, or a DNS name of many; may be given several times."),
    Option(
        "join_required", YesNo(), True, "node.join_required",
        "Fail if nobody answers there in time; else go on alone, and go on trying.",
    ),
    Option("wait", Seconds(), 10.0, "node.join_timeout", "Seconds to wait for somebody to answer there."),
    Option(
        "spin", Seconds(SPIN_MOST), SPIN_SECONDS, "node.spin",
        "Seconds to look for the next message before sleeping, while messages come in quick succession; 0: never.",
    ),
    Option(
        "shared_memory", YesNo(), True, "node.shared_memory",
        "Large messages from and to nodes of the same host and user lie in memory that both see.",
    ),
    Option("fabric", Kind(), "", "node.fabric", "Only nodes of the same name talk."),
    Option("k", Count(1, 32), 6, "node.k", "Any K - 1 nodes may fail at once; a node has about K links."),
    Option("data_dir", Directory(), None, "node.data_dir", "Keep identity and outbox here: accepted events survive a crash."),
    Option("trace_dir", Directory(), None, "node.trace_dir", "Write traces for 'gossamer pipeline verify' here."),
    Option("keys", Directory(), None, "node.keys", "This node's keys (gossamer keys issue): TLS with nodes of the same authority."),
    Option("insecure", YesNo(), False, "node.insecure", "Listen beyond loopback without keys, open to anybody."),
    Option("topics", Topics(), {}, "run", "A topic to advertise, with its schema [@ RETENTION]; may be given several times."),
    Option("drain", Seconds(), 10.0, "run", "Seconds to wait for receipts after SIGTERM or Ctrl-C; a second one ends at once."),
    Option(
        "metrics_address", Address(bare_port=True), "", "run",
        "Serve /metrics (Prometheus), /healthz and /readyz here; a bare port is on 127.0.0.1.",
    ),
    Option("log_format", Choice("text", "json"), "text", "run", "Log lines on standard error, for people or for machines."),
    Option("log_level", Choice("debug", "info", "warning", "error"), "info", "run", "The least that is logged."),
    Option(
        "window", Count(*WHOLE["window"]), _LIMITS.window, "limits.window",
        "Events without a receipt; beyond that, publishing waits.",
    ),
    Option("window_bytes", Bytes(*WHOLE["window_bytes"]), _LIMITS.window_bytes, "limits.window_bytes", "The same, in bytes."),
    Option(
        "batch_events", Count(*WHOLE["batch_events"]), _LIMITS.batch_events, "limits.batch_events",
        "Events that travel together, at most.",
    ),
    Option(
        "batch_bytes", Bytes(*WHOLE["batch_bytes"]), _LIMITS.batch_bytes, "limits.batch_bytes",
        "A batch is sent when it has about reached this.",
    ),
    Option("event_bytes", Bytes(*WHOLE["event_bytes"]), _LIMITS.event_bytes, "limits.event_bytes", "The largest event."),
    Option("buffer", Count(*WHOLE["buffer"]), _LIMITS.buffer, "limits.buffer", "Events that may wait for one subscription."),
    Option(
        "block", Seconds(BLOCK_MOST, least=BLOCK_LEAST), _LIMITS.block, "limits.block",
        "Seconds that a full buffer holds publishers back before the subscription is cut off.",
    ),
    Option(
        "subscriptions", Count(*WHOLE["subscriptions"]), _LIMITS.subscriptions, "limits.subscriptions",
        "Subscriptions of this node.",
    ),
    Option(
        "retained", Bytes(*WHOLE["retained"]), _LIMITS.retained, "limits.retained",
        "What this node retains of what is published through it, all topics together.",
    ),
    Option("connections", Count(8, 1 << 20), _PEERS.connections, "peers.connections", "Open connections in all."),
    Option(
        "address_connections", Count(1, 1 << 20), _PEERS.address_connections, "peers.address_connections",
        "Open connections from one address.",
    ),
    Option(
        "peer_messages", Count(1, 1 << 30), _PEERS.messages, "peers.messages",
        "Messages a second from one peer; one that sends more is cut off.",
    ),
    Option("peer_bytes", Bytes(1, 1 << 40), _PEERS.bytes, "peers.bytes", "The same, in bytes."),
)  # fmt: skip

BY_NAME = {option.name: option for option in OPTIONS}


class _Type(click.ParamType[Any]):
    """A flag's text as its kind reads it."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.text(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def options(command: F) -> F:
    """All of them as flags; a command gets ``flags``, which has None for what was not given."""
    for option in reversed(OPTIONS):
        about = f"{option.help}  [{option.variable}{_default(option)}]"
        if isinstance(option.kind, YesNo):
            words = f"{option.flag}/--no-{option.flag[2:]}"
            command = click.option(words, option.name, default=None, help=about)(command)
        else:
            command = click.option(
                option.flag, option.name, type=_Type(option.kind), multiple=option.kind.many, default=None,
                metavar=option.kind.metavar, help=about,
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
