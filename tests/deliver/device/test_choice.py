"""Scores, the exact best and the reported choice: floors, ties, cached ads, prices and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.charges import charge
from tacit.deliver.device.choice import HistoryRates, choose_privately, device_scores, prepare_choice
from tacit.deliver.device.context import ClickHistory
from tacit.deliver.device.local_choice import AdCache, CachedAd, choose_locally
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.forecasts import scenarios
from tacit.deliver.protocol.menu import NOTHING, Menu
from tacit.deliver.protocol.plans import Planner, plan_choice
from tacit.entropy import Simulation
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.choice.choice import private_ranking
from tacit.privacy.units import Window
from tests.support.device_cases import ALL_LEVELS, here, menu_of, node, old_quarter, one_word, unstored

NOBODY = ClickHistory(ALL_LEVELS)
UNKNOWN = HistoryRates(NOBODY)
POLICY = BudgetPolicy(6, (1.0, 2.0), 0.0, Window.days(1))
PLANNER = Planner(Spread(1.0), "top")
RATES = st.sampled_from([0.0, 0.01, 0.02, np.nextafter(0.02, 0), 0.03, 0.0625, 0.5, 1.0])
MICROS = st.sampled_from([0, 1, 3, 1000, 2000, 123_457])


@st.composite
def answers(draw: Any) -> tuple[Menu, float]:
    """Few different bids and rates, so that scores tie and floors are met exactly; and the floor."""
    count = draw(st.integers(1, 6))
    micros, rates, exact = (
        draw(st.lists(kind, min_size=count, max_size=count)) for kind in (MICROS, RATES, RATES)
    )
    finer = {node("Cafe"): dict(zip(range(0, count, 2), exact, strict=False))}
    floor = draw(st.sampled_from([0.0, 0.02, 0.0625, 1.0]))
    return menu_of(node("Old"), range(count), micros, rates, finer, ctr_floor=floor), floor


def test_scores_are_micros_times_rates_publicly_and_privately() -> None:
    sent = old_quarter()
    assert sent.ads == (1, 2, 3)
    assert sent.public_scores == pytest.approx([50_000, 45_000, 44_000])
    found = device_scores(sent, UNKNOWN(sent, here("Cafe")))
    assert found == pytest.approx([90_000, 45_000, 11_000])
    clicked = device_scores(sent, HistoryRates(NOBODY.with_click(3, here("Cafe")))(sent, here("Cafe")))
    assert clicked[2] > found[2]
    assert clicked[0] < found[0]
    both = np.stack([UNKNOWN(sent, here(place)) for place in ("Cafe", "Bakery")])
    assert device_scores(sent, both)[0].tolist() == found.tolist(), "many rows are as each of them"


@given(answers(), st.sampled_from(["Cafe", "Bakery"]))
def test_the_best_is_the_top_candidate_and_the_plain_argmax(answer: tuple[Menu, float], place: str) -> None:
    (sent, floor), at = answer, here(place)
    found = device_scores(sent, UNKNOWN(sent, at))
    shown = choose_locally(sent, at, NOBODY, ctr_floor=floor)
    best = sent.ads[private_ranking(found)[0]]
    assert shown.ad == (None if best == NOTHING else best)
    rates = dict(zip(sent.ads, sent.rates_along(at.below), strict=True))
    micros = dict(zip(sent.ads, sent.bid_micros, strict=True))
    worth = {
        ad: float(micros[ad] * rates[ad])
        for ad in sent.ads
        if ad != NOTHING and (not floor or (rates[ad] >= floor and micros[ad] > 0))
    }
    assert (shown.ad is None) == (not worth)
    if shown.ad is not None:
        assert worth[shown.ad] == max(worth.values())
    # And in public order: what reaches the floor, nothing, the rest; falling, as plans need it.
    assert (np.diff(sent.public_scores) <= 0).all()
    assert (sent.public_scores >= 0).all()
    if floor:
        reaches = [
            ad
            for ad, rate, bid in zip(sent.ads, sent.rates, sent.bid_micros, strict=True)
            if rate >= floor and bid > 0
        ]
        assert set(sent.ads[: sent.ads.index(NOTHING)]) == set(reaches)


def test_ads_that_do_not_pay_come_after_nothing() -> None:
    unpaid = menu_of(node("Old"), [1, 2], [0, 0], [0.5, 0.01], ctr_floor=0.02)
    assert unpaid.ads == (NOTHING, 1, 2)
    assert choose_locally(unpaid, here("Cafe"), NOBODY, ctr_floor=0.02).ad is None
    assert menu_of(node("Old"), [1, 2], [1000, 0], [0.02, 1.0], ctr_floor=0.02).ads == (1, NOTHING, 2)


def test_a_hair_below_the_floor_is_below_it_even_where_products_round_to_the_same() -> None:
    """The ad is publicly above nothing, so that a private tie would show it."""
    hair = float(np.nextafter(0.035, 0))
    assert hair * 1_000_000 == 0.035 * 1_000_000
    sent = menu_of(node("Old"), [1], [1_000_000], [0.5], {node("Cafe"): {1: hair}}, ctr_floor=0.035)
    assert sent.ads == (1, NOTHING)
    found = device_scores(sent, UNKNOWN(sent, here("Cafe")))
    assert found[0] < found[1]
    publicly = menu_of(node("Old"), [1], [1_000_000], [hair], ctr_floor=0.035)
    assert publicly.ads == (NOTHING, 1), "nor in public order"
    assert choose_locally(sent, here("Cafe"), NOBODY, ctr_floor=0.035).ad is None


def test_public_ties_stay_in_the_order_sent_and_private_ties_go_by_public_rank() -> None:
    finer = {node("Cafe"): {8: 0.3, 4: 0.3, 6: 0.3}}
    sent = menu_of(node("Old"), [6, 8, 4], [10, 10, 10], [0.1, 0.2, 0.1], finer)
    assert sent.ads == (8, 6, 4)
    assert choose_locally(sent, here("Cafe"), NOBODY).ad == 8


def test_nothing_is_shown_below_the_floor_and_own_clicks_can_lift_an_ad_above_it() -> None:
    sent, at = old_quarter(), here("Cafe")
    assert choose_locally(sent, at, NOBODY, ctr_floor=0.09).ad == 1
    assert choose_locally(sent, at, NOBODY, ctr_floor=0.1).ad is None
    assert choose_locally(sent, at, NOBODY.with_click(3, at), ctr_floor=0.1).ad == 3


def test_a_cached_ad_is_shown_where_it_is_better_and_only_there() -> None:
    sent, regular = old_quarter(), NOBODY.with_click(7, here("Cafe"))
    cache = AdCache().with_ad(CachedAd(7, {node("Old"): 1_000_000}, 0.01, expires=100), now=0)
    shown = choose_locally(sent, here("Cafe"), regular, cache=cache, now=5)
    assert (shown.ad, shown.cached) == (7, True)
    assert choose_locally(sent, here("Cafe"), NOBODY, cache=cache, now=5).ad == 1  # never clicked
    assert choose_locally(sent, here("Cafe"), regular, cache=cache, now=100).ad == 1  # expired
    assert choose_locally(None, here("Gym"), regular, cache=cache, now=5).ad is None  # no bid there
    assert choose_locally(None, here("Cafe"), NOBODY, cache=cache, now=5, ctr_floor=0.02).ad is None
    assert choose_locally(None, here("Cafe"), NOBODY, cache=cache, now=5, ctr_floor=0.01).ad == 7
    # An ad that was sent counts as it was sent, and wins a tie.
    again = AdCache().with_ad(CachedAd(1, {node("Old"): 9_000_000}, 1.0, expires=100), now=0)
    assert choose_locally(sent, here("Bakery"), NOBODY, cache=again, now=5).ad == 2
    tie = AdCache().with_ad(CachedAd(9, {node("Old"): 900_000}, 0.08, expires=100), now=0)
    assert choose_locally(sent, here("Bakery"), NOBODY, cache=tie, now=5).cached is False


def test_what_is_not_reported_has_nothing_for_a_bill() -> None:
    cache = AdCache().with_ad(CachedAd(7, {node("*"): 1_000_000}, 0.9, expires=100), now=0)
    shown: Any = choose_locally(old_quarter(), here("Cafe"), NOBODY, cache=cache, now=5)
    assert not hasattr(shown, "impressions")
    with pytest.raises(BadInput, match="expected impressions at public prices, got UnreportedChoice"):
        charge(shown)
    wallet, source, unsent = POLICY.wallet(), one_word(), [cache, cache.ads, shown]
    for each in unsent:
        anything: Any = each
        with pytest.raises(BadInput, match="expected the ads that the server sent and no others, got"):
            choose_privately(
                anything, here("Cafe"), UNKNOWN, PLANNER, POLICY, wallet, 0, source, store=unstored
            )
    counted: Any = source
    assert counted.asked == 0
    assert "7" not in repr(shown)


@pytest.mark.parametrize(("charged", "price"), [("click", 880_000), ("impression", 44_000)])
def test_an_impression_has_a_public_price(charged: str, price: int) -> None:
    """The second price: ad 2, worth 45,000 an impression, pays the 44,000 of ad 3; a click, that over 0.05."""
    sent = old_quarter(charged=charged)
    bills = set()
    for place in ("Cafe", "Bakery"):
        choice, _ = prepare_choice(sent, PLANNER, POLICY, POLICY.wallet(), 0)
        start = int(choice.plan.law.weights(device_scores(sent, UNKNOWN(sent, here(place))))[0])
        shown = choose_privately(
            sent, here(place), UNKNOWN, PLANNER, POLICY, POLICY.wallet(), 0, one_word(start), store=unstored
        )
        (line,) = charge(shown.impressions).lines()
        assert (shown.ad, line.campaign, line.amount_micros, line.due_on) == (2, 2, price, charged)
        bills.add(str(line.reason))
        unclicked = charge(shown.impressions, happened=np.zeros(1, np.bool_))
        assert unclicked.total_micros == (price if charged == "impression" else 0)
    assert bills == {f"second price per {charged}, public rank 2, price set by campaign 3"}


def test_where_nothing_is_shown_nothing_is_billed() -> None:
    sent = menu_of(node("Old"), [1, 2], [10, 10], [0.01, 0.01], ctr_floor=0.5)
    shown = choose_privately(
        sent,
        here("Cafe"),
        UNKNOWN,
        PLANNER,
        POLICY,
        POLICY.wallet(),
        0,
        one_word(),
        store=unstored,
    )
    assert shown.ad is None
    assert len(shown.impressions) == 0
    assert charge(shown.impressions).total_micros == 0


def test_with_little_noise_the_reported_choice_is_the_best() -> None:
    """At epsilon 30 another candidate has a chance below 1e-12, so 200 draws are all the best one's."""
    policy = BudgetPolicy(30, (30.0,), 0.0, Window.days(1))
    source, planner = Simulation("client, little noise"), Planner(Spread(1.0), "rr")
    for place, floor in (("Cafe", 0.0), ("Bakery", 0.0), ("Cafe", 0.095), ("Bakery", 0.06)):
        wanted = choose_locally(old_quarter(), here(place), NOBODY, ctr_floor=floor).ad
        for _ in range(50):
            args = (planner, policy, policy.wallet(), 0, source)
            shown = choose_privately(
                old_quarter(floor), here(place), UNKNOWN, *args, simulated=True, store=unstored
            )
            assert shown.ad == wanted


