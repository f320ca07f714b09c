"""A budget over a period: the wallet never pays too much, and the threshold is learnt from public forecasts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.deliver.device.choice import plan_request
from tacit.deliver.device.wallet import BudgetPolicy, Wallet
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.plans import Planner
from tacit.errors import BadInput, BudgetExceeded
from tacit.privacy.units import Window

DAY = Window.days(1)
LADDER = (1.0, 2.5, 5.0)


def wallet() -> Wallet:
    return Wallet(Fraction(10), Fraction(5), DAY)


def forecasts(count: int, seed: int) -> NDArray[np.float64]:
    """Concave gains of very different sizes, as bids are."""
    sizes = np.random.default_rng(seed).lognormal(0, 1.5, size=count)
    return np.outer(sizes, 1 - np.exp(-np.array(LADDER) / 2))


def test_a_wallet_pays_up_to_its_total_and_not_a_hair_more() -> None:
    full = wallet()
    for _ in range(100):
        full = full.spend(0.1, now=5)  # one tenth each, exactly
    assert full.left(now=86_399) == 0
    with pytest.raises(BudgetExceeded, match="nothing was spent") as refused:
        full.spend("1e-12", now=6)
    assert refused.value.remaining.epsilon == 0
    assert full.spend(0, now=7).left(now=7) == 0


def test_a_new_window_starts_anew_and_an_old_one_does_not_come_back() -> None:
    spent = wallet().spend(5, now=10).spend(4, now=20)
    assert spent.left(now=30) == 1
    tomorrow = spent.spend(2, now=86_400)
    assert tomorrow.left(now=86_401) == 8
    with pytest.raises(BadInput, match="earlier"):
        tomorrow.spend(1, now=30)
    assert spent.left(now=30) == 1  # nothing was edited


def test_one_request_has_its_own_limit() -> None:
    with pytest.raises(BadInput, match=r"auction 17: .* the most for one"):
        wallet().spend(5.01, now=0, auction="17")
    with pytest.raises(BudgetExceeded, match="auction 18"):
        wallet().spend(5, now=0).spend(5, now=1).spend(5, now=2, auction="18")


def test_a_device_pays_for_what_it_plans_and_stops_when_it_has_nothing_left() -> None:
    planner = Planner(Spread(0.8))
    policy = BudgetPolicy(10, LADDER, 0.0, DAY)  # everything is worth it
    book, spent = policy.wallet(), []
    for now in range(5):
        before = book.left(now)
        plan, book = plan_request([3.0, 2.9, 2.5], planner, policy, book, now)
        assert before - book.left(now) == plan.epsilon_spent
        assert plan.law.epsilon <= plan.epsilon_spent + 1e-12
        spent.append(plan.epsilon_spent)
    assert spent == [5, 5, 0, 0, 0]
    assert plan.pmf([0.0, 1.0, 2.0]).tolist() == [1, 0, 0]
    assert plan.upper_bound == 0
    later, _ = plan_request([3.0, 2.9, 2.5], planner, policy, book, 86_400)
    assert later.epsilon_spent == 5
    idle, same = plan_request([3.0, 0.1], planner, policy, policy.wallet(), 0)  # nothing to be won
    assert idle.skipped
    assert same.left(0) == 10


def test_a_wallet_by_which_more_could_be_spent_than_the_policy_promises_is_refused() -> None:
    """As one that a device stored under an earlier policy: its totals, not the policy's, would be kept."""
    week = Window.days(7)
    policy, planner, public = BudgetPolicy(2, (1.0, 2.0), 0.0, week), Planner(Spread(1.0)), [1.0, 0.99, 0.98]
    for stored, says in (
        (Wallet(Fraction(100), Fraction(2), week), "a wallet of total <= 2, the policy's, got 100"),
        (Wallet(Fraction("2.0000001"), Fraction(2), week), "a wallet of total <= 2"),
        (Wallet(Fraction(2), Fraction(2), DAY), "for each 7 days from second 0 on, got one for each 1 day"),
        (Wallet(Fraction(2), Fraction(2), Window.days(7, origin=5)), "for each 7 days from second 5 on"),
        (Wallet(Fraction(2), Fraction(2), week, ad_tech="other"), "ad tech None, got that for other"),
    ):
        with pytest.raises(BadInput, match=says):
            plan_request(public, planner, policy, stored, 0)
    gentle = BudgetPolicy(2, (1.0,), 0.0, week)  # at most 1 at once
    with pytest.raises(BadInput, match="most_per_request <= 1, the policy's, got 2"):
        plan_request(public, planner, gentle, policy.wallet(), 0)
    strict, spent = gentle.wallet(), []  # what the device allows besides is its own affair
    for now in range(3):
        plan, strict = plan_request(public, planner, policy, strict, now)
        spent.append(plan.epsilon_spent)
    assert spent == [1, 1, 0]


