"""Thousands of devices at once are the single device, visit by visit: choice, price, epsilon and wallet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.deliver.auction.blocks import AuctionBlock, PublicCandidates, Rates
from tacit.deliver.auction.choices import TopChoiceRule
from tacit.deliver.auction.devices import (
    DeviceChoices,
    Devices,
    ExactDevices,
    PlannedDevices,
    PublicDevices,
    Visits,
    choose_for_devices,
)
from tacit.deliver.auction.market import Arm, choose_block
from tacit.deliver.device.choice import (
    HistoryRates,
    PrivateChoice,
    choose_privately,
    device_scores,
    prepare_choice,
)
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.device.wallet import BudgetPolicy, Wallet, Wallets
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.forecasts import forecast_gains
from tacit.deliver.protocol.menu import NOTHING, Menu
from tacit.deliver.protocol.plans import Planner
from tacit.deliver.protocol.prices import FirstPrice, Rules
from tacit.deliver.server.candidates import price_menu
from tacit.entropy import Simulation
from tacit.errors import BadInput, BudgetExceeded, EntropyMisuse
from tacit.privacy.units import Window
from tests.support.device_cases import ALL_LEVELS, PLACES, ROOT, here, menu_of, node, one_word, whole_town

LONG = 2**64 - 1
DAY = Window.days(1)


class Words:
    """A source that says these words, once each, and counts how many were asked for."""

    fit_for_release = True

    def __init__(self, words: list[int]) -> None:
        self.left, self.asked = list(words), 0

    def words(self, n: int) -> NDArray[np.uint64]:
        self.asked += n
        said, self.left = self.left[:n], self.left[n:]
        return np.array(said, np.uint64)


@dataclass(frozen=True, eq=False)
class Known:
    """Rates that a model on the device knows, whatever they are."""

    rates: NDArray[np.float64]

    def __call__(self, menu: Menu, context: DeviceContext) -> NDArray[np.float64]:
        assert menu.node == context.disclosed
        return self.rates[: len(menu)]


def all_at_once(
    menus: list[Menu], visits: Visits, rates: NDArray[np.float64], how: Devices, words: list[int]
) -> tuple[DeviceChoices, list[Wallets]]:
    source: Any = Words(words)
    stored: list[Wallets] = []

    def store(wallets: Wallets) -> None:
        assert source.asked == 0, "stored before anything is drawn"
        stored.append(wallets)

    return choose_for_devices(menus, visits, rates, how, source, store=store), stored


def assert_one_by_one(
    menus: list[Menu],
    visits: Visits,
    rates: NDArray[np.float64],
    devices: PlannedDevices,
    words: list[int],
) -> DeviceChoices:
    """A loop of `choose_privately` in the order of arrival, one stored wallet per device, is the same."""
    found, stored = all_at_once(menus, visits, rates, devices, words)
    wallets: dict[int, Wallet] = {}
    told: dict[str, list[Any]] = {
        name: [] for name in ("campaign", "price_micros", "most_micros", "rank", "setter")
    }
    for at, (place, device, now) in enumerate(zip(*map(np.ndarray.tolist, vars(visits).values()), strict=True)):
        menu, wallet = menus[place], wallets.get(device, devices.policy.wallet())
        context = DeviceContext((menu.node,), menu.node)
        shown = choose_privately(
            menu, context, Known(rates[at]), devices.planner, devices.policy, wallet, now, one_word(words[at]),
            store=lambda paid, device=device: wallets.update({device: paid}),  # type: ignore[misc]
        )  # fmt: skip
        assert shown.epsilon_spent == found.epsilon_spent[at]
        ad = menu.ads[found.rank[at]]
        assert shown.ad == (None if ad == NOTHING else ad)
        for name, column in told.items():
            column.extend(getattr(shown.impressions, name).tolist())
        assert shown.impressions.rule == found.impressions.rule
        assert set(shown.impressions.due_on.tolist()) <= set(found.impressions.due_on.tolist())
    for name, column in told.items():
        assert column == getattr(found.impressions, name).tolist(), name
    (paid,) = stored
    assert found.wallets is paid
    for device in range(len(paid)):
        assert paid.wallet(device) == wallets.get(device, devices.policy.wallet())
    return found


def test_a_town_of_thirty_is_thirty_devices() -> None:
    """Three visits each, in an order of arrival that mixes people, to two menus at several epsilons."""
    draws = np.random.default_rng(1)
    menus = [
        whole_town(),
        menu_of(node("Old"), [4, 5, 6], [900_000, 800_000, 850_000], [0.05] * 3, ctr_floor=0.045),
    ]
    device = draws.permutation(np.repeat(np.arange(30), 3))
    visits = Visits(draws.integers(2, size=90), device, np.arange(90))
    rates = draws.choice([0.01, 0.04, 0.05, 0.06, 0.2], size=(90, 4))
    policy = BudgetPolicy(3.5, (0.5, 1.0, 2.0), 0.0, DAY)
    devices = PlannedDevices(Planner(Spread(1.0), "top"), policy, policy.wallets(30))
    words = [int(word) for word in Simulation("thirty").words(90)]
    found = assert_one_by_one(menus, visits, rates, devices, words)
    assert {2.0, 1.0, 0.5} <= set(found.epsilon_spent.tolist()), "the ladder is gone down as wallets empty"
    assert 0 < len(found.impressions) < 90, "and nothing was shown, too"
    assert len(set(found.rank.tolist())) > 2


BIDS = st.sampled_from([0, 1, 1000, 2000, 123_457])
RATES = st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.5, 1.0])


@st.composite
def towns(draw: Any) -> tuple[list[Menu], Visits, NDArray[np.float64], PlannedDevices, list[int]]:
    """Menus with ties, zero bids, a floor and nothing; three steps; visits across a day's end; poor wallets."""
    menus = []
    for at in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 5))
        bids, public = (draw(st.lists(kind, min_size=count, max_size=count)) for kind in (BIDS, RATES))
        floor = draw(st.sampled_from([0.0, 0.0, 0.02]))
        menus.append(menu_of(node(("Old", "New", "*")[at]), range(count), bids, public, ctr_floor=floor))
    people, count = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    several = [st.integers(0, len(menus) - 1), st.integers(0, people - 1), st.integers(0, 3)]
    menu, device, later = (draw(st.lists(kind, min_size=count, max_size=count)) for kind in several)
    now = 86_395 + np.cumsum(later)  # the day ends on the way
    visits = Visits(np.array(menu), np.array(device), now)
    most = max(map(len, menus))
    known = draw(st.lists(st.lists(RATES, min_size=most, max_size=most), min_size=count, max_size=count))
    words = draw(
        st.lists(st.one_of(st.integers(0, LONG), st.sampled_from([0, LONG])), min_size=count, max_size=count)
    )
    policy = BudgetPolicy(
        draw(st.sampled_from([2.0, 2.1, 3.0, 100.0])), (0.1, 1.0, 2.0), draw(st.sampled_from([0.0, 50.0])), DAY
    )
    method = draw(st.sampled_from(["trunc", "top", "rr"]))
    planner = Planner(Spread(draw(st.sampled_from([0.2, 1.0]))), method)
    return menus, visits, np.array(known), PlannedDevices(planner, policy, policy.wallets(people)), words


