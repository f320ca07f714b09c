"""A device between real parties: what it shows is what is charged, and it spends what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tacit.bill.protocol.batches import STATEMENT_BYTES
from tacit.bill.protocol.menus import NOTHING, Lane, context_bytes
from tacit.bill.protocol.reports import REPORT_BYTES, ImpressionReport
from tacit.bill.protocol.tokens import NONCE_BYTES
from tacit.bill.server.party import EpochTimes
from tacit.deliver.device.account import MICRO
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.choice import HistoryRates, choose_privately
from tacit.deliver.device.context import ClickHistory
from tacit.deliver.device.journal import ImpressionState, MemoryJournal
from tacit.deliver.device.menu_book import MenuBook
from tacit.deliver.device.outcomes import SentReports, SettledReports, ShownAd
from tacit.deliver.device.parties import PartyKeys
from tacit.deliver.device.rates import ModelRates
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.plans import Planner
from tacit.deliver.protocol.priced_menus import candidates_of
from tacit.entropy import Simulation
from tacit.errors import BadInput, BillError, EntropyMisuse
from tacit.privacy.units import Window
from tests.support.billing_worlds import EPOCH
from tests.support.device_cases import ALL_LEVELS, here, node, one_word
from tests.support.device_worlds import (
    KEYS,
    LIMITS,
    NEW,
    OLD,
    SETTINGS,
    AdTown,
    Rates,
    TownChannel,
    no_rates,
    reported,
    town_menus,
)

TWO = 2 * MICRO
SHOWN, ACKED, SETTLED = ImpressionState.SHOWN, ImpressionState.ACKED, ImpressionState.SETTLED


@pytest.fixture
def town(tmp_path: Path) -> AdTown:
    return AdTown.open(tmp_path)


def states(device: AdDevice) -> Counter[ImpressionState]:
    return Counter(each.state for each in device.journal.impressions(tuple(ImpressionState)))


# What is shown, reported and charged.


def test_what_is_shown_is_charged_once_at_its_price(town: AdTown) -> None:
    devices = [town.device() for _ in range(4)]
    shown = [device.show(at, town.rates, town.now) for device in devices for at in (OLD, NEW, OLD)]
    assert [device.send_reports(town.now) for device in devices] == [SentReports(3, 0)] * 4
    assert [device.send_reports(town.now) for device in devices] == [SentReports(0, 0)] * 4
    town.bill()
    charged = Counter((ad.menu_id, ad.index, ad.price_micros) for ad in shown)
    assert town.charges() == charged == reported(devices)
    assert sum(charged.values()) == 12
    for device in devices:
        assert device.settle(town.now) == SettledReports(3, 0, 0)
        assert device.settle(town.now) == SettledReports(0, 0, 0)
        assert states(device)[SETTLED] == 3
        assert device.account.local_micros == 3 * TWO


def test_an_ad_says_what_it_costs_whom(town: AdTown) -> None:
    menu = {each.lane: each for each in town_menus() if each.node == node("Old")}
    ad = town.device().show(OLD, town.rates, town.now)
    entry = menu[Lane.PERSONAL].entries[ad.index - 1]
    assert (ad.campaign, ad.price_micros) == (entry.campaign, entry.price_micros)
    assert (ad.lane, ad.epsilon_micros, ad.disclosed, ad.epoch) == (Lane.PERSONAL, TWO, node("Old"), EPOCH)
    assert ad.menu_id == menu[Lane.PERSONAL].menu_id
    assert ad.nonce.hex() not in repr(ad)


def test_the_choice_is_that_of_the_plan_word_for_word(town: AdTown) -> None:
    """Every word leads to what `choose_privately` shows, with the menu's own prior, mechanism and epsilon."""
    menu, context = candidates_of(town_menus()[0]), here("Cafe")
    policy = BudgetPolicy(20.0, (2.0,), 0.0, Window.days(1))
    history = ClickHistory(ALL_LEVELS).with_click(3, context)
    seen = set()
    for word in range(0, 2**64, 2**58):
        device = AdDevice(
            SETTINGS,
            KEYS,
            MemoryJournal(),
            town.channel,
            Simulation(1),
            choosing=one_word(word),
            simulated=True,
        )
        ad = device.show(OLD, HistoryRates(history), town.now)
        chosen = choose_privately(
            menu, context, HistoryRates(history), Planner(), policy, policy.wallet(), 0, one_word(word),
            store=lambda _: None,
        )  # fmt: skip
        assert ad.campaign == chosen.ad
        assert ad.epsilon_micros == chosen.epsilon_spent * MICRO
        seen.add(ad.campaign)
    assert len(seen) > 1, "else any rule would pass"


