"""What must hold once a storm over billing is over: not a micro too much or too little, and no epsilon unpaid.

The truth is what people saw: every impression is noted when it is rendered, by nobody's account but the
harness's own. Devices' journals say which of them were taken by the proxy. Charges, invoices, receipts and
accounts are held against both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tacit.bill.audit.export import export_folder
from tacit.bill.audit.verification import verify_folder
from tacit.bill.protocol.batches import BatchStatement, Receipt
from tacit.bill.protocol.menus import NOTHING
from tacit.bill.proxy.store import BillingProxyStore
from tacit.bill.server.store import AdStore, StoredCharge
from tacit.deliver.device.account import DeviceAccount, DeviceLimits
from tacit.deliver.device.journal import AFTER, DeviceJournal, ImpressionRecord, ImpressionState
from tacit.deliver.device.outcomes import ShownAd

TAKEN = (ImpressionState.ACKED, ImpressionState.SETTLED)
OVER = (*TAKEN, ImpressionState.CLOSED)


@dataclass(frozen=True)
class Sight:
    """An impression that a person saw."""

    device: str
    nonce: bytes
    menu_id: bytes
    index: int
    price_micros: int

    @classmethod
    def of(cls, device: str, ad: ShownAd) -> Sight:
        return cls(device, ad.nonce, ad.menu_id, ad.index, ad.price_micros)


class Kept(NamedTuple):
    """What one commit of a device's journal kept: records, and what was spent, where it kept that too."""

    records: tuple[ImpressionRecord, ...]
    spent_micros: int | None


@dataclass
class DeviceEvidence:
    """A device's journal when all is over, its limits, and what it committed on the way, as far as known."""

    journal: DeviceJournal
    limits: DeviceLimits
    commits: Sequence[Kept] = ()

    def records(self) -> Sequence[ImpressionRecord]:
        return self.journal.impressions(tuple(ImpressionState))

    def account(self) -> DeviceAccount:
        kept = self.journal.account()
        return DeviceAccount(self.limits) if kept is None else DeviceAccount.from_bytes(kept, self.limits)


@dataclass
class Evidence:
    """All that is known of a storm that is over: what people saw, what devices, proxy and server kept.

    blinded  what was sent to be signed, as the network saw it; None where nobody listened
    """

    sights: Sequence[Sight]
    devices: Mapping[str, DeviceEvidence]
    ads: AdStore
    proxied: BillingProxyStore
    server_public: bytes
    proxy_public: bytes
    now: int
    blinded: frozenset[bytes] | None = None


class StormDamage(AssertionError):
    """Something does not hold after a storm; a line for each."""


@dataclass
class BillFigures:
    """What a storm came to."""

    seen: int = 0
    taken: int = 0
    charges: int = 0
    micros: int = 0
    invoices: int = 0
    batches: int = 0
    tokens: int = 0
    spent_micros: int = 0
    closed: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lost = ", ".join(f"{count} {word}" for word, count in sorted(self.closed.items())) or "none"
        return (
            f"{self.seen} impressions seen, {self.taken} taken, {self.charges} charges in {self.batches} "
            f"batches, {self.micros} micros on {self.invoices} invoices, {self.tokens} tokens, "
            f"{self.spent_micros / 1e6:g} epsilon; uncharged: {lost}"
        )


class _Charge(NamedTuple):
    batch_id: bytes
    menu_id: bytes
    row: StoredCharge

    @property
    def entry(self) -> tuple[bytes, int, int]:
        return self.menu_id, self.row.index, self.row.price_micros


