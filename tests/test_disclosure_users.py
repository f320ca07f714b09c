"""No block with too few users: against true users drawn for random trees, with public counts and noisy ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from random_trees import is_finer, is_partition, random_tree
from tacit.deliver.disclosure.blocks import Block, Cut
from tacit.deliver.disclosure.cuts import finest_cut
from tacit.deliver.disclosure.remainders import finest_cut_with_rests
from tacit.deliver.disclosure.users import MinimumUsers
from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree

Visits = dict[str, set[int]]  # the users seen at each leaf


def visits(rng: np.random.Generator, tree: Tree, users: int) -> Visits:
    """Each user goes to a few leaves, so that counts of children do not add up."""
    seen: Visits = {leaf: set() for leaf in tree.leaves()}
    popular = rng.dirichlet(np.full(len(seen), 0.5))
    for user in range(users):
        for leaf in rng.choice(list(seen), size=3, p=popular):
            seen[str(leaf)].add(user)
    return seen


def users_in(tree: Tree, seen: Visits, block: Block) -> int:
    return len(set().union(*(seen[leaf] for leaf in block.leaves(tree))))


def counted(tree: Tree, seen: Visits) -> dict[str, float]:
    return {node: float(users_in(tree, seen, Block(node))) for node in tree.nodes}


def sets(cut: Cut) -> list[frozenset[str]]:
    return [frozenset(block.leaves(cut.tree)) for block in cut.blocks]


def test_every_block_has_the_users() -> None:
    rests = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, 30)
        seen = visits(rng, tree, 60)
        rule = MinimumUsers(tree, counted(tree, seen), 10)
        plain, found = finest_cut(tree, rule.whole), finest_cut_with_rests(tree, rule, rule.size)
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
    rest = Block("*", ("Big",))
    assert sum(len(seen[leaf]) for leaf in rest.leaves(tree)) >= 10
    assert not rule(rest)
    assert users_in(tree, seen, rest) == 6


def test_the_rest_counts_by_its_largest_child_too() -> None:
    tree = Tree.of_paths(["Big", "A", "B"])
    people = set(range(20))
    rule = MinimumUsers(tree, counted(tree, {"Big": people, "A": people, "B": set()}), 10)
    assert rule(Block("*", ("Big",)))  # 20 less 20 is none, yet A alone has 20


def test_noisy_counts_must_pass_by_z_deviations() -> None:
    tree = Tree.of_paths(["A", "B", "C"])
    rule = MinimumUsers(tree, {"*": 200.0, "A": 50.0, "B": 49.9, "C": 20.0}, 10, noise_sd=10.0, z=4.0)
    assert rule.whole("A")
    assert not rule.whole("B")
    assert rule(Block("*", ("A",)))
    assert 200 - 50 - 49.9 - 4 * 10 * np.sqrt(3) > 10
    assert rule(Block("*", ("A", "B")))
    assert not MinimumUsers(tree, {**rule.users, "*": 178.0}, 10, 10.0, 4.0)(Block("*", ("A", "B")))


def test_too_few_pass_as_rarely_as_said() -> None:
    """9 users where 10 are asked for: at z = 2, one count lets them pass with probability at most 2.3 %.

    False alarm probability 1e-9, by the binomial tail at that rate.
    """
    tree = Tree.of_paths(["A", "B"])
    rng = np.random.default_rng(0)
    noisy = 9 + rng.normal(0, 10.0, 10_000)
    passes = sum(
        MinimumUsers(tree, {"*": 0.0, "A": count, "B": 0.0}, 10, noise_sd=10.0, z=2.0).whole("A")
        for count in noisy.tolist()
    )
    most = binom.isf(1e-9, 10_000, norm.sf(2.0))
    assert 0 < passes <= most < 10_000 * norm.sf(1.5)  # the twin that asks for half a deviation less


def test_negative_counts_are_too_few() -> None:
    tree = Tree.of_paths(["A", "B"])
    rule = MinimumUsers(tree, {"*": -5.0, "A": -1.0, "B": 2.0}, 1, noise_sd=1.0)
    assert finest_cut_with_rests(tree, rule, rule.size) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": {"*": 1.0, "A": 1.0}}, "node 'B': expected a finite count of users"),
        ({"users": {"*": 1.0, "A": float("nan"), "B": 1.0}}, "node 'A': expected a finite count of users"),
        ({"at_least": 0}, "expected at_least to be a whole number >= 1"),
        ({"noise_sd": -1.0}, "expected noise_sd >= 0"),
        ({"z": -1.0}, "expected z >= 0"),
    ],
)
def test_bad_rules(change: dict[str, object], message: str) -> None:
    arguments = {"users": {"*": 1.0, "A": 1.0, "B": 1.0}, "at_least": 1} | change
    with pytest.raises(BadInput, match=message):
        MinimumUsers(Tree.of_paths(["A", "B"]), **arguments)  # type: ignore[arg-type]