def test_nothing_is_a_choice_too_and_is_reported(tmp_path: Path) -> None:
    town = AdTown.open(tmp_path, town_menus(floor=0.05))
    menu = town_menus(floor=0.05)[0]
    assert menu.nothing_rank is not None
    # Where nothing reaches the floor, showing nothing is the best that the device can do.
    devices = [town.device(seed=seed) for seed in range(12)]
    shown = [device.show(OLD, Rates([0.001] * len(candidates_of(menu))), town.now) for device in devices]
    nothing = [ad for ad in shown if ad.index == NOTHING]
    assert nothing
    assert all((ad.campaign, ad.price_micros) == (None, 0) for ad in nothing)
    for device in devices:
        assert device.send_reports(town.now).acked == 1
    town.bill()
    assert town.charges()[menu.menu_id, NOTHING, 0] == len(nothing)


def test_a_report_is_always_as_long_and_its_choice_is_sealed(town: AdTown) -> None:
    device = town.device()
    shown = [device.show(at, town.rates, town.now) for at in (OLD, NEW, OLD)]
    device = town.device(journal=device.journal, consent=False)
    shown.append(device.show(NEW, no_rates, town.now))
    records = device.waiting_reports()
    assert {len(each.report) for each in records} == {REPORT_BYTES}
    sent = [ImpressionReport.from_bytes(each.report) for each in records]
    assert {(each.nonce, each.menu_id) for each in sent} == {(ad.nonce, ad.menu_id) for ad in shown}
    assert len({each.commitment for each in sent}) == 4


def test_rendering_comes_between_the_choice_and_its_report(town: AdTown) -> None:
    device = town.device()
    seen = []

    def render(ad: ShownAd) -> None:
        record = device.journal.impression(ad.nonce)
        assert record is not None
        seen.append((record.state, record.index, device.journal.account() is not None))

    ad = device.show(OLD, town.rates, town.now, render)
    assert seen == [(ImpressionState.CHOSEN, ad.index, True)]


def test_an_ad_that_could_not_be_drawn_is_shown_next_time(town: AdTown) -> None:
    device = town.device()
    tried = []

    def fail(ad: ShownAd) -> None:
        tried.append(ad)
        raise RuntimeError("no screen")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="no screen"):
            device.show(OLD, town.rates, town.now, fail)
    assert town.rates.asked == 1
    ad = device.show(OLD, no_rates, town.now)
    assert {*tried, ad} == {ad}
    assert device.account.local_micros == TWO
    assert states(device)[SHOWN] == 1


def test_two_places_on_a_page_have_two_choices(town: AdTown) -> None:
    device = town.device()
    one, other = (device.choose(OLD, town.rates, town.now) for _ in range(2))
    assert one.nonce != other.nonce
    device.confirm_shown(other)
    device.confirm_shown(other)
    assert states(device) == {SHOWN: 1, ImpressionState.CHOSEN: 1}
    device.put_back(one)
    assert device.show(OLD, no_rates, town.now) == one
    assert device.account.local_micros == 2 * TWO
    with pytest.raises(BadInput, match="expected an ad that this device has chosen, got another"):
        town.device().confirm_shown(one)


# Lanes.


def test_without_consent_nothing_private_is_read(town: AdTown) -> None:
    device = town.device(consent=False)
    for at in (OLD, NEW):
        ad = device.show(at, no_rates, town.now)
        assert (ad.lane, ad.epsilon_micros, ad.index) == (Lane.PUBLIC, 0, 1)
    assert device.account.local_micros == 0
    assert device.journal.account() is None
    device.send_reports(town.now)
    town.bill()
    assert town.charges() == reported([device])
    assert device.settle(town.now).by_size == 2


def test_an_account_that_is_spent_takes_the_public_lane(town: AdTown) -> None:
    device = town.device(limits=replace(LIMITS, local=Fraction(5), central=None))
    ads = [device.show(OLD, town.rates, town.now) for _ in range(2)]
    ads += [device.show(OLD, no_rates, town.now) for _ in range(2)]
    assert [ad.lane for ad in ads] == [Lane.PERSONAL] * 2 + [Lane.PUBLIC] * 2
    assert [ad.epsilon_micros for ad in ads] == [TWO, TWO, 0, 0]
    assert device.account.local_micros == 2 * TWO
    assert town.rates.asked == 2


