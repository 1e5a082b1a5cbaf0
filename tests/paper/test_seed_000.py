"""Seed 000 (US 2012/0016979 A1): one test for each claim from 1 to 7, and others.

They test the pseudo-code of figure 4, figure 2, and the promises of the text.

Claims 8 to 20 say the same of a system and of a program. Paragraphs are those of the publication.
"""

from __future__ import annotations

import math
from statistics import mean

import pytest

from gossamer.lab.connectivity import diameter, vertex_connectivity
from gossamer.machine import SECOND, Micros, Peer
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import (
    AskRecords,
    Beat,
    Buckets,
    Diff,
    Flip,
    Flips,
    Gone,
    Have,
    Lone,
    News,
)
from gossamer.overlay.interest.record import Record, ViewChange, read_stamp, topic_hash
from worldnet import Net, Place, befriend, sends, single, through_codec, told

NEWS = (Flip, Flips, News)
# For neighbours that exist only in a test.
AT_PEACE = {"suspect_after": 1000 * SECOND}


def counter(record: Record, topic: str) -> int | None:
    stamp = record.stamp(topic_hash(topic))
    return None if stamp is None else read_stamp(stamp)[0]


def settled(nodes: int, k: int, **config: object) -> Net:
    net = Net(nodes, k=k, **config)  # type: ignore[arg-type]
    net.settle()
    net.run(3)
    net.bytes.clear()
    net.count.clear()
    return net


def all_know(net: Net, number: int) -> bool:
    return all(net.knows(observer, number) for observer in range(len(net.places)))


# ------------------------------------------------------------ claims


def test_claim_1_updates_are_differences_that_travel_over_a_k_connected_overlay() -> None:
    """Claim 1; paragraphs 9, 29, 39.

    Connect, monitor, determine, generate differences, propagate to the K neighbours.
    """
    net = settled(12, k=4)
    assert vertex_connectivity(net.adjacency()) >= 4
    for number in range(12):
        net.subscribe(number, *[f"topic-{topic}" for topic in range(number, number + 20)])
    net.settle()
    net.run(3)
    net.sent = []
    net.unsubscribe(5, "topic-7"), net.subscribe(5, "fresh")
    net.until(lambda: all_know(net, 5), 1)
    news = [
        (place, to, message) for _, place, to, message, _ in net.sent if isinstance(message, NEWS)
    ]
    for place, to, message in news:
        # Over the overlay and nowhere else.
        assert to in net[place.number].neighbours
        [diff] = message.diffs
        assert isinstance(diff, Diff)
        assert {diff.changes[at : at + 8] for at in range(0, len(diff.changes), 12)} == {
            topic_hash("topic-7"),
            topic_hash("fresh"),
        }
    first = {to for place, to, _ in news if place.number == 5}
    assert first == set(net[5].neighbours)
    for machine in net.machines:
        assert net.peer(5) in machine.interested("fresh")
        assert net.peer(5) not in machine.interested("topic-7")


def test_claim_2_news_that_arrives_is_sent_on_to_the_neighbours() -> None:
    """Claim 2; paragraphs 30, 31, 52.

    In response to an update from one neighbour, an update goes to the others.
    """
    node = single(1, config={"k": 4, **AT_PEACE})
    for peer in (11, 12, 13, 14):
        befriend(node, peer)
    node._gossip.round([])
    node.wake(Micros(SECOND))
    change = Flip(12, 256, 2, 99, 0)
    assert [c.peer for c in told(node.receive(Peer(11), change, Micros(SECOND + 1)))] == [12]
    assert node.deadline <= SECOND + 1 + 2 * node.config.coalesce + 1
    effects = node.wake(node.deadline)
    [send] = [effect for effect in effects if getattr(effect, "message", None) == change]
    # Neither to the sender of the news, nor to the node that it is about.
    assert set(send.to) == {13, 14}


