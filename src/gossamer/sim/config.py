"""One run as data: the fabric, the workload's size, the network and the faults. Prints itself as a scenario file."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gossamer.node.planes import Route
from gossamer.sim import latency
from gossamer.sim.clock import DurationError, duration
from gossamer.sim.faults import AnyFault

OVERLAYS = (
    "flood",
    "fabric",
)  # flood over a fixed graph; whole nodes: flood over links that the interest plane keeps
ROUTES = (*Route, "mixed", "wander")
MIXED = (Route.FLOOD, Route.SKIPLIST, Route.TREE, Route.DIRECT)
NODES_MAX = 20_000
C = TypeVar("C")
SCENARIOS = resources.files(__package__) / "scenarios"  # also where the package is a zip file


class ConfigError(ValueError):
    """A configuration or a scenario file that cannot be run; says where and why."""


class Config(Struct, frozen=True, kw_only=True):
    overlay: str = "flood"
    route: str = "flood"  # of the subscriptions; with overlay "fabric" any; mixed: one after the other; wander: they move
    nodes: int = 200
    degree: int = 6  # neighbours of a node in the random graph
    durable: bool = False  # nodes have disks: accepted events survive crashes
    disk: str = "1ms"  # how long a write takes
    window: int = 32_768  # events without a receipt that a node may have
    unreached: float = (
        0.0  # share of the nodes, but the first three, that nobody can dial; with overlay "fabric"
    )
    buffer: int = 16_384  # events that may wait for one subscription's consumer
    events: int = 100
    subscriptions: int = 200
    interval: str = "10ms"  # between publications
    burst: int = 1  # events published together
    churn: int = 0  # subscriptions that are cancelled and made anew while events are published
    consumer: str = "0s"  # how long a subscriber takes for each hand-over
    latency: str = "constant:1ms"
    # Chance that a packet is lost below the stream: its message and all behind it are late by a
    # retransmission time-out.
    loss: float = 0.0
    delay: float = 0.0  # chance that a message is late, and all behind it
    late: str = "20ms"  # how late it is at most
    breaks: float = 0.0  # chance for each message that its connection breaks in mid-stream
    refuse: float = 0.0  # chance that an event message finds the queue full
    detect: str = "300ms"  # a broken link is noticed after half to one and a half of this
    reconnect: str = "100ms"  # a mended one is used again after half to one and a half of this
    queue_mark: int = 256  # event messages waiting on a link; beyond it, it is FULL
    stop: str = (
        ""  # when loss, delay, breaks and refusals stop (after the first publication); empty: never
    )
    seconds_max: float = 120.0  # virtual seconds that the fabric has to become quiet
    seed: int = 0
    faults: tuple[AnyFault, ...] = ()

    def __post_init__(self) -> None:
        if self.overlay not in OVERLAYS:
            raise ConfigError(f"unknown overlay {self.overlay!r}; known: {', '.join(OVERLAYS)}")
        if self.route not in ROUTES:
            raise ConfigError(f"unknown route {self.route!r}; known: {', '.join(ROUTES)}")
        if self.route != "flood" and self.overlay != "fabric":
            raise ConfigError(
                f"route {self.route!r} needs overlay 'fabric', whose nodes know each other"
            )
        if self.unreached and self.overlay != "fabric":
            raise ConfigError(
                "unreached needs overlay 'fabric': the links of 'flood' are given, nobody dials"
            )
        for name, low, high in _BOUNDS:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it must be from {low} to {high}")
        for name in ("disk", "interval", "consumer", "late", "detect", "reconnect", "stop"):
            check_duration(name, getattr(self, name))
        check_faults(self.faults, self.nodes)
        check_latency(self.latency)

    def route_of(self, filter: int) -> Route:
        """The route of a subscription."""
        if self.is_unreached(filter % self.nodes):
            return Route.AUTO  # any other but flood is refused there
        return (
            MIXED[filter % len(MIXED)] if self.route in ("mixed", "wander") else Route(self.route)
        )

    def is_unreached(self, node: int) -> bool:
        """Whether nobody can dial the node. By the first three, the others find each other."""
        return node >= 3 and self.unreached > Random(f"unreached {self.seed} {node}").random()


def check_duration(name: str, text: str) -> None:
    try:
        if text or name != "stop":
            duration(text)
    except DurationError as error:
        raise ConfigError(f"{name}: {error}") from None


def check_faults(faults: tuple[AnyFault, ...], nodes: int) -> None:
    for number, fault in enumerate(faults, start=1):
        for name in ("at", "lasts"):
            check_duration(f"fault {number}: {name}", getattr(fault, name))
        wrong = [node for node in fault.nodes if not 0 <= node < nodes]
        if wrong:
            raise ConfigError(
                f"fault {number}: there is no node {wrong[0]}; nodes are 0 to {nodes - 1}"
            )
        if not 0 < fault.share <= 1:
            raise ConfigError(
                f"fault {number}: share is {fault.share}; it must be above 0 and at most 1"
            )


def check_latency(text: str) -> None:
    if not text.startswith("matrix:"):  # files are read when the run begins
        try:
            latency.parse(text, 0)
        except latency.LatencyError as error:
            raise ConfigError(str(error)) from None


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("nodes", 1, NODES_MAX), ("degree", 1, 256), ("window", 1, 1_000_000), ("buffer", 1, 1_000_000), ("events", 0, 10_000_000),
    ("unreached", 0.0, 1.0), ("subscriptions", 0, 10_000_000), ("burst", 1, 100_000), ("churn", 0, 1_000_000), ("loss", 0.0, 0.9),
    ("delay", 0.0, 1.0), ("breaks", 0.0, 0.5), ("refuse", 0.0, 0.9), ("queue_mark", 1, 1_000_000), ("seconds_max", 0.001, 1e6),
    ("seed", 0, 2**63 - 1),
)  # fmt: skip

SECTIONS: dict[str, tuple[str, ...]] = {
    "fabric": (
        "overlay",
        "route",
        "nodes",
        "degree",
        "durable",
        "disk",
        "window",
        "buffer",
        "unreached",
    ),
    "workload": ("events", "subscriptions", "interval", "burst", "churn", "consumer"),
    "network": (
        "latency",
        "loss",
        "delay",
        "late",
        "breaks",
        "refuse",
        "detect",
        "reconnect",
        "queue_mark",
    ),
    "run": ("seed", "stop", "seconds_max"),
}


class Scenario(Struct, frozen=True):
    name: str
    about: str
    config: Config


def to_toml(config: Config, about: str = "") -> str:
    """The configuration as a scenario file: parses back to an equal one. What is as by default is left out."""
    return dump(config, Config(), SECTIONS, about)


def dump(
    config: Any, default: Any, sections: Mapping[str, tuple[str, ...]], about: str = ""
) -> str:
    """Any run's configuration as a scenario file; what is as by default is left out."""
    lines = [f"about = {_toml(about)}"] if about else []
    for section, names in sections.items():
        changed = [name for name in names if getattr(config, name) != getattr(default, name)]
        if changed:
            lines += [
                "",
                f"[{section}]",
                *(f"{name} = {_toml(getattr(config, name))}" for name in changed),
            ]
    for fault in config.faults:
        lines += [
            "",
            "[[fault]]",
            *(f"{key} = {_toml(value)}" for key, value in msgspec.to_builtins(fault).items()),
        ]
    return "\n".join(lines).strip() + "\n"