def test_the_central_limit_takes_the_public_lane_until_cohorts_are_known(tmp_path: Path) -> None:
    town = AdTown.open(tmp_path, town_menus(smallest_cohort=20))
    device = town.device(limits=replace(LIMITS, central=Fraction(3)))
    assert device.show(OLD, town.rates, town.now).lane is Lane.PERSONAL
    assert device.show(OLD, no_rates, town.now).lane is Lane.PUBLIC
    town.world.report(399)
    device.send_reports(town.now)
    assert device.settle(town.now) == SettledReports(0, 0, 2)
    town.bill()
    assert device.settle(town.now) == SettledReports(2, 0, 0)
    assert device.account.local_micros == TWO
    assert device.account.central_micros < MICRO
    assert device.show(OLD, town.rates, town.now).lane is Lane.PERSONAL


def test_a_menu_by_which_nothing_can_be_won_spends_nothing(tmp_path: Path) -> None:
    menus = town_menus(epsilon="0.01")
    town = AdTown.open(tmp_path, menus)
    device = town.device()
    ad = device.show(OLD, no_rates, town.now)
    assert (ad.lane, ad.epsilon_micros, ad.index) == (Lane.PERSONAL, 0, 1)
    assert device.journal.account() is None


def test_a_small_cohort_in_the_past_takes_the_public_lane_where_the_person_says_so(tmp_path: Path) -> None:
    town = AdTown.open(tmp_path, town_menus(smallest_cohort=1))
    for _ in range(3):
        member = town.device()
        member.show(OLD, town.rates, town.now)
        member.send_reports(town.now)
    town.bill()
    careful = town.device(smallest_cohort=4)
    assert careful.show(OLD, no_rates, town.now).lane is Lane.PUBLIC
    assert careful.show(NEW, town.rates, town.now).lane is Lane.PERSONAL, "nothing is known of that one"
    assert town.device(smallest_cohort=3).show(OLD, town.rates, town.now).lane is Lane.PERSONAL
    assert town.device().show(OLD, town.rates, town.now).lane is Lane.PERSONAL
    # The next epoch has another menu: the earlier one's sizes count, for who knows that menu.
    later = EpochTimes(20_000, 40_000, 50_000)
    town.world.now = 21_000
    town.world.open_epoch(*town_menus(EPOCH + 1), times=later)
    again = town.device(journal=careful.journal, smallest_cohort=4)
    assert again.show(OLD, no_rates, town.now).lane is Lane.PUBLIC
    assert town.device(smallest_cohort=4).show(OLD, town.rates, town.now).lane is Lane.PERSONAL


def test_a_context_that_is_offered_to_all_alike_takes_the_public_lane(tmp_path: Path) -> None:
    """Where too few ask, the ad server has menus of the public lane alone."""
    town = AdTown.open(tmp_path, [menu for menu in town_menus() if menu.lane is Lane.PUBLIC])
    channel = TownChannel(town.world)
    device = town.device(channel=channel)
    ads = [device.show(OLD, no_rates, town.now) for _ in range(2)]
    assert {ad.lane for ad in ads} == {Lane.PUBLIC}
    assert channel.calls == {"head": 1, "offer": 3}, "asked for the personal one once, then menu and tokens"


def test_a_proxy_that_tells_no_sizes_takes_nobody_their_lane(town: AdTown) -> None:
    class Silent(TownChannel):
        def statements(self, epoch: int) -> Sequence[bytes]:
            raise ConnectionError(epoch)

    device = town.device(channel=Silent(town.world), smallest_cohort=100)
    assert device.show(OLD, town.rates, town.now).lane is Lane.PERSONAL, "paid for in full"


def test_an_epsilon_above_the_persons_limit_is_refused(town: AdTown) -> None:
    device = town.device(limits=replace(LIMITS, per_choice=Fraction(3, 2)))
    with pytest.raises(
        BillError, match=r"expected a menu that spends at most epsilon 1.5 per choice.*got 2 at"
    ):
        device.show(OLD, no_rates, town.now)
    assert states(device) == {}


# Tokens and epochs.


def test_tokens_are_fetched_a_few_at_once(town: AdTown) -> None:
    channel = TownChannel(town.world)
    device = town.device(channel=channel, prefetch=3)
    device.show(OLD, town.rates, town.now)
    assert channel.calls == {"head": 1, "offer": 2}, "the menu, then three tokens"
    for _ in range(2):
        device.show(OLD, town.rates, town.now)
    assert channel.calls == {"head": 1, "offer": 2}
    device.show(OLD, town.rates, town.now)
    assert channel.calls == {"head": 1, "offer": 3}
    assert device.prefetch(OLD, town.now) == 3
    assert device.prefetch(OLD, town.now) == 3
    assert channel.calls == {"head": 1, "offer": 4}, "one more was asked for"
    assert states(device)[ImpressionState.ISSUED] == 3


