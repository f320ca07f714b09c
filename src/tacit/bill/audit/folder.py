"""The folder that an auditor gets: everything that charges rest on, and no key, address or request.

    manifest.json                    {"format", "version", "exported_at", "reports", "files": {name: {"bytes",
                                     "sha256"}}}: the second it was made, how many reports it has, its files;
                                     and "restores" where the ad server's store was put back
    campaigns.csv                    campaign,advertiser
    invoices.csv                     invoice,advertiser,closed_at,impressions,total_micros
    invoice_lines.csv                invoice,campaign,menu,index,price_micros,impressions
    epoch-NNNNNNNNNN.menus.bin       blobs: the countersigned head, the directory, then each menu
    epoch-NNNNNNNNNN.batches.bin     blobs, two per batch: its statement and reports; its receipt
    epoch-NNNNNNNNNN.charges.csv     batch,place,index,campaign,price_micros,invoice,held,secret

A blob is its length, four bytes, big-endian, and as many bytes of a message of `bill.protocol`. CSV is UTF-8
with a header and lines that end in a line feed; ids and secrets are hexadecimal, amounts whole micros, places
count from 0. Of a charge, `campaign` is empty where nothing was shown, `invoice` while it is on none, and
`held` is "yes" while its campaign cannot pay; `secret` opens the report's nonce and commitment to `index`. Rows
of charges that belong to one batch stand together.

Digests in the manifest find torn and exchanged files. They are no signature: what must not be forged is signed
inside, by the ad server and the proxy.

It must never reach the proxy, which knows who sent each report: with the openings of this folder it would know
what was shown to whom. So its files are their owner's alone, and auditors keep them so.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tacit import expect, files
from tacit.bill.protocol.batches import BATCH_ID_BYTES, STATEMENT_BYTES
from tacit.bill.protocol.tokens import SECRET_BYTES
from tacit.bill.server.store import StoreRestore
from tacit.display import brief
from tacit.errors import BadInput

FORMAT, VERSION = "tacit bill audit", 1
MANIFEST = "manifest.json"
CAMPAIGNS, INVOICES, INVOICE_LINES = "campaigns.csv", "invoices.csv", "invoice_lines.csv"
MENUS, BATCHES, CHARGES = "menus.bin", "batches.bin", "charges.csv"
COLUMNS = {
    CAMPAIGNS: ("campaign", "advertiser"),
    INVOICES: ("invoice", "advertiser", "closed_at", "impressions", "total_micros"),
    INVOICE_LINES: ("invoice", "campaign", "menu", "index", "price_micros", "impressions"),
    CHARGES: ("batch", "place", "index", "campaign", "price_micros", "invoice", "held", "secret"),
}
SUFFIXES = (".json", ".csv", ".bin")
HELD = "yes"
LENGTH_BYTES = 4
LONGEST_LINE = 2**17  # far beyond what a name of an advertiser needs
_EPOCH_FILE = re.compile(r"epoch-(\d{10})\.(menus\.bin|batches\.bin|charges\.csv)")
_DIGEST = re.compile(r"[0-9a-f]{64}")

Row = TypeVar("Row")
Complain = Callable[[str], None]
"""Told in words of what cannot be read; reading goes on behind it."""


def epoch_file(epoch: int, kind: str) -> str:
    """The name of an epoch's file of one kind: MENUS, BATCHES or CHARGES."""
    return f"epoch-{epoch:010}.{kind}"


@dataclass(frozen=True, slots=True)
class ChargeRow:
    """A charge as the folder states it."""

    line: int
    batch_id: bytes
    place: int
    index: int
    campaign: int | None
    price_micros: int
    invoice: int | None
    held: bool
    secret: bytes


@dataclass(frozen=True, slots=True)
class InvoiceRow:
    """An invoice as the folder states it; its lines are `LineRow`s."""

    invoice: int
    advertiser: str
    closed_at: int
    impressions: int
    total_micros: int


@dataclass(frozen=True, slots=True)
class LineRow:
    """A line of an invoice as the folder states it."""

    invoice: int
    campaign: int
    menu_id: bytes
    index: int
    price_micros: int
    impressions: int


@dataclass(frozen=True)
class FileRecord:
    """How long a file of the folder was when it was written, and its SHA-256."""

    size: int
    sha256: str


