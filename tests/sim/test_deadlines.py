"""The deadline that a node gives its driver, over whole runs with faults."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.machine import Micros
from gossamer.node.routing import Routing
from gossamer.sim.scenario import fly
from gossamer.sim.swarm import fabric


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_remembered_deadline_is_the_one_that_the_planes_would_say_now(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routing asks a plane for its deadline only after the plane was called."""
    asked: Any = Routing.deadline
    compared = 0

    def deadline(self: Routing) -> Micros:
        nonlocal compared
        found: Micros = asked.fget(self)
        compared += 1
        for route, plane in self.planes.items():
            assert self._dues[route] == plane.deadline, route
        return found

    monkeypatch.setattr(Routing, "deadline", property(deadline))
    flight = fly(fabric(seed))
    assert flight.good, "\n".join([*flight.violations, flight.toml, flight.replay])
    assert compared > 1000
