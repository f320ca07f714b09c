"""What shading gains: nothing where the auction is truthful, something where it is not, and exactly so much."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.data.generators.markets import Market
from tacit.deliver.auction.blocks import AuctionBlock, PublicCandidates, Rates
from tacit.deliver.auction.choices import Greedy, NonPersonalised, TopChoiceRule
from tacit.deliver.auction.incentives import measure_shading
from tacit.deliver.auction.logs import generated_blocks
from tacit.deliver.auction.market import Arm
from tacit.deliver.protocol.prices import BillingEvent, FirstPrice, Rules, SecondPrice
from tacit.errors import BadInput

FACTORS = (0.3, 0.6, 0.8, 0.95, 1.05, 1.3)


def market(count: int = 300, *, informed: bool = True) -> AuctionBlock:
    block = next(iter(generated_blocks(Market.taobao_like().auctions(count, 5))))
    return block if informed else AuctionBlock(block.public, block.public.rates)


def one_auction() -> AuctionBlock:
    public = PublicCandidates(np.array([0, 2]), np.array([1000, 700]), Rates(np.array([0.5, 0.5])))
    return AuctionBlock(public, Rates(np.array([0.2, 0.6])))


@pytest.mark.parametrize("charged", list(BillingEvent))
def test_truth_is_best_at_second_price_if_the_device_knows_no_more(charged: BillingEvent) -> None:
    for choice in (Greedy(), NonPersonalised()):
        found = measure_shading(market(informed=False), Arm(choice, Rules(SecondPrice(charged))), FACTORS)
        assert found.best_factor == 1
        assert found.gain.max() <= 1  # a micro, from rounding prices down
        assert found.gain.min() < -1000


def test_truth_is_best_for_the_public_choice_at_second_price_per_click_whatever_devices_know() -> None:
    found = measure_shading(market(), Arm(NonPersonalised()), FACTORS)
    assert found.gain.max() <= 1


@pytest.mark.parametrize("charged", list(BillingEvent))
def test_shading_pays_at_first_price(charged: BillingEvent) -> None:
    for choice in (Greedy(), NonPersonalised(), TopChoiceRule(5.0)):
        found = measure_shading(market(), Arm(choice, Rules(FirstPrice(charged))), FACTORS)
        assert found.best_factor < 1
        assert found.gain[found.factors.index(0.8)] > 4 * found.standard_error[found.factors.index(0.8)]


def test_the_more_random_the_choice_the_more_shading_pays_at_second_price() -> None:
    """A low bid is shown nearly as often as a high one, at a lower price."""
    private, nearly_even = (
        measure_shading(market(1000), Arm(TopChoiceRule(epsilon)), (0.5,)) for epsilon in (5.0, 0.5)
    )
    assert nearly_even.best_factor == 0.5
    assert nearly_even.gain[0] > 4 * nearly_even.standard_error[0]
    assert nearly_even.regret > 4 * private.regret


def test_surplus_is_what_hand_work_gives() -> None:
    """Two bidders, randomized response at e^epsilon = 3: chances 3/4 and 1/4."""
    arm = Arm(TopChoiceRule(math.log(3)), Rules(SecondPrice(BillingEvent.CLICK), reserve_micros=50))
    found = measure_shading(one_auction(), arm, (0.5,))
    # Public scores 500 and 350, private 200 and 420: the second is privately best, pays the reserve, 50 / 0.5.
    truthful = (0.25 * 0.2 * (1000 - 700) + 0.75 * 0.6 * (700 - 100)) / 2
    # The first at 500: public 250 against 350, private 100; it pays 100 a click. The second at 350: as before.
    shaded = (0.25 * 0.2 * (1000 - 100) + 0.75 * 0.6 * (700 - 100)) / 2
    assert found.factors == (0.5, 1.0)
    assert found.bidders == 2
    np.testing.assert_allclose(found.surplus, [shaded, truthful], rtol=1e-9)
    np.testing.assert_allclose(found.gain, [shaded - truthful, 0], rtol=1e-9)
    assert found.regret == pytest.approx(shaded / truthful - 1)


def test_errors_are_over_auctions_of_any_size() -> None:
    """The same auction again and again has no error; others have that of a ratio of sums over auctions."""
    two, three = ([1000, 700], [0.5, 0.5], [0.2, 0.6]), ([900, 800, 400], [0.5, 0.4, 0.9], [0.3, 0.5, 0.4])
    arm = Arm(TopChoiceRule(1.0), Rules(FirstPrice()))

    def block(*auctions: tuple[list[int], list[float], list[float]]) -> AuctionBlock:
        bids, server, device = (np.concatenate([auction[part] for auction in auctions]) for part in range(3))
        offsets = np.concatenate([[0], np.cumsum([len(auction[0]) for auction in auctions])])
        return AuctionBlock(PublicCandidates(offsets, bids, Rates(server)), Rates(device))

    same = measure_shading(block(*[two] * 5), arm, (0.5,))
    assert same.gain[0] > 1
    assert same.standard_error[0] < 1e-9
    found = measure_shading(block(two, three, three), arm, (0.5,))
    alone = [measure_shading(block(each), arm, (0.5,)).gain[0] * len(each[0]) for each in (two, three, three)]
    mean = sum(alone) / 8
    squares = sum((each - size * mean) ** 2 for each, size in zip(alone, (2, 3, 3), strict=True))
    assert found.gain[0] == pytest.approx(mean)
    assert found.standard_error[0] == pytest.approx(math.sqrt(squares * 3 / 2) / 8)


def test_below_the_reserve_a_bidder_has_nothing() -> None:
    arm = Arm(Greedy(), Rules(SecondPrice(), reserve_micros=340))
    found = measure_shading(one_auction(), arm, (0.5,))
    assert found.surplus[0] == 0
    assert found.surplus[1] > 0


def test_blocks_are_left_as_they_were() -> None:
    block = one_auction()
    measure_shading(block, Arm(Greedy()), (0.5,))
    assert block.public.bid_micros.tolist() == [1000, 700]


def test_bad_input_is_refused() -> None:
    with pytest.raises(BadInput, match="factor"):
        measure_shading(one_auction(), Arm(Greedy()), (0.0,))
    empty = PublicCandidates(np.zeros(1, np.int64), np.zeros(0, np.int64), Rates(np.zeros(0)))
    with pytest.raises(BadInput, match="at least one auction"):
        measure_shading(AuctionBlock(empty, Rates(np.zeros(0))), Arm(Greedy()))
