"""Priors of menus, hostile ones too: they change what is planned and how often, never what a request tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from tacit.arrays import Floats
from tacit.deliver.auction.devices import PlannedDevices, Visits, choose_for_devices
from tacit.deliver.device.choice import HistoryRates, choose_privately, learn_policy, planner_for
from tacit.deliver.device.context import ClickHistory
from tacit.deliver.device.wallet import BudgetPolicy, Wallet
from tacit.deliver.protocol.factor_laws import FewLiked, HeavyTails, ObservedRatios, SomeKnown, Spread
from tacit.deliver.protocol.forecasts import forecast_gains
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.plans import ChoicePlan, Planner
from tacit.deliver.protocol.priors import (
    ContextRatios,
    Favourite,
    LearntPrior,
    Mixture,
    ScorePrior,
    prior_as_json,
    read_prior,
)
from tacit.entropy import Simulation
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.units import Window
from tests.support.device_cases import ALL_LEVELS, here, old_quarter

DAY = Window.days(1)
EPSILONS = (0.1, 1.0, 3.0, 8.0)


def drawn_priors(count: int) -> list[ScorePrior]:
    """Priors as a server might publish them that means no good, or does not know what it does."""
    draws = np.random.default_rng(11)

    def simple() -> ScorePrior:
        match int(draws.integers(6)):
            case 0:
                return Spread(float(10 ** draws.uniform(-3, 1)))
            case 1:
                return HeavyTails(float(draws.uniform(0.01, 0.95)))
            case 2:
                return FewLiked(float(10 ** draws.uniform(-4, -0.01)), float(draws.uniform(1.1, 1000)))
            case 3:
                return SomeKnown(float(draws.uniform(0.001, 1)), float(draws.uniform(0.01, 10)))
            case 4:
                return Favourite(float(draws.uniform(0.001, 1)), float(draws.uniform(0.001, 1)))
        values = draws.lognormal(0, 4, 7)
        return ObservedRatios(tuple(values.tolist()), "made up")

    found: list[ScorePrior] = [simple() for _ in range(count)]
    mixed = [
        Mixture(tuple((float(draws.random()), simple()) for _ in range(int(draws.integers(1, 6)))))
        for _ in range(count // 4)
    ]
    return [
        Spread(0), Spread(10), Favourite(1, 1), FewLiked(1e-3, 1000), Spread((0.0, 10.0, 0.0, 10.0)),
        ContextRatios(((0.0, 9.0, 1.0, 1e6), (1e6, 0.0, 0.0, 0.0)), (1.0, 3.0)),
        LearntPrior(Mixture(((0.5, Favourite(1, 1)), (0.5, Spread(10)))), "", 1e12),
        *found, *mixed,
    ]  # fmt: skip


PRIORS = drawn_priors(200)
MENUS = [np.array(scores) for scores in ([1.0, 1.0, 1.0, 1.0], [4.0, 3.0, 1.0, 0.1], [1.0, 1e-6, 0.0, 0.0])]


@cache
def worst_ratio(law: TopChoice) -> Fraction:
    """Of any candidate's whole words under two private rankings, over all of them: largest / smallest."""
    rankings = permutations(range(law.candidates))
    columns = list(zip(*(law.weights(np.array(scores, np.float64)) for scores in rankings), strict=True))
    assert all(min(words) > 0 or max(words) == 0 for words in columns), "possible for one, not for another"
    return max(Fraction(max(words), min(words)) for words in columns if max(words))


def test_no_prior_changes_what_one_request_may_tell() -> None:
    spending = dict.fromkeys(EPSILONS, 0)
    for prior in PRIORS:
        read = read_prior(prior_as_json(prior))  # as it stands in a menu
        for public in MENUS:
            for epsilon in EPSILONS:
                plan = Planner(read).plan(public, epsilon)
                assert plan.epsilon_spent in (0.0, epsilon)
                assert isinstance(plan.law, TopChoice)
                assert worst_ratio(plan.law) <= (
                    exp_rounded_down(Fraction(epsilon)) if plan.epsilon_spent else 1
                )
                spending[epsilon] += not plan.skipped
    assert len(PRIORS) > 250
    # How many requests spend is what a prior does change.
    assert all(0 < count < len(PRIORS) * len(MENUS) for count in spending.values())


def some_menus(count: int, prior: ScorePrior) -> list[Menu]:
    """The old quarter with other rates, and so other public scores."""
    draws, base = np.random.default_rng(5), old_quarter()
    found = []
    for _ in range(count):
        order = np.sort(draws.lognormal(-3, 0.6, 3))[::-1].clip(0, 1)
        found.append(
            replace(
                base, bid_micros=np.full(3, 1_000_000), rates=order, price_micros=np.zeros(3, int), prior=prior
            )
        )
    return found


