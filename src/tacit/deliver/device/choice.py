"""The private choice that is reported: among exactly the menu's ads, by a public plan, paid for beforehand.

Look up what a request is worth, pay from the wallet, store the wallet, and only then draw. Scores are by all
that the device knows, and stay there. Where the menu has a floor on the click rate, showing nothing is one more
candidate. It is worth the floor times the least bid that pays at all: no ad that reaches the floor is worth
less, and an ad below the floor always counts less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.device.wallet import BudgetPolicy, Wallet
from tacit.deliver.protocol.factor_laws import SCENARIOS
from tacit.deliver.protocol.forecasts import forecast_gains
from tacit.deliver.protocol.menu import NOTHING, Menu
from tacit.deliver.protocol.plans import ChoicePlan, Planner
from tacit.deliver.protocol.priors import ScorePrior
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.randomness import Source, WordSource
from tacit.privacy.units import Window
from tacit.progress import patient_bar
from tacit.schema.impressions import Impressions


class DeviceRates(Protocol):
    """The device's own click rates: of a history, or of a model that runs there."""

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:
        """The rate of each candidate in the menu's order (candidates,); of nothing, any."""


@dataclass(frozen=True, eq=False)
class HistoryRates:
    """The server's rates for the exact context, then the person's own.

    The server's is that of the device's finest node that it sent a rate of the ad for. The history is private,
    and not in the text.
    """

    history: ClickHistory = field(repr=False)

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:
        expect_answer(menu, context)
        return self.history.rates(menu.ads, context, menu.rates_along(context.below))


def device_scores(menu: Menu, rates: Floats) -> Floats:
    """Micros per impression by the device's rates (..., candidates), in public order: of one request, or many.

    The best of them is what the floor asks to be shown.
    """
    if rates.shape[-1:] != (len(menu),):
        raise BadInput(f"expected a rate for each of {len(menu)} candidates, got shape {rates.shape}")
    scores, reaches = menu.scores(rates)
    if not menu.ctr_floor:
        return scores
    assert menu.nothing_micros is not None  # a menu with a floor has it
    # Never equal to nothing: ties would go by public rank, which does not know what reaches the floor here.
    worth = menu.nothing_micros
    above, below = np.nextafter(worth, np.inf), np.nextafter(worth, -np.inf)
    scores = np.where(reaches, np.maximum(scores, above), np.minimum(scores, below))
    scores[..., menu.nothing_rank] = worth
    return scores


def expect_answer(menu: Menu, context: DeviceContext) -> None:
    """Refuse ads for another node than the one asked for, even for one that the device is in.

    Both nodes are public. To refuse by whether the device is in the node would answer whatever a server asks.
    """
    expect.kind("menu", menu, Menu)
    expect.kind("context", context, DeviceContext)
    if menu.node != context.disclosed:
        raise BadInput(f"expected ads for the node that was asked for, {context.disclosed}, got {menu.node}")


def plan_request(
    public: ArrayLike,
    planner: Planner,
    policy: BudgetPolicy,
    wallet: Wallet,
    now: int,
    auction: str | None = None,
) -> tuple[ChoicePlan, Wallet]:
    """The plan for a request at second `now`, and the wallet that has paid for one choice by it.

    Where too little is left, a lower step of the ladder is taken, or none: it never asks for more than is left.

    Guarantee:  one choice by the plan is epsilon-LDP with the epsilon that the wallet has paid, and all that it
                pays in a window are together what `policy.statement()` says; a looser wallet is refused.
    Neighbours: all private data of one device in that window, replaced.
    Assumes:    what `BudgetPolicy` and `ChoicePlan` assume; the wallet that is returned is stored before the
                choice is made; the plan is used once. What is spent follows from public scores and from what
                earlier public requests of the same ad tech left, so it tells nothing more.
    Source:     `Wallet`, `ChoicePlan`.
    """
    expect.kind("policy", policy, BudgetPolicy)
    expect.kind("planner", planner, Planner)
    policy.expect_own(wallet)
    worth = forecast_gains(public, planner.prior, policy.ladder)
    epsilon = policy.epsilon(worth, min(wallet.left(now), wallet.most_per_request))
    if not epsilon:
        return planner.public_best(public), wallet.spend(0, now, auction)
    plan = planner.plan(public, epsilon)
    return plan, wallet.spend(plan.epsilon_spent, now, auction)


