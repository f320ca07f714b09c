"""What may be shown: within what devices have left, and by rules whose epsilon is a bound."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.deliver.auction.blocks import AuctionBlock, Offers, PublicCandidates, Rates, make_offers
from tacit.deliver.auction.choices import (
    ChoiceRule,
    Greedy,
    NonPersonalised,
    PlannedRule,
    TopChoiceRule,
    expect_within_budget,
)
from tacit.deliver.auction.market import Arm, choose_block, measure, show_block
from tacit.deliver.auction.noisy_choices import NoisyMaxRule
from tacit.deliver.protocol.prices import Rules
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.scores import Clipped
from tacit.privacy.choice.top_choice import TopChoice

SHOWN: list[ChoiceRule] = [Greedy(), NonPersonalised(), TopChoiceRule(2.0), TopChoiceRule(2.0, kept=3, top=2)]
MEASURED = [NoisyMaxRule(2.0, noise, clip) for noise in Noise for clip in (None, 30_000.0)]


def _three(auctions: int = 1) -> AuctionBlock:
    total = 3 * auctions
    public = PublicCandidates(
        np.arange(auctions + 1) * 3,
        np.full(total, 10**6),
        Rates(np.full(total, 0.1)),
        campaign=np.arange(total),
    )
    return AuctionBlock(public, Rates(np.tile([0.1, 0.3, 0.2], auctions)))


def _same_user(auctions: int, user: list[int] | None, epsilon_left: Any, asked: float = 5.0) -> int:
    """How many impressions are shown of auctions of three candidates each."""
    block = replace(_three(auctions), user=None if user is None else np.array(user))
    return len(show_block(block, Arm(TopChoiceRule(asked)), Simulation(1).words, epsilon_left=epsilon_left))


def test_what_a_user_spends_in_a_block_is_added_up() -> None:
    spent = float(TopChoiceRule(5.0).epsilon(make_offers(_three().public, Rules()))[0])
    both = "expected epsilon <= 5 with the device's other auctions of the block, which it has left, got"
    with pytest.raises(BadInput, match=f"auction 0: {both} 50"):
        _same_user(10, [7] * 10, 5.0)
    with pytest.raises(BadInput, match=f"auction 1: {both} 10"):
        _same_user(3, [1, 2, 2], 5.0)
    with pytest.raises(BadInput, match="auction 0"):  # the least that is left in one of its auctions
        _same_user(2, [2, 2], np.array([50.0, 7.0]))
    assert _same_user(3, [2, 1, 3], 5.0) == 3
    assert _same_user(10, None, 5.0) == 10  # nobody knows whose they are: each alone
    assert _same_user(2, [2, 2], 2 * spent) == 2
    with pytest.raises(BadInput, match="other auctions of the block"):
        _same_user(2, [2, 2], float(np.nextafter(2 * spent, 0)))
    assert _same_user(1, [2], spent) == 1
    with pytest.raises(BadInput, match="other auctions of the block"):
        measure(
            [replace(_three(2), user=np.zeros(2, np.int64))], {"rr": Arm(TopChoiceRule(5.0))}, epsilon_left=5.0
        )


def test_just_above_what_is_left_is_refused() -> None:
    spent = float(TopChoiceRule(5.0).epsilon(make_offers(_three().public, Rules()))[0])
    assert _same_user(1, None, spent) == 1
    with pytest.raises(BadInput, match="which the device has left"):
        _same_user(1, None, float(np.nextafter(spent, 0)))
    for left in (np.full(2, 5.0), np.array([np.nan]), np.array([-1.0]), np.array([np.inf])):
        with pytest.raises(BadInput, match="finite epsilon left >= 0 for each of 1 auctions"):
            _same_user(1, None, left)


def test_what_is_left_is_never_rounded_up() -> None:
    spent = Fraction(float(TopChoiceRule(5.0).epsilon(make_offers(_three().public, Rules()))[0]))
    assert _same_user(1, None, spent) == 1
    hair = Fraction(1, 10**30)
    assert float(spent - hair) == spent
    with pytest.raises(BadInput, match="which the device has left"):
        _same_user(1, None, spent - hair)


def test_a_block_says_what_top_choice_says_it_spends() -> None:
    offers = make_offers(_three(2).public, Rules())
    for epsilon, kept, top in ((5.0, 3, 1), (0.7, 3, 2), (2.0, 2, 1)):
        exactly = TopChoice.for_epsilon(epsilon, 3, kept, top).epsilon
        assert TopChoiceRule(epsilon, kept, top).epsilon(offers).tolist() == [exactly, exactly]


def test_sums_of_epsilon_do_not_round_in_favour() -> None:
    """Rounded as they are added, a large epsilon swallows many small ones: 1 + 2^-53 is 1 in doubles."""
    offers = make_offers(_three(6).public, Rules())
    asked = np.concatenate([[1.0], np.full(5, 2.0**-53)])

    class Fixed(TopChoiceRule):
        def epsilon(self, offers: Offers) -> NDArray[np.float64]:  # noqa: ARG002
            return asked

    assert asked.cumsum()[-1] == 1.0
    expect_within_budget(offers, Fixed(1.0), 1.0)
    with pytest.raises(BadInput, match="other auctions of the block"):
        expect_within_budget(offers, Fixed(1.0), 1.0, np.zeros(6, np.int64))


def test_what_is_measured_only_is_never_shown() -> None:
    def no_words(_: int) -> NDArray[np.uint64]:
        raise AssertionError("drawn")

    block = _three()
    for noisy in MEASURED:
        for show in (choose_block, show_block):
            with pytest.raises(
                BadInput, match="NoisyMax one request at a time, got NoisyMaxRule, which is for"
            ):
                show(block, Arm(noisy), no_words)
    planned = PlannedRule(lambda _: MEASURED[0])
    with pytest.raises(BadInput, match="for measuring only"):
        show_block(block, Arm(planned), no_words)
    for rule in SHOWN:
        assert len(show_block(block, Arm(rule), Simulation(1).words)) == 1


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("size", [2, 4, 15])
def test_a_calibrated_rate_is_just_bold_enough(noise: Noise, size: int) -> None:
    """The two ends of a candidate's chance tell epsilon, to the precision of doubles; 1% more would show."""
    public = PublicCandidates(np.array([0, size]), np.full(size, 10**6), Rates(np.full(size, 0.5)))
    offers, rule = make_offers(public, Rules()), NoisyMaxRule(5.0, noise, calibrated=True)
    best, worst = np.zeros(size), np.ones(size)
    best[0], worst[0] = 1.0, 0.0
    most, least = (rule.pmf(offers, scores)[0] for scores in (best, worst))
    assert math.log(most / least) == pytest.approx(5.0, abs=1e-6)


@pytest.mark.parametrize("noise", list(Noise))
def test_clipped_scores_are_as_wide_as_their_rounded_ends(noise: Noise) -> None:
    """At 2^52 micros the ends of 0.6 around a score are 2 apart, or 1: never 1.2."""
    bids = [2**52 + 21, 2**52 + 1]
    public = PublicCandidates(np.array([0, 2]), np.array(bids), Rates(np.ones(2)))
    offers, rule = make_offers(public, Rules()), NoisyMaxRule(5.0, noise, clip_micros=0.6)
    maths = NoisyMax.nominal(noise, Clipped(tuple(float(bid) for bid in bids), 0.6), 5.0)
    ends = [np.array([0.0, 2.0**53]), np.array([2.0**53, 0.0])]
    laws = [rule.pmf(offers, scores) for scores in ends]
    for law, scores in zip(laws, ends, strict=True):
        np.testing.assert_allclose(law, maths.pmf(scores), rtol=1e-9)
    assert np.abs(np.log(laws[0] / laws[1])).max() <= 5.0 + 1e-9
    with pytest.raises(BadInput, match="clip_micros that a double can add"):
        NoisyMaxRule(5.0, noise, clip_micros=0.1).pmf(offers, ends[0])
