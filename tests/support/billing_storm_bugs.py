"""Parties of billing with one deliberate bug each, which a storm must find, and what it says when it does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import insert, select, update

from tacit.bill.protocol.batches import BATCH_ID_BYTES, Batch, BatchStatement
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.reports import ImpressionReport
from tacit.bill.proxy.party import BatchLink, BillingProxy
from tacit.bill.proxy.store import FormedBatch, NewReport, StoredBatch, StoredMenu
from tacit.bill.server.store import Invoice, RedeemedBatch, SignReceipt
from tacit.deliver.device.account import DeviceAccount
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.choice import DeviceRates
from tacit.deliver.device.journal import ImpressionRecord, ImpressionState, Showing
from tacit.deliver.device.outcomes import SentReports, ShownAd
from tacit.privacy.randomness import Source
from tacit.store import billing_accounts
from tacit.store.billing_ads import SqlAdStore, _charge
from tacit.store.billing_tables import BATCHES, CHARGES
from tests.support.billing_storm_faults import DEVICE, PROXY, SERVER
from tests.support.billing_storms import PartyKinds


class AcknowledgesEarly(BillingProxy):
    """Says that it has a report, and writes it down a moment later, with others."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._later: list[NewReport] = []

    def add(self, checked: Sequence[NewReport | BillVerdict]) -> list[BillVerdict]:
        self._later += [each for each in checked if isinstance(each, NewReport)]
        return [BillVerdict.ACCEPTED if isinstance(each, NewReport) else each for each in checked]

    def form_batches(self, now: int, source: Source) -> list[BatchStatement]:
        self._store.add_reports(self._later)
        self._later = []
        return super().form_batches(now, source)


class DeletesWhenSent(BillingProxy):
    """Lets go of a batch when it sends it, not when its receipt has come."""

    def _deliver(self, stored: StoredBatch, link: BatchLink) -> None:
        batch = Batch(BatchStatement.from_bytes(stored.statement), stored.reports)
        self._store.settle(stored.batch_id, b"sent")
        link.deliver(batch.to_bytes())


class ShufflesNothing(BillingProxy):
    """Hands reports on in the order in which they came."""

    def _form(self, menu: StoredMenu, source: Source) -> Callable[[Sequence[bytes]], FormedBatch]:
        def form(reports: Sequence[bytes]) -> FormedBatch:
            batch_id = source.bytes(BATCH_ID_BYTES)
            statement = BatchStatement.sign(self._key, batch_id, menu.leaf.menu_id, menu.epoch, reports)
            return FormedBatch(batch_id, statement.to_bytes(), range(len(reports)))

        return form


class ReceiptBeforeCharges(SqlAdStore):
    """Keeps the receipt of a batch first, and makes its charges in another transaction."""

    def redeem(self, batch: RedeemedBatch, sign: SignReceipt) -> bytes:
        known = self.receipt(batch.batch_id)
        if known is not None:
            return known
        receipt = sign(bytes(report.verdict for report in batch.reports))
        with self._database.writing() as connection:
            number = billing_accounts.next_number(connection, BATCHES)
            values = {"batch_id": batch.batch_id, "menu_id": batch.menu_id, "statement": batch.statement}
            row = insert(BATCHES).values(number=number, receipt=receipt, data=batch.data, **values)
            connection.execute(row)
        with self._database.writing() as connection:
            _charge(connection, number, batch)
        return receipt


class ChargesAgain(SqlAdStore):
    """Looks up neither receipts nor spent tokens: what comes twice is charged twice."""

    def receipt(self, batch_id: bytes) -> bytes | None:  # noqa: ARG002 (as the honest one)
        return None

    def redeem(self, batch: RedeemedBatch, sign: SignReceipt) -> bytes:
        with self._database.reading() as connection:
            times = len(connection.execute(select(BATCHES.c.number)).all())
            spent = set(connection.execute(select(CHARGES.c.nonce)).scalars())
        reports = tuple(
            replace(each, nonce=hashlib.sha256(each.nonce + bytes([times])).digest())
            if each.nonce in spent
            else each
            for each in batch.reports
        )
        if reports != batch.reports:
            another = hashlib.sha256(batch.batch_id + bytes([times])).digest()[:16]
            batch = replace(batch, batch_id=another, reports=reports)
        return super().redeem(batch, sign)


