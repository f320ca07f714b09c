"""The device as a party of billing: it discloses little, chooses privately, and reports each impression once.

    settings = DeviceSettings(hierarchy, DisclosureLevel((1,)), consent=True, limits=DeviceLimits(local=6))
    device = AdDevice(settings, keys, SqlDeviceJournal.open("ads.sqlite"), channel, Entropy())
    device.recover(now)                                  # after every start
    ad = device.show((place,), rates, now, render=draw)  # a `ShownAd`: which, at which price and epsilon
    device.send_reports(now)                             # now and then, until all are taken
    device.settle(now)                                   # and when batches have left
    device.forget(now)                                   # once a day, say; `erase` when the person asks for it

`rates` are the device's own (`HistoryRates`, `ModelRates`), and are asked only where the person agreed and the
account can pay. A device without a disk has a `MemoryJournal`, and forgets with its process. One thread at a
time may use a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tacit import expect
from tacit.bill.protocol.batches import CohortStatement
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.reports import ImpressionReport
from tacit.deliver.device.account import MICRO, DeviceAccount, Settlement
from tacit.deliver.device.choice import DeviceRates
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.journal import DeviceJournal, ImpressionRecord, ImpressionState, Showing
from tacit.deliver.device.menu_book import MenuBook, OpenMenu
from tacit.deliver.device.offers import OfferClient
from tacit.deliver.device.outcomes import RecoveredDevice, SentReports, SettledReports, ShownAd, shown_ad
from tacit.deliver.device.packs import PackShelf, barred_campaigns, showing_of
from tacit.deliver.device.parties import AdChannel, PartyKeys, verdict_of
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.device.shown_log import RoundFamily, ShownEvent, ShownLog, forget_done
from tacit.deliver.protocol.packs import MenuPack
from tacit.display import brief
from tacit.errors import BadInput, BillError, BillRefused, EntropyMisuse
from tacit.privacy.randomness import Source
from tacit.schema.contexts.hierarchy import Node

REPORTED = (ImpressionState.SHOWN, ImpressionState.ACKED, ImpressionState.SETTLED)


class AdDevice:
    """One device. Its journal is its memory: a new `AdDevice` on the same journal goes on where it was.

    Guarantee:  the ad server learns of each request the generalised context and the lane; of each impression
                which entry of which menu was shown, which is pure LDP with the epsilon that the account had
                reserved, given what was disclosed; all of a window together are what
                `settings.limits.local_statement()` says, against proxy and ad server together, and
                `central_statement()`, against the ad server alone. Without consent, and where the account
                cannot pay, nothing private is read: epsilon 0. Each impression that was shown is reported at
                most once, with the choice that was shown; a report that was made is sent until it is taken or
                has expired.
    Neighbours: all private data of one device in a window, replaced.
    Assumes:    the source is the cryptographic one; the journal keeps what it says it keeps, and no old copy is
                put back; what `DeviceAccount`, `PrivateChoice` and `protocol.tokens` of the bill assume. That
                and when a device asks and reports is not covered, nor are clicks; that it takes the public lane
                tells that its person has not agreed or that its account is spent, not their taste.
    Source:     Laro et al. 2023, algorithm 2 and appendices A and B; `PrivateChoice`; RFC 9474.
    """

    def __init__(
        self,
        settings: DeviceSettings,
        keys: PartyKeys,
        journal: DeviceJournal,
        channel: AdChannel,
        source: Source,
        *,
        book: MenuBook | None = None,
        packs: PackShelf | None = None,
        choosing: Source | None = None,
        log: ShownLog | None = None,
        simulated: bool = False,
    ) -> None:
        """`packs` are the menus' ads, and with them caps and categories; without, none are kept to.
        `choosing` draws choices where `source`, which draws secrets and blindings, is another: a simulation
        that is to be repeated, whose choices must not hang on the parties' keys. `log` keeps what `show`
        showed, what was clicked and what led to a conversion, where the person lets it count."""
        expect.kind("settings", settings, DeviceSettings)
        expect.kind("keys", keys, PartyKeys)
        expect.having("journal", journal, "commit", "a DeviceJournal")
        expect.having("channel", channel, "offer", "an AdChannel")
        expect.having("source", source, "fit_for_release", "an Entropy")
        choosing = source if choosing is None else choosing
        expect.having("choosing", choosing, "fit_for_release", "an Entropy")
        if not simulated and not (source.fit_for_release and choosing.fit_for_release):
            raise EntropyMisuse(
                "expected the cryptographic stream for a device, got a simulation; say simulated=True to study"
            )
        if book is not None and book.keys != keys:
            raise BadInput("expected a book of menus that was checked by the device's own keys, got another")
        self.settings, self.journal = settings, journal
        self._channel, self._choosing, self._packs = channel, choosing, packs
        self.log = log if settings.statistics.families else None
        if log is not None:
            forget_done(log, settings.statistics.families)  # kept while its person agreed
        self._book = MenuBook(keys) if book is None else book
        self._offers = OfferClient(self._book, journal, channel, source, settings.skew_seconds)
        self._account: DeviceAccount | None = None
        self._in_flight: dict[bytes, ImpressionRecord] = {}  # choices that this process has handed out

    def __repr__(self) -> str:
        return brief(self, consent=self.settings.consent, journal=self.journal)

    @property
    def account(self) -> DeviceAccount:
        """What was spent, as the journal has it."""
        if self._account is None:
            kept, limits = self.journal.account(), self.settings.limits
            self._account = DeviceAccount(limits) if kept is None else DeviceAccount.from_bytes(kept, limits)
        return self._account

    def show(
        self,
        context: Sequence[Any],
        rates: DeviceRates,
        now: int,
        render: Callable[[ShownAd], None] = lambda _: None,
    ) -> ShownAd:
        """One impression at this exact context: chosen, shown by `render`, and ready to be reported.

        Where `render` raises, nothing is charged, and the next choice at this menu is the same one.
        """
        ad = self.choose(context, rates, now)
        try:
            render(ad)
        except BaseException:
            self.put_back(ad)
            raise
        self.confirm_shown(ad)
        if self.log is not None and ad.campaign is not None:
            self.log.note_shown(ShownEvent(ad.nonce, tuple(context), ad.campaign, now))
        return ad

    def note_click(self, ad: ShownAd) -> bool:
        """It was clicked: only this device gets to know, and counts it where it is asked; whether it will."""
        return self.log is not None and self.log.note_click(ad.nonce)

    def note_conversion(self, campaign: int, now: int) -> bool:
        """Its person bought, say, what this campaign is for: the latest of its impressions here that is within
        the look-back led to that. Only this device gets to know, and counts it where it is asked; whether it
        will."""
        now, settings = expect.integer("now", now), self.settings
        if self.log is None or RoundFamily.CONVERSIONS not in settings.statistics.families:
            return False
        return self.log.note_conversion(campaign, now - settings.look_back_seconds, now)

    def check_menu(self, head: bytes, listed: bytes, context: Sequence[Any], now: int) -> bytes:
        """The id of a menu that came by another way than the proxy, as with an exchange's bid; BillRefused
        unless it is this context's own, in the directory of the epoch that this device goes by.

        It is not used: what this device asks for, and of which menu, is the same with and without it, so that
        no menu that one person alone was handed can make their requests different from everybody's. Where
        `show` gives an ad of this id (`ShownAd.menu_id`), the ads that came with it are those to show.
        """
        node = self.settings.generalise(context).disclosed
        return self._offers.check_menu(head, listed, node, expect.integer("now", now))

    def choose(self, context: Sequence[Any], rates: DeviceRates, now: int) -> ShownAd:
        """What to show at this exact context: drawn once, paid for and kept. `confirm_shown` once it was shown.

        A choice that was drawn at this menu before, and not shown, is the one. Where no token of the personal
        lane is left it is the public lane's; BillRefused(NONE_LEFT) where none of either is: come back later.
        """
        now = expect.integer("now", now)
        here = self.settings.generalise(context)
        try:
            return self._choose(here, rates, now)
        except BillRefused as refused:
            # Where no token is left, the next epoch may be open already; else the public lane has its own.
            if refused.reason not in (BillVerdict.STALE_EPOCH, BillVerdict.NONE_LEFT):
                raise
            if not self._offers.moved_on(now) and refused.reason == BillVerdict.STALE_EPOCH:
                raise
        return self._choose(here, rates, now)

    def _choose(self, here: DeviceContext, rates: DeviceRates, now: int) -> ShownAd:
        head = self._offers.current_head(now)
        menu, tokens = self._menu_at(head, here.disclosed, now)
        record = self._left_over(tokens)
        if record is None:
            pack = None if self._packs is None else self._packs.pack(menu.menu.menu_id)
            token = self._offers.token(menu, tokens, self.settings.prefetch)
            epsilon = menu.epsilon_micros
            paid = self.account.reserve(epsilon, now) if epsilon else None
            index = menu.choose(rates, here, self._choosing, lambda: self._barred(pack, now))
            record = token.chosen(index, epsilon, self.settings.limits.window.index(now))
            self._commit([record], paid, showing_of(pack, menu.campaign(index), now))
        self._in_flight[record.nonce] = record
        return shown_ad(record, menu)

    def _barred(self, pack: MenuPack | None, now: int) -> frozenset[int]:
        """Campaigns that are worth nothing here now, as private as what they follow from."""
        if pack is None:
            return frozenset()
        return barred_campaigns(pack, self.journal.showings(now), self.settings.excluded, now)

    def _menu_at(self, head: EpochHead, node: Node, now: int) -> tuple[OpenMenu, list[ImpressionRecord]]:
        """The menu to choose from, and the tokens of it for which nothing was shown yet."""
        menu = self._offers.personal_menu(head, node) if self.settings.consent else None
        if menu is not None:
            limits, asked = self.settings.limits, menu.menu.epsilon_micros
            if asked > limits.per_choice_micros:
                raise BillError(
                    f"expected a menu that spends at most epsilon {float(limits.per_choice):g} per choice, the "
                    f"settings' per_choice, got {asked / MICRO:g} at {node}"
                )
            tokens = self._offers.unshown(menu)
            paid = self._left_over(tokens) is not None  # when it was drawn
            if paid or (
                not self._offers.ran_out(menu, tokens)
                and self._is_hidden(menu)
                and self.account.affords(menu.epsilon_micros, now)
            ):
                return menu, tokens
        menu = self._offers.menu(head, node, Lane.PUBLIC)
        return menu, self._offers.unshown(menu)

    def _left_over(self, tokens: Sequence[ImpressionRecord]) -> ImpressionRecord | None:
        """A choice that was drawn and that nobody is showing."""
        drawn = (each for each in tokens if each.state is ImpressionState.CHOSEN)
        return next((each for each in drawn if each.nonce not in self._in_flight), None)

    def _is_hidden(self, menu: OpenMenu) -> bool:
        """Whether signed sizes say that a report from this menu is among enough others, or nothing is known."""
        least = self.settings.smallest_cohort
        if least is None:
            return True
        known = self._offers.past_cohort(menu)
        return known is None or known >= least

    def confirm_shown(self, ad: ShownAd) -> None:
        """It was shown: make its report, and keep it, in one commit. Again: nothing changes."""
        record = self._in_flight.get(ad.nonce) or self.journal.impression(ad.nonce)
        if record is None or record.state in (ImpressionState.NEW, ImpressionState.ISSUED):
            raise BadInput("expected an ad that this device has chosen, got another")
        if record.state is ImpressionState.CLOSED:
            raise BillError("expected a choice that may still be shown, got one that was closed")
        if record.state is ImpressionState.CHOSEN:
            menu = self._offers.kept_menu(record.menu_id)
            if menu is None:
                raise BillError("expected a choice from a menu of parties that this app knows, got another")
            assert record.index is not None, "it is chosen"
            report = ImpressionReport.make(
                record.menu_id, record.secret, record.token, record.index, menu.head.sealing_key
            )
            self._commit([record.shown(report.to_bytes())])
        self._in_flight.pop(ad.nonce, None)

    def put_back(self, ad: ShownAd) -> None:
        """It was not shown: the next choice at its menu is this one."""
        self._in_flight.pop(ad.nonce, None)

    def prefetch(self, context: Sequence[Any], now: int) -> int:
        """Fetch tokens for a context before they are needed; how many of its menu are there now."""
        now = expect.integer("now", now)
        head = self._offers.current_head(now)
        menu, _ = self._menu_at(head, self.settings.generalise(context).disclosed, now)
        return len(self._offers.tokens(menu, self.settings.prefetch))

    def send_reports(self, now: int) -> SentReports:
        """Send what was shown, byte for byte as it was made, until the proxy has it.

        What is refused is tried again until its epoch has expired by this device's clock too, and is closed
        then: nothing is charged. A proxy whose clock is wrong takes it once that is set right.
        """
        now = expect.integer("now", now)
        records = self.waiting_reports()
        verdicts: list[BillVerdict] = []
        with suppress(OSError):  # nobody answers: the rest waits
            for record in records:
                verdicts.append(verdict_of(self._channel.report, record.report))
        return self.enter_verdicts(records, verdicts, now)

    def waiting_reports(self) -> list[ImpressionRecord]:
        """What was shown and is not known to be taken."""
        return list(self.journal.impressions((ImpressionState.SHOWN,)))

    def enter_verdicts(
        self, records: Sequence[ImpressionRecord], verdicts: Sequence[BillVerdict], now: int
    ) -> SentReports:
        """Keep what the proxy said of the first of these reports."""
        done = []
        for record, verdict in zip(records, verdicts, strict=False):
            if verdict is BillVerdict.ACCEPTED:
                done.append(record.acked())
            elif now >= record.expires + (0 if verdict is BillVerdict.EXPIRED else self.settings.skew_seconds):
                with suppress(OSError):
                    # It may have been taken in time, and only the answer was lost.
                    taken = verdict_of(self._channel.statement, record.nonce) is BillVerdict.ACCEPTED
                    done.append(record.acked() if taken else record.closed(verdict))
        self._commit(done)
        acked = sum(each.state is ImpressionState.ACKED for each in done)
        refused = tuple(verdict for verdict in verdicts if verdict is not BillVerdict.ACCEPTED)
        return SentReports(acked, len(records) - len(done), refused)

    def settle(self, now: int) -> SettledReports:
        """Ask among how many reports each of this device's left; what stays unknown counts in full for ever."""
        now = expect.integer("now", now)
        records = self.journal.impressions((ImpressionState.ACKED,))
        found = {record.nonce: self._offers.statement(record) for record in records}
        settled, sizes = [], []
        in_full: dict[bytes, int] = {}  # by menu
        for record in records:
            statement = found[record.nonce]
            if statement is None:
                if now >= record.expires + self.settings.settle_seconds:
                    settled.append(record.settled(None))
                continue
            settled.append(record.settled(statement.reports))
            if record.menu_id not in in_full:
                in_full[record.menu_id] = self._counted_in_full(record.menu_id, found)
            cohort = statement.reports - in_full[record.menu_id]
            if statement.reports >= record.smallest_cohort and cohort >= 1:
                sizes.append(Settlement(record.epsilon_micros, record.window, cohort, statement.batch_id))
        before = self.account
        after = before.settle(sizes)
        self._commit(settled, None if after is before else after)
        return SettledReports(len(sizes), len(settled) - len(sizes), len(records) - len(settled))

    def _counted_in_full(self, menu_id: bytes, found: Mapping[bytes, CohortStatement | None]) -> int:
        """Reports of this device that may be in a batch of this menu, but are not known to: as they count in
        full, they hide nothing of the others."""
        own = self.journal.impressions(REPORTED, menu_id)
        return sum(each.cohort is None and found.get(each.nonce) is None for each in own)

    def recover(self, now: int) -> RecoveredDevice:
        """Go on after a restart, from every state; what nobody answers waits.

        What was blinded is sent again as it was, what was drawn is to be shown and never drawn again, reports
        are sent again byte for byte.
        """
        now = expect.integer("now", now)
        self._account = None
        pending, closed, unsigned = [], [], {}
        for record in self.journal.impressions((ImpressionState.NEW, ImpressionState.CHOSEN)):
            menu = self._offers.kept_menu(record.menu_id)
            is_open = menu is not None and now < menu.head.closes + self.settings.skew_seconds
            if record.state is ImpressionState.NEW:
                if menu is not None and is_open:
                    unsigned[record.menu_id] = menu
            elif menu is None or not is_open or (menu.menu.lane is Lane.PERSONAL and not self.settings.consent):
                closed.append(record.closed())
            elif record.nonce not in self._in_flight:
                pending.append(shown_ad(record, menu))
        self._commit(closed)
        for menu in unsigned.values():
            with suppress(OSError, BillRefused):  # asked again when they are needed
                self._offers.finish_tokens(menu)
        return RecoveredDevice(tuple(pending), len(closed), self.send_reports(now), self.settle(now))

    def forget(self, now: int) -> int:
        """Delete records, menus and heads that nothing needs any more; how many records that were."""
        before = expect.integer("now", now) - self.settings.settle_seconds - self.settings.keep_seconds
        self._book.forget(before)
        self.journal.forget_showings(now)
        if self.log is not None:
            oldest = now - self.settings.look_back_seconds - self.settings.uncounted_seconds
            forget_done(self.log, self.settings.statistics.families, oldest)
        return self.journal.forget(before)

    def erase(self) -> int:
        """Delete all that tells of the person, as they may ask at any time; how many impressions that were.

        What was shown and not yet reported goes uncharged. What stays is the account, since privacy that was
        spent stays spent, and heads of epochs, which are public. What the caller holds is the caller's.
        """
        self._in_flight.clear()
        if self.log is not None:
            self.log.forget(self.log.events())
        return self.journal.erase()

    def _commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        if not records:
            return
        try:
            self.journal.commit(records, account, showing)
        except BaseException:
            self._account = None  # it may have been kept before it failed: read it again
            for each in records:
                self._in_flight.pop(each.nonce, None)
            raise
        self._account = account or self._account
