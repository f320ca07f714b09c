"""Minimum users: margins against exact tails, and cuts whose every block has enough users, noise or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import binom, gamma, norm

from tacit.deliver.protocol.cuts import Cut, CutBlock, finest_cut, finest_cut_with_remainders
from tacit.deliver.protocol.minimum_users import (
    Margin,
    MinimumUsers,
    discrete_laplace_margin,
    normal_margin,
)
from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree
from tests.support.random_trees import is_finer, is_partition, random_tree

PROBABILITIES = (1e-3, 1e-6, 2e-11)


def normal_tail(noise_sd: float, counts: int, margin: float) -> float:
    return float(norm.sf(margin / noise_sd / np.sqrt(counts)))


def laplace_tail(noise_sd: float, counts: int, margin: float) -> float:
    """A sum of n Laplace noises is the difference of two gamma variables of shape n."""
    reach = margin / (noise_sd / np.sqrt(2))
    below = gamma.isf(1e-17, counts)
    inside = quad(
        lambda y: gamma.pdf(y, counts) * gamma.sf(reach + y, counts), 0, below, limit=500, epsabs=0, epsrel=1e-9
    )
    return float(inside[0])


def discrete_laplace_tail(noise_sd: float, counts: int, margin: float) -> float:
    """By adding up: the variance is 2 a / (1 - a)^2 for weights a^|k|."""
    variance = noise_sd**2
    a = (variance + 1 - np.sqrt(2 * variance + 1)) / variance
    most = int(np.ceil(np.log(1e-18) / np.log(a)))
    one = a ** np.abs(np.arange(-most, most + 1)) * (1 - a) / (1 + a)
    spread = (one * np.arange(-most, most + 1) ** 2).sum()
    assert spread == pytest.approx(variance, rel=1e-6)
    law = np.array([1.0])
    for _ in range(counts):
        law = np.convolve(law, one)
    return float(law[np.arange(len(law)) - len(law) // 2 >= margin - 1e-9].sum())


KINDS: dict[str, tuple[Margin, Margin, float]] = {
    "normal": (normal_margin, normal_tail, 10.0),
    "discrete laplace": (discrete_laplace_margin, discrete_laplace_tail, 10.0),
    "narrow discrete laplace": (discrete_laplace_margin, discrete_laplace_tail, 0.7),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counts", [1, 2, 5, 30])
@pytest.mark.parametrize("probability", PROBABILITIES)
def test_noise_reaches_its_margin_as_rarely_as_said(kind: str, counts: int, probability: float) -> None:
    margin, tail, noise_sd = KINDS[kind]
    needed = margin(noise_sd, counts, probability)
    assert tail(noise_sd, counts, needed) <= probability * (1 + 1e-6)
    enough = 0.99 if margin is normal_margin or counts == 1 else 0.7  # exact, or a bound
    less = enough * needed - (margin is discrete_laplace_margin)  # whole numbers have steps
    assert tail(noise_sd, counts, less) > probability


@pytest.mark.parametrize("heavy", [laplace_tail, discrete_laplace_tail])
def test_the_margins_of_normal_noise_do_not_do_for_another_kind(heavy: Margin) -> None:
    """The twin: Laplace noise of the same deviation reaches them a million times as often."""
    assert heavy(10.0, 1, normal_margin(10.0, 1, 2e-11)) > 1e6 * 2e-11


@pytest.mark.parametrize("margin", [normal_margin, discrete_laplace_margin])
def test_margins_grow_with_counts_and_with_rarity(margin: Margin) -> None:
    by_counts = [margin(3.0, counts, 1e-9) for counts in range(1, 40)]
    assert by_counts == sorted(by_counts)
    assert by_counts[-1] < 39 * by_counts[0] / 2  # less than each by itself
    by_rarity = [margin(3.0, 7, 10.0**-power) for power in range(1, 15)]
    assert by_rarity == sorted(by_rarity)


Floats = NDArray[np.float64]
Visits = dict[str, set[int]]  # the users seen at each leaf


def visits(rng: np.random.Generator, tree: Tree, users: int) -> Visits:
    """Each user goes to a few leaves, so that counts of children do not add up."""
    seen: Visits = {leaf: set() for leaf in tree.leaves()}
    popular = rng.dirichlet(np.full(len(seen), 0.5))
    for user in range(users):
        for leaf in rng.choice(list(seen), size=3, p=popular):
            seen[str(leaf)].add(user)
    return seen


def users_in(tree: Tree, seen: Visits, block: CutBlock) -> int:
    return len(set().union(*(seen[leaf] for leaf in block.leaves(tree))))


def counted(tree: Tree, seen: Visits) -> dict[str, float]:
    return {node: float(users_in(tree, seen, CutBlock(node))) for node in tree.nodes}


def sets(cut: Cut) -> list[frozenset[str]]:
    return [frozenset(block.leaves(cut.tree)) for block in cut.blocks]


def test_every_block_has_the_users() -> None:
    rests = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, 30)
        seen = visits(rng, tree, 60)
        rule = MinimumUsers(tree, counted(tree, seen), 10)
        plain, found = finest_cut(tree, rule.whole), finest_cut_with_remainders(tree, rule, rule.size)
        assert plain is not None
        assert found is not None
        assert is_partition(tree, sets(found))
        assert is_finer(sets(found), sets(plain))
        assert min(users_in(tree, seen, block) for block in (*plain.blocks, *found.blocks)) >= 10
        rests += any(block.without for block in found.blocks)
    assert rests > 20


def test_adding_up_children_would_be_wrong() -> None:
    """The twin: 12 users by the sum of two children, of whom there are 6."""
    tree = Tree.of_paths(["Big", "A", "B"])
    six, others = set(range(6)), set(range(100, 130))
    seen: Visits = {"Big": others | six, "A": six, "B": six}
    rule = MinimumUsers(tree, counted(tree, seen), 10)
    rest = CutBlock("*", ("Big",))
    assert sum(len(seen[leaf]) for leaf in rest.leaves(tree)) >= 10
    assert not rule(rest)
    assert users_in(tree, seen, rest) == 6


def test_the_rest_counts_by_its_largest_child_too() -> None:
    tree = Tree.of_paths(["Big", "A", "B"])
    people = set(range(20))
    rule = MinimumUsers(tree, counted(tree, {"Big": people, "A": people, "B": set()}), 10)
    assert rule(CutBlock("*", ("Big",)))  # 20 less 20 is none, yet A alone has 20


def four_deviations(noise_sd: float, counts: int, probability: float) -> float:
    """A margin by hand, which does not look at the probability."""
    del probability
    return 4 * noise_sd * math.sqrt(counts)


def one_deviation(noise_sd: float, counts: int, probability: float) -> float:
    return four_deviations(noise_sd, counts, probability) / 4


def test_noisy_counts_must_pass_by_the_margin() -> None:
    tree = Tree.of_paths(["A", "B", "C"])
    rule = MinimumUsers(tree, {"*": 200.0, "A": 50.0, "B": 49.9, "C": 20.0}, 10, 10.0, four_deviations)
    assert rule.whole("A")
    assert not rule.whole("B")
    assert rule(CutBlock("*", ("A",)))
    assert 200 - 50 - 49.9 - 4 * 10 * np.sqrt(3) > 10
    assert rule(CutBlock("*", ("A", "B")))
    users = {**rule.users, "*": 178.0}
    assert not MinimumUsers(tree, users, 10, 10.0, four_deviations)(CutBlock("*", ("A", "B")))


def test_each_try_has_its_share_of_the_failure() -> None:
    asked: list[tuple[float, int, float]] = []

    def noted(noise_sd: float, counts: int, probability: float) -> float:
        asked.append((noise_sd, counts, probability))
        return 0.0

    tree = Tree.of_paths(["A", "B", "C"])
    rule = MinimumUsers(tree, {"*": 9.0, "A": 5.0, "B": 3.0, "C": 2.0}, 4, 2.0, noted, failure=0.06)
    assert rule(CutBlock("*", ("A",)))
    ((noise_sd, counts, probability),) = asked
    assert (noise_sd, counts) == (2.0, 2)
    assert probability == pytest.approx(0.06 / 12)


def test_a_rest_that_its_noise_may_have_picked_has_a_whole_margin_for_each_count() -> None:
    """Without the two largest children the margin is that of a sum; without others, of each by itself."""
    tree = Tree.of_paths(["A", "B", "C"])
    rule = MinimumUsers(tree, {"*": 120.0, "A": 9.0, "B": 8.0, "C": 7.0}, 10, 10.0, four_deviations)
    assert rule(CutBlock("*", ("A", "B")))
    assert 120 - 17 - 40 * math.sqrt(3) > 10 > 120 - 16 - 40 * 3
    assert not rule(CutBlock("*", ("A", "C")))
    equal = MinimumUsers(tree, {"*": 120.0, "A": 8.0, "B": 8.0, "C": 8.0}, 10, 10.0, four_deviations)
    passed = [equal(CutBlock("*", pair)) for pair in (("A", "B"), ("A", "C"), ("B", "C"))]
    assert passed == [False, False, True]  # of equals, one order only


@cache
def flat_tree() -> Tree:
    return Tree.of_paths([*(f"p{at}" for at in range(20_000)), "big"])


def a_cut_fails(margin: Margin, noise: Callable[[int], Floats], cuts: int) -> bool:
    """Whether one of 20,000 places with 999 users is a block where 1,000 are asked for, in one of some cuts."""
    tree = flat_tree()
    for _ in range(cuts):
        users = dict(zip(tree.nodes, (999 + 10 * noise(len(tree))).tolist(), strict=True))
        rule = MinimumUsers(tree, users | {"big": 50_000.0, "*": 20_048_000.0}, 1000, 10.0, margin)
        cut = finest_cut_with_remainders(tree, rule, rule.size)
        assert cut is not None
        if any(block.node not in ("*", "big") for block in cut.blocks):
            return True
    return False


def discrete_laplace(rng: np.random.Generator, count: int) -> Floats:
    """Of deviation 10, in deviations: the difference of two geometric variables, weights a^|k|."""
    a = (101 - np.sqrt(201)) / 100
    first, second = rng.geometric(1 - a, size=(2, count))
    drawn: Floats = (first - second) / 10
    return drawn


@pytest.mark.parametrize("kind", ["normal", "discrete laplace"])
def test_no_place_just_below_the_minimum_is_a_block(kind: str) -> None:
    """False alarm probability 5e-6 at most, that of five cuts with a failure of 1e-6 each."""
    rng = np.random.default_rng(1)
    if kind == "normal":
        assert not a_cut_fails(normal_margin, rng.standard_normal, 3)
    else:
        assert not a_cut_fails(discrete_laplace_margin, lambda n: discrete_laplace(rng, n), 5)


@pytest.mark.slow
def test_the_same_cuts_catch_margins_that_are_too_small() -> None:
    """Twins: four deviations whatever the tries, at 0.41 a cut; normal margins for Laplace noise, at 0.74.

    They pass unseen with probability exp(-4.1) and exp(-7.4).
    """
    rng = np.random.default_rng(2)
    assert a_cut_fails(four_deviations, rng.standard_normal, 10)
    assert a_cut_fails(normal_margin, lambda n: rng.laplace(size=n) / math.sqrt(2), 10)


def test_cuts_with_rests_fail_as_rarely_as_said() -> None:
    """20 towns with places of 30, 30, 30 and 9 users, 10 asked for, a failure of 0.2: cuts with a block of 9.

    False alarm probability 1e-9, by the binomial tail at that rate. The twin passes by one deviation.
    """
    tree = Tree.of_paths([f"t{town}>t{town} p{at}" for town in range(20) for at in range(4)])
    exact = {node: (2000, 99, 9 if node.endswith("p3") else 30)[tree.depth(node)] for node in tree.nodes}
    rng, cuts, failed, rests = np.random.default_rng(4), 200, {"ours": 0, "twin": 0}, 0
    for _ in range(cuts):
        noisy = {node: count + float(rng.normal(0, 2.0)) for node, count in exact.items()}
        for name, margin in (("ours", normal_margin), ("twin", one_deviation)):
            rule = MinimumUsers(tree, noisy, 10, 2.0, margin, failure=0.2)
            cut = finest_cut_with_remainders(tree, rule, rule.size)
            assert cut is not None
            rests += any(block.without for block in cut.blocks)
            of_blocks = [sum(exact[leaf] for leaf in block.leaves(tree)) for block in cut.blocks]
            failed[name] += min(of_blocks) < 10
    assert rests == 2 * cuts
    assert failed["ours"] <= binom.isf(1e-9, cuts, 0.2) < failed["twin"]
    assert failed["ours"] > 0  # near enough to be tried


def test_a_rest_that_was_picked_for_its_noise_does_not_pass() -> None:
    """Of 200 children with 100 users each, the 100 of lowest noise are left out of a rest of 999 users.

    What they are short of is some 80 deviations in all, where a sum of as many counts may be short of 61.
    """
    tree = Tree.of_paths([f"p{at}" for at in range(200)])
    noise = dict(zip(tree.nodes, np.random.default_rng(3).normal(0, 10.0, len(tree)).tolist(), strict=True))
    lowest = sorted(tree.children("*"), key=noise.__getitem__)[:100]
    without = tuple(child for child in tree.children("*") if child in lowest)
    noisy = {node: 100 + noise[node] for node in tree.nodes} | {"*": 100 * 100 + 999.0}
    rule = MinimumUsers(tree, noisy, 1000, 10.0, normal_margin)
    known = noisy["*"] - sum(noisy[child] for child in without)
    assert known - normal_margin(10.0, 101, rule.failure / (3 * 201)) > 1000  # the twin passes
    assert not rule(CutBlock("*", without))


def test_negative_counts_are_too_few() -> None:
    tree = Tree.of_paths(["A", "B"])
    rule = MinimumUsers(tree, {"*": -5.0, "A": -1.0, "B": 2.0}, 1, noise_sd=1.0, noise=normal_margin)
    assert finest_cut_with_remainders(tree, rule, rule.size) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": {"*": 1.0, "A": 1.0}}, "node 'B': expected a finite count of users"),
        ({"users": {"*": 1.0, "A": float("nan"), "B": 1.0}}, "node 'A': expected a finite count of users"),
        ({"at_least": 0}, "expected at_least to be a whole number >= 1"),
        ({"noise_sd": -1.0}, "expected noise_sd >= 0"),
        ({"noise_sd": 1.0}, "expected a kind of noise for noise_sd > 0"),
        ({"failure": 0.0}, r"expected failure in \(0, 1\)"),
        ({"users": {"*": 1.0, "A": -1.0, "B": 1.0}}, "node 'A': expected a count of users >= 0, got -1"),
        (
            {"users": {"*": 5.0, "A": 5.0, "B": 6.0}},
            r"node 'B': expected at most the 5 users of '\*' above it, got 6",
        ),
        (
            {"users": {"*": 9.0, "A": 5.0, "B": 3.0}},
            r"node '\*': expected at most the 8 users of its children together, got 9",
        ),
    ],
)
def test_bad_rules(change: dict[str, object], message: str) -> None:
    arguments = {"users": {"*": 1.0, "A": 1.0, "B": 1.0}, "at_least": 1} | change
    with pytest.raises(BadInput, match=message):
        MinimumUsers(Tree.of_paths(["A", "B"]), **arguments)  # type: ignore[arg-type]


def test_counts_at_the_edge_of_what_is_possible_are_taken() -> None:
    tree = Tree.of_paths(["A>A1", "A>A2", "B"])
    for users in (
        {"*": 8, "A": 5, "A1": 5, "A2": 5, "B": 3},
        {"*": 5, "A": 5, "A1": 2, "A2": 3, "B": 0},
        {"*": 0.6, "A": 0.5, "A1": 0.2, "A2": 0.3, "B": 0.1},
    ):
        MinimumUsers(tree, users, 1)
    MinimumUsers(
        tree, {"*": 1, "A": -50, "A1": 20, "A2": 20, "B": 30}, 20, 10.0, normal_margin
    )  # noise may do that