@dataclass(frozen=True)
class AuditFolder:
    """A folder as its manifest describes it; what is in its files is read, and doubted, one by one."""

    path: Path
    exported_at: int
    reports: int
    files: Mapping[str, FileRecord]
    restores: Sequence[StoreRestore] = ()

    def __repr__(self) -> str:
        return brief(self, path=str(self.path), epochs=len(self.epochs), reports=self.reports)

    @classmethod
    def open(cls, path: Path) -> AuditFolder:
        """The folder of this manifest; BadInput where there is none, or one of another kind or version."""
        place = expect.path("folder", path) / MANIFEST
        try:
            record = files.read_json(_expect_file(place))
        except FileNotFoundError:
            raise BadInput(
                f"expected a folder that `tacit bill export` wrote, got {path}, which has no {MANIFEST}"
            ) from None
        with files.refuse_bad_record(place, "an export of charges"):
            if record["format"] != FORMAT or record["version"] != VERSION:
                raise BadInput(f'expected "{FORMAT}" of version {VERSION}, got another format or version')
            listed = {
                _known_name(name): FileRecord(
                    expect.whole("bytes", each["bytes"], at_least=0), _digest(each["sha256"])
                )
                for name, each in record["files"].items()
            }
            made, reports = (
                expect.whole(name, record[name], at_least=0) for name in ("exported_at", "reports")
            )
            names = [each.name for each in fields(StoreRestore)]
            restores = [
                StoreRestore(*(expect.integer(name, each[name]) for name in names))
                for each in record.get("restores", ())
            ]
            return cls(Path(path), made, reports, listed, tuple(restores))

    @property
    def epochs(self) -> list[int]:
        """Numbers of all epochs that any file is of, in order."""
        found = (_EPOCH_FILE.fullmatch(name) for name in self.files)
        return sorted({int(each[1]) for each in found if each})

    def unlisted(self) -> list[str]:
        """Names that are in the folder, and not in its manifest."""
        return sorted({each.name for each in self.path.iterdir()} - {MANIFEST, *self.files})

    def campaigns(self, complain: Complain) -> Iterator[tuple[int, str]]:
        """Each campaign and its advertiser."""
        return self._named_rows(CAMPAIGNS, lambda row: (_number(row[0]), row[1]), complain)

    def invoices(self, complain: Complain) -> Iterator[InvoiceRow]:
        def parse(row: list[str]) -> InvoiceRow:
            return InvoiceRow(_number(row[0]), row[1], *(_number(text) for text in row[2:]))

        return self._named_rows(INVOICES, parse, complain)

    def invoice_lines(self, complain: Complain) -> Iterator[LineRow]:
        def parse(row: list[str]) -> LineRow:
            invoice, campaign, menu, index, price, impressions = row
            return LineRow(
                _number(invoice), _number(campaign), _hex(menu, 32), _number(index, 255), _number(price),
                _number(impressions),
            )  # fmt: skip

        return self._named_rows(INVOICE_LINES, parse, complain)

    def charges(self, epoch: int, complain: Complain) -> Iterator[ChargeRow]:
        """All charges of an epoch, in the order of the file. None of their fields is ever quoted."""
        with self._text(epoch_file(epoch, CHARGES)) as lines:
            _check_header(next(lines, "").rstrip("\n").split(","), COLUMNS[CHARGES])
            for number, line in enumerate(lines, 2):
                try:
                    yield _parse_charge(number, line)
                except ValueError:
                    complain(f"line {number}: expected a charge, got another text")

    def blobs(self, epoch: int, kind: str) -> BlobFile:
        """The blobs of an epoch's file: MENUS or BATCHES."""
        return BlobFile(self.path / epoch_file(epoch, kind))

    def _named_rows(self, name: str, parse: Callable[[list[str]], Row], complain: Complain) -> Iterator[Row]:
        """Rows that may be quoted, as names of advertisers are."""
        with self._text(name) as lines:
            reader = csv.reader(lines, strict=True)
            columns = COLUMNS[name]
            try:
                _check_header(next(reader, []), columns)
            except csv.Error:
                _check_header([], columns)
            while True:
                try:
                    row = next(reader)
                    if len(row) != len(columns):
                        raise ValueError
                    yield parse(row)
                except StopIteration:
                    return
                except (csv.Error, ValueError):
                    what = f"expected {', '.join(columns)}"
                    complain(f"line {reader.line_num}: {what}, got another text")

    def _text(self, name: str) -> _Lines:
        return _Lines(self.path / name)


