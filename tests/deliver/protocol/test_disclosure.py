"""Settings and menus: levels, requirements, contexts of several attributes as one tree, public cuts.

A menu's entry is chosen by the requirement alone; the twin that chooses by the context gives it away.
"""

from __future__ import annotations

import inspect
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.protocol.cuts import (
    Cut,
    CutBlock,
    context_tree,
    depth_cut,
    finest_cut,
    finest_cut_with_remainders,
    node_name,
    root_cut,
)
from tacit.deliver.protocol.disclosure import NOTHING, CutMenu, CutMenuEntry, DisclosureLevel, Requirement
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tests.support.random_trees import safe_set, trees, wanted, what_each_disclosure_fits
from tests.support.small_contexts import LEAF, TOP, lattice, nodes_of, places


def test_a_level_is_disclosed_as_the_hierarchy_says() -> None:
    assert DisclosureLevel(TOP).disclose(places(), ["Tea"]) == places().at(["Tea"], TOP)
    assert DisclosureLevel((1, 0)).disclose(lattice(), ["North", "Tea"]).values == ("*", "Tea")
    with pytest.raises(BadInput, match=r"expected a level of the hierarchy, got \(7,\)"):
        DisclosureLevel((7,)).disclose(places(), ["Tea"])


@given(st.data())
def test_counts_of_leaves_are_those_of_sets(data: st.DataObject) -> None:
    tree = data.draw(trees(most=20))
    requirement = data.draw(wanted(tree))
    node = data.draw(st.sampled_from(tree.nodes))
    children = tree.children(node)
    without = tuple(child for child in children[1:] if data.draw(st.booleans()))
    block = CutBlock(node, without)
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
    cut = finest_cut_with_remainders(tree, Requirement(2, 0).on(tree))
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
    told = [
        {str(DisclosureLevel(level).disclose(hierarchy, [leaf])) for leaf in tree.leaves()}
        for level in [(1,), (2,)]
    ]
    assert told == [{"query Clinic", "query Shops"}, {"query Health"}]


def test_contexts_of_a_lattice_are_no_tree() -> None:
    nodes = ContextNodes.of(lattice(), {"where": ["North"], "what": ["Tea"]})
    with pytest.raises(BadInput, match="expected levels of a sequence"):
        context_tree(nodes)
    short = ContextNodes.of(places(), {"place": ["Tea", "Run"]}, levels=[LEAF, TOP])
    with pytest.raises(BadInput, match="expected one context at the coarsest level, got 2"):
        context_tree(short)


PLACES = Tree.of_paths(["Food>Coffee", "Food>Tea", "Health>Clinic", "Health>Gym", "Sport>Run", "Sport>Yoga"])


def levels_menu(tree: Tree) -> CutMenu:
    """All depths, the finest first, each cut once."""
    entries: list[CutMenuEntry] = []
    for depth in range(tree.height, -1, -1):
        cut = depth_cut(tree, depth)
        if not entries or not cut.is_at_least_as_fine_as(entries[-1].cut):
            entries.append(CutMenuEntry(f"depth {depth}", cut))
    return CutMenu(tuple(entries))


@given(st.data())
def test_the_finest_entry_that_holds_for_every_block(data: st.DataObject) -> None:
    tree = data.draw(trees(most=20))
    requirement = data.draw(wanted(tree))
    menu = levels_menu(tree)
    chosen = menu.choose(requirement)
    fits = what_each_disclosure_fits(tree, chosen.disclose)
    if chosen.name == NOTHING:
        assert fits == [frozenset(tree.leaves())]
    else:
        assert all(safe_set(requirement, leaves) for leaves in fits)
    for entry in menu.entries:
        if entry == chosen:
            break
        sets = what_each_disclosure_fits(tree, entry.disclose)
        assert not all(safe_set(requirement, leaves) for leaves in sets)


