"""The choice that is reported: among exactly what was sent, by a plan of public data, paid for beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.deliver.auction.rules import Charged, FirstPrice
from tacit.deliver.client.here import Here
from tacit.deliver.client.history import History
from tacit.deliver.client.scores import NOTHING, Offered, expect_answer, own_rates
from tacit.deliver.planning.budget import BudgetPolicy
from tacit.deliver.planning.device import plan_request
from tacit.deliver.planning.plan import ChoicePlan
from tacit.deliver.planning.planner import Planner
from tacit.deliver.planning.prior import Prior
from tacit.deliver.planning.wallet import Wallet
from tacit.deliver.sent import Sent
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.randomness import Source, Words
from tacit.schema.impressions import DUE_ON, OWN_BID, Impressions

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PrivateChoice:
    """One choice that was paid for, before any private data is read.

    Guarantee:  which candidate is chosen, and so everything that is reported of it, is pure epsilon-LDP with
                epsilon = `epsilon_spent`, given what was disclosed and sent. With epsilon 0 nothing private is
                read. All choices that one wallet pays for are covered together by `Wallet`.
    Neighbours: any two exact contexts with the same disclosed node, histories and caches of this device.
    Assumes:    the request is not covered: the disclosed node goes out as it is, and so does that and when the
                device asked. Candidates are the ads as they were sent, all of them and no others, and showing
                nothing where a floor was asked for: that no ad was shown tells as much as which. A cached ad
                that was not sent would tell the history, so it is no candidate (`local` shows those, and has
                nothing to report). The floor, the prior, the policy, and whether this request is reported at
                all, are public. One choice is drawn. A click is not covered: a reported one tells that this
                person clicked. Nobody sees how long the choice took.
    Source:     the plan's law (`ChoicePlan`); candidates sent for a generalised context: Hardt, Nath, CCS 2012.
    """

    offered: Offered
    plan: ChoicePlan

    @property
    def epsilon_spent(self) -> float:
        return self.plan.epsilon_spent

    def pmf(self, here: Here, history: History) -> Floats:
        """The chance of each candidate, in public order. For measuring: it is as private as the scores."""
        return self.plan.pmf(self._scores(here, history))

    def choose(self, here: Here, history: History, words: Words) -> int:
        """The public rank of what is shown."""
        if self.plan.skipped:
            return 0
        return int(self.plan.choose(self._scores(here, history)[None], words)[0])

    def _scores(self, here: Here, history: History) -> Floats:
        return self.offered.private(own_rates(self.offered.sent, here, history))


@dataclass(frozen=True, eq=False)
class Reported:
    """What was shown, None for nothing, and what may be reported of it: one impression, or none.

    The wallet takes the place of the one that paid. `Unreported` has no impressions: it cannot be billed.
    """

    ad: int | None
    epsilon_spent: float
    wallet: Wallet = field(repr=False)
    impressions: Impressions = field(repr=False)


def prepare(
    sent: Sent,
    planner: Planner,
    policy: BudgetPolicy,
    wallet: Wallet,
    now: int,
    *,
    ctr_floor: float = 0.0,
    auction: str | None = None,
) -> tuple[PrivateChoice, Wallet]:
    """Plan one choice and pay for it. Nothing private comes in, so neither plan nor refusal tells anything."""
    if not isinstance(sent, Sent):
        raise BadInput(f"expected the ads that the server sent and no others, got {type(sent).__name__}")
    offered = Offered.of(sent, ctr_floor)
    nothing = offered.place_of_nothing
    if nothing is not None:
        planner = _sure_of_nothing(planner, nothing)
    plan, paid = plan_request(offered.public, planner, policy, wallet, now, auction)
    return PrivateChoice(offered, plan), paid


def choose_privately(
    sent: Sent,
    here: Here,
    history: History,
    planner: Planner,
    policy: BudgetPolicy,
    wallet: Wallet,
    now: int,
    source: Source,
    *,
    store: Callable[[Wallet], None],
    ctr_floor: float = 0.0,
    auction: str | None = None,
    simulated: bool = False,
) -> Reported:
    """Choose among what was sent, for a report; the promise is that of `PrivateChoice`.

    `store` puts the wallet that has paid in the place of the one that did, before anything is drawn: a device
    that fails after the draw and tries again has paid twice, never nothing. Whatever can be refused is refused
    before. With one ad and no floor it is shown as it came, at epsilon 0: the server personalises alone. With
    the root disclosed the device does.
    """
    if not simulated and not source.fit_for_release:
        raise EntropyMisuse(
            "expected the cryptographic stream for a choice, got a simulation; say simulated=True for a study"
        )
    choice, paid = prepare(sent, planner, policy, wallet, now, ctr_floor=ctr_floor, auction=auction)
    expect_answer(sent, here)  # also where nothing private will be read
    reports = [_impressions(choice.offered, rank) for rank in range(len(choice.offered.places))]
    store(paid)
    rank = choice.choose(here, history, source.words)
    return Reported(choice.offered.ads[rank], choice.epsilon_spent, paid, reports[rank])


@dataclass(frozen=True)
class _CertainAt:
    """The prior of the ads, and at one place a candidate whose worth everybody knows: nothing."""

    ads: Prior
    place: int

    def strata(self, candidates: int) -> Floats:
        return np.insert(self.ads.strata(candidates - 1), self.place, 1.0, axis=1)


@lru_cache(maxsize=256)
def _sure_of_nothing(planner: Planner, place: int) -> Planner:
    return Planner(_CertainAt(planner.prior, place), planner.method)


def _impressions(offered: Offered, rank: int) -> Impressions:
    """The impression for the bill, at a first price of public data; no row where nothing is shown."""
    sent, places = offered.sent, offered.places[rank : rank + 1]
    shown = places[places != NOTHING]
    micros = sent.micros[shown]
    if sent.charged is Charged.IMPRESSION:
        micros = np.array([math.floor(bid * rate) for bid, rate in zip(micros, sent.rates[shown], strict=True)])
    ads = np.array([sent.ads[place] for place in shown.tolist()], np.int64)
    price, ranks = micros.astype(np.int64), np.full(len(shown), rank, np.int64)
    return Impressions(
        campaign=ads,
        price_micros=price,
        most_micros=price,
        rank=ranks,
        setter=np.full(len(shown), OWN_BID, np.int64),
        rule=str(FirstPrice(sent.charged)),
        due_on=np.full(len(shown), DUE_ON.index(sent.charged), np.uint8),
    )
