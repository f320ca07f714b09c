"""Clicks, surplus, revenue and welfare per auction, and totals of them over a stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import AuctionBlock, Offers
from tacit.deliver.protocol.prices import BillingEvent
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY

REACH, LEVEL = 1.96, 0.95
"""Standard errors on both sides of a mean, and how often they hold the truth."""


@dataclass(frozen=True)
class Metric:
    """A figure per auction: what tables call it, and whether it is money, in micros, or a chance."""

    caption: str
    money: bool


KINDS = {
    "clicks": Metric("CTR", money=False),
    "surplus": Metric("surplus", money=True),
    "revenue": Metric("revenue", money=True),
    "welfare": Metric("welfare", money=True),
}
"""Per auction: clicks, and micros to advertisers, the platform and both; an empty slot's worth is welfare."""

METRICS = tuple(KINDS)

GROUPS = 4096
"""Users are hashed into this many groups, whose totals give standard errors right to 1 / sqrt(2 groups)."""


def metric_values(block: AuctionBlock, offers: Offers) -> Floats:
    """What showing each offered candidate brings in expectation, by what is true: (candidates, METRICS)."""
    truth, event_rate = block.private if block.truth is None else block.truth, true_event_rate(block)
    price = offers.price_micros
    revenue = offers.taken(event_rate) * price if offers.rules.price.charged is BillingEvent.CLICK else price
    value = offers.taken(block.public.bid_micros * event_rate)
    columns = {
        "clicks": offers.taken(truth.click),
        "surplus": value - revenue,
        "revenue": revenue,
        "welfare": value,
    }
    if offers.rules.empty_worth_micros is not None:
        columns["welfare"] = np.where(offers.rows == EMPTY, offers.rules.empty_worth_micros, value)
    values = np.empty((len(offers.rows), len(METRICS)))
    for at, metric in enumerate(METRICS):
        values[:, at] = columns[metric]  # one that is not worked out above raises
    return values


def true_event_rate(block: AuctionBlock) -> Floats:
    """How likely, by what is true, an impression of each candidate leads to what its bid is for."""
    return block.private_event_rate if block.truth is None else block.truth.of_event(block.public.bids_for)


@dataclass
class MetricTotals:
    """Sums over auctions of several columns, enough for means, ratios and their standard errors.

    The spread is kept around a first guess of the means, so that nothing cancels; or, with users, by group.
    """

    columns: int
    count: int = 0
    sums: Floats = field(init=False)
    products: Floats = field(init=False)  # of deviations from `guess`, (columns, columns)
    guess: Floats | None = None
    group_sums: Floats | None = None  # (GROUPS, columns)
    group_counts: Integers | None = None

    def __post_init__(self) -> None:
        self.sums = np.zeros(self.columns)
        self.products = np.zeros((self.columns, self.columns))

    def add(self, values: Floats, users: Integers | None = None) -> None:
        """Count these auctions in, values (auctions, columns)."""
        if not len(values):
            return
        if self.count and (users is None) != (self.group_sums is None):
            raise BadInput("expected users for all blocks or for none, got some")
        if self.guess is None:
            self.guess = values.mean(axis=0)
        self.count += len(values)
        self.sums += values.sum(axis=0)
        if users is None:
            deviations = values - self.guess
            self.products += deviations.T @ deviations
            return
        if self.group_sums is None or self.group_counts is None:
            self.group_sums = np.zeros((GROUPS, self.columns))
            self.group_counts = np.zeros(GROUPS, np.int64)
        groups = user_groups(users)
        self.group_counts += np.bincount(groups, minlength=GROUPS)
        for column in range(self.columns):
            self.group_sums[:, column] += np.bincount(groups, values[:, column], GROUPS)

    @property
    def means(self) -> Floats:
        if not self.count:
            raise BadInput("expected at least one auction, got none")
        return self.sums / self.count

    @property
    def covariance(self) -> Floats:
        """Of the means, (columns, columns); over auctions, or over groups of users where those are known."""
        means = self.means
        if self.group_sums is None or self.group_counts is None:
            assert self.guess is not None  # something was counted
            off = means - self.guess
            return (self.products - self.count * np.outer(off, off)) / self.count / max(self.count - 1, 1)
        residuals = self.group_sums - self.group_counts[:, None] * means  # (GROUPS, columns)
        used = int(np.count_nonzero(self.group_counts))
        return residuals.T @ residuals / self.count**2 * used / max(used - 1, 1)


def user_groups(users: Integers) -> NDArray[np.int64]:
    """A fixed, public hash (Fibonacci's, mixed once): alike for all blocks, and nobody's secret."""
    mixed = users.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed >> np.uint64(52)).astype(np.int64)
