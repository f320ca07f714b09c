"""The study of priors: made-up laws, what reports teach, real check-ins, and verdicts on tables by hand."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.data.generators.worlds import seeded_generator
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.plans import plan_choice
from tacit.errors import BadInput
from tacit.privacy.choice.noise import Noise
from tacit_lab.studies.choice import checkins, learning, prior_verdicts
from tacit_lab.studies.choice.checkins import CityRequests, city_gains, read_city, requests_of
from tacit_lab.studies.choice.prior_trials import (
    FAKES,
    FARMS,
    LEARNT_AT,
    REGRET,
    SERVED,
    PriorTrial,
    measure_trial,
)
from tacit_lab.studies.choice.reports import (
    COUNTED,
    DEFAULT,
    PUBLISHED,
    REPORTS,
    RESPONSE,
    TRUE,
    FakeReports,
    ReportingMenus,
    learnt_priors,
    within,
)
from tacit_lab.studies.choice.truths import (
    BIN_WIDTH,
    DISPLAY,
    EIGHT,
    MOST_BINS,
    SEARCH,
    TRUTHS,
    counted_prior,
    counting_plan,
    log_ratios,
    market_menus,
    menus_under,
    public_menus,
    true_prior,
)
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Finding, StudyRequest, StudyScale


def test_truths_have_mean_one_and_are_the_laws_that_they_name() -> None:
    assert len(TRUTHS) == 18
    for law in TRUTHS.values():
        assert law.mean() == pytest.approx(1)
        assert (np.diff(law) >= 0).all()
        assert law[0] >= 0
    assert np.log(TRUTHS["lognormal 0.6"]).std() == pytest.approx(0.6, rel=0.01)
    assert np.median(np.log(TRUTHS["log-Laplace 0.4"])) == pytest.approx(np.log(1 - 0.4**2), abs=0.01)
    liked = TRUTHS["0.2 liked x8"]
    assert liked[-1] / liked[0] == pytest.approx(8)
    assert np.mean(liked > 1) == pytest.approx(0.2, abs=0.002)
    known = TRUTHS["0.25 known, lognormal 1"]
    assert np.mean(np.isclose(known, 1, rtol=1e-3)) == pytest.approx(0.75, abs=0.01)


def test_the_true_prior_plans_as_the_law_s_own_family_does() -> None:
    public = [1.0, 0.9, 0.85, 0.3]
    for epsilon in (1, 2, 5):
        ours, other = (
            plan_choice(public, prior, epsilon) for prior in (true_prior("lognormal 1"), Spread(1.0))
        )
        assert (ours.kept, ours.top) == (other.kept, other.top)
        assert ours.forecast_gain == pytest.approx(other.forecast_gain, rel=0.01)


def test_menus_are_in_units_of_their_best_and_the_public_best_is_worth_its_score() -> None:
    for market in (DISPLAY, SEARCH, EIGHT):
        menus = public_menus(market, 5, 1)
        assert len(menus) == 5
        assert all(each[0] == 1 and (np.diff(each) <= 0).all() and 2 <= len(each) <= 15 for each in menus)
        assert menus_under(market, "Pareto 1.5", 5, 1_024, 1).public_best == pytest.approx(1)


def by_hand() -> ReportingMenus:
    people = np.array([[1.0, 3.0], [2.0, 0.5], [3.0, 0.5], [2.0, 2.0]])
    return ReportingMenus([np.array([2.0, 1.5])], [people], [np.tile(people, (4, 1))])


def test_gains_are_those_of_the_laws_themselves() -> None:
    menus = by_hand()
    assert menus.public_best == 2
    assert menus.greedy_gain == pytest.approx(10 / 4 - 2)
    plan = plan_choice(menus.public[0], Spread(2.0), 3)
    assert (plan.kept, plan.top) == (2, 1)
    expected = (plan.pmf(menus.measured[0]) * menus.measured[0]).sum(axis=1).mean() - 2
    assert menus.planned_gain(Spread(2.0), 3) == pytest.approx(expected)
    assert menus.planned_gain(Spread(0.01), 3) == 0, "nothing is spent, nothing gained"
    assert menus.response_gain(3) == pytest.approx(expected), "gamma 1 keeps both"
    assert menus.response_gain(0.01) == 0, "gamma 0 keeps the public best"
    assert within(np.array([2.0, 1.5]), 0.25) == 2
    assert within(np.array([2.0, 1.5]), 0.2) == 1
    assert menus.noisy_gain(Noise.EXPONENTIAL, 500) == pytest.approx(menus_of_every(menus, 4).greedy_gain)


def menus_of_every(menus: ReportingMenus, step: int) -> ReportingMenus:
    return ReportingMenus(menus.public, menus.reporting, [each[::step] for each in menus.measured])


def test_reports_teach_and_fakes_mislead() -> None:
    menus = menus_under(EIGHT, "lognormal 0.1", 3, 1_024, 1)

    def learnt(fakes: FakeReports | None = None) -> list[float]:
        found = list(learnt_priors(menus, 5.0, (500, 2_000), seeded_generator(1, 99), fakes))
        assert [number for number, _ in found] == [0, 500, 2_000]
        return [prior.deviation(8) for _, prior in found]

    honest = learnt()
    assert honest == learnt(), "one seed, one run"
    assert honest[0] == pytest.approx(Spread().deviation(8)), "nothing is known: the default"
    assert honest[2] < 0.8 * honest[0], "a quarter of the scenarios stays the default's, the others came nearer"
    assert learnt(FakeReports(1.0, lowest=True))[2] > honest[2]
    assert [str(each) for each in FARMS][:2] == ["10% fakes, lowest rank", "30% fakes, lowest rank"]


def test_counted_ratios_are_one_bin_a_device_with_the_noise_of_both_servers() -> None:
    public, private = np.array([0.5, 0.25]), np.array([[1.0, 0.5], [0.5, 1.0], [0.0, 1.0]])
    found = log_ratios(public, private, np.array([0, 1, 0]))
    assert found[:2] == pytest.approx([0, np.log(1.0 / 0.25) - np.log(2)]), "what all share is divided out"
    assert found[2] < -10
    plan = counting_plan(5_000)
    assert plan.epsilon == 0.25
    assert plan.published_sd(5_000) == pytest.approx(8, rel=0.01)  # two draws of scale 4
    many = np.repeat([0.0, 0.5, -9.0], [3_000, 1_000, 1_000])
    prior = counted_prior(many, seeded_generator(1, 5))
    weight = dict(zip(np.round(np.log(prior.values) / BIN_WIDTH).tolist(), prior.weights or (), strict=True))
    assert len(weight) == 2 * MOST_BINS + 1
    for place, count in ((0, 3_000), (2, 1_000), (-MOST_BINS, 1_000)):
        assert weight[place] == pytest.approx(count - plan.published_sd(5_000), abs=60), "winsorised at e^-2"
    assert sum(weight.values()) - 4_976 < 200, "one deviation less noise elsewhere"
    assert "0.25" in str(prior.statement)


def test_trials_leave_rows_that_become_the_table() -> None:
    few = tuple(TRUTHS)[:2]
    trials = [
        PriorTrial(part, market, 2.0, seed, 2, 1_024, few, (100,))
        for part, market in ((REGRET, EIGHT), (SERVED, DISPLAY), (FAKES, EIGHT))
        for seed in (1, 2)
    ]
    rows = [row for trial in trials for row in measure_trial(trial)]
    table = learning.summarise(rows[::-1])
    assert table == learning.summarise(rows), "whichever trial is done first"
    parts = Counter(row["part"] for row in table)
    arms = len(learning.ARMS)
    assert parts == {REGRET: 2 * arms, "overall": 2 * arms, SERVED: 2 * (arms + 1), FAKES: 2 * len(FARMS)}
    cell = [row for row in rows if row["part"] == REGRET and (row["truth"], row["arm"]) == (few[0], REPORTS)]
    kept = next(row for row in table if row["part"] == REGRET and row["arm"] == REPORTS)
    assert kept["regret_percent"] == pytest.approx(np.mean([row["regret_percent"] for row in cell]))
    assert all(row["regret_percent"] == 0 for row in table if row["part"] == REGRET and row["arm"] == TRUE)
    worst = prior_verdicts.seed_figures(table, "worst_regret", part="overall", arm=REPORTS)
    own = [
        row["regret_percent"]
        for row in rows
        if row.get("arm") == REPORTS and row["seed"] == 2 and "truth" in row
    ]
    assert worst[1] == max(own)


def test_markets_have_their_own_law_for_each_of_three_groups_of_people() -> None:
    menus, known = market_menus(SEARCH, 2, 4_000, 1)
    for public, *groups in zip(menus.public, menus.reporting, menus.measured, known, strict=True):
        for people in groups:
            assert people.mean(axis=0) == pytest.approx(public, rel=0.05)
        assert not np.array_equal(groups[0], groups[1])


def visits() -> list[tuple[str, str, str]]:
    """Two people with their own places in a root that has three, and one root with a single place."""
    one = [("a", "Food", "x"), ("b", "Food", "y"), ("b", "Food", "x"), ("a", "Home", "h"), ("b", "Food", "z")]
    return [*one * 4, ("a", "Food", "x"), ("c", "Food", "z"), ("a", "Home", "h"), ("c", "Food", "x")][:24]


def test_requests_come_in_order_with_the_history_so_far() -> None:
    log = visits()
    found = requests_of(log)
    first = int(checkins.PUBLIC_PART * len(log))
    assert first == 20
    assert list(found.public) == ["Food"], "one place leaves nothing to choose"
    assert found.public["Food"].tolist() == [8 / 16, 4 / 16, 4 / 16]
    assert found.root == ["Food", "Food", "Food"]
    assert found.person.tolist() == [0, 1, 1]
    public = found.public["Food"]
    assert found.private[0] == pytest.approx((np.array([4, 0, 0]) + 4 * public) / 8)
    assert found.private[1] == pytest.approx(public), "who has no history has the public shares"
    assert found.private[2] == pytest.approx((np.array([0, 0, 1]) + 4 * public) / 5)
    assert len(found.counted) == 2


def test_shares_are_clustered_by_person() -> None:
    private = [np.array([1.0, 2.0])] * 200
    some = CityRequests({"r": np.array([1.0, 1.0])}, ["r"] * 200, np.arange(200) // 100, private, np.zeros(1))
    half = np.repeat([0.0, 1.0], 100)
    assert some.share(half).value == 0.5
    assert some.share(half).high > 1, "two people say little, however many their requests"
    assert some.share(np.full(200, 0.5)).high == pytest.approx(0.5)


def test_a_folder_without_check_ins_is_refused_and_so_are_other_columns(tmp_path: Path) -> None:
    asked = StudyRequest(tmp_path / "out", StudyScale.TOY, seeds=1, data=tmp_path)
    with pytest.raises(BadInput, match="expected a city's log, checkins_nyc or visits_jakarta"):
        learning.run(asked)
    (tmp_path / "checkins_nyc.csv").write_text("user,category_path\na,Food\n")
    with pytest.raises(BadInput, match="expected columns user, category_path, venue_id, got others"):
        learning.run(asked)
    (tmp_path / "checkins_nyc.csv").write_text("user,category_path,venue_id\na,Food,x\n")
    with pytest.raises(BadInput, match="expected at least 1,000 requests, got 0"):
        read_city(tmp_path, "New York")


@pytest.mark.slow
def test_check_ins_of_real_cities(tmp_path: Path) -> None:
    folder = os.environ.get("TACIT_DATA")
    if folder is None or not (Path(folder) / "checkins_nyc.csv.gz").is_file():
        pytest.skip(
            "TACIT_DATA is not set or has no checkins_nyc.csv.gz: no public sample of check-ins to serve"
        )
    found, _ = read_city(Path(folder), "New York", rows=learning.TOY_ROWS)
    assert len(found.root) == len(found.private) == 2_974
    gains = city_gains(found, 5.0)
    shares = {arm: found.share(gain).value for arm, gain in gains.items()}
    assert 0 < shares[REPORTS] <= 1
    assert shares[RESPONSE] >= 0, "gamma 0 is the public best"
    outcome = learning.STUDY.outcome(StudyRequest(tmp_path, StudyScale.TOY, seeds=1, data=Path(folder)))
    assert {each.claim for each in outcome.findings} == {prior_verdicts.T32}
    assert "synthetic" not in outcome.note


def table(
    regret: float = 0.8,
    worst: float = 7.0,
    counted: float = 0.0,
    ours: float = 30.0,
    apart: float = 0.02,
    noise: float = 0.0,
) -> list[dict[str, Any]]:
    """What the study would leave: figures of three seeds, this far apart."""
    rows: list[dict[str, Any]] = []
    for seed, more in zip((1, 2, 3), (-noise, 0.0, noise), strict=True):
        for arm, gain, least in ((REPORTS, ours, -4.0), (COUNTED, 29.0, counted), (DEFAULT, 29.0, -6.0)):
            figures = {"gain_percent": gain + more, "worst_gain": least + more}
            figures |= {"regret_percent": regret + more, "worst_regret": worst + more}
            rows.append({"part": "overall", "arm": arm, "seed": seed, **figures})
        rows += [
            {"part": "overall", "arm": arm, "seed": seed, "gain_percent": 28.0} for arm in (RESPONSE, PUBLISHED)
        ]
        for market in (DISPLAY, SEARCH):
            for epsilon in prior_verdicts.EPSILONS:
                served = {"part": "served", "setting": market, "epsilon": epsilon, "seed": seed}
                rows.append({**served, "arm": TRUE, "share": 0.5})
                rows.append({**served, "arm": REPORTS, "requests": 100, "share": 0.1})
                rows.append({**served, "arm": REPORTS, "requests": 900, "share": 0.5 - apart + more / 10})
    return rows


def judged(rows: list[dict[str, Any]]) -> list[Finding]:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return prior_verdicts.judge(ResultFiles(columns, {"parameters": {"scale": "small"}}))


def test_verdicts_on_made_up_requests() -> None:
    def holds(**figures: float) -> list[bool | None]:
        return [each.holds for each in judged(table(**figures))]

    assert holds() == [True, True, True, True, True]
    assert holds(regret=1.1) == [False, True, True, True, True]
    assert holds(worst=9.5) == [False, True, True, True, True], "the largest counts too"
    assert holds(counted=-0.1) == [True, False, True, True, True]
    assert holds(ours=27.0) == [True, True, False, True, True]
    assert holds(apart=0.06) == [True, True, True, False, False]
    assert holds(noise=1.0) == [None, None, None, None, None]
    assert f"{LEARNT_AT[-1]:,} reports" in judged(table())[0].rule


def test_verdicts_on_cities() -> None:
    def holds(share: float, width: float, city: str = "New York") -> bool | None:
        rows = [
            {"part": "city", "setting": city, "arm": REPORTS, "epsilon": epsilon, "requests": 9}
            | {"share": bar + share, "low": bar + share - width, "high": bar + share + width}
            for epsilon, bar in prior_verdicts.BARS["New York"].items()
        ]
        (found,) = judged(rows)
        return found.holds

    assert holds(0.02, 0.01) is True
    assert holds(-0.02, 0.01) is False
    assert holds(0.02, 0.05) is None
    assert holds(0.02, 0.01, "Jakarta") is None, "no bar was set"
