"""The label-DP studies: each at toy size for real, and the rules by which their findings hold or fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tacit.privacy.units import CapChoice, Split, UnitKind
from tacit.train.examples import Examples
from tacit.train.labels.mechanism import Correction
from tacit.train.methods import LabelDp, Plain
from tacit_lab.studies.label_dp import loss_over_epsilon, setting, units
from tacit_lab.studies.label_dp.setting import LabelDpArm, LabelDpMeasurements
from tacit_lab.studies.plotting import Bars
from tacit_lab.studies.registry import STUDIES, load_study
from tacit_lab.studies.results import ResultFiles, StudySettings, write_result
from tacit_lab.studies.runs import Record
from tacit_lab.studies.study import Finding, StudyRequest, StudyScale
from tests.support.toy_studies import prepare_study_log, toy_studies

OURS = [name for name in STUDIES if name.startswith("label-dp")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all toy runs: they share logs and trainings."""
    return tmp_path_factory.mktemp("label-dp")


def toy(folder: Path, seeds: int = 1) -> StudyRequest:
    return StudyRequest(folder, StudyScale.TOY, seeds=seeds, processes=1)


@pytest.mark.parametrize("name", toy_studies("label-dp"))
def test_every_study_runs_at_toy_size_and_leaves_its_files(name: str, folder: Path) -> None:
    if name == "label-dp-network":
        pytest.importorskip("torch")
    outcome = load_study(name).outcome(toy(folder))
    assert outcome.rows
    assert all(len(row) == len(outcome.columns) for row in outcome.rows)
    assert all(path.stat().st_size > 0 for path in outcome.files)
    assert "synthetic" in outcome.note
    assert [finding.claim for finding in outcome.findings] == list(load_study(name).claims)
    assert all(finding.holds is None for finding in outcome.findings), "toy scale decides nothing"
    assert ResultFiles.of(folder, name).scale == "toy"
    assert load_study(name).findings(folder) == outcome.findings, "the folder is all that a verdict needs"


def test_the_studies_speak_to_every_published_finding() -> None:
    claims = [claim for name in OURS for claim in load_study(name).claims]
    assert sorted(claim.id for claim in claims) == ["L1", "L2", "L3", "L4", "L5"]
    assert {claim.id: claim.published for claim in claims if claim.published != "direction"} == {
        "L1": ".79%",
        "L2": "8.51%",
        "L4": ".83/1.56/2.67/4.50%; the rule tests the order",
    }


def test_units_are_counted_by_their_keys(folder: Path) -> None:
    ready = prepare_study_log(setting.study_log(toy(folder), 1), toy(folder).cache)
    found = setting.UnitSizes(setting.study_log(toy(folder), 1)).measure(ready, None)  # type: ignore[arg-type]
    train = Examples.of(ready.columns, "train")
    for kind, names in {"user": ("user",), "user-publisher": ("user", "publisher")}.items():
        sizes = Counter(zip(*(train.key(name).tolist() for name in names), strict=True)).values()
        expected = Counter(min(size, setting.MOST) for size in sizes)
        assert {count: found[f"{kind} {count}"] for count in expected} == dict(expected)
        assert found[f"{kind} largest"] == max(sizes)
        assert sum(count * found[f"{kind} {count}"] for count in range(1, setting.MOST)) <= len(train)


def test_the_axis_of_the_counts_skips_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {f"user {count}": 5 if count in (1, 4) else 0 for count in range(1, setting.MOST + 1)}
    record = {"examples": 25, "user mean": 2.5, "user largest": 4, **counted}
    drawn: list[Bars] = []
    monkeypatch.setattr(units, "run_tasks", lambda *_, **__: [record])
    monkeypatch.setattr(units, "bar_figure", lambda panels, **_: drawn.extend(panels))
    units.run_sizes(toy(tmp_path))
    assert list(drawn[0].labels) == [*map(str, range(1, setting.MOST)), f"{setting.MOST}+"]
    assert list(drawn[0].heights[:5]) == [5, 0, 0, 5, 0]


