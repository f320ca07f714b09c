"""The statistic's promise: exact sensitivities by brute force, noise as stated, and refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, EntropyMisuse, SelfCheckFailed
from tacit.privacy.accounting import epsilon as epsilon_of
from tacit.privacy.units import Relation, Unit, UnitKind, Window
from tacit.train.statistic import tables as tables_module
from tacit.train.statistic.method import NoisyStatistic
from tacit.train.statistic.release import ReleasedStatistic, StatisticPlan, StatisticPrior, release_statistic
from tacit.train.statistic.tables import (
    GRID,
    AlikeRows,
    CellTables,
    sensitivity,
    unit_norms,
    unit_weights,
)
from tests.support.exact_tests import ALPHA

KEYS = frozenset({"user", "publisher", "advertiser", "time"})
SURE = StatisticPrior(rate=0.5, value_variance=1e3, pair_variance=1e8)
"""So much signal that even a dozen rows are worth tables of pairs."""

UNITS = [
    Unit(UnitKind.IMPRESSION),
    Unit(UnitKind.USER),
    Unit(UnitKind.USER_PUBLISHER),
    Unit(UnitKind.USER_ADVERTISER),
    Unit(UnitKind.USER, Window.days(1)),
]


def small_log(seed: int, rows: int = 14) -> tuple[NDArray[np.int32], dict[str, NDArray[np.int64]]]:
    """Few values, so that rows of a unit share many cells; at most six rows per user."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, 3, (rows, 3)).astype(np.int32)
    keys = {name: draw.integers(0, 2, rows) for name in ("publisher", "advertiser")}
    return ids, {**keys, "user": np.arange(rows) // 6, "time": draw.integers(0, 3 * 86_400, rows)}


def planned(
    seed: int = 0, unit: Unit = UNITS[1], epsilon: float = 1, rows: int = 14, **options: float
) -> tuple[StatisticPlan, NDArray[np.int32]]:
    ids, keys = small_log(seed, rows)
    method = NoisyStatistic(**options, prior=SURE)  # type: ignore[arg-type]
    return method.plan(ids, keys, public=KEYS, unit=unit, epsilon=epsilon, delta=1e-5), ids


def dense_rows(plan: StatisticPlan) -> NDArray[np.float64]:
    """(rows, cells): the vectors themselves, in the scale of the shares and with weights, the slow way."""
    vectors = np.zeros((plan.cells.rows, plan.cells.count))
    for row, kind in enumerate(plan.cells.alike):
        for at in plan.cells.cell[kind]:
            if at < plan.cells.count:
                vectors[row, at] = 1
    return vectors * np.sqrt(plan.cells.by_table(plan.shares)) * plan.weights[:, None]


def units_by_definition(unit: Unit, keys: dict[str, NDArray[np.int64]]) -> list[tuple[int, ...]]:
    if unit.kind is UnitKind.IMPRESSION:
        return [(row,) for row in range(len(keys["user"]))]
    named = [keys[name].tolist() for name in unit.kind.key_columns]
    if unit.window:
        named.append([unit.window.index(second) for second in keys["time"].tolist()])
    return list(zip(*named, strict=True))


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("clip_norm", [0.7, 1.0, 2.5])
@pytest.mark.parametrize("rank", [0, 2])
def test_no_change_of_a_units_labels_moves_the_statistic_further_than_stated(
    unit: Unit, clip_norm: float, rank: int
) -> None:
    """Every change in {-1, 0, 1} of every row of every unit; and the worst of them is as bad as stated."""
    plan, _ = planned(3, unit, rank=rank, clip_norm=clip_norm)
    assert ((0, 1) in plan.tables.crossed) == bool(rank)
    vectors, owners = dense_rows(plan), units_by_definition(unit, small_log(3)[1])
    worst = 0.0
    for owner in set(owners):
        own = vectors[[row for row, who in enumerate(owners) if who == owner]]
        changes = np.array(list(product((-1, 0, 1), repeat=len(own))))
        worst = max(worst, float(np.linalg.norm(changes @ own, axis=1).max()))
    assert worst <= plan.release.sensitivity
    assert worst >= plan.release.sensitivity * (1 - 1e-6)
    assert plan.release.sensitivity <= clip_norm * (1 + 1e-6)


def test_forgetting_to_weigh_units_would_be_caught() -> None:
    """The twin: with all weights 1 the same search finds a user who moves it further than stated."""
    plan, _ = planned(3)
    vectors = dense_rows(plan) / plan.weights[:, None]
    assert np.linalg.norm(vectors[:6].sum(axis=0)) > 1.5 * plan.release.sensitivity


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=30), st.floats(0.1, 9))
def test_norms_and_weights_by_their_definitions(rows: list[tuple[int, int]], clip_norm: float) -> None:
    ids, owners = np.array([[value, value % 2] for _, value in rows]), np.array([owner for owner, _ in rows])
    units = np.unique(owners, return_inverse=True)[1]
    tables, _ = CellTables.of(ids, [(), (0,), (1,), (0, 1)])
    shares = np.array([0.1, 0.5, 0.2, 0.2])
    norms = unit_norms(tables.rows(ids), shares, units)
    for unit in range(units.max() + 1):
        mine = [tuple(row) for row in ids[units == unit].tolist()]
        counts = [[1] * len(mine), [a for a, _ in mine], [b for _, b in mine], mine]
        square = sum(
            share * sum(column.count(cell) ** 2 for cell in set(column))
            for share, column in zip(shares, counts, strict=True)
        )
        assert norms[unit] == pytest.approx(np.sqrt(square), rel=1e-12)
    weights = unit_weights(norms, clip_norm)
    assert (weights <= 1).all()
    assert (weights / GRID == np.round(weights / GRID)).all()
    assert (weights * norms <= clip_norm).all()
    assert (weights[norms <= clip_norm * (1 - 1e-6)] == 1).all()
    assert sensitivity(norms, weights) >= (weights * norms).max()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1), st.integers(0, 1)), max_size=40))
