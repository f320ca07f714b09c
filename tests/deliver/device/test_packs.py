"""Packs on the device: what was signed; caps and exclusions within the choice's own law; twins that leak."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from fractions import Fraction
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.protocol.keys import SigningKey
from tacit.bill.protocol.menus import Lane
from tacit.deliver.device.choice import PrivateChoice, device_scores
from tacit.deliver.device.fleet import DeviceFleet
from tacit.deliver.device.journal import MemoryJournal, Showing
from tacit.deliver.device.menu_book import plan_menu
from tacit.deliver.device.packs import PackShelf, barred_campaigns
from tacit.deliver.protocol.menu import NOTHING
from tacit.deliver.protocol.packs import FrequencyCap, MenuPack, PackedCampaign, PackedCreative, read_pack
from tacit.deliver.protocol.priced_menus import candidates_of
from tacit.entropy import Simulation
from tacit.errors import BillRefused
from tacit.privacy.budget import exp_rounded_down
from tacit.store.device_journal import SqlDeviceJournal
from tests.support.billing_worlds import SERVER_KEY
from tests.support.device_cases import Law, worst_ratio
from tests.support.device_worlds import KEYS, OLD, SETTINGS, AdTown, Rates, no_rates, town_menus
from tests.support.exact_tests import assert_matches_pmf

HOUR = FrequencyCap(1, 3_600)
FAVOURITE, WHOLE = 2, 2**64
ALL_BARRED = [frozenset(each) for each in chain(*(combinations((1, 2, 3), n) for n in range(4)))]


def a_pack(menu_id: bytes, **campaigns: PackedCampaign) -> MenuPack:
    default = {number: PackedCampaign(number) for number in (1, 2, 3)}
    return MenuPack(menu_id, tuple((default | {each.number: each for each in campaigns.values()}).values()))


def a_shelf(*campaigns: PackedCampaign, key: SigningKey = SERVER_KEY) -> PackShelf:
    """Packs in which these campaigns say something of themselves."""
    said = {f"n{each.number}": each for each in campaigns}
    return PackShelf(lambda menu_id: a_pack(menu_id, **said).signed(key.sign), KEYS)


@pytest.fixture
def town(tmp_path: Path) -> AdTown:
    return AdTown.open(tmp_path)


# What caps and exclusions do to the law.


def prepared(floor: float) -> PrivateChoice:
    menu = town_menus(floor=floor)[0]
    choice = plan_menu(menu, candidates_of(menu))
    assert choice is not None
    return choice


def law_without(choice: PrivateChoice, rates: Rates, barred: Collection[int]) -> Law:
    """The law in whole words where some campaigns are worth nothing."""
    known = rates(choice.menu, None)  # type: ignore[arg-type]
    known = np.where(np.isin(choice.menu.ads, sorted(barred)), 0.0, known)
    weights = choice.plan.law.weights(device_scores(choice.menu, known))
    return {ad: Fraction(int(n), WHOLE) for ad, n in zip(choice.menu.ads, weights, strict=True) if n}


KNOWN = ((0.01, 0.09, 0.02), (0.09, 0.0, 0.001), (0.05, 0.05, 0.04), (0.0, 0.0, 0.0))
EVERYBODY = [Rates(each) for each in KNOWN]


@pytest.mark.parametrize("floor", [0.0, 0.045])
def test_whatever_is_barred_the_choice_tells_the_epsilon_of_its_menu(floor: float) -> None:
    choice = prepared(floor)
    laws = [law_without(choice, rates, barred) for rates in EVERYBODY for barred in ALL_BARRED]
    worst = worst_ratio(laws)
    assert worst is not None
    assert exp_rounded_down(Fraction(19, 10)) < worst <= exp_rounded_down(Fraction(2))


@pytest.mark.parametrize("floor", [0.0, 0.045])
def test_a_barred_favourite_is_shown_as_rarely_as_the_law_allows(floor: float) -> None:
    choice = prepared(floor)
    free = law_without(choice, EVERYBODY[0], ())
    capped = law_without(choice, EVERYBODY[0], {FAVOURITE})
    least = min(law_without(choice, each, ())[FAVOURITE] for each in EVERYBODY)
    assert free[FAVOURITE] > Fraction(1, 2)
    assert 0 < capped[FAVOURITE] <= least < free[FAVOURITE] / 5


def dropped(law: Law, barred: Collection[int]) -> Law:
    """A twin: what is barred is no candidate."""
    left = {ad: chance for ad, chance in law.items() if ad not in barred}
    return {ad: chance / sum(left.values()) for ad, chance in left.items()}


def shown_as_nothing(law: Law, barred: Collection[int]) -> Law:
    """A twin: what is barred is drawn and not shown."""
    found = {ad: chance for ad, chance in law.items() if ad not in barred}
    rest = Fraction(1) - sum(found.values(), Fraction(0))
    return {**found, NOTHING: rest} if rest else found


@pytest.mark.parametrize("twin", [dropped, shown_as_nothing])
def test_twins_that_hide_what_is_capped_tell_that_it_is(twin: Callable[[Law, Collection[int]], Law]) -> None:
    choice = prepared(0.0)
    laws = [twin(law_without(choice, EVERYBODY[0], ()), barred) for barred in ALL_BARRED[:4]]
    assert worst_ratio(laws) is None, "an outcome that is possible for one person and not for another"


# Devices.


def test_a_fleet_keeps_a_cap_of_one_as_far_as_the_law_allows(town: AdTown) -> None:
    shelf = a_shelf(PackedCampaign(FAVOURITE, (HOUR,)))
    fleet = DeviceFleet(SETTINGS, KEYS, town.channel, Simulation(5), packs=shelf, simulated=True)
    rates, again = Rates(), Counter[object]()
    for person in range(160):
        first = fleet.show(person, OLD, rates, town.now)
        assert first.lane is Lane.PERSONAL
        second = fleet.show(person, OLD, rates, town.now + 1)
        if first.campaign == FAVOURITE:
            again[second.campaign] += 1
        assert (first.epsilon_micros, second.epsilon_micros) == (2_000_000, 2_000_000)
    choice = prepared(0.0)
    assert sum(again.values()) > 80
    law = law_without(choice, rates, {FAVOURITE})
    assert_matches_pmf(again, law)
    with pytest.raises(AssertionError):
        assert_matches_pmf(again, law_without(choice, rates, ()))


def test_a_cap_is_over_when_its_seconds_are_and_what_no_longer_counts_is_forgotten(town: AdTown) -> None:
    device = town.device(SETTINGS, seed=3)
    device._packs = a_shelf(PackedCampaign(FAVOURITE, (FrequencyCap(1, 100), FrequencyCap(2, 500))))
    device.journal.commit([], None, Showing(FAVOURITE, town.now, town.now + 500))
    menu = town_menus()[0]
    pack = device._packs.pack(menu.menu_id)
    assert device._barred(pack, town.now + 99) == {FAVOURITE}
    assert device._barred(pack, town.now + 100) == frozenset()
    device.forget(town.now + 499)
    assert device.journal.showings(town.now + 499) == [Showing(FAVOURITE, town.now, town.now + 500)]
    device.forget(town.now + 500)
    assert device.journal.showings(0) == []


def test_only_what_is_capped_is_remembered_and_nothing_is_read_in_the_public_lane(town: AdTown) -> None:
    shelf = a_shelf(PackedCampaign(1, (HOUR,)), PackedCampaign(2, (HOUR,), ("IAB9-7",)))

    class Unread(MemoryJournal):
        def showings(self, now: int) -> list[Showing]:
            del now
            raise AssertionError("private data was read")

    device = town.device(SETTINGS, Unread(), consent=False, excluded=("IAB9",))
    device._packs = shelf
    shown = device.show(OLD, no_rates, town.now)
    assert shown.lane is Lane.PUBLIC
    assert [each.campaign for each in device.journal._showings] == [shown.campaign]  # type: ignore[attr-defined]
    uncapped = town.device(SETTINGS)
    uncapped._packs = a_shelf()
    uncapped.show(OLD, town.rates, town.now)
    assert uncapped.journal.showings(0) == []


def test_no_pack_no_choice_and_nothing_is_paid(town: AdTown) -> None:
    def nobody(_: bytes) -> bytes:
        raise ConnectionError

    device = town.device(SETTINGS)
    device._packs = PackShelf(nobody, KEYS)
    with pytest.raises(ConnectionError):
        device.show(OLD, town.rates, town.now)
    device._packs = a_shelf(key=SigningKey(b"x" * 32))
    with pytest.raises(BillRefused):
        device.show(OLD, town.rates, town.now)
    assert (device.account.local_micros, town.rates.asked) == (0, 0)


def test_exclusions_bar_what_is_below_them_and_caps_count_each_campaign_alone() -> None:
    pack = a_pack(
        bytes(32), a=PackedCampaign(1, (), ("IAB9-7",)), b=PackedCampaign(2, (FrequencyCap(2, 60),), ("IAB90",))
    )
    showings = [Showing(2, 10, 70), Showing(1, 10, 70)]
    assert barred_campaigns(pack, showings, ("IAB9",), 20) == {1}
    assert barred_campaigns(pack, [*showings, Showing(2, 15, 75)], (), 20) == {2}


def test_showings_are_on_disk_with_the_choice_also_in_files_of_the_version_before(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "device.sqlite"
    SqlDeviceJournal.open(path).close()
    with sqlite3.connect(path) as before:  # as version 1 left it
        before.execute("DROP TABLE device_showings")
        before.execute("PRAGMA user_version = 1")
    before.close()
    journal = SqlDeviceJournal.open(path)
    journal.commit([], None, Showing(7, 100, 160))
    journal.commit([], None, Showing(8, 120, 130))
    journal.close()
    again = SqlDeviceJournal.open(path)
    assert again.showings(129) == [Showing(7, 100, 160), Showing(8, 120, 130)]
    assert again.showings(130) == [Showing(7, 100, 160)]
    again.forget_showings(160)
    assert again.showings(0) == []


# Packs themselves.

AD = PackedCreative(4, "image/png", "Größe", "«Neu»", "https://bean.example/", 32, 16, b"\x89PNG")


def test_a_pack_comes_back_as_it_was_signed_and_no_other_does() -> None:
    pack = a_pack(bytes(range(32)), a=PackedCampaign(1, (HOUR,), ("IAB8",), (AD,)))
    sent = pack.signed(SERVER_KEY.sign)
    assert read_pack(sent, SERVER_KEY.public, pack.menu_id) == pack
    assert pack.campaign(9) == PackedCampaign(9)
    for wrong in (
        sent.replace(b"bean.example", b"been.example"),
        sent.replace(b"3600", b"3601"),
        pack.signed(SigningKey(b"x" * 32).sign),
        sent[:-1],
        b"[]",
        b"",
        json.dumps({"pack": "{}", "signature": SERVER_KEY.sign(b"tacit/pack/1", b"{}").hex()}).encode(),
        json.dumps({"pack": "{}", "signature": SERVER_KEY.sign(b"tacit/other", b"{}").hex()}).encode(),
    ):
        with pytest.raises(BillRefused):
            read_pack(wrong, SERVER_KEY.public, pack.menu_id)
    with pytest.raises(BillRefused, match="another menu"):
        read_pack(sent, SERVER_KEY.public, bytes(32))


@given(st.text(max_size=30) | st.sampled_from(["{}", "[]", '{"campaigns": [{}], "menu": "00"}', '{"menu": 1}']))
def test_what_is_signed_and_no_pack_is_refused(text: str) -> None:
    signed = json.dumps({"pack": text, "signature": SERVER_KEY.sign(b"tacit/pack/1", text.encode()).hex()})
    with pytest.raises(BillRefused):
        read_pack(signed.encode(), SERVER_KEY.public, bytes(32))
