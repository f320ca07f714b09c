"""Markets: expectations against enumeration and draws, streams against memory, errors against repetition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.data.generators.markets import Market
from tacit.deliver.auction import metrics
from tacit.deliver.auction.blocks import AuctionBlock, Offers, PublicCandidates, Rates, make_offers
from tacit.deliver.auction.choices import ChoiceRule, Greedy, NonPersonalised, PlannedRule, TopChoiceRule
from tacit.deliver.auction.logs import generated_blocks
from tacit.deliver.auction.market import (
    Arm,
    choose_block,
    measure,
    private_scores,
    show_block,
)
from tacit.deliver.auction.metrics import METRICS, MetricTotals, metric_values, user_groups
from tacit.deliver.auction.noisy_choices import NoisyMaxRule
from tacit.deliver.protocol.prices import BillingEvent, Rules, SecondPrice
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.kernels.choices import expected
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.scores import Clipped, Scaled
from tacit.privacy.choice.top_choice import TopChoice
from tacit.schema.impressions import RESERVE_PRICE
from tests.support.auction_blocks import awkward_block, smooth_block

RULES: dict[str, ChoiceRule] = {
    "greedy": Greedy(),
    "public": NonPersonalised(),
    "rr": TopChoiceRule(2.0),
    "trunc": TopChoiceRule(2.0, kept=3, top=2),
    "gumbel": NoisyMaxRule(2.0, Noise.GUMBEL),
    "flip": NoisyMaxRule(2.0, Noise.EXPONENTIAL, clip_micros=30_000.0),
    "laplace": NoisyMaxRule(2.0, Noise.LAPLACE),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("charged", list(BillingEvent))
def test_expected_metrics_are_sums_over_the_law(name: str, charged: BillingEvent) -> None:
    block = smooth_block(5, 40)
    arm = Arm(RULES[name], Rules(SecondPrice(charged), 20_000, 0.9, 15_000.0))
    offers = make_offers(block.public, arm.rules)
    pmf = arm.choice.pmf(offers, private_scores(block, offers))
    sums = dict.fromkeys(METRICS, 0.0)
    for at in range(len(offers.rows)):
        row, chance = offers.rows[at], pmf[at]
        if row < 0:
            sums["welfare"] += chance * 15_000
            continue
        click, value = block.private.click[row], block.public.bid_micros[row] * block.private.click[row]
        paid = offers.price_micros[at] * (click if charged is BillingEvent.CLICK else 1.0)
        for metric, amount in zip(METRICS, (click, value - paid, paid, value), strict=True):
            sums[metric] += chance * amount
    found = measure([block], {"arm": arm})
    for metric in METRICS:
        assert found.mean("arm", metric) == pytest.approx(sums[metric] / 40, rel=1e-12)


@pytest.mark.parametrize("name", ["rr", "trunc", "gumbel", "flip"])
def test_draws_agree_with_expectations(name: str) -> None:
    """Given the auctions, a draw's variance is known: 6.5 of its errors are one false alarm in 1e10, about.

    The greedy choice's expectations are the twin that must be told apart.
    """
    block, arm, count = smooth_block(1, 6000), Arm(RULES[name]), 6000
    offers = make_offers(block.public, arm.rules)
    values = metric_values(block, offers)
    pmf = arm.choice.pmf(offers, private_scores(block, offers))
    first, second = (expected(offsets=offers.offsets, pmf=pmf, values=values**power) for power in (1, 2))
    error = np.sqrt((second - first**2).sum(axis=0)) / count
    drawn = measure([block], {"arm": arm}, words=Simulation(name).words).totals.means
    assert np.all(np.abs(drawn - first.mean(axis=0)) < 6.5 * error)
    assert measure([block], {"arm": arm}).totals.means == pytest.approx(first.mean(axis=0))
    greedy = measure([block], {"greedy": Arm(Greedy())}).totals.means
    assert np.abs(drawn - greedy)[0] > 6.5 * error[0]


def test_laws_of_a_block_are_those_of_the_maths() -> None:
    block = smooth_block(7, 30)
    offers = make_offers(block.public, Rules())
    scores = private_scores(block, offers)
    laws = {name: RULES[name].pmf(offers, scores) for name in RULES}
    for i in range(offers.count):
        here = slice(offers.offsets[i], offers.offsets[i + 1])
        own, size = scores[here], int(offers.sizes[i])
        top = TopChoice.for_epsilon(2.0, size, min(3, size), min(2, size))
        np.testing.assert_allclose(laws["trunc"][here], top.pmf(own), rtol=1e-12)
        gumbel = NoisyMax.nominal("gumbel", Scaled(size), 2.0)
        np.testing.assert_allclose(laws["gumbel"][here], gumbel.pmf(own), rtol=1e-9)
        flip = NoisyMax.nominal("exponential", Clipped(tuple(offers.score[here].tolist()), 30_000.0), 2.0)
        np.testing.assert_allclose(laws["flip"][here], flip.pmf(own), rtol=1e-9)
        laplace = NoisyMax.nominal("laplace", Scaled(size), 2.0)
        np.testing.assert_allclose(laws["laplace"][here], laplace.pmf(own), rtol=1e-9)


def test_calibrated_noise_is_less_noise() -> None:
    block = smooth_block(8, 300)
    arms = {str(way): Arm(NoisyMaxRule(3.0, Noise.GUMBEL, calibrated=way)) for way in (False, True)}
    found = measure([block], arms)
    assert found.mean("True", "welfare") > found.mean("False", "welfare")
    with pytest.raises(BadInput, match="scaled scores only"):
        NoisyMaxRule(1.0, clip_micros=5.0, calibrated=True)


def test_every_auction_may_have_its_own_law() -> None:
    block = smooth_block(9, 60)
    offers = make_offers(block.public, Rules())
    scores = private_scores(block, offers)
    draws = np.random.default_rng(1)
    epsilon, kept, top = draws.choice([0.0, 1.0, 2.5], 60), draws.integers(1, 6, 60), draws.integers(1, 4, 60)
    pmf = TopChoiceRule(epsilon, kept, top).pmf(offers, scores)
    spent = TopChoiceRule(epsilon, kept, top).epsilon(offers)
    assert np.all(spent <= epsilon + 1e-12)
    for i in range(60):
        here = slice(offers.offsets[i], offers.offsets[i + 1])
        k = min(int(kept[i]), int(offers.sizes[i])) if epsilon[i] else 1
        law = TopChoice.for_epsilon(epsilon[i] or 1.0, int(offers.sizes[i]), k, min(int(top[i]), k))
        np.testing.assert_allclose(pmf[here], law.pmf(scores[here]), rtol=1e-12)
    planned = PlannedRule(lambda offers: TopChoiceRule(1.0, top=np.maximum(offers.sizes // 2, 1)))
    assert planned.pmf(offers, scores).sum() == pytest.approx(60)
    with pytest.raises(BadInput, match="kept for 60 auctions"):
        TopChoiceRule(1.0, kept=np.ones(3, np.int64)).pmf(offers, scores)


def test_nothing_is_shown_where_no_bid_reaches_the_reserve() -> None:
    block = smooth_block(4, 30)
    found = measure([block], {name: Arm(rule, Rules(reserve_micros=10**9)) for name, rule in RULES.items()})
    assert all(found.mean(name, metric) == 0 for name in RULES for metric in METRICS)
    _, chosen = choose_block(block, Arm(TopChoiceRule(1.0), Rules(reserve_micros=10**9)), Simulation(1).words)
    assert np.all(chosen == -1)


def test_a_device_that_cannot_pay_is_named_and_nothing_is_drawn() -> None:
    block = awkward_block(1)
    size = int(np.argmax(np.diff(block.public.offsets) > 1))

    def no_words(_: int) -> NDArray[np.uint64]:
        raise AssertionError("drawn")

    with pytest.raises(
        BadInput, match=f"auction {100 + size}: expected epsilon <= 1, which the device has left"
    ):
        choose_block(block, Arm(TopChoiceRule(2.0)), no_words, epsilon_left=1.0)
    with pytest.raises(BadInput, match="got inf"):
        measure([block], {"greedy": Arm(Greedy())}, epsilon_left=1.0)
    left = np.full(block.public.count, 5.0)
    choose_block(block, Arm(TopChoiceRule(2.0)), Simulation(1).words, epsilon_left=left)
    assert measure([block], {"rr": Arm(TopChoiceRule(2.0))}, epsilon_left=2.0).most_epsilon["rr"] <= 2.0 + 1e-12


def test_totals_add_up_however_the_stream_is_cut() -> None:
    draws = np.random.default_rng(3)
    values, users = draws.standard_normal((1000, 3)) + 100, draws.integers(50, size=1000)
    for given in (None, users):
        whole, in_parts = MetricTotals(3), MetricTotals(3)
        whole.add(values, given)
        for rows in np.split(np.arange(1000), [10, 10, 400]):
            in_parts.add(values[rows], None if given is None else given[rows])
        np.testing.assert_allclose(in_parts.means, whole.means, rtol=1e-13)
        np.testing.assert_allclose(in_parts.covariance, whole.covariance, rtol=1e-9)
    direct = np.cov(values.T) / 1000
    plain = MetricTotals(3)
    plain.add(values)
    np.testing.assert_allclose(plain.covariance, direct, rtol=1e-9)


def test_standard_errors_allow_for_users() -> None:
    """Ten equal auctions a user: errors by user are sqrt(10) times those by auction."""
    draws = np.random.default_rng(4)
    per_user = draws.standard_normal((2000, 1))
    values, users = np.repeat(per_user, 10, axis=0), np.repeat(np.arange(2000), 10)
    plain, clustered = MetricTotals(1), MetricTotals(1)
    plain.add(values)
    clustered.add(values, users)
    ratio = math.sqrt(clustered.covariance[0, 0] / plain.covariance[0, 0])
    assert ratio == pytest.approx(math.sqrt(10), rel=0.1)  # groups of users: right to about 3%
    assert user_groups(np.arange(10**5)).max() < 4096
    assert np.bincount(user_groups(np.arange(4096 * 50)), minlength=4096).min() > 10


def test_errors_over_few_users_are_those_of_the_textbook() -> None:
    """Two users of three and one auctions: the mean is a ratio of sums over users, whose variance has n - 1."""
    values, users = np.array([[1.0], [2.0], [3.0], [10.0]]), np.array([1, 1, 1, 2])
    assert len(set(user_groups(users).tolist())) == 2
    totals = MetricTotals(1)
    totals.add(values, users)
    residuals = 6.0 - 3 * 4.0, 10.0 - 1 * 4.0
    assert totals.covariance[0, 0] == pytest.approx(
        2 / (2 - 1) * (residuals[0] ** 2 + residuals[1] ** 2) / 4**2
    )


def test_a_metric_that_nobody_works_out_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    block = smooth_block(2, 5)
    monkeypatch.setattr(metrics, "METRICS", (*METRICS, "regret"))
    with pytest.raises(KeyError, match="regret"):
        metric_values(block, make_offers(block.public, Rules()))


def test_lifts_are_paired() -> None:
    block = smooth_block(6, 500)
    found = measure(
        [block], {"a": Arm(TopChoiceRule(3.0)), "b": Arm(TopChoiceRule(3.0)), "np": Arm(NonPersonalised())}
    )
    assert found.lift("a", "b", "welfare") == pytest.approx((0.0, 0.0), abs=1e-9)
    lift, error = found.lift("a", "np", "welfare")
    assert lift > 3 * error > 0


def test_generated_markets_stream() -> None:
    arms = {"np": Arm(NonPersonalised()), "rr": Arm(TopChoiceRule(5.0)), "greedy": Arm(Greedy())}
    found = measure(generated_blocks(Market.taobao_like().auctions(20_000, seed=1)), arms)
    assert found.auctions == 20_000
    clicks = [found.mean(arm, "clicks") for arm in arms]
    assert clicks == sorted(clicks)
    assert found.lift("rr", "np", "clicks")[0] > 0.05


def test_only_arms_without_a_bound_are_called_so() -> None:
    found = measure([smooth_block(3, 20)], {name: Arm(rule) for name, rule in RULES.items()})
    assert found.measured_only == {"gumbel", "flip", "laplace"}


def test_logged_clicks_are_what_is_measured() -> None:
    public = PublicCandidates(np.array([0, 2]), np.array([1000, 900]), Rates(np.array([0.1, 0.1])))
    block = AuctionBlock(public, Rates(np.array([0.1, 0.2])), truth=Rates(np.array([1.0, 0.0])))
    found = measure([block], {"np": Arm(NonPersonalised()), "greedy": Arm(Greedy())})
    assert [found.mean(arm, "clicks") for arm in ("np", "greedy")] == [1.0, 0.0]


def test_offers_do_not_hold_anything_private() -> None:
    assert set(Offers.__dataclass_fields__) == {
        "offsets", "rows", "score", "price_micros", "setter", "rules", "names",
    }  # fmt: skip


def test_a_block_of_one_row_is_shown_and_billed() -> None:
    public = PublicCandidates(
        np.array([0, 1]), np.array([5000]), Rates(np.array([0.5])), campaign=np.array([7])
    )
    arm = Arm(Greedy(), Rules(SecondPrice(BillingEvent.CLICK), reserve_micros=1000))
    shown = show_block(AuctionBlock(public, Rates(np.array([0.9]))), arm, Simulation(1).words)
    assert shown.campaign.tolist() == [7]
    assert shown.price_micros.tolist() == [2000]  # the reserve of an impression, for a click in two
    assert shown.setter.tolist() == [RESERVE_PRICE]


def test_what_bids_are_for_may_be_said_in_a_word() -> None:
    said = PublicCandidates(np.array([0, 1]), np.array([5]), Rates(np.array([0.5])), "impression")  # type: ignore[arg-type]
    assert said.event_rate.tolist() == [1.0]
    with pytest.raises(
        BadInput, match="expected BidEvent to be one of impression, click, conversion, got 'view'"
    ):
        replace(said, bids_for="view")  # type: ignore[arg-type]
