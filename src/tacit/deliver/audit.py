"""Choices on devices for `tacit audit`: planned by the prior that a menu brings, whoever wrote it.

A prior decides how many candidates are kept and favoured, and whether anything is asked at all. It must not
decide what one choice tells: the choice that a device prepares and pays for is held to what its wallet has
paid, by enumeration, with a prior that was learnt from reports and with priors that a hostile server would
send. The twin learns its prior on the device, from the very scores that it then chooses by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.deliver.device.choice import PrivateChoice, device_scores, prepare_choice
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.factor_laws import FewLiked, ObservedRatios, Spread
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.plans import Planner
from tacit.deliver.protocol.prices import Rules
from tacit.deliver.protocol.priors import ContextRatios, Favourite, Mixture, ScorePrior
from tacit.deliver.server.candidates import price_menu
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.privacy.audit.case import WHOLE, AuditCase, AuditMethod, Row, claimed_epsilon, exact_epsilon
from tacit.privacy.choice.audit import choice_rows
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.randomness import WordSource
from tacit.privacy.releases import LocalChoice
from tacit.privacy.units import Relation, Window
from tacit.schema.contexts.hierarchy import Node

EPSILON = 2
RATES = (0.05, 0.045, 0.04, 0.01)
CANDIDATES = len(RATES)
REPORTS = (2_000, 1_500, 1_200, 300)  # by public rank, of randomized response at EPSILON: people differ
CERTAIN = 1e6  # a ratio that no other can come near

HOSTILE: dict[str, ScorePrior] = {
    "everything differs": Spread(10.0),
    "one ad in two is a thousand times better": FewLiked(0.5, 1000.0),
    "everybody has one favourite": Favourite(1.0, 1.0),
    "only the public worst is any good": ContextRatios(
        ((0.0, 0.0, 0.0, CERTAIN), (1.0, 1.0, 1.0, 1.0)), (1.0, 1.0)
    ),
    "all at once": Mixture(((1e-6, Spread(0.0)), (1.0, Spread(10.0)), (1.0, Favourite(1.0, 0.5)))),
}


def cases() -> list[AuditCase]:
    """All cases. The claim is the accountant's, and the wallet's where that has paid less."""
    return [
        _case(
            f"a choice planned by a learnt prior, {CANDIDATES} candidates",
            lambda: [_learnt()],
            _self_taught_rows,
        ),
        _case(f"a choice planned by hostile priors, {CANDIDATES} candidates", lambda: [*HOSTILE.values()]),
    ]


@cache
def _learnt() -> ScorePrior:
    """From reports, as a server would learn it."""
    law = TopChoice.for_epsilon(EPSILON, CANDIDATES, CANDIDATES, 1)
    reported = ReportedRanks(_menu(Spread()).public_scores, law, np.array(REPORTS))
    return PriorEvidence().learn([reported]).prior()


def _menu(prior: ScorePrior) -> Menu:
    bids = [1_000_000] * CANDIDATES
    return price_menu(Node((0,), ("here",)), range(CANDIDATES), bids, RATES, Rules(), prior=prior)


@dataclass(frozen=True)
class _OnDevice:
    """A paid choice as a law of the device's rates."""

    choice: PrivateChoice
    paid: Fraction

    @property
    def candidates(self) -> int:
        return len(self.choice.menu)

    @property
    def epsilon(self) -> float:
        """What the wallet has paid, whatever the choice says that it spends."""
        return float(self.paid)

    def pmf(self, scores: ArrayLike) -> NDArray[np.float64]:
        return self.choice.pmf(np.asarray(scores))

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        return self.choice.plan.law.weights(device_scores(self.choice.menu, np.asarray(scores)))

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        return self.choice.choose(np.asarray(scores), words)


def _prepared(prior: ScorePrior, share: Fraction = WHOLE) -> _OnDevice:
    """As the device prepares it from a menu with this prior, at a share of 1 / epsilon."""
    epsilon = float(EPSILON / share)
    policy = BudgetPolicy(epsilon, (epsilon,), threshold=0.0, window=Window.days(1))
    choice, paid = prepare_choice(_menu(prior), Planner(), policy, policy.wallet(), now=0)
    return _OnDevice(choice, paid.spent)


def _inputs() -> list[tuple[float, ...]]:
    """Rates of the device: every ranking."""
    return [tuple(rates) for rates in permutations((0.01, 0.04, 0.045, 0.05))]


def _case(
    name: str,
    priors: Callable[[], Sequence[ScorePrior]],
    twin_rows: Callable[[], Sequence[Row]] | None = None,
) -> AuditCase:
    assert all(_prepared(prior).epsilon for prior in priors()), "what spends nothing would hold to anything"

    def look(share: Fraction) -> float:
        found = [exact_epsilon(choice_rows(_prepared(prior, share), _inputs())) for prior in priors()]
        return max(found) if share == WHOLE else min(found)

    relation = Relation.REPLACE_ONE
    claimed = claimed_epsilon(LocalChoice(Fraction(EPSILON)), relation, 0)
    return AuditCase(
        name,
        relation,
        claimed,
        0.0,
        AuditMethod.EXACT,
        look=lambda share, _trials, _source: look(share),
        twin=None if twin_rows is None else lambda _trials, _source: exact_epsilon(twin_rows()),
        stated=min(_prepared(prior).epsilon for prior in priors()),
    )


def _self_taught_rows() -> Sequence[Row]:
    """The twin: ratios of this very request are the prior, so that how many are kept tells the scores."""
    public = np.array(RATES)
    rows: list[Row] = []
    for rates in _inputs():
        seen = ObservedRatios(tuple((np.array(rates) / public).tolist()), "read off the device")
        rows += choice_rows(_prepared(seen), [rates])
    return rows