def test_a_request_that_spends_nothing_still_moves_the_wallet_to_its_window() -> None:
    planner, policy = Planner(Spread(0.8)), BudgetPolicy(10, LADDER, 0.0, DAY)
    _, today = plan_request([3.0, 2.9, 2.5], planner, policy, policy.wallet(), 0)
    idle, tomorrow = plan_request([3.0, 0.1], planner, policy, today, 86_400)
    assert idle.skipped
    with pytest.raises(BadInput, match="earlier"):  # a clock that is set back opens no window again
        plan_request([3.0, 2.9, 2.5], planner, policy, tomorrow, 0)


def test_what_is_paid_is_what_the_plan_spends_not_what_was_looked_up() -> None:
    """The look-up is for trunc(k, m); who plans by plain randomized response may then spend nothing."""
    policy, public = BudgetPolicy(10, (1.0,), 0.0, DAY), [1.0, 0.99, *[0.2] * 20]
    plain, unspent = plan_request(public, Planner(Spread(0.8), "rr"), policy, policy.wallet(), 0)
    assert plain.skipped
    assert unspent.left(0) == 10
    truncated, paid = plan_request(public, Planner(Spread(0.8)), policy, policy.wallet(), 0)
    assert truncated.epsilon_spent == 1
    assert paid.left(0) == 9


@given(st.lists(st.tuples(st.integers(0, 3 * 86_400), st.fractions(0, 6)), max_size=40))
def test_no_window_ever_pays_more_than_the_total(asked: list[tuple[int, Fraction]]) -> None:
    paid: dict[int, Fraction] = {}
    book = wallet()
    for now, epsilon in sorted(asked, key=lambda each: each[0]):
        try:
            book = book.spend(epsilon, now)
        except (BudgetExceeded, BadInput):
            continue
        assert epsilon <= 5
        paid[DAY.index(now)] = paid.get(DAY.index(now), Fraction(0)) + epsilon
    assert all(total <= 10 for total in paid.values())


def test_spending_follows_the_price() -> None:
    policy = BudgetPolicy(10, LADDER, 1.0, DAY)
    assert policy.epsilon([0.5, 1.0, 1.5], left=10) == 0  # nowhere worth its price
    assert policy.epsilon([2.0, 3.0, 3.5], left=10) == 1.0
    assert policy.epsilon([2.0, 9.0, 20.0], left=10) == 5.0
    assert policy.epsilon([2.0, 9.0, 20.0], left=4) == 2.5  # the best that can be paid
    assert policy.epsilon([2.0, 9.0, 20.0], left=0.5) == 0


def test_many_periods_are_spent_as_one_wallet_would_spend_each() -> None:
    policy = BudgetPolicy(10, LADDER, 0.3, DAY)
    gains = forecasts(57, 1)
    found = policy.spend(gains, 10)
    assert np.isnan(found[50:]).all()
    for period in range(5):
        book = policy.wallet()
        for turn in range(10 * period, 10 * period + 10):
            epsilon = policy.epsilon(gains[turn], book.left(now=0))
            assert epsilon == found[turn]
            book = book.spend(epsilon, now=0)
    assert 0 < np.nansum(found) < 50  # it saves, and it spends


def test_the_learnt_threshold_beats_an_even_split_and_spending_on_first_sight() -> None:
    past, now = forecasts(3000, 2), forecasts(3000, 3)
    learnt = BudgetPolicy.learn(past, total=10, ladder=LADDER, requests=10, window=DAY)
    assert learnt.threshold > 0
    even = float(now[:, 0].mean())  # 1 each
    first = BudgetPolicy(10, LADDER, 0.0, DAY).forecast(now, 10)
    gained = learnt.forecast(now, 10)
    assert gained > 1.3 * even
    assert gained > 1.3 * first
    # As good as the best of a fine grid that knows the future, to within what 300 periods can tell.
    grid = [BudgetPolicy(10, LADDER, price, DAY).forecast(now, 10) for price in np.linspace(0.0, 2.0, 81)]
    assert gained > 0.97 * max(grid)


def test_of_thresholds_that_gain_the_same_the_one_that_spends_least_is_learnt() -> None:
    """Two periods of two requests. Below 2, both totals go to the first: gains 10 and 7. From 3.5 to 8 one each
    goes to the first and to the last: 8 and 9."""
    gains = np.array([[8.0, 10.0], [0.0, 0.0], [3.0, 7.0], [9.0, 9.0]])
    learnt = BudgetPolicy.learn(gains, total=2, ladder=(1.0, 2.0), requests=2, window=DAY)
    bold = BudgetPolicy(2, (1.0, 2.0), 0.0, DAY)
    assert learnt.forecast(gains, 2) == bold.forecast(gains, 2) == 17 / 4
    assert learnt.spend(gains, 2).tolist() == [1, 0, 0, 1]
    assert bold.spend(gains, 2).tolist() == [2, 0, 2, 0]


