"""The life of a subscription: the tables, the page that draws them, and nodes that walk them."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from tests.node.test_routing import Fabric

from gossamer.node.core import Route
from gossamer.node.life import LIFE, MOVE, ImpossibleStepError, Stage, State, Step, after
from gossamer.node.local import LocalSubscription
from gossamer.overlay.interest.messages import Gone, News

PAGE = Path(__file__).parent.parent.parent / "docs" / "delivery.md"


@pytest.mark.parametrize(("now", "step"), list(product(State, Step)))
def test_a_state_takes_the_steps_of_its_table_and_refuses_all_others(
    now: State, step: Step
) -> None:
    if step in LIFE[now]:
        assert after(LIFE, now, step) is LIFE[now][step]
    else:
        with pytest.raises(ImpossibleStepError, match=f"is '{now}' cannot {step}"):
            after(LIFE, now, step)


@pytest.mark.parametrize(("now", "step"), list(product(Stage, Step)))
def test_a_stage_takes_the_steps_of_its_table_and_refuses_all_others(
    now: Stage, step: Step
) -> None:
    if step in MOVE[now]:
        assert after(MOVE, now, step) is MOVE[now][step]
    else:
        with pytest.raises(ImpossibleStepError, match=f"is '{now}' cannot {step}"):
            after(MOVE, now, step)


def test_every_state_and_stage_is_reached_and_only_the_last_ones_have_no_way_out() -> None:
    for table, first, last in (
        (LIFE, State.WANTED, State.ENDED),
        (MOVE, Stage.QUIET, Stage.OVER),
    ):
        reached, ahead = [first], [first]
        while ahead:
            for found in table[ahead.pop()].values():  # type: ignore[index]
                if found not in reached:
                    reached.append(found)
                    ahead.append(found)
        assert sorted(reached) == sorted(table)
        assert [state for state, steps in table.items() if not steps] == [last]


def test_a_subscription_in_force_has_been_laid_and_known_since_it_was_not() -> None:
    """No single step leads from outside into force, except through a state that has the other."""
    into = [(state, step) for state in State for step in LIFE[state] if _enters(state, step)]
    assert into == [(State.LAID, Step.KNOW), (State.KNOWN, Step.LAY)]
    for state in (State.LAID, State.KNOWN):
        came = {step for before in State for step, found in LIFE[before].items() if found is state}
        assert came == {Step.LAY if state is State.LAID else Step.KNOW}


def _enters(state: State, step: Step) -> bool:
    force = (State.IN_FORCE, State.MOVING)
    return state not in force and LIFE[state][step] in force


def test_the_page_draws_both_tables() -> None:
    drawings = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(drawings) == 2
    for drawing, table in zip(drawings, (LIFE, MOVE), strict=True):
        drawn = set(re.findall(r"(\w+) --> (\w+): (\w+)", drawing))
        arrows = {
            (str(state).replace(" ", "_"), str(found).replace(" ", "_"), str(step))
            for state, steps in table.items()
            for step, found in steps.items()
            # The page says once that every state has the step ``end``.
            if step is not Step.END
        }
        assert drawn == arrows
        ends = [state for state, steps in table.items() if steps and Step.END not in steps]
        assert not ends


class _Walk:
    """Records the states that one subscription goes through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: list[State] = [State.WANTED]
        step = LocalSubscription.step

        def stepping(one: LocalSubscription, taken: Step) -> None:
            step(one, taken)
            self.states.append(one.state)

        monkeypatch.setattr(LocalSubscription, "step", stepping)


def _take_for_dead(fabric: Fabric, number: int, by: int) -> None:
    life = fabric.core(number).interest.record.life
    fabric.inject(by, number, News((), (), (), (Gone(fabric.peer(number), life, False),)))


def test_a_node_walks_every_state(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = _Walk(monkeypatch)
    fabric = Fabric(4)
    mine = fabric.enter(1, "temp > 30", Route.DIRECT)
    subscription = fabric.core(1).subscriptions[mine]
    assert walk.states in (
        [State.WANTED, State.LAID, State.IN_FORCE],
        [State.WANTED, State.KNOWN, State.IN_FORCE],
    )
    walk.states.clear()
    fabric.command(1, "move", mine, Route.FLOOD)
    assert subscription.state is State.MOVING
    fabric.until(lambda: subscription.state is State.IN_FORCE)
    assert walk.states == [State.MOVING, State.IN_FORCE]
    walk.states.clear()
    _take_for_dead(fabric, 1, by=2)
    fabric.until(lambda: subscription.state is State.IN_FORCE and State.LAPSED in walk.states)
    # Route flood needs no place.
    assert walk.states == [State.LAPSED, State.LAID, State.IN_FORCE]
    walk.states.clear()
    fabric.command(1, "unsubscribe", mine)
    assert walk.states == [State.ENDED]


def test_a_move_outlives_a_lapse(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric(4)
    mine = fabric.enter(1, "temp > 30", Route.DIRECT)
    subscription = fabric.core(1).subscriptions[mine]
    walk = _Walk(monkeypatch)
    walk.states.clear()
    fabric.command(1, "move", mine, Route.TREE)
    _take_for_dead(fabric, 1, by=2)
    fabric.until(
        lambda: subscription.state is State.IN_FORCE and subscription.route is Route.TREE, 120
    )
    assert walk.states[:2] == [State.MOVING, State.LAPSED]
    assert walk.states[-2:] == [State.MOVING, State.IN_FORCE]
    assert fabric.matched(fabric.publish(0, 40)) == 1


def test_a_subscription_that_ended_takes_no_step() -> None:
    fabric = Fabric(3)
    mine = fabric.enter(1, "temp > 30", Route.FLOOD)
    subscription = fabric.core(1).subscriptions[mine]
    fabric.command(1, "unsubscribe", mine)
    with pytest.raises(ImpossibleStepError, match="'ended' cannot know"):
        subscription.step(Step.KNOW)
