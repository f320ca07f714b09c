"""Write the folder that an auditor gets from what the ad server keeps, batch by batch, while it goes on."""

from __future__ import annotations

import csv
import io
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

from tacit import expect, files
from tacit.bill.audit.folder import (
    BATCHES,
    CAMPAIGNS,
    CHARGES,
    COLUMNS,
    FORMAT,
    INVOICE_LINES,
    INVOICES,
    MANIFEST,
    MENUS,
    SUFFIXES,
    VERSION,
    ChargeRow,
    charge_line,
    epoch_file,
    write_blob,
)
from tacit.bill.protocol.batches import BatchStatement
from tacit.bill.protocol.reports import REPORT_BYTES
from tacit.bill.server.store import Campaign, Invoice, StoredCharge, StoredEpoch, StoredRedemption, StoreRestore
from tacit.display import brief
from tacit.errors import BadInput

MOST_OPEN = 16  # files that are written to at a time: late batches of older epochs come in between


class AuditedStore(Protocol):
    """What an export reads of the ad server's store (`bill.server.store.AdStore`)."""

    def epochs(self, expire_after: int) -> Sequence[int]: ...

    def epoch(self, epoch: int) -> StoredEpoch | None: ...

    def batches(self) -> Iterator[StoredRedemption]: ...

    def charges_of(self, batch_id: bytes) -> Sequence[StoredCharge]: ...

    def campaigns(self) -> Sequence[Campaign]: ...

    def invoices(self) -> Sequence[Invoice]: ...

    def restores(self) -> Sequence[StoreRestore]: ...


@dataclass(frozen=True)
class ExportedFolder:
    """What was written, and how much of it there is."""

    folder: Path
    epochs: int
    batches: int
    reports: int
    charges: int
    invoices: int

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder)}


def export_folder(store: AuditedStore, folder: Path, *, now: int, overwrite: bool = False) -> ExportedFolder:
    """Write everything that charges rest on to a new folder, for its owner alone; `verify_folder` checks it.

    It holds what was charged, by whom and why, and no key, address or request. The folder appears whole or not
    at all; one that is there is replaced only with `overwrite`, and only if an export wrote it. Invoices are
    read first: a charge that is put on a later one meanwhile is written as it was then, on none.
    """
    expect.having("store", store, "charges_of", "an ad server's store")
    place = expect.path("folder", folder)
    expect.whole("now", now, at_least=0)
    with files.place_folder(
        place, MANIFEST, what="an export of charges", overwrite=overwrite, suffixes=SUFFIXES
    ) as building:
        building.chmod(files.PRIVATE_FOLDER_MODE)
        with _FolderWriter(building) as writer:
            invoices = store.invoices()
            _write_invoices(writer, invoices)
            known = {invoice.number for invoice in invoices}
            epochs = _EpochWriter(store, writer)
            batches = charges = reports = 0
            for batch in store.batches():
                written = epochs.add_batch(batch, known)
                batches, charges = batches + 1, charges + written
                reports += len(batch.data) // REPORT_BYTES
            for epoch in store.epochs(-1):
                epochs.add_epoch(epoch)
            names = [(each.campaign, each.advertiser) for each in store.campaigns()]
            writer.write_rows(CAMPAIGNS, names)
        record = {"format": FORMAT, "version": VERSION, "exported_at": now, "reports": reports}
        if restores := store.restores():
            record["restores"] = [asdict(each) for each in restores]
        record["files"] = {
            each.name: {"bytes": each.stat().st_size, "sha256": files.file_digest(each)}
            for each in sorted(building.iterdir())
        }
        with files.open_private(building / MANIFEST, "xb") as file:
            file.write(json.dumps(record, indent=1).encode() + b"\n")
    return ExportedFolder(place, len(epochs.written), batches, reports, charges, len(invoices))


def _write_invoices(writer: _FolderWriter, invoices: Sequence[Invoice]) -> None:
    rows = ((i.number, i.advertiser, i.closed_at, i.impressions, i.total_micros) for i in invoices)
    writer.write_rows(INVOICES, rows)
    lines = (
        (invoice.number, each.campaign, each.menu_id.hex(), each.index, each.price_micros, each.impressions)
        for invoice in invoices
        for each in invoice.lines
    )
    writer.write_rows(INVOICE_LINES, lines)


class _EpochWriter:
    """Writes epochs as their first batch comes, and those without any at the end."""

    def __init__(self, store: AuditedStore, writer: _FolderWriter) -> None:
        self._store, self._writer = store, writer
        self.written: set[int] = set()

    def __repr__(self) -> str:
        return brief(self, epochs=len(self.written))

    def add_epoch(self, epoch: int) -> None:
        if epoch in self.written:
            return
        stored = self._store.epoch(epoch)
        if stored is None or stored.head is None:
            return  # not countersigned: nothing was offered, and nothing charged
        self.written.add(epoch)
        menus = self._writer.open(epoch_file(epoch, MENUS))
        for blob in (stored.head, stored.directory, *(each.menu.data for each in stored.menus)):
            menus.write(write_blob(blob))
        self._writer.open(epoch_file(epoch, BATCHES))
        self._writer.open(epoch_file(epoch, CHARGES)).write(f"{','.join(COLUMNS[CHARGES])}\n".encode())

    def add_batch(self, batch: StoredRedemption, invoices: set[int]) -> int:
        """A batch with its charges; how many these are. Invoices that are not among these came later."""
        epoch = BatchStatement.from_bytes(batch.statement).epoch
        self.add_epoch(epoch)
        if epoch not in self.written:
            raise BadInput(f"expected the directory of epoch {epoch}, which has batches, got none")
        blobs = write_blob(batch.statement + batch.data) + write_blob(batch.receipt)
        self._writer.open(epoch_file(epoch, BATCHES)).write(blobs)
        charges = self._store.charges_of(batch.batch_id)
        lines = (
            charge_line(
                ChargeRow(
                    0, batch.batch_id, each.place, each.index, each.campaign, each.price_micros,
                    each.invoice if each.invoice in invoices else None, each.held, each.secret,
                )
            )
            for each in charges
        )  # fmt: skip
        self._writer.open(epoch_file(epoch, CHARGES)).write("".join(lines).encode())
        return len(charges)


class _FolderWriter:
    """Private files of a new folder, of which few are open at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.close()

    def open(self, name: str) -> BinaryIO:
        """The file, to be written behind what it has; good until others were opened."""
        if name not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            self._open[name] = files.open_private(self._folder / name, "ab")
        self._open.move_to_end(name)
        return self._open[name]

    def write_rows(self, name: str, rows: Iterable[Sequence[object]]) -> None:
        text = io.TextIOWrapper(self.open(name), encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS[name])
        writer.writerows(rows)
        text.detach()