def test_how_many_requests_spend_follows_the_prior() -> None:
    def spent(prior: ScorePrior) -> int:
        plans = (planner_for(menu, Planner()).plan(menu.public_scores, 1) for menu in some_menus(60, prior))
        return sum(not plan.skipped for plan in plans)

    nobody, few, many = (spent(prior) for prior in (Spread(0), Spread(0.3), Spread()))
    assert nobody == 0
    assert few < many / 2, (few, many)


def test_one_planner_plans_two_menus_each_by_its_own_prior() -> None:
    planner = Planner()
    narrow, wide = (replace(old_quarter(), prior=prior) for prior in (Spread(0.01), Spread()))
    sure, asking = (planner_for(menu, planner).plan(menu.public_scores, 1) for menu in (narrow, wide))
    assert (sure.skipped, asking.skipped) == (True, False)
    assert (sure.prior, asking.prior) == (Spread(0.01), Spread())
    fixed = Planner(Spread(0.01))
    assert planner_for(wide, fixed).plan(wide.public_scores, 1).skipped, "a device with a prior of its own"
    # And many devices at once do what each would do alone.
    policy = BudgetPolicy(6, (1.0,), 0.0, DAY)
    visits = Visits(np.array([0, 1, 0, 1]), np.arange(4), np.zeros(4, np.int64))
    rates = np.tile(wide.rates, (4, 1))
    devices = PlannedDevices(planner, policy, policy.wallets(4))
    chosen = choose_for_devices(
        [narrow, wide], visits, rates, devices, Simulation(1), store=lambda _: None, simulated=True
    )
    assert chosen.epsilon_spent.tolist() == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("prior", [Spread(10), Favourite(1, 1), FewLiked(1e-3, 1000)], ids=str)
def test_the_wallet_bounds_what_a_greedy_prior_can_have(prior: ScorePrior) -> None:
    """A server that has everything asked gets no more than the wallet has, in a window."""
    policy, menu = BudgetPolicy(6, (2.0,), 0.0, DAY), replace(old_quarter(), prior=prior)
    wallet, spent = policy.wallet(), []
    for second in range(40):
        stored: list[Wallet] = []
        choice = choose_privately(
            menu, here("Cafe"), HistoryRates(ClickHistory(ALL_LEVELS)), Planner(), policy, wallet, second,
            Simulation(second), store=stored.append, simulated=True,
        )  # fmt: skip
        (wallet,) = stored
        spent.append(choice.epsilon_spent)
    assert max(spent) <= 2
    assert sum(map(Fraction, spent)) <= 6
    assert wallet.left(now=40) == 6 - sum(map(Fraction, spent))


def test_the_threshold_moves_with_the_prior_and_what_it_gains() -> None:
    """People who differ a little: by what was learnt of them a budget goes where it brings most."""
    truth, ladder, requests = Spread(0.3), (1.0, 3.0), 6
    menus = some_menus(300, Spread())
    asked = {"total": 6.0, "ladder": ladder, "requests": requests, "window": DAY}
    assumed = learn_policy(menus, Planner(), **asked)  # type: ignore[arg-type]
    learnt = learn_policy([replace(menu, prior=truth) for menu in menus], Planner(), **asked)  # type: ignore[arg-type]
    assert learn_policy(menus, Planner(truth), **asked).threshold == learnt.threshold  # type: ignore[arg-type]
    assert learnt.threshold < 0.9 * assumed.threshold, "less can be won, so less must be brought"

    def true_gain(policy: BudgetPolicy, prior: ScorePrior) -> float:
        """What plans by a prior are worth by the truth, per request, over the same menus."""
        believed = np.array([forecast_gains(menu.public_scores, prior, ladder) for menu in menus])
        steps = policy.spend(believed, requests)
        total = 0.0
        for menu, epsilon in zip(menus, steps.tolist(), strict=True):
            if epsilon:
                plan = Planner(prior).plan(menu.public_scores, epsilon)
                draws = truth.scores(menu.public_scores[None])[:, 0].T
                total += _value(plan, draws) - float(menu.public_scores[0])
        return total / len(menus)

    # A learnt prior with the threshold of another is the worst: it asks of people what they cannot bring.
    worth = {name: true_gain(policy, prior) for name, policy, prior in (
        ("assumed", assumed, Spread()), ("old threshold", assumed, truth), ("learnt", learnt, truth),
    )}  # fmt: skip
    assert worth["learnt"] > 1.5 * worth["assumed"] > 5 * worth["old threshold"], worth


def _value(plan: ChoicePlan, draws: Floats) -> float:
    return float((plan.pmf(draws) * draws).sum(axis=1).mean())


def test_policies_need_menus() -> None:
    from tacit.errors import BadInput

    nothing: Sequence[Menu] = []
    with pytest.raises(BadInput, match="expected menus of at least 6 requests, got 0"):
        learn_policy(nothing, Planner(), total=6, ladder=(1.0,), requests=6, window=DAY)
