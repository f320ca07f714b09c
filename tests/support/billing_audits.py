"""A small ad server with charges of every kind, what an auditor gets of it, and hands that tamper with that."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from tacit import files
from tacit.bill.audit.export import export_folder
from tacit.bill.audit.findings import VerificationReport
from tacit.bill.audit.folder import BATCHES, CHARGES, MANIFEST, BlobFile, epoch_file, write_blob
from tacit.bill.audit.verification import verify_folder
from tacit.bill.protocol.batches import STATEMENT_BYTES, BatchStatement
from tacit.bill.protocol.menus import Lane, MenuEntry, PricedMenu
from tacit.bill.protocol.reports import REPORT_BYTES
from tacit.bill.server.party import AdServer, EpochTimes
from tacit.bill.server.store import Campaign
from tacit.entropy import Entropy
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.contexts.tree import ANYTHING
from tacit.schema.impressions import RESERVE_PRICE
from tacit.store.billing_ads import SqlAdStore
from tests.support.billing_worlds import (
    PROXY_KEY,
    REQUESTS,
    SERVER_KEY,
    a_batch,
    a_report,
    countersigned,
    token_key,
)

NOW = 1_800_000_000
COFFEE, TEA = Node((0, 1), ("Coffee", ANYTHING)), Node((0, 1), ("Tea", ANYTHING))
BEAN, LEAF, SHOES = 1, 2, 3
ADVERTISERS = {BEAN: "Bean & Leaf", LEAF: "Bean & Leaf", SHOES: 'Long "Run", Shoes'}


def menu_of(epoch: int, node: Node) -> PricedMenu:
    first = 1_500 if node == COFFEE else 2_100
    entries = (
        MenuEntry(BEAN, first, 50_000, 0.04, LEAF),
        MenuEntry(LEAF, 1_200, 30_000, 0.05, SHOES),
        MenuEntry(SHOES, 500, 10_000, 0.0625, RESERVE_PRICE),
    )
    return PricedMenu(
        epoch=epoch, lane=Lane.PERSONAL, node=node, entries=entries, rule="second price per impression",
        mechanism="trunc", epsilon_micros=1_000_000, smallest_cohort=1,
    )  # fmt: skip


class AdWorld:
    """An ad server with a store on disk; devices and proxy are played by hand, with real tokens and keys."""

    def __init__(self, place: Path | str) -> None:
        self.store = SqlAdStore.open(place)
        self.server = AdServer(
            SERVER_KEY, REQUESTS, self.store, Entropy(), proxy_public=PROXY_KEY.public, make_key=token_key
        )
        self._names = count()
        self.statements: list[bytes] = []

    def countersign(self, directory: bytes) -> bytes:
        return countersigned(directory)

    def open_epoch(self, epoch: int) -> dict[Node, PricedMenu]:
        menus = [menu_of(epoch, node) for node in (COFFEE, TEA)]
        self.server.open_epoch(menus, EpochTimes(NOW, NOW + 60, NOW + 600), self)
        return {menu.node: menu for menu in menus}

    def reports(self, menu: PricedMenu, *indices: int) -> list[bytes]:
        """An impression of each of these entries, paid for with a token of the menu's."""
        opened = self.server.load_epoch(menu.epoch)
        key = opened.by_id[menu.menu_id].key
        assert key is not None
        seal = opened.head.sealing_key
        return [a_report(menu, next(self._names), index, key, sealing_key=seal) for index in indices]

    def redeem(self, menu: PricedMenu, reports: Sequence[bytes]) -> None:
        """Charge these reports as a batch that the proxy signed."""
        batch = a_batch(menu, reports, next(self._names))
        self.server.redeem(batch.to_bytes())
        self.statements.append(batch.statement.to_bytes())

    def export(self, folder: Path) -> Path:
        export_folder(self.store, folder, now=NOW)
        return folder


def play_world(place: Path | str) -> AdWorld:
    """Two epochs: charges of several batches, nothing shown, a token spent twice, one forged, one malformed,
    charges on first and later invoices and on none, and a campaign whose money ran out."""
    world = AdWorld(place)
    put = [Campaign(number, name) for number, name in ADVERTISERS.items()]
    world.store.put_campaigns([*put[:2], Campaign(SHOES, ADVERTISERS[SHOES], budget_micros=1_200)])
    first = world.open_epoch(1)
    early = world.reports(first[COFFEE], 1, 2, 0, 1)
    world.redeem(first[COFFEE], early)
    world.redeem(first[TEA], world.reports(first[TEA], 1, 3))
    world.store.close_invoices(NOW + 100)
    late, (whole, other) = world.reports(first[COFFEE], 2, 3, 3), world.reports(first[COFFEE], 1, 1)
    forged, malformed = whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], b"\x02" + other[1:]
    world.redeem(first[COFFEE], [early[0], *late, forged, malformed])
    second = world.open_epoch(2)
    world.redeem(second[TEA], world.reports(second[TEA], 1, 1, 2))
    world.store.close_invoices(NOW + 200)
    world.redeem(second[TEA], world.reports(second[TEA], 1, 3))
    return world


PARTIES = """\
[proxy]
url = "http://127.0.0.1:8471"
public_key = "{proxy}"
signing_key = "{proxy}"
[server]
url = "http://127.0.0.1:8472"
public_key = "{server}"
signing_key = "{server}"
"""


def write_parties(place: Path) -> None:
    """What an auditor knows of the parties of such a world."""
    place.write_text(PARTIES.format(proxy=PROXY_KEY.public.hex(), server=SERVER_KEY.public.hex()))


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def verify(folder: Path, statements: Path | None = None) -> VerificationReport:
    return verify_folder(folder, SERVER_KEY.public, PROXY_KEY.public, statements=statements)


def kinds(report: VerificationReport) -> set[str]:
    return {str(kind) for kind in report.counts}


def refit(folder: Path) -> None:
    """Fit the manifest to the files again, as whoever tampers with one would."""
    record = json.loads((folder / MANIFEST).read_text())
    record["files"] = {
        each.name: {"bytes": each.stat().st_size, "sha256": files.file_digest(each)}
        for each in folder.iterdir()
        if each.name != MANIFEST
    }
    (folder / MANIFEST).write_text(json.dumps(record))


def edit_rows(folder: Path, name: str, edit: Callable[[list[dict[str, str]]], object]) -> None:
    """Change the rows of a CSV in place."""
    with (folder / name).open(newline="") as file:
        reader = csv.DictReader(file)
        rows, columns = list(reader), reader.fieldnames or ()
    edit(rows)
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    refit(folder)


def edit_charges(folder: Path, epoch: int, edit: Callable[[list[dict[str, str]]], object]) -> None:
    edit_rows(folder, epoch_file(epoch, CHARGES), edit)


def edit_blobs(folder: Path, name: str, edit: Callable[[list[bytes]], object]) -> None:
    """Change the blobs of a file in place."""
    with BlobFile(folder / name) as file:
        blobs = list(file)
    edit(blobs)
    (folder / name).write_bytes(b"".join(map(write_blob, blobs)))
    refit(folder)


def edit_batches(folder: Path, epoch: int, edit: Callable[[list[bytes]], object]) -> None:
    edit_blobs(folder, epoch_file(epoch, BATCHES), edit)


def split_batch(blob: bytes) -> tuple[BatchStatement, list[bytes]]:
    """A batch's statement and its reports, whether they are those that it is of or not."""
    reports = [blob[at : at + REPORT_BYTES] for at in range(STATEMENT_BYTES, len(blob), REPORT_BYTES)]
    return BatchStatement.from_bytes(blob[:STATEMENT_BYTES]), reports