def test_rows_that_are_alike_are_kept_once_and_no_others_are(rows: list[tuple[int, int, int]]) -> None:
    ids = np.array(rows, np.int64).reshape(-1, 3)
    kinds = AlikeRows.of(ids)
    assert (kinds.ids[kinds.alike] == ids).all()
    assert len(kinds.ids) == len(set(rows))
    assert kinds.times.sum() == len(rows)


def test_a_clash_of_hashes_keeps_different_rows_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "_hashes", lambda ids, _: np.zeros(len(ids), np.uint64))
    ids = np.random.default_rng(1).integers(0, 3, (200, 2))
    kinds = AlikeRows.of(ids)
    assert (kinds.ids[kinds.alike] == ids).all()


def test_noise_that_was_not_paid_for_stops_a_release() -> None:
    class Quiet(Simulation):
        def normal(self, *shape: Any, **options: Any) -> Any:
            return 0.9 * super().normal(*shape, **options)

    draw = np.random.default_rng(5)
    ids = np.stack([draw.integers(0, 4_000, 9_000), draw.integers(0, 3_000, 9_000)], axis=1)
    plan = NoisyStatistic(rank=0).plan(ids, {}, public=KEYS, unit=UNITS[0], epsilon=1, delta=1e-5)
    with pytest.raises(SelfCheckFailed, match="noise of the statistic"):
        release_statistic(plan, np.zeros(9_000), Quiet(1), simulated=True)


@pytest.mark.parametrize("name", ["user", "publisher"])
def test_private_or_missing_unit_keys_are_refused(name: str) -> None:
    ids, keys = small_log(0)
    method, unit = NoisyStatistic(), Unit(UnitKind.USER_PUBLISHER)
    with pytest.raises(BadInput, match=rf"column '{name}' to be public"):
        method.plan(ids, keys, public=KEYS - {name}, unit=unit, epsilon=1, delta=1e-5)
    lacking = {key: column for key, column in keys.items() if key != name}
    with pytest.raises(BadInput, match=f"column '{name}' for unit"):
        method.plan(ids, lacking, public=KEYS, unit=unit, epsilon=1, delta=1e-5)


