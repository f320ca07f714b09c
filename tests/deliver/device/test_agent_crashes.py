"""A device that dies, and a network that loses, at every point: nothing is drawn, spent or reported twice.

The same short life is lived again and again. Each time one write of the journal or one call of the channel
fails, before or after it has had its effect; then the device starts anew on what its journal kept, with other
private rates, by which a choice that was drawn again would come out otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.reports import ImpressionReport
from tacit.deliver.device.account import MICRO, DeviceAccount
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import (
    DeviceJournal,
    ImpressionRecord,
    ImpressionState,
    KeptMenu,
    MemoryJournal,
    Showing,
)
from tacit.deliver.device.outcomes import ShownAd
from tacit.deliver.device.parties import AdChannel
from tacit.entropy import Entropy
from tacit.errors import BadInput, BillError
from tacit.store.device_journal import SqlDeviceJournal
from tests.support.device_worlds import KEYS, NEW, OLD, SETTINGS, AdTown, Rates, reported

TWO = 2 * MICRO
BEFORE, AFTER = "before", "after"
FIRST, LATER = (0.01, 0.09, 0.02), (0.09, 0.001, 0.001)
Answer = TypeVar("Answer")


class PowerCutError(Exception):
    """The device is gone at this point."""


@dataclass
class Fault:
    """One point of a life at which something fails, before or after it has had its effect."""

    at: int
    when: str
    passed: int = 0

    def meet(self, act: Callable[[], Answer], error: Exception) -> Answer:
        self.passed += 1
        if self.passed - 1 != self.at:
            return act()
        if self.when == AFTER:
            act()
        raise error


@dataclass
class FailingJournal:
    """A journal whose write at the fault's place is the last thing that the device does."""

    kept: DeviceJournal
    fault: Fault

    def account(self) -> bytes | None:
        return self.kept.account()

    def impression(self, nonce: bytes) -> ImpressionRecord | None:
        return self.kept.impression(nonce)

    def impressions(
        self, states: Collection[ImpressionState], menu_id: bytes | None = None
    ) -> Sequence[ImpressionRecord]:
        return self.kept.impressions(states, menu_id)

    def head(self, epoch: int) -> bytes | None:
        return self.kept.head(epoch)

    def menu(self, menu_id: bytes) -> KeptMenu | None:
        return self.kept.menu(menu_id)

    def last_menu_at(self, place: bytes, before: int) -> KeptMenu | None:
        return self.kept.last_menu_at(place, before)

    def commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        self.fault.meet(lambda: self.kept.commit(records, account, showing), PowerCutError())

    def showings(self, now: int) -> Sequence[Showing]:
        return self.kept.showings(now)

    def erase(self) -> int:
        return self.kept.erase()

    def forget_showings(self, now: int) -> None:
        self.fault.meet(lambda: self.kept.forget_showings(now), PowerCutError())

    def keep_head(self, epoch: int, expires: int, head: bytes) -> bytes:
        return self.fault.meet(lambda: self.kept.keep_head(epoch, expires, head), PowerCutError())

    def keep_menu(self, menu: KeptMenu) -> None:
        self.fault.meet(lambda: self.kept.keep_menu(menu), PowerCutError())

    def forget(self, expired_before: int) -> int:
        return self.fault.meet(lambda: self.kept.forget(expired_before), PowerCutError())


@dataclass
class LosingChannel:
    """A channel that loses a request (before) or its answer (after) at the fault's place."""

    way: AdChannel
    fault: Fault
    reports: list[bytes] = field(default_factory=list)  # as they left the device

    def _lose(self, act: Callable[[], Answer]) -> Answer:
        return self.fault.meet(act, ConnectionError("lost"))

    def head(self) -> bytes:
        return self._lose(self.way.head)

    def offer(self, sealed: bytes) -> bytes:
        return self._lose(lambda: self.way.offer(sealed))

    def report(self, report: bytes) -> None:
        self.reports.append(report)
        self._lose(lambda: self.way.report(report))

    def statement(self, nonce: bytes) -> bytes | None:
        return self._lose(lambda: self.way.statement(nonce))

    def statements(self, epoch: int) -> Sequence[bytes]:
        return self._lose(lambda: self.way.statements(epoch))


