"""Cuts with rests: every block safe by its set of leaves, and never coarser than the cut of whole nodes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.protocol.cuts import CutBlock, finest_cut, finest_cut_with_remainders
from tacit.deliver.protocol.disclosure import Requirement
from tacit.schema.contexts.tree import Tree
from tests.support.random_trees import (
    as_sets,
    deep_tree,
    is_finer,
    is_partition,
    random_tree,
    safe_set,
    trees,
    wanted,
    what_each_disclosure_fits,
    whole,
)


@given(st.data())
def test_a_partition_into_safe_blocks_at_least_as_fine(data: st.DataObject) -> None:
    tree = data.draw(trees(most=25))
    requirement = data.draw(wanted(tree))
    safe = requirement.on(tree)
    found, plain = finest_cut_with_remainders(tree, safe), finest_cut(tree, whole(safe))
    assert (found is None) == (plain is None)
    if found is None or plain is None:
        return
    parts = as_sets(found)
    assert is_partition(tree, parts)
    assert all(safe_set(requirement, part) for part in parts)
    assert is_finer(parts, as_sets(plain))
    # What a disclosure tells is exactly its block: all leaves of it, and no others, would disclose it.
    assert sorted(map(sorted, what_each_disclosure_fits(tree, found.of))) == sorted(map(sorted, parts))


@given(st.data())
def test_any_predicate_holds_for_every_block(data: st.DataObject) -> None:
    """Even one that is not kept when safe sets are joined: nothing is disclosed that was not asked about."""
    tree = data.draw(trees(most=15))
    salt = data.draw(st.integers(0, 10**6))

    def safe(block: CutBlock) -> bool:
        return hash((salt, *block.leaves(tree))) % 3 > 0

    found, plain = finest_cut_with_remainders(tree, safe), finest_cut(tree, whole(safe))
    assert (found is None) <= (plain is None)
    if found is not None:
        assert is_partition(tree, as_sets(found))
        assert all(safe(block) for block in found.blocks)


def test_it_is_often_finer() -> None:
    """Of 200 random trees, most gain blocks; never does one lose any."""
    gains = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, 60)
        safe = Requirement(3, 2, [leaf for leaf in tree.leaves() if rng.random() < 0.15]).on(tree)
        found, plain = finest_cut_with_remainders(tree, safe), finest_cut(tree, whole(safe))
        if found is not None and plain is not None:
            gains.append(len(found.blocks) - len(plain.blocks))
    assert min(gains) >= 0
    assert np.mean(np.array(gains) > 0) > 0.5


CITY = Tree.of_paths(
    ["Food>Coffee", "Food>Tea", "Food>Soup", "Sport>Run", "Sport>Yoga", "Clinic", "Pharmacy", "Park"]
)


def test_a_rest_by_hand() -> None:
    """Food (3 leaves) and Sport (2) are large enough; Clinic, Pharmacy and Park together are the rest."""
    cut = finest_cut_with_remainders(CITY, Requirement(2, "0.5", ["Clinic", "Pharmacy"]).on(CITY))
    assert cut is not None
    assert set(map(str, cut.blocks)) == {"Food", "Sport", "rest of *"}
    assert cut.of("Park").leaves(CITY) == ("Clinic", "Pharmacy", "Park")
    assert str(cut.of("Tea")) == "Food"


def test_a_rest_that_is_not_safe_takes_in_the_smallest_child() -> None:
    cut = finest_cut_with_remainders(CITY, Requirement(2, 1, ["Clinic", "Pharmacy"]).on(CITY))
    assert cut is not None
    assert set(map(str, cut.blocks)) == {"Food", "rest of *"}
    assert cut.of("Run") == CutBlock("*", ("Food",))


def test_what_was_taken_in_for_nothing_is_given_back() -> None:
    """Sport, smaller but half sensitive, does not help the ratio; Food does, and then Sport may go."""
    requirement = Requirement(2, 1, ["Clinic", "Pharmacy", "Run"])
    cut = finest_cut_with_remainders(CITY, requirement.on(CITY))
    assert cut is not None
    assert set(map(str, cut.blocks)) == {"Sport", "rest of *"}
    assert cut.of("Tea") == cut.of("Clinic")


def test_deep_trees_are_no_trouble() -> None:
    tree = deep_tree(5_000)
    cut = finest_cut_with_remainders(tree, Requirement(2, 0).on(tree))
    assert cut is not None
    assert all(len(part) >= 2 for part in as_sets(cut))
