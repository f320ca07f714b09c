"""An auditor without keys: a good folder holds, and whatever is done to one is found, with its place."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from tacit.bill.audit import charges as charges_module
from tacit.bill.audit.findings import MOST_FINDINGS, FindingKind
from tacit.bill.audit.folder import BATCHES, CHARGES, MANIFEST, MENUS, AuditFolder, epoch_file
from tacit.bill.audit.verification import verify_folder
from tacit.bill.protocol.batches import BatchStatement, Receipt
from tacit.bill.protocol.encoding import BillVerdict
from tacit.errors import BadInput
from tests.support.billing_audits import (
    COFFEE,
    AdWorld,
    copied,
    edit_batches,
    edit_charges,
    edit_rows,
    kinds,
    play_world,
    refit,
    verify,
)
from tests.support.billing_worlds import PROXY_KEY, SERVER_KEY
from tests.support.file_mutations import mutations

ONE_OF_EACH = (epoch_file(1, MENUS), epoch_file(1, BATCHES), epoch_file(2, CHARGES))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> AdWorld:
    return play_world(tmp_path_factory.mktemp("world") / "ads.sqlite")


@pytest.fixture(scope="module")
def good(world: AdWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return world.export(tmp_path_factory.mktemp("good") / "export")


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """One's own copy, to do anything to."""
    return copied(good, tmp_path / "export")


def test_a_good_folder_holds_and_adds_up(good: Path) -> None:
    report = verify(good)
    assert report.holds
    assert report.found == 0
    assert [(each.number, each.stated_micros, each.proven_micros) for each in report.invoices] == [
        (1, 6_300, 6_300), (2, 500, 500), (3, 6_600, 6_600), (4, 500, 500),
    ]  # fmt: skip
    assert (report.epochs, report.menus, report.batches, report.reports) == (2, 4, 5, 17)
    assert (report.charged.impressions, report.charged.micros, report.nothing) == (11, 16_000, 1)
    assert {campaign: each.micros for campaign, each in report.uninvoiced.items()} == {1: 2_100}
    assert {campaign: each.micros for campaign, each in report.held.items()} == {3: 1_000}
    assert report.rejected == {BillVerdict.DUPLICATE: 1, BillVerdict.MALFORMED: 1, BillVerdict.FORGED: 1}
    assert report.charged.micros == sum(each.proven_micros for each in report.invoices) + 2_100


def test_its_json_says_the_same_and_what_no_folder_shows(good: Path) -> None:
    told = json.loads(json.dumps(verify(good).as_json()))
    assert told["holds"] is True
    assert told["charged"] == {"impressions": 11, "micros": 16_000}
    assert len(told["not_shown"]) == 5


def test_it_reads_no_private_key(good: Path, world: AdWorld) -> None:
    """All bytes of the folder: none of the ad server's private keys is among them."""
    content = b"".join(path.read_bytes() for path in good.iterdir())
    secrets = [b"s" * 32, b"p" * 32]
    for epoch in world.store.epochs(-1):
        stored = world.store.epoch(epoch)
        assert stored is not None
        secrets += [stored.sealing_key, *(each.token_key for each in stored.menus)]
    assert all(secrets)
    assert not [each for each in secrets if each in content or each.hex().encode() in content]


@pytest.mark.parametrize("name", ["invoices.csv", *ONE_OF_EACH])
def test_a_truncated_file_is_found(name: str, folder: Path) -> None:
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    assert "changed-file" in kinds(verify(folder))
    refit(folder)
    report = verify(folder)
    assert "damaged" in kinds(report)
    assert {each.file for each in report.findings if each.kind is FindingKind.DAMAGED} == {name}


@pytest.mark.parametrize("name", ["campaigns.csv", *ONE_OF_EACH])
def test_a_missing_file_is_found(name: str, folder: Path) -> None:
    (folder / name).unlink()
    assert [each.file for each in verify(folder).findings if each.kind is FindingKind.MISSING_FILE] == [name]
    refit(folder)
    assert "missing-file" in kinds(verify(folder)), "also where the manifest was fitted"


def test_a_file_more_is_found(folder: Path) -> None:
    (folder / "notes.txt").write_text("x")
    report = verify(folder)
    assert [(each.kind, each.file) for each in report.findings] == [(FindingKind.UNLISTED_FILE, "notes.txt")]


def test_names_that_would_move_a_terminal_are_shown_harmlessly(folder: Path) -> None:
    (folder / "a\n\x1b[2Jb.txt").write_text("x")
    (finding,) = verify(folder).findings
    assert finding.file == "a??[2Jb.txt"
    assert str(finding).isprintable()