@dataclass
class Life:
    """What a person sees of one device, over all of its restarts."""

    town: AdTown
    journal: DeviceJournal
    shown: list[ShownAd] = field(default_factory=list)  # every time that an ad was drawn on the screen
    reports: list[bytes] = field(default_factory=list)
    asked: int = 0

    def live(self, fault: Fault, *, in_journal: bool, rates: tuple[float, ...] = FIRST) -> AdDevice:
        """Three impressions at two contexts, reports, batches and cohorts; until the fault, if it comes."""
        own = Rates(rates)
        journal = FailingJournal(self.journal, fault) if in_journal else self.journal
        channel = LosingChannel(self.town.channel, Fault(-1, BEFORE) if in_journal else fault, self.reports)
        device = self.town.device(SETTINGS, journal, channel=channel)
        try:
            device.recover(self.town.now)
            for at in (OLD, OLD, NEW):
                device.show(at, own, self.town.now, self.render)
                device.send_reports(self.town.now)
            self.town.bill()
            device.settle(self.town.now)
        except (PowerCutError, ConnectionError):
            pass
        finally:
            self.asked += own.asked
        return device

    def render(self, ad: ShownAd) -> None:
        """What is drawn on the screen was kept before, and paid for."""
        self.shown.append(ad)
        kept, account = self.journal.impression(ad.nonce), self.journal.account()
        assert kept is not None
        assert (kept.state, kept.index) == (ImpressionState.CHOSEN, ad.index)
        assert account is not None
        assert DeviceAccount.from_bytes(account, SETTINGS.limits).local_micros >= TWO

    def check(self, device: AdDevice) -> None:
        """Nothing is drawn, spent or reported twice, and nothing that was confirmed is lost."""
        records = {each.nonce: each for each in self.journal.impressions(tuple(ImpressionState))}
        by_nonce: dict[bytes, set[int]] = {}
        for ad in self.shown:
            by_nonce.setdefault(ad.nonce, set()).add(ad.index)
            assert records[ad.nonce].index == ad.index, "what was shown is what is kept"
        assert all(len(indices) == 1 for indices in by_nonce.values()), "never drawn again"
        done = [each for each in records.values() if each.state is ImpressionState.SETTLED]
        assert {each.nonce for each in done} <= set(by_nonce), "nothing is reported that was not shown"
        unshown = [each for each in records.values() if each.state is ImpressionState.CHOSEN]
        assert len(done) + len(unshown) == len(records) - len(
            [each for each in records.values() if each.state <= ImpressionState.ISSUED]
        ), "all that was shown is settled"
        # One report per impression, the same bytes each time.
        for sent in {ImpressionReport.from_bytes(each).nonce for each in self.reports}:
            assert len({each for each in self.reports if ImpressionReport.from_bytes(each).nonce == sent}) == 1
        # Epsilon: all that was drawn, and nothing else.
        personal = [each for each in records.values() if each.index is not None]
        assert (
            device.account.local_micros == sum(each.epsilon_micros for each in personal) == TWO * len(personal)
        )
        assert device.account.local_micros >= TWO * len(by_nonce)


@pytest.fixture
def town(tmp_path: Path) -> AdTown:
    return AdTown.open(tmp_path)


def begin(town: AdTown, kind: str, path: Path) -> Life:
    return Life(town, MemoryJournal() if kind == "memory" else SqlDeviceJournal.open(path))


def finish(life: Life) -> AdDevice:
    """Start anew, with other rates, and live to the end."""
    device = life.live(Fault(-1, BEFORE), in_journal=False, rates=LATER)
    for ad in device.recover(life.town.now).pending:
        life.shown.append(ad)
        device.confirm_shown(ad)
    device.send_reports(life.town.now)
    life.town.bill()
    device.settle(life.town.now)
    return device


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize(
    ("kind", "in_journal", "at_least"), [("sqlite", True, 15), ("memory", False, 9)], ids=["writes", "calls"]
)
def test_a_fault_at_each_point(
    town: AdTown, tmp_path: Path, kind: str, when: str, *, in_journal: bool, at_least: int
) -> None:
    owed: Counter[tuple[bytes, int, int]] = Counter()
    for at in count():
        life, fault = begin(town, kind, tmp_path / f"{at}.sqlite"), Fault(at, when)
        life.live(fault, in_journal=in_journal)
        met = fault.passed > at
        device = finish(life)
        life.check(device)
        owed += reported([device])
        assert town.charges() == owed
        assert len({ad.nonce for ad in life.shown}) <= 6, "three in each life"
        if not met:
            break
    assert at >= at_least, "else it is another life than it was"


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_the_same_device_goes_on_after_an_error_of_its_journal(town: AdTown, when: str) -> None:
    """A full disk, say: the process lives on, and what it remembers is what the journal kept."""
    owed: Counter[tuple[bytes, int, int]] = Counter()
    for at in count():
        life, fault = Life(town, MemoryJournal()), Fault(at, when)
        device = life.town.device(SETTINGS, FailingJournal(life.journal, fault))
        for place in (OLD, OLD, NEW):
            for _ in range(2):  # what failed is asked for once more
                try:
                    device.show(place, Rates(), town.now, life.render)
                except PowerCutError:
                    continue
                break
        fault.at = -1
        device.send_reports(town.now)
        town.bill()
        device.settle(town.now)
        life.check(device)
        owed += reported([device])
        assert town.charges() == owed
        if fault.passed <= at:
            break
    assert at >= 12


