"""A menu's entry follows from the setting alone; choosing by the context instead gives the context away."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_trees import safe_set, trees, wanted, what_each_disclosure_fits
from tacit.deliver.disclosure.blocks import Block, Cut
from tacit.deliver.disclosure.cuts import depth_cut, finest_cut, nothing
from tacit.deliver.disclosure.menu import NOTHING, Entry, Menu
from tacit.deliver.disclosure.setting import Requirement
from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree

PLACES = Tree.of_paths(["Food>Coffee", "Food>Tea", "Health>Clinic", "Health>Gym", "Sport>Run", "Sport>Yoga"])


def levels_menu(tree: Tree) -> Menu:
    """All depths, the finest first, each cut once."""
    entries: list[Entry] = []
    for depth in range(tree.height, -1, -1):
        cut = depth_cut(tree, depth)
        if not entries or not cut.is_at_least_as_fine_as(entries[-1].cut):
            entries.append(Entry(f"depth {depth}", cut))
    return Menu(tuple(entries))


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
    assert list(inspect.signature(Menu.choose).parameters) == ["self", "requirement"]
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
    menu = Menu((Entry("leaves", depth_cut(PLACES, 2)), Entry("tops", depth_cut(PLACES, 1))))
    values = {menu.choose(Requirement(least, 0)).name for least in range(1, 8)}
    assert values == {"leaves", "tops", NOTHING}
    assert len(values) == len(menu.entries) + 1
    assert "one of len(entries) + 1 values" in " ".join((Menu.__doc__ or "").split())


def test_choosing_by_the_context_leaks() -> None:
    """The twin: the finest entry whose block is safe here. Gym then stands out with Clinic, alone with it."""
    requirement = Requirement(1, 2, ["Clinic"])
    menu = levels_menu(PLACES)
    safe = requirement.on(PLACES)

    def here(leaf: str) -> tuple[str, Block]:
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
    personal: set[frozenset[Block]] = set()
    for setting in settings:
        safe = setting.on(PLACES)
        cut = finest_cut(PLACES, lambda node, safe=safe: safe(Block(node)))  # type: ignore[misc]
        assert cut is not None
        personal.add(frozenset(cut.blocks))
    assert len(personal) == 3


def test_profiles() -> None:
    menu = Menu.of_profiles(
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
        Menu.of_profiles(PLACES, {"hopeless": Requirement(7, 0)})


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
        Menu(tuple(Entry(name, depth_cut(PLACES, depth)) for name, depth in entries))


def test_cuts_of_two_trees_are_no_menu() -> None:
    other = nothing(Tree.of_paths(["A", "B"]))
    with pytest.raises(BadInput, match="expected two cuts of one tree"):
        Menu((Entry("one", depth_cut(PLACES, 1)), Entry("other", Cut(other.tree, other.blocks))))
