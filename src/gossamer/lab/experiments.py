"""One simulation of any overlay as a row: its configuration, its run, and the results that are
kept.

    flood      size: nodes     parameter: links of a node
    interest   size: nodes     parameter: K
    skiplist   size: entries   parameter: k
    tree       size: hosts     parameter: arity

A *fault* is a kind of trouble that the overlay's own command knows by name (``FAULTS``); ``none``
is a calm run. Options are flags of ``gossamer simulate OVERLAY``, so every row has a command line
that repeats it.

The results of a run are kept as numbers: **measures** (one number each), **spreads** (the count of
each value), and for some overlays every one of the **news** and **reconfigurations**. No result
depends on the machine or the clock: the same row gives the same numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gossamer.sim.traces import Traces

OVERLAYS = ("flood", "interest", "skiplist", "tree")
SIZE = {"flood": "nodes", "interest": "nodes", "skiplist": "entries", "tree": "hosts"}
PARAMETER = {"flood": "degree", "interest": "k", "skiplist": "k", "tree": "arity"}
PARAMETERS = {"flood": 6, "interest": 6, "skiplist": 2, "tree": 2}
"""The default parameters."""
NONE = "none"
FAULTS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "flood": {
        name: {"scenario": name} for name in ("lossy", "partition", "crash-restart", "swizzle")
    },
    "interest": {
        name: {"scenario": name}
        for name in ("crashes", "loss", "pause", "partition", "restart", "churn", "leave", "dead")
    },
    "skiplist": {"churn": {"churn": 0.1}},
    "tree": {"loss": {"loss": 0.1}, "churn": {"churn_per_second": 0.01}},
}
"""Kinds of trouble, and the flags that make them."""
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "flood": (
        "events", "subscriptions", "interval", "burst", "churn", "latency", "loss", "delay",
        "late", "breaks", "refuse",
    ),
    "interest": (
        "topics", "subscriptions", "spread", "news", "threshold", "coalesce", "period", "changes",
        "rate", "latency",
    ),
    "skiplist": (
        "events", "per_node", "workload", "trace", "kinds", "routing", "grow_from", "churn_s",
        "latency", "period",
    ),
    "tree": (
        "events", "key_bits", "rooting", "dht", "interval", "measure", "publishers", "filters",
        "latency", "detect", "lag",
    ),
}  # fmt: skip
"""Flags that a grid may set for all its runs of an overlay."""
_UNSTABLE = ("memory_mb_per_million_pairs",)
"""This depends on the interpreter's allocator, so it is not a figure of a run."""


class GridError(ValueError):
    """A grid that cannot be run. The message gives the fault and the known values."""


