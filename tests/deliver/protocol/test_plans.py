"""Plans: the best law for the scenarios, nothing spent where nothing can be won, safe at low spreads."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from tacit.data.generators.markets import Market
from tacit.deliver.auction.blocks import make_offers
from tacit.deliver.auction.logs import generated_blocks
from tacit.deliver.protocol.factor_laws import ObservedRatios, Spread, factors
from tacit.deliver.protocol.forecasts import forecast_gains, least_gain, scenarios, top_gains
from tacit.deliver.protocol.plans import STEPS, Planner, plan_choice
from tacit.deliver.protocol.prices import Rules
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.choice import epsilon_min, expected_score
from tacit.privacy.choice.top_choice import best_top_plan

Floats = NDArray[np.float64]
PUBLIC = np.array([1.0, 0.93, 0.85, 0.6, 0.2])


def requests(count: int, seed: int, most: int = 15) -> list[Floats]:
    draws = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        size, spread = int(draws.integers(2, most + 1)), draws.choice([0.05, 0.3, 1.0])
        made.append(np.sort(np.exp(spread * draws.normal(size=size)))[::-1])
    return made


def exact_gain(public: Floats, sigma: float, kept: int, top: int, epsilon: float) -> float:
    """trunc(k, m) under independent lognormal factors, by integrating E min(m, how many are above t) over t."""
    means, odds = public[:kept], math.exp(epsilon)
    low, high = math.log(means[-1]) - sigma**2 / 2 - 9 * sigma, math.log(means[0]) + sigma**2 / 2 + 9 * sigma
    logs = np.linspace(low, high, 800)
    above = ndtr((np.log(means)[:, None] - sigma**2 / 2 - logs) / sigma)
    number = np.zeros((kept + 1, len(logs)))
    number[0] = 1
    for chance in above:  # the law of a sum of independent zeros and ones
        number[1:], number[0] = number[1:] * (1 - chance) + number[:-1] * chance, number[0] * (1 - chance)
    counted = np.minimum(np.arange(kept + 1), top) @ number
    best = np.trapezoid(np.exp(logs) * counted, logs) + math.exp(low) * counted[0]  # below `low` all are above
    return float((odds - 1) * best + means.sum()) / (top * odds + kept - top) - float(public[0])


def test_the_integral_that_plans_are_held_to_is_right() -> None:
    """All favoured is an even draw; and against many draws, to five of their errors."""
    assert exact_gain(PUBLIC, 0.05, 5, 5, 2) == pytest.approx(PUBLIC.mean() - 1, abs=1e-6)
    draws = PUBLIC * np.exp(0.5 * np.random.default_rng(1).normal(size=(200_000, 5)) - 0.125)
    best = -np.sort(-draws[:, :4], axis=1)
    values = (math.expm1(2) * best[:, :2].sum(axis=1) + best.sum(axis=1)) / (2 * math.exp(2) + 2) - 1
    assert abs(exact_gain(PUBLIC, 0.5, 4, 2, 2) - values.mean()) < 5 * values.std() / math.sqrt(200_000)


def test_gains_are_those_of_the_scenarios_one_by_one() -> None:
    prior, epsilon = Spread(0.5), 2.0
    draws, odds = scenarios(PUBLIC, prior), math.exp(2.0)
    found = top_gains(PUBLIC[None], prior, (1.0, epsilon))[0, 1]
    for kept, top in itertools.product(range(1, 6), repeat=2):
        if top > kept:
            assert found[kept - 1, top - 1] == -math.inf
            continue
        best = -np.sort(-draws[:, :kept], axis=1)
        value = ((odds - 1) * best[:, :top].sum(axis=1) + best.sum(axis=1)) / (top * odds + kept - top)
        assert found[kept - 1, top - 1] == pytest.approx(value.mean() - draws[:, 0].mean(), abs=1e-12)


def test_trunc_is_the_best_top_plan_and_its_forecast_is_that_of_its_law() -> None:
    for public in requests(20, 1):
        plan = plan_choice(public, Spread(0.6), 3)
        draws = scenarios(public, Spread(0.6))
        best = best_top_plan(draws, 3)
        if plan.skipped:
            assert best.value - draws[:, 0].mean() <= least_gain(public, Spread(0.6))
            continue
        assert (plan.kept, plan.top) == (best.kept, best.top)
        assert plan.forecast_gain == pytest.approx(expected_score(plan.law, draws) - draws[:, 0].mean())


@pytest.mark.parametrize("method", ["trunc", "top", "rr", "floors"])
def test_no_method_passes_the_bound_and_floors_come_near(method: str) -> None:
    for public in (*requests(3, 2, most=6), PUBLIC):
        plan = plan_choice(public, Spread(0.7), 2, method)
        assert 0 <= plan.forecast_gain <= plan.upper_bound + 1e-9 * public[0]
        if method == "floors" and not plan.skipped:
            assert plan.forecast_gain >= 0.999 * plan.upper_bound
        if method == "rr" and not plan.skipped:
            assert (plan.kept, plan.top) == (len(public), 1)
        if method == "top" and not plan.skipped:
            assert plan.kept == len(public)


def test_floors_pay_where_spreads_differ() -> None:
    prior = Spread((0.0, 0.0, 1.5, 1.5, 0.0))
    trunc, floors = (plan_choice([1, 1, 0.9, 0.8, 0.8], prior, 1.5, method) for method in ("trunc", "floors"))
    assert floors.forecast_gain > 1.05 * trunc.forecast_gain
    assert floors.top is None


def test_nothing_is_spent_below_epsilon_min_and_nothing_could_be_won() -> None:
    public, prior = [1.0, 0.6, 0.5], Spread(0.3)
    least = epsilon_min(scenarios(public, prior))
    assert 1 < least < 10
    for method in ("trunc", "top", "rr", "floors"):
        plan = plan_choice(public, prior, 0.99 * least, method)
        assert plan.skipped
        assert (plan.epsilon_spent, plan.law.epsilon, plan.forecast_gain, plan.upper_bound) == (0, 0, 0, 0)
        assert plan.pmf([0.0, 9.0, 9.0]).tolist() == [1, 0, 0]
    assert plan_choice(public, prior, least + 2).epsilon_spent == least + 2
    assert plan_choice([0.0, 0.0], prior, 9).skipped
    assert plan_choice([1.0], prior, 9).skipped
    assert plan_choice([1.0, 1.0], Spread(0.0), 9).skipped


def test_a_prior_with_too_little_spread_is_never_worse_than_the_public_best() -> None:
    """In expectation under the true spread, by an integral that knows no scenarios."""
    personal = 0
    for place, public in enumerate(requests(120, 3)):
        assumed, epsilon = (0.1, 0.3, 0.9)[place % 3], (0.5, 1.0, 2.0, 5.0)[place % 4]
        plan = plan_choice(public, Spread(assumed), epsilon)
        if plan.top is None or plan.skipped:
            continue
        personal += 1
        gains = [exact_gain(public, assumed * more, plan.kept, plan.top, epsilon) for more in (1.0, 1.5, 2.5)]
        assert gains[0] > 0
        assert gains == sorted(gains)
    assert personal > 40


def search_like_gains(prior: Spread, epsilon: float) -> list[float]:
    """What plans by this prior really gain where devices know least: in the search-like market."""
    market = Market.search_like()
    offers = make_offers(next(iter(generated_blocks(market.auctions(100, 1)))).public, Rules())
    spread = market.user_spread * (1 - market.base)  # of ln(rate), for a spread of ln(odds)
    gains = []
    for auction in range(offers.count):
        public = offers.score[offers.offsets[auction] : offers.offsets[auction + 1]]
        plan = plan_choice(public, prior, epsilon)
        if plan.top is not None and not plan.skipped:
            gains.append(exact_gain(public, spread, plan.kept, plan.top, epsilon))
    return gains


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_prior_on_the_low_side_gains_where_devices_know_least(epsilon: float) -> None:
    """Every request planned by less than the true spread gains; with twice of it some lose."""
    gains = search_like_gains(Spread(0.3), epsilon)
    assert len(gains) > 15
    assert min(gains) > 0
    assert min(search_like_gains(Spread(0.6), epsilon)) < 0


def test_without_a_prior_the_default_is_used_and_says_what_it_assumes() -> None:
    public = [3.0, 2.5, 2.4, 0.3]
    assert plan_choice(public, epsilon=3).prior == Spread(1.0) == Spread()
    assert plan_choice(public, epsilon=3).law == plan_choice(public, Spread(1.0), 3).law
    assert str(Spread()) == "factors lognormal with sigma 1"


def test_scenarios_err_by_less_than_what_is_worth_spending_on() -> None:
    """So a plan that spends has a true gain: its forecast is above the least worth, its error below."""
    draws, errors = np.random.default_rng(0), []
    for _ in range(150):
        public = np.sort(np.exp(draws.choice([0.1, 0.5, 1.0]) * draws.normal(size=int(draws.integers(2, 20)))))[
            ::-1
        ]
        sigma, epsilon = float(draws.choice([0.1, 0.3, 1.0])), float(draws.choice([0.5, 1.0, 3.0, 5.0]))
        gains = top_gains(public[None], Spread(sigma), (epsilon,))[0, 0]
        kept, top = (place + 1 for place in divmod(int(np.argmax(gains)), len(public)))
        if kept > 1:
            error = float(gains.max()) - exact_gain(public, sigma, kept, top, epsilon)
            errors.append(error / float(least_gain(public, Spread(sigma))))
    assert len(errors) > 80
    assert max(errors) < 1
    assert np.std(errors) > 0.05  # they do err


def test_floors_too_gain_more_than_was_forecast_where_the_spread_is_larger() -> None:
    """Convexity, on scenarios of the same strata: what is lost elsewhere is won back by the private ranking."""
    for public in requests(6, 6, most=5):
        plan = plan_choice(public, Spread(0.4), 2, "floors")
        draws = [scenarios(public, Spread(sigma)) for sigma in (0.4, 0.6, 1.0)]
        gains = [expected_score(plan.law, draw) - draw[:, 0].mean() for draw in draws]
        assert gains == sorted(gains)
        assert plan.skipped or gains[0] == pytest.approx(plan.forecast_gain)


def test_a_prior_with_too_much_spread_is_not_safe() -> None:
    """The twin: the property above is one of low spreads, not of all plans."""
    plan = plan_choice(PUBLIC, Spread(1.0), 1)
    assert plan.top is not None
    assert exact_gain(PUBLIC, 1.0, plan.kept, plan.top, 1) > 0
    assert exact_gain(PUBLIC, 0.1, plan.kept, plan.top, 1) < -0.01


@pytest.mark.parametrize("method", ["trunc", "top", "rr", "floors"])
def test_the_law_of_a_plan_keeps_its_epsilon_for_every_ranking(method: str) -> None:
    plan = plan_choice([1.0, 0.9, 0.9, 0.8], Spread(1.0), 1, method)
    assert plan.epsilon_spent == 1
    laws = [plan.law.weights(ranking) for ranking in itertools.permutations(range(4))]
    limit = Fraction(math.e) * (1 + Fraction(1, 2**40))
    worst = max(Fraction(a, b) for one in laws for two in laws for a, b in zip(one, two, strict=True) if b)
    assert 2 < worst <= limit
    assert all((a == 0) == (b == 0) for one in laws for two in laws for a, b in zip(one, two, strict=True))
    scores = np.random.default_rng(1).normal(size=(50, 4))
    chosen = plan.choose(scores, Simulation(1).words)
    assert (plan.pmf(scores)[np.arange(50), chosen] > 0).all()
    np.testing.assert_allclose(plan.pmf(scores).sum(axis=1), 1.0)


def test_what_is_paid_is_never_below_what_the_law_spends() -> None:
    for epsilon in (0.3, Fraction(1, 3), "0.7", 2.0):
        plan = plan_choice([1.0, 1.0, 0.9], Spread(1.0), epsilon)
        asked = Fraction(epsilon) if not isinstance(epsilon, float) else Fraction(repr(epsilon))
        assert Fraction(repr(plan.epsilon_spent)) >= asked
        assert plan.epsilon_spent == pytest.approx(float(asked))


def test_forecasts_rise_along_the_ladder() -> None:
    gains = forecast_gains(PUBLIC, Spread(0.8), [0.5, 1, 2, 4, 8])
    assert (np.diff(gains) >= 0).all()
    assert gains[-1] > gains[0] >= 0


def test_kept_plans_forecast_no_more_than_fresh_ones_and_little_less() -> None:
    prior = Spread(0.6)
    planner = Planner(prior)
    for public in requests(25, 4):
        kept, fresh = planner.plan(public, 3), plan_choice(public, prior, 3)
        reach = float(factors(prior, len(public)).max(axis=1).mean()) * public[0] / STEPS
        assert kept.forecast_gain <= fresh.forecast_gain + 1e-9 or fresh.skipped
        slack = least_gain(public, prior) if kept.skipped else 0.0
        assert kept.forecast_gain >= fresh.forecast_gain - reach - slack
        if not kept.skipped:  # its law, on the scenarios of the true public scores
            draws = scenarios(public, prior)
            true_gain = expected_score(kept.law, draws) - draws[:, 0].mean()
            assert true_gain >= kept.forecast_gain - 1e-9 * public[0]
            assert kept.forecast_gain <= kept.upper_bound


def test_a_request_that_looks_the_same_gets_the_same_law_in_its_own_unit() -> None:
    planner = Planner(Spread(0.6), most=2)
    first, same = planner.plan([8.0, 6.0, 5.0], 3), planner.plan([16.0, 12.0, 10.001], 3)
    assert same.law is first.law
    assert same.forecast_gain == 2 * first.forecast_gain
    assert planner.kept == 1
    planner.plan([16.0, 12.0, 10.0], 2)
    planner.plan([16.0, 12.0], 2)
    assert planner.kept == 2
    assert planner.plan([0.0, 0.0], 3).skipped


def test_a_kept_plan_is_for_the_exact_epsilon_that_was_asked() -> None:
    planner, public = Planner(Spread(1.0)), [1.0, 0.9, 0.8]
    assert [planner.plan(public, epsilon).epsilon_spent for epsilon in (1, 4, 1.0, "4")] == [1, 4, 1, 4]
    assert planner.kept == 2
    assert planner.plan(public, 1).law.epsilon <= 1 < planner.plan(public, 4).law.epsilon
    # The double nearest to 2.1 is a little more than 2.1: equal as numbers to Python, not as decimals.
    above, decimal = planner.plan(public, Fraction(2.1)), planner.plan(public, 2.1)
    assert planner.kept == 4
    assert decimal.epsilon_spent == 2.1 < above.epsilon_spent
    with pytest.raises(BadInput, match="epsilon to be a number"):
        planner.plan(public, True)


def test_ratios_plan_like_the_spread_they_come_from() -> None:
    drawn = np.exp(0.7 * np.random.default_rng(5).normal(size=20_000))
    by_ratios = plan_choice(PUBLIC, ObservedRatios(tuple(drawn), "made up for a test"), 3)
    by_spread = plan_choice(PUBLIC, Spread(0.7), 3)
    assert (by_ratios.kept, by_ratios.top) == (by_spread.kept, by_spread.top)
    assert by_ratios.forecast_gain == pytest.approx(by_spread.forecast_gain, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([], Spread(), 1), "public scores"),
        (([1.0, 2.0], Spread(), 1), "largest down"),
        (([2.0, 1.0], Spread(), 0), "epsilon > 0"),
        (([2.0, 1.0], Spread(), math.inf), "epsilon"),
        (([2.0, 1.0], Spread(), 1, "best"), "one of trunc, top, rr, floors"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        plan_choice(*arguments)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match="rising"):
        forecast_gains([1.0], Spread(), [2.0, 1.0])


def test_a_number_in_the_place_of_a_prior_is_refused() -> None:
    with pytest.raises(BadInput, match=r"expected a prior of the private scores, such as Spread\(\), got 0\.5"):
        plan_choice([1, 0.5], 0.5, 2)  # type: ignore[arg-type]