class _Check:
    """Collects what does not hold."""

    def __init__(self, evidence: Evidence) -> None:
        self.found = evidence
        self.damage: list[str] = []
        self.charges = [
            _Charge(batch.batch_id, batch.menu_id, row)
            for batch in evidence.ads.batches()
            for row in evidence.ads.charges_of(batch.batch_id)
        ]
        self.records = {
            record.nonce: (name, record)
            for name, device in evidence.devices.items()
            for record in device.records()
        }

    def expect(self, holds: object, words: str) -> None:
        if not holds:
            self.damage.append(words)

    def expect_none(self, wrong: Iterable[object], words: str) -> None:
        count = len(list(wrong))
        self.expect(not count, f"{count} {words}")

    def expect_same(self, got: Counter[tuple[bytes, int, int]], want: Counter[tuple[bytes, int, int]],
                    words: str) -> None:  # fmt: skip
        for entry in sorted((got - want) + (want - got)):
            place = f"menu {entry[0].hex()[:8]} index {entry[1]} at {entry[2]} micros"
            self.damage.append(f"{words}: expected {want[entry]} of {place}, got {got[entry]}")

    # What was shown and what was charged

    def impressions(self) -> None:
        charged = Counter(each.row.nonce for each in self.charges)
        self.expect_none((n for n, times in charged.items() if times > 1), "tokens were charged more than once")
        states = {nonce: record.state for nonce, (_, record) in self.records.items()}
        taken = {nonce for nonce, state in states.items() if state in TAKEN}
        self.expect_none(set(charged) - set(states), "charges of no impression of any device")
        self.expect_none(taken - set(charged), "impressions were shown and taken, and not charged")
        self.expect_none(
            (n for n in set(charged) & set(states) if n not in taken),
            "charges of impressions that nobody reported",
        )
        waiting = (n for n, s in states.items() if s in (ImpressionState.SHOWN, ImpressionState.CHOSEN))
        self.expect_none(waiting, "impressions were left half-way by their device")
        seen: dict[bytes, set[tuple[bytes, int, int]]] = defaultdict(set)
        for sight in self.found.sights:
            seen[sight.nonce].add((sight.menu_id, sight.index, sight.price_micros))
        self.expect_none((n for n, each in seen.items() if len(each) > 1), "tokens were shown with two choices")
        self.expect_none(set(charged) - set(seen), "charges of what nobody saw")
        self.expect_none(
            (each for each in self.charges if seen.get(each.row.nonce, {each.entry}) != {each.entry}),
            "charges of another entry than was seen",
        )
        reported = Counter(
            next(iter(seen[nonce])) for nonce in taken if nonce in seen
        )  # fmt: skip
        self.expect_same(Counter(each.entry for each in self.charges), reported, "charges of what was reported")
        totals = Counter({(t.menu_id, t.index, t.price_micros): t.impressions for t in self.found.ads.totals()})
        self.expect_same(totals, reported, "totals of what was reported")
        self.expect_none((each for each in self.charges if each.row.held), "charges are held, with money there")

    def invoices(self) -> None:
        invoices = self.found.ads.invoices()
        by_invoice: dict[int | None, Counter[tuple[bytes, int, int]]] = defaultdict(Counter)
        for each in self.charges:
            if each.row.index != NOTHING:
                by_invoice[each.row.invoice][each.entry] += 1
            else:
                self.expect(each.row.invoice is None, "nothing was shown, and invoiced")
        self.expect(not by_invoice.pop(None, None), "charges are on no invoice")
        self.expect(
            set(by_invoice) == {each.number for each in invoices}, "invoices without charges, or reverse"
        )
        for invoice in invoices:
            lines = Counter({(li.menu_id, li.index, li.price_micros): li.impressions for li in invoice.lines})
            self.expect_same(lines, by_invoice[invoice.number], f"invoice {invoice.number}")
        owed = sum(each.row.price_micros for each in self.charges)
        billed = sum(invoice.total_micros for invoice in invoices)
        self.expect(billed == owed, f"invoices of {billed} micros, charges of {owed}")
        by_campaign: Counter[int] = Counter()
        for each in self.charges:
            if each.row.campaign is not None:
                by_campaign[each.row.campaign] += each.row.price_micros
        for campaign in self.found.ads.campaigns():
            owes = by_campaign[campaign.campaign]
            words = f"campaign {campaign.campaign} has {campaign.charged_micros} micros, and charges of {owes}"
            self.expect(campaign.charged_micros == owes, words)

    # What proxy and server signed

    def batches(self) -> None:
        found = self.found
        rows = Counter(each.batch_id for each in self.charges)
        signed = set()
        for batch in found.ads.batches():
            receipt, statement = Receipt.from_bytes(batch.receipt), BatchStatement.from_bytes(batch.statement)
            receipt.check(found.server_public)
            statement.check(found.proxy_public)
            signed.add(batch.statement)
            parts = receipt.charged + receipt.duplicate + receipt.rejected
            self.expect(
                statement.reports == receipt.received == parts, "a receipt does not add up to its batch"
            )
            self.expect(receipt.charged == rows[batch.batch_id], "a receipt with other charges than were made")
            self.expect(not receipt.rejected, f"{receipt.rejected} honest reports were rejected")
            self.expect(not receipt.duplicate, f"{receipt.duplicate} reports left the proxy twice")
        released = {each for epoch in found.ads.epochs(-1) for each in found.proxied.statements(epoch)}
        self.expect(released == signed, f"{len(released)} batches left the proxy, {len(signed)} were redeemed")
        self.expect(not found.proxied.undelivered(), "batches are without a receipt")
        self.expect(not found.proxied.waiting(), "reports wait in no batch")
        kept = {pair for epoch in found.ads.epochs(-1) for pair in found.proxied.settled(epoch)}
        made = {(batch.statement, batch.receipt) for batch in found.ads.batches()}
        self.expect(kept == made, "the proxy has other receipts than the ad server")
        known = (found.proxied.statement_for(n)[1] for n, (_, r) in self.records.items() if r.state in TAKEN)
        self.expect(None not in known, "a report that was taken is in no batch of the proxy's")

    def tokens(self) -> None:
        redeemed = Counter(each.menu_id for each in self.charges)
        issued = Counter(r.menu_id for _, r in self.records.values() if r.state is not ImpressionState.NEW)
        more = [menu for menu, count in redeemed.items() if count > issued[menu]]
        self.expect_none(more, "menus with more tokens redeemed than issued")
        if self.found.blinded is not None:
            words = f"{len(self.found.blinded)} tokens were asked for, and {len(self.records)} are kept"
            self.expect(len(self.found.blinded) <= len(self.records), words)

    # What devices spent of their privacy

    def accounts(self) -> None:
        for name, device in self.found.devices.items():
            account, spent = device.account(), Counter[int]()
            for record in device.records():
                if record.index is not None:
                    spent[record.window] += record.epsilon_micros
            for window, micros in spent.items():
                self.expect(micros <= device.limits.local_micros, f"{name} overspent in window {window}")
            if account.in_window is not None:
                drawn = spent[account.in_window]
                words = f"{name} paid {account.local_micros} micros of epsilon, and drew for {drawn}"
                self.expect(account.local_micros == drawn, words)
            else:
                self.expect(not any(spent.values()), f"{name} drew, and paid nothing")
            self.expect(
                account.central_micros <= device.limits.central_micros, f"{name} told the server too much"
            )
            self._commits(name, device.commits)

    def _commits(self, name: str, commits: Sequence[Kept]) -> None:
        """Every state of a journal: one choice per token, paid for when it was drawn, states in their order."""
        last: dict[bytes, ImpressionRecord] = {}
        drawn: Counter[int] = Counter()
        paid = 0
        for commit in commits:
            paid = paid if commit.spent_micros is None else commit.spent_micros
            for record in commit.records:
                before = last.get(record.nonce)
                follows = (None if before is None else before.state) in AFTER[record.state]
                self.expect(follows, f"{name} kept a state that does not follow")
                if before is not None and before.index is not None:
                    self.expect(record.index == before.index, f"{name} has drawn again for one token")
                if record.state is ImpressionState.CHOSEN and record.epsilon_micros:
                    drawn[record.window] += record.epsilon_micros
                    self.expect(drawn[record.window] <= paid, f"{name} drew before it had paid")
                last[record.nonce] = record

    def figures(self) -> BillFigures:
        accounts = [device.account() for device in self.found.devices.values()]
        states = Counter(record.state for _, record in self.records.values())
        sights = {sight.nonce for sight in self.found.sights}
        closed: Counter[str] = Counter()
        for nonce, (_, record) in self.records.items():
            if record.state is ImpressionState.CLOSED:
                why = "never seen" if nonce not in sights else "seen, never journalled"
                closed[why if record.refusal is None else record.refusal.name.lower()] += 1
        return BillFigures(
            seen=len(sights), taken=sum(states[state] for state in TAKEN), charges=len(self.charges),
            micros=sum(each.row.price_micros for each in self.charges),
            invoices=len(self.found.ads.invoices()), batches=sum(1 for _ in self.found.ads.batches()),
            tokens=len(self.records), spent_micros=sum(each.local_micros for each in accounts), closed=closed,
        )  # fmt: skip


