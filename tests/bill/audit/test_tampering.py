"""Forty ways to tamper with an export, with the manifest fitted to it: each is found, for what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.bill.audit.findings import FindingKind
from tacit.bill.audit.folder import BATCHES, CHARGES, MENUS, epoch_file
from tacit.bill.protocol.batches import BatchStatement, Receipt
from tacit.bill.protocol.directory import Directory, DirectoryLeaf, EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import SigningKey
from tacit.bill.protocol.menus import PricedMenu
from tests.support.billing_audits import (
    COFFEE,
    TEA,
    copied,
    edit_batches,
    edit_blobs,
    edit_charges,
    edit_rows,
    kinds,
    menu_of,
    play_world,
    split_batch,
    verify,
)
from tests.support.billing_worlds import PROXY_KEY, SERVER_KEY, numbered_key

Rows = list[dict[str, str]]
STRANGER = SigningKey(b"x" * 32)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tampering")
    return play_world(place / "ads.sqlite").export(place / "export")


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """One's own copy, to do anything to."""
    return copied(good, tmp_path / "export")


# What is done, and what must be found at which file; "epoch 1, batch 0" is the first batch of coffee.

Tampering = Callable[[Path], object]


def _cheaper(rows: Rows) -> None:
    rows[0]["price_micros"] = "1499"


def _dearer_entry(rows: Rows) -> None:
    """From 1,200 to 1,500 micros, with campaign and price to match: only the commitment knows."""
    rows[1] |= {"index": "1", "campaign": "1", "price_micros": "1500"}


def _forge_token(blobs: list[bytes]) -> None:
    """In a batch of its own, signed by the proxy, so that all else fits."""
    _resign(blobs, 0, lambda reports: [reports[0][:70] + b"\0" * 8 + reports[0][78:], *reports[1:]])


