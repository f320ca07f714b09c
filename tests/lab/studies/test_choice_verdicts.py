"""Verdicts of the studies of choice on made-up tables: rules hold, fail, and stay open where they should."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.errors import BadInput
from tacit.privacy.choice.noise import Noise
from tacit_lab.studies.choice import (
    auctions,
    budget,
    calibration,
    cohorts,
    exploration,
    frontier,
    gamma,
    market_statistics,
    mechanisms,
    mixing,
    pricing,
    scores,
    shuffling,
    slots,
)
from tacit_lab.studies.choice.contestants import CLIPPED, EPSILONS, RR, SCALED, clipped_snm
from tacit_lab.studies.choice.lifts import METRICS, Lifts, Pair, Part, part_words
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding

Rows = list[dict[str, Any]]


def kept(rows: Sequence[Mapping[str, Any]], *, synthetic: bool = True, **parameters: Any) -> ResultFiles:
    """As if these rows lay in a folder; a cell that a row does not have is empty."""
    names = dict.fromkeys(name for row in rows for name in row)
    table = {name: [row.get(name) for row in rows] for name in names}
    return ResultFiles(table, {"synthetic": synthetic, "parameters": {"scale": "small", **parameters}})


def verdicts(found: Iterable[Finding], claim: Claim) -> list[bool | None]:
    return [each.holds for each in found if each.claim is claim]


def lifts(
    means: Mapping[str, float],
    pairs: Iterable[Pair] = (),
    width: float = 0.01,
    over: str = NON_PERSONALISED,
    parts: Iterable[Part] = (),
    **labels: Any,
) -> Rows:
    """Rows of arms with these means, the same in all metrics, and intervals that reach so many percent."""
    rows = []
    bars = {part_words(part): part for _, part in parts}
    of = {**means, **{name: 100 + part * (means[GREEDY] - 100) for name, part in bars.items()}}
    for arm, other in [*((arm, over) for arm in means), *pairs, *((arm, part_words(p)) for arm, p in parts)]:
        value = 100 * (means[arm] / of[other] - 1)
        row = {**labels, "arm": arm, "over": other, "mean": means[arm], "lift_percent": value}
        rows += [
            {**row, "metric": metric, "low": value - width, "high": value + width}
            for metric in METRICS.values()
        ]
    return rows


def test_pricing() -> None:
    def judged(revenue: float, surplus: float, width: float = 1.0) -> list[Finding]:
        means = {pricing.DEVICE: 100.0, pricing.SERVER: 100 + revenue, pricing.NOTHING: 100 + 2 * revenue}
        dear = lifts(means, pricing.PAIRS, width, pricing.DEVICE)
        means = {pricing.DEVICE: 100.0, pricing.SERVER: 100 + surplus, pricing.NOTHING: 100 + 2 * surplus}
        left = lifts(means, pricing.PAIRS, width, pricing.DEVICE)
        rows = [row for row in dear if row["metric"] == "revenue"]
        rows += [row for row in left if row["metric"] == "surplus"]
        return pricing.judge_pricing(kept([{"market": "x", "charged": "click", **row} for row in rows]))

    for claim in (pricing.R1, pricing.R2):
        assert verdicts(judged(10, -10), claim) == [True]
        assert verdicts(judged(-10, -10), claim) == [False]
        assert verdicts(judged(10, -10, width=20), claim) == [None]
    assert {each.where for each in judged(10, -10)} == {"x, per click"}


def over_epsilon(width: float = 0.01, **changed: float) -> list[Finding]:
    """The figure as the paper has it, with some means changed."""
    means = {NON_PERSONALISED: 100.0, GREEDY: 120.0}
    for epsilon in EPSILONS:
        high = epsilon >= mechanisms.MIDDLE
        means[RR.at(epsilon)] = 118.0 if high else 60.0
        means[SCALED.at(epsilon)] = 110.0 if high else 50.0
        means[CLIPPED.at(epsilon)] = 112.0 if high else 70.0
        means[mechanisms.GUMBEL.at(epsilon)] = means[SCALED.at(epsilon)] - 5
    means |= {SCALED.at(mechanisms.FAR): 120.0, CLIPPED.at(mechanisms.FAR): 115.0}
    rows = lifts(means | changed, mechanisms.EPSILON_PAIRS, width, parts=mechanisms.EPSILON_PARTS, market="x")
    return mechanisms.judge_epsilon(kept(rows))


def test_over_epsilon() -> None:
    assert [each.holds for each in over_epsilon()] == [True] * 6
    assert {each.claim for each in over_epsilon()} == set(mechanisms.EPSILON_STUDY.claims)
    failing = {
        mechanisms.R3: {RR.at(1): 75.0},
        mechanisms.R4: {CLIPPED.at(1): 101.0},
        mechanisms.R5: {SCALED.at(6): 119.0},
        mechanisms.R8: {SCALED.at(100): 118.0},
        mechanisms.R9: {RR.at(5): 114.0},
        mechanisms.R16: {mechanisms.GUMBEL.at(8): 111.0},
    }
    for claim, changed in failing.items():
        others = {each.claim for each in over_epsilon(**changed) if each.holds is not True}
        assert others == {claim}, "and no other"
        assert verdicts(over_epsilon(**changed), claim) == [False]
    near = {
        mechanisms.R8: {SCALED.at(100): 118.9},
        mechanisms.R9: {RR.at(5): 114.9},
    }
    for claim, changed in near.items():
        found = over_epsilon(width=0.5, **changed)
        assert verdicts(found, claim) == [None], "a share that spans its bar is not decided by its mean"
    vague = over_epsilon(width=70.0)
    assert [each.holds for each in vague] == [None] * 6, "nothing to gain for sure, and nothing to tell apart"


def test_clipping() -> None:
    def judged(width: float = 0.01, **changed: float) -> list[Finding]:
        means = {
            NON_PERSONALISED: 100.0,
            GREEDY: 120.0,
            **{clipped_snm(bound).at(1): 99.0 - at for at, bound in enumerate(mechanisms.BOUNDS)},
            mechanisms.LARGER.at(1): 60.0,
        }
        means |= {mechanisms.LARGER.at(100): 117.0, mechanisms.SMALLER.at(100): 103.0}
        means |= {each.at(1000): 105.0 + at for at, each in enumerate(mechanisms.TIGHT)}
        rows = lifts(
            means | changed, mechanisms.CLIPPING_PAIRS, width, parts=mechanisms.CLIPPING_PARTS, market="x"
        )
        return mechanisms.judge_clipping(kept(rows))

    assert [each.holds for each in judged()] == [True] * 7
    assert verdicts(judged(**{mechanisms.TIGHT[2].at(1000): 119.5}), mechanisms.R6) == [False]
    assert verdicts(judged(0.4, **{mechanisms.TIGHT[2].at(1000): 118.9}), mechanisms.R6) == [None]
    assert verdicts(judged(**{mechanisms.LARGER.at(1): 101.0}), mechanisms.R7) == [False]
    assert [each.holds for each in judged(width=90.0)] == [None] * 7
    tight = judged(**{mechanisms.SMALLER.at(1): 101.5})
    assert [(each.where, each.holds) for each in tight if each.claim is mechanisms.R4] == [
        ("x, bound 0.03", False),
        *((f"x, bound {bound:g}", True) for bound in mechanisms.BOUNDS[1:]),
    ], "each bound has its own verdict"


def test_a_rule_about_one_bound_says_which() -> None:
    low = next(each for each in over_epsilon() if each.claim is mechanisms.R4)
    assert "surplus of RR, of SNM clipped at 1 median score and of scaled SNM" in low.rule
    assert low.where == "x, RR, scaled SNM and bound 1"
    assert verdicts(over_epsilon(**{SCALED.at(1): 101.0}), mechanisms.R4) == [False], "scaled SNM is SNM too"


def over_gamma(best: float, market: str, width: float = 0.01) -> Rows:
    """A parabola of welfare around the best, as the study leaves it."""
    arms = {g: f"RR at {e}, gamma {g:g}" for e in (gamma.EPSILON,) for g in gamma.GAMMAS}
    means = {NON_PERSONALISED: 100.0, GREEDY: 130.0}
    means |= {arm: 120 - 20 * (g - best) ** 2 for g, arm in arms.items()}
    pairs = [(arms[best], arm) for arm in arms.values()]
    inner = max(gamma.INSIDE, key=lambda g: means[arms[g]])
    pairs += [(arms[inner], arm) for arm in arms.values()]
    return lifts(means, pairs, width, market=market)


def test_gamma() -> None:
    def judged(display: float, search: float, width: float = 0.01) -> list[Finding]:
        rows = over_gamma(display, "display-like", width) + over_gamma(search, "search-like", width)
        return gamma.judge(kept(rows))

    assert [each.holds for each in judged(0.85, 0.7)] == [True, True, True]
    assert [each.holds for each in judged(0.85, 0.5)] == [True, False, True]
    assert verdicts(judged(1.0, 0.0), gamma.R10) == [False, False], "an end is no interior optimum"
    assert verdicts(judged(0.5, 0.85), gamma.R11) == [False]
    assert [each.holds for each in judged(0.5, 0.85, width=50.0)] == [None, None, None]
    assert [each.holds for each in judged(0.85, 0.7, width=50.0)] == [None, None, None], "nor the other way"
    assert verdicts(judged(0.85, 0.7, width=0.3), gamma.R10) == [True, None], "1 and .5 are beaten, .6 is not"
    assert verdicts(judged(0.85, 0.8, width=0.1), gamma.R11) == [None]
    same = next(each for each in judged(0.85, 0.85) if each.claim is gamma.R11)
    assert same.verdict == "undecided (one gamma of the grid is best for both)"
    one = gamma.judge(kept(over_gamma(0.85, "Taobao")))
    assert verdicts(one, gamma.R11) == [None]


def test_single_auctions() -> None:
    rr, scaled, wide = auctions.CONTESTANTS

    def judged(clipped: float, width: float = 0.01) -> list[Finding]:
        means = {NON_PERSONALISED: 100.0}
        for epsilon in EPSILONS:
            means |= {rr.at(epsilon): 90.0, scaled.at(epsilon): 80.0, wide.at(epsilon): clipped}
        pairs = auctions._pairs()
        rows = [row for size in auctions.SIZES for row in lifts(means, pairs, width, auctions=size)]
        single = {"auctions": "one of them", "mechanism": "RR", "epsilon": 1, "score_of_best": 0.9}
        return auctions.judge(kept([single, *rows], auctions_by_size=dict.fromkeys(auctions.SIZES, 10)))

    assert [each.holds for each in judged(clipped=80.0)] == [True, False]
    assert [each.holds for each in judged(clipped=95.0)] == [False, True]
    assert [each.holds for each in judged(clipped=91.0, width=5.0)] == [None, None]
    assert ["first trial" in each.rule for each in judged(clipped=80.0)] == [False, True]


def test_mixing() -> None:
    def judged(rise: float, width: float = 0.01) -> Finding:
        rows: Rows = []
        for at, alpha in enumerate(mixing.ALPHAS):
            for more, size in enumerate(mixing.SIZES):
                means = {NON_PERSONALISED: 100.0, RR.at(1): 100.0, CLIPPED.at(1): 100 + rise * (at + more)}
                pair = (CLIPPED.at(1), RR.at(1))
                rows += lifts(means, [pair], width, alpha=alpha, candidates=size)
        (found,) = mixing.judge(kept(rows))
        return found

    assert judged(2.0).holds is True
    assert judged(-2.0).holds is False
    assert judged(2.0, width=10.0).holds is None
    assert judged(2.0, width=2.5).holds is None, "the corner is apart, the averages are not"
    assert "; one bound for all, set after a first trial" in judged(2.0).rule


def test_calibration() -> None:
    def judged(better: float, width: float = 0.01) -> list[Finding]:
        means = {NON_PERSONALISED: 100.0}
        for epsilon in EPSILONS:
            means[RR.at(epsilon)] = 105.0
            for nominal, exact in calibration.NOISES.values():
                means |= {nominal.at(epsilon): 100.0, exact.at(epsilon): 100 + better}
        return calibration.judge(kept(lifts(means, calibration.PAIRS, width, market="x")))

    assert [each.holds for each in judged(2.0)] == [True, True]
    assert [each.holds for each in judged(-2.0)] == [False, True]
    assert [each.holds for each in judged(7.0)] == [True, False]
    assert [each.holds for each in judged(2.0, width=10.0)] == [None, None]
    assert set(calibration.NOISES) == {Noise.EXPONENTIAL, Noise.GUMBEL}


def test_budget() -> None:
    def judged(policy: float, width: float = 0.01) -> list[Finding]:
        means = {NON_PERSONALISED: 100.0, GREEDY: 113.0, "the same for each, 10 in all": 102.0}
        means |= {each.at(1): 70.0 for each in budget.PUBLISHED} | {"where it pays, 10 in all": policy}
        means[budget._arm(budget.UNTOLD, budget.JUDGED)] = 101.0
        return budget.judge(kept(lifts(means, budget._pairs(), width, market="x")))

    assert [each.holds for each in judged(106.0)] == [True, True]
    assert [each.holds for each in judged(101.0)] == [False, True], "above the paper's, below the even split"
    assert [each.holds for each in judged(99.0)] == [False, False], "the non-personalised choice is theirs too"
    assert [each.holds for each in judged(103.0, width=5.0)] == [None, None]


def test_scores() -> None:
    def judged(fall: float, more: float, lead: float, width: float = 0.1) -> list[Finding]:
        """RR falls by so much, and by so much more than SNM."""
        rows: Rows = []
        for law in scores.LAWS:
            found: list[tuple[str, str, int | None, float]] = [(scores.FALL, scores.RR, None, fall)]
            found += [(scores.FALL, scores.SNM, None, fall - more)]
            found += [(scores.MORE, scores.RR, None, more)]
            found += [(scores.LEAD, scores.SNM, size, lead) for size in scores.SIZES]
            rows += [
                {"kind": kind, "law": law, "mechanism": name, "candidates": size, "value": value}
                | {"low": value - width, "high": value + width}
                for kind, name, size, value in found
            ]
        rows.append({"kind": scores.SCORE, "law": "uniform", "mechanism": "RR", "candidates": 15, "value": 0.5})
        return scores.judge(kept(rows))

    assert [each.holds for each in judged(fall=1, more=1, lead=1)] == [True, True, True]
    assert [each.holds for each in judged(fall=1, more=-1, lead=-1)] == [False, False, False]
    assert [each.holds for each in judged(fall=1, more=1, lead=1, width=2)] == [None, None, None]
    assert verdicts(judged(fall=1, more=0.5, lead=1), scores.R13) == [False, False], (
        "SNM falls too, by half as much"
    )
    assert verdicts(judged(fall=1, more=0.95, lead=1), scores.R13) == [True, True], "its interval reaches 0"
    assert verdicts(judged(fall=1, more=3, lead=1), scores.R13) == [True, True], "it even rises"
    assert [each.where for each in judged(1, 1, 1) if each.claim is scores.R13] == [
        "uniform scores",
        "Bernoulli(.9) scores",
    ]


def test_candidates_and_gaps() -> None:
    def mean(sizes: Sequence[int], market: str = "x", synthetic: bool = False) -> Finding:
        shares = np.cumsum(np.bincount(sizes)[1:]) / len(sizes)
        rows = [
            {"market": market, "candidates": at, "share_at_most": s} for at, s in enumerate(shares.tolist(), 1)
        ]
        many = {market: len(sizes), "search-like": 1}
        (found,) = market_statistics.judge_candidates(kept(rows, synthetic=synthetic, auctions=many))
        return found

    assert mean([3, 4, 4, 5] * 9).seen.startswith("4.00")
    assert mean([3, 4, 4, 5] * 9).verdict == "holds"
    assert mean([5, 5, 5, 6] * 9).holds is False
    assert mean([1, 4, 4, 7]).holds is None, "four auctions tell nothing"
    assert mean([2, 4, 6, 6]).holds is None, "not even where their mean is at the bar"
    for market in ("display-like", "Taobao-like"):
        made_up = mean([3, 4, 4, 5] * 9, market, synthetic=True)
        assert made_up.verdict == "undecided (synthetic: set by the generator)"

    def medians(*found: tuple[str, float]) -> Finding:
        rows = [
            {"market": market, "alpha": alpha, "share_below": share, "gap": gap * alpha * share / 0.5}
            for market, gap in found
            for alpha in (1.0, 0.5)
            for share in market_statistics.QUANTILES.tolist()
        ]
        return market_statistics.judge_gaps(kept(rows))[0]

    for display in (0.05, 0.03):
        found = medians(("display-like", display), ("search-like", 0.02))
        assert found.verdict == "undecided (synthetic: set by the generator)", "whatever the dials give"
    assert found.seen == "0.0300 against 0.0200, 1.5 times"
    assert medians(("Taobao", 0.03)).holds is None


def test_exploration() -> None:
    def judged(power: float, error: float = 0.0, free: float = 0.001) -> list[Finding]:
        rows = [
            {
                "scores": way,
                "epsilon": epsilon,
                "round": turn,
                "regret": regret,
                "standard_error": error * regret,
            }
            for way in ("thompson", "upper-bound")
            for epsilon in (None, *exploration.EPSILONS)
            for turn in (500, 750, 1000)
            for slope in (0.0 if epsilon is None else exploration.BANDIT.least_regret(epsilon),)
            for regret in (slope * 1000 * (turn / 1000) ** power if slope else 2 + free * turn,)
        ]
        return exploration.judge(kept(rows, rounds=1000))

    assert [each.holds for each in judged(power=1.0)] == [True, True]
    assert [each.holds for each in judged(power=0.5)] == [False, False]
    assert [each.holds for each in judged(power=1.0, error=0.3, free=0.01)] == [None, None]
    assert [each.holds for each in judged(power=0.89, error=0.01)] == [None, False], "just below, within chance"
    assert judged(power=1.0, free=0.2)[1].holds is False, "regret without privacy that is linear as well"
    for power in (0.5, 1.0):
        assert all("learning" not in each.seen for each in judged(power)), "figures, and no reading of them"
    assert "theorem" in judged(power=1.0)[1].why


def test_frontier() -> None:
    def judged(
        mine: float, rival: float = 0.3, bound: float = 0.5, floors: float | None = None, width: float = 0.0
    ) -> list[Finding]:
        shares = dict.fromkeys(frontier.LOOKS, rival) | {frontier.TRUNC: mine, frontier.BOUND: bound, "": 0.0}
        shares[frontier.FLOORS] = mine if floors is None else floors
        rows = [
            {
                "setting": "x",
                "mechanism": name,
                "over": over or None,
                "epsilon": epsilon,
                "share_of_gain": share,
            }
            | {"low": share - width, "high": share + width}
            for name, over in (*frontier.HELD, (frontier.BOUND, ""))
            for epsilon in frontier.EPSILONS
            for share in (shares[name] - shares[over],)
        ]
        return frontier.judge(kept(rows))

    assert [each.holds for each in judged(0.49)] == [True, True]
    assert [each.holds for each in judged(0.49, rival=0.49)] == [True, True], "as good as theirs is not below"
    assert [each.holds for each in judged(0.45, floors=0.48)] == [False, True], "something private is better"
    assert [each.holds for each in judged(0.45)] == [None, True], "the bound may be too high"
    assert [each.holds for each in judged(0.49, rival=0.495)] == [False, True], "one of theirs is above"
    assert [each.holds for each in judged(0.49, rival=0.495, width=0.01)] == [None, True], "or is it?"
    assert [each.holds for each in judged(-0.01, rival=-0.5, bound=0.0)] == [True, False]
    assert [each.holds for each in judged(0.01, rival=-0.5, bound=0.0, width=0.02)] == [True, None]
    assert "not below" in frontier.T1.words
    assert "not below" in judged(0.49)[0].rule


def test_slots() -> None:
    def judged(ahead: float, width: float = 0.01) -> list[bool | None]:
        pairs = (*slots.HELD, *slots.BESIDE)
        found = [(name, "", 0.5) for name in slots.LOOKS] + [(*pair, ahead) for pair in pairs]
        rows = [
            {"mechanism": name, "over": over or None, "epsilon": epsilon, "share_of_gain": value}
            | {"low": value - width, "high": value + width}
            for name, over, value in found
            for epsilon in slots.EPSILONS
        ]
        return [each.holds for each in slots.judge(kept(rows))]

    assert judged(0.1) == [True] * 4
    assert judged(-0.1) == [False] * 4
    assert judged(0.1, width=0.2) == [None] * 4
    assert set(slots.HELD) == {
        (whole, turn) for whole in (slots.OVERLAP, slots.TOP) for turn in (slots.PEELING, slots.NOISY)
    }, "the claim is about whole slates against slots in turn, and about nothing else"


def test_shading() -> None:
    def judged(gain: float, error: float) -> list[bool | None]:
        rows = [
            {"price": price, "choice": choice, "factor": factor, "surplus": 10 + more, "gain": more}
            | {"standard_error": error if more else 0.0}
            for price in pricing.PRICES
            for choice in (NON_PERSONALISED, RR.at(5))
            for factor, more in ((0.9, gain), (1.0, 0.0))
        ]
        found = pricing.judge_shading(kept(rows))
        assert [each.why for each in found] == ["a theorem: only a bug could fail it", ""]
        return [each.holds for each in found]

    assert judged(gain=1.0, error=0.1) == [False, True]
    assert judged(gain=-1.0, error=0.1) == [True, False]
    assert judged(gain=1.0, error=1.0) == [None, None]


def test_shuffling() -> None:
    def judged(central: float) -> Finding:
        found = {shuffling.BEST: central, shuffling.NUMERIC: 1.2}
        rows = [
            {"local_epsilon": local, "cohort": cohort, "bound": bound, "central_epsilon": epsilon}
            for local in (3, 5)
            for cohort in (1_000, 10_000)
            for bound, epsilon in found.items()
        ]
        return shuffling.judge(kept(rows))[0]

    assert judged(0.9).holds is True
    assert judged(1.1).holds is False
    assert "nothing by their closed form" in judged(0.9).seen
    assert judged(0.9).why == "exact arithmetic: no data enters"


def test_cohorts() -> None:
    def judged(claimed: float, real: float, ours: float) -> bool | None:
        ten, day = cohorts.TEN_MINUTES, cohorts.DAY
        shares = {(ten, cohorts.ALL): claimed, (ten, cohorts.OWN): real, (day, cohorts.CUT): ours}
        rows = [
            {"seed": seed, "local_epsilon": 5, "impressions_a_day": 1_000_000, "epoch": epoch, "counted": way}
            | {"menus": 70, "share_hidden": share if seed == 2 else {real: 0.0}.get(share, 1.0)}
            for seed in (1, 2, 3)
            for (epoch, way), share in shares.items()
        ]
        return cohorts.judge(kept(rows))[0].holds

    assert judged(claimed=1.0, real=0.2, ours=0.995) is True
    assert judged(claimed=0.9, real=0.2, ours=0.995) is False, "nothing was claimed that is not true"
    assert judged(claimed=1.0, real=0.6, ours=0.995) is False, "one seed of three decides"
    assert judged(claimed=1.0, real=0.2, ours=0.9) is False


def test_no_arm_is_no_reason() -> None:
    assert Lifts.of(()).none_above((), "surplus") is None


def test_a_table_that_lacks_a_row_is_refused() -> None:
    rows = lifts({NON_PERSONALISED: 100.0, GREEDY: 120.0}, market="x")
    with pytest.raises(BadInput, match="expected a row of"):
        mechanisms.judge_epsilon(kept(rows))