def test_the_worth_of_nothing_is_certain_to_the_plan() -> None:
    sent = menu_of(node("Old"), [1, 2], [1000, 1000], [0.05, 0.03], ctr_floor=0.04)
    choice, _ = prepare_choice(sent, Planner(Spread(0.8)), POLICY, POLICY.wallet(), 0)
    assert choice.menu.ads == (1, NOTHING, 2)
    drawn = scenarios(sent.public_scores, choice.plan.prior)
    assert np.ptp(drawn[:, 1]) == 0
    assert drawn[0, 1] == sent.nothing_micros == 40
    assert min(np.ptp(drawn[:, 0]), np.ptp(drawn[:, 2])) > 10
    # Taken for an ad with a spread of its own, nothing would promise gains that it cannot have.
    unsure = plan_choice(sent.public_scores, Spread(0.8), choice.plan.epsilon)
    assert choice.plan.forecast_gain < unsure.forecast_gain


def test_the_wallet_pays_and_then_the_public_best_is_shown() -> None:
    wallet, spent, at = POLICY.wallet(), [], here("Bakery")
    for now in range(5):
        shown = choose_privately(
            old_quarter(), at, UNKNOWN, PLANNER, POLICY, wallet, now, one_word(2**64 - 1), store=unstored
        )
        assert wallet.left(now) - shown.wallet.left(now) == shown.epsilon_spent
        wallet = shown.wallet
        spent.append(shown.epsilon_spent)
    assert spent == [2, 2, 2, 0, 0]
    assert shown.ad == 1  # whatever the device knows