@pytest.mark.parametrize("name", ["campaigns.csv", *ONE_OF_EACH])
def test_what_is_no_file_is_missing_and_waited_for_by_nobody(name: str, folder: Path) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert [each.file for each in verify(folder).findings if each.kind is FindingKind.MISSING_FILE] == [name]


def test_keys_of_others_find_nothing_signed(good: Path) -> None:
    from tacit.bill.audit.verification import verify_folder

    swapped = verify_folder(good, PROXY_KEY.public, SERVER_KEY.public)
    assert {"unsigned-head", "unsigned-batch", "unsigned-receipt"} <= kinds(swapped)
    assert all(each.proven_micros == 0 for each in swapped.invoices)
    with pytest.raises(BadInput, match="expected server_public to be 32 bytes, got 3"):
        verify_folder(good, b"abc", PROXY_KEY.public)


def _drop_last_batch(folder: Path) -> None:
    edit_batches(folder, 2, lambda blobs: blobs.__delitem__(slice(-2, None)))
    edit_charges(folder, 2, lambda rows: rows.__delitem__(slice(3, None)))


def test_the_proxys_statements_show_what_was_left_out(folder: Path, world: AdWorld, tmp_path: Path) -> None:
    statements = tmp_path / "statements.bin"
    statements.write_bytes(b"".join(world.statements))
    whole = verify(folder, statements)
    assert whole.holds
    assert (whole.statements, whole.later) == (5, 0)
    _drop_last_batch(folder)
    edit_rows(folder, "campaigns.csv", len)
    alone, beside = verify(folder), verify(folder, statements)
    assert alone.holds, "nothing is wrong with what is there"
    assert [(each.kind, each.batch) for each in beside.findings] == [
        (FindingKind.BATCH_LEFT_OUT, BatchStatement.from_bytes(world.statements[-1]).batch_id.hex())
    ]


def test_statements_that_are_older_are_no_finding(good: Path, world: AdWorld, tmp_path: Path) -> None:
    statements = tmp_path / "statements.bin"
    statements.write_bytes(b"".join(world.statements[:2]))
    report = verify(good, statements)
    assert report.holds
    assert (report.statements, report.later) == (2, 3)


def test_a_proxy_that_signed_two_batches_of_one_id_is_found(good: Path, world: AdWorld, tmp_path: Path) -> None:
    first = BatchStatement.from_bytes(world.statements[0])
    other = BatchStatement.sign(PROXY_KEY, first.batch_id, first.menu_id, first.epoch, [b"x"])
    (tmp_path / "statements.bin").write_bytes(other.to_bytes())
    assert kinds(verify(good, tmp_path / "statements.bin")) == {"other-statement"}


@pytest.mark.parametrize("content", [b"x", b"x" * 400])
def test_statements_that_the_proxy_did_not_sign_are_refused(content: bytes, good: Path, tmp_path: Path) -> None:
    (tmp_path / "statements.bin").write_bytes(content)
    with pytest.raises(BadInput, match=r"statements\.bin: expected statements that the proxy signed"):
        verify(good, tmp_path / "statements.bin")


def test_no_more_findings_are_kept_than_can_be_read(folder: Path) -> None:
    rows = [f"{'00' * 16},{place},1,1,1500,,,{'00' * 32}\n" for place in range(MOST_FINDINGS + 500)]
    with (folder / epoch_file(1, CHARGES)).open("a") as file:
        file.writelines(rows)
    refit(folder)
    report = verify(folder)
    assert len(report.findings) == MOST_FINDINGS
    assert report.counts == {FindingKind.CHARGE_WITHOUT_REPORT: MOST_FINDINGS + 500}
    assert report.found == MOST_FINDINGS + 500


def problem_with(name: str, folder: Path, *, fitted: bool) -> str | None:
    """What is wrong with how a folder is judged of which one file is damaged."""
    try:
        report = verify(folder)
    except BadInput as refusal:  # any other exception is a fault of ours
        return None if name == MANIFEST and "\n" not in str(refusal) else f"{name}: {refusal}"
    return None if fitted or name == MANIFEST or not report.holds else f"{name}: nothing was found"


@pytest.mark.parametrize("fitted", [False, True])
def test_damage_of_any_file_is_a_finding_or_refused_in_one_line(good: Path, folder: Path, fitted: bool) -> None:
    for place in sorted(good.iterdir()):
        whole = place.read_bytes()
        for broken in mutations(whole, seed=22, count=25):
            (folder / place.name).write_bytes(broken)
            if fitted and place.name != MANIFEST:
                refit(folder)
            assert problem_with(place.name, folder, fitted=fitted) is None
        (folder / place.name).write_bytes(whole)
        refit(folder)
    assert verify(folder).holds


