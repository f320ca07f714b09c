"""Who counts as crowd: classes apart, the non-personal in their own lane, and words for too small a crowd."""

from __future__ import annotations

import doctest
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tacit.errors import BadInput, NoFiniteGuarantee
from tacit.privacy import shuffling
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling import ReportClass, amplification, cohort, standings
from tacit.privacy.shuffling.mechanism import Rows

MENU = ("boots", "books", "bikes")


def response(choices: int, odds: int) -> Rows:
    whole = odds + choices - 1
    return tuple(tuple(Fraction(odds if x == y else 1, whole) for y in range(choices)) for x in range(choices))


def three_way(**changes: object) -> ReportClass:
    return ReportClass(**{"menu": MENU, "local_epsilon": Fraction(3), "mechanism": response(3, 20), **changes})  # type: ignore[arg-type]


def test_each_class_stands_on_its_own() -> None:
    mine, elsewhere = three_way(), three_way(metadata=(("price list", "B"),))
    found = standings([mine] * 3_000 + [elsewhere] * 500, 1e-6)
    assert {kind: standing.members for kind, standing in found.items()} == {mine: 3_000, elsewhere: 500}
    for kind, members in ((mine, 3_000), (elsewhere, 500)):
        alone = shuffling.epsilon(ShuffledChoice(Fraction(3), members, response(3, 20)), 1e-6)
        assert found[kind].epsilon == alone
    assert found[mine].epsilon < found[elsewhere].epsilon < 3


@pytest.mark.parametrize(
    "other",
    [
        three_way(menu=("boots", "books", "trips")),
        three_way(mechanism=response(3, 19)),
        three_way(local_epsilon=Fraction(7, 2)),
        three_way(metadata=(("context", "morning"),)),
        three_way(mechanism=(), floors=(Fraction(1, 22), Fraction(1, 22), Fraction(2, 22))),
    ],
)
def test_any_public_difference_parts_the_crowd(other: ReportClass) -> None:
    assert standings([three_way(), other], 1e-6)[three_way()].members == 1


def test_the_order_of_metadata_is_no_difference() -> None:
    pairs = (("context", "morning"), ("price list", "B"))
    assert three_way(metadata=pairs) == three_way(metadata=pairs[::-1])


def test_counting_another_class_would_be_wrong() -> None:
    """Others who only ever choose among two leave the third choice exposed, however many they are."""
    victim = np.array([[float(p) for p in row] for row in response(3, 20)])
    others = np.array([float(Fraction(20, 21)), float(Fraction(1, 21)), 0.0])
    for members in (3, 8, 12):
        laws = []
        for truth in (2, 0):
            law = {(0, 0): 1.0}
            for row in (victim[truth], *[others] * (members - 1)):
                grown: dict[tuple[int, int], float] = {}
                for ((third, second), weight), choice in itertools.product(law.items(), range(3)):
                    key = (third + (choice == 2), second + (choice == 1))
                    grown[key] = grown.get(key, 0.0) + weight * row[choice]
                law = grown
            laws.append(law)
        exact = sum(max(0.0, weight - math.e * laws[1].get(key, 0.0)) for key, weight in laws[0].items())
        counted = shuffling.delta(ShuffledChoice(Fraction(3), members, response(3, 20)), 1)
        assert exact > counted
        assert exact == pytest.approx(20 / 22 - math.e / 22, abs=0.06)  # as if nobody else were there


def test_choices_that_depend_on_nothing_private_hide_nobody() -> None:
    lane = three_way(mechanism=((Fraction(1), Fraction(0), Fraction(0)),))
    found = standings([lane] * 10_000 + [three_way()] * 2, 1e-6)
    assert not lane.personal
    assert (found[lane].epsilon, found[lane].delta, found[lane].hidden) == (0.0, 0.0, False)
    assert str(found[lane]) == "10,000 reports depend on nothing private: they spend nothing and hide nobody"
    assert found[three_way()].members == 2


def test_a_cohort_that_is_too_small_says_so() -> None:
    standing = standings([three_way()] * 2, 1e-6)[three_way()]
    assert standing.epsilon == 3
    assert not standing.hidden
    assert (
        str(standing) == "a cohort of 2 is too small to hide in at δ = 1e-06: each member keeps its local ε = 3"
    )


def test_a_cohort_that_hides_says_how_well() -> None:
    standing = standings([three_way()] * 5_000, 1e-6)[three_way()]
    assert standing.hidden
    assert (
        str(standing) == f"5,000 members hide each other: ε = {standing.epsilon:.4g} at δ = 1e-06, local ε = 3"
    )


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(BadInput, match="empty cohort"):
        standings([], 1e-6)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"menu": ()}, "distinct choices"),
        ({"menu": ("boots", "boots", "bikes")}, "distinct choices"),
        ({"menu": ("boots", "books")}, "one floor per choice"),
        ({"mechanism": ()}, "one floor per choice"),
        ({"floors": (Fraction(1, 22),) * 2 + (Fraction(2, 22),)}, "smallest entries"),
        ({"mechanism": (), "floors": (Fraction(1, 2),) * 3}, "sum to between"),
        ({"mechanism": (), "floors": (Fraction(0),) * 3}, "sum to between"),
        ({"mechanism": (), "floors": (Fraction(1, 300),) * 3}, "sum to between"),
        ({"mechanism": (), "floors": (-1, 0, 1)}, "floor"),
        ({"local_epsilon": 0}, "local_epsilon"),
        ({"local_epsilon": math.nan}, "local_epsilon"),
        ({"local_epsilon": 1}, "ratios"),
        ({"mechanism": ((Fraction(1), 0, 0), (0, Fraction(1), 0))}, "under every input"),
    ],
)
def test_classes_that_cannot_be_are_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        three_way(**changes)


def test_no_crowd_is_large_enough_for_a_delta_of_nothing() -> None:
    assert shuffling.cohort_needed(3, 0, local_epsilon=3) == 1
    with pytest.raises(NoFiniteGuarantee, match="got none that does"):
        shuffling.cohort_needed(1, 0, local_epsilon=3)


@pytest.mark.parametrize("target", [0, -1, math.nan, math.inf])
def test_bad_targets_are_refused(target: float) -> None:
    with pytest.raises(BadInput, match="target_epsilon"):
        shuffling.cohort_needed(target, 1e-6, local_epsilon=3)


def test_the_examples_in_the_docstrings() -> None:
    for module in (amplification, cohort):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0
