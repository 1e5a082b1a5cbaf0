"""The tree as a router: the ways of a batch for some keys, and the keys that are answered for at
once.
"""

from __future__ import annotations

from gossamer.filters import Schema
from gossamer.machine import Dial, Effect, LinkState, Micros, Peer, Send
from gossamer.overlay.batch import Batch
from gossamer.overlay.tree.arcs import Host, Keys
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import SchemaContent
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import PIECES_MAX, Carry, Reached, Waits
from gossamer.overlay.tree.ring import IdealRing, Members
from gossamer.overlay.tree.router import TreeRouter
from gossamer.overlay.tree.routes import Routes, Table

BITS = 10
LEFT, RIGHT, NEW = Peer(40), Peer(120), Peer(60)
NOW = Micros(1)


class One:
    """The router of host 80 with two neighbours: 40 has wishes behind it, and 120 has none.

    Host 60 is in the ring, and no neighbour. A batch has one event, a = 5.
    """

    def __init__(self, *, is_host: bool = True) -> None:
        hosts = [Host(80, 80, "here"), Host(40, 40, "left"), Host(120, 120, "right")]
        self.members = Members(BITS, [*hosts[not is_host :], Host(60, 60, "new")])
        self.out: list[Effect] = []
        self.receipts: list[tuple[int, ...]] = []
        config = TreeConfig(bits=BITS)
        content = SchemaContent()
        content.learn("t", Schema.parse("a INT"))
        links = Links(Peer(80), config, self.out)
        ring = IdealRing(hosts[0], self.members)
        self.routes = Routes(ring, config, links, content)
        self.router = TreeRouter(
            ring, self.routes, config, links, lambda *_: (), self.completed, self.out
        )
        self.router.arc = ring.arc
        for peer in (LEFT, RIGHT):
            links.link(peer, LinkState.UP, NOW)
            self.router.engine.link(peer, LinkState.UP, NOW)
        if is_host:
            self.tell(LEFT, [(900, 60)], "a > 3")
            self.tell(RIGHT, [(80, 900)], "a > 7")

    def completed(self, life: int, first: int, counts: tuple[int, ...]) -> None:
        self.receipts.append(counts)

    def tell(self, peer: Peer, pieces: list[tuple[int, int]], text: str) -> None:
        wish = ("t", text)
        self.routes.tables[peer] = Table(Keys(BITS, pieces), False, (wish,), {"t": (text,)})

    def batch(self, publisher: int = 80, round: int = 0) -> Batch:
        return Batch("t", publisher, 1, 1, 1, 1, round, 0, b"\x91\x91\x05")

    def publish(self) -> None:
        self.router.engine.publish(self.batch(), NOW)

    def sent(self, kind: type = Carry) -> list[tuple[tuple[Peer, ...], object]]:
        found = [(e.to, e.message) for e in self.out if type(e) is Send and type(e.message) is kind]
        self.out[:] = [effect for effect in self.out if type(effect) is not Send]
        return found


def test_a_batch_goes_where_it_is_wanted_and_the_host_answers_for_the_other_links() -> None:
    one = One()
    aim = one.router.aim(one.batch(), one.router.everything, None, NOW)
    assert aim.parts == [(LEFT, one.router.everything)]
    assert aim.here == Keys(BITS, [(60, 80)])
    assert aim.known == Keys(BITS, [(80, 900)])


def test_a_neighbour_that_has_told_nothing_gets_every_batch() -> None:
    one = One()
    one.routes.tables[RIGHT] = None
    aim = one.router.aim(one.batch(7), one.router.everything, LEFT, NOW)
    assert [peer for peer, _ in aim.parts] == [RIGHT]
    assert aim.known is None


def test_a_batch_for_some_keys_goes_only_over_links_that_lead_to_them() -> None:
    one = One()
    region = Keys(BITS, [(10, 20)])
    aim = one.router.aim(one.batch(7), region, None, NOW)
    assert aim.parts == [(LEFT, region)]
    assert (aim.here, aim.known) == (None, None)
    assert one.router.aim(one.batch(7), Keys(BITS, [(910, 950)]), LEFT, NOW).parts == []


def test_a_host_counts_with_its_own_key_and_answers_for_keys_that_it_has_inherited() -> None:
    one = One()
    aim = one.router.aim(one.batch(7), Keys(BITS, [(50, 70)]), LEFT, NOW)
    assert (aim.here, aim.known) == (None, Keys(BITS, [(60, 70)]))
    aim = one.router.aim(one.batch(7), Keys(BITS, [(70, 90)]), LEFT, NOW)
    assert (aim.here, aim.known) == (Keys(BITS, [(70, 80)]), Keys(BITS, [(80, 90)]))


def test_a_hole_is_asked_of_its_owner_over_a_link_that_is_dialled() -> None:
    one = One()
    one.publish()
    assert [to for to, _ in one.sent()] == [(LEFT,)]
    # The neighbour has reached its own keys, and not those of host 60.
    one.router.on_reached(LEFT, Reached((80, 1, 1), 0, (), ((900, 40),), (2,)), NOW)
    one.router.engine.wake(one.router.engine.deadline)
    assert [e.expected for e in one.out if type(e) is Dial] == [NEW]
    assert one.sent() == []
    one.router.engine.link(NEW, LinkState.UP, NOW)
    [((peer,), again)] = one.sent()
    assert isinstance(again, Carry)
    assert (peer, again.want, again.batch.round) == (NEW, ((40, 60),), 1)
    one.router.on_reached(NEW, Reached((80, 1, 1), 1, ((40, 60),), ((40, 60),), (1,)), NOW)
    assert one.receipts == [(3,)]


def test_a_publisher_outside_the_ring_asks_the_host_that_has_its_key() -> None:
    one = One(is_host=False)
    one.publish()
    # Key 80 belongs to host 120 now, so not one host begins for all such publishers.
    [((peer,), carried)] = one.sent()
    assert isinstance(carried, Carry)
    assert (peer, carried.want) == (RIGHT, ((1023, 1023),))
    answer = Reached((80, 1, 1), 0, carried.want, ((5, 5),), (4,))
    one.router.on_reached(RIGHT, answer, NOW)
    assert one.receipts == [(4,)]


def test_regions_and_tiles_of_too_many_pieces_do_not_travel() -> None:
    one = One()
    pieces = [(key, key + 1) for key in range(100, 100 + 3 * PIECES_MAX, 2)]
    region = Keys(BITS, pieces)
    one.routes.tables[RIGHT] = None
    [(_, part)] = one.router.aim(one.batch(7), region, LEFT, NOW).parts
    assert part == Keys(BITS, pieces[:PIECES_MAX])
    report = one.router.report((7, 1, 1), 0, one.router.everything, region, (5,))
    assert (report.pieces, report.matched) == ((), ()), "keys and their counts travel together"


def test_a_host_that_waits_for_others_says_so() -> None:
    one = One()
    one.router.on_carry(RIGHT, Carry(one.batch(7), ((10, 20),)), NOW)
    assert [to for to, _ in one.sent()] == [(LEFT,)]
    engine = one.router.engine
    engine.wake(engine.deadline)
    assert one.sent(Waits) == [((RIGHT,), Waits((7, 1, 1), 0, ((10, 20),)))]
    one.router.on_waits(LEFT, Waits((7, 1, 1), 0, ((10, 20),)), engine.deadline)
    one.router.on_reached(LEFT, Reached((7, 1, 1), 0, ((10, 20),), ((10, 20),), (1,)), NOW)
    [(_, report)] = one.sent(Reached)
    assert report == Reached((7, 1, 1), 0, ((10, 20),), ((10, 20),), (1,))
