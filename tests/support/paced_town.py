"""An ad server's stores, pacer and token counters with devices that do their worst: they take every token they
can get, keep it as long as they can, and report whatever costs one campaign most.

    town = PacedTown(folder / "ads.sqlite")
    town.open()
    town.take(worker=0, part=1.0)
    town.report(victim=2, part=0.5)
    town.check()

No token is really signed, and no report sealed: what a counter lets through counts as signed, and charges go
straight to the store. Everything that decides about money is the real thing.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.server.party import EpochTimes
from tacit.bill.server.store import Campaign, GrantedTokens
from tacit.bill.server.token_counter import ReservedTokens, TokenStore
from tacit.deliver.campaigns.campaign import DAY_SECONDS, AdCampaign, BidEvent, ContextBid
from tacit.deliver.campaigns.store import MACHINE, Advertiser, Author
from tacit.deliver.server.pacing import PacingSettings
from tacit.errors import BillRefused
from tacit.schema.contexts.hierarchy import Node
from tacit.services.ads.pacer import Pacer
from tacit.store import token_limits
from tacit.store.billing_ads import SqlAdStore
from tacit.store.campaigns import SqlCampaignStore
from tacit.store.pacing import SqlPacingStore
from tests.support.billing_worlds import (
    a_menu,
    a_node,
    a_stored_epoch,
    charged,
    countersigned,
    redeem,
    redeemed,
)

OPEN_SECONDS, REPORT_SECONDS, LATE_SECONDS = 100, 150, 50
BUDGETS: dict[int, int | None] = {1: 3_000, 2: 4_700, 3: 6_400, 4: 12_000, 5: None}
DAILY = {5: 2_500}  # whose money is counted by day
SETTINGS = PacingSettings(first_tokens=40, late_seconds=LATE_SECONDS, even=False)
PLACES = ("Lisbon", "Porto", "Braga")
LAST_DAY_SECONDS = 40 * DAY_SECONDS - 1_000  # a day ends soon after

MakePacer = Callable[..., Pacer]
MakeCounter = Callable[[TokenStore], ReservedTokens]


class PacedTown:
    """Money, menus and tokens; `signed` and `reported` are the truth about tokens, by menu."""

    def __init__(
        self,
        where: Path | str,
        *,
        pacer: MakePacer = Pacer,
        counter: MakeCounter = ReservedTokens,
        seed: int = 0,
        workers: int = 2,
    ) -> None:
        self.source, self.now = random.Random(seed), LAST_DAY_SECONDS
        self.ads = SqlAdStore.open(where)
        self.store = SqlPacingStore(self.ads.database)
        self._make_counter = counter
        self.pacer = pacer(self.store, SETTINGS, lambda: self.now, skew_seconds=5)
        self.counters = [counter(self.store) for _ in range(workers)]
        self.menus: dict[bytes, PricedMenu] = {}
        self.times: dict[int, EpochTimes] = {}
        self.signed: Counter[bytes] = Counter()
        self.reported: Counter[bytes] = Counter()
        self.day_spent: dict[tuple[int, int], int] = defaultdict(int)
        self.retired: set[int] = set()
        self._names = itertools.count()
        self._add_campaigns()
        self.most = {number: self._share_over(budget) for number, budget in BUDGETS.items() if budget}

    def _share_over(self, budget: int) -> int:
        return budget + int(SETTINGS.share * budget)

    def _add_campaigns(self) -> None:
        self.ads.put_campaigns([Campaign(number, "town", BUDGETS[number]) for number in BUDGETS if number != 5])
        sold, author = SqlCampaignStore(self.ads.database), Author(MACHINE, 0)
        sold.put_advertiser(Advertiser("town"), author)
        for number, daily in DAILY.items():
            bids = (ContextBid(10),)
            campaign = AdCampaign(number, "town", "by day", BidEvent.IMPRESSION, bids, daily_micros=daily)
            sold.add_campaign(campaign, author)

    # What the ad server does.

    def _ask(
        self, epoch: int
    ) -> Callable[[Mapping[int, int], Mapping[Node, frozenset[int]]], list[PricedMenu]]:
        priced = {
            name: {number: self.source.randint(1, 9) for number in self.source.sample(list(BUDGETS), 3)}
            for name in PLACES
        }

        def ask(left: Mapping[int, int], without: Mapping[Node, frozenset[int]]) -> list[PricedMenu]:
            menus = []
            for name, prices in priced.items():
                out = without.get(a_node(name), frozenset())
                stay = {
                    who: price
                    for who, price in sorted(prices.items(), key=lambda each: -each[1])
                    if who not in out and left.get(who, price) >= price
                }
                if stay:
                    menu = a_menu(name, epoch=epoch, prices=list(stay.values()), campaigns=list(stay))
                    menus += [menu, menu.public_lane()]
            return menus

        return ask

    def open(self, *, ahead: int = 0, keeps: bool = True, publishes: bool = True) -> bool:
        """Open an epoch; it may end before it is kept, or before it is published. Whether it was kept."""
        opens = self.now + ahead
        times = EpochTimes(opens, opens + OPEN_SECONDS, opens + OPEN_SECONDS + REPORT_SECONDS)
        epoch = (self.ads.last_epoch() or 0) + 1
        plan = self.pacer.plan(times, self._ask(epoch))
        if not keeps or not plan.menus:
            return False
        stored = a_stored_epoch(*plan.menus, times=times)
        self.ads.keep_epoch(epoch, stored, plan.limits)
        if publishes:
            self.ads.publish_epoch(epoch, countersigned(stored.directory))
        self.times[epoch] = times
        self.menus |= {menu.menu_id: menu for menu in plan.menus}
        return True

    def open_twice(self) -> None:
        """Two processes count the same money; only one of them may spend it."""
        times = EpochTimes(self.now, self.now + OPEN_SECONDS, self.now + OPEN_SECONDS + REPORT_SECONDS)
        epoch = (self.ads.last_epoch() or 0) + 1
        plans = [self.pacer.plan(times, self._ask(number)) for number in (epoch, epoch + 1)]
        for number, plan in zip((epoch, epoch + 1), plans, strict=True):
            if plan.menus:
                try:
                    self.ads.keep_epoch(number, a_stored_epoch(*plan.menus, times=times), plan.limits)
                except BillRefused:
                    assert number == epoch + 1, "the first found what it had counted on"
                else:
                    self.times[number] = times
                    self.menus |= {menu.menu_id: menu for menu in plan.menus}

    def settle(self) -> None:
        self.pacer.settle()
        over = {epoch for epoch, each in self.times.items() if each.expires + LATE_SECONDS <= self.now}
        self.retired |= over

    def restart(self, worker: int) -> None:
        """A process ends, and whatever it had in memory with it."""
        self.counters[worker].end()
        self.counters[worker] = self._make_counter(self.store)

    # What devices do.

    def take(self, worker: int, part: float) -> None:
        """Ask one process for tokens of every menu there ever was, until it refuses or by chance."""
        for menu_id in self.menus:
            for count in (16, 4, 1):
                while self.source.random() < part and self.counters[worker].take(menu_id, count):
                    self.signed[menu_id] += count

    def report(self, victim: int, part: float) -> None:
        """Report a part of all tokens for one campaign, or another where it is not on the menu."""
        for menu_id, menu in self.menus.items():
            count = int(part * (self.signed[menu_id] - self.reported[menu_id]))
            if not count or menu.epoch in self.retired:
                continue
            on_menu = [entry.campaign for entry in menu.entries]
            index = on_menu.index(victim) + 1 if victim in on_menu else self.source.randint(0, len(on_menu))
            reports = [charged(menu, next(self._names), index) for _ in range(count)]
            redeem(self.ads, redeemed(menu, reports, next(self._names)))
            self.reported[menu_id] += count
            if index:
                entry = menu.entries[index - 1]
                day = self.times[menu.epoch].opens // DAY_SECONDS
                self.day_spent[entry.campaign, day] += count * entry.price_micros

    def set_budget(self, number: int, budget: int) -> None:
        """What it may be over follows; what is out already stays out, where it is more."""
        before = self.pacer.report(self.now)
        money = next(each.money for each in before.campaigns if each.campaign.campaign == number)
        self.ads.put_campaigns([Campaign(number, "town", budget)])
        self.most[number] = max(self._share_over(budget), money.spent_micros + money.out_micros)

    # What must hold.

    def spent(self) -> dict[int, int]:
        held = self.ads.held_micros()
        return {
            each.campaign: each.charged_micros + held.get(each.campaign, 0) for each in self.ads.campaigns()
        }

    def over(self) -> int:
        """By how much the worst campaign or day is over what it may cost, in micros; below 0: none is."""
        spent = self.spent()
        totals = [spent[number] - most for number, most in self.most.items()]
        days = [
            amount - self._share_over(DAILY[number])
            for (number, _), amount in self.day_spent.items()
            if number in DAILY
        ]
        return max(totals + days)

    def check(self) -> None:
        """What is shown covers what can still come, and keeps to the share."""
        report, truth = self.pacer.report(self.now), Counter[int]()
        for menu_id, menu in self.menus.items():
            if menu.epoch not in self.retired:
                for entry in menu.entries:
                    left = self.signed[menu_id] - self.reported[menu_id]
                    truth[entry.campaign] += entry.price_micros * left
        spent = self.spent()
        for each in report.campaigns:
            number, money = each.campaign.campaign, each.money
            assert money.spent_micros == spent[number]
            assert money.out_micros >= truth[number], "less is shown than can come"
            if number in self.most:
                assert money.spent_micros + money.out_micros <= self.most[number]
            if number in DAILY:
                today = self.day_spent[number, self.now // DAY_SECONDS]
                assert money.day_spent_micros == today
                assert today + money.day_out_micros <= self._share_over(DAILY[number])
        assert self.over() <= 0

    def step(self) -> None:
        """Something happens, by chance."""
        source = self.source
        what = source.choice(["open", "open", "ahead", "twice", "crash", "take", "take", "take", "report",
                              "report", "restart", "settle", "jump", "jump", "budget"])  # fmt: skip
        if what == "open":
            self.open()
        elif what == "ahead":
            self.open(ahead=source.randint(1, OPEN_SECONDS))
        elif what == "twice":
            self.open_twice()
        elif what == "crash":
            self.open(keeps=source.random() < 0.5, publishes=False)
        elif what == "take":
            self.take(source.randrange(len(self.counters)), source.choice([0.5, 0.9, 1.0]))
        elif what == "report":
            self.report(source.choice([1, 2, 3, 5]), source.random())
        elif what == "restart":
            self.restart(source.randrange(len(self.counters)))
        elif what == "settle":
            self.settle()
        elif what == "jump":
            self.now += source.choice([-30, 5, 40, 120, 300])
        else:
            self.set_budget(source.choice([1, 2, 3]), source.randint(1_000, 9_000))

    def spend_all(self, victim: int) -> None:
        """Take and report everything that can be had."""
        for worker in range(len(self.counters)):
            self.take(worker, 1.0)
        self.report(victim, 1.0)

    def end(self) -> None:
        for each in self.counters:
            each.end()
        self.ads.close()


class ForgetfulPacer(Pacer):
    """Forgets what is out."""

    def _money(self, *given):  # type: ignore[no-untyped-def]
        found = super()._money(*given)
        return {number: replace(each, out_micros=0, day_out_micros=0) for number, each in found.items()}


class HopefulPacer(Pacer):
    """Counts no tokens that were set aside and not reported."""

    def _close_over(self, now: int):  # type: ignore[no-untyped-def]
        epochs = super()._close_over(now)
        for epoch in epochs.values():
            if epoch.closes <= now:
                self._store.retire(epoch.epoch)
        return epochs


class _NotWritten(Exception):
    pass


class UnwrittenTokens:
    """Sets tokens aside in memory alone: what another process signed, or one that ended, is forgotten."""

    def __init__(self, store: TokenStore) -> None:
        assert isinstance(store, SqlPacingStore)
        self._database, self._given = store._database, Counter[bytes]()

    def reserve_tokens(self, wanted: Mapping[bytes, int]) -> dict[bytes, GrantedTokens]:
        try:
            with self._database.writing() as connection:
                found = token_limits.reserve(connection, wanted)
                raise _NotWritten
        except _NotWritten:
            pass
        granted = {}
        for menu_id, each in found.items():
            room = each.given + each.room - self._given[menu_id]
            given = min(each.given, room) if wanted[menu_id] <= room else 0
            self._given[menu_id] += given
            granted[menu_id] = GrantedTokens(given, room - given)
        return granted


def forgetful_counter(store: TokenStore) -> ReservedTokens:
    return ReservedTokens(UnwrittenTokens(store))
