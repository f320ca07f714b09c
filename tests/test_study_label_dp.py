"""The label-DP studies: each at toy size for real, and the rules by which their findings hold or fail."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tacit.privacy.units import CapChoice, Split, UnitKind
from tacit.studies.label_dp import epsilons, setting, split, units, users
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.logs import prepared
from tacit.studies.plotting import Bars
from tacit.studies.registry import STUDIES, study
from tacit.studies.results import read
from tacit.studies.study import Asked, Finding, Scale
from tacit.train.examples import Examples
from tacit.train.methods import LabelDp, Plain
from toy_studies import toy_studies

OURS = [name for name in STUDIES if name.startswith("label-dp")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all toy runs: they share logs and trainings."""
    return tmp_path_factory.mktemp("label-dp")


def toy(folder: Path, seeds: int = 1) -> Asked:
    return Asked(folder, Scale.TOY, seeds=seeds, processes=1)


@pytest.mark.parametrize("name", toy_studies("label-dp"))
def test_every_study_runs_at_toy_size_and_leaves_its_files(name: str, folder: Path) -> None:
    if name == "label-dp-network":
        pytest.importorskip("torch")
    outcome = study(name).run(toy(folder))
    assert outcome.rows
    assert all(len(row) == len(outcome.columns) for row in outcome.rows)
    assert all(path.stat().st_size > 0 for path in outcome.files)
    assert "synthetic" in outcome.note
    assert [finding.id for finding in outcome.findings] == list(study(name).claims)
    assert all(finding.holds is None for finding in outcome.findings), "one seed decides nothing"
    assert read(folder, name)


def test_the_studies_speak_to_every_published_finding() -> None:
    assert sorted(claim for name in OURS for claim in study(name).claims) == ["L1", "L2", "L3", "L4", "L5"]


def test_units_are_counted_by_their_keys(folder: Path) -> None:
    ready = prepared(setting.log(toy(folder), 1), toy(folder).cache)
    found = users.UnitSizes(setting.log(toy(folder), 1)).measure(ready, None)  # type: ignore[arg-type]
    train = Examples.of(ready.columns, "train")
    for kind, names in {"user": ("user",), "user-publisher": ("user", "publisher")}.items():
        sizes = Counter(zip(*(train.key(name).tolist() for name in names), strict=True)).values()
        expected = Counter(min(size, users.MOST) for size in sizes)
        assert {count: found[f"{kind} {count}"] for count in expected} == dict(expected)
        assert found[f"{kind} largest"] == max(sizes)
        assert sum(count * found[f"{kind} {count}"] for count in range(1, users.MOST)) <= len(train)


def test_the_axis_of_the_counts_skips_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {f"user {count}": 5 if count in (1, 4) else 0 for count in range(1, users.MOST + 1)}
    record = {"examples": 25, "user mean": 2.5, "user largest": 4, **counted}
    drawn: list[Bars] = []
    monkeypatch.setattr(users, "run_all", lambda *_, **__: [record])
    monkeypatch.setattr(users, "bar_figure", lambda panels, **_: drawn.extend(panels))
    users.run(toy(tmp_path))
    assert list(drawn[0].labels) == [*map(str, range(1, users.MOST)), f"{users.MOST}+"]
    assert list(drawn[0].heights[:5]) == [5, 0, 0, 5, 0]


def test_an_arm_is_the_method_that_it_says() -> None:
    method = Arm(UnitKind.USER, 4, 2, Split.BY_CAP, CapChoice.RANDOM).method
    assert isinstance(method, LabelDp)
    assert (method.epsilon, method.unit.kind, method.cap.impressions) == (4, UnitKind.USER, 2)
    assert (method.cap.split, method.cap.choice) == (Split.BY_CAP, CapChoice.RANDOM)
    assert isinstance(Arm().method, Plain)
    assert Arm(UnitKind.USER, 4, 1, Split.BY_COUNT) == Arm(UnitKind.USER, 4, 1, Split.BY_CAP)


def test_the_loss_is_relative_to_the_same_model_at_the_same_seed() -> None:
    arm = Arm(epsilon=4)
    measured = Measurements(
        (arm,), (1, 2), {Arm(): [{"auc_loss": 0.2}, {"auc_loss": 0.4}], arm: [{"auc_loss": 0.3}] * 2}
    )
    assert measured.percent(arm) == pytest.approx([50.0, -25.0])