def test_an_arm_is_the_method_that_it_says() -> None:
    method = LabelDpArm(UnitKind.USER, 4, 2, Split.BY_CAP, CapChoice.RANDOM).method()
    assert isinstance(method, LabelDp)
    assert (method.epsilon, method.unit.kind, method.cap.impressions) == (4, UnitKind.USER, 2)
    assert (method.cap.split, method.cap.choice) == (Split.BY_CAP, CapChoice.RANDOM)
    assert isinstance(LabelDpArm().method(), Plain)
    assert LabelDpArm(UnitKind.USER, 4, 1, Split.BY_COUNT) == LabelDpArm(UnitKind.USER, 4, 1, Split.BY_CAP)


def test_the_loss_is_relative_to_the_same_model_at_the_same_seed() -> None:
    arm = LabelDpArm(epsilon=4)
    measured = LabelDpMeasurements(
        (arm,), (1, 2), {LabelDpArm(): [{"auc_loss": 0.2}, {"auc_loss": 0.4}], arm: [{"auc_loss": 0.3}] * 2}
    )
    assert measured.percent(arm) == pytest.approx([50.0, -25.0])


def test_a_table_gives_the_measurements_back(tmp_path: Path) -> None:
    arms = [
        LabelDpArm(epsilon=4),
        LabelDpArm(UnitKind.USER, 0.5, 2, Split.BY_CAP, CapChoice.RANDOM, Correction.RAW),
    ]
    figures = {"log_loss": 0.2, "calibration_ratio": 1.1}
    by_arm: dict[LabelDpArm, list[Record]] = {
        arm: [{"auc_loss": 0.3 + 0.01 * at + 0.001 * seed, **figures} for seed in (1, 2, 3)]
        for at, arm in enumerate([LabelDpArm(), *arms])
    }
    measured = LabelDpMeasurements(tuple(arms), (1, 2, 3), by_arm)
    settings = StudySettings("made-up", "nothing", True, (1, 2, 3), "unit", "none", "tacit", {"scale": "small"})
    table = measured.rows()
    write_result(tmp_path, settings, {name: [row[name] for row in table] for name in table[0]}, minutes=0)
    again = LabelDpMeasurements.read(ResultFiles.of(tmp_path, "made-up").rows)
    assert (again.arms, again.seeds) == (measured.arms, measured.seeds)
    assert all((again.percent(arm) == measured.percent(arm)).all() for arm in arms), "to the last bit"


def kept(losses: dict[LabelDpArm, list[float]], synthetic: bool = False) -> ResultFiles:
    """A table with these losses in percent."""
    seeds = len(next(iter(losses.values())))
    everything = {LabelDpArm(): [0.0] * seeds, **losses}
    rows = [
        {**arm.labels, "seed": seed, "auc_loss": 0.2 * (1 + loss / 100)}
        for arm, each in everything.items()
        for seed, loss in enumerate(each, start=1)
    ]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    return ResultFiles(table, {"synthetic": synthetic, "parameters": {"scale": "small"}})


def near(value: float) -> list[float]:
    """Five seeds around a value."""
    return [value + shift for shift in (-0.1, -0.05, 0.0, 0.05, 0.1)]


def users(epsilons: Iterable[float], caps: Iterable[int]) -> list[LabelDpArm]:
    return [LabelDpArm(UnitKind.USER, epsilon, cap, by) for by in Split for epsilon in epsilons for cap in caps]


def l1_to_l3(impression: float, best_caps: dict[float, int], user_at_4: float = 8.5) -> list[Finding]:
    """Findings where these caps are best, by 3 points."""
    losses = {LabelDpArm(epsilon=4): near(impression)}
    for arm in users(best_caps, (1, 2, 4)):
        assert arm.epsilon is not None
        base = user_at_4 if arm.epsilon == 4 else 20.0
        losses[arm] = near(base + (0 if arm.cap == best_caps[arm.epsilon] else 3))
    return loss_over_epsilon.judge(kept(losses))


def test_published_figures_hold_within_a_factor_of_two() -> None:
    caps = {1.0: 1, 4.0: 1, 16.0: 4}
    assert [finding.holds for finding in l1_to_l3(0.8, caps)] == [True, True, True]
    assert [finding.holds for finding in l1_to_l3(0.2, caps, 18.0)] == [False, False, True]
    assert [finding.holds for finding in l1_to_l3(1.8, caps, 4.0)] == [False, False, True]
    assert [finding.holds for finding in l1_to_l3(1.6, caps, 4.2)] == [None, None, True], "both span their bar"


