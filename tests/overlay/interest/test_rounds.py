"""The start of a round of gossip, its messages and its receivers.

Each trigger is tested alone, and turned off.
"""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.machine import MILLISECOND, SECOND, Deliver, LinkState, Micros, Peer, Send
from gossamer.node.wire import FRAME_MAX
from gossamer.overlay.interest.config import InterestConfig, InterestConfigError
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.gossip import pack
from gossamer.overlay.interest.messages import (
    ITEMS_MAX,
    NEWS_BYTES,
    Diff,
    Flip,
    Flips,
    Gone,
    News,
    Suspicion,
)
from gossamer.overlay.interest.record import Record, topic_hash
from worldnet import Net, befriend, sends, single, through_codec, told

ONE, TWO = Peer(11), Peer(12)
NEWS = (Flip, Flips, News)


def machine(**config: Any) -> Interest:
    """A node with two neighbours, patient with them, and with no news pending."""
    made = single(1, config={"suspect_after": 1000 * SECOND, **config})
    befriend(made, ONE), befriend(made, TWO)
    made._gossip.round([])
    made.wake(Micros(2 * SECOND))
    made.wake(Micros(4 * SECOND))
    return made


def news(effects: list) -> list:
    return [message for message in sends(effects) if isinstance(message, NEWS)]


def first_news(node: Interest, now: int, seconds: float) -> tuple[int, list] | None:
    """The time of the next round, and its messages. None if there is none in this time."""
    stop = now + int(seconds * SECOND)
    while (now := max(now, node.deadline)) <= stop:
        made = news(node.wake(Micros(now)))
        if made:
            return now, made
    return None


START = 4 * SECOND + 1


def test_threshold_alone() -> None:
    """Claim 3: the round starts when enough has changed, and carries all of it."""
    node = machine(threshold=3, coalesce=0, period=0)
    node.subscribe("a", Micros(START)), node.subscribe("b", Micros(START))
    assert first_news(node, START, 5) is None
    node.subscribe("c", Micros(START + 5 * SECOND + 1))
    at, [message] = first_news(node, START + 5 * SECOND + 1, 5) or (0, [])
    assert at == START + 5 * SECOND + 1
    assert isinstance(message, News)
    assert len(message.diffs[0].changes) == 3 * 12


def test_threshold_alone_passes_on_what_arrives() -> None:
    node = machine(threshold=2, coalesce=0, period=0)
    node.receive(ONE, Flip(TWO, 256, 2, 5, 0), Micros(START))
    assert first_news(node, START, 3) is None
    node.receive(ONE, Flip(ONE, 256, 2, 6, 0), Micros(START + 4 * SECOND))
    at, messages = first_news(node, START + 4 * SECOND, 3) or (0, [])
    assert at == START + 4 * SECOND
    # It goes to TWO. ONE has said both itself.
    assert messages == [Flip(ONE, 256, 2, 6, 0)]


def test_coalesce_alone_passes_on_what_arrives() -> None:
    """Claim 2: news goes on a moment after it has come, with what came in that moment."""
    node = machine(threshold=0, coalesce=10 * MILLISECOND, period=0)
    befriend(node, 13, START)
    # News of the newcomer.
    assert first_news(node, START, 0.1) is not None
    start = START + SECOND
    node.receive(ONE, Flip(TWO, 256, 2, 5, 0), Micros(start))
    node.receive(ONE, Flip(ONE, 256, 2, 6, 0), Micros(start))
    at, [*messages] = first_news(node, start, 1) or (0, [])
    assert start < at <= start + 20 * MILLISECOND + 1
    assert Flips in map(type, messages)


def test_coalesce_alone_sends_what_began_here() -> None:
    """Otherwise all nodes would wait for one of them to begin."""
    node = machine(threshold=0, coalesce=10 * MILLISECOND, period=0)
    node.subscribe("a", Micros(START))
    at, [message] = first_news(node, START, 1) or (0, [None])
    assert isinstance(message, Flip)
    assert at <= START + 20 * MILLISECOND + 1


