"""An epoch's batches and charges: each charge is proven by a token, an opening and the menu's own price.

A charge is proven where its batch is as the proxy signed it, its menu stands in a directory that both parties
signed, its token verifies under that menu's key, its secret opens nonce and commitment to its index, and the ad
server's receipt says that it was accepted. What it costs is what the menu says, whatever the folder states.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tacit.bill.audit.epochs import AuditedEpoch, AuditKeys, ListedMenu
from tacit.bill.audit.findings import Amount, FindingKind, Findings
from tacit.bill.audit.folder import BATCHES, CHARGES, AuditFolder, ChargeRow, batch_places, epoch_file
from tacit.bill.audit.spilled_rows import SpilledRows
from tacit.bill.protocol.batches import BATCH_ID_BYTES, STATEMENT_BYTES, BatchStatement, Receipt
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import NOTHING
from tacit.bill.protocol.reports import REPORT_BYTES, ImpressionReport, Opening
from tacit.bill.protocol.tokens import NONCE_BYTES
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.progress import Count

SPENT, REPEATED = 0, 1
SPENDING = struct.Struct(f">{NONCE_BYTES}sBI{BATCH_ID_BYTES}sIQQ")
"""nonce; SPENT or REPEATED; epoch, batch and place; invoice (0: none) and price."""

PROVEN, STATED = 0, 1
LINE = struct.Struct(">32sBQBQQQ")
"""menu, index and invoice; PROVEN or STATED; campaign, price and impressions."""
LINE_KEY = 32 + 1 + 8

STATEMENT = struct.Struct(f">{BATCH_ID_BYTES}sB32sII")
"""batch; PROVEN (by the folder) or STATED (by the proxy); digest of the statement; epoch and reports."""

UNCHECKED = frozenset(
    {BillVerdict.UNOPENABLE, BillVerdict.WRONG_OPENING, BillVerdict.NO_SUCH_ENTRY, BillVerdict.EXPIRED}
)
"""Rejections that only the holder of the ad server's key could check."""