class InvoicesInTwoSteps(SqlAdStore):
    """Writes an invoice first, and in another transaction on its charges that they are on it."""

    def close_invoices(self, now: int) -> Sequence[Invoice]:
        with self._database.writing() as connection:
            made = billing_accounts.close_invoices(connection, now)
            on = CHARGES.c.invoice.in_([invoice.number for invoice in made])
            charges = connection.execute(select(CHARGES.c.nonce, CHARGES.c.invoice).where(on)).all()
            connection.execute(update(CHARGES).where(on).values(invoice=None))
        with self._database.writing() as connection:
            for nonce, invoice in charges:
                connection.execute(update(CHARGES).where(CHARGES.c.nonce == nonce).values(invoice=invoice))
        return made


class NewTokenOnRetry(AdDevice):
    """Reports an impression with another token where nobody answered."""

    def send_reports(self, now: int) -> SentReports:
        for record in self.waiting_reports():
            try:
                self._channel.report(record.report)
            except OSError:
                self._report_anew(record)
            else:
                self._commit([record.acked()])
        return super().send_reports(now)

    def _report_anew(self, record: ImpressionRecord) -> None:
        menu = self._offers.kept_menu(record.menu_id)
        assert menu is not None
        assert record.index is not None
        fresh = self._offers.tokens(menu, 1)[0]
        report = ImpressionReport.make(
            record.menu_id, fresh.secret, fresh.token, record.index, menu.head.sealing_key
        )
        chosen = fresh.chosen(record.index, 0, record.window)
        self._commit([chosen])
        self._commit([chosen.shown(report.to_bytes()), record.closed()])


class ConfirmsBeforeRendering(AdDevice):
    """Makes the report of an ad before anybody has seen it."""

    def show(
        self,
        context: Sequence[Any],
        rates: DeviceRates,
        now: int,
        render: Callable[[ShownAd], None] = lambda _: None,
    ) -> ShownAd:
        ad = self.choose(context, rates, now)
        self.confirm_shown(ad)
        render(ad)
        return ad


class KeepsChoicesLate(AdDevice):
    """Shows what it drew before it has written down what that was, and draws again after a restart."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unkept: list[tuple[Sequence[ImpressionRecord], DeviceAccount | None, Showing | None]] = []

    def _commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        if any(record.state is ImpressionState.CHOSEN for record in records):
            self._unkept.append((records, account, showing))
        else:
            super()._commit(records, account, showing)

    def confirm_shown(self, ad: ShownAd) -> None:
        while self._unkept:
            super()._commit(*self._unkept.pop())
        super().confirm_shown(ad)


class PaysLate(AdDevice):
    """Writes down what it drew first, and what that cost a moment later."""

    def _commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        super()._commit(records, None, showing)
        if account is not None:
            self.journal.commit([], account)
            self._account = account


class Bug(NamedTuple):
    """A bug, who has to die that it shows, and words of what it damages."""

    kinds: PartyKinds
    victim: str
    damage: str


_UNPAID = "shown and taken, and not charged"
BUGS = {
    "acknowledges before it is durable": Bug(PartyKinds(proxy=AcknowledgesEarly), PROXY, _UNPAID),
    "deletes a batch when it is sent": Bug(PartyKinds(proxy=DeletesWhenSent), SERVER, _UNPAID),
    "keeps a receipt before its charges": Bug(PartyKinds(ad_store=ReceiptBeforeCharges), SERVER, _UNPAID),
    "charges what comes again": Bug(PartyKinds(ad_store=ChargesAgain), PROXY, "charges of no impression"),
    "invoices in two steps": Bug(PartyKinds(ad_store=InvoicesInTwoSteps), SERVER, "invoices of"),
    "takes a new token on a retry": Bug(PartyKinds(device=NewTokenOnRetry), PROXY, "what nobody saw"),
    "confirms before rendering": Bug(PartyKinds(device=ConfirmsBeforeRendering), DEVICE, "what nobody saw"),
    "draws again after a restart": Bug(PartyKinds(device=KeepsChoicesLate), DEVICE, "with two choices"),
    "pays after it has drawn": Bug(PartyKinds(device=PaysLate), DEVICE, "and drew for"),
}
