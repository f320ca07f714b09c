"""Sequences and lattices of levels: their order, their laws, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Decimals, MetreCells, SetOf, Steps
from tacit.schema.contexts.hierarchy import HARDT_NATH_STEPS, Lattice, Levels, Node, Sequence, is_coarser
from tests.support.context_attributes import BUSINESSES

PAPER = (
    Decimals("location"),
    SetOf(Steps("interest", BUSINESSES, (2, 1)), 3),
    Steps("query", BUSINESSES, (3, 2, 1)),
)
CONTEXT = ((61.22913, -149.912044), ["Coffee", "Wine"], "Starbucks")
SMALL = Lattice(
    (MetreCells("location", (100, 500)), Steps("query", BUSINESSES, (2, 1)), Steps("mood", BUSINESSES, (1,)))
)
INNER = Lattice(PAPER, between=((1, 0, 1), (4, 2, 2)))


def test_the_paper_generalises_in_nine_levels() -> None:
    """Hardt and Nath, CCS 2012, section 5.1, as printed."""
    printed = "(0,0,0) (0,0,1) (0,1,1) (1,1,1) (1,2,1) (2,2,1) (3,2,1) (3,2,2) (4,2,2)"
    assert " ".join(str(each).replace(" ", "") for each in HARDT_NATH_STEPS) == printed
    sequence = Sequence(PAPER, HARDT_NATH_STEPS)
    assert sequence.levels() == (*HARDT_NATH_STEPS, (6, 2, 3))  # and nothing at all above them
    assert sequence.parents((3, 2, 2)) == ((4, 2, 2),)
    assert sequence.parents((6, 2, 3)) == ()


def test_a_context_is_said_ever_more_coarsely() -> None:
    path = Sequence(PAPER, HARDT_NATH_STEPS).path(CONTEXT)
    assert [node.values for node in path][3] == ("61.2291,-149.9121", "Food", "Coffee")
    assert str(path[0]) == "location 61.22913,-149.912044 · interest Coffee + Wine · query Starbucks"
    assert str(path[8]) == "location 61.2,-150.0 · query Food"
    assert str(path[9]) == "anything"
    assert path[8] == Sequence(PAPER, HARDT_NATH_STEPS).at(CONTEXT, (4, 2, 2))


def test_nodes_are_equal_by_what_they_say() -> None:
    node = Sequence(PAPER, HARDT_NATH_STEPS).at(CONTEXT, (4, 2, 2))
    plain = Node((4, 2, 2), ("61.2,-150.0", "*", "Food"))
    assert node == plain
    assert hash(node) == hash(plain)
    assert str(plain) == "61.2,-150.0 · Food"


levels = st.sampled_from(SMALL.levels())


@given(levels, levels, levels)
def test_the_join_is_the_least_of_the_bounds(a: Levels, b: Levels, c: Levels) -> None:
    join = SMALL.join
    assert join(a, a) == a
    assert join(a, b) == join(b, a)
    assert join(a, join(b, c)) == join(join(a, b), c)
    assert is_coarser(a, b) == (join(a, b) == a)
    if is_coarser(c, a) and is_coarser(c, b):
        assert is_coarser(c, join(a, b))


@pytest.mark.parametrize("lattice", [SMALL, INNER], ids=["whole", "between"])
def test_parents_are_the_covers(lattice: Lattice) -> None:
    """Against the definition: coarser, with nothing strictly between."""
    known = lattice.levels()
    for finer in known:
        above = {each for each in known if each != finer and is_coarser(each, finer)}
        covers = {each for each in above if not any(is_coarser(each, other) for other in above - {each})}
        assert set(lattice.parents(finer)) == covers
        for one in known:
            assert lattice.join(one, finer) in known


@pytest.mark.parametrize(
    "hierarchy", [SMALL, INNER, Sequence(PAPER, HARDT_NATH_STEPS)], ids=["all", "some", "paper"]
)
def test_levels_come_before_coarser_ones_and_end_with_nothing(hierarchy: Lattice | Sequence) -> None:
    known = hierarchy.levels()
    place = {each: at for at, each in enumerate(known)}
    assert len(place) == len(known)
    assert known[-1] == tuple(each.levels - 1 for each in hierarchy.attributes)
    for each in known:
        assert all(place[above] > place[each] and is_coarser(above, each) for above in hierarchy.parents(each))
        assert bool(hierarchy.parents(each)) == (each != known[-1])


def test_a_lattice_has_every_combination() -> None:
    assert len(SMALL.levels()) == 3 * 3 * 2
    assert SMALL.levels()[0] == (0, 0, 0)
    assert SMALL.parents((0, 0, 0)) == ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    assert INNER.levels()[0] == (1, 0, 1)
    assert INNER.parents((4, 2, 2)) == ((6, 2, 3),)
    path = INNER.path(CONTEXT)
    assert [node.levels for node in path] == list(INNER.levels())


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([(0, 0, 0), (0, 0, 2), (1, 0, 1)], r"got \(1, 0, 1\) after \(0, 0, 2\)"),
        ([(0, 0, 0), (0, 0, 1), (0, 0, 1)], r"got \(0, 0, 1\) after \(0, 0, 1\)"),
        ([(0, 0, 1)], r"expected the first to be exact, \(0, 0, 0\), got \(0, 0, 1\)"),
        ([], "expected the first to be exact"),
        ([(0, 0, 0), (0, 0)], r"expected a level for each of 3 attributes, got \(0, 0\)"),
        ([(0, 0, 0), (0, 3, 0)], "expected a level of interest from 0 to 2, got 3"),
        ([(0, 0, 0), (0, -1, 0)], "expected a level of interest from 0 to 2, got -1"),
        ([(0, 0, 0), (0, 0.5, 0)], "each level of steps to be a whole number"),
        ("abc", "steps: expected a list"),
        ([0, 1], "steps: expected a list, got 0"),
    ],
)
def test_steps_that_cannot_be_meant_are_refused(steps: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Sequence(PAPER, steps)


@pytest.mark.parametrize(
    "hierarchy", [SMALL, Sequence(SMALL.attributes, [(0, 0, 0), (1, 1, 0)])], ids=["all", "two"]
)
def test_contexts_and_levels_that_are_not_there_are_refused(hierarchy: Lattice | Sequence) -> None:
    good = ((0.0, 0.0), "Coffee", "Park")
    unknown: list[Any] = [(1, 1, 9), (0, 0), "abc", [7, 7, 7]]
    for levels in unknown:
        for ask in (hierarchy.parents, lambda levels: hierarchy.at(good, levels)):
            with pytest.raises(BadInput, match="expected levels among"):
                ask(levels)
    for context in [good[:2], (*good, "Park"), "abc", 7]:
        with pytest.raises(BadInput, match=r"expected a context of 3 values \(location, query, mood\), got"):
            hierarchy.at(context, (0, 0, 0))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="mood: expected a node of its tree, got a value that is not in it"):
        hierarchy.path(((0.0, 0.0), "Coffee", "Gloom"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Lattice(()), "expected at least one attribute"),
        (
            lambda: Lattice((PAPER[0], MetreCells("location"))),
            "attribute 'location': expected it once, got it 2 times",
        ),
        (lambda: Lattice(PAPER, ((1, 0, 0), (0, 2, 2))), r"got \(1, 0, 0\) and \(0, 2, 2\)"),
        (lambda: Lattice(PAPER, ((1, 0, 0),)), "between: expected the finest and the coarsest levels"),  # type: ignore[arg-type]
        (lambda: Lattice(PAPER, ((1, 0, 0), (7, 2, 2))), "expected a level of location from 0 to 6, got 7"),
        (lambda: Lattice([Steps(f"q{i}", BUSINESSES) for i in range(9)]), "at most 100000 levels, got 1953125"),
    ],
)
def test_hierarchies_that_cannot_be_meant_are_refused(make: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        make()