def test_what_was_seen_has_its_figure_and_interval() -> None:
    seen = [finding.seen for finding in l1_to_l3(0.8, {1.0: 1, 4.0: 2, 16.0: 4})]
    assert seen == [
        "0.80% [0.70, 0.90]",
        "8.50% [8.40, 8.60] with K = 2, epsilon/K",
        "best K at epsilon 1, 4, 16: epsilon/K: 1, 2, 4; epsilon/K_i: 1, 2, 4; "
        "at 16 K = 4 beside 1: -3.00 ± 0.00 points",
    ]


def test_what_a_user_s_promise_costs_cannot_show_where_users_have_one_click() -> None:
    losses = {LabelDpArm(epsilon=4): near(0.8)}
    losses |= {arm: near(2.0) for arm in users((1.0, 4.0), (1, 2))}
    several, once = kept(losses), kept(losses)
    once.settings["parameters"][setting.PER_USER] = 1.09
    assert [each.holds for each in loss_over_epsilon.judge(several)][:2] == [True, False]
    first, second, _ = loss_over_epsilon.judge(once)
    assert (first.holds, second.holds) == (True, None)
    assert second.why.startswith("users have 1.09 examples here")
    assert "criteo-attribution" in second.decider


def test_a_log_without_publishers_can_fail_the_order_and_cannot_hold_it() -> None:
    kinds = (UnitKind.IMPRESSION, UnitKind.USER_ADVERTISER, UnitKind.USER)
    for losses, holds in (((1.0, 2.0, 3.0), None), ((1.0, 3.0, 2.0), False)):
        arms = {LabelDpArm(kind, 3): near(loss) for kind, loss in zip(kinds, losses, strict=True)}
        (found,) = units.judge_order(kept(arms))
        assert found.holds is holds
        assert ("the log has no user-publisher" in found.why) is (holds is None)


def test_a_rise_that_chance_could_have_made_decides_nothing() -> None:
    """By the means 1 is best at epsilon 1 and 2 at 4, each by less than seeds differ."""
    losses = {LabelDpArm(epsilon=4): near(0.8)[:3]}
    for arm in users((1.0, 4.0), (1, 2)):
        best = {1.0: 1, 4.0: 2}[arm.epsilon or 0]
        losses[arm] = [8.0, 8.1, 8.2] if arm.cap == best else [8.3, 7.9, 8.4]
    assert loss_over_epsilon.judge(kept(losses))[2].holds is None


@pytest.mark.parametrize("caps", [{1: 2, 4: 1, 16: 4}, {1: 1, 4: 1, 16: 1}, {1: 4, 4: 2, 16: 1}])
def test_a_best_cap_that_falls_or_stays_is_no_growth(caps: dict[float, int]) -> None:
    assert l1_to_l3(0.8, caps)[2].holds is False


def test_the_largest_cap_being_the_best_from_the_start_decides_nothing() -> None:
    """A larger one, which was not tried, might be better still at the largest epsilon."""
    assert l1_to_l3(0.8, {1: 4, 4: 4, 16: 4})[2].holds is None
    assert l1_to_l3(0.8, {1: 4, 4: 2, 16: 4})[2].holds is False, "it falls on the way"


def test_best_caps_that_chance_could_swap_decide_nothing() -> None:
    losses = {LabelDpArm(epsilon=4): near(0.8)[:3]}
    for arm in users((1.0, 4.0), (1, 2)):
        best = {1.0: 2, 4.0: 1}[arm.epsilon or 0]
        losses[arm] = [8.0, 8.1, 8.2] if arm.cap == best else [8.3, 7.9, 8.4]
    assert loss_over_epsilon.judge(kept(losses))[2].holds is None


