"""A market: arms compared over a stream of blocks, so that no log is ever in memory as a whole.

>>> import numpy as np
>>> from tacit.deliver import AuctionBlock, Greedy, NonPersonalised, PublicCandidates, Rates, TopChoiceRule
>>> server, device = np.array([0.03, 0.02, 0.05]), np.array([0.01, 0.06, 0.05])
>>> public = PublicCandidates(np.array([0, 2, 3]), np.array([1_000_000, 1_200_000, 500_000]), Rates(server))
>>> arms = {"public": Arm(NonPersonalised()), "private": Arm(TopChoiceRule(5.0)), "greedy": Arm(Greedy())}
>>> found = measure([AuctionBlock(public, Rates(device))], arms)
>>> [round(found.mean(arm, "clicks"), 4) for arm in arms]
[0.03, 0.0548, 0.055]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import EVENT_CODES, AuctionBlock, BidEvent, BidEvents, Offers, make_offers
from tacit.deliver.auction.choices import ChoiceRule, TopChoiceRule, expect_fit_to_show, expect_within_budget
from tacit.deliver.auction.metrics import KINDS, METRICS, REACH, MetricTotals, metric_values
from tacit.deliver.protocol.prices import BillingEvent, Rules, setter_codes
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.kernels.auctions import ShownCandidates, run_auctions
from tacit.kernels.choices import expected
from tacit.privacy.randomness import WordSource
from tacit.schema.impressions import DUE_ON, Impressions


@dataclass(frozen=True)
class Arm:
    """One way to run the market: public rules, and how devices choose."""

    choice: ChoiceRule
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True)
class MarketResults:
    """Means per auction of every metric of every arm, with standard errors; arms share their auctions.

    most_epsilon   the most that a choice of the arm may tell
    measured_only  arms for which that is what was asked, and no bound
    """

    arms: tuple[str, ...]
    totals: MetricTotals
    most_epsilon: Mapping[str, float]
    measured_only: frozenset[str] = frozenset()

    __repr__ = brief_repr

    @property
    def auctions(self) -> int:
        return self.totals.count

    def mean(self, arm: str, metric: str) -> float:
        return float(self.totals.means[self._at(arm, metric)])

    def standard_error(self, arm: str, metric: str) -> float:
        at = self._at(arm, metric)
        return math.sqrt(max(0.0, self.totals.covariance[at, at]))

    def lift(self, arm: str, over: str, metric: str) -> tuple[float, float]:
        """mean / mean - 1, and its standard error by the delta method, arms paired auction by auction."""
        top, base = self._at(arm, metric), self._at(over, metric)
        means, spread = self.totals.means, self.totals.covariance
        if not means[base]:
            raise BadInput(f"expected a mean of {metric} that is not 0 for {over}, got 0")
        ratio = float(means[top] / means[base])
        variance = spread[top, top] - 2 * ratio * spread[top, base] + ratio**2 * spread[base, base]
        return ratio - 1, math.sqrt(max(0.0, variance)) / abs(float(means[base]))

    def record(self, arm: str, over: str) -> dict[str, Any]:
        """One arm's figures by their captions, each with its 95% interval and its lift over another arm.

        CTR is a share, money is in micros per auction. An epsilon that has no bound is None, and one that is
        for measuring only says so. A lift over nothing is None.
        """
        most = self.most_epsilon[arm]
        record: dict[str, Any] = {
            "name": arm,
            "epsilon": None if math.isinf(most) else most,
            "measured_only": arm in self.measured_only,
        }
        for metric, kind in KINDS.items():
            value, reach = self.mean(arm, metric), REACH * self.standard_error(arm, metric)
            gained = self.lift(arm, over, metric) if self.mean(over, metric) else None
            record[kind.caption.lower()] = {
                "value": value,
                "low": value - reach,
                "high": value + reach,
                "lift": None if gained is None else gained[0],
                "lift_low": None if gained is None else gained[0] - REACH * gained[1],
                "lift_high": None if gained is None else gained[0] + REACH * gained[1],
            }
        return record

    def _at(self, arm: str, metric: str) -> int:
        if arm not in self.arms or metric not in METRICS:
            raise BadInput(f"expected an arm of {self.arms} and a metric of {METRICS}, got {arm!r}, {metric!r}")
        return self.arms.index(arm) * len(METRICS) + METRICS.index(metric)


def measure(
    blocks: Iterable[AuctionBlock],
    arms: Mapping[str, Arm],
    *,
    epsilon_left: expect.Number | None = None,
    words: WordSource | None = None,
) -> MarketResults:
    """Expected metrics of every arm on the same auctions, by the exact laws of their choices.

    With `words`, choices are drawn instead: a check of the expectation. With `epsilon_left`, a block that asks
    more of a device is refused before anything is counted from it: of a user's auctions in the block together,
    or of each auction alone where the block names no users. Every block starts with `epsilon_left` again.
    """
    expect.kind("arms", arms, Mapping)
    expect.kind("blocks", blocks, Iterable)
    if not arms:
        raise BadInput("expected at least one arm, got none")
    totals, most = MetricTotals(len(METRICS) * len(arms)), dict.fromkeys(arms, 0.0)
    for block in blocks:
        found: list[Floats] = []
        for name, arm in arms.items():
            offers = make_offers(block.public, arm.rules)
            if epsilon_left is not None:
                expect_within_budget(offers, arm.choice, epsilon_left, block.user)
            most[name] = max(most[name], float(arm.choice.epsilon(offers).max(initial=0.0)))
            found.append(_metrics(block, offers, arm.choice, words))
        totals.add(np.concatenate(found, axis=1), block.user)
    measured_only = frozenset(name for name, arm in arms.items() if arm.choice.measured_only)
    return MarketResults(tuple(arms), totals, most, measured_only)


def choose_block(
    block: AuctionBlock, arm: Arm, words: WordSource, *, epsilon_left: expect.Number | Floats | None = None
) -> tuple[Offers, Integers]:
    """One block: what was offered, and the place each device chose. Refused before anything is drawn.

    `epsilon_left` is what a device has before this block, one figure or one per auction; the caller deducts
    what the block spends. A user's auctions in it are added up; where it names no users, each is compared
    alone.
    """
    expect_fit_to_show(arm.choice)
    offers = make_offers(block.public, arm.rules)
    if epsilon_left is not None:
        expect_within_budget(offers, arm.choice, epsilon_left, block.user)
    return offers, arm.choice.choose(offers, private_scores(block, offers), words)


def show_block(
    block: AuctionBlock, arm: Arm, words: WordSource, *, epsilon_left: expect.Number | Floats | None = None
) -> Impressions:
    """One block for the bill: what is shown and its price, in one pass where the law goes by size alone.

    `epsilon_left` is as in `choose_block`.
    """
    expect.kind("block", block, AuctionBlock)
    expect.kind("arm", arm, Arm)
    laws = arm.choice.laws_by_size(block.public.largest + 1) if isinstance(arm.choice, TopChoiceRule) else None
    if laws is None or epsilon_left is not None:
        offers, chosen = choose_block(block, arm, words, epsilon_left=epsilon_left)
        return make_impressions(block, arm.rules, offers.shown(chosen))
    public = block.public
    columns = (public.offsets, public.bid_micros, public.event_rate)
    drawn = words(public.count)
    shown = run_auctions(*columns, arm.rules.pricing, block.private_event_rate, laws, drawn)
    return make_impressions(block, arm.rules, shown)


def private_scores(block: AuctionBlock, offers: Offers) -> Floats:
    """Micros an impression is worth to each bidder by all that the device knows, in the order of the offers."""
    return offers.scores(block.public.bid_micros, block.private_event_rate)


def make_impressions(block: AuctionBlock, rules: Rules, shown: ShownCandidates) -> Impressions:
    """What was shown, for the bill; price setters are named by their campaign.

    A price is due on the impression where impressions are charged, else on what the bid is for: so a bid for an
    impression is due on it under either rule.
    """
    if not isinstance(shown, ShownCandidates):
        raise BadInput(f"expected what was shown at public prices, got {type(shown).__name__}")
    public, campaign = block.public, block.public.campaign
    if campaign is None:
        raise BadInput("expected candidates with campaigns to bill, got none")
    most = public.bid_micros[shown.rows]
    due_on = _events(public.bids_for, shown.rows)
    if rules.price.charged is BillingEvent.IMPRESSION:
        most = np.floor(most * public.event_rate[shown.rows]).astype(np.int64)
        due_on = np.full(len(shown.rows), DUE_ON.index("impression"), np.uint8)
    return Impressions(
        campaign=campaign[shown.rows],
        price_micros=shown.prices,
        most_micros=most,
        rank=shown.ranks,
        setter=setter_codes(shown.rows, shown.setters, campaign),
        rule=str(rules.price),
        due_on=due_on,
        auction=public.names_of_shown(shown.rows),
    )


def _events(bids_for: BidEvents, rows: Integers) -> NDArray[np.uint8]:
    """The code of the event that each row's bid is for; the bill has the same codes."""
    if isinstance(bids_for, BidEvent):
        return np.full(len(rows), EVENT_CODES[bids_for], np.uint8)
    return bids_for[rows]


def expected_metrics(block: AuctionBlock, arm: Arm) -> Floats:
    """(auctions, METRICS) what an arm brings in expectation, auction by auction."""
    return _metrics(block, make_offers(block.public, arm.rules), arm.choice, None)


def _metrics(block: AuctionBlock, offers: Offers, choice: ChoiceRule, words: WordSource | None) -> Floats:
    """(auctions, METRICS): expected, or as drawn."""
    scores, values = private_scores(block, offers), metric_values(block, offers)
    if words is None:
        return expected(offers.offsets, choice.pmf(offers, scores), values)
    return _drawn(offers, values, choice.choose(offers, scores, words))


def _drawn(offers: Offers, values: Floats, chosen: Integers) -> Floats:
    """The values (candidates, METRICS) of the places chosen; zeros where there was nothing to choose."""
    drawn = np.zeros((offers.count, len(METRICS)))
    drawn[chosen >= 0] = values[(offers.offsets[:-1] + chosen)[chosen >= 0]]
    return drawn
