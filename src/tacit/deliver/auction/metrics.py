"""Clicks, surplus, revenue and welfare an auction, and totals of them that add up over a stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.deliver.auction.candidates import AuctionBlock, Floats, Integers
from tacit.deliver.auction.offers import Offers
from tacit.deliver.auction.rules import Charged
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY

METRICS = ("clicks", "surplus", "revenue", "welfare")
"""Per auction: clicks, and micros to advertisers, the platform and both; an empty slot's worth is welfare."""

GROUPS = 4096
"""Users are hashed into so many groups, whose totals give standard errors right to 1 / sqrt(2 groups)."""


def values_of(block: AuctionBlock, offers: Offers) -> Floats:
    """What showing each offered candidate brings in expectation, by what is true: (candidates, METRICS)."""
    truth, event_rate = block.private if block.truth is None else block.truth, true_event_rate(block)
    per_event = offers.rules.price.charged is Charged.CLICK
    values = np.empty((len(offers.rows), len(METRICS)))
    revenue = offers.taken(event_rate) * offers.price_micros if per_event else offers.price_micros
    value = offers.taken(block.public.bid_micros * event_rate)
    values[:, 0] = offers.taken(truth.click)
    values[:, 1] = value - revenue
    values[:, 2] = revenue
    values[:, 3] = value
    if offers.rules.empty_worth_micros is not None:
        values[offers.rows == EMPTY, 3] = offers.rules.empty_worth_micros
    return values


def true_event_rate(block: AuctionBlock) -> Floats:
    """How likely, by what is true, an impression of each candidate leads to what its bid is for."""
    return block.private_event_rate if block.truth is None else block.truth.of_event(block.public.bids_for)


@dataclass
class Totals:
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
        self.group_sums, self.group_counts = _groups(self)
        groups = group_of(users)
        self.group_counts += np.bincount(groups, minlength=GROUPS)
        for column in range(self.columns):
            self.group_sums[:, column] += np.bincount(groups, values[:, column], GROUPS)

    def merge(self, other: Totals) -> None:
        """Count in what another part of the stream held."""
        if not other.count:
            return
        alike = not self.count or (self.group_sums is None) == (other.group_sums is None)
        if self.columns != other.columns or not alike:
            raise BadInput("expected totals of the same columns and with or without users alike, got others")
        if not self.count:
            self.guess = other.guess
        shift = _guess(other) - _guess(self)
        drift = np.outer(other.sums - other.count * _guess(other), shift)
        self.products += other.products + drift + drift.T + other.count * np.outer(shift, shift)
        self.count += other.count
        self.sums = self.sums + other.sums
        if other.group_sums is not None and other.group_counts is not None:
            sums, counts = _groups(self)
            self.group_sums, self.group_counts = sums + other.group_sums, counts + other.group_counts

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
            off = means - _guess(self)
            return (self.products - self.count * np.outer(off, off)) / self.count / max(self.count - 1, 1)
        residuals = self.group_sums - self.group_counts[:, None] * means  # (GROUPS, columns)
        used = int(np.count_nonzero(self.group_counts))
        return residuals.T @ residuals / self.count**2 * used / max(used - 1, 1)


def group_of(users: Integers) -> NDArray[np.int64]:
    """A fixed, public hash (Fibonacci's, mixed once): alike for all blocks, and nobody's secret."""
    mixed = users.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed >> np.uint64(52)).astype(np.int64)


def _groups(totals: Totals) -> tuple[Floats, Integers]:
    if totals.group_sums is None or totals.group_counts is None:
        return np.zeros((GROUPS, totals.columns)), np.zeros(GROUPS, np.int64)
    return totals.group_sums, totals.group_counts


def _guess(totals: Totals) -> Floats:
    return np.zeros(totals.columns) if totals.guess is None else totals.guess