class Cell(Struct, frozen=True, order=True):
    """One run, before it has run."""

    overlay: str
    size: int
    parameter: int = 0
    """Links, K, k or arity. 0 takes the overlay's own."""
    seed: int = 0
    fault: str = NONE
    options: tuple[tuple[str, Any], ...] = ()
    """Further flags, by name."""

    def flags(self) -> dict[str, Any]:
        """All flags of the run."""
        named = {
            SIZE[self.overlay]: self.size,
            PARAMETER[self.overlay]: self.parameter or PARAMETERS[self.overlay],
        }
        trouble = FAULTS[self.overlay][self.fault] if self.fault != NONE else {}
        return {**named, "seed": self.seed, **trouble, **dict(self.options)}

    def run(self) -> int:
        """The run's number.

        It is the same for the same run in every grid, so a growing grid keeps its results.
        """
        told = msgspec.json.encode(
            [self.overlay, sorted((name, str(value)) for name, value in self.flags().items())]
        )
        return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big") >> 1

    def replay(self) -> str:
        """The command that repeats the run without Spark."""
        words = ["gossamer", "simulate", self.overlay]
        for name, value in self.flags().items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join(words)

    def cost(self) -> float:
        """The approximate time of the run in any unit. The longest runs begin first."""
        weight = {"flood": 1.0, "interest": 20.0, "skiplist": 5.0, "tree": 2.0}[self.overlay]
        return (
            weight
            * self.size
            * (2.0 if self.overlay == "skiplist" and dict(self.options).get("grow_from") else 1.0)
        )

    def check(self) -> None:
        """Refuse before Spark starts every configuration that the simulator would refuse."""
        from gossamer.sim import ConfigError
        from gossamer.sim.latency import LatencyError

        if self.overlay not in OVERLAYS:
            raise GridError(f"no overlay {self.overlay!r}; there are {', '.join(OVERLAYS)}")
        if self.fault != NONE and self.fault not in FAULTS[self.overlay]:
            known = ", ".join((NONE, *FAULTS[self.overlay]))
            raise GridError(f"{self.overlay}: no fault {self.fault!r}; there are {known}")
        for name, _ in self.options:
            if name not in OPTIONS[self.overlay]:
                known = ", ".join(OPTIONS[self.overlay])
                raise GridError(f"{self.overlay}: no option {name!r}; there are {known}")
        try:
            _SETUPS[self.overlay](self.flags())
        except (ConfigError, LatencyError, TypeError) as error:
            raise GridError(f"{self.overlay}: {error}") from None


