"""Names travel as hashes: collisions lose nobody, names can be asked for, and no lie is
believed.
"""

from __future__ import annotations

from gossamer.machine import Micros, Peer
from gossamer.overlay.interest.messages import NameAsk, NameTell
from gossamer.overlay.interest.names import ASKED_MAX, Names
from gossamer.overlay.interest.record import topic_hash
from worldnet import Net, befriend, sends, single


def two_bits(name: str) -> bytes:
    """A hash that collides all the time."""
    return (topic_hash(name)[0] & 3).to_bytes(8, "big")


def same(_: str) -> bytes:
    return b"collides"


def test_collisions_lose_no_interested_node() -> None:
    """A node that wants a topic is always among those said to want it.

    Other nodes may be as well, at the price of a needless event.
    """
    net = Net(8, k=3, options={"hash": two_bits})
    wanted: dict[int, set[str]] = {number: set() for number in range(8)}
    net.settle()
    rng = net.rng
    for _ in range(300):
        number, topic = rng.randrange(8), f"topic-{rng.randrange(12)}"
        if topic in wanted[number]:
            net.unsubscribe(number, topic)
        else:
            net.subscribe(number, topic)
        wanted[number] ^= {topic}
        net.run(0.01)
    net.settle()
    for topic in {topic for topics in wanted.values() for topic in topics}:
        interested = {net.peer(number) for number, topics in wanted.items() if topic in topics}
        for machine in net.machines:
            assert interested <= machine.interested(topic).keys()
    for number, topics in wanted.items():
        assert set(net[number].record.pairs()) == {two_bits(topic) for topic in topics}


def test_two_names_with_one_hash_at_one_node_are_left_when_both_are() -> None:
    node = single(1, hash=same)
    node.subscribe("a", Micros(0)), node.subscribe("b", Micros(0))
    assert node.record.count == 1
    node.unsubscribe("a", Micros(0))
    assert node.interested("b") == {1: bytes(4)}
    node.unsubscribe("b", Micros(0))
    assert node.record.count == 0


def test_what_was_not_wanted_cannot_be_left_in_anothers_name() -> None:
    """Leaving a topic that was never wanted does nothing, even if another one has its hash."""
    node = single(1, hash=same)
    node.subscribe("a", Micros(0))
    node.unsubscribe("b", Micros(0)), node.unsubscribe("b", Micros(0), source="service")
    assert node.interested("a") == {1: bytes(4)}
    node.subscribe("b", Micros(0))
    node.unsubscribe("b", Micros(0)), node.unsubscribe("b", Micros(0))
    assert node.interested("a") == {1: bytes(4)}
    node.drop_source("user", Micros(0))
    assert node.record.count == 0


def test_names_can_be_asked_for() -> None:
    net = Net(6, k=2)
    net.settle()
    net.subscribe(4, "weather", "prices")
    net.settle()
    topics = list(net[0].view.topics())
    assert net[0].names.unknown(topics) == topics
    assert {net[0].names.show(topic)[0] for topic in topics} == {"#"}

    def all_known() -> bool:
        return not net[0].names.unknown(topics)

    # Nodes that know it are dialled first if they are not linked.
    for _ in range(4):
        net.command(0, "ask_names", topics)
        net.run(0.2)
    assert all_known()
    assert {net[0].names.show(topic) for topic in topics} == {"weather", "prices"}


def test_a_name_that_is_no_answer_changes_nothing() -> None:
    node = single(1)
    befriend(node, 11)
    right = topic_hash("right")
    node.receive(Peer(11), NameTell(("right", "wrong")), Micros(1))
    # Nobody has asked.
    assert node.names.get(right) is None
    node.names.question(Peer(11), [right])
    node.receive(Peer(11), NameTell(("wrong", "also wrong")), Micros(2))
    assert node.names.get(right) is None
    assert node.names.get(topic_hash("wrong")) is None
    node.receive(Peer(11), NameTell(("wrong", "right")), Micros(3))
    assert node.names.get(right) == "right"


def test_the_first_of_two_colliding_names_stays() -> None:
    names = Names(same)
    names.learn("first"), names.learn("second")
    assert names.show(b"collides") == "first"


def test_only_names_that_are_known_and_can_travel_are_told() -> None:
    node = single(1)
    befriend(node, 11)
    node.subscribe("known", Micros(0)), node.subscribe("x" * 300, Micros(0))
    topics = b"".join(topic_hash(name) for name in ("known", "x" * 300, "unknown"))
    assert sends(node.receive(Peer(11), NameAsk(topics), Micros(1))) == [NameTell(("known",))]
    assert sends(node.receive(Peer(11), NameAsk(topic_hash("unknown")), Micros(1))) == []


def test_questions_are_cut_into_messages_and_remembered_within_bounds() -> None:
    names = Names()
    topics = [number.to_bytes(8, "big") for number in range(ASKED_MAX + 1000)]
    messages = sends(names.question(Peer(1), topics))
    assert b"".join(message.topics for message in messages) == b"".join(topics)
    assert len(names._asked) <= ASKED_MAX
