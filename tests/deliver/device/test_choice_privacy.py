"""The reported choice by exact laws over all contexts and histories of a small town, and twins that leak."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, product
from typing import Any

import numpy as np
import pytest

from tacit.deliver.device.choice import (
    HistoryRates,
    PrivateChoice,
    choose_privately,
    device_scores,
    prepare_choice,
)
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.device.local_choice import AdCache, CachedAd, choose_locally
from tacit.deliver.device.wallet import BudgetPolicy, Wallet
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.menu import NOTHING
from tacit.deliver.protocol.plans import Planner
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.units import Window
from tests.support.device_cases import (
    ALL_LEVELS,
    PLACES,
    QUARTER,
    ROOT,
    Law,
    here,
    histories,
    menu_of,
    node,
    old_quarter,
    one_word,
    unstored,
    whole_town,
    worst_ratio,
)

POLICY = BudgetPolicy(6, (1.0, 2.0), 0.0, Window.days(1))
METHODS = ("trunc", "top", "rr", "floors")
FLOOR = 0.045
WHOLE = 2**64

CASES = {
    "quarter": (old_quarter, QUARTER, ("Cafe", "Bakery")),
    "client only": (whole_town, ROOT, PLACES),
}


def everything_private(case: str) -> list[tuple[DeviceContext, ClickHistory]]:
    _, disclosed, places = CASES[case]
    return list(product([here(place, disclosed) for place in places], histories([1, 2, 7])))


def law_of(choice: PrivateChoice, at: DeviceContext, history: ClickHistory) -> Law:
    """The law in whole words, by ad."""
    scores = device_scores(choice.menu, HistoryRates(history)(choice.menu, at))
    weights = choice.plan.law.weights(scores)
    return {ad: Fraction(n, WHOLE) for ad, n in zip(choice.menu.ads, weights, strict=True) if n}


def assert_private(laws: list[Law], epsilon: float) -> None:
    assert all(sum(law.values()) == 1 for law in laws)
    worst = worst_ratio(laws)
    assert worst is not None, "an outcome that is possible for one person and not for another"
    assert worst <= exp_rounded_down(Fraction(epsilon))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("floor", [0.0, FLOOR])
def test_the_claimed_epsilon_holds_over_contexts_and_histories(case: str, method: str, floor: float) -> None:
    sent = CASES[case][0](floor)
    choice, paid = prepare_choice(sent, Planner(Spread(1.0), method), POLICY, POLICY.wallet(), 0)
    assert choice.epsilon_spent == 2 == paid.spent
    laws = [law_of(choice, *private) for private in everything_private(case)]
    assert_private(laws, choice.epsilon_spent)
    worst = worst_ratio(laws)
    assert worst is not None
    assert worst > exp_rounded_down(Fraction(19, 10))  # it is spent, not merely claimed
    assert (NOTHING in laws[0]) == (floor > 0) or method in ("trunc", "floors")
    with pytest.raises(AssertionError):
        assert_private(laws, 1.9)


@pytest.mark.parametrize("floor", [0.0, FLOOR])
def test_what_is_shown_has_that_law_word_for_word_and_costs_all_the_same(floor: float) -> None:
    sent, planner = old_quarter(floor), Planner(Spread(1.0), "top")
    choice, paid = prepare_choice(sent, planner, POLICY, POLICY.wallet(), 0)
    for at, history in everything_private("quarter")[::17]:
        rates = HistoryRates(history)
        ends = list(accumulate(choice.plan.law.weights(device_scores(sent, rates(sent, at)))))
        law = choice.pmf(rates(sent, at))
        assert law == pytest.approx(np.diff([0, *ends]) / WHOLE)
        for rank, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            for word in (start, end - 1):  # a block of words is one stretch
                args = (planner, POLICY, POLICY.wallet(), 0, one_word(word))
                shown = choose_privately(sent, at, rates, *args, store=unstored)
                assert shown.ad == (None if sent.ads[rank] == NOTHING else sent.ads[rank])
                assert (shown.epsilon_spent, shown.wallet) == (choice.epsilon_spent, paid)
                assert shown.impressions.campaign.tolist() == ([] if shown.ad is None else [shown.ad])


def leaks_by_cache(choice: PrivateChoice, at: DeviceContext, history: ClickHistory) -> Law:
    """A twin: an ad of the cache, kept because it was clicked, is shown and reported where it is better."""
    cache = AdCache()
    if history.rates([7], at, np.zeros(1))[0] > 0:
        cache = cache.with_ad(CachedAd(7, {node("*"): 1_000_000}, 0.0, expires=100), now=0)
    found = choose_locally(choice.menu, at, history, cache=cache, now=0)
    return {found.ad: Fraction(1)} if found.cached else law_of(choice, at, history)


def leaks_by_abstaining(choice: PrivateChoice, at: DeviceContext, history: ClickHistory) -> Law:
    """A twin: an ad is chosen privately, and dropped afterwards where its own rate is below the floor."""
    rates = HistoryRates(history)(choice.menu, at)
    law: Law = {}
    for ad, chance in law_of(choice, at, history).items():
        assert isinstance(ad, int)
        shown = ad if rates[choice.menu.place[ad]] >= FLOOR else None
        law[shown] = law.get(shown, Fraction(0)) + chance
    return law


def leaks_by_what_is_reported(choice: PrivateChoice, at: DeviceContext, history: ClickHistory) -> Law:
    """A twin: the request is reported only where no cached ad is better."""
    law = leaks_by_cache(choice, at, history)
    return {"no report": Fraction(1)} if 7 in law else law


@pytest.mark.parametrize("twin", [leaks_by_cache, leaks_by_abstaining, leaks_by_what_is_reported])
def test_twins_that_leak_fail_the_same_check(
    twin: Callable[[PrivateChoice, DeviceContext, ClickHistory], Law],
) -> None:
    choice, _ = prepare_choice(old_quarter(), Planner(Spread(1.0), "top"), POLICY, POLICY.wallet(), 0)
    people = everything_private("quarter")
    assert_private([law_of(choice, *private) for private in people], choice.epsilon_spent)
    with pytest.raises(AssertionError, match="possible for one person"):
        assert_private([twin(choice, *private) for private in people], choice.epsilon_spent)


def test_two_requests_with_a_click_between_them_tell_what_the_wallet_paid() -> None:
    """The second history depends on what the first request showed, and on what the person likes."""
    planner, sent = Planner(Spread(1.0), "top"), old_quarter()
    first, wallet = prepare_choice(sent, planner, POLICY, POLICY.wallet(), 0)
    second, wallet = prepare_choice(sent, planner, POLICY, wallet, 1)
    laws = []
    for place, later, likes in product(("Cafe", "Bakery"), ("Cafe", "Bakery"), (1, 2, 3, None)):
        for history in histories([2, 3], most_clicks=1):
            law: Law = {}
            for ad, chance in law_of(first, here(place), history).items():
                clicked = isinstance(ad, int) and ad == likes
                then = history.with_click(ad, here(place)) if clicked else history  # type: ignore[arg-type]
                for other, more in law_of(second, here(later), then).items():
                    law[ad, other] = chance * more
            laws.append(law)
    assert wallet.spent == 4
    assert_private(laws, 4)
    with pytest.raises(AssertionError):
        assert_private(laws, 3.5)


def test_a_server_that_answers_with_a_finer_node_learns_nothing() -> None:
    """Refused on every device, those in that node too: a refusal by place would tell who is there."""
    two: Any = [1, 2], [1_000_000, 900_000], [0.05, 0.05]
    alone: Any = [1], [1_000_000], [0.05]  # of which nothing private would be read
    for (place, ads), floor in product((("Cafe", two), ("New", two), ("Cafe", alone)), (0.0, FLOOR)):
        sent = menu_of(node(place), ads[0], ads[1], ads[2], ctr_floor=floor)
        refusals = set()
        for at, history in everything_private("quarter")[::40]:
            source: Any = one_word()
            args = (Planner(Spread(1.0)), POLICY, POLICY.wallet(), 0, source)
            with pytest.raises(BadInput, match="the node that was asked for") as refused:
                choose_privately(sent, at, HistoryRates(history), *args, store=unstored)
            refusals.add(str(refused.value))
            assert source.asked == 0
        assert len(refusals) == 1


def test_a_bad_finer_rate_is_refused_wherever_the_device_is() -> None:
    with pytest.raises(BadInput, match=r"node Cafe: expected a rate in \[0, 1\]"):
        menu_of(node("Old"), [1], [5], [0.1], {node("Bakery"): {1: 0.1}, node("Cafe"): {1: float("nan")}})


def test_the_server_alone_is_one_ad_that_is_shown_as_it_came() -> None:
    sent = menu_of(node("Cafe"), [4], [1_000_000], [0.05])
    source: Any = one_word()
    for history in histories([4, 5]):
        args = (Planner(Spread(1.0)), POLICY, POLICY.wallet(), 0, source)
        shown = choose_privately(sent, here("Cafe", (0,)), HistoryRates(history), *args, store=unstored)
        assert shown.ad == 4
        assert shown.epsilon_spent == shown.wallet.spent == 0
        assert shown.impressions.campaign.tolist() == [4]
    assert source.asked == 0


def test_the_device_alone_is_the_root_disclosed() -> None:
    """Everything is sent for the root, and the device finds its own place in it."""
    sent, nobody = whole_town(), ClickHistory(ALL_LEVELS)
    shown = {place: choose_locally(sent, here(place, ROOT), nobody).ad for place in PLACES}
    assert shown == {"Cafe": 2, "Bakery": 1, "Gym": 3, "Pool": 2}
    choice, _ = prepare_choice(sent, Planner(Spread(1.0), "rr"), POLICY, POLICY.wallet(), 0)
    for place, ad in shown.items():
        law = law_of(choice, here(place, ROOT), nobody)
        assert max(law, key=lambda each: law[each]) == ad


class Broken:
    """A device whose entropy fails, or that is switched off, at the draw."""

    fit_for_release = True

    def words(self, _: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
        raise RuntimeError("switched off")


def test_a_device_that_fails_at_the_draw_has_paid() -> None:
    """Else a server that makes devices fail after the draw gets draws for nothing."""
    stored: list[Wallet] = []
    broken: Any = Broken()
    with pytest.raises(RuntimeError, match="switched off"):
        choose_privately(
            old_quarter(), here("Cafe"), HistoryRates(ClickHistory(ALL_LEVELS)), Planner(Spread(1.0)), POLICY,
            POLICY.wallet(), 0, broken, store=stored.append,
        )  # fmt: skip
    assert [wallet.spent for wallet in stored] == [2]


HOSTILE: list[Any] = [
    {1: [0.1, 0.1], 2: [0.1, 0.1]}, {1: (0.1,)}, {1: [[0.1]]}, {1: "0.5"}, {1: None}, {1: 0.1j}, {1: {}},
    {1: np.array([0.1])}, {1: np.array([0.1, 0.2])}, {1: object()}, {1: float("nan")}, {1: -0.1}, {1: 1.1},
    {99: 0.1}, {1: b"1"},
]  # fmt: skip


@pytest.mark.parametrize("table", HOSTILE, ids=[f"table {at}" for at in range(len(HOSTILE))])
@pytest.mark.parametrize("place", ["Cafe", "Bakery"])
def test_an_answer_is_refused_when_it_is_read_or_works_wherever_the_device_is(table: Any, place: str) -> None:
    """What fails only on devices in one place tells who is there, at no epsilon."""
    try:
        sent = menu_of(node("Old"), [1, 2], [5, 5], [0.1, 0.1], {node(place): table})
    except BadInput:
        return
    for at in (here("Cafe"), here("Bakery")):
        assert HistoryRates(ClickHistory(ALL_LEVELS))(sent, at).shape == (2,)


LARGE = 2**63 + 5


@pytest.mark.parametrize(
    "ads",
    [np.array([LARGE, 7], np.uint64), [LARGE, LARGE + 1], [1.0, 2.0], ["1", "2"], [True, False], [[1], [2]]],
)
def test_ads_that_no_impression_could_hold_are_refused_at_once(ads: Any) -> None:
    with pytest.raises(BadInput, match=r"whole numbers in 0\.\.2\^63-1"):
        menu_of(node("Old"), ads, [5, 5], [0.1, 0.1])