def cells(
    overlays: Iterable[str],
    sizes: Iterable[int],
    parameters: Iterable[int] = (0,),
    seeds: Iterable[int] = (0,),
    faults: Iterable[str] = (NONE,),
    options: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """Every combination. A fault or an option that an overlay does not have is an error."""
    given = tuple(sorted((options or {}).items()))
    found = [
        Cell(*each, given) for each in itertools.product(overlays, sizes, parameters, seeds, faults)
    ]
    for cell in found:
        cell.check()
    return list(dict.fromkeys(found))


class Found(Struct):
    """The results of a run. Spark judges its deliveries, from the traces."""

    good: bool
    digest: str
    violations: list[str]
    measures: dict[str, float]
    spreads: dict[str, dict[int, int]] = {}
    news: list[dict[str, Any]] = []
    reconfigurations: list[dict[str, Any]] = []
    traces: dict[str, bytes] = {}
    """The actions and observations of users: trace files by their names."""


JUDGED = ("expected", "delivered", "missed", "duplicate", "spurious")
"""The run's own counts of its deliveries. They are left out if it has traces for a judge."""


def execute(overlay: str, flags: Mapping[str, Any]) -> Found:
    """Run the simulation. Errors of the simulator are raised."""
    traces = Traces()
    found = _RUNS[overlay](flags, traces)
    found.traces = traces.files()
    if found.traces:
        found.measures = {
            name: value for name, value in found.measures.items() if name not in JUDGED
        }
    return found


def _numbers(found: Any, prefix: str = "") -> dict[str, float]:
    """Every number in a structure, by its name.

    Counts by value are spreads and are left out here.
    """
    numbers: dict[str, float] = {}
    for name, value in (
        msgspec.to_builtins(found, str_keys=True) if isinstance(found, Struct) else found
    ).items():
        if name in ("histogram", "degree", "noise_counts") or name in _UNSTABLE:
            continue
        if isinstance(value, Mapping):
            numbers |= _numbers(value, f"{prefix}{name}_")
        elif isinstance(value, bool | int | float):
            numbers[f"{prefix}{name}"] = float(value)
    return numbers


def _whole(counts: Mapping[Any, int]) -> dict[int, int]:
    return {int(at): int(count) for at, count in counts.items()}


def _counted(values: Iterable[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return dict(sorted(counts.items()))


def _flood_config(flags: Mapping[str, Any]) -> Any:
    from gossamer.sim import Config
    from gossamer.sim.config import load

    base = load(flags["scenario"]).config if "scenario" in flags else Config()
    return msgspec.structs.replace(
        base, **{name: value for name, value in flags.items() if name != "scenario"}
    )


def _flood(flags: Mapping[str, Any], traces: Traces) -> Found:
    from gossamer.sim.run import Run

    run = Run(_flood_config(flags))
    run.world.traces = traces
    outcome = run.go()
    fields = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
    scalars = {name: value for name, value in fields.items() if isinstance(value, int | float)}
    hops, noise = (
        _counted(each.hops for each in outcome.deliveries),
        _counted(each.noise for each in outcome.loads),
    )
    return Found(
        outcome.good, outcome.digest, [str(each) for each in outcome.violations],
        _numbers(scalars),
        {"hops": hops, "noise": noise},
    )  # fmt: skip


def _interest_setup(flags: Mapping[str, Any]) -> Any:
    from gossamer.lab.interest.config import Setup

    return Setup(**{name: value for name, value in flags.items() if name != "scenario"})


def _interest(flags: Mapping[str, Any], traces: Traces) -> Found:
    """No node publishes, so only views can be judged, and the run's own checkers judge them."""
    from gossamer.lab.interest.experiments import experiment
    from gossamer.lab.interest.measure import measure

    setup = _interest_setup(flags)
    if "scenario" in flags:
        verdict = experiment(flags["scenario"], setup)
        named = {
            name.replace(",", "").replace(" ", "_"): value
            for name, value in verdict.figures.items()
        }
        return Found(verdict.good, verdict.digest, verdict.reasons, _numbers(named))
    news: list[dict[str, Any]] = []

    def told(change: int, trail: Any) -> None:
        for node, hops in sorted(trail.hops.items()):
            if hops:
                news.append(
                    {
                        "change": change,
                        "node": node,
                        "latency_us": int(trail.at[node] - trail.began),
                        "hops": hops,
                    }
                )

    found = measure(setup, told=told, memory=False)
    spreads = {"hops": _counted(each["hops"] for each in news)}
    return Found(found.good, found.digest, found.violations, _numbers(found), spreads, news)


def _skiplist_setup(flags: Mapping[str, Any]) -> Any:
    from gossamer.lab.skiplist.config import Setup

    return Setup(**flags)


def _skiplist(flags: Mapping[str, Any], traces: Traces) -> Found:
    from gossamer.lab.skiplist.measure import measure

    found = measure(_skiplist_setup(flags), traces=traces)
    spreads = {"hops": _whole(found.hops.histogram), "noise": _whole(found.noise_counts)}
    violations = found.violations or ([] if found.perfect else ["the list did not become perfect"])
    return Found(found.good, found.digest, violations, _numbers(found), spreads)


def _tree_setup(flags: Mapping[str, Any]) -> Any:
    from gossamer.lab.tree.config import Setup

    return Setup(**flags)


def _tree(flags: Mapping[str, Any], traces: Traces) -> Found:
    from gossamer.lab.tree.measure import Changes, measure

    each: list[dict[str, Any]] = []

    def told(changes: Changes) -> None:
        each.extend(
            {"reconfiguration": number} | msgspec.to_builtins(one)
            for number, one in enumerate(changes.each)
        )

    found = measure(_tree_setup(flags), told=told, traces=traces)
    areas = {
        f"area_{what}": _counted(one["area"] for one in each if one["what"] == what)
        for what in ("join", "leave")
    }
    spreads = {"degree": _whole(found.degree)} | areas
    numbers = _numbers(found)
    return Found(
        found.good, found.digest, found.violations, numbers, spreads, reconfigurations=each
    )


_SETUPS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "flood": _flood_config,
    "interest": _interest_setup,
    "skiplist": _skiplist_setup,
    "tree": _tree_setup,
}
_RUNS: Mapping[str, Callable[[Mapping[str, Any], Traces], Found]] = {
    "flood": _flood, "interest": _interest, "skiplist": _skiplist, "tree": _tree,
}  # fmt: skip