def test_two_seeds_decide_nothing() -> None:
    losses = {arm: [5.0, 5.1] for arm in [LabelDpArm(epsilon=4), *users((4.0, 16.0), (1, 2))]}
    assert [finding.holds for finding in loss_over_epsilon.judge(kept(losses))] == [None] * 3
    assert units.judge_split(kept({arm: each for arm, each in losses.items() if arm.cap == 2}))[0].holds is None


def order_of_units(losses: dict[UnitKind, list[float]]) -> Finding:
    return units.judge_order(kept({LabelDpArm(kind, units.EPSILON): each for kind, each in losses.items()}))[0]


def test_the_order_of_units_needs_every_step() -> None:
    def verdict(*losses: float) -> bool | None:
        return order_of_units(dict(zip(units.PUBLISHED, map(near, losses), strict=True))).holds

    assert verdict(1, 2, 3, 4) is True
    assert verdict(1, 3, 2, 4) is False
    noisy = {kind: [at * loss for loss in (0, 9, 1, 7, 3.0)] for at, kind in enumerate(units.PUBLISHED)}
    assert order_of_units(noisy).holds is None, "a step whose interval holds 0 is undecided"
    back = {kind: [-loss for loss in each] for kind, each in noisy.items()}
    assert order_of_units(back).holds is None, "whichever side its mean is on"


def test_an_order_that_follows_from_our_dials_says_so() -> None:
    losses = {LabelDpArm(kind, units.EPSILON): near(at) for at, kind in enumerate(units.PUBLISHED)}
    assert [units.judge_order(kept(losses, synthetic))[0].verdict for synthetic in (False, True)] == [
        "holds",
        "holds (synthetic: dials of the generator set the order of advertiser and publisher)",
    ]
    losses = {arm: near(8.5) for arm in [LabelDpArm(epsilon=4), *users((4.0, 16.0), (1, 2))]}
    whys = [
        [each.why for each in loss_over_epsilon.judge(kept(losses, synthetic))] for synthetic in (False, True)
    ]
    assert whys == [[""] * 3, ["", loss_over_epsilon.MADE_UP, ""]]


def test_units_are_judged_by_their_best_cap() -> None:
    losses = {LabelDpArm(kind, units.EPSILON): near(at) for at, kind in enumerate(units.PUBLISHED)}
    losses[LabelDpArm(UnitKind.USER_ADVERTISER, units.EPSILON, 2)] = near(-1.0)
    finding = units.judge_order(kept(losses))[0]
    assert finding.holds is False
    assert "user-advertiser -1.00%" in finding.seen


def test_a_log_without_publishers_leaves_the_order_open() -> None:
    losses = {kind: near(at) for at, kind in enumerate(units.PUBLISHED)}
    del losses[UnitKind.USER_PUBLISHER]
    finding = order_of_units(losses)
    assert (finding.holds, finding.why) == (None, "the log has no user-publisher")


def test_the_split_fails_only_where_it_is_worse_beyond_chance() -> None:
    def finding(*by_count: list[float]) -> Finding:
        losses = {}
        for epsilon, each in zip((1.0, 4.0), by_count, strict=True):
            losses[LabelDpArm(UnitKind.USER, epsilon, 2, Split.BY_CAP)] = near(5.0)
            losses[LabelDpArm(UnitKind.USER, epsilon, 2, Split.BY_COUNT)] = each
            losses[LabelDpArm(UnitKind.USER, epsilon, 2, Split.BY_COUNT, CapChoice.RANDOM)] = near(50.0)
        return units.judge_split(kept(losses))[0]

    assert finding(near(4.0), near(5.0)).verdict == "holds (not shown to be worse)"
    worse = finding(near(3.0), [loss + 1 + 0.01 * at for at, loss in enumerate(near(5.0))])
    assert worse.verdict == "fails"
    assert "better in 1, worse in 1 (epsilon 4 K = 2)" in worse.seen
    assert finding(near(3.0), [5.1, 4.9, 5.3, 4.8, 5.4]).holds is True, "chance is no reason"


def test_a_split_that_was_never_tried_decides_nothing() -> None:
    (found,) = units.judge_split(kept({LabelDpArm(UnitKind.USER, 4, 2, Split.BY_COUNT): near(5.0)}))
    assert (found.holds, found.seen) == (None, "no cap above 1 was tried")