def test_open_windows_and_wrong_shapes_are_refused() -> None:
    ids, keys = small_log(0)
    method = NoisyStatistic()
    with pytest.raises(BadInput, match="only closed windows"):
        method.plan(ids, keys, public=KEYS, unit=UNITS[4], epsilon=1, delta=1e-5, now=86_400)
    with pytest.raises(BadInput, match="expected rows to learn from"):
        method.plan(ids[:0], keys, public=KEYS, unit=UNITS[1], epsilon=1, delta=1e-5)
    with pytest.raises(BadInput, match="expected keys of 13 rows, got 14"):
        method.plan(ids[:13], keys, public=KEYS, unit=UNITS[1], epsilon=1, delta=1e-5)
    with pytest.raises(BadInput, match=r"of shape \(rows, fields\)"):
        method.plan(ids[:, 0], keys, public=KEYS, unit=UNITS[1], epsilon=1, delta=1e-5)
    with pytest.raises(BadInput, match=r"of shape \(rows, fields\)"):
        method.plan(ids[:, :0], keys, public=KEYS, unit=UNITS[1], epsilon=1, delta=1e-5)
    with pytest.raises(BadInput, match="expected a clip_norm that lets rows count"):
        NoisyStatistic(clip_norm=1e-9).plan(ids, keys, public=KEYS, unit=UNITS[1], epsilon=1, delta=1e-5)


@pytest.mark.parametrize("asked", [0.5, 4])
def test_the_plan_keeps_the_epsilon_that_was_asked_for(asked: float) -> None:
    plan, _ = planned(epsilon=asked)
    accounted = epsilon_of(plan.release, delta=1e-5, relation=Relation.REPLACE_LABEL)
    assert 0.99 * asked < accounted <= asked
    assert plan.statement.epsilon == accounted
    assert plan.statement.relation is Relation.REPLACE_LABEL
    assert re.search(r"14 rows; label DP for one user: ε = \S+ at δ = 1e-05; sensitivity ", plan.words)


def test_only_the_cryptographic_stream_releases_unless_it_is_a_study() -> None:
    plan, _ = planned()
    labels = np.zeros(14)
    with pytest.raises(EntropyMisuse, match="got a simulation"):
        release_statistic(plan, labels, Simulation(1))
    assert release_statistic(plan, labels, Simulation(1), simulated=True).simulated
    assert not release_statistic(plan, labels, Entropy()).simulated


def test_bad_labels_are_refused_without_being_told() -> None:
    plan, _ = planned()
    for labels in (np.full(14, 7), np.full(14, np.nan)):
        with pytest.raises(BadInput) as refusal:
            release_statistic(plan, labels, Entropy())
        assert "7" not in str(refusal.value)
    with pytest.raises(BadInput, match="14 rows"):
        release_statistic(plan, np.zeros(13), Entropy())


def noise_is_as_stated(released: ReleasedStatistic, shrunk: float = 1.0) -> bool:
    """Noise over its standard deviation, squared and summed, is chi squared: wrong with ALPHA a table."""
    plan = released.plan
    fine = True
    for start, size, stated in zip(plan.cells.starts, plan.cells.sizes, plan.noise_by_table, strict=False):
        total = float(((shrunk * released.sums[start : start + size] / stated) ** 2).sum())
        fine &= 2 * min(chi2.cdf(total, size), chi2.sf(total, size)) >= ALPHA
    return bool(fine)


def test_noise_has_the_stated_deviation_in_every_table() -> None:
    draw = np.random.default_rng(5)
    ids = np.stack([draw.integers(0, 4_000, 9_000), draw.integers(0, 3_000, 9_000)], axis=1)
    plan = NoisyStatistic(rank=0).plan(ids, {}, public=KEYS, unit=UNITS[0], epsilon=1, delta=1e-5)
    assert plan.shares.sum() == pytest.approx(1)
    released = release_statistic(plan, np.zeros(9_000), Simulation("noise"), simulated=True)
    assert noise_is_as_stated(released)
    assert not noise_is_as_stated(released, shrunk=0.88)  # the twin: an eighth less noise
    assert not noise_is_as_stated(ReleasedStatistic(plan, np.repeat(released.sums[:1], plan.cells.count), True))


def test_sums_are_exact_and_no_digit_of_the_result_lies_off_the_grid() -> None:
    plan, ids = planned(1, rows=600)
    labels = np.random.default_rng(1).integers(0, 2, 600)
    order = np.random.default_rng(2).permutation(600)
    straight, turned = (
        release_statistic(plan_of, given, Simulation(3), simulated=True).sums
        for plan_of, given in ((plan, labels), (_reordered(plan, ids, order), labels[order]))
    )
    assert (straight == turned).all()  # to the last bit: the order of rows leaves no trace
    assert (straight / GRID == np.round(straight / GRID)).all()


def _reordered(plan: StatisticPlan, ids: NDArray[np.int32], order: NDArray[np.int64]) -> StatisticPlan:
    return replace(plan, cells=plan.tables.rows(ids[order]), weights=plan.weights[order])