@given(towns())
def test_any_town_is_its_devices_one_by_one(
    town: tuple[list[Menu], Visits, NDArray[np.float64], PlannedDevices, list[int]],
) -> None:
    assert_one_by_one(*town)


def test_a_plan_that_rounds_away_its_gain_costs_a_wallet_nothing() -> None:
    """The forecast may be worth a step that the planner, whose rivals are rounded down, does not take."""
    policy, rounded = BudgetPolicy(3.0, (2.0,), 0.0, DAY), 0
    for second in np.linspace(0.619, 0.626, 15):
        menu = menu_of(node("Old"), [1, 2], [1_000_000, int(1_000_000 * second)], [0.5, 0.5])
        devices = PlannedDevices(Planner(Spread(0.5)), policy, policy.wallets(1))
        visits = Visits(np.zeros(2, np.int64), np.zeros(2, np.int64), np.arange(2))
        found = assert_one_by_one([menu], visits, np.full((2, 2), 0.5), devices, [0, LONG])
        worth = forecast_gains(menu.public_scores, devices.planner.prior, policy.ladder)[0] > 0
        rounded += worth and not found.epsilon_spent.any()
    assert rounded


def test_one_menu_s_visits_are_a_block_of_auctions() -> None:
    """The same plan and words, by the blocks of `tacit simulate` and the lab."""
    menu, planner, policy = whole_town(), Planner(Spread(1.0)), BudgetPolicy(2, (2.0,), 0.0, DAY)
    choice, _ = prepare_choice(menu, planner, policy, policy.wallet(), 0)
    plan, count = choice.plan, 200
    assert plan.top is not None
    rates = np.random.default_rng(2).choice([0.01, 0.04, 0.05, 0.2], size=(count, len(menu)))
    public = PublicCandidates(
        np.arange(count + 1) * len(menu), np.tile(menu.bid_micros, count), Rates(np.tile(menu.rates, count))
    )
    arm = Arm(TopChoiceRule(plan.epsilon_spent, kept=plan.kept, top=plan.top))
    source = Simulation("blocks")
    offers, chosen = choose_block(AuctionBlock(public, Rates(rates.ravel())), arm, source.words)
    ours = PrivateChoice(menu, plan).choose(rates, Simulation("blocks").words)
    assert chosen.tolist() == ours.tolist()
    assert offers.price_micros.tolist() == np.tile(menu.price_micros, count).tolist()
    assert len(set(chosen.tolist())) > 1