def test_claim_3_a_threshold_of_changes_starts_a_round() -> None:
    """Claim 3; paragraphs 33, 41.

    "Initiated whenever the subscriptions and the un-subscriptions exceed a specified threshold".
    """
    # No other trigger and no repair.
    net = settled(8, k=3, threshold=4, coalesce=0, period=0, beat=1000 * SECOND)
    for machine in net.machines:
        # These changes are left over from the start.
        machine._gossip.round([])
    net.sent = []
    net.subscribe(2, "a", "b")
    net.unsubscribe(2, "a")
    net.run(5)
    assert not net.sent
    net.subscribe(2, "c")
    net.run(0.002)
    assert {to for _, _, to, _, _ in net.sent} == set(net[2].neighbours)
    for _, _, _, message, _ in net.sent:
        assert isinstance(message, News)
        # a, b, c: four changes of three topics.
        assert len(message.diffs[0].changes) == 3 * 12
    assert all(
        net.knows(place.number, 2) for place in net.places if place.peer in net[2].neighbours
    )


def test_claim_4_names_travel_as_hashes_and_messages_are_smaller() -> None:
    """Claim 4; paragraphs 34, 42.

    "Stored as hashed values to reduce size of statuses update messages".
    """
    names = [
        f"market.equities.{venue}.level-2.depth-of-book.{n}"
        for venue in ("zurich", "geneva")
        for n in range(50)
    ]
    net = settled(6, k=2)
    net.sent = []
    net.subscribe(1, *names)
    net.until(lambda: all_know(net, 1), 1)
    as_names = sum(len(name.encode()) for name in names)
    for _, _, _, message, size in net.sent:
        if isinstance(message, NEWS):
            assert size < as_names / 3
            frame = b"".join(diff.changes for diff in message.diffs)
            assert not any(name.encode() in frame for name in names)
    assert set(net[4].view.members[net.peer(1)].record.pairs()) == {
        topic_hash(name) for name in names
    }
    assert len(topic_hash("x" * 10_000)) == 8
    # The longest there is.
    assert through_codec(Flip(2**64 - 1, 2**32 - 1, 2**32 - 1, 2**64 - 1, 2**31))[1] <= 42


def test_claim_5_a_hidden_leave_shows_by_the_leave_counter() -> None:
    """Claim 5; paragraphs 35, 43.

    A topic is left and wanted again between two gossip sessions. The data must be retrieved again.
    """
    net = settled(8, k=3, threshold=0, coalesce=0, period=SECOND)
    net.subscribe(2, "kept", "left")
    net.settle()
    net.run(1)
    for place in net.places:
        place.changes.clear()
    before = net[2].record
    net.unsubscribe(2, "left"), net.subscribe(2, "left")
    # "the current status is equal to the previous status"
    assert net[2].record.topics == before.topics
    net.settle()
    for place in net.places:
        if place.number != 2:
            [change] = [change for change in place.changes if change.peer == net.peer(2)]
            assert change.returned == (topic_hash("left"),)
            assert (change.joined, change.left) == ((), ())


@pytest.mark.parametrize("mode", ["diff", "whole"])
def test_claim_6_a_newly_detected_neighbour_is_sent_the_updated_state(mode: str) -> None:
    """Claim 6; paragraphs 37, 44, 54.

    A newcomer that knows nobody gets all of it from the node that it meets.
    """
    net = Net(10, k=3, start=False, news=mode)
    for number in range(9):
        net.start(number)
        net.subscribe(number, f"of-{number}", "all")
    net.settle()
    net.run(3)
    net.start(9)
    net.until(lambda: len(net[9].links) == 1, 3)
    [first] = net[9].links
    net.sent = []
    net.until(lambda: len(net[9].view.members) == 10, 1)
    sent = [
        message
        for _, place, to, message, _ in net.sent
        if place.peer == first and to == net.peer(9) and isinstance(message, News)
    ]
    assert {record.peer for message in sent for record in message.records} >= {
        net.peer(n) for n in range(9)
    } - {first}
    assert all(net.knows(9, number) for number in range(9))