class _Lines:
    """The lines of a text, none longer than a good one can be."""

    def __init__(self, path: Path) -> None:
        self._file = _expect_file(path).open(encoding="utf-8", errors="replace", newline="\n")

    def __enter__(self) -> Iterator[str]:
        return iter(lambda: self._file.readline(LONGEST_LINE), "")

    def __exit__(self, *_: object) -> None:
        self._file.close()


class BlobFile:
    """Blobs of a file, one behind the other; BadInput where the file ends within one."""

    def __init__(self, path: Path) -> None:
        self._file = _expect_file(path).open("rb")
        self._size = os.fstat(self._file.fileno()).st_size
        self.at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        while not self.ended:
            yield self.read()

    @property
    def ended(self) -> bool:
        return self.at >= self._size

    def read(self, first: int | None = None) -> bytes:
        """The next blob, or only its first bytes."""
        start = self._file.read(LENGTH_BYTES)
        length = int.from_bytes(start, "big")
        end = self.at + LENGTH_BYTES + length
        if len(start) < LENGTH_BYTES or end > self._size:  # before anything is taken of a length made up
            raise BadInput(f"expected a whole message at byte {self.at}, got the end of the file")
        found = self._file.read(length if first is None else min(first, length))
        if first is not None:
            self._file.seek(end)
        self.at = end
        return found

    def seek(self, at: int) -> None:
        self._file.seek(at)
        self.at = at


def batch_places(blobs: BlobFile) -> Iterator[tuple[bytes, int]]:
    """Each batch's id, as its statement begins with it, and where its two blobs are."""
    while not blobs.ended:
        at = blobs.at
        start = blobs.read(first=STATEMENT_BYTES)
        if len(start) < STATEMENT_BYTES:  # so that their number is bounded by the file's length
            raise BadInput(f"expected a batch at byte {at}, got fewer bytes than its statement has")
        blobs.read(first=0)
        yield start[1 : 1 + BATCH_ID_BYTES], at


def _expect_file(path: Path) -> Path:
    """FileNotFoundError for what is no file: a pipe, say, which nobody would ever write to."""
    if not path.is_file():
        raise FileNotFoundError(path)
    return path


def write_blob(blob: bytes) -> bytes:
    """The blob behind its length."""
    return len(blob).to_bytes(LENGTH_BYTES, "big") + blob


def charge_line(row: ChargeRow) -> str:
    """A charge as it stands in the file."""
    campaign, invoice = ("" if each is None else str(each) for each in (row.campaign, row.invoice))
    return (
        f"{row.batch_id.hex()},{row.place},{row.index},{campaign},{row.price_micros},{invoice},"
        f"{HELD if row.held else ''},{row.secret.hex()}\n"
    )


def _parse_charge(number: int, line: str) -> ChargeRow:
    batch, place, index, campaign, price, invoice, held, secret = line.split(",")
    if secret[-1:] != "\n" or held not in ("", HELD):
        raise ValueError
    return ChargeRow(
        number, _hex(batch, BATCH_ID_BYTES), _number(place), _number(index, 255),
        _number(campaign) if campaign else None, _number(price), _number(invoice) if invoice else None,
        held == HELD, _hex(secret[:-1], SECRET_BYTES),
    )  # fmt: skip


def _number(text: str, most: int = 2**63 - 1) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ValueError
    number = int(text)
    if number > most:
        raise ValueError
    return number


def _hex(text: str, size: int) -> bytes:
    found = bytes.fromhex(text)
    if len(text) != 2 * size or len(found) != size:
        raise ValueError
    return found


def _check_header(found: Iterable[str], columns: tuple[str, ...]) -> None:
    if tuple(found) != columns:
        raise BadInput(f"expected the columns {','.join(columns)}, got others")


def _known_name(name: str) -> str:
    of_epoch = _EPOCH_FILE.fullmatch(name)
    if name not in COLUMNS.keys() - {CHARGES} and (of_epoch is None or int(of_epoch[1]) >= 2**32):
        raise BadInput(f"expected names of files of an export, got {name[:60]!r}")
    return name


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise BadInput("expected SHA-256 in 64 hexadecimal digits, got another text")
    return text