def test_period_alone() -> None:
    node = machine(threshold=0, coalesce=0, period=2 * SECOND)
    node.subscribe("a", Micros(START))
    at, first = first_news(node, START, 3) or (0, [])
    assert len(first) == 1
    node.subscribe("b", Micros(at + 1)), node.subscribe("c", Micros(at + SECOND))
    node.receive(ONE, Flip(TWO, 256, 2, 5, 0), Micros(at + SECOND))
    later, messages = first_news(node, at + SECOND, 3) or (0, [])
    assert later == at + 2 * SECOND
    assert len(messages) >= 1
    # Nothing is pending, and nothing is sent.
    assert first_news(node, later, 5) is None


@pytest.mark.parametrize("off", ["threshold", "coalesce", "period"])
def test_each_can_be_off_and_news_still_reaches_all(off: str) -> None:
    net = Net(8, k=3, **{off: 0})
    net.settle()
    net.subscribe(3, "a")
    net.until(lambda: all(net.knows(n, 3) for n in range(8)), 3)


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({"threshold": 1, "coalesce": 0, "period": 0}, 0.1),
        ({"threshold": 0, "coalesce": 3000, "period": 0}, 0.1),
        ({"threshold": 0, "coalesce": 0, "period": 100_000}, 1.0),
    ],
)
def test_each_alone_reaches_all(config: dict[str, int], seconds: float) -> None:
    """And by gossip: the exchange of digests, which would repair it too, begins later."""
    net = Net(10, k=3, **config)
    net.settle()
    net.run(2.0)
    net.bytes.clear()
    net.subscribe(3, "a")
    net.until(lambda: all(net.knows(n, 3) for n in range(10)), seconds)
    assert not net.bytes["AskRecords"]


def test_all_off_is_an_error() -> None:
    with pytest.raises(InterestConfigError, match="no gossip round would ever start"):
        InterestConfig(threshold=0, coalesce=Micros(0), period=Micros(0))


@pytest.mark.parametrize(
    "bad",
    [
        {"k": 0},
        {"k": 33},
        {"news": "some"},
        {"threshold": -1},
        {"coalesce": -1},
        {"period": -5},
        {"beat": 0},
        {"settle": 0},
    ],
)
def test_parameters_that_cannot_work_are_typed_errors(bad: dict[str, Any]) -> None:
    with pytest.raises(InterestConfigError):
        InterestConfig(**bad)


def test_a_round_sends_to_each_link_what_it_lacks_and_no_more() -> None:
    node = machine(coalesce=10 * MILLISECOND)
    node.receive(ONE, Flip(TWO, 256, 2, 5, 0), Micros(START))
    node.receive(TWO, Flip(ONE, 256, 2, 6, 0), Micros(START))
    # Each has said it, or it is about itself.
    assert first_news(node, START, 0.5) is None
    befriend(node, 13, START + SECOND)
    first_news(node, START + SECOND, 0.5)
    now = Micros(START + 2 * SECOND)
    node.receive(ONE, Flip(ONE, 256, 3, 7, 0), now)
    # TWO knows it as well.
    node.receive(TWO, Flip(ONE, 256, 3, 7, 0), now)
    effects = [
        e
        for e in node.wake(Micros(now + 20 * MILLISECOND + 1))
        if isinstance(e, Send) and isinstance(e.message, NEWS)
    ]
    assert effects == [Send((Peer(13),), Flip(ONE, 256, 3, 7, 0))]


def test_old_news_is_not_passed_on() -> None:
    """Paragraph 53: "will only propagate news"."""
    node = machine()
    record = Record(77, 256, 9, "")
    node.receive(ONE, News(records=(record,)), Micros(START))
    assert first_news(node, START, 0.1) is not None
    for old in (
        News(records=(record,)),
        News(records=(Record(77, 256, 8, ""),)),
        Flip(77, 256, 9, 1, 0),
        Flip(77, 256, 3, 1, 0),
    ):
        assert told(node.receive(ONE, old, Micros(START + SECOND))) == []
        assert first_news(node, START + SECOND, 0.1) is None