def test_the_entry_is_a_function_of_the_setting_only() -> None:
    assert list(inspect.signature(CutMenu.choose).parameters) == ["self", "requirement"]
    menu = levels_menu(PLACES)
    by_setting = {
        (least, ratio): menu.choose(Requirement(least, ratio, ["Clinic"])).name
        for least in (1, 2, 6, 7)
        for ratio in (0, 1, 5, 6)
    }
    assert by_setting[1, 0] == "depth 2"
    assert by_setting[2, 1] == "depth 1"
    assert by_setting[2, 5] == by_setting[6, 0] == "depth 0"
    assert by_setting[7, 0] == by_setting[1, 6] == NOTHING
    again = {
        (least, ratio): menu.choose(Requirement(least, ratio, ["Clinic"])).name for least, ratio in by_setting
    }
    assert again == by_setting


def test_a_menu_takes_one_value_more_than_it_has_entries() -> None:
    menu = CutMenu((CutMenuEntry("leaves", depth_cut(PLACES, 2)), CutMenuEntry("tops", depth_cut(PLACES, 1))))
    values = {menu.choose(Requirement(least, 0)).name for least in range(1, 8)}
    assert values == {"leaves", "tops", NOTHING}
    assert len(values) == len(menu.entries) + 1
    assert "one of len(entries) + 1 values" in " ".join((CutMenu.__doc__ or "").split())


def test_choosing_by_the_context_leaks() -> None:
    """The twin: the finest entry whose block is safe here. Gym then stands out with Clinic, alone with it."""
    requirement = Requirement(1, 2, ["Clinic"])
    menu = levels_menu(PLACES)
    safe = requirement.on(PLACES)

    def here(leaf: str) -> tuple[str, CutBlock]:
        entry = next(e for e in menu.entries if safe(e.disclose(leaf)))
        return entry.name, entry.disclose(leaf)

    fits = what_each_disclosure_fits(PLACES, here)
    assert frozenset({"Clinic"}) in fits  # only a sensitive context discloses at depth 0
    chosen = menu.choose(requirement)
    assert all(safe_set(requirement, part) for part in what_each_disclosure_fits(PLACES, chosen.disclose))


def test_what_the_entry_says_is_little_beside_a_personal_cut() -> None:
    """One sensitive leaf, any of six: the menu has one entry for all of them, personal cuts name the branch."""
    menu = levels_menu(PLACES)
    settings = [Requirement(1, 1, [leaf]) for leaf in PLACES.leaves()]
    assert len({menu.choose(setting).name for setting in settings}) == 1
    personal: set[frozenset[CutBlock]] = set()
    for setting in settings:
        safe = setting.on(PLACES)
        cut = finest_cut(PLACES, lambda node, safe=safe: safe(CutBlock(node)))  # type: ignore[misc]
        assert cut is not None
        personal.add(frozenset(cut.blocks))
    assert len(personal) == 3


def test_profiles() -> None:
    menu = CutMenu.of_profiles(
        PLACES,
        {
            "hide all": Requirement(6, 0),
            "health": Requirement(2, 1, ["Clinic", "Gym"]),
            "pairs": Requirement(2, 0),
        },
    )
    assert [entry.name for entry in menu.entries] == ["pairs", "health", "hide all"]
    assert menu.choose(Requirement(2, 1, ["Gym"])).name == "pairs"
    assert menu.choose(Requirement(2, 2, ["Gym"])).name == "health"
    with pytest.raises(BadInput, match="profile 'hopeless': expected a requirement that some cut meets"):
        CutMenu.of_profiles(PLACES, {"hopeless": Requirement(7, 0)})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "expected a menu of at least one cut"),
        ([("a", 1), ("a", 0)], "expected menu entries with names of their own"),
        ([(NOTHING, 0)], "none 'nothing'"),
        ([("coarse", 0), ("fine", 1)], "expected the finest cuts of the menu first, got 'fine'"),
        ([("one", 1), ("same", 1)], "got 'same', which is as fine as 'one'"),
    ],
)
def test_bad_menus(entries: list[tuple[str, int]], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        CutMenu(tuple(CutMenuEntry(name, depth_cut(PLACES, depth)) for name, depth in entries))


def test_cuts_of_two_trees_are_no_menu() -> None:
    other = root_cut(Tree.of_paths(["A", "B"]))
    with pytest.raises(BadInput, match="expected two cuts of one tree"):
        CutMenu(
            (CutMenuEntry("one", depth_cut(PLACES, 1)), CutMenuEntry("other", Cut(other.tree, other.blocks)))
        )
