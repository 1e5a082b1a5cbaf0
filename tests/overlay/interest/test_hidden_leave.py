"""A leave is never missed (claim 5), with news lost, repeated, late, batched and asked for again.

The tests compare a node with a model of it. The model knows nothing of stamps and versions. It
counts, for each topic, how often it has been left. After each change that the observer is told, a
topic that is wanted before and after must show as returned if that count differs, and only then.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.machine import MILLISECOND, Effect, LinkState, Message, Micros, Send
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import Gone, News
from gossamer.overlay.interest.record import Record, ViewChange, topic_hash
from worldnet import interest, single, through_codec, told

TOPICS = "abc"

STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["subscribe", "unsubscribe"]), st.sampled_from(TOPICS), st.integers(0, 1)
    ),
    st.tuples(st.sampled_from(["carry", "repeat", "lose", "answer"]), st.integers(0, 5)),
    st.tuples(st.just("wake"), st.sampled_from([1, 10, 400])),
    st.tuples(st.just("condemn")),
)


class Pair:
    """A source, an observer, and the messages between them, to be carried in any order or not at
    all.
    """

    def __init__(self, mode: str) -> None:
        self.now = 0
        self.source, self.observer = (
            single(1, config={"news": mode}),
            single(2, config={"news": mode}),
        )
        # Messages on the way to the observer.
        self.there: list[Message] = []
        self.back: list[Message] = []
        self.left: dict[str, int] = {}
        # For each topic the routes by which it is wanted.
        self.wanted: dict[str, list[int]] = {}
        self.truth: dict[tuple[int, int], dict[bytes, int]] = {}
        self.seen: Record | None = None
        self.changes = 0
        self.note()
        self._do(self.source, self.source.link(self.observer.me, LinkState.UP, Micros(0)))
        self._do(self.observer, self.observer.link(self.source.me, LinkState.UP, Micros(0)))
        self.carry(0), self.answer(0)

    def note(self) -> None:
        record = self.source.record
        self.truth[record.life, record.version] = {
            topic_hash(t): self.left.get(t, 0) for t in self.wanted
        }

    def _do(self, machine: Interest, effects: list[Effect]) -> None:
        if machine is self.source:
            self.note()
        for effect in effects:
            if isinstance(effect, Send):
                (self.there if machine is self.source else self.back).append(
                    through_codec(effect.message)[0]
                )
        if machine is self.observer:
            for change in told(effects):
                if change.peer == self.source.me:
                    self.check(change)

    def check(self, change: ViewChange) -> None:
        assert interest(change.before) == interest(self.seen), "changes follow each other"
        self.seen = change.after
        self.changes += 1
        assert change.after is not None
        now = self.truth[change.after.life, change.after.version]
        assert set(change.after.pairs()) == set(now)
        before = self.truth[change.before.life, change.before.version] if change.before else {}
        # Nobody knows the changes that were missed.
        is_new_life = change.before is not None and change.before.life != change.after.life
        assert set(change.returned) == {
            t for t in now if t in before and (is_new_life or now[t] != before[t])
        }
        assert set(change.joined) == now.keys() - before.keys()
        assert set(change.left) == before.keys() - now.keys()

    def subscribe(self, topic: str, route: int) -> None:
        self.source.subscribe(topic, Micros(self.now), routes=route)
        self.wanted[topic] = [*self.wanted.get(topic, []), route]
        self.note()

    def unsubscribe(self, topic: str, _: int) -> None:
        routes = self.wanted.get(topic, [0])
        self.source.unsubscribe(topic, Micros(self.now), routes=routes[-1])
        if topic in self.wanted:
            routes.pop()
            if not self.wanted[topic]:
                del self.wanted[topic]
                self.left[topic] = self.left.get(topic, 0) + 1
        self.note()

    def condemn(self) -> None:
        """The source hears that it was declared dead: it goes on in a new life."""
        verdict = News(gone=(Gone(self.source.me, self.source.record.life, False),))
        self._do(self.source, self.source.receive(self.observer.me, verdict, Micros(self.now)))
        self.note()

    def wake(self, milliseconds: int) -> None:
        self.now += milliseconds * MILLISECOND
        for machine in (self.source, self.observer):
            self._do(machine, machine.wake(Micros(self.now)))

    def carry(self, place: int, keep: bool = False) -> None:
        if self.there:
            place %= len(self.there)
            message = self.there[place] if keep else self.there.pop(place)
            self._do(
                self.observer, self.observer.receive(self.source.me, message, Micros(self.now))
            )

    def repeat(self, place: int) -> None:
        self.carry(place, keep=True)

    def lose(self, place: int) -> None:
        if self.there:
            del self.there[place % len(self.there)]

    def answer(self, place: int) -> None:
        if self.back:
            message = self.back.pop(place % len(self.back))
            self._do(self.source, self.source.receive(self.observer.me, message, Micros(self.now)))

    def finish(self) -> None:
        """Nothing is lost any more: the observer ends with what the source has."""
        for _ in range(12):
            self.wake(500)
            while self.there or self.back:
                self.carry(0), self.answer(0)
        assert self.observer.view.members[self.source.me].record == self.source.record


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["diff", "whole"]), st.lists(STEPS, max_size=40))
def test_a_hidden_leave_always_shows_and_nothing_else_does(mode: str, steps: list[tuple]) -> None:
    pair = Pair(mode)
    for name, *arguments in steps:
        getattr(pair, name)(*arguments)
    pair.finish()


def test_the_plain_case() -> None:
    """Left and wanted again between two rounds: the state is as before, but for the counter."""
    for mode in ("diff", "whole"):
        pair = Pair(mode)
        pair.subscribe("a", 0), pair.subscribe("b", 0)
        pair.finish()
        before = pair.changes
        pair.unsubscribe("a", 0), pair.subscribe("a", 0)
        pair.finish()
        assert pair.changes == before + 1


def test_a_leave_in_a_new_life_shows_whatever_the_counter_was_before() -> None:
    pair = Pair("diff")
    pair.subscribe("b", 0), pair.unsubscribe("b", 0)
    # With a counter of 1.
    pair.subscribe("a", 0)
    pair.wake(400), pair.condemn()
    pair.finish()
    # The counter is the same again now.
    pair.unsubscribe("a", 0), pair.subscribe("a", 0)
    changes = pair.changes
    pair.finish()
    assert pair.changes == changes + 1


def test_a_leave_shows_even_if_every_message_about_it_is_lost() -> None:
    pair = Pair("diff")
    pair.subscribe("a", 0)
    pair.finish()
    pair.unsubscribe("a", 0)
    pair.wake(1), pair.there.clear()
    pair.subscribe("a", 0)
    pair.wake(1), pair.there.clear()
    pair.subscribe("b", 0)
    changes = pair.changes
    pair.finish()
    assert pair.changes == changes + 1
