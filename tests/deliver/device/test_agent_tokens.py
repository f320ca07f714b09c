"""Where no token of a menu is left, a device shows what everybody is shown, or moves on, or comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.server.party import EpochTimes
from tacit.errors import BillRefused
from tests.support.billing_worlds import EPOCH, TIMES
from tests.support.device_worlds import OLD, AdTown, TownChannel, no_rates, town_menus


class FewTokens:
    """A `TokenCounter` with so many tokens of each lane's menus."""

    def __init__(self, town: AdTown, personal: int, public: int) -> None:
        self._ads, self._most = town.ads, {Lane.PERSONAL: personal, Lane.PUBLIC: public}
        self.taken: Counter[bytes] = Counter()

    def take(self, menu_id: bytes, count: int) -> bool:
        menu = self._ads.menu(menu_id)
        assert menu is not None, "one that was opened"
        if self.taken[menu_id] + count > self._most[menu.lane]:
            return False
        self.taken[menu_id] += count
        return True

    def forget(self, menus: Iterable[bytes]) -> None:
        for menu_id in menus:
            del self.taken[menu_id]

    def end(self) -> None:
        pass


@pytest.fixture
def town(tmp_path: Path) -> AdTown:
    return AdTown.open(tmp_path)


def limit(town: AdTown, personal: int, public: int) -> FewTokens:
    town.world.server._tokens = found = FewTokens(town, personal, public)
    return found


def refusal(town: AdTown, device: object) -> BillVerdict:
    with pytest.raises(BillRefused) as caught:
        device.show(OLD, no_rates, town.now)  # type: ignore[attr-defined]
    assert "\n" not in str(caught.value)
    return BillVerdict(caught.value.reason)


def test_where_fewer_are_left_than_it_wants_a_device_asks_for_one(town: AdTown) -> None:
    limit(town, personal=3, public=9)
    device = town.device(prefetch=2)
    lanes = [device.show(OLD, town.rates, town.now).epsilon_micros > 0 for _ in range(4)]
    assert lanes == [True, True, True, False], "the fourth is what everybody is shown"
    assert town.rates.asked == 3, "nothing private is read for it"
    assert device.send_reports(town.now).acked == 4
    town.bill()
    assert sum(town.charges().values()) == 4


def test_where_none_is_left_in_either_lane_it_says_so_and_asks_no_more(town: AdTown) -> None:
    counter = limit(town, personal=0, public=1)
    device = town.device(prefetch=1)
    assert device.show(OLD, no_rates, town.now).epsilon_micros == 0
    assert refusal(town, device) is BillVerdict.NONE_LEFT
    channel = town.channel
    assert isinstance(channel, TownChannel)
    asked = channel.calls["offer"]
    assert refusal(town, device) is BillVerdict.NONE_LEFT
    assert channel.calls["offer"] == asked, "menus never get more tokens"
    assert device.prefetch(OLD, town.now) == 0
    assert sum(counter.taken.values()) == 1
    assert device.send_reports(town.now).acked == 1
    assert device.recover(town.now).pending == ()


def test_what_was_fetched_before_is_used(town: AdTown) -> None:
    limit(town, personal=4, public=4)
    device, other = town.device(prefetch=4), town.device(prefetch=1)
    assert device.prefetch(OLD, town.now) == 4
    assert device.prefetch(OLD, town.now) == 4
    assert other.show(OLD, no_rates, town.now).epsilon_micros == 0
    assert all(device.show(OLD, town.rates, town.now).epsilon_micros for _ in range(4))
    assert device.show(OLD, town.rates, town.now).epsilon_micros == 0


def test_it_moves_on_to_an_epoch_that_was_opened_early(town: AdTown) -> None:
    limit(town, personal=1, public=1)
    device = town.device(prefetch=1)
    first = device.show(OLD, town.rates, town.now)
    early = EpochTimes(town.now, TIMES.closes, TIMES.expires)
    town.world.open_epoch(*town_menus(EPOCH + 1), times=early)
    second = device.show(OLD, town.rates, town.now)
    assert (first.epoch, second.epoch) == (EPOCH, EPOCH + 1)
    assert second.epsilon_micros > 0
    assert device.send_reports(town.now).acked == 2
