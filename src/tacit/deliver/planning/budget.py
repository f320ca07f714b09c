"""Where in a period a person's epsilon is best spent: on requests whose public forecast is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.deliver.planning.ladder import checked_ladder
from tacit.deliver.planning.wallet import Wallet
from tacit.errors import BadInput
from tacit.privacy.budget import shown_up
from tacit.privacy.relations import Relation
from tacit.privacy.releases import LocalChoice
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Unit, UnitKind, Window

Floats = NDArray[np.float64]

THRESHOLDS = 64
"""How many thresholds are tried when one is learnt."""


@dataclass(frozen=True)
class BudgetPolicy:
    """Spend on a request the epsilon of the ladder with the largest forecast gain - threshold x epsilon.

    `threshold` is a price: the gain, in the unit of scores, that an epsilon must bring. It is learnt from
    public forecasts, and what is spent follows from public requests alone.
    """

    total: float
    ladder: tuple[float, ...]
    threshold: float
    window: Window

    def __post_init__(self) -> None:
        object.__setattr__(self, "ladder", checked_ladder(self.ladder))
        object.__setattr__(self, "threshold", float(expect.at_least_zero("threshold", self.threshold)))
        object.__setattr__(self, "total", float(expect.positive("total", self.total)))
        if self.most_per_request > self.total:
            raise BadInput(
                f"expected a ladder up to total = {self.total:g} at most, got {self.most_per_request:g}"
            )

    @classmethod
    def learn(
        cls, forecasts: ArrayLike, *, total: float, ladder: Sequence[float], requests: int, window: Window
    ) -> BudgetPolicy:
        """The threshold that would have gained most on these public forecasts (requests seen, ladder).

        They are cut into periods of so many requests, in the order given, each with a budget of its own.
        """
        steps = checked_ladder(ladder)
        gains = _checked_forecasts(forecasts, steps, expect.whole("requests", requests, at_least=1))
        prices = (gains / np.array(steps)).max(axis=1)
        tried = np.unique(np.r_[0.0, np.quantile(prices, np.linspace(0.0, 1.0, THRESHOLDS))])[::-1]
        policies = [cls(total, steps, price, window) for price in tried.tolist()]
        # Among equals the first, which spends least.
        return max(policies, key=lambda policy: policy.forecast(gains, requests))

    @property
    def most_per_request(self) -> float:
        return self.ladder[-1]

    def wallet(self) -> Wallet:
        """A device's own book, with nothing spent."""
        total, most = (expect.positive(name, getattr(self, name)) for name in ("total", "most_per_request"))
        return Wallet(total, most, self.window)

    def epsilon(self, forecast: ArrayLike, left: expect.Number) -> float:
        """What to spend on a request with these forecast gains (ladder,), where so much is left; or 0."""
        gains = _checked_forecasts(np.asarray(forecast)[None], self.ladder, 1)
        return float(self._chosen(gains, np.array([float(expect.at_least_zero("left", left))]))[1][0])

    def spend(self, forecasts: ArrayLike, requests: int) -> Floats:
        """What is spent on each of many requests, periods of `requests` rows one after another: (rows,).

        Rows beyond the last whole period are not dealt with, and have NaN.
        """
        gains = _checked_forecasts(forecasts, self.ladder, expect.whole("requests", requests, at_least=1))
        periods = len(gains) // requests
        cut = gains[: periods * requests].reshape(periods, requests, -1)
        spent, left = np.full(len(gains), np.nan), np.full(periods, self.total)
        for turn in range(requests):
            amounts = self._chosen(cut[:, turn], left)[1]
            left = left - amounts
            spent[: periods * requests].reshape(periods, requests)[:, turn] = amounts
        return spent

    def forecast(self, forecasts: ArrayLike, requests: int) -> float:
        """The forecast gain a request over those periods."""
        gains = np.c_[
            np.zeros(len(np.asarray(forecasts))), _checked_forecasts(forecasts, self.ladder, requests)
        ]
        spent = self.spend(forecasts, requests)
        done = np.isfinite(spent)
        step = np.searchsorted(np.r_[0.0, self.ladder], spent[done])
        return float(gains[done][np.arange(len(step)), step].mean())

    def statement(self) -> PrivacyStatement:
        """The promise to a person for a period: everything that this policy spends, together."""
        return PrivacyStatement.of(
            [LocalChoice(expect.positive("total", self.total))],
            unit=Unit(UnitKind.USER, self.window),
            relation=Relation.REPLACE_ONE,
            also_not_protected=(
                f"one impression beyond ε = {shown_up(self.most_per_request)}: the policy may spend so much of "
                "the period's total on it",
            ),
        )

    def as_text(self) -> str:
        """Total and per-impression guarantee, in words."""
        total, most = shown_up(self.total), shown_up(self.most_per_request)
        fewest = int(self.total / self.most_per_request)
        return (
            f"All choices of one person's device in {self.window} are together ε = {total} locally "
            f"differentially private. A single choice has ε = {most} at most, and requests on which nothing is "
            f"spent have 0. The total is what an even split would promise too, but as few as {fewest} choices "
            f"may use it up, so what is promised for one choice is weaker than the total divided by the number "
            f"of requests."
        )

    def _chosen(self, gains: Floats, left: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Which step of the ladder, 0 for none, and its epsilon; gains (rows, ladder), left (rows,)."""
        amounts = np.r_[0.0, self.ladder]
        worth = np.c_[np.zeros(len(gains)), gains] - self.threshold * amounts
        worth[amounts > left[:, None] + 1e-9] = -np.inf  # sums of doubles; a wallet adds exact fractions
        step = np.argmax(worth, axis=1).astype(np.int64)
        return step, amounts[step]


def _checked_forecasts(forecasts: ArrayLike, ladder: tuple[float, ...], requests: int) -> Floats:
    given = np.asarray(forecasts)
    if given.ndim != 2 or given.shape[1] != len(ladder) or given.dtype.kind not in "fiu":
        raise BadInput(
            f"expected forecasts of shape (requests, {len(ladder)}), got {given.dtype} {given.shape}"
        )
    if len(given) < requests:
        raise BadInput(f"expected forecasts of at least {requests} requests, got {len(given)}")
    gains = given.astype(np.float64)
    if not np.isfinite(gains).all():
        raise BadInput("expected finite forecasts, got one that is NaN or infinite")
    return gains