def check_bill(evidence: Evidence) -> BillFigures:
    """Raises `StormDamage` unless charges == redeemed tokens == impressions shown and reported, per (menu,
    index, price), invoices == charges, receipts add up, and every choice was paid for and drawn once."""
    check = _Check(evidence)
    for part in (check.impressions, check.invoices, check.batches, check.tokens, check.accounts):
        part()
    if check.damage:
        raise StormDamage("\n".join(sorted(set(check.damage))))
    return check.figures()


def check_audit(evidence: Evidence, folder: Path) -> None:
    """What the ad server exports of it verifies, beside what the proxy signed and was given receipts for."""
    folder.mkdir(exist_ok=True)
    statements, receipts = folder / "statements", folder / "receipts"
    settled = [pair for epoch in evidence.ads.epochs(-1) for pair in evidence.proxied.settled(epoch)]
    statements.write_bytes(b"".join(statement for statement, _ in settled))
    receipts.write_bytes(b"".join(len(each).to_bytes(4, "big") + each for _, each in settled))
    exported = folder / "audit"
    export_folder(evidence.ads, exported, now=evidence.now)
    verified = verify_folder(
        exported, evidence.server_public, evidence.proxy_public, statements=statements, receipts=receipts
    )
    if not verified.holds:
        raise StormDamage("\n".join(map(str, verified.findings)))
    billed = sum(invoice.total_micros for invoice in evidence.ads.invoices())
    if verified.charged.micros != billed:
        raise StormDamage(f"an auditor finds {verified.charged.micros} micros, and {billed} are on invoices")