def test_a_budget_that_is_enough_for_all_is_spent_on_all() -> None:
    learnt = BudgetPolicy.learn(forecasts(500, 4), total=50, ladder=LADDER, requests=10, window=DAY)
    assert (learnt.spend(forecasts(500, 5), 10) == 5).all()


def test_the_statement_names_the_total_and_the_most_for_one_impression() -> None:
    policy = BudgetPolicy(10, LADDER, 1.0, DAY)
    statement = policy.statement()
    assert statement.epsilon == pytest.approx(10)
    assert statement.delta == 0
    assert str(statement.unit) == "device per 1 day"
    text = statement.as_text()
    assert "one impression beyond ε = 5" in text
    assert "several windows" in text


def test_the_words_are_those_of_fixed_windows_and_of_one_device() -> None:
    policy = BudgetPolicy(10, LADDER, 1.0, Window.days(1, origin=3600))
    text = policy.statement().as_text()
    assert text.count("a person with several devices") == 1
    assert "private per device per 1 day" in text
    assert "clock" in text
    assert "ε = 10 together in a window, 5 each at most" in text
    # All records of a window are covered together: the words for a single record would contradict that.
    assert "several records" not in text


def test_a_wallet_that_servers_share_tells_one_about_the_other_and_so_is_refused() -> None:
    """The leak, with one wallet: what the second server faces depends on whether the first was asked."""
    planner, public = Planner(Spread(1.0)), [1.0, 0.99, 0.98]
    anyone = BudgetPolicy(5, (5.0,), 0.0, DAY)
    fresh, _ = plan_request(public, planner, anyone, anyone.wallet(), 20)
    _, used = plan_request(public, planner, anyone, anyone.wallet(), 10)
    after, _ = plan_request(public, planner, anyone, used, 20)
    assert not fresh.skipped
    assert after.skipped
    assert (
        "that a device was at one server, from another that shares its wallet" in anyone.statement().as_text()
    )
    first, second = (BudgetPolicy(5, (5.0,), 0.0, DAY, ad_tech=name) for name in ("first", "second"))
    assert str(first.statement().unit) == "device per 1 day at first"
    _, paid = plan_request(public, planner, first, first.wallet(), 10)
    with pytest.raises(BadInput, match="ad tech second, got that for first"):
        plan_request(public, planner, second, paid, 20)
    assert paid.ad_tech == "first"
    learnt = BudgetPolicy.learn(
        forecasts(20, 1), total=10, ladder=LADDER, requests=10, window=DAY, ad_tech="first"
    )
    assert learnt.ad_tech == "first"


