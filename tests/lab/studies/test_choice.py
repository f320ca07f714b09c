"""Studies of choice: every one at toy size for real, and the machinery that their verdicts stand on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.arrays import Floats
from tacit.data.generators.worlds import seeded_generator
from tacit.deliver.auction.blocks import AuctionBlock, AuctionNames, PublicCandidates, Rates, make_offers
from tacit.deliver.auction.choices import (
    GREEDY,
    NON_PERSONALISED,
    ChoiceRule,
    Greedy,
    NonPersonalised,
    TopChoiceRule,
)
from tacit.deliver.auction.incentives import BidShading
from tacit.deliver.auction.market import Arm, MarketResults, measure, private_scores
from tacit.deliver.auction.metrics import metric_values
from tacit.deliver.auction.planned_choices import budget_rule, forecast_block, planned_rule
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.prices import BillingEvent, Rules, SecondPrice
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY
from tacit.kernels.choices import expected
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling import epsilon
from tacit.privacy.shuffling.bounds import clone_delta, standard_clones
from tacit.privacy.units import Window
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.choice import (
    budget,
    cohorts,
    exploration,
    frontier,
    mechanisms,
    pricing,
    shuffling,
    slots,
)
from tacit_lab.studies.choice.bandits import Regret
from tacit_lab.studies.choice.contestants import (
    CLIPPED,
    EPSILONS,
    RR,
    SCALED,
    Forecasts,
    clipped_snm,
    planned_trunc,
    run_contest,
)
from tacit_lab.studies.choice.lifts import Lifts, Pair, Part, above_zero, part_words, records
from tacit_lab.studies.choice.markets import (
    StudyMarket,
    auctions_of_size,
    half_of_auctions,
    mix_rates,
    study_markets,
)
from tacit_lab.studies.registry import load_study
from tacit_lab.studies.results import read_table
from tacit_lab.studies.study import StudyRequest, StudyScale
from tests.support.toy_studies import toy_studies


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choice")


def numbered_from(block: AuctionBlock, first: int) -> AuctionBlock:
    """The same auctions from another place in the stream."""
    return replace(block, public=replace(block.public, names=AuctionNames(first=first)))


@pytest.fixture(scope="module")
def display(folder: Path) -> StudyMarket:
    return study_markets(StudyRequest(folder, StudyScale.TOY, seeds=1))[0]


SIX_PANELS = "choice-gamma"  # longer to draw than to run; its verdicts have quick tests of their own


@pytest.mark.parametrize(
    "name", [*toy_studies("choice-", without={SIX_PANELS}), pytest.param(SIX_PANELS, marks=pytest.mark.slow)]
)
def test_every_study_runs_at_toy_size_and_says_what_it_is(name: str, folder: Path) -> None:
    chosen = load_study(name)
    outcome = chosen.outcome(StudyRequest(folder, StudyScale.TOY, seeds=1, processes=1))
    assert {finding.claim for finding in outcome.findings} == set(chosen.claims)
    assert all(finding.holds is None for finding in outcome.findings), "toy figures decide nothing"
    assert all(finding.rule and finding.seen for finding in outcome.findings)
    assert "synthetic" in outcome.note
    assert all(len(row) == len(outcome.columns) for row in outcome.rows)
    assert {file.suffix for file in outcome.files} == {".csv", ".svg", ".png", ".json"}
    assert all(file.stat().st_size > 200 for file in outcome.files)
    assert read_table(folder, name)
    record = json.loads((folder / f"{name}.json").read_text())
    assert record["synthetic"] is True
    assert record["parameters"]["scale"] == "toy"
    assert chosen.findings(folder) == outcome.findings, "the folder is all that a verdict needs"
    assert all(finding.verdict == "undecided (toy scale decides nothing)" for finding in outcome.findings)


def lifts_of(results: MarketResults, *pairs: Pair, parts: Sequence[Part] = ()) -> Lifts:
    return Lifts.of(records(results, {}, [(arm, {}) for arm in results.arms], pairs, parts=parts))


def test_lifts_are_those_of_the_means_and_verdicts_follow_their_intervals(display: StudyMarket) -> None:
    results = run_contest(display, (RR,), (0.5, 30))
    lifts = lifts_of(results, (NON_PERSONALISED, GREEDY))
    assert lifts.share(GREEDY, "welfare") == 1
    assert lifts.share(NON_PERSONALISED, "welfare") == 0
    found = lifts.lift(RR.at(0.5), "welfare")
    means = [results.mean(arm, "welfare") for arm in (RR.at(0.5), NON_PERSONALISED)]
    assert found.value == pytest.approx(100 * (means[0] / means[1] - 1))
    assert lifts.mean(RR.at(0.5), "welfare") == means[0]
    assert lifts.above(GREEDY, NON_PERSONALISED, "welfare") is True
    assert lifts.above(NON_PERSONALISED, GREEDY, "welfare") is False
    assert lifts.above(NON_PERSONALISED, NON_PERSONALISED, "welfare") is None
    with pytest.raises(BadInput, match="expected a row of greedy over RR at 30 in welfare, got none"):
        lifts.above(GREEDY, RR.at(30), "welfare")
    signs = {(1.0, 3.0): True, (-3.0, -1.0): False, (-3.0, 1.0): None, (-1.0, 3.0): None}
    for (low, high), verdict in signs.items():  # a mean below 0 alone decides nothing
        assert above_zero(MeasuredValue((low + high) / 2, low, high, 0.95)) is verdict
    assert lifts.none_above([RR.at(0.5)], "welfare") is True
    assert lifts.none_above([RR.at(0.5), GREEDY], "welfare") is False
    assert results.mean(RR.at(30), "welfare") == pytest.approx(results.mean(GREEDY, "welfare"))


def test_where_nothing_can_be_gained_nothing_is_decided(display: StudyMarket) -> None:
    nothing = mix_rates(display, 0.0)
    drawn = (RR, SCALED, CLIPPED, mechanisms.GUMBEL)
    found_here = run_contest(nothing, drawn, (*EPSILONS, mechanisms.FAR))
    lifts = lifts_of(found_here, *mechanisms.EPSILON_PAIRS, parts=mechanisms.EPSILON_PARTS)
    assert lifts.share(RR.at(5), "clicks") is None
    (found,) = (
        finding for finding in mechanisms.judge_mechanisms(lifts, "x") if finding.claim is mechanisms.R8
    )
    assert found.holds is None
    assert "nothing to gain" in found.seen
    bounds = [clipped_snm(bound) for bound in mechanisms.BOUNDS]
    results = run_contest(nothing, bounds, (mechanisms.LOWEST, mechanisms.HIGH, mechanisms.LIMIT))
    lifts = lifts_of(results, *mechanisms.CLIPPING_PAIRS, parts=mechanisms.CLIPPING_PARTS)
    assert "nothing to gain" in mechanisms.judge_bounds(lifts, "x")[0].seen


def test_a_part_of_the_greedy_gain_is_held_against_auction_by_auction(display: StudyMarket) -> None:
    results = run_contest(display, (RR,), (3.0,))
    arm, parts = RR.at(3.0), (0.0, 0.25, 0.95, 1.0)
    lifts = lifts_of(results, (arm, GREEDY), parts=[(arm, part) for part in parts])
    base, best, mine = (results.mean(each, "clicks") for each in (NON_PERSONALISED, GREEDY, arm))
    for part in parts:
        found = lifts.lift(arm, "clicks", over=part_words(part))
        assert found.value == pytest.approx(100 * (mine - base - part * (best - base)) / base)
    plain, none = lifts.lift(arm, "clicks"), lifts.lift(arm, "clicks", over=part_words(0.0))
    assert none.value == pytest.approx(plain.value)
    mine_of, best_of, base_of = (
        by_auction(display, each) for each in (TopChoiceRule(3.0), Greedy(), NonPersonalised())
    )
    gaps = mine_of - 0.95 * best_of - 0.05 * base_of
    error = gaps.std(ddof=1) / np.sqrt(len(gaps)) / base
    wide = lifts.lift(arm, "clicks", over=part_words(0.95))
    assert wide.high - wide.value == pytest.approx(196 * error)
    assert [lifts.reaches(arm, part, "clicks") for part in (0.0, 1.0)] == [
        above_zero(none),
        above_zero(lifts.lift(arm, "clicks", over=part_words(1.0))),
    ]


def by_auction(market: StudyMarket, rule: ChoiceRule) -> Floats:
    """(auctions,) expected clicks."""
    found = []
    for block in market.blocks:
        offers = make_offers(block.public, Rules())
        law = rule.pmf(offers, private_scores(block, offers))
        found.append(expected(offers.offsets, law, metric_values(block, offers))[:, 0])
    return np.concatenate(found)


def test_a_best_factor_at_the_end_of_the_grid_is_called_so() -> None:
    def found(*surplus: float) -> BidShading:
        each = np.array(surplus)
        return BidShading((0.5, 1.0, 1.5), each, each - each[1], np.zeros(3), 1)

    assert pricing.best_words(found(1, 2, 0)) == "1"
    assert pricing.best_words(found(3, 2, 0)) == "0.5, an end of the grid"
    assert pricing.best_words(found(1, 2, 3)) == "1.5, an end of the grid"


def test_parts_are_the_same_auctions_and_keep_the_clipping_bound(display: StudyMarket) -> None:
    few, many = auctions_of_size(display, 1, 3), auctions_of_size(display, 4, 10**6)
    assert few.count + many.count == display.count
    assert max(block.public.largest for block in few.blocks) == 3
    assert many.unit_micros == few.unit_micros == display.unit_micros
    assert replace(many, whole=None).unit_micros > replace(few, whole=None).unit_micros, (
        "else it would not matter"
    )
    totals = [measure(part.blocks, {"x": Arm(Greedy())}) for part in (few, many, display)]
    sums = [found.mean("x", "welfare") * found.auctions for found in totals]
    assert sums[0] + sums[1] == pytest.approx(sums[2])
    halves = [half_of_auctions(display, first) for first in (0, 1)]
    assert sum(half.count for half in halves) == display.count


def test_parts_have_all_that_is_known_of_their_auctions() -> None:
    public = PublicCandidates(
        np.array([0, 2, 3, 6]),
        np.arange(6) + 10,
        Rates(np.arange(6) / 10, np.arange(6) / 20),
        np.array([0, 1, 2, 0, 1, 2], np.uint8),
        np.arange(6) + 40,
        AuctionNames(np.array(["a", "b", "c"])),
    )
    private, truth = (Rates(np.arange(6) / by, np.arange(6) / 2 / by) for by in (7, 8))
    block = AuctionBlock(public, private, truth, np.array([70, 71, 72]))
    (odd,) = half_of_auctions(StudyMarket("x", 0.3, (block,)), 1).blocks
    (even,) = half_of_auctions(StudyMarket("x", 0.3, (block,)), 0).blocks
    for part, rows, auctions in ((odd, [2], [1]), (even, [0, 1, 3, 4, 5], [0, 2])):
        of, all_rates = part.public, ((part.public.rates, public.rates), (part.private, private))
        for found, whole in (*all_rates, (part.truth, truth)):
            assert found is not None
            assert found.click.tolist() == whole.click[rows].tolist()
            assert found.conversion is not None
            assert whole.conversion is not None
            assert found.conversion.tolist() == whole.conversion[rows].tolist()
        assert np.asarray(of.bids_for).tolist() == np.asarray(public.bids_for)[rows].tolist()
        assert of.bid_micros.tolist() == public.bid_micros[rows].tolist()
        assert np.asarray(of.campaign).tolist() == [40 + row for row in rows]
        assert np.asarray(part.user).tolist() == [70 + at for at in auctions]
        assert [of.names.of(at) for at in range(of.count)] == ["abc"[at] for at in auctions]
    assert np.diff(even.public.offsets).tolist() == [2, 3]
    (half,) = mix_rates(StudyMarket("x", 0.3, (block,)), 0.5).blocks
    np.testing.assert_allclose(half.private.click, (private.click + public.rates.click) / 2)
    assert half.private.conversion is not None
    np.testing.assert_allclose(half.private.conversion, np.arange(6) / 2 * (1 / 14 + 1 / 20))
    assert half.truth is truth
    assert half.user is block.user


def test_generated_parts_keep_their_numbers_in_the_stream(display: StudyMarket) -> None:
    (block,) = display.blocks
    (odd,) = half_of_auctions(replace(display, blocks=(numbered_from(block, 1000),)), 1).blocks
    assert [odd.public.names.of(at) for at in range(3)] == ["1001", "1003", "1005"]


def test_forecasts_are_kept_by_all_that_they_are_made_of(display: StudyMarket) -> None:
    halves = [half_of_auctions(display, first).blocks[0] for first in (0, 1)]
    offers = [make_offers(half.public, Rules()) for half in halves]
    rows = offers[0].rows
    apart = replace(offers[0], offsets=np.append(np.arange(0, len(rows), 2), len(rows)))  # the same, in pairs
    empty = replace(offers[0], rows=np.where(np.arange(len(rows)) % 3, rows, EMPTY))
    forecasts = Forecasts((1.0, 5.0))
    asked = [(each, Spread(spread)) for each in (*offers, apart, empty) for spread in (0.3, 0.9)]
    for _ in range(2):
        for each, prior in asked:
            found, alone = forecasts.of(each, prior), forecast_block(each, prior, (1.0, 5.0))
            np.testing.assert_array_equal(found.gain, alone.gain)
            np.testing.assert_array_equal(found.kept, alone.kept)
    again = replace(offers[0]), Spread(0.3)
    assert forecasts.of(*asked[0]) is forecasts.of(*again), "nothing is planned twice"
    assert len({forecasts.of(*each).gain.sum() for each in asked}) == len(asked), "else it would not matter"


def test_a_policy_of_the_study_is_the_rule_of_the_library(display: StudyMarket) -> None:
    policy = BudgetPolicy(10, budget.LADDER, 0.0, Window.days(1))
    offers, prior = make_offers(display.blocks[0].public, Rules()), Spread(0.9)
    forecasts = Forecasts(budget.LADDER)
    shared = budget_rule(prior, policy, budget.REQUESTS, partial(forecasts.of, prior=prior))
    found = shared.epsilon(offers)
    assert found.tolist() == budget_rule(prior, policy, budget.REQUESTS).epsilon(offers).tolist()
    assert forecasts.evenly(offers, prior, 2.0).epsilon(offers).tolist() == (
        planned_rule(prior, 2.0).epsilon(offers).tolist()
    )


def test_devices_that_know_only_what_the_server_knows_gain_nothing(display: StudyMarket) -> None:
    results = run_contest(mix_rates(display, 0.0), (), ())
    assert results.mean(GREEDY, "clicks") == pytest.approx(results.mean(NON_PERSONALISED, "clicks"), rel=1e-12)
    whole = run_contest(mix_rates(display, 1.0), (), ())
    assert whole.mean(GREEDY, "clicks") == pytest.approx(run_contest(display, (), ()).mean(GREEDY, "clicks"))


def test_planning_many_epsilons_at_once_is_planning_each(display: StudyMarket) -> None:
    together, alone = planned_trunc((1, 5)), planned_trunc((5,))
    means = [run_contest(display, (each,), (5,)).mean(each.at(5), "welfare") for each in (together, alone)]
    assert means[0] == means[1]


def test_prices_by_other_models_change_who_pays_and_not_who_wins(display: StudyMarket) -> None:
    for charged in BillingEvent:
        results = pricing._measure_market(display, charged)
        clicks = {results.mean(model, "clicks") for model in pricing.MODELS}
        assert max(clicks) == pytest.approx(min(clicks), rel=1e-12)
        revenues = {round(results.mean(model, "revenue")) for model in pricing.MODELS}
        assert len(revenues) == 3
        server = measure(display.blocks, {"x": Arm(Greedy(), Rules(SecondPrice(charged)))})
        assert results.mean(pricing.SERVER, "revenue") == pytest.approx(server.mean("x", "revenue"))


SEEDED = ["choice-exploration", "choice-shading", "choice-slots", "contexts-greedy"]


@pytest.mark.parametrize("name", [*SEEDED, pytest.param("choice-frontier", marks=pytest.mark.slow)])
def test_all_seeds_that_are_recorded_were_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: set[int] = set()
    _watch_seeds(monkeypatch, drawn)
    load_study(name).run(StudyRequest(tmp_path, StudyScale.TOY, seeds=2))
    recorded = json.loads((tmp_path / f"{name}.json").read_text())["seeds"]
    assert recorded == [1, 2] == sorted(drawn)


def _watch_seeds(monkeypatch: pytest.MonkeyPatch, drawn: set[int]) -> None:
    """Note the seeds of everything that these studies draw from."""
    from tacit.data.generators.markets import Market
    from tacit_lab.studies.contexts import greedy

    def generator_of(seed: int, *stream: int) -> np.random.Generator:
        drawn.add(seed)
        return seeded_generator(seed, *stream)

    def auctions_of(self: Market, count: int, seed: int) -> Any:
        drawn.add(seed)
        return auctions(self, count, seed)

    def simulation_of(seed: str) -> Simulation:
        drawn.add(int(seed.split()[-1]))
        return Simulation(seed)

    auctions = Market.auctions
    for module in (slots, frontier, greedy):
        monkeypatch.setattr(module, "seeded_generator", generator_of)
    monkeypatch.setattr(Market, "auctions", auctions_of)
    monkeypatch.setattr(exploration, "Simulation", simulation_of)


def test_every_seed_brings_requests_of_its_own_under_the_bound() -> None:
    for make in frontier.SETTINGS.values():
        one, other = make(StudyScale.TOY, 1), make(StudyScale.TOY, 2)
        assert len(one) == len(other)
        assert not np.array_equal(one[0].measuring[0], other[0].measuring[0])
        assert np.array_equal(one[0].measuring, make(StudyScale.TOY, 1)[0].measuring)


def test_what_seeds_leave_is_taken_together() -> None:
    curves = [
        Regret(np.array([1.0, 3.0]), np.array([0.3, 0.4])),
        Regret(np.array([2.0, 5.0]), np.array([0.4, 0.3])),
    ]
    both = exploration.pool_curves(curves)
    assert both.mean.tolist() == [1.5, 4.0]
    assert both.standard_error == pytest.approx([0.25, 0.25])
    factors, zeros = (0.5, 1.0), np.zeros(2)
    few = BidShading(factors, np.array([1.0, 2.0]), np.array([-1.0, 0.0]), np.array([0.3, 0.0]), 10)
    many = BidShading(factors, np.array([4.0, 2.0]), np.array([2.0, 0.0]), np.array([0.2, 0.0]), 30)
    pooled = pricing.pool_blocks([few, many])
    assert pooled.bidders == 40
    assert pooled.gain.tolist() == [1.25, 0.0]
    assert pooled.surplus.tolist() == [3.25, 2.0]
    assert pooled.standard_error == pytest.approx([np.hypot(0.25 * 0.3, 0.75 * 0.2), 0.0])
    assert pricing.pool_blocks([few]).standard_error.tolist() == (few.standard_error + zeros).tolist()


def test_shading_is_over_all_blocks(tmp_path: Path) -> None:
    outcome = load_study("choice-shading").outcome(StudyRequest(tmp_path, StudyScale.TOY, seeds=2))
    assert "100 auctions" in outcome.note
    assert "2 seeds" in outcome.note


def test_a_study_without_seeds_records_one(tmp_path: Path) -> None:
    outcome = load_study("choice-shuffling").outcome(StudyRequest(tmp_path, StudyScale.TOY, seeds=4))
    assert json.loads((tmp_path / "choice-shuffling.json").read_text())["seeds"] == [1]
    assert "1 seed" in outcome.note


def test_the_exact_ends_meet_drawn_choices(display: StudyMarket) -> None:
    """Expectations against 200 drawn markets, within 5 standard errors of their mean: one in 1.7 million."""
    source = Simulation("study of choice")
    arm = {"x": Arm(TopChoiceRule(2.0))}
    exact = measure(display.blocks, arm).mean("x", "clicks")
    drawn = [measure(display.blocks, arm, words=source.words).mean("x", "clicks") for _ in range(200)]
    reach = 5 * np.std(drawn, ddof=1) / np.sqrt(len(drawn))
    assert abs(np.mean(drawn) - exact) < reach
    public_best = measure(display.blocks, {"x": Arm(NonPersonalised())}).mean("x", "clicks")
    assert abs(np.mean(drawn) - public_best) > reach, "another law is told apart"


def test_data_without_the_models_is_refused_by_what_is_lacking(tmp_path: Path) -> None:
    (tmp_path / "taobao").mkdir()
    with pytest.raises(BadInput, match="got no fnn, din"):
        load_study("choice-epsilon").outcome(StudyRequest(tmp_path / "out", StudyScale.TOY, data=tmp_path))
    with pytest.raises(BadInput, match="no --data"):
        load_study("choice-slots").outcome(StudyRequest(tmp_path / "out", StudyScale.TOY, data=tmp_path))


def test_one_clipping_bound_is_a_multiple_of_the_median_score(display: StudyMarket) -> None:
    rule = CLIPPED.make(display, 5.0)
    assert rule.clip_micros == display.unit_micros  # type: ignore[attr-defined]


def test_shuffling_bounds_are_ordered_and_the_closed_form_knows_where_it_ends() -> None:
    assert shuffling.closed_form(5, 10_000) is None
    for local, cohort in ((1, 1_000), (5, 100_000)):
        best = epsilon(ShuffledChoice(Fraction(local), cohort), shuffling.DELTA)
        numeric, closed = shuffling.numeric_bound(local, cohort), shuffling.closed_form(local, cohort)
        assert closed is not None
        assert best < numeric < closed < local
        assert clone_delta(local, cohort, numeric, standard_clones) <= shuffling.DELTA
        assert clone_delta(local, cohort, 0.999 * numeric, standard_clones) > shuffling.DELTA


def test_cohorts_are_counted_by_what_reports_share() -> None:
    contexts = cohorts.ContextTraffic.draw(2, np.random.default_rng(1))
    assert contexts.shares.sum() == pytest.approx(1)
    today = np.zeros((2, 100), np.int64)
    today[0, :2], today[1, 50] = (70, 40), 90  # two neighbours, and one elsewhere in the next epoch
    shares = {way: cohorts.hidden_share(contexts, way, today, today, needed=60).share for way in cohorts.WAYS}
    assert shares[cohorts.OWN] == pytest.approx(160 / 200)
    assert shares[cohorts.UP] == shares[cohorts.ALL] == 1
    assert cohorts.hidden_share(contexts, cohorts.ALL, today, today, needed=100).share == pytest.approx(
        110 / 200
    )


def test_a_cut_by_traffic_is_fine_where_there_is_traffic_and_large_enough_everywhere() -> None:
    contexts = cohorts.ContextTraffic.draw(2, np.random.default_rng(1))
    traffic = 20_000 * contexts.shares
    blocks = cohorts.cut_by_traffic(contexts, traffic, needed=500)
    assert np.bincount(blocks, traffic).min() >= 500 + cohorts.SPARE * np.sqrt(500)
    assert np.bincount(blocks).min() == 1, "a busy context has a menu of its own"
    assert np.bincount(blocks).max() > 1
    assert set(cohorts.cut_by_traffic(contexts, traffic, needed=20_001)) == {0}


def test_slots_filled_in_turn_by_noisy_max() -> None:
    draws = np.random.default_rng(1).random((3, slots.CANDIDATES))
    np.testing.assert_allclose(slots.peeled_noisy_sums(draws, 1e-9), 3 * draws.mean(axis=1), rtol=1e-6)
    best = np.sort(draws, axis=1)[:, -3:].sum(axis=1)
    np.testing.assert_allclose(slots.peeled_noisy_sums(draws, 1e5), best, rtol=1e-6)
    likes_two = np.zeros((1, slots.CANDIDATES))
    likes_two[0, :2] = 1
    expected, ways = 0.0, {2: 1.0}  # how likely so many of the two are left
    for left in (15, 14, 13):
        grown: dict[int, float] = {}
        for liked, chance in ways.items():
            taken = chance * permute_and_flip(left, liked)
            expected += taken
            grown[liked - 1] = grown.get(liked - 1, 0.0) + taken
            grown[liked] = grown.get(liked, 0.0) + chance - taken
        ways = grown
    assert slots.peeled_noisy_sums(likes_two, 6.0)[0] == pytest.approx(expected, rel=1e-9)


def permute_and_flip(candidates: int, liked: int) -> float:
    """How likely it takes one of the liked at epsilon 2: met in random order, the others kept with e^-1."""
    found, nobody_yet = 0.0, 1.0
    for left in range(candidates, 0, -1) if liked > 0 else ():
        found += nobody_yet * min(1.0, liked / left)
        nobody_yet *= max(0, left - liked) / left * (1 - np.exp(-1.0))
    return found