def test_whole_mode_sends_the_whole_interest_every_time() -> None:
    """The seed's pseudo-code as it is written; it stays selectable."""
    node = machine(news="whole")
    for topic in "abc":
        node.subscribe(topic, Micros(START))
        _, [message] = first_news(node, START, 0.1) or (0, [None])
        assert message == News(records=(node.record,))
    assert node.record.count == 3


def test_a_busy_node_waits_longer_and_sends_less_often() -> None:
    rounds = {}
    for rate in (5, 200):
        node = machine(busy=50)
        node.counters.clear()
        for change in range(rate * 4):
            now = START + change * SECOND // rate
            while node.deadline <= now:
                node.wake(node.deadline if node.deadline > START else Micros(now))
            node.receive(ONE, Flip(ONE, 256, 2 + change, change, 0), Micros(now))
        rounds[rate] = node.counters["rounds"] / (rate * 4)
    # There is a round for each change.
    assert rounds[5] > 0.9
    assert rounds[200] < 0.6


def test_messages_close_at_their_size_or_after_one_record() -> None:
    big = Record(1, 256, 1, "x" * 255, bytes(8 * 65_536), bytes(4 * 65_536))
    small = [
        Record(peer, 256, 1, "address", topic_hash(f"{peer}"), bytes(4)) for peer in range(2, 9_000)
    ]
    gone = [Gone(peer, 256, False) for peer in range(3 * ITEMS_MAX)]
    accused = [Suspicion(peer, 256, 1, 5, False) for peer in range(ITEMS_MAX + 1)]
    messages = pack([big, big, *small, *gone, *accused, big])
    sizes = [through_codec(message)[1] for message in messages]
    assert max(sizes) <= NEWS_BYTES + 12 * 65_536 + 1024 < FRAME_MAX
    assert all(
        size <= NEWS_BYTES
        for message, size in zip(messages, sizes, strict=True)
        if big not in message.records
    )
    assert [record for message in messages for record in message.records] == [big, big, *small, big]
    assert [one for message in messages for one in message.gone] == gone
    assert [one for message in messages for one in message.suspicions] == accused


def test_many_changes_of_many_nodes_arrive_whole() -> None:
    """Between two rounds, more than a message may hold."""
    node, other = machine(threshold=0, coalesce=0, period=SECOND), single(2)
    befriend(other, 1)
    for peer in range(100, 100 + ITEMS_MAX + 50):
        node.receive(ONE, News(records=(Record(peer, 256, 1),)), Micros(START))
    _, messages = first_news(node, START, 3) or (0, [])
    for message in messages:
        other.receive(Peer(1), message, Micros(START))
    assert all(Peer(peer) in other.view.members for peer in range(100, 100 + ITEMS_MAX + 50))


def test_commands_wait_for_the_wake_and_move_the_deadline() -> None:
    node = machine()
    assert node.deadline > START
    node.subscribe("a", Micros(START))
    assert node.deadline <= START
    effects = node.wake(Micros(START))
    # The owner hears of itself, too.
    assert [type(effect) for effect in effects if isinstance(effect, Deliver)] == [Deliver]
    assert isinstance(news(effects)[0], Flip)
    assert node.deadline > START


def test_nothing_is_sent_to_a_link_that_has_not_greeted() -> None:
    node = machine()
    node.link(Peer(13), LinkState.UP, Micros(START))
    node.subscribe("a", Micros(START))
    assert {
        to for effect in node.wake(Micros(START)) if isinstance(effect, Send) for to in effect.to
    } == {ONE, TWO}


def test_a_change_that_bases_on_what_is_not_here_is_asked_for() -> None:
    node = machine()
    [ask] = sends(node.receive(ONE, News(diffs=(Diff(TWO, 256, 9, 5, b""),)), Micros(START)))
    assert ask.peers == TWO.to_bytes(8, "big")
    # Not twice at a time.
    assert (
        sends(node.receive(ONE, News(diffs=(Diff(TWO, 256, 9, 5, b""),)), Micros(START + 1000)))
        == []
    )
    assert (
        len(
            sends(
                node.receive(
                    ONE, News(diffs=(Diff(TWO, 256, 9, 5, b""),)), Micros(START + 2 * SECOND)
                )
            )
        )
        == 1
    )