def test_what_was_blinded_is_sent_again_as_it_was(town: AdTown) -> None:
    journal = MemoryJournal()
    lost = LosingChannel(town.channel, Fault(2, AFTER))  # head, menu, and the answer with the tokens
    device = town.device(journal=journal, channel=lost)
    with pytest.raises(ConnectionError):
        device.show(OLD, Rates(), town.now)
    waiting = journal.impressions((ImpressionState.NEW,))
    assert len(waiting) == SETTINGS.prefetch
    town.device(journal=journal).recover(town.now)
    issued = journal.impressions((ImpressionState.ISSUED,))
    assert [each.nonce for each in issued] == [each.nonce for each in waiting]
    assert journal.impressions((ImpressionState.NEW,)) == []


def test_a_choice_that_was_not_shown_is_offered_once_and_shown_as_it_was(town: AdTown) -> None:
    journal = MemoryJournal()
    ad = town.device(journal=journal).choose(OLD, Rates(FIRST), town.now)
    again = town.device(journal=journal)
    found = again.recover(town.now)
    assert found.pending == (ad,)
    assert again.choose(OLD, Rates(LATER), town.now) == ad
    assert again.recover(town.now).pending == (), "it is being shown"
    again.confirm_shown(ad)
    assert again.recover(town.now).sent.acked == 1


def test_a_choice_of_an_epoch_that_is_over_is_closed(town: AdTown) -> None:
    journal = MemoryJournal()
    ad = town.device(journal=journal).choose(OLD, Rates(), town.now)
    again = town.device(journal=journal)
    found = again.recover(20_000 + SETTINGS.skew_seconds)
    assert (found.pending, found.closed) == ((), 1)
    assert again.account.local_micros == TWO, "it was drawn"
    with pytest.raises(BillError, match="expected a choice that may still be shown, got one that was closed"):
        again.confirm_shown(ad)
    assert again.send_reports(town.now).acked == 0


def test_other_parties_get_what_was_shown_and_nothing_that_was_not(town: AdTown) -> None:
    """After an update of the app with other keys: what both old parties signed is not used any more."""
    journal = MemoryJournal()
    before = town.device(journal=journal, prefetch=4)
    ad = before.choose(OLD, Rates(), town.now)
    before.show(OLD, Rates(), town.now)
    keys = replace(KEYS, proxy_signing=bytes(32))
    device = AdDevice(SETTINGS, keys, journal, town.channel, Entropy())
    found = device.recover(town.now)
    assert (found.pending, found.closed, found.sent.acked) == ((), 1, 1)
    with pytest.raises(BillError, match="got one that was closed"):
        device.confirm_shown(ad)


def test_who_takes_back_their_consent_is_shown_nothing_that_was_chosen_by_it(town: AdTown) -> None:
    journal = MemoryJournal()
    town.device(journal=journal).choose(OLD, Rates(), town.now)
    again = town.device(journal=journal, consent=False)
    assert again.recover(town.now).closed == 1
    assert again.show(OLD, Rates(), town.now).lane is Lane.PUBLIC


# The checks can fail: devices that break the rules are caught by them.


class DrawsAgain(MemoryJournal):
    """Does not keep what was chosen until it was shown."""

    def commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        kept = [each for each in records if each.state is not ImpressionState.CHOSEN]
        for each in kept:
            if each.state is ImpressionState.SHOWN:
                self._open[each.nonce] = self._open[each.nonce].chosen(each.index or 0, each.epsilon_micros, 0)
        super().commit(kept, account, showing)


class PaysNothing(MemoryJournal):
    """Keeps records and forgets the account."""

    def commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        del account
        super().commit(records, None, showing)


@pytest.mark.parametrize("broken", [DrawsAgain, PaysNothing])
def test_a_device_that_breaks_the_rules_is_caught(town: AdTown, broken: type[MemoryJournal]) -> None:
    caught = 0
    for at in range(0, 18, 6):
        life = Life(town, broken())
        try:
            life.live(Fault(at, BEFORE), in_journal=True)
            life.check(finish(life))
        except (AssertionError, BadInput, BillError):
            caught += 1
    assert caught == 3
