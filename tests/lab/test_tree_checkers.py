"""The checkers see faults: each is shown a fabric with one thing wrong."""

from __future__ import annotations

import pytest

from gossamer.lab.tree.checkers import (
    at_rest,
    claims,
    closure,
    deliveries,
    form,
    mutual,
    ring,
    shape,
)
from gossamer.lab.tree.chord import Chord
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.run import TreeRun
from gossamer.overlay.tree.reference import Neighbours


@pytest.fixture
def run() -> TreeRun:
    found = TreeRun(Setup(hosts=10, filters="mix", dht="chord", seed=2))
    for _ in range(10):
        found.join(found.free_key())
        found.wait(0.3)
    found.publish(next(iter(found.up.values())))
    assert found.until(lambda: found.quiet() and not ring(found), 60) is not None
    assert at_rest(found) == ring(found) == deliveries(found) == []
    return found


def test_links() -> None:
    assert mutual({1: [2], 2: []}) == ["1 uses a link to 2, which does not"]
    assert mutual({1: [2], 2: [1]}) == []


def test_shape() -> None:
    assert shape({1: [2, 3], 2: [1], 3: [1]}) == []
    assert any("not connected" in text for text in shape({1: [2], 2: [1], 3: []}))
    assert any("not a tree: 3 links" in text for text in shape({1: [2, 3], 2: [1, 3], 3: [1, 2]}))
    assert shape({1: [2, 3, 4, 5], **{key: [1] for key in (2, 3, 4, 5)}}, 3) == [
        "1 has 4 neighbours"
    ]


def test_form_and_claims(run: TreeRun) -> None:
    key = next(key for key, (_, children) in run.neighbours().items() if children)
    run.machine(run.up[key]).hood.neighbours = Neighbours()
    assert any(f"{key} reckons" in text for text in form(run))
    assert any(f"has the parent {key}, which does not" in text for text in claims(run))


def test_closure(run: TreeRun) -> None:
    host = next(run.machine(node) for node in run.up.values())
    host.routes.own[9] = ("weather", "temp IS NULL AND city = 'nowhere'")
    covered = run.content.covers(
        "weather", next(iter(host.routes.own.values()))[1], host.routes.own[9][1]
    )
    assert covered or any("nothing that covers" in text for text in closure(run))
    del host.routes.own[9]
    peer = next(iter(host.routes.tables))
    host.routes.tables[peer] = None
    assert any("does not know which keys are behind" in text for text in closure(run))


def test_rings(run: TreeRun) -> None:
    chord = run.machine(next(iter(run.up.values()))).ring
    assert isinstance(chord, Chord)
    del chord.successors[0]
    assert ring(run) != []
    chord.successors.clear()
    assert any("OneLiveSuccessor" in text for text in ring(run))


def test_deliveries(run: TreeRun) -> None:
    event = run.book.history.events[0]
    assert event.id is not None
    place = next(place for place in run.book.history.places if event.index in place.got)
    assert deliveries(run) == []
    run.book.took(run.world.nodes[place.node], place, event.id, None, 0)
    assert [text for text in deliveries(run) if "handed over again" in text] != []
    del place.got[event.index]
    assert any("missed at node" in text for text in deliveries(run))
