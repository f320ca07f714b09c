"""What the ad server's part of billing needs kept. Every method is one transaction, on disk when it returns.

A charge row is the spent token: its nonce is the key. A foreign key ties menu, index and price to the menu's
own entry, so that no other price can be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import PricedMenu


@dataclass(frozen=True)
class KeptMenu:
    """A menu and the private key that signs its tokens, as bytes; empty once the key was deleted."""

    menu: PricedMenu
    token_key: bytes = field(repr=False)


@dataclass(frozen=True)
class StoredEpoch:
    """An epoch as the ad server has it.

    directory    its directory, signed by the ad server
    head         the head with both signatures; None until the proxy has countersigned
    sealing_key  the private key that opens its reports; empty once it was deleted
    """

    directory: bytes
    head: bytes | None
    menus: tuple[KeptMenu, ...]
    sealing_key: bytes = field(repr=False)


@dataclass(frozen=True)
class EpochLimits:
    """How many tokens of each menu of a new epoch may be signed: as many as its campaigns can pay for.

    most    by the menu's id
    opens   the second at which the epoch opens, for what is counted by day
    after   the last epoch that was kept when campaigns' money was counted; None: there was none
    """

    most: Mapping[bytes, int]
    opens: int
    after: int | None


@dataclass(frozen=True)
class GrantedTokens:
    """Tokens of a menu that were set aside to be signed, and how many could still be."""

    given: int
    room: int


@dataclass(frozen=True)
class RedeemedReport:
    """A report of a batch, checked: its verdict so far, and what a charge is made of where it was accepted."""

    verdict: BillVerdict
    nonce: bytes = b""
    index: int = 0
    price_micros: int = 0
    campaign: int | None = None  # None where nothing was shown
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class RedeemedBatch:
    """All reports of a batch, in its order, with their bytes for the auditor."""

    batch_id: bytes
    menu_id: bytes
    statement: bytes
    data: bytes = field(repr=False)
    reports: tuple[RedeemedReport, ...]


@dataclass(frozen=True)
class StoredRedemption:
    """A batch that was charged, as an auditor gets it: who signed what, and the reports in their order."""

    batch_id: bytes
    menu_id: bytes
    statement: bytes
    data: bytes = field(repr=False)
    receipt: bytes


@dataclass(frozen=True)
class StoredCharge:
    """A spent token: its place in the batch, what it was charged, and the secret that opens its commitment.

    campaign  None where nothing was shown
    held      whether the charge waits until its campaign has money
    invoice   the number of the invoice that it is on, if any
    """

    place: int
    nonce: bytes
    index: int
    price_micros: int
    campaign: int | None
    secret: bytes = field(repr=False)
    held: bool
    invoice: int | None


@dataclass(frozen=True)
class Campaign:
    """Who pays: a campaign's advertiser, and what it may be charged in all (None: without limit)."""

    campaign: int
    advertiser: str
    budget_micros: int | None = None
    charged_micros: int = 0


@dataclass(frozen=True)
class InvoiceLine:
    """Charges of one entry of one menu: how often, at which price, why."""

    campaign: int
    menu_id: bytes
    index: int
    price_micros: int
    impressions: int

    @property
    def total_micros(self) -> int:
        return self.price_micros * self.impressions


@dataclass(frozen=True)
class Invoice:
    """What one advertiser owes: all charges that were on no invoice when it was closed."""

    number: int
    advertiser: str
    closed_at: int
    lines: tuple[InvoiceLine, ...]

    @property
    def total_micros(self) -> int:
        return sum(line.total_micros for line in self.lines)

    @property
    def impressions(self) -> int:
        return sum(line.impressions for line in self.lines)


@dataclass(frozen=True)
class StoreRestore:
    """When a store was put back to an older state, and what it lacks since.

    batches       that it had left
    lost_batches  that were redeemed and are gone, as far as anybody knows
    last_epoch    the last number of an epoch, and of an invoice, that others have seen
    """

    at: int
    batches: int
    lost_batches: int
    last_epoch: int
    last_invoice: int


SignReceipt = Callable[[bytes], bytes]
"""From verdicts, one byte per report, to a signed receipt."""


class AdStore(Protocol):
    """Epochs with their menus and keys, spent tokens, charges, campaigns and invoices."""

    def opening_turn(self) -> AbstractContextManager[None]:
        """Held by whoever opens an epoch: other processes that want to wait for their turn."""

    def keep_epoch(self, epoch: int, stored: StoredEpoch, limits: EpochLimits | None = None) -> None:
        """Keep a new epoch, and with it how many of its tokens may be signed; again the same: nothing; another
        under the same number, or limits that were counted before another was kept: BillRefused(CONFLICT)."""

    def publish_epoch(self, epoch: int, head: bytes) -> None:
        """Keep the countersigned head."""

    def epochs(self, expire_after: int) -> Sequence[int]:
        """Numbers of epochs that expire after this second, in order."""

    def published_epochs(self, expire_after: int) -> Sequence[int]:
        """Those of them that have both signatures and their keys, in order."""

    def last_epoch(self) -> int | None:
        """The largest number that was ever used."""

    def epoch(self, epoch: int) -> StoredEpoch | None: ...

    def menu(self, menu_id: bytes) -> PricedMenu | None: ...

    def redeem(self, batch: RedeemedBatch, sign: SignReceipt) -> bytes:
        """Charge a batch and keep its receipt, in one transaction; a batch that is known gets the receipt that
        it got. A token that was spent before is a duplicate. What its campaign cannot pay is held
        (OVER_BUDGET): the token is spent, and the charge is made when the budget is raised."""

    def receipt(self, batch_id: bytes) -> bytes | None: ...

    def batches(self) -> Iterator[StoredRedemption]:
        """All batches, the oldest first, read page by page."""

    def charges_of(self, batch_id: bytes) -> Sequence[StoredCharge]:
        """The charges of a batch in its order, those that are held too; none of a batch that is unknown."""

    def restores(self) -> Sequence[StoreRestore]:
        """When this store was put back to an older state, in order."""

    def put_campaigns(self, campaigns: Sequence[Campaign]) -> None:
        """Add campaigns, or give those that are there another budget; who pays for one never changes. Charges
        that were held and can now be paid for are made, the oldest first."""

    def campaigns(self) -> Sequence[Campaign]: ...

    def held_micros(self) -> dict[int, int]:
        """What is held by campaign, where anything is."""

    def close_invoices(self, now: int) -> Sequence[Invoice]:
        """Put every charge that is on no invoice on a new one, one per advertiser; those without get none."""

    def invoices(self) -> Sequence[Invoice]: ...

    def totals(self) -> Sequence[InvoiceLine]:
        """All charges that were made, invoiced or not, by menu and index; those of nothing shown too, whose
        campaign is -1."""

    def reported(self, epoch: int) -> Mapping[bytes, Mapping[int, int]]:
        """How often each index was reported, by the menu's id, of the menus of one epoch; held ones too."""

    def forget_keys(self, expired_before: int) -> int:
        """Delete the private keys of epochs that expired before this second; how many epochs that were."""
