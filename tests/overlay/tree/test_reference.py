"""Reference trees: the property of section 3.2, and the closed forms against the seed's definitions
taken literally.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations, pairwise
from random import Random

import pytest

from gossamer.lab.tree.checkers import mutual, shape
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig, TreeConfigError
from gossamer.overlay.tree.reference import (
    Neighbours,
    ReferenceTree,
    SeedTree,
    ZeroTree,
    broken_rules,
    make_tree,
)
from gossamer.overlay.tree.ring import Members, RingError, TakenError, TooManyHostsError
from gossamer.overlay.tree.wide import CappedTree, WideTree

# All of it together takes seconds.
pytestmark = pytest.mark.slow


@lru_cache
def breadth_first(tree: ReferenceTree) -> list[int]:
    keys, level = [], [tree.root()]
    while level:
        keys += level
        level = [child for key in level for child in tree.children(key)]
    return keys


@lru_cache
def relations(tree: ReferenceTree) -> tuple[dict[int, int | None], dict[int, list[int]]]:
    """Parent and children of every key."""
    keys = breadth_first(tree)
    return {key: tree.parent(key) for key in keys}, {key: tree.children(key) for key in keys}


def owners(keys: list[int], size: int) -> list[Arc]:
    """The arc that holds each key: Definition 1 over hosts with these keys, sorted."""
    arcs = [Arc(low, Host(high, high)) for low, high in pairwise((keys[-1], *keys))]
    found = [
        arc for arc, low in zip(arcs, (-1, *keys), strict=False) for _ in range(arc.high - low)
    ]
    return found + arcs[:1] * (size - len(found))


def by_definition(
    tree: ReferenceTree, owned: list[Arc]
) -> tuple[dict[int, int], dict[int, int | None], dict[int, list[int]]]:
    """Definitions 1 to 3, key by key: topmost keys, parents and children, by host."""
    parent, children = relations(tree)
    top: dict[int, int] = {}
    for key in breadth_first(tree):
        top.setdefault(owned[key].high, key)
    owner = {key: host for host, key in top.items()}

    def above(key: int) -> int | None:
        key = parent[key]
        while key is not None and key not in owner:
            key = parent[key]
        return owner.get(key)

    def below(key: int) -> list[int]:
        found: list[int] = []
        for child in children[key]:
            found += [owner[child]] if child in owner else below(child)
        return found

    return (
        top,
        {host: above(key) for host, key in top.items()},
        {host: sorted(below(key)) for host, key in top.items()},
    )


def ask(tree: ReferenceTree, owner: Callable[[int], Arc], host: int) -> tuple[Neighbours, int]:
    """What the tree says, and the look-ups that it took."""
    asking, lookups = tree.neighbours(owner(host)), 0
    try:
        key = next(asking)
        while True:
            lookups += 1
            key = asking.send(owner(key))
    except StopIteration as done:
        return done.value, lookups


def compare(tree: ReferenceTree, keys: list[int]) -> tuple[int, int]:
    """Returns the most look-ups and the highest degree."""
    owned = owners(keys, tree.size)
    top, parents, children = by_definition(tree, owned)
    worst = degree = 0
    for key in keys:
        found, lookups = ask(tree, owned.__getitem__, key)
        piece = owned[key].piece
        parent = found.parent
        said = (
            tree.topmost(*piece),
            found.placed,
            parent and parent.key,
            sorted([host.key for host in found.children]),
        )
        assert said == (top.get(key), key in top, parents.get(key), children.get(key, []))
        worst, degree = max(worst, lookups), max(degree, len(found.children) + (parent is not None))
        assert parent is None or tree.rank(*owned[parent.key].piece) < tree.rank(*piece)
    return worst, degree


TREES = [
    pytest.param(lambda bits: ZeroTree(bits), id="zero"),
    pytest.param(lambda bits: SeedTree(bits), id="seed"),
    pytest.param(lambda bits: WideTree(bits, 3), id="3"),
    pytest.param(lambda bits: WideTree(bits, 3, zero=False), id="3-seed"),
    pytest.param(lambda bits: WideTree(bits, 5), id="5"),
]


@pytest.mark.parametrize("make", TREES)
def test_every_tree_has_the_property_of_section_3_2_and_holds_every_key_once(make) -> None:
    for bits in range(1, 9):
        tree = make(bits)
        assert broken_rules(tree) == []
        keys = breadth_first(tree)
        assert sorted(keys) == list(range(tree.root() != 0, 1 << bits))


def test_the_checker_of_the_property_sees_a_tree_without_it() -> None:
    class Bent(ZeroTree):
        def children(self, key: int) -> list[int]:
            return [1, 3, 6, 7] if key == 2 else super().children(key)

        def parent(self, key: int) -> int | None:
            return 2 if key in (6, 7) else super().parent(key)

    assert any("outside" in text for text in broken_rules(Bent(3)))
    assert any("more than 2" in text for text in broken_rules(Bent(3)))


def test_a_binary_wide_tree_is_the_search_tree() -> None:
    wide, plain = WideTree(6, 2, zero=False), SeedTree(6)
    for key in range(64):
        assert wide.parent(key) == plain.parent(key)
        assert sorted(wide.children(key)) == plain.children(key)


@pytest.mark.parametrize("make", TREES)
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_closed_forms_are_the_seeds_definitions_for_every_set_of_hosts(make, bits: int) -> None:
    tree = make(bits)
    for count in range(1, (1 << bits) + 1):
        for keys in combinations(range(1 << bits), count):
            compare(tree, list(keys))


@pytest.mark.slow
@pytest.mark.parametrize("make", TREES[:2])
def test_closed_forms_are_the_seeds_definitions_for_sets_of_hosts_of_four_bits(make) -> None:
    tree = make(4)
    # All of them take a minute, and have been taken.
    for mask in range(1, 1 << 16, 7):
        compare(tree, [key for key in range(16) if mask >> key & 1])


@pytest.mark.parametrize(
    ("tree", "lookups"), [(ZeroTree(8), 4), (SeedTree(8), 7)], ids=["zero", "seed"]
)
def test_binary_look_ups_and_degree_are_bounded(tree, lookups: int) -> None:
    rng = Random(7)
    worst = degree = 0
    for _ in range(150):
        keys = sorted({int(rng.random() * 256) for _ in range(1 + int(rng.random() * 60))})
        most, widest = compare(tree, keys)
        worst, degree = max(worst, most), max(degree, widest)
    assert worst <= lookups
    assert degree == 3


@pytest.mark.parametrize(
    "tree", [WideTree(9, 3), WideTree(9, 4), WideTree(9, 4, zero=False), WideTree(10, 8)]
)
def test_wide_trees_are_the_seeds_definitions(tree) -> None:
    rng = Random(tree.arity)
    for _ in range(30):
        compare(
            tree, sorted({int(rng.random() * tree.size) for _ in range(1 + int(rng.random() * 80))})
        )


def test_look_ups_do_not_grow_with_the_key_space() -> None:
    rng = Random(1)
    for tree in (ZeroTree(64), SeedTree(64)):
        members = Members(64, [Host(int(rng.random() * 2**53) << 11, n) for n in range(300)])
        assert max(ask(tree, members.owner, key)[1] for key in members.keys) <= (
            4 if tree.zero else 7
        )


def edges(tree: ReferenceTree, members: Members) -> dict[int, list[int]]:
    return {
        key: sorted(host.key for host in ask(tree, members.owner, key)[0].hosts)
        for key in members.keys
    }


@pytest.mark.parametrize("arity", [3, 4, 8])
@pytest.mark.parametrize("zero", [True, False])
def test_capped_trees_hand_children_off_and_stay_trees(arity: int, zero: bool) -> None:
    rng = Random(arity)
    members = Members(
        24,
        [Host(key, key) for key in {1 + int(rng.random() * (2**24 - 1)): None for _ in range(800)}],
    )
    plain, capped = (edges(kind(24, arity, zero=zero), members) for kind in (WideTree, CappedTree))
    assert shape(plain) == mutual(plain) == []
    # The seed's "with high probability" is not always.
    assert max(map(len, plain.values())) > arity + 1
    assert shape(capped, arity + 1) == mutual(capped) == []
    changed = sum(plain[key] != capped[key] for key in plain)
    assert 0 < changed < len(plain) / 5


def test_more_hosts_than_keys_is_an_error_of_its_own() -> None:
    members = Members(2, [Host(key, key) for key in range(4)])
    with pytest.raises(TooManyHostsError, match="4 keys are all taken"):
        members.add(Host(1, 9))
    with pytest.raises(TakenError):
        Members(3, [Host(1, 1), Host(1, 2)])
    with pytest.raises(RingError, match="does not fit"):
        Members(3).add(Host(8, 1))
    with pytest.raises(RingError):
        Members(65)


def test_which_tree_is_a_matter_of_configuration() -> None:
    assert isinstance(make_tree(TreeConfig()), ZeroTree)
    assert isinstance(make_tree(TreeConfig(rooting="seed")), SeedTree)
    assert isinstance(make_tree(TreeConfig(arity=4)), CappedTree)
    assert type(make_tree(TreeConfig(arity=4, cap=False))) is WideTree
    with pytest.raises(TreeConfigError, match="rooting"):
        TreeConfig(rooting="middle")
