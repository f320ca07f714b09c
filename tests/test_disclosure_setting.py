"""Settings: levels of a hierarchy, requirements, and contexts of several attributes as one tree."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_trees import safe_set, trees, wanted
from small_contexts import LEAF, TOP, lattice, nodes_of, places
from tacit.deliver.disclosure.blocks import Block
from tacit.deliver.disclosure.contexts import context_tree, node_name
from tacit.deliver.disclosure.remainders import finest_cut_with_rests
from tacit.deliver.disclosure.setting import Level, Requirement
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree


def test_a_level_is_disclosed_as_the_hierarchy_says() -> None:
    assert Level(TOP).disclose(places(), ["Tea"]) == places().at(["Tea"], TOP)
    assert Level((1, 0)).disclose(lattice(), ["North", "Tea"]).values == ("*", "Tea")
    with pytest.raises(BadInput, match=r"expected a level of the hierarchy, got \(7,\)"):
        Level((7,)).disclose(places(), ["Tea"])


@given(st.data())
def test_counts_of_leaves_are_those_of_sets(data: st.DataObject) -> None:
    tree = data.draw(trees(most=20))
    requirement = data.draw(wanted(tree))
    node = data.draw(st.sampled_from(tree.nodes))
    children = tree.children(node)
    without = tuple(child for child in children[1:] if data.draw(st.booleans()))
    block = Block(node, without)
    assert requirement.on(tree)(block) == safe_set(requirement, frozenset(block.leaves(tree)))


@given(
    st.integers(1, 20),
    st.fractions(0, 5),
    *(st.tuples(st.integers(0, 30), st.integers(0, 30)) for _ in range(2)),
)
def test_two_safe_blocks_together_are_safe(
    least: int, ratio: Fraction, one: tuple[int, int], other: tuple[int, int]
) -> None:
    requirement = Requirement(least, ratio)
    both = [requirement.holds(good + bad, bad) for good, bad in (one, other)]
    if all(both):
        assert requirement.holds(sum(one) + sum(other), one[1] + other[1])


def test_ratios_are_exact() -> None:
    assert Requirement(1, 0.1).ratio == Fraction(1, 10)
    assert Requirement(1, "0.1").holds(11, 10)
    assert not Requirement(1, "0.11").holds(11, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "expected min_descendants to be a whole number >= 1"),
        ((1, -1), "expected ratio >= 0"),
        ((1, float("nan")), "expected ratio to be finite"),
        ((1, 1, "Clinic"), "expected sensitive to be several leaves, got one text"),
    ],
)
def test_bad_requirements(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Requirement(*arguments)


@pytest.mark.parametrize("stranger", ["Zebra", "Food"])
def test_what_is_sensitive_stays_out_of_messages(stranger: str) -> None:
    tree = Tree.of_paths(["Food>Tea", "Food>Coffee"])
    requirement = Requirement(1, 1, ["Tea", stranger])
    with pytest.raises(
        BadInput, match="expected sensitive to be leaves of the tree, got 1 that are not"
    ) as refusal:
        requirement.on(tree)
    for text in (str(refusal.value), repr(requirement)):
        assert "Tea" not in text
        assert stranger not in text


def test_contexts_of_a_sequence_as_a_tree() -> None:
    nodes = nodes_of([("Coffee", 0), ("Tea", 0), ("Run", 0), ("Tea", 0)])
    tree = context_tree(nodes)
    leaves = {node_name(places().at([place], LEAF)) for place in ("Coffee", "Tea", "Run")}
    assert set(tree.leaves()) == leaves
    assert tree.height == 2
    tea = node_name(places().at(["Tea"], LEAF))
    assert tree.path(tea) == tuple(map(node_name, places().path(["Tea"])))
    cut = finest_cut_with_rests(tree, Requirement(2, 0).on(tree))
    assert cut is not None
    assert [str(block) for block in cut.blocks] == ["anything (2,)"]


def test_two_contexts_that_read_alike_stay_two() -> None:
    """Both print "a x · b y · b z"; as one node they would seem to be two leaves that it leaves possible."""
    one, other = Tree.of_paths(["x>x1", "x · b y>q1"]), Tree.of_paths(["z>z1", "y · b z>z2"])
    hierarchy = Sequence([Steps("a", one), Steps("b", other)], [(0, 0), (1, 1)])
    contexts = [("x1", "z2"), ("q1", "z1")]
    assert len({str(hierarchy.at(each, (1, 1))) for each in contexts}) == 1
    tree = context_tree(ContextNodes.of(hierarchy, {"a": ["x1", "q1"], "b": ["z2", "z1"]}))
    assert len(tree) == 2 + 2 + 1
    for each in contexts:
        name = node_name(hierarchy.at(each, (1, 1)))
        assert tree.leaves(name) == (node_name(hierarchy.at(each, (0, 0))),)


def test_names_that_are_the_same_for_all_their_quotes_are_refused() -> None:
    kinds = Tree.of_paths(["x", "y"])
    hierarchy = Lattice([Steps("a", kinds), Steps("b", kinds), Steps("a 'x' · b", kinds)])
    columns = {"a": ["x", "*"], "b": ["y", "*"], "a 'x' · b": ["*", "y"]}
    nodes = ContextNodes.of(hierarchy, columns, levels=[(0, 0, 0), (1, 1, 1)])
    with pytest.raises(BadInput, match=r"names of their own, got two of one name at \(0, 0, 0\)"):
        context_tree(nodes)


def test_a_level_names_no_short_branch_by_its_parent() -> None:
    """With steps counted from each leaf, "Health" was said by the clinic alone."""
    tree = Tree.of_paths(["Health>Clinic", "Health>Shops>Optician", "Health>Shops>Pharmacy"])
    hierarchy = Sequence([Steps("query", tree)], [(0,), (1,), (2,), (3,)])
    told = [{str(Level(level).disclose(hierarchy, [leaf])) for leaf in tree.leaves()} for level in [(1,), (2,)]]
    assert told == [{"query Clinic", "query Shops"}, {"query Health"}]


def test_contexts_of_a_lattice_are_no_tree() -> None:
    nodes = ContextNodes.of(lattice(), {"where": ["North"], "what": ["Tea"]})
    with pytest.raises(BadInput, match="expected levels of a sequence"):
        context_tree(nodes)
    short = ContextNodes.of(places(), {"place": ["Tea", "Run"]}, levels=[LEAF, TOP])
    with pytest.raises(BadInput, match="expected one context at the coarsest level, got 2"):
        context_tree(short)