@pytest.mark.parametrize("source", ["user", "service of the overlay", "service outside"])
def test_claim_7_users_and_services_may_subscribe_and_unsubscribe(source: str) -> None:
    """Claim 7; paragraphs 38, 45.

    "User request, overlay network services, and services external to the overlay network".
    """
    net = settled(6, k=2)
    net.subscribe(3, "a", source=source)
    net.until(lambda: all(net.peer(3) in machine.interested("a") for machine in net.machines), 1)
    # The topic is wanted until no source wants it.
    net.subscribe(3, "a", source="another")
    net.unsubscribe(3, "a", source=source)
    net.run(1)
    assert all(net.peer(3) in machine.interested("a") for machine in net.machines)
    net.command(3, "drop_source", "another")
    net.until(lambda: not any(machine.interested("a") for machine in net.machines), 1)


# ------------------------------------------------------------ pseudo-code


def test_paragraph_47_subscribe() -> None:
    """interest(P) := interest(P) U {(T, unSubCount)}; S[P] := (P, ++S[P].ts, interest(P))."""
    node = single(1)
    before = node.record
    node.subscribe("T", Micros(0))
    assert node.record.version == before.version + 1
    assert counter(node.record, "T") == 0
    node.subscribe("U", Micros(0)), node.unsubscribe("U", Micros(0)), node.subscribe("V", Micros(0))
    assert (counter(node.record, "T"), counter(node.record, "V")) == (0, 1)


def test_paragraph_49_unsubscribe() -> None:
    """unSubCounter++; interest(P) := interest(P) \\ {(T, C)}.

    S[P] := (P, ++S[P].ts, interest(P)).
    """
    node = single(1)
    for leaves in range(3):
        node.subscribe("T", Micros(0))
        # The node has one counter, as in the seed.
        assert counter(node.record, "T") == leaves
        version = node.record.version
        node.unsubscribe("T", Micros(0))
        assert node.record.version == version + 1
        assert counter(node.record, "T") is None
    node.unsubscribe("T", Micros(0))
    node.subscribe("U", Micros(0))
    # A topic that is not wanted cannot be left.
    assert counter(node.record, "U") == 3


def test_paragraph_51_a_round_sends_what_has_accumulated_since_the_previous_one() -> None:
    """ "Send all news accumulated since the previous round to all neighbors".

    "Deliver ViewChange incl. each Pi with changed".
    """
    node = single(1, config={"threshold": 0, "coalesce": 0, "period": SECOND, **AT_PEACE})
    befriend(node, 11), befriend(node, 12)
    node._gossip.round([])
    node.wake(Micros(SECOND))
    rounds: list[list[Flip | Flips | News]] = []
    now = SECOND + 1
    for topics in (["a", "b"], [], ["c"]):
        for topic in topics:
            node.subscribe(topic, Micros(now))
        made: list[Flip | Flips | News] = []
        stop = now + SECOND
        while (now := max(now, node.deadline)) <= stop:
            made += [
                message for message in sends(node.wake(Micros(now))) if isinstance(message, NEWS)
            ]
        rounds.append(made)
    [first], second, [third] = rounds
    assert isinstance(first, News)
    assert len(first.diffs[0].changes) == 2 * 12
    assert second == []
    assert isinstance(third, Flip)
    assert third.topic.to_bytes(8, "big") == topic_hash("c")
    changes = told(
        node.receive(Peer(11), Flips((Lone(11, 256, 2, 7, 0), Lone(12, 256, 2, 7, 0))), Micros(now))
    )
    assert [change.peer for change in changes] == [11, 12]


