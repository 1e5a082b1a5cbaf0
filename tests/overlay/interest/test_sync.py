"""Making views equal: the digest comes first, the differences follow in bounded messages, and
deaths stay deaths.
"""

from __future__ import annotations

from random import Random

import pytest

from gossamer.machine import SECOND, LinkState, Micros, Peer, Send
from gossamer.node.wire import FRAME_MAX
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import (
    NEWS_BYTES,
    AskRecords,
    Beat,
    Diff,
    Flip,
    Gone,
    Greet,
    News,
    OfferRecords,
)
from gossamer.overlay.interest.record import TOPICS_MAX, Known, Record, pack_entries, read_entries
from gossamer.overlay.interest.sync import ASKED_MAX
from gossamer.overlay.interest.view import TOMBS_MAX, View
from worldnet import Net, befriend, sends, single, through_codec, told


def members(count: int, topics: int = 3) -> list[Record]:
    rng = Random(count)
    made = []
    for number in range(count):
        packed = b"".join(sorted(rng.randbytes(8) for _ in range(topics)))
        made.append(
            Record(rng.getrandbits(64), 256, 7, f"host-{number}:7400", packed, bytes(4 * topics))
        )
    return made


class Two:
    """Two machines that hold given views and nothing else between them than one link."""

    def __init__(self, first: list[Record], second: list[Record]) -> None:
        self.machines = single(1), single(2)
        self.now = 3 * SECOND
        self.sent: list[tuple[str, int]] = []
        for machine, records in zip(self.machines, (first, second), strict=True):
            for record in records:
                machine.view.put(Known(record), Micros(0))
            machine.wake(Micros(0))
            machine._gossip.round([])
        queue = [
            (machine, machine.link(other.me, LinkState.UP, Micros(self.now)))
            for machine, other in self._both()
        ]
        self.carry(queue)

    def _both(self) -> tuple[tuple[Interest, Interest], ...]:
        one, two = self.machines
        return (one, two), (two, one)

    def carry(self, queue: list) -> None:
        """All that is sent between the two, until nothing more is."""
        while queue:
            machine, effects = queue.pop(0)
            other = self.machines[machine is self.machines[0]]
            for effect in effects:
                if isinstance(effect, Send) and other.me in effect.to:
                    message, size = through_codec(effect.message)
                    self.sent.append((type(message).__name__, size))
                    queue.append((other, other.receive(machine.me, message, Micros(self.now))))

    @property
    def is_equal(self) -> bool:
        one, two = self.machines
        return one.view.digest == two.view.digest


def test_equal_views_exchange_nothing_but_greetings_and_digests() -> None:
    same = members(1000)
    two = Two(same, same)
    for machine in two.machines:
        for record in (two.machines[0].record, two.machines[1].record):
            if record.peer != machine.me:
                two.carry(
                    [
                        (
                            machine,
                            machine.receive(
                                Peer(3 - machine.me), News(records=(record,)), Micros(two.now)
                            ),
                        )
                    ]
                )
    two.sent.clear()
    for machine, other in two._both():
        two.carry([(other, [Send((machine.me,), Beat(other.view.digest))])])
    assert two.is_equal
    assert [name for name, _ in two.sent] == ["Beat", "Beat"]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("kind", ["missing", "older"])
def test_a_difference_of_one_record_among_a_thousand_costs_a_few_hundred_bytes(
    side: int, kind: str
) -> None:
    same = members(1000)
    two = Two(same, same)
    one = two.machines[side]
    extra = (
        Record(99, 256, 1, "new:1")
        if kind == "missing"
        else Record(same[500].peer, 256, 8, "new:1")
    )
    one.view.put(Known(extra), Micros(0))
    two.sent.clear()
    two.now += SECOND
    for machine, other in two._both():
        two.carry([(other, [Send((machine.me,), Beat(other.view.digest))])])
    assert two.is_equal
    assert sum(size for _, size in two.sent) < 1200, two.sent
    assert two.machines[1 - side].view.members[Peer(extra.peer)].record == extra


def test_a_fabric_at_peace_sends_digests_only() -> None:
    net = Net(12, k=4)
    for number in range(12):
        net.subscribe(number, "all", f"t{number}")
    net.settle()
    net.run(5)
    net.bytes.clear()
    net.run(20)
    assert set(net.bytes) == {"Beat"}