def test_the_two_ends_read_nothing_and_everything() -> None:
    menus = [whole_town(), menu_of(node("New"), [7], [5], [0.1])]
    places = [here(place, ROOT) for place in PLACES]
    rates = np.stack([HistoryRates(ClickHistory(ALL_LEVELS))(menus[0], at) for at in places])
    visits = Visits(np.array([0, 0, 0, 0, 1]), np.arange(5), np.zeros(5, np.int64))
    rates = np.concatenate([rates, np.full((1, 3), 0.9)])
    public, stored = all_at_once(menus, visits, rates, PublicDevices(), [])
    assert (public.rank.tolist(), public.epsilon_spent.tolist()) == ([0] * 5, [0.0] * 5)
    assert public.impressions.campaign.tolist() == [1, 1, 1, 1, 7]
    assert public.impressions.auction is not None
    assert public.impressions.auction.tolist() == [menus[0].name] * 4 + ["New"]
    exact, none = all_at_once(menus, visits, rates, ExactDevices(), [])
    assert exact.rank.tolist() == [*device_scores(menus[0], rates[:4]).argmax(axis=1).tolist(), 0]
    assert exact.epsilon_spent.tolist() == [np.inf] * 4 + [0.0], "with one ad there is nothing to tell"
    assert stored == none == []


def test_refusals_come_before_anything_is_stored_or_drawn() -> None:
    menus, policy = [whole_town()], BudgetPolicy(2, (1.0,), 0.0, DAY)
    devices = PlannedDevices(Planner(Spread(1.0)), policy, policy.wallets(2))
    visits, rates = Visits(np.zeros(2, np.int64), np.arange(2), np.zeros(2, np.int64)), np.full((2, 3), 0.1)
    looser = PlannedDevices(devices.planner, policy, BudgetPolicy(9, (1.0,), 0.0, DAY).wallets(2))
    first = price_menu(node("Old"), [1], [5], [0.1], Rules(FirstPrice()))
    beyond = Visits(np.array([0, 1]), np.arange(2), np.zeros(2, np.int64))
    for arguments, said in (
        ((menus, visits, rates[:, :2], devices), r"expected rates of shape \(2, 3\)"),
        ((menus, beyond, rates, devices), r"expected visits to menus in 0\.\.0, got another"),
        (([*menus, first], visits, rates, devices), "expected one price rule for all menus"),
        ((menus, visits, rates, looser), "expected a wallet of total <= 2"),
    ):
        refused: Any = arguments
        with pytest.raises(BadInput, match=said):
            all_at_once(refused[0], refused[1], refused[2], refused[3], [])
    with pytest.raises(EntropyMisuse, match="got a simulation"):
        choose_for_devices(menus, visits, rates, devices, Simulation(1), store=lambda _: pytest.fail("stored"))
    with pytest.raises(BadInput, match="expected now as a whole number for each visit"):
        Visits(visits.menu, visits.device, np.zeros(1, np.int64))


def test_wallets_refuse_what_a_wallet_does() -> None:
    policy = BudgetPolicy(2, (0.5, 1.5), 0.0, DAY)
    none, both = policy.wallets(3), np.arange(2)
    assert none.wallet(0) == policy.wallet()
    later = none.spend(both, np.array([3, 1]), np.array([0, 86_400]))  # in halves
    assert [later.wallet(each).spent for each in range(3)] == [1.5, 0.5, 0]
    assert [later.wallet(each).in_window for each in range(3)] == [0, 1, None]
    assert later.left(np.arange(3), np.array([5, 2 * 86_400, 0])).tolist() == [1, 4, 4]
    with pytest.raises(BudgetExceeded, match="wallet of device 0"):
        later.spend(both, np.array([2, 2]), np.array([5, 86_400]))
    with pytest.raises(BadInput, match="got an earlier second"):
        later.spend(both, np.array([0, 0]), np.array([5, 5]))
    for amount in (4, -1):
        with pytest.raises(BadInput, match=r"expected epsilons in 0\.\.1\.5"):
            none.spend(both, np.array([0, amount]), np.zeros(2, np.int64))
    with pytest.raises(BadInput, match="each device once in a turn"):
        none.spend(np.zeros(2, np.int64), np.array([1, 1]), np.zeros(2, np.int64))
    finer, stricter = BudgetPolicy(2, (0.3,), 0.0, DAY), BudgetPolicy(2, (0.25,), 0.0, DAY).wallets(1)
    with pytest.raises(BadInput, match="every step of the ladder is whole"):
        finer.spend_by_turns(np.ones((1, 1)), stricter, np.zeros(1, np.int64), np.zeros(1, np.int64))


@given(st.lists(st.floats(0, 3), min_size=8, max_size=8), st.sampled_from([0.0, 0.5]))
def test_a_policy_spends_period_by_period_as_its_wallets_do(gains: list[float], threshold: float) -> None:
    """Periods of three: a loop over `epsilon` with what is left, and NaN beyond the last whole one."""
    policy = BudgetPolicy(2.5, (1.0, 2.0), threshold, DAY)
    forecasts = np.stack([gains, 1.5 * np.array(gains)], axis=1)
    spent = policy.spend(forecasts, 3)
    for period in range(2):
        left = 2.5
        for row in range(3 * period, 3 * period + 3):
            assert spent[row] == policy.epsilon(forecasts[row], left)
            left -= spent[row]
    assert np.isnan(spent[6:]).all()
