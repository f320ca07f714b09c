"""The proxy as a party of billing: reports in, shuffled and signed batches out.

It counts real tokens only, so that a menu's cohort is as large as it says, and signs what it releases. It sees
who reports and for which menu; neither a choice nor a price.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit import expect
from tacit.bill.protocol.batches import (
    BATCH_ID_BYTES,
    MOST_REPORTS,
    Batch,
    BatchStatement,
    CohortStatement,
    Receipt,
)
from tacit.bill.protocol.directory import Directory, DirectoryLeaf, EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import SigningKey
from tacit.bill.protocol.reports import ImpressionReport
from tacit.bill.proxy.store import (
    AddOutcome,
    BillingProxyStore,
    FormedBatch,
    NewReport,
    StoredBatch,
    StoredMenu,
    WaitingReports,
)
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.privacy.randomness import Source

MOST_MENUS_KNOWN = 4096
MOST_AHEAD_SECONDS = 7 * 86_400  # an epoch further ahead than that is a clock that is wrong
MOST_LASTING_SECONDS = 92 * 86_400  # from an epoch's opening until its tokens expire


@dataclass(frozen=True)
class HoldRule:
    """When waiting reports become a batch: when their epoch expires, all that came, however few; or `most` at
    once.

    With `seconds`, already these seconds after the first of them came, where they are as many as their menu
    asks for. Charges are made sooner then, and cohorts are smaller: whatever comes after leaves among the rest.
    """

    seconds: int | None = None
    most: int = 10_000

    def __post_init__(self) -> None:
        if self.seconds is not None:
            expect.whole("seconds", self.seconds, at_least=0)
        if expect.whole("most", self.most, at_least=1) > MOST_REPORTS:
            raise BadInput(f"expected most <= {MOST_REPORTS} reports in a batch, got {self.most}")

    def releases(self, waiting: WaitingReports, menu: StoredMenu, now: int) -> bool:
        if now >= menu.expires or waiting.count >= self.most:
            return True
        if self.seconds is None or waiting.count < menu.leaf.smallest_cohort:
            return False
        return now >= waiting.since + self.seconds


class BatchLink(Protocol):
    """The way to the ad server; OSError where it does not answer."""

    def deliver(self, batch: bytes) -> bytes:
        """The receipt of a batch; the same one for the same batch."""


class BillingProxy:
    """Countersigns one directory per epoch, takes reports with real tokens, and releases them shuffled.

    Guarantee:  the ad server gets reports of one menu in a uniformly random order, as many at once as the
                batch's signed statement says. It learns of each the entry that was chosen, and not which
                request or address it came from. What that hides of a device's choice is what shuffling gives
                for the reports that the server accepted (`privacy.shuffling`), of members who do randomise and
                do not work with the server.
    Neighbours: the private data of one device of the batch, replaced.
    Assumes:    the proxy follows this code, and tells the server neither addresses nor times; the source is
                the cryptographic one. It cannot tell devices of the server's own from others: what they report
                hides nobody. Undersized cohorts are released when their epoch expires, so that billing stays
                exact: their statement says so, and devices count them at their full local epsilon.
    Source:     Laro et al. 2023, appendix B; the bounds of `privacy.shuffling`.
    """

    def __init__(
        self, key: SigningKey, store: BillingProxyStore, *, server_public: bytes, hold: HoldRule | None = None
    ) -> None:
        self._key, self._store, self._server_public = key, store, server_public
        self.hold = HoldRule() if hold is None else hold
        self._menus: OrderedDict[bytes, StoredMenu] = OrderedDict()

    def __repr__(self) -> str:
        return brief(self, store=self._store)

    @property
    def server_public(self) -> bytes:
        """What the ad server signs with."""
        return self._server_public

    def lists(self, menu_id: bytes) -> bool:
        """Whether a menu stands in a directory that was countersigned here, and is not forgotten."""
        return self._menu(menu_id) is not None

    def leaf(self, menu_id: bytes) -> DirectoryLeaf | None:
        """What a directory that was countersigned here says of a menu: its context, its lane, its token key."""
        found = self._menu(menu_id)
        return None if found is None else found.leaf

    def countersign(self, data: bytes, now: int) -> bytes:
        """The head of an epoch with both signatures: one per epoch, for ever the same."""
        directory = Directory.from_bytes(data, server=self._server_public)
        head = directory.head
        if head.expires > head.opens + MOST_LASTING_SECONDS:  # its reports could wait, and be kept, for ever
            raise BillRefused(
                BillVerdict.STALE_EPOCH,
                f"expected an epoch that expires within {MOST_LASTING_SECONDS} seconds of its opening",
            )
        late = now >= head.closes and self._store.head(head.epoch) is None  # asked again: the same answer
        if late or head.opens > now + MOST_AHEAD_SECONDS:
            raise BillRefused(
                BillVerdict.STALE_EPOCH,
                f"expected an epoch that is to come or open by the proxy's clock, {now}",
            )
        menus = [
            StoredMenu(leaf, head.epoch, head.opens, head.closes, head.expires) for leaf in directory.leaves
        ]
        signed = head.countersigned(self._key)
        return self._store.keep_directory(head.epoch, data, signed.to_bytes(), menus)

    def head(self, now: int) -> EpochHead:
        """The head of the epoch that is open now."""
        found = self._store.current_head(now)
        if found is None:
            raise BillRefused(BillVerdict.STALE_EPOCH, "no epoch is open: the ad server has sent no directory")
        return EpochHead.from_bytes(found)

    def take(self, reports: Sequence[bytes], now: int) -> list[BillVerdict]:
        """What becomes of each report; accepted ones are on disk when this returns, in one transaction."""
        checked = [self.check(data, now) for data in reports]
        return self.add(checked)

    def add(self, checked: Sequence[NewReport | BillVerdict]) -> list[BillVerdict]:
        """Store what was checked already."""
        new = [each for each in checked if isinstance(each, NewReport)]
        outcomes = iter(self._store.add_reports(new) if new else ())
        return [_ANSWERS[next(outcomes)] if isinstance(each, NewReport) else each for each in checked]

    def check(self, data: bytes, now: int) -> NewReport | BillVerdict:
        """A report whose token its menu's key signed, in time; or why it is none."""
        try:
            report = ImpressionReport.from_bytes(data)
        except BillRefused as refused:
            return BillVerdict(refused.reason)
        menu = self._menu(report.menu_id)
        if menu is None:
            return BillVerdict.UNKNOWN_MENU
        if now < menu.opens:
            return BillVerdict.STALE_EPOCH
        if now >= menu.expires:
            return BillVerdict.EXPIRED
        if not report.has_token_of(menu.leaf.token_key):
            return BillVerdict.FORGED
        return NewReport(report.nonce, report.menu_id, data, now)

    def form_batches(self, now: int, source: Source) -> list[BatchStatement]:
        """Shuffle and sign whatever is due."""
        formed = []
        for waiting in self._store.waiting():
            menu = self._menu(waiting.menu_id)
            assert menu is not None, "reports wait for menus that are known"
            if self.hold.releases(waiting, menu, now):
                form = self._form(menu, source)
                statement = self._store.form_batch(waiting.menu_id, self.hold.most, form)
                if statement is not None:
                    formed.append(BatchStatement.from_bytes(statement))
        return formed

    def _form(self, menu: StoredMenu, source: Source) -> Callable[[Sequence[bytes]], FormedBatch]:
        def form(reports: Sequence[bytes]) -> FormedBatch:
            order = shuffled_order(len(reports), source)
            batch_id = source.bytes(BATCH_ID_BYTES)
            shuffled = [reports[place] for place in order]
            statement = BatchStatement.sign(self._key, batch_id, menu.leaf.menu_id, menu.epoch, shuffled)
            return FormedBatch(batch_id, statement.to_bytes(), order)

        return form

    def deliver_batches(self, link: BatchLink) -> int:
        """Hand over what has no receipt; how many got theirs. An OSError of the link ends it: call again. A
        batch that is refused stays, and keeps no other: the first refusal is raised when all had their turn."""
        done = 0
        refusal: BillRefused | None = None
        for batch_id in self._store.undelivered():
            stored = self._store.batch(batch_id)
            if stored is None:
                continue
            try:
                self._deliver(stored, link)
            except BillRefused as refused:
                refusal = refusal or refused
            else:
                done += 1
        if refusal is not None:
            raise refusal
        return done

    def _deliver(self, stored: StoredBatch, link: BatchLink) -> None:
        batch = Batch(BatchStatement.from_bytes(stored.statement), stored.reports)
        receipt = Receipt.from_bytes(link.deliver(batch.to_bytes()))
        receipt.check(self._server_public)
        if receipt.batch_id != stored.batch_id or receipt.received != len(stored.reports):
            raise BillRefused(BillVerdict.CONFLICT, "expected a receipt of the batch that was sent")
        self._store.settle(stored.batch_id, receipt.to_bytes())

    def statement_for(self, nonce: bytes) -> CohortStatement | None:
        """Among how many reports that the ad server accepted a report left; None until there is a receipt."""
        found = self._store.settled_for(nonce)
        if found is not None:
            return self._cohort(*found)
        known, _ = self._store.statement_for(nonce)
        if not known:
            raise BillRefused(BillVerdict.UNKNOWN_MENU, "no report with this nonce is known here")
        return None

    def cohorts(self, epoch: int) -> list[CohortStatement]:
        """How large an epoch's cohorts were, signed: what devices look at before they choose."""
        return [self._cohort(*each) for each in self._store.settled(epoch)]

    def statements(self, epoch: int) -> list[BatchStatement]:
        """All batches of an epoch, signed: what an auditor holds charges against."""
        return [BatchStatement.from_bytes(each) for each in self._store.statements(epoch)]

    def receipts(self, epoch: int) -> list[bytes]:
        """What the ad server signed for an epoch's batches: for auditors, beside what it tells them."""
        return [receipt for _, receipt in self._store.settled(epoch)]

    def _cohort(self, statement: bytes, receipt: bytes) -> CohortStatement:
        accepted = Receipt.from_bytes(receipt).charged
        return CohortStatement.sign(self._key, BatchStatement.from_bytes(statement), accepted)

    def _menu(self, menu_id: bytes) -> StoredMenu | None:
        found = self._menus.get(menu_id)
        if found is None:
            found = self._store.menu(menu_id)
            if found is not None:
                self._menus[menu_id] = found
                if len(self._menus) > MOST_MENUS_KNOWN:
                    self._menus.popitem(last=False)
        return found


_ANSWERS = {
    AddOutcome.NEW: BillVerdict.ACCEPTED,
    AddOutcome.SAME: BillVerdict.ACCEPTED,
    AddOutcome.OTHER: BillVerdict.CONFLICT,
}


def shuffled_order(count: int, source: Source) -> list[int]:
    """A uniformly random order of so many places; ties among 64-bit words, which all but never happen, are
    drawn again."""
    while True:
        words = source.words(count)
        if len(np.unique(words)) == count:
            return [int(place) for place in np.argsort(words, kind="stable")]