def test_a_newcomer_gets_everything_in_bounded_messages() -> None:
    """Large records are among small ones.

    A message is closed at its size, or holds one record that is larger.
    """
    many = members(1500) + members(30, 8000)
    two = Two(many, [])
    assert {record.peer for record in many} <= two.machines[1].view.members.keys()
    assert two.is_equal
    assert max(size for _, size in two.sent) < NEWS_BYTES + 12 * 8000 + 1024
    assert NEWS_BYTES + 12 * TOPICS_MAX + 1024 < FRAME_MAX
    whole = sum(size for name, size in two.sent if name == "News")
    # Once.
    assert whole < 1.3 * sum(through_codec(News(records=(record,)))[1] for record in many)


@pytest.mark.parametrize("count", [2, 3, 17, 300])
def test_any_two_views_become_equal(count: int) -> None:
    rng = Random(count)
    first, second = [], []
    for record in members(count):
        newer = Record(record.peer, record.life, record.version + 1, "moved")
        first.append(rng.choice([record, newer]))
        second.append(rng.choice([record, newer]))
    two = Two(first[: count * 2 // 3], second[count // 3 :])
    # Signs of life come until one end notices.
    for _ in range(12):
        two.now += SECOND
        for machine, other in two._both():
            two.carry([(other, [Send((machine.me,), Beat(other.view.digest))])])
    assert two.is_equal
    for record in (*first[: count * 2 // 3], *second[count // 3 :]):
        assert two.machines[0].view.members[Peer(record.peer)].record.version >= record.version


def test_what_the_exchange_brings_goes_on_as_news_and_what_was_known_does_not() -> None:
    """Paragraph 53: "Q will only propagate news"."""
    net = Net(9, k=2, start=False)
    for number in range(8):
        net.start(number)
    net.settle()
    net.run(1)
    net.sent = []
    net.start(8)
    net.settle()
    newcomer = [message for _, place, _, message, _ in net.sent if place.number == 8]
    told_by_it = {
        r.peer for message in newcomer if isinstance(message, News) for r in message.records
    }
    # Of others it says nothing, because all knew.
    assert told_by_it <= {net.peer(8)}
    others = [
        message
        for _, place, _, message, _ in net.sent
        if place.number != 8 and isinstance(message, News)
    ]
    whole = [message for message in others if len(message.records) > 1]
    # The state went to the newcomer only.
    assert len(whole) <= len(net[8].links) + 2


def test_a_newcomer_is_sent_everything_at_once_by_whoever_it_greets() -> None:
    # In whichever order the two are.
    for me in (1, 100):
        node = single(me)
        known = [befriend(node, 11), befriend(node, 12)]
        node.link(Peer(50), LinkState.UP, Micros(1))
        made = sends(node.receive(Peer(50), Greet(Record(50, 256, 1), 0, 1, True), Micros(1)))
        assert [
            record for message in made if isinstance(message, News) for record in message.records
        ] == [
            node.record,
            *known,
        ]


def test_late_news_of_a_dead_life_does_not_bring_it_back() -> None:
    node = single(1)
    befriend(node, 11), befriend(node, 12)
    late = Record(77, 512, 3, "there")
    node.receive(Peer(11), News(records=(late,)), Micros(1))
    [change] = told(node.receive(Peer(12), News(gone=(Gone(77, 512, True),)), Micros(2)))
    assert (change.reason, change.after) == ("left", None)
    for old in (
        News(records=(late,)),
        News(records=(Record(77, 512, 9, "there"),)),
        News(records=(Record(77, 300, 99),)),
        Flip(77, 512, 4, 1, 0),
        News(diffs=(Diff(77, 400, 5, 4, b""),)),
    ):
        effects = node.receive(Peer(11), old, Micros(3))
        # The node that brings it should know.
        assert sends(effects) == [News(gone=(Gone(77, 512, True),))]
        assert told(effects) == []
    [change] = told(node.receive(Peer(11), News(records=(Record(77, 513, 1, "there"),)), Micros(4)))
    # A new life does so.
    assert change.reason == "joined"
    assert Peer(77) not in node.view.tombs


def test_a_death_that_is_heard_before_the_life_counts() -> None:
    node = single(1)
    befriend(node, 11)
    node.receive(Peer(11), News(gone=(Gone(77, 512, False),)), Micros(1))
    assert told(node.receive(Peer(11), News(records=(Record(77, 512, 3),)), Micros(2))) == []
    assert told(node.receive(Peer(11), News(records=(Record(77, 768, 1),)), Micros(3))) != []


def test_whoever_takes_a_living_node_for_dead_is_told_of_its_new_life() -> None:
    node = single(1)
    befriend(node, 11)
    record = Record(77, 768, 1)
    node.receive(Peer(11), News(records=(record,)), Micros(1))
    assert sends(node.receive(Peer(11), News(gone=(Gone(77, 512, False),)), Micros(2))) == [
        News(records=(record,))
    ]


def test_a_death_is_forgotten_after_its_time_and_their_number_is_bounded() -> None:
    view = View(3, members_max=10, pairs_max=10)
    for peer in range(TOMBS_MAX + 100):
        view.remove(Gone(peer, 256, False), Micros(peer))
    assert len(view.tombs) == TOMBS_MAX
    view.forget(Micros(TOMBS_MAX + 90))
    assert len(view.tombs) == 10


def test_the_dead_are_told_of_in_the_exchange() -> None:
    """One end has heard the verdict, and the other has not.

    The digest shows it, and the member goes at both.
    """
    net = Net(6, k=2)
    net.settle()
    number = 5
    net.crash(number)
    net.until(
        lambda: all(net.peer(number) not in machine.view.members for machine in net.machines), 20
    )
    net[0].view.tombs[net.peer(number)].gone = Gone(net.peer(number), 2**32 - 1, False)
    net[1].view.put(Known(Record(net.peer(number), 2**31, 1)), Micros(net.now))
    net.until(
        lambda: all(net.peer(number) not in machine.view.members for machine in net.machines), 20
    )


def test_a_record_asked_for_many_times_in_one_message_is_sent_once() -> None:
    node = single(1)
    befriend(node, 11)
    node.receive(Peer(11), News(records=(Record(77, 256, 2),)), Micros(1))
    answers = sends(node.receive(Peer(11), AskRecords((77).to_bytes(8, "big") * 4096), Micros(2)))
    assert sum(len(message.records) for message in answers) == 1


def test_what_is_asked_for_is_bounded() -> None:
    """A neighbour that tells of a hundred thousand peers nobody has heard of."""
    node = single(1)
    befriend(node, 11)
    for peer in range(1000, 1000 + ASKED_MAX + 5000):
        node.receive(Peer(11), Flip(peer, 256, 2, 1, 0), Micros(1))
    assert len(node._sync._asked) <= ASKED_MAX


def test_long_records_are_offered_and_sent_to_those_who_ask() -> None:
    node = single(1, config={"suspect_after": 1000 * SECOND})
    befriend(node, 11), befriend(node, 12)
    node._gossip.round([])
    node.wake(Micros(0))
    long = members(3, 100)
    node.receive(Peer(11), News(records=tuple(long)), Micros(SECOND))
    made = sends(node.wake(node.deadline))
    [offer] = [message for message in made if isinstance(message, OfferRecords)]
    assert read_entries(offer.entries) == {record.peer: Known(record).order for record in long}
    assert not [message for message in made if isinstance(message, News)]
    [answer] = sends(
        node.receive(Peer(12), AskRecords(long[1].peer.to_bytes(8, "big")), Micros(SECOND + 1))
    )
    assert answer == News(records=(long[1],))


def test_what_is_offered_is_asked_for_if_it_is_news() -> None:
    node = single(1)
    known = befriend(node, 11)
    node.receive(Peer(11), News(gone=(Gone(77, 512, False),)), Micros(1))
    order = Known(known).order
    offered = {11: order, 12: (256, 1, 0), 77: (512, 9, 0), 78: (512, 9, 0)}
    [ask] = sends(
        node.receive(
            Peer(11),
            OfferRecords(pack_entries({Peer(peer): o for peer, o in offered.items()})),
            Micros(2),
        )
    )
    assert ask == AskRecords((12).to_bytes(8, "big") + (78).to_bytes(8, "big"))
    newer = OfferRecords(
        pack_entries({Peer(11): (order[0], order[1] + 1, 0), Peer(12): (256, 1, 0)})
    )
    [ask] = sends(node.receive(Peer(11), newer, Micros(3)))
    # 12 has been asked for just now.
    assert ask == AskRecords((11).to_bytes(8, "big"))


def test_one_end_starts_the_exchange_and_the_other_if_it_does_not() -> None:
    small, great = single(1), single(2)
    for machine, other in ((small, 2), (great, 1)):
        befriend(machine, other)
    started = []
    for machine, other in ((small, 2), (great, 1)):
        for beats in range(1, 9):
            if sends(machine.receive(Peer(other), Beat(12345), Micros(beats * SECOND))):
                started.append(beats)
                break
    assert started == [1, 5]


def test_a_greeting_of_the_same_view_starts_nothing() -> None:
    node = single(1)
    record = befriend(node, 11)
    node.link(Peer(11), LinkState.DOWN, Micros(5))
    node.link(Peer(11), LinkState.UP, Micros(6))
    assert sends(node.receive(Peer(11), Greet(record, node.view.digest, 2, True), Micros(7))) == []