@pytest.mark.parametrize(
    ("total", "step"),
    [
        (1.0, 0.5000000004),
        (1e-10, 1e-10),
        (0.3, 0.1),
        (1.0, 0.1),
        (1e-30, 3e-31),
        (7.0, 1e-17),
        (2.43, 0.48600000000000004),
    ],
)
def test_no_period_spends_a_hair_more_than_the_total(total: float, step: float) -> None:
    """Decimals as they were written: three tenths pay for three times one tenth, and nothing for a fourth.

    The last: five steps are above the total by less than doubles of its whole units can tell.
    """
    spent = BudgetPolicy(total, (step,), 0.0, DAY).spend(np.ones((40, 1)), 20).reshape(2, 20)
    paid = [sum(Fraction(repr(one)) for one in period) for period in spent.tolist()]
    most = min(20, Fraction(repr(total)) // Fraction(repr(step)))
    assert paid == [most * Fraction(repr(step))] * 2


def test_a_request_that_cannot_be_paid_takes_the_lower_step_or_none() -> None:
    policy = BudgetPolicy(10, (4.9999999996, 5.0000000004), 0.0, DAY)
    planner, book, spent = Planner(Spread(1.0)), policy.wallet(), []
    for now in range(4):
        plan, book = plan_request([1.0, 0.99, 0.98], planner, policy, book, now)
        spent.append(plan.epsilon_spent)
    assert spent == [5.0000000004, 4.9999999996, 0, 0]
    assert policy.epsilon([1.0, 2.0], left=Fraction("5.0000000003")) == 4.9999999996
    assert policy.epsilon([1.0, 2.0], left=4.9999999995) == 0
    careful = Wallet(Fraction(10), Fraction(5), DAY)  # at most 5 at once: this is kept to as well
    assert plan_request([1.0, 0.99, 0.98], planner, policy, careful, 0)[0].epsilon_spent == 4.9999999996


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BudgetPolicy(4, LADDER, 1.0, DAY), "total = 4"),
        (lambda: BudgetPolicy(10, (), 1.0, DAY), "rising ladder"),
        (lambda: BudgetPolicy(10, LADDER, -1.0, DAY), "threshold"),
        (lambda: BudgetPolicy(10, LADDER, float("nan"), DAY), "threshold"),
        (lambda: BudgetPolicy(10, LADDER, 1.0, DAY).epsilon([1.0], 10), "forecasts of shape"),
        (lambda: BudgetPolicy(10, LADDER, 1.0, DAY).spend([[1.0, 2.0, np.nan]], 1), "finite"),
        (lambda: BudgetPolicy(10, LADDER, 1.0, DAY).spend([[1.0, 2.0, 3.0]], 2), "at least 2 requests"),
        (lambda: Wallet(Fraction(1), Fraction(2), DAY), "most_per_request"),
        (lambda: Wallet(Fraction(1), Fraction(1), 86_400), "Window"),  # type: ignore[arg-type]
        (lambda: Wallet(Fraction(1), Fraction(1), DAY, spent=Fraction(1)), "in_window beside what was spent"),
        (lambda: Wallet(Fraction(1), Fraction(1), DAY, Fraction(5), in_window=0), "spent <= total = 1"),
        (lambda: Wallet(Fraction(1), Fraction(1), DAY, in_window=0.5), "in_window"),  # type: ignore[arg-type]
        (lambda: BudgetPolicy(10, LADDER, 1.0, DAY, ad_tech=" "), "ad_tech"),
        (lambda: wallet().spend(-1, now=0), "epsilon >= 0"),
        (lambda: wallet().spend(1, now=0.5), "now"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused_in_one_line(make: object, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        make()  # type: ignore[operator]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("device", [-1, 3])
def test_a_wallet_has_one_number(device: int) -> None:
    policy = BudgetPolicy(2.0, (1.0, 2.0), 0.0, Window.days(1))
    wallets, gains = policy.wallets(3), np.array([[1.0, 3.0]] * 2)
    with pytest.raises(BadInput, match=r"expected devices in 0\.\.2"):
        policy.spend_by_turns(gains, wallets, np.array([2, device]), np.array([0, 0]))
    with pytest.raises(BadInput, match="expected whole amounts"):
        wallets.spend(np.array([0]), np.array([0.9]), np.array([0]))


@pytest.mark.parametrize(
    "now",
    [
        np.array([0, 2**63 - 1]),
        np.array([-(2**63), 0]),
        np.array([0, 2**62]),
        np.array([0, 2**64 - 1], np.uint64),
        np.array([0, 2**64], object),
        np.array([0.0, 1.0]),
    ],
)
def test_seconds_that_64_bits_cannot_subtract_are_refused_before_anybody_pays(now: NDArray[np.int64]) -> None:
    policy = BudgetPolicy(2.0, (1.0,), 0.0, Window(60, origin=-(2**61)))
    wallets, device, gains = policy.wallets(2), np.arange(2), np.ones((2, 1))
    for act in (
        lambda: wallets.left(device, now),
        lambda: wallets.spend(device, np.array([1, 1]), now),
        lambda: policy.spend_by_turns(gains, wallets, device, now),
    ):
        with pytest.raises(
            BadInput, match=r"^expected now in whole seconds between -2\^62 and 2\^62, got others$"
        ):
            act()
    assert wallets.spent.tolist() == [0, 0]


def test_seconds_up_to_the_limit_are_those_of_a_wallet_by_itself() -> None:
    policy, last = BudgetPolicy(2.0, (1.0,), 0.0, Window(60, origin=1 - 2**62)), 2**62 - 1
    for now in (last, -last, 0):
        _, paid = policy.spend_by_turns(np.ones((1, 1)), policy.wallets(1), np.array([0]), np.array([now]))
        assert paid.wallet(0) == policy.wallet().spend(1, now)


@pytest.mark.parametrize("window", [Window(2**62), Window(60, origin=2**70), Window(60, origin=-(2**62))])
def test_a_window_too_large_for_a_column_is_refused_in_one_line(window: Window) -> None:
    policy = BudgetPolicy(2.0, (1.0,), 0.0, window)
    assert policy.wallet().spend(1, 0).spent == 1, "by itself a wallet has whole numbers of any size"
    with pytest.raises(
        BadInput, match=r"^expected a window with origin and seconds below 2\^62, got a larger one$"
    ):
        policy.wallets(3)