def test_paragraph_53_a_new_neighbour_gets_the_state_and_propagates_only_news() -> None:
    """ "Send the entire State to Q (note: Q will only propagate news!)"."""
    net = Net(9, k=3, start=False)
    for number in range(8):
        net.start(number)
        net.subscribe(number, f"of-{number}")
    net.settle()
    net.run(3)
    net.sent = []
    net.start(8)
    net.settle()
    net.run(2)
    by_newcomer = [message for _, place, _, message, _ in net.sent if place.number == 8]
    assert not [
        m
        for m in by_newcomer
        if isinstance(m, News)
        for record in m.records
        if record.peer != net.peer(8)
    ]
    among_others = [
        record.peer
        for _, place, to, message, _ in net.sent
        if place.number != 8 and to != net.peer(8) and isinstance(message, News)
        for record in message.records
    ]
    # The newcomer's own record went round, because that was news.
    assert set(among_others) == {net.peer(8)}


def test_paragraph_53_the_state_is_updated_based_on_instances() -> None:
    """ "Update S based on instances".

    The later instance of a node's interest stands, whichever arrives later.
    """
    node = single(1)
    befriend(node, 11)
    instances = [
        Record(77, 256, version, "", topic_hash(f"{version}"), bytes(4)) for version in range(1, 5)
    ]
    instances.append(Record(77, 512, 1, "", topic_hash("other life"), bytes(4)))
    best = instances[1]
    node.receive(Peer(11), News(records=(best,)), Micros(0))
    for record in (
        instances[0],
        instances[3],
        instances[2],
        instances[4],
        instances[3],
        instances[4],
    ):
        told_of = told(node.receive(Peer(11), News(records=(record,)), Micros(0)))
        is_later = (record.life, record.version) > (best.life, best.version)
        assert bool(told_of) == is_later
        best = record if is_later else best
        assert node.view.members[Peer(77)].record == best


# ------------------------------------------------------------ figures and promises


def test_figure_2_eight_processes_with_three_neighbours_each() -> None:
    """Figure 2; paragraphs 27, 28: N = 8, K = 3."""
    net = settled(8, k=3)
    net.run(5)
    links = net.adjacency()
    assert len(links) == 8
    assert {len(neighbours) for neighbours in links.values()} == {3}
    assert vertex_connectivity(links) == 3


def hops_of_a_change(net: Net, number: int) -> list[int]:
    """Over how many links a change came to each node that took it."""
    hops = {net.peer(number): 0}

    def look(place: Place) -> None:
        sender = net.world.handling_from
        if place.peer not in hops and sender >= 0 and net.knows(place.number, number):
            hops[place.peer] = hops[net.peer(sender)] + 1

    net.after = look
    net.subscribe(number, f"at-{net.now}")
    net.until(lambda: all_know(net, number), 5)
    net.after = lambda place: None
    assert len(hops) == len(net.places)
    return [count for peer, count in hops.items() if peer != net.peer(number)]


