"""Verdicts on contexts and statistics are read from tables: made-up ones reach each of the three."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import pytest

from tacit.errors import BadInput
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.contexts import (
    ads_shown,
    bootstrap,
    disclosure,
    greedy,
    own_history,
    private_choice,
    shrinkage,
)
from tacit_lab.studies.gather import noise, private_rates
from tacit_lab.studies.gather.setting import difference_name, share_name
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Finding

UP, DOWN, EITHER = (0.1, 0.05, 0.15), (-0.1, -0.15, -0.05), (0.01, -0.04, 0.06)
NOTHING = (math.nan, math.nan, math.nan)

Interval = tuple[float, float, float]


def kept(rows: Iterable[Mapping[str, object]], **parameters: object) -> ResultFiles:
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    table = {name: [row.get(name) for row in rows] for name in names}
    return ResultFiles(table, {"parameters": {"scale": "small", **parameters}})  # type: ignore[arg-type]


def measured(value: float, low: float, high: float) -> MeasuredValue:
    return MeasuredValue(value, low, high, 0.95)


def one(found: Iterable[Finding], where: str = "") -> Finding:
    (only,) = (each for each in found if each.where == where)
    return only


def figures(**labels: list[object]) -> list[bootstrap.Row]:
    """A row for every combination of labels."""
    rows: list[dict[str, object]] = [{}]
    for name, several in labels.items():
        rows = [{**row, name: each} for row in rows for each in several]
    return [bootstrap.figure_row(measured(0.4, 0.35, 0.45), **row) for row in rows]  # type: ignore[arg-type]


def test_a_row_is_read_as_it_was_written() -> None:
    for found in (measured(*UP), measured(75, -3, math.inf), measured(math.inf, 20, math.inf)):
        assert bootstrap.read_contrast(kept([bootstrap.contrast_row("a less b", found)]), "a less b") == found
    nothing = bootstrap.read_contrast(
        kept([bootstrap.contrast_row("a less b", measured(*NOTHING))]), "a less b"
    )
    assert math.isnan(nothing.value)
    rows = figures(arm=["a", "b"], epsilon=[None, 3])
    assert bootstrap.read_figure(kept(rows), arm="a", epsilon=None).value == 0.4
    with pytest.raises(BadInput, match=r"expected one row with .*'arm': 'a'.* got 2"):
        bootstrap.read_figure(kept(rows), arm="a")


def of_thresholds(precision: Interval, coverage: Interval) -> Finding:
    rows = figures(threshold=[0.3], requests=["all"], metric=["precision", "coverage"])
    for metric, ends in (("precision", precision), ("coverage", coverage)):
        rows.append(bootstrap.contrast_row(ads_shown.threshold_contrast(metric), measured(*ends)))
    return one(ads_shown.judge_threshold(kept(rows)))


def test_a_threshold_trades_if_precision_rises_and_coverage_falls() -> None:
    assert of_thresholds(UP, DOWN).holds is True
    assert of_thresholds(UP, UP).holds is False
    assert of_thresholds(EITHER, DOWN).holds is None
    assert of_thresholds(NOTHING, DOWN).holds is None


def of_ads(first: Interval, later: Interval, percent: Interval = UP) -> list[Finding]:
    rows = [
        bootstrap.contrast_row(ads_shown.ads_contrast(metric, *step), measured(*ends))
        for metric in ads_shown.METRICS
        for step, ends in zip(ads_shown.STEPS, (first, later), strict=True)
    ]
    return ads_shown.judge_ads(
        kept([*rows, bootstrap.contrast_row(ads_shown.FIVE_FOR_ONE, measured(*percent))])
    )


def test_returns_diminish_if_the_first_ads_bring_more_each() -> None:
    assert one(of_ads(UP, UP), "coverage").holds is True
    assert one(of_ads(UP, (0.9, 0.8, 1.0)), "coverage").holds is False  # .9 for 40 ads, .1 for nine
    assert one(of_ads(DOWN, EITHER), "precision").holds is False
    assert one(of_ads(EITHER, EITHER), "precision").holds is None
    assert one(of_ads(UP, NOTHING), "precision").holds is None
    wide = (0.2, -0.4, 0.8)  # .005 an ad where the first bring .011, and as likely twice as much
    assert one(of_ads(UP, wide), "coverage").holds is None, "means alone do not decide"


def test_five_ads_may_beat_nothing_at_all() -> None:
    assert one(of_ads(UP, UP, (math.inf, 20, math.inf))).holds is True
    assert one(of_ads(UP, UP, (75, -3, math.inf))).holds is None
    assert one(of_ads(UP, UP, (-20, -40, -5))).holds is False


def test_each_disclosure_is_held_against_what_its_claim_says() -> None:
    two = {claim.id: arms for claim, (_, *arms) in disclosure.COMPARED.items()}
    assert two == {
        "M4": [("(1,1,1)", 10), ("(0,0,0)", 10)],
        "M5": [("(4,2,2)", 50), ("(0,0,0)", 10)],  # what the finer one had, with fewer ads
        "M6": [("(1,1,1)", 10), ("client alone", 10)],
    }
    assert disclosure.disclosure_contrast(disclosure.M5) == (
        "precision at coverage 0.4, (4,2,2) with 50 ads less (0,0,0) with 10 ads"
    )


def test_disclosures_are_judged_by_their_contrasts() -> None:
    rows = figures(
        disclosed=list(disclosure.LEVELS), ads=[10, 50], requests=["all"], metric=list(disclosure.STATISTICS)
    )

    def verdicts(ends: Interval) -> list[bool | None]:
        contrasts = [
            bootstrap.contrast_row(disclosure.disclosure_contrast(claim), measured(*ends))
            for claim in disclosure.COMPARED
        ]
        return [each.holds for each in disclosure.judge_disclosure(kept([*rows, *contrasts]))]

    assert verdicts((0.03, 0.01, 0.04)) == [True, True, True]  # within .05, and above 0
    assert verdicts((-0.1, -0.15, -0.06)) == [False, False, False]
    assert verdicts((0.03, -0.01, 0.07)) == [None, None, None]
    assert verdicts(NOTHING) == [None, None, None]
    assert verdicts((0.0, 0.0, 0.0)) == [True, True, False], "as good as before is bought back, and not more"


RISES: dict[str, tuple[Callable[[ResultFiles], Iterable[Finding]], list[bootstrap.Row], str, str]] = {
    "T8": (
        own_history.judge,
        figures(client=list(own_history.LOOKS), requests=["all"], metric=[own_history.METRIC]),
        own_history.GAINED,
        "",
    ),
    "T11": (
        private_choice.judge,
        [
            *figures(choice=[private_choice.SERVER], epsilon=[None], requests=["all"]),
            *figures(choice=[private_choice.PLANNED], epsilon=[3], requests=["all"]),
        ],
        private_choice.GAINED,
        "",
    ),
    "T9": (
        shrinkage.judge,
        [
            *figures(disclosed=list(shrinkage.LEVELS), estimates=list(shrinkage.LOOKS), requests=["all"]),
            bootstrap.contrast_row(shrinkage.estimate_contrast("(4,2,2)"), measured(*UP)),
        ],
        shrinkage.estimate_contrast("(1,1,1)"),
        "(1,1,1)",
    ),
}


@pytest.mark.parametrize("claim", RISES)
@pytest.mark.parametrize(("ends", "verdict"), [(UP, True), (DOWN, False), (EITHER, None), (NOTHING, None)])
def test_what_is_ours_is_judged_by_its_contrast(claim: str, ends: Interval, verdict: bool | None) -> None:
    judge, rows, name, where = RISES[claim]
    found = one(judge(kept([*rows, bootstrap.contrast_row(name, measured(*ends))])), where)
    assert (found.claim.id, found.holds) == (claim, verdict)
    assert any(word in found.rule for word in ("rises", "is above")), "a rule says what must be so"


def test_a_cut_is_held_to_the_levels_around_it() -> None:
    bits = {str(levels): 4.0 + at for at, levels in enumerate(reversed(disclosure.ROOTS))}  # 4, 5, ... 8
    rows = [
        bootstrap.figure_row(
            measured(*UP), disclosed=disclosure.WITH_ROOT, levels=levels, bits=told, requests="all"
        )
        for levels, told in bits.items()
    ]
    for name, ends in ((disclosure.WITH_KIND, UP), (disclosure.MANY_ENOUGH, DOWN)):
        levels = str(disclosure.COARSE_AND_KIND)
        rows.append(
            bootstrap.figure_row(measured(*UP), disclosed=name, levels=levels, bits=6.4, requests="all")
        )
        rows.append(bootstrap.contrast_row(disclosure.cut_contrast(name), measured(*ends)))
    found = disclosure.judge_cut(kept(rows))
    assert one(found, disclosure.WITH_KIND).holds is True
    assert one(found, disclosure.MANY_ENOUGH).holds is False
    assert one(found, disclosure.WITH_KIND).seen.endswith("at 6.4 bits, between 6.0 and 7.0")


def test_one_instance_below_the_guarantee_is_enough() -> None:
    def verdict(worst: float) -> bool | None:
        rows = [{"rates": "alike", "share_of_optimum": each} for each in (1.0, worst)]
        found = one(greedy.judge(kept(rows)))
        assert found.why == "a theorem: only a bug could fail it"
        return found.holds

    assert verdict(0.7) is True
    assert verdict(0.68) is False  # four ads: 1 - (3/4)^4 = .684
    assert one(greedy.judge(kept([]))).holds is None


def of_rates(lost: Interval, share: Interval, gained: Interval) -> list[bool | None]:
    rows = figures(statistics=list(private_rates.EPSILON_ARMS), requests=["all"], precision=[0.3, 0.6])
    names = private_rates
    rows.append(bootstrap.contrast_row(difference_name(names.PAPER_1, names.EXACT, 0.6), measured(*lost)))
    rows.append(bootstrap.contrast_row(difference_name(names.OURS_1, names.PAPER_1), measured(*gained)))
    for half, whole in ((names.PAPER_HALF, names.PAPER_1), (names.OURS_HALF, names.OURS_1)):
        rows.append(bootstrap.contrast_row(share_name(half, whole), measured(*share)))
    return [each.holds for each in names.judge_epsilon(kept(rows))]


def test_private_rates_are_judged_by_their_contrasts() -> None:
    assert of_rates(DOWN, (0.97, 0.92, 1.0), UP) == [True, True, True]
    assert of_rates(UP, (0.5, 0.4, 0.6), DOWN) == [False, False, False]
    assert of_rates(EITHER, (0.9, 0.7, 1.1), EITHER) == [None, None, None]


def test_people_away_are_judged_by_what_is_kept() -> None:
    def verdicts(share: Interval, gained: Interval) -> list[bool | None]:
        rows = figures(statistics=list(private_rates.AWAY_ARMS), requests=["all"], precision=[0.3])
        for arm in (private_rates.paper_arm, private_rates.our_arm):
            rows.append(bootstrap.contrast_row(share_name(arm("0.75"), arm("0")), measured(*share)))
        apart = difference_name(private_rates.SERVERS, private_rates.our_arm("0.75"))
        rows.append(bootstrap.contrast_row(apart, measured(*gained)))
        return [each.holds for each in private_rates.judge_away(kept(rows))]

    assert verdicts((0.97, 0.92, 1.0), UP) == [True, True]
    assert verdicts((0.5, 0.4, 0.6), DOWN) == [False, False]
    assert verdicts(NOTHING, EITHER) == [None, None]


def test_each_bound_has_a_contrast_of_its_own() -> None:
    rows = figures(statistics=list(private_rates.BOUNDS_ARMS), requests=["all"], precision=[0.3])
    for ends, two in zip((UP, DOWN, EITHER, NOTHING), private_rates.COMPARED.values(), strict=True):
        rows.append(bootstrap.contrast_row(difference_name(*two), measured(*ends)))
    found = private_rates.judge_bounds(kept(rows))
    assert [(each.claim.id, each.holds) for each in found] == [
        ("T15", True),
        ("T16", False),
        ("T17", None),
        ("T18", None),
    ]


def test_noise_keeps_its_promise_by_mean_variance_and_delta() -> None:
    def verdicts(mean: float, delta: float) -> list[bool | None]:
        sds = {1: math.sqrt(6 * 16 * math.log(400)), 2: math.sqrt(2 * 6 * 16 * math.log(400))}
        rows = [
            {"noise": scheme, "levels": levels, "mean": mean, "sd": sd, "chance of none": 0.1}
            | {"delta of one count": delta}
            for scheme in noise.SCHEMES
            for levels, sd in sds.items()
        ]
        whole = {noise.WITHOUT_ROUNDING: {"corollary": 0.004, "proof": 0.016}}
        found = noise.judge(kept(rows, **whole))
        assert {each.why for each in found} == {"exact arithmetic: only a bug could change it"}
        return [each.holds for each in found]

    # M14, of whose accuracy no row tells here, is undecided between the two.
    assert verdicts(0.0, 0.001) == [True, None, True]
    assert verdicts(-58_216.0, 0.001) == [False, None, False]
    assert verdicts(0.0, 0.02) == [False, None, False]