class AuditTally:
    """What epochs add up to, kept in little memory: the rest of it goes to disk until it is compared."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.menus = self.batches = self.reports = self.nothing = 0
        self.charged = Amount()
        self.uninvoiced: defaultdict[int, Amount] = defaultdict(Amount)
        self.held: defaultdict[int, Amount] = defaultdict(Amount)
        self.rejected: Counter[BillVerdict] = Counter()
        self.proven_micros: Counter[int] = Counter()  # by invoice
        self.spent = SpilledRows(SPENDING.size, NONCE_BYTES)
        self.lines = SpilledRows(LINE.size, LINE_KEY)
        self.statements = SpilledRows(STATEMENT.size, BATCH_ID_BYTES)
        self.receipts: dict[bytes, bytes] = {}  # digests of what the proxy was given, by batch
        self.receipted: set[bytes] = set()  # of these, batches that the folder has

    def __repr__(self) -> str:
        return brief(self, batches=self.batches, reports=self.reports, findings=self.findings)

    def close(self) -> None:
        for rows in (self.spent, self.lines, self.statements):
            rows.close()

    def find_repetitions(self) -> None:
        """Say which tokens were charged more than once, and which are called repeated and are not."""
        for alike in self.spent.groups():
            first, *others = (SPENDING.unpack(row) for row in alike)
            if first[1] == REPEATED:
                others, words = [first, *others], "expected a token that is charged elsewhere, got none"
            for _, kind, epoch, batch, place, invoice, price in others:
                if kind == SPENT:
                    words = f"expected each token once, got one that batch {first[3].hex()} has too"
                    self.proven_micros[invoice] -= price
                elif first[1] == SPENT:
                    continue
                file = epoch_file(epoch, CHARGES if kind == SPENT else BATCHES)
                which = FindingKind.CHARGED_TWICE if kind == SPENT else FindingKind.WRONGLY_REJECTED
                self.findings.add(which, file, words, epoch=epoch, batch=batch, place=place)


def audit_charges(
    folder: AuditFolder, known: AuditedEpoch, keys: AuditKeys, tally: AuditTally, count: Count
) -> None:
    """Hold every report and every charge of an epoch against what proves it."""
    file, findings = epoch_file(known.epoch, BATCHES), tally.findings
    audit = _EpochCharges(known, keys, tally)
    try:
        with folder.blobs(known.epoch, BATCHES) as blobs:
            places: dict[bytes, int] = {}
            try:
                for batch_id, at in batch_places(blobs):
                    if places.setdefault(batch_id, at) != at:
                        words = "expected each batch once, got one again"
                        audit.note(FindingKind.BATCH_TWICE, words, batch_id)
            except BadInput as refusal:
                findings.add(FindingKind.DAMAGED, file, str(refusal), epoch=known.epoch)
            for batch_id, group in groupby(_rows(folder, known.epoch, findings), lambda row: row.batch_id):
                rows = list(group)
                if batch_id not in places:
                    audit.note_unfounded(rows)
                    continue
                blobs.seek(places.pop(batch_id))
                audit.check_batch(batch_id, blobs.read(), blobs.read(), rows)
                count(tally.reports)
            for batch_id, at in places.items():
                blobs.seek(at)
                audit.check_batch(batch_id, blobs.read(), blobs.read(), [])
                count(tally.reports)
    except FileNotFoundError:
        audit.note_unfounded(_rows(folder, known.epoch, findings))
    audit.finish()


def _rows(folder: AuditFolder, epoch: int, findings: Findings) -> Iterator[ChargeRow]:
    def complain(words: str) -> None:
        findings.add(FindingKind.DAMAGED, epoch_file(epoch, CHARGES), words, epoch=epoch)

    try:
        yield from folder.charges(epoch, complain)
    except FileNotFoundError:
        return  # said already
    except BadInput as refusal:
        complain(str(refusal))


class _EpochCharges:
    """The batches of one epoch, one after the other."""

    def __init__(self, known: AuditedEpoch, keys: AuditKeys, tally: AuditTally) -> None:
        self._known, self._keys, self._tally = known, keys, tally
        self._lines: Counter[tuple[int, bytes, int]] = Counter()  # impressions by invoice, menu and index

    def note(
        self, kind: FindingKind, words: str, batch: bytes, place: int | None = None, *, file: str = BATCHES
    ) -> None:
        name, epoch = epoch_file(self._known.epoch, file), self._known.epoch
        self._tally.findings.add(kind, name, words, epoch=epoch, batch=batch, place=place)

    def note_unfounded(self, rows: Iterable[ChargeRow]) -> None:
        for row in rows:
            words = f"line {row.line}: expected a charge of a batch that is here, once, got another"
            self.note(FindingKind.CHARGE_WITHOUT_REPORT, words, row.batch_id, row.place, file=CHARGES)

    def check_batch(self, batch_id: bytes, data: bytes, receipt: bytes, rows: Sequence[ChargeRow]) -> None:
        tally = self._tally
        tally.batches += 1
        try:
            statement = BatchStatement.from_bytes(data[:STATEMENT_BYTES])
        except BillRefused as refusal:
            self.note(FindingKind.DAMAGED, str(refusal), batch_id)
            self.note_unfounded(rows)
            return
        listed = self._known.menu(statement.menu_id)
        body = data[STATEMENT_BYTES:]
        proven = self._check_statement(statement, body, listed) and self._known.signed
        count = min(statement.reports, len(body) // REPORT_BYTES)
        tally.reports += count
        digest = hashlib.sha256(statement.to_bytes()).digest()
        tally.statements.add(STATEMENT.pack(batch_id, PROVEN, digest, statement.epoch, statement.reports))
        if batch_id in tally.receipts:
            tally.receipted.add(batch_id)
        if tally.receipts.get(batch_id, given := hashlib.sha256(receipt).digest()) != given:
            words = "expected the receipt that the ad server gave to the proxy, got another that it signed"
            self.note(FindingKind.SECOND_RECEIPT, words, batch_id)
        verdicts = self._verdicts(statement, receipt)
        by_place = self._by_place(rows, count)
        for place in range(count):
            report = body[place * REPORT_BYTES : (place + 1) * REPORT_BYTES]
            row = by_place.get(place)
            verdict = BillVerdict.ACCEPTED if verdicts is None else BillVerdict(verdicts[place])
            if row is None and verdicts is None:
                continue  # nobody signed what became of it
            if row is None and verdict is BillVerdict.ACCEPTED:
                words = "expected a charge of a report that was accepted, got none"
                self.note(FindingKind.NOT_CHARGED, words, batch_id, place)
            elif row is None:
                self._check_rejection(statement, listed, report, place, verdict)
            elif verdict is not BillVerdict.ACCEPTED:
                words = f"line {row.line}: expected no charge of a report that was rejected ({verdict.words})"
                self.note(FindingKind.CHARGED_THOUGH_REJECTED, words, batch_id, place, file=CHARGES)
            elif listed is not None:
                self._check_charge(statement, listed, report, row, proven=proven and verdicts is not None)

    def finish(self) -> None:
        """Hand the epoch's lines over, to be held against what invoices state."""
        for (invoice, menu_id, index), impressions in self._lines.items():
            listed = self._known.menu(menu_id)
            assert listed is not None, "its charges were proven"
            entry = listed.menu.entries[index - 1]
            row = menu_id, index, invoice, PROVEN, entry.campaign, entry.price_micros, impressions
            self._tally.lines.add(LINE.pack(*row))

    def _check_statement(self, statement: BatchStatement, body: bytes, listed: ListedMenu | None) -> bool:
        good = True
        try:
            statement.check(self._keys.proxy)
        except BillRefused:
            words = "expected a statement that the proxy signed, got one that it did not"
            self.note(FindingKind.UNSIGNED_BATCH, words, statement.batch_id)
            good = False
        if statement.epoch != self._known.epoch or listed is None:
            words = f"expected a batch of a menu of epoch {self._known.epoch}, got another's"
            self.note(FindingKind.MISPLACED_BATCH, words, statement.batch_id)
            good = False
        whole = len(body) == statement.reports * REPORT_BYTES
        if not whole or hashlib.sha256(body).digest() != statement.digest:
            words = f"expected the {statement.reports} reports that the proxy signed, in order, got others"
            self.note(FindingKind.CHANGED_REPORTS, words, statement.batch_id)
            good = False
        return good

    def _verdicts(self, statement: BatchStatement, data: bytes) -> bytes | None:
        """What the ad server said of each report; None where it did not, and so proves nothing."""
        try:
            receipt = Receipt.from_bytes(data)
        except BillRefused as refusal:
            self.note(FindingKind.DAMAGED, f"receipt: {refusal}", statement.batch_id)
            return None
        if receipt.batch_id != statement.batch_id or receipt.received != statement.reports:
            words = f"expected the receipt of {statement.reports} reports of this batch, got another"
            self.note(FindingKind.OTHER_RECEIPT, words, statement.batch_id)
            return None
        try:
            receipt.check(self._keys.server)
        except BillRefused:
            words = "expected a receipt that the ad server signed, got one that it did not"
            self.note(FindingKind.UNSIGNED_RECEIPT, words, statement.batch_id)
            return None
        return receipt.verdicts

    def _by_place(self, rows: Sequence[ChargeRow], count: int) -> dict[int, ChargeRow]:
        found: dict[int, ChargeRow] = {}
        for row in rows:
            if row.place >= count:
                self.note_unfounded([row])
            elif found.setdefault(row.place, row) is not row:
                before = found[row.place].line
                words = f"line {row.line}: expected one charge of a report, got another beside line {before}"
                self.note(FindingKind.CHARGED_TWICE, words, row.batch_id, row.place, file=CHARGES)
        return found

    def _check_charge(
        self, statement: BatchStatement, listed: ListedMenu, data: bytes, row: ChargeRow, *, proven: bool
    ) -> None:
        def note(kind: FindingKind, words: str) -> None:
            self.note(kind, f"line {row.line}: {words}", row.batch_id, row.place, file=CHARGES)

        menu = listed.menu
        try:
            report = ImpressionReport.from_bytes(data)
        except BillRefused as refusal:
            note(FindingKind.FOREIGN_REPORT, str(refusal))
            return
        if report.menu_id != statement.menu_id:
            note(FindingKind.FOREIGN_REPORT, "expected a report of its batch's menu, got one of another")
            proven = False
        elif not report.has_token_of(listed.token_key):
            note(FindingKind.FORGED_TOKEN, "expected a token that the menu's key signed, got another")
            proven = False
        try:
            report.check_opening(Opening(row.secret, row.index))
        except BillRefused:
            words = f"expected a secret that opens nonce and commitment to index {row.index}, got another"
            note(FindingKind.WRONG_OPENING, words)
            proven = False
        price = menu.price_micros(row.index)
        if price is None:
            note(FindingKind.NO_SUCH_ENTRY, f"expected one of {len(menu.entries)} entries, got {row.index}")
            return
        if row.price_micros != price:
            words = f"expected the menu's price of {price} micros, got {row.price_micros}"
            note(FindingKind.WRONG_PRICE, words)
        campaign = None if row.index == NOTHING else menu.entries[row.index - 1].campaign
        if row.campaign != campaign:
            note(FindingKind.WRONG_CAMPAIGN, f"expected campaign {campaign}, got {row.campaign}")
        if row.invoice is not None and (row.held or campaign is None):
            words = "held" if row.held else "of nothing shown"
            note(FindingKind.WRONGLY_INVOICED, f"expected a charge {words} on no invoice, got {row.invoice}")
            return
        if proven:
            self._count(statement, report.nonce, row, campaign, price)

    def _count(
        self, statement: BatchStatement, nonce: bytes, row: ChargeRow, campaign: int | None, price: int
    ) -> None:
        tally, invoice = self._tally, row.invoice
        tally.spent.add(
            SPENDING.pack(nonce, SPENT, self._known.epoch, row.batch_id, row.place, invoice or 0, price)
        )
        if campaign is None:
            tally.nothing += 1
        elif row.held:
            tally.held[campaign].add(price)
        else:
            tally.charged.add(price)
            if invoice is None:
                tally.uninvoiced[campaign].add(price)
            else:
                self._lines[invoice, statement.menu_id, row.index] += 1
                tally.proven_micros[invoice] += price

    def _check_rejection(
        self,
        statement: BatchStatement,
        listed: ListedMenu | None,
        data: bytes,
        place: int,
        verdict: BillVerdict,
    ) -> None:
        """Whether a report was rejected for a reason that anybody can see."""
        tally = self._tally
        tally.rejected[verdict] += 1
        if verdict in UNCHECKED or listed is None:
            return
        try:
            report: ImpressionReport | None = ImpressionReport.from_bytes(data)
        except BillRefused:
            report = None
        if report is None or verdict is BillVerdict.MALFORMED:
            good = (report is None) == (verdict is BillVerdict.MALFORMED)
        elif verdict is BillVerdict.DUPLICATE:
            row = report.nonce, REPEATED, self._known.epoch, statement.batch_id, place, 0, 0
            tally.spent.add(SPENDING.pack(*row))
            return
        elif verdict is BillVerdict.UNKNOWN_MENU:
            good = report.menu_id != statement.menu_id
        else:
            good = verdict is BillVerdict.FORGED and not report.has_token_of(listed.token_key)
        if not good:
            words = f"expected a report of which this is so, got another: {verdict.words}"
            self.note(FindingKind.WRONGLY_REJECTED, words, statement.batch_id, place)