def test_charges_that_hold_are_the_only_ones_that_damage_leaves(good: Path, folder: Path) -> None:
    """However bytes of reports and charges are changed: nothing is proven that was not charged before."""
    proven = {each.number: each.proven_micros for each in verify(good).invoices}
    draw = random.Random(22)
    for kind in (BATCHES, CHARGES, MENUS):
        whole = (good / epoch_file(1, kind)).read_bytes()
        for _ in range(60):
            at = draw.randrange(len(whole))
            broken = whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :]
            (folder / epoch_file(1, kind)).write_bytes(broken)
            refit(folder)
            report = verify(folder)
            sums = {each.number: each.proven_micros for each in report.invoices}
            if sums != proven:
                assert not report.holds
            assert sum(sums.values()) <= sum(proven.values()) + 500, (
                "at most a held charge that reads otherwise"
            )
        (folder / epoch_file(1, kind)).write_bytes(whole)


@pytest.mark.slow
def test_memory_does_not_grow_with_charges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve times the batches and charges in the same memory: what is compared goes to disk."""
    monkeypatch.setattr("tacit.bill.audit.spilled_rows.BUCKET_MEMORY", 256)
    peaks = []
    for batches in (2, 24):
        world = AdWorld(tmp_path / f"{batches}.sqlite")
        menu = world.open_epoch(1)[COFFEE]
        for _ in range(batches):
            world.redeem(menu, world.reports(menu, *[1, 2, 3, 0] * 25))
        world.store.close_invoices(1)
        folder = world.export(tmp_path / f"export-{batches}")
        verify(folder)
        tracemalloc.start()
        report = verify(folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert report.holds
        assert report.reports == 100 * batches
    assert peaks[1] < peaks[0] + 50_000, peaks  # 2,200 charges more, whose rows have 160,000 bytes


def test_only_one_batch_is_read_at_a_time(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charges are compared group by group; none is kept beyond its batch."""
    sizes: list[int] = []
    whole = charges_module._EpochCharges.check_batch

    def check(self: object, batch_id: bytes, data: bytes, receipt: bytes, rows: list[object]) -> None:
        sizes.append(len(rows))
        whole(self, batch_id, data, receipt, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(charges_module._EpochCharges, "check_batch", check)
    assert verify(good).holds
    assert sizes == [4, 2, 3, 3, 2]


def test_a_folder_can_be_opened_by_its_manifest_alone(good: Path, tmp_path: Path) -> None:
    assert AuditFolder.open(good).epochs == [1, 2]
    for place in (tmp_path, tmp_path / "nowhere", good / MANIFEST):
        with pytest.raises(BadInput, match="expected a folder that `tacit bill export` wrote"):
            verify(place)


def test_receipts_that_the_proxy_was_given_show_charges_that_are_denied(
    folder: Path, world: AdWorld, tmp_path: Path
) -> None:
    """An ad server with its own key in hand rejects a batch in another receipt, and drops its charges."""
    given = [each.receipt for each in world.store.batches()]
    receipts = tmp_path / "receipts.bin"
    receipts.write_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in given))
    keys = SERVER_KEY.public, PROXY_KEY.public
    whole = verify_folder(folder, *keys, receipts=receipts)
    assert whole.holds
    assert whole.receipts == len(given)
    denied = Receipt.from_bytes(given[0])
    other = Receipt.sign(
        SERVER_KEY, denied.batch_id, bytes([BillVerdict.UNOPENABLE]) * denied.received
    ).to_bytes()
    receipts.write_bytes(len(other).to_bytes(4, "big") + other)
    beside = verify_folder(folder, *keys, receipts=receipts)
    assert [(each.kind, each.batch) for each in beside.findings] == [
        (FindingKind.SECOND_RECEIPT, denied.batch_id.hex())
    ]


@pytest.mark.parametrize("content", [b"abc", b"\0\0\0\5abcde", b"\xff" * 40], ids=["cut", "none", "long"])
def test_receipts_that_the_ad_server_did_not_sign_are_refused(
    content: bytes, good: Path, tmp_path: Path
) -> None:
    (tmp_path / "receipts.bin").write_bytes(content)
    with pytest.raises(BadInput, match=r"receipts\.bin: expected receipts that the ad server signed"):
        verify_folder(good, SERVER_KEY.public, PROXY_KEY.public, receipts=tmp_path / "receipts.bin")