@pytest.mark.parametrize("nodes", [8, 16, 32, 64])
def test_paragraph_33_a_change_is_known_within_log_n_on_average(nodes: int) -> None:
    """ "Within O(log(N)) time on average, with a worst case scenario of O(N)".

    These are hops, and a round makes one hop.
    """
    net = settled(nodes, k=4)
    hops = [hops_of_a_change(net, number) for number in range(0, nodes, nodes // 4)]
    assert mean(mean(some) for some in hops) <= math.log2(nodes)
    assert max(map(max, hops)) <= nodes
    assert diameter(net.adjacency()) <= 2 * math.log2(nodes)


def test_paragraph_33_the_worst_case_is_n_hops() -> None:
    """A ring (K = 2) is the widest overlay there is.

    Even there no change needs more than N hops.
    """
    for nodes in (3, 8, 15):
        net = settled(nodes, k=2)
        assert max(hops_of_a_change(net, 1)) <= nodes


def test_paragraph_35_any_leave_between_two_sessions_is_seen() -> None:
    """However often the topic was left and wanted again in between, and whatever else changed."""
    node = single(1)
    node.subscribe("T", Micros(0)), node.subscribe("U", Micros(0))
    for times in (1, 2, 5):
        old = node.record
        for _ in range(times):
            node.unsubscribe("T", Micros(0)), node.subscribe("T", Micros(0))
        node.subscribe(f"other {times}", Micros(0))
        assert ViewChange(Peer(1), old, node.record, "news").returned == (topic_hash("T"),)
        node.unsubscribe("T", Micros(0))
        assert ViewChange(Peer(1), old, node.record, "news").left == (topic_hash("T"),)
        node.subscribe("T", Micros(0))


def test_paragraph_36_the_overlay_stays_k_connected_when_processes_join_and_leave() -> None:
    """ "Maintained even in the case of a process leaving or joining".

    "Establishing and omitting connection ... ad hoc".
    """
    net = settled(10, k=3)
    for step in range(10):
        if step % 2:
            newcomer = net.add()
            net.start(newcomer)
        else:
            leaver = next(
                place.number
                for place in net.places
                if place.machine is not None and place.number >= step
            )
            net.command(leaver, "leave")
            net.until(lambda number=leaver: net[number].may_go, 3)
            assert vertex_connectivity(net.adjacency(leaver)) >= 3
            net.crash(leaver)
        net.settle()
        assert vertex_connectivity(net.adjacency()) >= 3
        net.run(3)
        # After the links that are not needed have been closed, too.
        assert vertex_connectivity(net.adjacency()) >= 3


def test_paragraph_19_a_process_that_ceases_leaves_all_its_topics() -> None:
    """A process that "disconnects or ceases to be active also results in un-subscription"."""
    for how in ("crash", "leave"):
        net = settled(6, k=2)
        net.subscribe(2, "a", "b")
        net.settle()
        if how == "leave":
            net.command(2, "leave")
            net.until(lambda net=net: net[2].may_go, 3)
        net.crash(2)
        net.settle()
        for place in net.places:
            if place.number != 2:
                change = next(
                    change
                    for change in place.changes
                    if change.peer == net.peer(2) and change.after is None
                )
                assert set(change.left) == {topic_hash("a"), topic_hash("b")}
                assert change.reason == ("left" if how == "leave" else "failed")


def test_paragraph_42_hashing_reduces_the_data_of_an_update() -> None:
    """ "Hashing may significantly reduce the amount of data".

    A pair costs 12 bytes, whatever the length of its name.
    """
    sizes = {}
    for length in (8, 80, 200):
        node = single(1)
        for number in range(100):
            node.subscribe(f"{number:03}".ljust(length, "x"), Micros(0))
        sizes[length] = through_codec(News(records=(node.record,)))[1]
    assert len(set(sizes.values())) == 1
    assert sizes[80] < 80 * 100 / 5


def test_paragraph_54_a_network_at_rest_exchanges_no_state() -> None:
    """Views are sent to a new neighbour, not repeated: at rest only digests travel."""
    net = settled(12, k=4)
    net.sent = []
    net.run(10)
    kinds = {type(message) for _, _, _, message, _ in net.sent}
    assert kinds == {Beat}
    assert not kinds & {Buckets, Have, AskRecords, News, Gone}


def test_the_variant_of_the_seed_stays_selectable() -> None:
    """Paragraph 51 sends (Pi, ts, interest(Pi)): the whole interest of the node that changed.

    ``news="whole"`` does so, and costs more.
    """
    bytes_of = {}
    for mode in ("whole", "diff"):
        net = settled(8, k=3, news=mode)
        net.subscribe(1, *[f"topic-{n}" for n in range(50)])
        net.settle()
        net.run(2)
        net.bytes.clear()
        net.subscribe(1, "one more")
        net.until(lambda net=net: all_know(net, 1), 1)
        bytes_of[mode] = sum(net.bytes[kind.__name__] for kind in NEWS)
        assert all(isinstance(machine, Interest) for machine in net.machines)
    assert bytes_of["diff"] < bytes_of["whole"] / 10