def test_a_new_epoch_has_new_menus_and_tokens(town: AdTown) -> None:
    device = town.device()
    first = device.show(OLD, town.rates, town.now)
    device.send_reports(town.now)
    town.world.now = 20_010
    town.world.open_epoch(*town_menus(EPOCH + 1), times=EpochTimes(20_000, 40_000, 50_000))
    second = device.show(OLD, town.rates, town.now)
    assert (first.epoch, second.epoch) == (EPOCH, EPOCH + 1)
    assert second.menu_id != first.menu_id
    device.send_reports(town.now)
    town.bill()
    assert town.charges() == reported([device])
    assert device.forget(10**7) == 2, "the other tokens of both epochs, unused"


def test_a_slow_clock_meets_the_next_epoch(town: AdTown) -> None:
    """By its clock the epoch is open; the ad server says that it is over, and the proxy has another."""
    device = town.device()
    device.show(OLD, town.rates, 19_990)
    town.world.now = 20_100
    town.world.open_epoch(*town_menus(EPOCH + 1), times=EpochTimes(20_000, 40_000, 50_000))
    ads = [device.show(OLD, town.rates, 19_995) for _ in range(3)]
    assert [ad.epoch for ad in ads] == [EPOCH, EPOCH + 1, EPOCH + 1], "the first had its token"


# Rates, sources, keys.


def test_a_model_that_runs_on_the_device_can_choose(town: AdTown) -> None:
    rows = []

    def score(row: object) -> float:
        rows.append(row)
        return 0.25

    rates = ModelRates(score, lambda ad, context: {"ad": ad, "place": context.path[0].values[0]})
    town.device().show(OLD, rates, town.now)
    assert sorted(row["ad"] for row in rows) == [1, 2, 3]  # type: ignore[index]
    assert {row["place"] for row in rows} == {"Cafe"}  # type: ignore[index]
    menu = candidates_of(town_menus(floor=0.03)[0])
    known = rates(menu, here("Cafe"))
    assert known[menu.nothing_rank] == 0
    assert np.all(np.delete(known, menu.nothing_rank or 0) == 0.25)


def test_a_simulation_is_not_for_release(town: AdTown) -> None:
    with pytest.raises(EntropyMisuse, match="expected the cryptographic stream for a device"):
        AdDevice(SETTINGS, KEYS, MemoryJournal(), town.channel, Simulation(1))


def test_a_book_of_other_keys_is_refused(town: AdTown) -> None:
    other = PartyKeys(bytes(32), bytes(32), bytes(32))
    with pytest.raises(BadInput, match="expected a book of menus that was checked by the device's own keys"):
        AdDevice(
            SETTINGS, KEYS, MemoryJournal(), town.channel, Simulation(1), book=MenuBook(other), simulated=True
        )


@dataclass
class Listening(TownChannel):
    """Remembers all that was sent."""

    def __post_init__(self) -> None:
        self.sent: list[bytes] = []

    def offer(self, sealed: bytes) -> bytes:
        self.sent.append(sealed)
        return super().offer(sealed)


def test_requests_of_all_contexts_and_lanes_are_as_long(tmp_path: Path) -> None:
    town = AdTown.open(tmp_path)
    lengths: set[tuple[int, ...]] = set()
    for at, consent in ((OLD, True), (NEW, True), (OLD, False), (NEW, False)):
        channel = Listening(town.world)
        town.device(channel=channel, consent=consent).show(at, town.rates, town.now)
        lengths.add(tuple(len(each) for each in channel.sent))
        spelled = [context_bytes(node(name)) for name in ("Old", "New")]  # long enough not to come by chance
        assert not any(each in sent for each in spelled for sent in channel.sent)
    assert len(lengths) == 1


def test_bytes_per_impression_with_a_token_that_is_there(town: AdTown) -> None:
    """At most 1.6 KB both ways: its share of a request for four tokens, its report, its statement."""
    sizes: list[int] = []

    class Counting(TownChannel):
        def offer(self, sealed: bytes) -> bytes:
            answer = super().offer(sealed)
            sizes.append(len(sealed) + len(answer))
            return answer

    device = town.device(channel=Counting(town.world), prefetch=4)
    device.show(OLD, town.rates, town.now)
    menu, tokens = sizes
    assert tokens / 4 + REPORT_BYTES + NONCE_BYTES + STATEMENT_BYTES < 1600
    assert menu < 2600, "once per context and epoch"