def _resign(blobs: list[bytes], number: int, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    """Other reports in a batch that the proxy signed as they are: two parties who work together."""
    statement, reports = split_batch(blobs[2 * number])
    reports = edit(reports)
    signed = BatchStatement.sign(PROXY_KEY, statement.batch_id, statement.menu_id, statement.epoch, reports)
    blobs[2 * number] = signed.to_bytes() + b"".join(reports)


def _resign_receipt(
    blobs: list[bytes], number: int, edit: Callable[[bytearray], object], key: SigningKey
) -> None:
    receipt = Receipt.from_bytes(blobs[2 * number + 1])
    verdicts = bytearray(receipt.verdicts)
    edit(verdicts)
    blobs[2 * number + 1] = Receipt.sign(key, receipt.batch_id, bytes(verdicts)).to_bytes()


def _set_verdict(number: int, place: int, verdict: BillVerdict) -> Callable[[list[bytes]], None]:
    def edit(blobs: list[bytes]) -> None:
        def change(verdicts: bytearray) -> None:
            verdicts[place] = verdict

        _resign_receipt(blobs, number, change, SERVER_KEY)

    return edit


def _foreign_batch(blobs: list[bytes]) -> None:
    statement, reports = split_batch(blobs[0])
    signed = BatchStatement.sign(STRANGER, statement.batch_id, statement.menu_id, statement.epoch, reports)
    blobs[0] = signed.to_bytes() + b"".join(reports)


def _reorder(blobs: list[bytes]) -> None:
    statement, reports = split_batch(blobs[0])
    blobs[0] = statement.to_bytes() + b"".join(reversed(reports))


def _other_menu_in_batch(blobs: list[bytes]) -> None:
    """A report of tea in a batch of coffee."""
    _, others = split_batch(blobs[2])
    _resign(blobs, 0, lambda reports: [others[0], *reports[1:]])


def _repeat_report(blobs: list[bytes]) -> None:
    """The first report once more in place of the last, accepted again: two parties who work together."""
    _resign(blobs, 0, lambda reports: [*reports[:3], reports[0]])


def _repeat_charge(rows: Rows) -> None:
    rows[3]["secret"] = rows[0]["secret"]


def _charge_twice(folder: Path) -> None:
    edit_batches(folder, 1, _repeat_report)
    edit_charges(folder, 1, _repeat_charge)


def _swap_menus(blobs: list[bytes]) -> None:
    """Prices of coffee another, in a menu that was never listed."""
    menu = PricedMenu.from_bytes(blobs[2])
    dearer = replace(menu.entries[0], price_micros=9_999)
    blobs[2] = replace(menu, entries=(dearer, *menu.entries[1:])).data


def _other_directory(blobs: list[bytes]) -> None:
    """A directory that lists that menu, signed by the ad server alone."""
    menus = [menu_of(1, COFFEE), replace(menu_of(1, TEA), smallest_cohort=9)]
    head = EpochHead.from_bytes(blobs[0])
    leaves = [DirectoryLeaf.of(menu, numbered_key(place).public) for place, menu in enumerate(menus)]
    made = Directory.make(
        leaves, epoch=1, opens=head.opens, closes=head.closes, expires=head.expires,
        sealing_key=head.sealing_key,
    )  # fmt: skip
    signed = made.head.signed_by_server(SERVER_KEY)
    blobs[:2] = [signed.to_bytes(), made.with_head(signed).to_bytes()]


def _directory_alone(blobs: list[bytes]) -> None:
    head = blobs[0]
    _other_directory(blobs)
    blobs[0] = head


def _second_root(folder: Path) -> None:
    """Under the name of an epoch that is not there, another root of epoch 1 that both parties signed."""
    for kind in (MENUS, BATCHES, CHARGES):
        content = (folder / epoch_file(1, kind)).read_bytes()
        if kind == BATCHES:
            content = b""
        elif kind == CHARGES:
            content = content.partition(b"\n")[0] + b"\n"
        (folder / epoch_file(3, kind)).write_bytes(content)

    def countersign(blobs: list[bytes]) -> None:
        _other_directory(blobs)
        head = EpochHead.from_bytes(blobs[0])
        blobs[0] = head.countersigned(PROXY_KEY).to_bytes()

    edit_blobs(folder, epoch_file(3, MENUS), countersign)


def _on_two_invoices(folder: Path) -> None:
    """One charge of Bean & Leaf's on the next invoice too, with lines and totals that fit it."""

    def line(rows: Rows) -> None:
        rows.append({**rows[1], "invoice": "3"})

    def total(rows: Rows) -> None:
        rows[2] |= {"impressions": "5", "total_micros": "8700"}

    edit_rows(folder, "invoice_lines.csv", line)
    edit_rows(folder, "invoices.csv", total)


def _row_on_two_invoices(rows: Rows) -> None:
    rows.insert(1, {**rows[0], "invoice": "3"})


def _to_another_invoice(rows: Rows) -> None:
    rows[0]["invoice"] = "3"


def _total_off_by_one(rows: Rows) -> None:
    rows[0]["total_micros"] = "6301"


def _line_off_by_one(rows: Rows) -> None:
    rows[0]["impressions"] = "3"


def _another_advertiser(rows: Rows) -> None:
    rows[0]["advertiser"] = "Somebody"


CASES: dict[str, tuple[Tampering, FindingKind, str]] = {
    "price changed": (lambda at: edit_charges(at, 1, _cheaper), FindingKind.WRONG_PRICE, CHARGES),
    "index shifted to a dearer entry": (
        lambda at: edit_charges(at, 1, _dearer_entry), FindingKind.WRONG_OPENING, CHARGES,
    ),
    "no such entry": (
        lambda at: edit_charges(at, 1, lambda rows: rows[0].update(index="4")),
        FindingKind.NO_SUCH_ENTRY, CHARGES,
    ),
    "campaign of a charge changed": (
        lambda at: edit_charges(at, 1, lambda rows: rows[0].update(campaign="3")),
        FindingKind.WRONG_CAMPAIGN, CHARGES,
    ),
    "charge dropped": (
        lambda at: edit_charges(at, 1, lambda rows: rows.pop(0)), FindingKind.NOT_CHARGED, BATCHES,
    ),
    "charge repeated": (
        lambda at: edit_charges(at, 1, lambda rows: rows.insert(0, rows[0])),
        FindingKind.CHARGED_TWICE, CHARGES,
    ),
    "token charged twice, with both parties' help": (_charge_twice, FindingKind.CHARGED_TWICE, CHARGES),
    "charge of a report that is not there": (
        lambda at: edit_charges(at, 1, lambda rows: rows[0].update(place="77")),
        FindingKind.CHARGE_WITHOUT_REPORT, CHARGES,
    ),
    "charge of a batch that is not there": (
        lambda at: edit_charges(at, 1, lambda rows: rows[0].update(batch="00" * 16)),
        FindingKind.CHARGE_WITHOUT_REPORT, CHARGES,
    ),
    "held charge on an invoice": (
        lambda at: edit_charges(at, 1, lambda rows: rows[-1].update(invoice="4")),
        FindingKind.WRONGLY_INVOICED, CHARGES,
    ),
    "nothing shown on an invoice": (
        lambda at: edit_charges(at, 1, lambda rows: rows[2].update(invoice="1")),
        FindingKind.WRONGLY_INVOICED, CHARGES,
    ),
    "forged token": (lambda at: edit_batches(at, 1, _forge_token), FindingKind.FORGED_TOKEN, CHARGES),
    "report of another menu": (
        lambda at: edit_batches(at, 1, _other_menu_in_batch), FindingKind.FOREIGN_REPORT, CHARGES,
    ),
    "foreign batch": (lambda at: edit_batches(at, 1, _foreign_batch), FindingKind.UNSIGNED_BATCH, BATCHES),
    "reordered reports": (lambda at: edit_batches(at, 1, _reorder), FindingKind.CHANGED_REPORTS, BATCHES),
    "batch twice": (
        lambda at: edit_batches(at, 1, lambda blobs: blobs.extend(blobs[:2])), FindingKind.BATCH_TWICE, BATCHES,
    ),
    "batch of another epoch": (lambda at: _move_batch(at), FindingKind.MISPLACED_BATCH, BATCHES),
    "receipt altered": (
        lambda at: edit_batches(at, 1, lambda blobs: _resign_receipt(blobs, 0, len, STRANGER)),
        FindingKind.UNSIGNED_RECEIPT, BATCHES,
    ),
    "receipt of another batch": (
        lambda at: edit_batches(at, 1, lambda blobs: blobs.__setitem__(1, blobs[3])),
        FindingKind.OTHER_RECEIPT, BATCHES,
    ),
    "rejected and charged": (
        lambda at: edit_batches(at, 1, _set_verdict(0, 0, BillVerdict.UNOPENABLE)),
        FindingKind.CHARGED_THOUGH_REJECTED, CHARGES,
    ),
    "called forged, and is not": (
        lambda at: _reject_first(at, BillVerdict.FORGED), FindingKind.WRONGLY_REJECTED, BATCHES,
    ),
    "called malformed, and is not": (
        lambda at: _reject_first(at, BillVerdict.MALFORMED), FindingKind.WRONGLY_REJECTED, BATCHES,
    ),
    "called of another menu, and is not": (
        lambda at: _reject_first(at, BillVerdict.UNKNOWN_MENU), FindingKind.WRONGLY_REJECTED, BATCHES,
    ),
    "called a duplicate, and is not": (
        lambda at: edit_batches(at, 1, _set_verdict(2, 4, BillVerdict.DUPLICATE)),
        FindingKind.WRONGLY_REJECTED, BATCHES,
    ),
    "rejected for no reason that there is": (
        lambda at: _reject_first(at, BillVerdict.NONE_LEFT), FindingKind.WRONGLY_REJECTED, BATCHES,
    ),
    "accepted, and malformed": (
        lambda at: edit_batches(at, 1, _set_verdict(2, 5, BillVerdict.ACCEPTED)),
        FindingKind.NOT_CHARGED, BATCHES,
    ),
    "swapped menus": (
        lambda at: edit_blobs(at, epoch_file(1, MENUS), _swap_menus), FindingKind.UNLISTED_MENU, MENUS,
    ),
    "missing menu": (
        lambda at: edit_blobs(at, epoch_file(1, MENUS), lambda blobs: blobs.pop()),
        FindingKind.MISSING_MENU, MENUS,
    ),
    "head that the proxy did not sign": (
        lambda at: edit_blobs(at, epoch_file(1, MENUS), _other_directory), FindingKind.UNSIGNED_HEAD, MENUS,
    ),
    "directory of another root": (
        lambda at: edit_blobs(at, epoch_file(1, MENUS), _directory_alone), FindingKind.OTHER_DIRECTORY, MENUS,
    ),
    "second root": (_second_root, FindingKind.SECOND_ROOT, MENUS),
    "epoch under another number": (_second_root, FindingKind.MISPLACED_EPOCH, MENUS),
    "invoice total off by one micro": (
        lambda at: edit_rows(at, "invoices.csv", _total_off_by_one), FindingKind.TOTAL_DIFFERS, "invoices.csv",
    ),
    "line off by one impression": (
        lambda at: edit_rows(at, "invoice_lines.csv", _line_off_by_one),
        FindingKind.LINE_DIFFERS, "invoice_lines.csv",
    ),
    "line dropped": (
        lambda at: edit_rows(at, "invoice_lines.csv", lambda rows: rows.pop(0)),
        FindingKind.LINE_DIFFERS, "invoice_lines.csv",
    ),
    "line twice": (
        lambda at: edit_rows(at, "invoice_lines.csv", lambda rows: rows.append(rows[0])),
        FindingKind.LINE_DIFFERS, "invoice_lines.csv",
    ),
    "line of another campaign": (
        lambda at: edit_rows(at, "invoice_lines.csv", lambda rows: rows[0].update(campaign="2")),
        FindingKind.LINE_DIFFERS, "invoice_lines.csv",
    ),
    "a charge on two invoices": (_on_two_invoices, FindingKind.LINE_DIFFERS, "invoice_lines.csv"),
    "a charge on two invoices, in two rows": (
        lambda at: edit_charges(at, 1, _row_on_two_invoices), FindingKind.CHARGED_TWICE, CHARGES,
    ),
    "a charge on another invoice": (
        lambda at: edit_charges(at, 1, _to_another_invoice), FindingKind.LINE_DIFFERS, "invoice_lines.csv",
    ),
    "an invoice left out": (
        lambda at: edit_rows(at, "invoices.csv", lambda rows: rows.pop(0)),
        FindingKind.UNKNOWN_INVOICE, "invoice_lines.csv",
    ),
    "an invoice twice": (
        lambda at: edit_rows(at, "invoices.csv", lambda rows: rows.append(rows[0])),
        FindingKind.INVOICE_TWICE, "invoices.csv",
    ),
    "campaign of another advertiser": (
        lambda at: edit_rows(at, "campaigns.csv", _another_advertiser),
        FindingKind.WRONG_ADVERTISER, "invoices.csv",
    ),
    "campaign of two advertisers": (
        lambda at: edit_rows(at, "campaigns.csv", lambda rows: rows.append({**rows[0], "advertiser": "B"})),
        FindingKind.WRONG_ADVERTISER, "campaigns.csv",
    ),
    "campaign of nobody": (
        lambda at: edit_rows(at, "campaigns.csv", lambda rows: rows.pop(0)),
        FindingKind.UNKNOWN_CAMPAIGN, "campaigns.csv",
    ),
}  # fmt: skip


def _move_batch(folder: Path) -> None:
    """The first batch, and its charges, among those of the next epoch."""
    moved: list[bytes] = []
    rows: Rows = []
    edit_batches(folder, 1, lambda blobs: moved.extend(blobs.pop(0) for _ in range(2)))
    edit_charges(folder, 1, lambda old: rows.extend(old.pop(0) for _ in range(4)))
    edit_batches(folder, 2, lambda blobs: blobs.extend(moved))
    edit_charges(folder, 2, lambda new: new.extend(rows))


def _reject_first(folder: Path, verdict: BillVerdict) -> None:
    """Not charged, with a receipt that says why: the device, or the publisher, would be cheated."""
    edit_batches(folder, 1, _set_verdict(0, 0, verdict))
    edit_charges(folder, 1, lambda rows: rows.pop(0))


@pytest.mark.parametrize("name", CASES)
def test_what_was_done_is_found(name: str, folder: Path) -> None:
    tamper, kind, file = CASES[name]
    tamper(folder)
    report = verify(folder)
    assert not report.holds
    found = [each for each in report.findings if each.kind is kind]
    assert found, kinds(report)
    assert any(each.file.endswith(file) for each in found)
    assert "changed-file" not in kinds(report), "the manifest was fitted, so that the rest was looked at"


def test_every_kind_of_finding_is_met_by_some_test() -> None:
    elsewhere = {
        FindingKind.MISSING_FILE, FindingKind.CHANGED_FILE, FindingKind.UNLISTED_FILE, FindingKind.DAMAGED,
        FindingKind.BATCH_LEFT_OUT, FindingKind.OTHER_STATEMENT, FindingKind.SECOND_RECEIPT,
        FindingKind.STORE_PUT_BACK,
    }  # fmt: skip
    assert {kind for _, kind, _ in CASES.values()} | elsewhere == set(FindingKind)


def test_a_shifted_charge_is_not_proven_for_its_invoice(folder: Path) -> None:
    edit_charges(folder, 1, _dearer_entry)
    (first, *_) = verify(folder).invoices
    assert (first.stated_micros, first.proven_micros) == (6_300, 5_100)


def test_a_token_that_is_charged_twice_is_proven_once(folder: Path) -> None:
    _charge_twice(folder)
    (first, *_) = verify(folder).invoices
    assert (first.stated_micros, first.proven_micros) == (6_300, 4_800)


def test_a_finding_says_where(folder: Path) -> None:
    edit_charges(folder, 1, _cheaper)
    (first,) = (each for each in verify(folder).findings if each.kind is FindingKind.WRONG_PRICE)
    assert (first.epoch, first.place) == (1, 0)
    batch = (folder / epoch_file(1, CHARGES)).read_text().splitlines()[1].split(",")[0]
    assert first.batch == batch
    assert str(first) == (
        f"wrong-price: epoch-0000000001.charges.csv, batch {batch}, report 0: line 2: expected the menu's "
        "price of 1500 micros, got 1499"
    )