def test_refusals_come_before_anything_is_drawn() -> None:
    source: Any = one_word()
    at, wallet = here("Cafe"), POLICY.wallet()
    with pytest.raises(EntropyMisuse, match="got a simulation"):
        choose_privately(old_quarter(), at, UNKNOWN, PLANNER, POLICY, wallet, 0, Simulation(1), store=unstored)
    other = BudgetPolicy(6, (1.0,), 0.0, Window.days(1), ad_tech="other")
    with pytest.raises(BadInput, match="the wallet for ad tech other"):
        choose_privately(old_quarter(), at, UNKNOWN, PLANNER, other, wallet, 0, source, store=unstored)
    for floor in (-0.1, 1.1, float("nan")):
        with pytest.raises(BadInput, match="ctr_floor"):
            old_quarter(floor)
        with pytest.raises(BadInput, match="ctr_floor"):
            choose_locally(old_quarter(), at, NOBODY, ctr_floor=floor)
    with pytest.raises(BadInput, match="ads that were sent, or a cache"):
        choose_locally(None, at, NOBODY)
    with pytest.raises(BadInput, match="now, in seconds"):
        choose_locally(None, at, NOBODY, cache=AdCache())
    with pytest.raises(BadInput, match="the node that was asked for, place New, got Old"):
        choose_locally(old_quarter(), here("Gym"), NOBODY)
    assert source.asked == 0
