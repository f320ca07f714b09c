"""Counts that add up: against a dense least-squares solution, and what they gain; the simplex projection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from tacit.errors import BadInput
from tacit.gather.estimate.consistency import NO_PARENT, Tier, consistent
from tacit.gather.estimate.projection import non_negative, on_simplices

Floats = NDArray[np.float64]


def drawn_forest(rng: np.random.Generator, tiers: int, most: int, unmeasured: float = 0.0) -> list[Tier]:
    """Ragged: some nodes have no children, some have no parent; variances over three orders of magnitude."""
    found: list[Tier] = []
    above = 0
    for _ in range(tiers):
        nodes = int(rng.integers(1, most + 1))
        parent = rng.integers(NO_PARENT, above, nodes) if above else np.full(nodes, NO_PARENT)
        variance = 10 ** rng.uniform(-1, 2, nodes)
        found.append(Tier(rng.normal(0, 50, nodes), variance, np.asarray(parent, np.int64)))
        above = nodes
    for at in range(tiers - 1):
        inner = np.isin(np.arange(len(found[at].value)), found[at + 1].parent)
        lost = inner & (rng.random(len(inner)) < unmeasured)
        found[at] = Tier(found[at].value, np.where(lost, np.inf, found[at].variance), found[at].parent)
    return found


def least_squares(tiers: list[Tier]) -> tuple[list[Floats], list[Floats]]:
    """The same by a dense solve over the leaves: every node is the sum of the leaves below it."""
    leaf_of: dict[tuple[int, int], int] = {}
    for at, tier in enumerate(tiers):
        below = tiers[at + 1].parent if at + 1 < len(tiers) else np.zeros(0, np.int64)
        for node in range(len(tier.value)):
            if node not in below:
                leaf_of[at, node] = len(leaf_of)
    rows = [np.zeros((len(tier.value), len(leaf_of))) for tier in tiers]
    for at in range(len(tiers) - 1, -1, -1):
        for node in range(len(tiers[at].value)):
            if (at, node) in leaf_of:
                rows[at][node, leaf_of[at, node]] = 1
            if at and tiers[at].parent[node] >= 0:
                rows[at - 1][tiers[at].parent[node]] += rows[at][node]
    design = np.vstack(rows)
    weight = 1 / np.concatenate([tier.variance for tier in tiers])
    value = np.concatenate([tier.value for tier in tiers])
    precision = design.T @ (weight[:, None] * design)
    leaves = np.linalg.solve(precision, design.T @ (weight * value))
    covariance = np.linalg.inv(precision)
    return [row @ leaves for row in rows], [np.einsum("ij,jk,ik->i", row, covariance, row) for row in rows]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tiers=st.integers(1, 5),
    most=st.integers(1, 14),
    unmeasured=st.sampled_from([0, 0.5]),
)
def test_equals_generalised_least_squares(seed: int, tiers: int, most: int, unmeasured: float) -> None:
    forest = drawn_forest(np.random.default_rng(seed), tiers, most, unmeasured)
    values, variances = least_squares(forest)
    for tier, value, variance in zip(consistent(forest), values, variances, strict=True):
        assert np.allclose(tier.value, value, rtol=1e-9, atol=1e-9)
        assert np.allclose(tier.variance, variance, rtol=1e-9, atol=1e-9)


def test_families_add_up_and_variances_never_grow() -> None:
    forest = drawn_forest(np.random.default_rng(7), 5, 400)
    found = consistent(forest)
    for at, tier in enumerate(found):
        assert (tier.variance <= forest[at].variance * (1 + 1e-12)).all()
        if at:
            family = np.unique(tier.parent[tier.parent >= 0])
            sums = tier.sums(tier.value, len(found[at - 1].value))
            assert np.allclose(sums[family], found[at - 1].value[family], atol=1e-8)


def even_tree(
    rng: np.random.Generator, leaves: NDArray[np.int64], branch: int, sd: float
) -> tuple[list[Tier], list[Floats]]:
    """Noisy counts of a tree over these leaves, the top first, and the true ones."""
    true, tiers = [leaves.astype(np.float64)], []
    while len(true[0]) > 1:
        true.insert(0, true[0].reshape(-1, branch).sum(1))
    for at, counts in enumerate(true):
        nodes = len(counts)
        parent = np.arange(nodes) // branch if at else np.full(nodes, NO_PARENT)
        noisy = counts + rng.normal(0, sd, nodes)
        tiers.append(Tier(noisy, np.full(nodes, sd**2), np.asarray(parent, np.int64)))
    return tiers, true


def test_leaves_come_closer_twice() -> None:
    """Sparse leaves, as contexts are: consistency helps a little and the projection a good deal."""
    rng, sd = np.random.default_rng(3), 20.0
    leaves = np.floor(rng.pareto(0.8, 4**6) * 4).astype(np.int64).clip(0, 2000)
    tiers, true = even_tree(rng, leaves, 4, sd)
    added = consistent(tiers)
    kept = non_negative(added)

    def error(counts: Floats) -> float:
        return float(np.sqrt(np.mean((counts - true[-1]) ** 2))) / sd

    raw, adding_up, projected = error(tiers[-1].value), error(added[-1].value), error(kept[-1])
    # 4096 leaves: a relative error of about 1 / sqrt(2 * 4096) = .011 in each.
    assert raw == pytest.approx(1, abs=0.05)
    assert adding_up == pytest.approx(np.sqrt(added[-1].variance.mean()) / sd, abs=0.05)
    assert adding_up < 0.92
    assert projected < 0.85 * adding_up
    assert all((counts >= 0).all() for counts in kept)
    for above, below, tier in zip(kept, kept[1:], added[1:], strict=False):
        assert np.allclose(tier.sums(below, len(above)), above, atol=1e-6)


def test_wrong_variances_lose_what_consistency_gains() -> None:
    """A twin: taken as equal where they are not, variances give a worse tree than the right ones."""
    rng = np.random.default_rng(11)
    right, wrong = 0.0, 0.0
    for _ in range(40):
        tiers, true = even_tree(rng, rng.poisson(20, 64), 4, 1.0)
        scale = [10 ** rng.uniform(0, 2, len(tier.value)) for tier in tiers]
        noisy = [t + s * rng.normal(size=len(t)) for t, s in zip(true, scale, strict=True)]
        honest = [Tier(n, s**2, t.parent) for n, s, t in zip(noisy, scale, tiers, strict=True)]
        equal = [Tier(n, np.ones(len(n)), t.parent) for n, t in zip(noisy, tiers, strict=True)]
        right += float(((consistent(honest)[-1].value - true[-1]) ** 2).mean())
        wrong += float(((consistent(equal)[-1].value - true[-1]) ** 2).mean())
    assert right < 0.9 * wrong


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), families=st.integers(1, 6))
def test_simplex_points_are_the_nearest(seed: int, families: int) -> None:
    """Against the conditions that characterise the projection: one shift a family, and none below zero."""
    rng = np.random.default_rng(seed)
    family = np.sort(rng.integers(0, families, 25))
    value, variance = rng.normal(0, 10, 25), 10 ** rng.uniform(-1, 1, 25)
    total = np.where(rng.random(families) < 0.2, 0.0, rng.exponential(20, families))
    shuffled = rng.permutation(25)
    found = np.empty(25)
    found[shuffled] = on_simplices(value[shuffled], variance[shuffled], family[shuffled], total)
    assert (found >= 0).all()
    for each in np.unique(family):
        mine = family == each
        assert found[mine].sum() == pytest.approx(total[each], abs=1e-9)
        shift = (value[mine] - found[mine]) / variance[mine]
        above = found[mine] > 1e-9
        if above.any():
            assert np.ptp(shift[above]) < 1e-7
            assert (shift[~above] <= shift[above].min() + 1e-7).all()


def test_the_projection_is_a_constrained_minimum() -> None:
    value, variance = np.array([5.0, -3.0, 1.0, 0.5]), np.array([1.0, 4.0, 0.5, 2.0])
    found = on_simplices(value, variance, np.zeros(4, np.int64), np.array([3.0]))
    best = minimize(
        lambda u: ((u - value) ** 2 / variance).sum(),
        np.full(4, 0.75),
        bounds=[(0, None)] * 4,
        constraints={"type": "eq", "fun": lambda u: u.sum() - 3},
    )
    assert np.allclose(found, best.x, atol=1e-5)


def test_trees_that_are_none() -> None:
    one = np.ones(1)
    top = Tier(one, one, np.array([NO_PARENT]))
    for tiers, match in (
        ([], "at least one tier"),
        ([Tier(one, one, np.array([0]))], "tier 0: expected parents among 0"),
        ([top, Tier(one, one, np.array([1]))], "tier 1: expected parents among 1"),
        ([Tier(one, np.array([np.inf]), np.array([NO_PARENT]))], "tier 0: expected counts"),
    ):
        with pytest.raises(BadInput, match=match):
            consistent(tiers)
    with pytest.raises(BadInput, match="variances > 0"):
        Tier(one, np.zeros(1), np.array([NO_PARENT]))
    with pytest.raises(BadInput, match="one length"):
        Tier(one, np.ones(2), np.array([NO_PARENT]))