def learn_policy(
    menus: Iterable[Menu],
    planner: Planner,
    *,
    total: float,
    ladder: Sequence[float],
    requests: int,
    window: Window,
    ad_tech: str | None = None,
) -> BudgetPolicy:
    """The policy whose threshold would have gained most on these recent menus, in the order in which they came.

    Gains are forecast as `plan_request` does, by the priors in force: those of the menus, or the planner's own.
    So a threshold belongs to a prior: where a new one is published, learn both.

    Guarantee:  that of `BudgetPolicy`, whatever the menus are: they move the threshold alone.
    Neighbours: all private data of one device in a window, replaced.
    Assumes:    menus are public, and no more of them are kept than anybody may know: which menus one device was
                sent says where it was.
    Source:     `BudgetPolicy.learn`.
    """
    expect.kind("menus", menus, Iterable)
    expect.kind("planner", planner, Planner)
    several = list(menus)
    for menu in several:
        expect.kind("every menu", menu, Menu)
    gains = [forecast_gains(menu.public_scores, planner_for(menu, planner).prior, ladder) for menu in several]
    if len(gains) < expect.whole("requests", requests, at_least=1):
        raise BadInput(f"expected menus of at least {requests} requests, got {len(gains)}")
    return BudgetPolicy.learn(
        np.array(gains), total=total, ladder=ladder, requests=requests, window=window, ad_tech=ad_tech
    )


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
                that was not sent would tell the history, so it is no candidate (`local_choice` shows those, and
                has nothing to report). The floor, the prior, the policy, and whether this request is reported
                at all, are public. One choice is drawn. A click is not covered: a reported one tells that this
                person clicked. Nobody sees how long the choice took.
    Source:     the plan's law (`ChoicePlan`); candidates sent for a generalised context: Hardt, Nath, CCS 2012.
    """

    menu: Menu
    plan: ChoicePlan

    @property
    def epsilon_spent(self) -> float:
        return self.plan.epsilon_spent

    def pmf(self, rates: Floats) -> Floats:
        """The chance of each candidate in public order, by the device's rates (..., candidates). For measuring:
        it is as private as the rates."""
        return self.plan.pmf(device_scores(self.menu, rates))

    def choose(self, rates: Floats, words: WordSource) -> Integers:
        """The public rank of what is shown, by the device's rates (requests, candidates); one word a request,
        and none where nothing private is read."""
        if self.plan.skipped:
            return np.zeros(len(rates), np.int64)
        return self.plan.choose(device_scores(self.menu, rates), words)


@dataclass(frozen=True, eq=False)
class ReportedChoice:
    """What was shown, None for nothing, and what may be reported of it: one impression, or none.

    The wallet takes the place of the one that paid. An `UnreportedChoice` has no impressions: it cannot
    be billed.
    """

    ad: int | None
    epsilon_spent: float
    wallet: Wallet = field(repr=False)
    impressions: Impressions = field(repr=False)


def prepare_choice(
    menu: Menu,
    planner: Planner,
    policy: BudgetPolicy,
    wallet: Wallet,
    now: int,
    auction: str | None = None,
) -> tuple[PrivateChoice, Wallet]:
    """Plan one choice and pay for it. Nothing private comes in, so neither plan nor refusal tells anything.

    Guarantee:  one choice by the plan is epsilon-LDP with the epsilon that the wallet has paid, and all that it
                pays in a window are together what `policy.statement()` says; a looser wallet is refused.
    Neighbours: all private data of one device in that window, replaced.
    Assumes:    what `PrivateChoice` and `plan_request` assume: above all, the wallet that is returned is stored
                before the choice is made, and one choice is drawn.
    Source:     `plan_request`.
    """
    if not isinstance(menu, Menu):
        raise BadInput(f"expected the ads that the server sent and no others, got {type(menu).__name__}")
    planner = planner_for(menu, planner)
    plan, paid = plan_request(menu.public_scores, planner, policy, wallet, now, auction)
    return PrivateChoice(menu, plan), paid


def choose_privately(
    menu: Menu,
    context: DeviceContext,
    rates: DeviceRates,
    planner: Planner,
    policy: BudgetPolicy,
    wallet: Wallet,
    now: int,
    source: Source,
    *,
    store: Callable[[Wallet], None],
    auction: str | None = None,
    simulated: bool = False,
) -> ReportedChoice:
    """Choose among the menu's ads, for a report; the promise is that of `PrivateChoice`.

    `store` puts the wallet that has paid in the place of the one that did, before anything is drawn: a device
    that fails after the draw and tries again has paid twice, never nothing. Whatever can be refused is refused
    before. With one ad and no floor it is shown as it came, at epsilon 0: the server personalises alone. With
    the root disclosed the device does.
    """
    expect.having("source", source, "fit_for_release", "an Entropy")
    if not simulated and not source.fit_for_release:
        raise EntropyMisuse(
            "expected the cryptographic stream for a choice, got a simulation; say simulated=True for a study"
        )
    choice, paid = prepare_choice(menu, planner, policy, wallet, now, auction)
    expect_answer(menu, context)  # also where nothing private will be read
    reports = [menu.impressions(np.array([rank])) for rank in range(len(menu))]
    store(paid)
    known = np.zeros((1, len(menu))) if choice.plan.skipped else rates(menu, context)[None]
    rank = int(choice.choose(known, source.words)[0])
    ad = None if menu.ads[rank] == NOTHING else menu.ads[rank]
    return ReportedChoice(ad, choice.epsilon_spent, paid, reports[rank])


def choose(
    public: ArrayLike,
    private: ArrayLike,
    epsilon: float = 2,
    *,
    prior: ScorePrior | None = None,
    random_state: int | None = None,
    source: Source | None = None,
) -> Any:
    """Choose one ad by private scores: its index. Of rows of scores, one ad each: an array of indices.

    `public` scores are what everybody may know of each ad, such as bid x rate (at least 0, in any order);
    `private` ones are the device's own, on the same scale. How is planned from the public scores alone, by
    `prior`, which says how far private ones may differ from them (by default `Spread()`); where nothing can be
    won, the public best is chosen and nothing is spent. Noise is cryptographic; `random_state` makes it a
    simulation, which promises nothing, and so does a `source` that is one.

    Guarantee:  the index is pure epsilon-DP: whatever it is, other private scores would have led to it at least
                e^-epsilon times as likely. Each row is a choice of its own.
    Neighbours: any two vectors of private scores of one request.
    Assumes:    public scores are public, and made of nothing private; so are prior, epsilon and order. Each
                call is another choice: those about one person add up. Nobody sees how long it took.
    Source:     `ChoicePlan`, `TopChoice`.

    >>> choose([3.0, 2.5, 0.3], [1.0, 4.0, 0.1], epsilon=3) in (0, 1)
    True
    """
    if isinstance(epsilon, str):
        raise BadInput(f"expected epsilon to be a number, got the text {epsilon!r}")
    expect.positive("epsilon", epsilon)
    known, own = _request_scores("public", public), _request_scores("private", private)
    if known.shape != own.shape:
        raise BadInput(f"expected private scores of the public ones' shape {known.shape}, got {own.shape}")
    if known.min() < 0:
        raise BadInput("expected public scores >= 0, got a smaller one")
    if random_state is not None:
        if source is not None:
            raise BadInput("expected a random_state or a source, got both")
        source = Simulation(f"choose {expect.integer('random_state', random_state)}")
    if source is not None:
        expect.having("source", source, "words", "an Entropy or a Simulation")
    words = (Entropy() if source is None else source).words
    rows, scores = np.atleast_2d(known), np.atleast_2d(own)
    order = np.argsort(-rows, axis=1, kind="stable")  # of equal ones the first: the order is public
    ranked, private_ranked = np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
    alike, request, times = np.unique(ranked, axis=0, return_inverse=True, return_counts=True)
    rank, done = np.empty(len(rows), np.int64), 0
    planner = _BY_DEFAULT if prior is None else Planner(prior)
    members = np.split(np.argsort(request.reshape(-1), kind="stable"), np.cumsum(times)[:-1])
    with patient_bar("choosing", len(rows), "choices") as count:
        for public_scores, some in zip(
            alike, members, strict=True
        ):  # one plan for all with these public scores
            rank[some] = planner.plan(public_scores, epsilon).choose(private_ranked[some], words)
            done += len(some)
            count(done)
    chosen = np.take_along_axis(order, rank[:, None], 1)[:, 0]
    return int(chosen[0]) if known.ndim == 1 else chosen


_BY_DEFAULT = Planner()


def _request_scores(name: str, scores: ArrayLike) -> Floats:
    """Scores of one request (candidates,) or of several (requests, candidates), finite, at least one."""
    try:
        given = np.asarray(scores)
    except ValueError:
        raise BadInput(f"expected as many {name} scores for each request, got several lengths") from None
    if given.dtype.kind not in "fiu" or given.ndim not in (1, 2) or not given.size:
        kind = f"{given.dtype} of shape {given.shape}"
        raise BadInput(f"expected {name} scores, numbers of one request or in rows, got {kind}")
    doubles = given.astype(np.float64)
    if not np.isfinite(doubles).all():
        raise BadInput(f"expected finite {name} scores, got one that is NaN or infinite")
    return doubles


def planner_for(menu: Menu, planner: Planner) -> Planner:
    """The planner for one menu: by the prior that stands there, unless the planner has one of its own; and
    sure of what nothing is worth, where that is a candidate."""
    nothing = menu.nothing_rank
    if not planner.by_menu and nothing is None:
        return planner
    prior = menu.prior if planner.by_menu else planner.prior
    return _planner_of(planner, prior, nothing)  # type: ignore[arg-type]  # hashable, which protocols cannot say


@dataclass(frozen=True)
class _CertainAt:
    """The prior of the ads, and at one place a candidate whose worth everybody knows: nothing."""

    ads: ScorePrior
    place: int

    def scores(self, public: Floats, count: int = SCENARIOS) -> Floats:
        others = self.ads.scores(np.delete(public, self.place, axis=1), count)
        return np.insert(others, self.place, public[:, self.place, None], axis=0)

    def deviation(self, candidates: int) -> float:
        return self.ads.deviation(candidates - 1) * float(np.sqrt(1 - 1 / candidates))


@lru_cache(maxsize=256)
def _planner_of(planner: Planner, prior: ScorePrior, nothing: int | None) -> Planner:
    return Planner(prior if nothing is None else _CertainAt(prior, nothing), planner.method)
