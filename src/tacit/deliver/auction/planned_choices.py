"""Plans for blocks of auctions at once, as choice rules of a market."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import Offers
from tacit.deliver.auction.choices import PlannedRule, TopChoiceRule
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.factor_laws import SCENARIOS
from tacit.deliver.protocol.forecasts import AT_ONCE, check_ladder, least_gain, top_gains
from tacit.deliver.protocol.priors import ScorePrior, check_prior
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY


@dataclass(frozen=True, eq=False)
class BlockForecast:
    """For every auction and epsilon of the ladder, the best (k, m) and its forecast gain: (auctions, ladder).

    Where nothing would be spent, kept = top = 1 and the gain is 0.
    """

    ladder: tuple[float, ...]
    kept: Integers
    top: Integers
    gain: Floats

    def rule(self, epsilon: Floats) -> TopChoiceRule:
        """Choose at these epsilons, one per auction: each on the ladder, or 0. Others were not planned for."""
        auctions, steps = self.gain.shape
        if epsilon.shape != (auctions,):
            raise BadInput(f"expected an epsilon for each of {auctions} auctions, got shape {epsilon.shape}")
        rows, at = np.arange(auctions), np.minimum(np.searchsorted(self.ladder, epsilon), steps - 1)
        if not np.all((epsilon == 0) | (np.array(self.ladder)[at] == epsilon)):
            raise BadInput(f"expected every epsilon on the ladder {self.ladder}, or 0, got another")
        kept, top = self.kept[rows, at], self.top[rows, at]
        return TopChoiceRule(np.where(kept > 1, epsilon, 0.0), kept, top)


def forecast_block(offers: Offers, prior: ScorePrior, ladder: Sequence[float]) -> BlockForecast:
    """Plan every auction of a block with trunc(k, m) from the offers, which are public.

    What an empty slot is worth is certain; other private scores follow the prior.
    """
    steps, shape = check_ladder(ladder), (offers.count, len(ladder))
    kept, top, gain = np.ones(shape, np.int64), np.ones(shape, np.int64), np.zeros(shape)
    for size in np.unique(offers.sizes[offers.sizes > 1]).tolist():
        auctions = np.flatnonzero(offers.sizes == size)
        at_once = max(1, AT_ONCE // max(SCENARIOS, size * size * len(steps)))
        for start in range(0, len(auctions), at_once):
            some = auctions[start : start + at_once]
            places = offers.offsets[some][:, None] + np.arange(size)
            public, empty = offers.score[places], offers.rows[places] == EMPTY
            gains = top_gains(public, prior, steps, empty if empty.any() else None)
            flat = gains.reshape(len(some), len(steps), -1)
            best = flat.argmax(axis=2)
            found = np.take_along_axis(flat, best[:, :, None], axis=2)[:, :, 0]
            worth = (found > least_gain(public, prior)[:, None]) & (best // size != best % size)
            kept[some] = np.where(worth, best // size + 1, 1)
            top[some] = np.where(worth, best % size + 1, 1)
            gain[some] = np.where(worth, found, 0.0)
    return BlockForecast(steps, kept, top, gain)


def planned_rule(prior: ScorePrior, epsilon: expect.Number) -> PlannedRule:
    """Every request planned on its own at the same epsilon; where nothing can be won, nothing is spent.

    Guarantee:  each choice is pure LDP with the epsilon that the rule has for its auction: at most the asked.
    Neighbours: any two vectors of private scores of one auction.
    Assumes:    offers and prior are public; what `TopChoiceRule` assumes.
    Source:     `TopChoiceRule`; plans look at public data alone, as in `ChoicePlan`.
    """
    asked, prior = float(expect.positive("epsilon", epsilon)), check_prior(prior)

    def rule(offers: Offers) -> TopChoiceRule:
        return forecast_block(offers, prior, (asked,)).rule(np.full(offers.count, asked))

    return PlannedRule(_once_a_block(rule))


def budget_rule(
    prior: ScorePrior,
    policy: BudgetPolicy,
    requests: int,
    forecast: Callable[[Offers], BlockForecast] | None = None,
) -> PlannedRule:
    """A budget spent by the policy: every `requests` auctions of a block are one device's period.

    Auctions beyond the block's last whole period spend nothing. Whoever measures several policies hands in one
    `forecast` by that prior for all of them, whose steps begin with those of each policy's ladder.

    Guarantee:  all choices of one period are together LDP with the policy's total, and each with the ladder's
                last step.
    Neighbours: all private scores of one period's auctions, replaced.
    Assumes:    every `requests` auctions in a row are one device's window, and the block is shown once: no
                wallet is kept. Offers and prior are public; what `TopChoiceRule` assumes.
    Source:     `BudgetPolicy`, `TopChoiceRule`.
    """

    def rule(offers: Offers) -> TopChoiceRule:
        found = forecast_block(offers, prior, policy.ladder) if forecast is None else forecast(offers)
        spent = policy.spend(found.gain[:, : len(policy.ladder)], requests)
        return found.rule(np.nan_to_num(spent))

    return PlannedRule(_once_a_block(rule))


def _once_a_block(rule: Callable[[Offers], TopChoiceRule]) -> Callable[[Offers], TopChoiceRule]:
    """The same, but asked several times for one block it plans once.

    Block and plan are kept as one value, read once and set once: whatever another thread plans meanwhile, a
    block is never answered with another's plan. Two threads that plan the same block find the same, each for
    itself.
    """
    last: tuple[Offers, TopChoiceRule] | None = None

    def remembered(offers: Offers) -> TopChoiceRule:
        nonlocal last
        found = last
        if found is None or found[0] is not offers:
            last = found = offers, rule(offers)
        return found[1]

    return remembered
