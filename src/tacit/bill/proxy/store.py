"""What the proxy's part of billing needs kept. Every method is one transaction, on disk when it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tacit.bill.protocol.directory import DirectoryLeaf
from tacit.expect import Choice


@dataclass(frozen=True)
class NewReport:
    """A report whose token was checked, to be stored."""

    nonce: bytes
    menu_id: bytes
    data: bytes
    arrived: int  # second


class AddOutcome(Choice):
    """What became of a report that was to be stored."""

    NEW = "new"
    SAME = "same"  # the very same bytes came before
    OTHER = "other"  # the token came before, with other bytes


@dataclass(frozen=True)
class StoredMenu:
    """A menu of a directory that was countersigned."""

    leaf: DirectoryLeaf
    epoch: int
    opens: int
    closes: int
    expires: int


@dataclass(frozen=True)
class WaitingReports:
    """Reports of one menu that are in no batch yet, and the second at which the first of them came."""

    menu_id: bytes
    count: int
    since: int


@dataclass(frozen=True)
class FormedBatch:
    """A batch as it is to be stored: id, statement, and the places of its reports in their new order."""

    batch_id: bytes
    statement: bytes
    order: Sequence[int]


@dataclass(frozen=True)
class StoredBatch:
    """A batch that has no receipt yet."""

    batch_id: bytes
    statement: bytes
    reports: tuple[bytes, ...]


class BillingProxyStore(Protocol):
    """Directories, reports until they are receipted, batches. What was receipted keeps its nonce, batch and
    statement until it is forgotten, so that a device can ask for its cohort."""

    def keep_directory(self, epoch: int, directory: bytes, head: bytes, menus: Sequence[StoredMenu]) -> bytes:
        """Keep a directory and the head that was countersigned for it, and return that. Where the epoch has one
        already: that one's head if the directory is the same, else BillRefused(CONFLICT); so too where another
        epoch has one of its menus. An epoch that was forgotten gets none again: BillRefused(STALE_EPOCH)."""

    def head(self, epoch: int) -> bytes | None: ...

    def current_head(self, now: int) -> bytes | None:
        """Of the epoch that is open at this second: the highest number, where there are several."""

    def menu(self, menu_id: bytes) -> StoredMenu | None: ...

    def add_reports(self, reports: Sequence[NewReport]) -> list[AddOutcome]:
        """Store what is new, and say of each what it was."""

    def waiting(self) -> Sequence[WaitingReports]: ...

    def form_batch(
        self, menu_id: bytes, most: int, form: Callable[[Sequence[bytes]], FormedBatch]
    ) -> bytes | None:
        """Put up to `most` waiting reports of a menu into a batch: `form` is shown them, in the order in which
        they came, and says how they are shuffled. Returns the statement; None where none wait."""

    def undelivered(self) -> Sequence[bytes]:
        """Ids of batches without a receipt, the oldest first."""

    def batch(self, batch_id: bytes) -> StoredBatch | None: ...

    def settle(self, batch_id: bytes, receipt: bytes) -> None:
        """Keep the receipt and let go of the reports' bytes; the same one again: nothing, another one:
        BillRefused(CONFLICT)."""

    def statement_for(self, nonce: bytes) -> tuple[bool, bytes | None]:
        """Whether a report with this nonce is known, and the statement of its batch if it is in one."""

    def settled_for(self, nonce: bytes) -> tuple[bytes, bytes] | None:
        """Statement and receipt of the batch that a report left in; None where it has no receipt yet."""

    def has_report(self, nonce: bytes, data: bytes) -> bool:
        """Whether exactly this report is known, waiting or in a batch."""

    def settled(self, epoch: int) -> Sequence[tuple[bytes, bytes]]:
        """Statement and receipt of an epoch's batches that have one, in the order in which they were formed."""

    def statements(self, epoch: int) -> Sequence[bytes]:
        """Of all batches of an epoch, in the order in which they were formed."""

    def forget(self, expired_before: int) -> int:
        """Delete nonces, statements and directories of epochs that expired before this second and have no
        report waiting and no batch undelivered; how many epochs that were."""
