"""Verdicts of the semi-sensitive studies, on tables that were made up to hold, to fail and to stay open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tacit_lab.studies.logs import KnownDomain
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import Runs
from tacit_lab.studies.semi_sensitive import accounting, clipping, loss_over_epsilon, split, vocabulary
from tacit_lab.studies.semi_sensitive.frontier_verdicts import S1, FrontierJudge
from tacit_lab.studies.semi_sensitive.recipe import DP_SGD, FROZEN, HYBRID, NON_PRIVATE, RR, TRUNCATED
from tacit_lab.studies.study import Finding

BASE, APART = 0.2, (-0.001, 0.0, 0.001)  # a loss, and how seeds differ in it
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SETTINGS = {"parameters": {"scale": "small"}}


def kept(rows: Sequence[Mapping[str, Any]]) -> ResultFiles:
    names = dict.fromkeys(name for row in rows for name in row)
    return ResultFiles({name: [row.get(name) for row in rows] for name in names}, SETTINGS)


def over_seeds(labels: Mapping[str, Any], percent: float, wobble: float = 0.0) -> list[dict[str, Any]]:
    """A row for each of three seeds, `percent` above no privacy, and `wobble` more, less, exactly."""
    return [
        {**labels, "seed": seed, "auc_loss": (BASE + apart) * (1 + (percent + wobble * sign) / 100)}
        for seed, apart, sign in zip((1, 2, 3), APART, (1, -1, 0), strict=True)
    ]


def frontier(world: str, percents: Mapping[tuple[str, int], float]) -> list[dict[str, Any]]:
    rows = over_seeds({"world": world, "method": NON_PRIVATE, "epsilon": None}, 0.0)
    rows += over_seeds({"world": world, "method": TRUNCATED, "epsilon": None}, 20.0)
    for (method, epsilon), percent in percents.items():
        rows += over_seeds({"world": world, "method": method, "epsilon": epsilon}, percent)
    return rows


def by_epsilon(**percents: Sequence[float]) -> dict[tuple[str, int], float]:
    names = {"rr": RR, "dp_sgd": DP_SGD, "hybrid": HYBRID, "frozen": FROZEN}
    return {
        (names[name], epsilon): percent
        for name, each in percents.items()
        for epsilon, percent in zip((1, 4, 8, 12), each, strict=True)
    }


def holding(findings: Sequence[Finding]) -> dict[str, bool | None]:
    return {finding.claim.id: finding.holds for finding in findings}


AS_PUBLISHED = by_epsilon(
    rr=(30, 21, 20, 20), dp_sgd=(20, 14, 11, 10), hybrid=(21, 9, 6, 4), frozen=(25, 11, 8, 7)
)
OTHERWISE = by_epsilon(
    rr=(30, 21, 20, 12), dp_sgd=(20, 14, 7, 5), hybrid=(15, 16, 6, 4), frozen=(14, 15, 5.5, 3.5)
)


def test_figures_as_published_hold_and_the_opposite_fails() -> None:
    found = loss_over_epsilon.judge_display(kept(frontier(loss_over_epsilon.RARE, AS_PUBLISHED)))
    assert holding(found) == dict.fromkeys(("S1", "S3", "S4", "S6", "S7", "S8"), True)
    assert all(finding.where == "display" for finding in found)
    found = loss_over_epsilon.judge_display(kept(frontier(loss_over_epsilon.RARE, OTHERWISE)))
    assert holding(found) == dict.fromkeys(("S1", "S3", "S4", "S6", "S7", "S8"), False)


def test_a_second_world_has_a_verdict_of_its_own() -> None:
    rows = frontier(loss_over_epsilon.RARE, AS_PUBLISHED) + frontier(loss_over_epsilon.COMMON, OTHERWISE)
    first, *_, last = loss_over_epsilon.judge_display(kept(rows))
    assert (first.claim, first.holds, last.claim, last.holds) == (last.claim, True, first.claim, False)
    assert loss_over_epsilon.COMMON in last.where


def test_seeds_that_disagree_leave_it_open() -> None:
    rows = [row for row in frontier(loss_over_epsilon.RARE, AS_PUBLISHED) if row["method"] != HYBRID]
    for epsilon, percent in ((1, 21.0), (4, 13.0), (8, 9.0), (12, 8.0)):
        rows += over_seeds(
            {"world": loss_over_epsilon.RARE, "method": HYBRID, "epsilon": epsilon}, percent, wobble=8.0
        )
    found = holding(loss_over_epsilon.judge_display(kept(rows)))
    assert [found[claim] for claim in ("S1", "S3", "S4", "S6")] == [None] * 4
    behind = [row for row in rows if row["method"] != HYBRID]
    for epsilon, percent in ((1, 21.0), (4, 15.0), (8, 12.0), (12, 11.0)):
        at = {"world": loss_over_epsilon.RARE, "method": HYBRID, "epsilon": epsilon}
        behind += over_seeds(at, percent, wobble=8.0)
    found = holding(loss_over_epsilon.judge_display(kept(behind)))
    assert [found[claim] for claim in ("S1", "S3", "S4", "S6")] == [None] * 4, "nor does a mean on either side"


def test_epsilons_that_were_not_run_are_not_judged() -> None:
    alone = {at: percent for at, percent in AS_PUBLISHED.items() if at[1] == 12}
    found = loss_over_epsilon.judge_display(kept(frontier(loss_over_epsilon.RARE, alone)))
    assert holding(found) == {"S1": True, "S3": None, "S4": True, "S6": None, "S7": True, "S8": True}
    assert "not run" in {finding.claim.id: finding.seen for finding in found}["S3"]


def test_no_epsilon_of_4_or_more_is_no_evidence_for_what_is_claimed_from_there_on() -> None:
    low = {at: percent for at, percent in AS_PUBLISHED.items() if at[1] == 1}
    judge = FrontierJudge(Runs(frontier("a world", low)), "a world", "there")
    assert (judge.hybrid_wins(S1).holds, judge.hybrid_wins(S1).seen) == (
        None,
        "no epsilon of 4 or more was run",
    )
    nothing = FrontierJudge(Runs(frontier("a world", {})), "a world", "there")
    assert (nothing.freezing_costs().holds, nothing.freezing_costs().seen) == (None, "no epsilon was run")


def test_a_gain_that_is_not_seen_is_called_no_more_than_that() -> None:
    for rows, verdict in ((AS_PUBLISHED, "holds"), (OTHERWISE, "fails")):
        found = loss_over_epsilon.judge_display(kept(frontier(loss_over_epsilon.RARE, rows)))
        assert next(each.verdict for each in found if each.claim.id == "S6") == verdict
    three = over_seeds({"world": "w", "method": NON_PRIVATE, "epsilon": None}, 0.0)
    three += over_seeds({"world": "w", "method": DP_SGD, "epsilon": 1}, 20.0)
    three += over_seeds({"world": "w", "method": HYBRID, "epsilon": 1}, 20.0, wobble=2.0)
    six = [*three, *({**row, "seed": row["seed"] + 3} for row in three)]
    few, many = (FrontierJudge(Runs(each), "w", "there").no_gain_at_one() for each in (three, six))
    assert (few.verdict, many.verdict) == ("undecided", "holds (not shown to be better)")
    assert "with at least 6 seeds" in few.rule


@pytest.mark.parametrize(
    ("at_12", "wobble", "holds"), [(21.0, 0.0, True), (25.0, 0.0, False), (15.0, 0.0, False), (25.0, 5.0, None)]
)
def test_rr_levels_off_at_the_limit_whatever_others_reach(
    at_12: float, wobble: float, holds: bool | None
) -> None:
    rows = frontier("a world", {(DP_SGD, 12): 30.0})
    rows += over_seeds({"world": "a world", "method": RR, "epsilon": 12}, at_12, wobble)
    found = FrontierJudge(Runs(rows), "a world", "there").plateau()
    assert found.holds is holds
    assert bool(found.why) is bool(found.holds)


def test_the_network_has_claims_of_its_own() -> None:
    found = loss_over_epsilon.judge_network(kept(frontier(loss_over_epsilon.NETWORK_WORLD, AS_PUBLISHED)))
    assert holding(found) == {"S2": True, "S3": True, "S5": True}
    assert {each.where for each in found} == {"MLP: display log only"}


@pytest.mark.parametrize(
    ("at_12", "wobble", "holds"), [(0.25, 0.0, True), (0.75, 0.0, False), (0.75, 4.0, None)]
)
def test_a_split_holds_where_the_published_share_is_best(
    at_12: float, wobble: float, holds: bool | None
) -> None:
    rows = []
    for world in split.WORLDS:
        rows += over_seeds({"world": world, "epsilon": None, "k": None}, 0.0)
        for epsilon, best in ((1, 0.0), (4, 0.5), (8, 0.75), (12, at_12)):
            for k in SHARES:
                at = {"world": world, "epsilon": epsilon, "k": k}
                rows += over_seeds(at, 3 + 4 * abs(k - best), wobble if (epsilon, k) == (12, best) else 0.0)
    assert [finding.holds for finding in split.judge(kept(rows))] == [holds] * 2


@pytest.mark.parametrize(
    ("at_4", "wobble", "holds"), [(1.0, 0.0, True), (0.25, 0.0, False), (1.0, 4.0, None), (0.25, 4.0, None)]
)
def test_all_of_epsilon_is_at_least_half_of_it(at_4: float, wobble: float, holds: bool | None) -> None:
    rows = []
    for world in split.WORLDS:
        for k in SHARES:
            at = {"world": world, "epsilon": 4, "k": k}
            rows += over_seeds(at, 3 + 4 * abs(k - at_4), wobble if k == at_4 else 0.0)
    assert [finding.holds for finding in split.judge(kept(rows))] == [holds] * 2


def test_a_smaller_vocabulary_is_judged_against_the_published_cost_and_a_smaller_epsilon() -> None:
    def judged(tenth: float, fiftieth: float, wobble: float = 0.0, cheaper: float = 2.0) -> list[bool | None]:
        rows = over_seeds({**vocabulary.FULL, "epsilon": vocabulary.CHEAPER}, cheaper)
        for most, percent in ((None, 0.0), (vocabulary.TENTH, tenth), (vocabulary.FIFTIETH, fiftieth)):
            rows += over_seeds(
                {**vocabulary.FULL, "sensitive": repr(KnownDomain(most))}, percent, wobble if most else 0.0
            )
        return [finding.holds for finding in vocabulary.judge_sizes(kept(rows))]

    assert judged(0.02, 0.08) == [True, True]
    assert judged(0.3, 3.7) == [False, False]
    assert judged(0.02, 0.3) == [True, False], "fifty times smaller costs more than almost nothing"
    assert judged(0.02, 0.08, cheaper=0.05) == [True, False], "and each must be below epsilon 8"
    assert judged(0.08, 0.02, cheaper=0.05) == [False, True]
    assert judged(0.3, 0.02, wobble=4.0) == [None, None]
    assert len({finding.rule for finding in vocabulary.judge_sizes(kept(_sizes()))}) == 1, "one rule for both"


def _sizes() -> list[dict[str, Any]]:
    rows = over_seeds({**vocabulary.FULL, "epsilon": vocabulary.CHEAPER}, 2.0)
    for most in (None, vocabulary.TENTH, vocabulary.FIFTIETH):
        rows += over_seeds({**vocabulary.FULL, "sensitive": repr(KnownDomain(most))}, 0.0)
    return rows


@pytest.mark.parametrize(
    ("ahead", "wobble", "holds"),
    [(0.5, 0.0, True), (3.5, 0.0, False), (-0.5, 0.0, False), (0.5, 4.0, None), (-0.5, 4.0, None)],
)
def test_hashing_is_alike_only_if_close_and_behind(ahead: float, wobble: float, holds: bool | None) -> None:
    rows = over_seeds({"encoding": None, "epsilon": None}, 0.0)
    for epsilon in (4, 12):
        rows += over_seeds({"encoding": vocabulary.HASHED, "epsilon": epsilon}, 10.0)
        rows += over_seeds({"encoding": vocabulary.LISTED, "epsilon": epsilon}, 10.0 - 1.1 * ahead, wobble)
    (finding,) = vocabulary.judge_hashing(kept(rows))
    assert finding.holds is holds


def clipped(losses: Mapping[float, tuple[float, float]], wobble: float = 0.0) -> ResultFiles:
    """Percents of AUC loss and log loss by clip norm at three seeds that differ in their base; the first norm's
    wobble from seed to seed."""
    rows: list[dict[str, Any]] = []
    for seed, apart in zip((1, 2, 3), APART, strict=True):
        base = BASE + apart
        rows.append(
            {"method": "non-private", "clip_norm": None, "seed": seed, "auc_loss": base, "log_loss": 2 * base}
        )
        rows += [
            {
                "method": "Hybrid",
                "clip_norm": norm,
                "seed": seed,
                "auc_loss": base * (1 + (auc + 1000 * apart * shaky) / 100),
                "log_loss": 2 * base * (1 + (log + apart) / 100),
            }
            for norm, (auc, log) in losses.items()
            for shaky in (wobble if norm == min(losses) else 0.0,)
        ]
    return kept(rows)


def test_each_measure_may_want_a_clip_norm_of_its_own() -> None:
    apart = clipped({1.0: (3, 9), 5.0: (4, 6), 20.0: (7, 2)})
    assert holding(clipping.judge(apart)) == {"S12": True, "T28": True}
    same = clipped({1.0: (3, 2), 5.0: (4, 6), 20.0: (7, 9)})
    found = clipping.judge(same)
    assert holding(found) == {"S12": None, "T28": None}, "the grid cannot tell"
    assert {each.why for each in found} == {"one norm of the grid is best for both"}
    assert "best for AUC 1, for log loss 1" in found[0].seen
    reverse = clipped({1.0: (9, 2), 5.0: (6, 4), 20.0: (3, 7)})
    assert holding(clipping.judge(reverse))["S12"] is False, "each beats the other, the wrong way round"
    chance = clipped({1.0: (3, 9), 5.0: (4, 6), 20.0: (4, 2)}, wobble=4.0)
    assert holding(clipping.judge(chance))["S12"] is None
    backwards = clipped({1.0: (4, 2), 20.0: (3, 7)}, wobble=4.0)
    assert holding(clipping.judge(backwards))["S12"] is None, "smaller in the mean alone"


def test_a_norm_is_tried_on_the_seed_that_did_not_choose_it() -> None:
    # Each seed has a norm that only it likes: whoever chooses on the other two gains nothing there.
    lucky = np.full((2, 3, 3), 5.0)
    for seed in range(3):
        lucky[0, seed, seed] = 1.0
    own, shared, _ = clipping.leave_one_seed_out(lucky)
    assert own.tolist() == shared.tolist() == [5.0] * 3
    steady = np.array([[[1.0] * 3, [4.0] * 3], [[9.0] * 3, [2.0] * 3]])  # 10 and 6 in sum: the second for both
    own, shared, at = clipping.leave_one_seed_out(steady)
    assert (own.tolist(), shared.tolist(), at) == ([1.5] * 3, [3.0] * 3, [1] * 3)


def accounted(saved: Mapping[float, float]) -> bool | None:
    rows = [
        {
            "workload": "some rows",
            "epsilon": 4,
            "k": k,
            "noise_rdp": 1.1,
            "noise_added": 1.0,
            "noise_joint": 1 - share,
            "epsilon_left": share,
        }
        for k, share in saved.items()
    ]
    (finding,) = accounting.judge(kept(rows))
    assert finding.why == "a theorem: only a bug could fail it"
    return finding.holds


def test_joint_accounting_must_save_wherever_both_phases_are_paid_for() -> None:
    assert accounted({0.0: 0.0, 0.25: 0.01, 0.75: 1e-5}) is True
    assert accounted({0.0: 0.0, 0.25: 0.01, 0.75: 0.0}) is False
    assert accounted({0.0: -0.01, 0.25: 0.01, 0.75: 0.01}) is False


def test_the_least_noise_meets_its_target_from_either_side() -> None:
    for near in (0.1, 1.0, 30.0):
        assert math.isclose(accounting.least_noise(lambda noise: 2 / noise, 0.5, near), 4.0, rel_tol=1e-8)
