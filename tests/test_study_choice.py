"""Studies of choice: every one at toy size for real, and the machinery that their verdicts stand on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.deliver.auction.candidates import AuctionBlock, AuctionNames, PublicCandidates, Rates
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED, Greedy, NonPersonalised, TopOf
from tacit.deliver.auction.market import Arm, measure
from tacit.deliver.auction.offers import offer
from tacit.deliver.auction.rules import Charged, Rules, SecondPrice
from tacit.deliver.incentives import Shading
from tacit.deliver.planning.blocks import budget_rule, forecast_block, planned_rule
from tacit.deliver.planning.budget import BudgetPolicy
from tacit.deliver.planning.prior import Spread
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY
from tacit.privacy.units import Window
from tacit.studies.choice import budget, clipping, epsilons, pricing, shading
from tacit.studies.choice.contestants import (
    CLIPPED,
    EPSILONS,
    RR,
    SCALED,
    clipped,
    contest,
    planned,
)
from tacit.studies.choice.forecasts import Forecasts
from tacit.studies.choice.lifts import above, above_zero, lift, none_above, share
from tacit.studies.choice.parts import every_other, mixed, of_sizes
from tacit.studies.choice.setting import StudyMarket, markets
from tacit.studies.registry import study
from tacit.studies.results import read
from tacit.studies.study import Asked, Scale
from tacit.train.evaluation.estimates import Measured
from toy_studies import toy_studies


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choice")


def numbered_from(block: AuctionBlock, first: int) -> AuctionBlock:
    """The same auctions from another place in the stream."""
    return replace(block, public=replace(block.public, names=AuctionNames(first=first)))


@pytest.fixture(scope="module")
def display(folder: Path) -> StudyMarket:
    return markets(Asked(folder, Scale.TOY, seeds=1))[0]


@pytest.mark.parametrize("name", toy_studies("choice-"))
def test_every_study_runs_at_toy_size_and_says_what_it_is(name: str, folder: Path) -> None:
    chosen = study(name)
    outcome = chosen.outcome(Asked(folder, Scale.TOY, seeds=1, processes=1))
    assert {finding.id for finding in outcome.findings} == set(chosen.claims)
    assert all(finding.holds is None for finding in outcome.findings), "toy figures decide nothing"
    assert all(finding.rule and finding.seen for finding in outcome.findings)
    assert "synthetic" in outcome.note
    assert all(len(row) == len(outcome.columns) for row in outcome.rows)
    assert {file.suffix for file in outcome.files} == {".csv", ".svg", ".png", ".json"}
    assert all(file.stat().st_size > 200 for file in outcome.files)
    assert read(folder, name)
    record = json.loads((folder / f"{name}.json").read_text())
    assert record["synthetic"] is True
    assert [each["holds"] for each in record["parameters"]["verdicts"]] == [None] * len(outcome.findings)
    assert all(finding.verdict == "undecided (toy scale decides nothing)" for finding in outcome.findings)


def test_lifts_are_those_of_the_means_and_verdicts_follow_their_intervals(display: StudyMarket) -> None:
    results = contest(display, (RR,), (0.5, 30))
    assert share(results, GREEDY, "welfare") == 1
    assert share(results, NON_PERSONALISED, "welfare") == 0
    found = lift(results, RR.at(0.5), "welfare")
    means = [results.mean(arm, "welfare") for arm in (RR.at(0.5), NON_PERSONALISED)]
    assert found.value == pytest.approx(100 * (means[0] / means[1] - 1))
    assert above(results, GREEDY, NON_PERSONALISED, "welfare") is True
    assert above(results, NON_PERSONALISED, GREEDY, "welfare") is False
    assert above(results, NON_PERSONALISED, NON_PERSONALISED, "welfare") is None
    signs = {(1.0, 3.0): True, (-3.0, -1.0): False, (-3.0, 1.0): None, (-1.0, 3.0): None}
    for (low, high), verdict in signs.items():  # a mean below 0 alone decides nothing
        assert above_zero(Measured((low + high) / 2, low, high, 0.95)) is verdict
    assert none_above(results, [RR.at(0.5)], "welfare") is True
    assert none_above(results, [RR.at(0.5), GREEDY], "welfare") is False
    assert results.mean(RR.at(30), "welfare") == pytest.approx(results.mean(GREEDY, "welfare"))


def test_where_nothing_can_be_gained_nothing_is_decided(display: StudyMarket) -> None:
    nothing = mixed(display, 0.0)
    drawn = (RR, SCALED, CLIPPED, epsilons.GUMBEL)
    results = contest(nothing, drawn, (*EPSILONS, epsilons.LIMIT))
    assert share(results, RR.at(5), "clicks") is None
    found = {finding.id: finding for finding in epsilons.judged(results, "x")}
    assert found["R8"].holds is None
    assert "nothing to gain" in found["R8"].seen
    bounds = [clipped(bound) for bound in clipping.BOUNDS]
    results = contest(nothing, bounds, (clipping.LOW, clipping.HIGH, clipping.LIMIT))
    assert "nothing to gain" in clipping.judged(results, "x")[0].seen


def test_a_best_factor_at_the_end_of_the_grid_is_called_so() -> None:
    def found(*surplus: float) -> Shading:
        each = np.array(surplus)
        return Shading((0.5, 1.0, 1.5), each, each - each[1], np.zeros(3), 1)

    assert shading.best_words(found(1, 2, 0)) == "1"
    assert shading.best_words(found(3, 2, 0)) == "0.5, an end of the grid"
    assert shading.best_words(found(1, 2, 3)) == "1.5, an end of the grid"


def test_parts_are_the_same_auctions_and_keep_the_clipping_bound(display: StudyMarket) -> None:
    few, many = of_sizes(display, 1, 3), of_sizes(display, 4, 10**6)
    assert few.count + many.count == display.count
    assert max(block.public.largest for block in few.blocks) == 3
    assert many.unit_micros == few.unit_micros == display.unit_micros
    assert replace(many, whole=None).unit_micros > replace(few, whole=None).unit_micros, (
        "else it would not matter"
    )
    totals = [measure(part.blocks, {"x": Arm(Greedy())}) for part in (few, many, display)]
    sums = [found.mean("x", "welfare") * found.auctions for found in totals]
    assert sums[0] + sums[1] == pytest.approx(sums[2])
    halves = [every_other(display, first) for first in (0, 1)]
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
    (odd,) = every_other(StudyMarket("x", 0.3, (block,)), 1).blocks
    (even,) = every_other(StudyMarket("x", 0.3, (block,)), 0).blocks
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
    (half,) = mixed(StudyMarket("x", 0.3, (block,)), 0.5).blocks
    np.testing.assert_allclose(half.private.click, (private.click + public.rates.click) / 2)
    assert half.private.conversion is not None
    np.testing.assert_allclose(half.private.conversion, np.arange(6) / 2 * (1 / 14 + 1 / 20))
    assert half.truth is truth
    assert half.user is block.user


def test_generated_parts_keep_their_numbers_in_the_stream(display: StudyMarket) -> None:
    (block,) = display.blocks
    (odd,) = every_other(replace(display, blocks=(numbered_from(block, 1000),)), 1).blocks
    assert [odd.public.names.of(at) for at in range(3)] == ["1001", "1003", "1005"]


def test_forecasts_are_kept_by_all_that_they_are_made_of(display: StudyMarket) -> None:
    halves = [every_other(display, first).blocks[0] for first in (0, 1)]
    offers = [offer(half.public, Rules()) for half in halves]
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
    offers, prior = offer(display.blocks[0].public, Rules()), Spread(0.9)
    forecasts = Forecasts(budget.LADDER)
    found = budget._by_policy(forecasts, prior, policy, offers).epsilon(offers)
    assert found.tolist() == budget_rule(prior, policy, budget.REQUESTS).epsilon(offers).tolist()
    assert forecasts.evenly(offers, prior, 2.0).epsilon(offers).tolist() == (
        planned_rule(prior, 2.0).epsilon(offers).tolist()
    )


def test_devices_that_know_only_what_the_server_knows_gain_nothing(display: StudyMarket) -> None:
    results = contest(mixed(display, 0.0), (), ())
    assert results.mean(GREEDY, "clicks") == pytest.approx(results.mean(NON_PERSONALISED, "clicks"), rel=1e-12)
    whole = contest(mixed(display, 1.0), (), ())
    assert whole.mean(GREEDY, "clicks") == pytest.approx(contest(display, (), ()).mean(GREEDY, "clicks"))


def test_planning_many_epsilons_at_once_is_planning_each(display: StudyMarket) -> None:
    together, alone = planned((1, 5)), planned((5,))
    means = [contest(display, (each,), (5,)).mean(each.at(5), "welfare") for each in (together, alone)]
    assert means[0] == means[1]


def test_prices_by_other_models_change_who_pays_and_not_who_wins(display: StudyMarket) -> None:
    for charged in Charged:
        results = pricing._measured(display, charged)
        clicks = {results.mean(model, "clicks") for model in pricing.MODELS}
        assert max(clicks) == pytest.approx(min(clicks), rel=1e-12)
        revenues = {round(results.mean(model, "revenue")) for model in pricing.MODELS}
        assert len(revenues) == 3
        server = measure(display.blocks, {"x": Arm(Greedy(), Rules(SecondPrice(charged)))})
        assert results.mean(pricing.SERVER, "revenue") == pytest.approx(server.mean("x", "revenue"))


def test_the_exact_ends_meet_drawn_choices(display: StudyMarket) -> None:
    """Expectations against 200 drawn markets, within 5 standard errors of their mean: one in 1.7 million."""
    from tacit.entropy import Simulation

    source = Simulation("study of choice")
    arm = {"x": Arm(TopOf(2.0))}
    exact = measure(display.blocks, arm).mean("x", "clicks")
    drawn = [measure(display.blocks, arm, words=source.words).mean("x", "clicks") for _ in range(200)]
    reach = 5 * np.std(drawn, ddof=1) / np.sqrt(len(drawn))
    assert abs(np.mean(drawn) - exact) < reach
    public_best = measure(display.blocks, {"x": Arm(NonPersonalised())}).mean("x", "clicks")
    assert abs(np.mean(drawn) - public_best) > reach, "another law is told apart"


def test_data_without_the_models_is_refused_by_what_is_lacking(tmp_path: Path) -> None:
    (tmp_path / "taobao").mkdir()
    with pytest.raises(BadInput, match="got no fnn, din"):
        study("choice-epsilon").outcome(Asked(tmp_path / "out", Scale.TOY, data=tmp_path))
    with pytest.raises(BadInput, match="no --data"):
        study("choice-slots").outcome(Asked(tmp_path / "out", Scale.TOY, data=tmp_path))


def test_one_clipping_bound_is_a_multiple_of_the_median_score(display: StudyMarket) -> None:
    rule = CLIPPED.make(display, 5.0)
    assert rule.clip_micros == display.unit_micros  # type: ignore[attr-defined]