def _toml(value: Any) -> str:
    return msgspec.json.encode(
        value
    ).decode()  # strings, numbers, booleans and arrays are written alike


def from_toml(text: str, where: str) -> Scenario:
    about, config = parse(text, where, Config, SECTIONS)
    return Scenario(Path(where).stem, about, config)


def parse(
    text: str, where: str, kind: type[C], sections: Mapping[str, tuple[str, ...]]
) -> tuple[str, C]:
    """What a scenario file says it is about, and its configuration."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {error}") from None
    about = tables.pop("about", "")
    faults = tables.pop("fault", [])
    fields: dict[str, Any] = {"faults": faults}
    for section, table in tables.items():
        if section not in sections:
            _unknown(where, "section or key", section, [*sections, "fault", "about"])
        if not isinstance(table, Mapping):
            raise ConfigError(f"{where}: {section} must be a table: write [{section}]")
        for key, value in table.items():
            if key not in sections[section]:
                _unknown(where, f"key in [{section}]", key, sections[section])
            fields[key] = value
    try:
        return str(about), msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None


def _unknown(where: str, what: str, name: str, known: list[str] | tuple[str, ...]) -> None:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    raise ConfigError(f"{where}: unknown {what} {name!r}; {hint}")


def shipped() -> dict[str, Scenario]:
    """The scenarios that come with the package, by name."""
    return {
        name: from_toml((SCENARIOS / f"{name}.toml").read_text("utf-8"), f"{name}.toml")
        for name in _names()
    }


def _names() -> list[str]:
    return sorted(
        path.name.removesuffix(".toml")
        for path in SCENARIOS.iterdir()
        if path.name.endswith(".toml")
    )


def load(name: str) -> Scenario:
    """A shipped scenario by its name, or a file by its path."""
    known = _names()
    if name in known:
        return from_toml((SCENARIOS / f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"no scenario {name!r}: neither a file nor one of {', '.join(known)}")
    try:
        return from_toml(path.read_text("utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {error}") from None
