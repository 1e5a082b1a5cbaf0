"""One run as data, and as a scenario file.

``Setup`` holds the options that every run has: its network, the trouble that befalls it, and the
number from which everything is drawn. Each kind of run adds its own fields in a subclass.
``Config`` belongs to whole nodes; those of the bare overlays are in ``gossamer.lab``. A setup
prints itself as a scenario file, which parses back to an equal one.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec import Struct

from gossamer.node.planes import Route
from gossamer.sim import latency
from gossamer.sim.clock import DurationError, duration
from gossamer.sim.faults import AnyFault

ROUTES = (*Route, "mixed", "wander")
MIXED = (Route.FLOOD, Route.SKIPLIST, Route.TREE, Route.DIRECT)
NODES_MAX = 20_000
# This also works where the package is a zip file.
SCENARIOS = resources.files(__package__) / "scenarios"
S = TypeVar("S", bound="Setup")


class ConfigError(ValueError):
    """A configuration or a scenario file that cannot be run; says where and why."""


class Setup(Struct, frozen=True, kw_only=True):
    """The options of every run.

    Subclasses add fields, and their class variables say which values these may have.
    """

    overlay: str
    latency: str = "constant:1ms"
    # Chance that a packet is lost below the stream: its message and all behind it are late by a
    # retransmission time-out.
    loss: float = 0.0
    # The chance that a message is late, with everything behind it.
    delay: float = 0.0
    # The most that it is late.
    late: str = "20ms"
    # The chance for each message that its connection breaks in mid-stream.
    breaks: float = 0.0
    # The chance that an event message finds the queue full.
    refuse: float = 0.0
    # A broken link is noticed after half to one and a half of this time.
    detect: str = "300ms"
    # A mended link is used again after half to one and a half of this time.
    reconnect: str = "100ms"
    # The number of event messages that may wait on a link. Beyond it, the link is FULL.
    queue_mark: int = 256
    # The time that a write takes.
    disk: str = "1ms"
    # The time after which loss, delay, breaks and refusals stop, counted from the beginning of the
    # trouble. Empty: they never stop.
    stop: str = ""
    # The virtual seconds in which everything has to become right in the end.
    seconds_max: float = 120.0
    seed: int = 0
    faults: tuple[AnyFault, ...] = ()

    # The field that says how many nodes there are.
    NODES: ClassVar[str] = "nodes"
    OVERLAYS: ClassVar[tuple[str, ...]] = ()
    BOUNDS: ClassVar[tuple[tuple[str, float, float], ...]] = ()
    CHOICES: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()
    DURATIONS: ClassVar[tuple[str, ...]] = ()
    FABRIC: ClassVar[tuple[str, ...]] = ()
    WORKLOAD: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.overlay not in self.OVERLAYS:
            raise ConfigError(
                f"unknown overlay {self.overlay!r}; known: {', '.join(self.OVERLAYS)}"
            )
        for name, low, high in (*self.BOUNDS, *_BOUNDS):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it must be from {low} to {high}")
        for name, choices in self.CHOICES:
            if getattr(self, name) not in choices:
                known = ", ".join(choices)
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be one of {known}")
        for name in (*self.DURATIONS, "disk", "late", "detect", "reconnect", "stop"):
            _check_duration(name, getattr(self, name))
        _check_faults(self.faults, getattr(self, self.NODES))
        _check_latency(self.latency)
        self.check()

    def check(self) -> None:
        """Raises ``ConfigError`` for mistakes that only this kind of run can judge."""

    @classmethod
    def sections(cls) -> dict[str, tuple[str, ...]]:
        """Which key is in which section of a scenario file."""
        return {
            "fabric": ("overlay", *cls.FABRIC, "disk"),
            "workload": cls.WORKLOAD,
            "network": (
                "latency", "loss", "delay", "late", "breaks", "refuse", "detect", "reconnect",
                "queue_mark",
            ),
            "run": ("seed", "stop", "seconds_max"),
        }  # fmt: skip


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("loss", 0.0, 0.9), ("delay", 0.0, 1.0), ("breaks", 0.0, 0.5), ("refuse", 0.0, 0.9),
    ("queue_mark", 1, 1_000_000),
    ("seconds_max", 0.001, 1e6), ("seed", 0, 2**63 - 1),
)  # fmt: skip


class Config(Setup, frozen=True, kw_only=True):
    """Whole nodes.

    They run over a graph that is given (flood), or over links that the interest plane opens and
    closes (fabric).
    """

    overlay: str = "flood"
    # The route of the subscriptions; any route with overlay "fabric". With mixed they take turns,
    # and with wander they move.
    route: str = "flood"
    nodes: int = 200
    # The neighbours of a node in the random graph.
    degree: int = 6
    # Nodes have disks, and accepted events survive crashes.
    durable: bool = False
    # The events without a receipt that a node may have.
    window: int = 32_768
    # Share of the nodes, but the first three, that nobody can dial; with overlay "fabric".
    unreached: float = 0.0
    # The events that may wait for one subscription's consumer.
    buffer: int = 16_384
    events: int = 100
    subscriptions: int = 200
    # The time between publications.
    interval: str = "10ms"
    # The number of events that are published together.
    burst: int = 1
    # The subscriptions that are cancelled and made anew while events are published.
    churn: int = 0
    # The time that a subscriber takes for each hand-over.
    consumer: str = "0s"

    OVERLAYS: ClassVar = ("flood", "fabric")
    BOUNDS: ClassVar = (
        ("nodes", 1, NODES_MAX), ("degree", 1, 256), ("window", 1, 1_000_000),
        ("buffer", 1, 1_000_000),
        ("events", 0, 10_000_000), ("unreached", 0.0, 1.0), ("subscriptions", 0, 10_000_000),
        ("burst", 1, 100_000),
        ("churn", 0, 1_000_000),
    )  # fmt: skip
    DURATIONS: ClassVar = ("interval", "consumer")
    FABRIC: ClassVar = ("route", "nodes", "degree", "durable", "window", "buffer", "unreached")
    WORKLOAD: ClassVar = ("events", "subscriptions", "interval", "burst", "churn", "consumer")

    def check(self) -> None:
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

    def route_of(self, filter: int) -> Route:
        """The route of a subscription."""
        if self.is_unreached(filter % self.nodes):
            # Other routes but flood are refused there.
            return Route.AUTO
        return (
            MIXED[filter % len(MIXED)] if self.route in ("mixed", "wander") else Route(self.route)
        )

    def is_unreached(self, node: int) -> bool:
        """Whether nobody can dial the node. By the first three, the others find each other."""
        return node >= 3 and self.unreached > Random(f"unreached {self.seed} {node}").random()


def _check_duration(name: str, text: str) -> None:
    try:
        if text or name != "stop":
            duration(text)
    except DurationError as error:
        raise ConfigError(f"{name}: {error}") from None


def _check_faults(faults: tuple[AnyFault, ...], nodes: int) -> None:
    for number, fault in enumerate(faults, start=1):
        for name in ("at", "lasts"):
            _check_duration(f"fault {number}: {name}", getattr(fault, name))
        wrong = [node for node in fault.nodes if not 0 <= node < nodes]
        if wrong:
            raise ConfigError(
                f"fault {number}: there is no node {wrong[0]}; nodes are 0 to {nodes - 1}"
            )
        if not 0 < fault.share <= 1:
            raise ConfigError(
                f"fault {number}: share is {fault.share}; it must be above 0 and at most 1"
            )


def _check_latency(text: str) -> None:
    if not text.startswith("matrix:"):
        # The run reads files when it begins.
        try:
            latency.parse(text, 0)
        except latency.LatencyError as error:
            raise ConfigError(str(error)) from None


# ---------------------------------------------------------------------- scenario files


class ScenarioFile(Struct, Generic[S], frozen=True):
    name: str
    about: str
    config: S


def to_toml(setup: Setup, about: str = "") -> str:
    """The setup as a scenario file, with the overlay and every option that differs from its
    default.
    """
    default = type(setup)(overlay=setup.overlay)
    lines = [f"about = {_toml(about)}"] if about else []
    for section, names in setup.sections().items():
        changed = [
            name
            for name in names
            if name == "overlay" or getattr(setup, name) != getattr(default, name)
        ]
        if changed:
            written = (f"{name} = {_toml(getattr(setup, name))}" for name in changed)
            lines += ["", f"[{section}]", *written]
    for fault in setup.faults:
        written = (f"{key} = {_toml(value)}" for key, value in msgspec.to_builtins(fault).items())
        lines += ["", "[[fault]]", *written]
    return "\n".join(lines).strip() + "\n"


def _toml(value: Any) -> str:
    # Strings, numbers, booleans and arrays are written alike.
    return msgspec.json.encode(value).decode()


def from_toml(
    text: str,
    where: str,
    kind: type[S] = Config,  # type: ignore[assignment]
) -> ScenarioFile[S]:
    """Read a scenario file. The caller knows which kind of run it is."""
    sections = kind.sections()
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
        return ScenarioFile(Path(where).stem, str(about), msgspec.convert(fields, kind))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None


def _unknown(where: str, what: str, name: str, known: list[str] | tuple[str, ...]) -> None:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    raise ConfigError(f"{where}: unknown {what} {name!r}; {hint}")


def shipped() -> dict[str, ScenarioFile[Config]]:
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


def load(name: str) -> ScenarioFile[Config]:
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