def made_up(losses: dict[Arm, list[float]]) -> Measurements:
    """Measurements with these losses in percent."""
    seeds = len(next(iter(losses.values())))
    by_arm = {arm: [{"auc_loss": 0.2 * (1 + loss / 100)} for loss in each] for arm, each in losses.items()}
    return Measurements(
        tuple(losses), tuple(range(1, seeds + 1)), {Arm(): [{"auc_loss": 0.2}] * seeds, **by_arm}
    )


def near(value: float) -> list[float]:
    """Five seeds around a value."""
    return [value + shift for shift in (-0.1, -0.05, 0.0, 0.05, 0.1)]


def l1_to_l3(impression: float, best_caps: dict[float, int], user_at_4: float = 8.5) -> list[Finding]:
    """Findings where these caps are best, by 3 points."""
    user = {
        by: [[Arm(UnitKind.USER, epsilon, cap, by) for epsilon in best_caps] for cap in (1, 2, 4)]
        for by in (Split.BY_CAP, Split.BY_COUNT)
    }
    losses = {Arm(epsilon=4): near(impression)}
    for arms in user.values():
        for arm in (arm for each in arms for arm in each):
            assert arm.epsilon is not None
            base = user_at_4 if arm.epsilon == 4 else 20.0
            losses[arm] = near(base + (0 if arm.cap == best_caps[arm.epsilon] else 3))
    return epsilons.findings(made_up(losses), user, list(best_caps))


def test_published_figures_hold_within_a_factor_of_two() -> None:
    caps = {1.0: 1, 4.0: 1, 16.0: 4}
    assert [finding.holds for finding in l1_to_l3(0.8, caps)] == [True, True, True]
    assert [finding.holds for finding in l1_to_l3(0.3, caps, 18.0)] == [False, False, True]
    assert [finding.holds for finding in l1_to_l3(1.7, caps, 4.0)] == [False, False, True]


@pytest.mark.parametrize("caps", [{1: 2, 4: 1, 16: 4}, {1: 1, 4: 1, 16: 1}, {1: 4, 4: 2, 16: 1}])
def test_a_best_cap_that_falls_or_stays_is_no_growth(caps: dict[float, int]) -> None:
    assert l1_to_l3(0.8, caps)[2].holds is False


def test_best_caps_that_chance_could_swap_decide_nothing() -> None:
    user = {by: [[Arm(UnitKind.USER, e, cap, by) for e in (1.0, 4.0)] for cap in (1, 2)] for by in Split}
    losses = {Arm(epsilon=4): near(0.8)}
    for arm in (arm for arms in user.values() for each in arms for arm in each):
        best = {1.0: 2, 4.0: 1}[arm.epsilon or 0]
        losses[arm] = [8.0, 8.1, 8.2] if arm.cap == best else [8.3, 7.9, 8.4]
    assert (
        epsilons.findings(made_up({arm: each[:3] for arm, each in losses.items()}), user, [1, 4])[2].holds
        is None
    )


def test_the_order_of_units_needs_every_step() -> None:
    kinds = list(units.PUBLISHED)
    arms = [Arm(kind, units.EPSILON) for kind in kinds]

    def verdict(*losses: float) -> bool | None:
        measured = made_up({arm: near(loss) for arm, loss in zip(arms, losses, strict=True)})
        return units._finding(measured, arms).holds

    assert verdict(1, 2, 3, 4) is True
    assert verdict(1, 3, 2, 4) is False
    noisy = made_up({arm: (np.array([0, 9, 1, 7, 3.0]) * at).tolist() for at, arm in enumerate(arms)})
    assert units._finding(noisy, arms).holds is None, "a step whose interval holds 0 is undecided"


def test_the_split_fails_only_where_it_is_worse_beyond_chance() -> None:
    pairs = [
        (Arm(UnitKind.USER, epsilon, 2, Split.BY_COUNT), Arm(UnitKind.USER, epsilon, 2, Split.BY_CAP))
        for epsilon in (1.0, 4.0)
    ]

    def verdict(by_count: list[list[float]]) -> bool | None:
        losses = {cap: near(5.0) for _, cap in pairs}
        losses |= {count: each for (count, _), each in zip(pairs, by_count, strict=True)}
        return split._finding(made_up(losses), pairs).holds

    assert verdict([near(4.0), near(5.0)]) is True
    assert (
        verdict([near(3.0), [loss + shift for loss, shift in zip(near(5.0), (1, 1, 1, 1, 1.01), strict=True)]])
        is False
    )
    assert verdict([near(3.0), [5.1, 4.9, 5.3, 4.8, 5.4]]) is True, "chance is no reason"
