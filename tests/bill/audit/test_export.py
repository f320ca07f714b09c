"""What an export writes: whole or not at all, for its owner alone, as of one moment, while charging goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit.bill.audit import export
from tacit.bill.audit.export import export_folder
from tacit.bill.audit.folder import CHARGES, MANIFEST, epoch_file
from tacit.bill.server.store import StoredRedemption
from tacit.errors import BadInput
from tests.support.billing_audits import COFFEE, NOW, TEA, AdWorld, play_world, verify
from tests.support.ledger_places import Place


@pytest.fixture
def world(tmp_path: Path) -> AdWorld:
    return play_world(tmp_path / "ads.sqlite")


def test_it_says_what_it_wrote(world: AdWorld, tmp_path: Path) -> None:
    written = export_folder(world.store, tmp_path / "out", now=NOW)
    assert written.as_json() == {
        "folder": str(tmp_path / "out"), "epochs": 2, "batches": 5, "reports": 17, "charges": 14, "invoices": 4,
    }  # fmt: skip
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert (manifest["exported_at"], manifest["reports"]) == (NOW, 17)


def test_both_databases_give_an_export_that_holds(place: Place, tmp_path: Path) -> None:
    world = play_world(place.where)
    report = verify(world.export(tmp_path / "out"))
    world.store.close()
    assert report.holds, report.findings
    assert (report.charged.micros, len(report.invoices)) == (16_000, 4)


def test_everything_is_its_owners_alone(world: AdWorld, tmp_path: Path) -> None:
    """The proxy, which knows who sent each report, must not find out here what was shown."""
    folder = world.export(tmp_path / "out")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_folder_is_replaced_only_where_asked_and_only_by_its_like(world: AdWorld, tmp_path: Path) -> None:
    folder = world.export(tmp_path / "out")
    before = (folder / MANIFEST).read_bytes()
    with pytest.raises(BadInput, match="which exists; say overwrite=True"):
        export_folder(world.store, folder, now=NOW + 1)
    assert (folder / MANIFEST).read_bytes() == before
    export_folder(world.store, folder, now=NOW + 1, overwrite=True)
    assert verify(folder).holds
    (folder / "thesis.doc").write_text("x")
    with pytest.raises(BadInput, match="which holds something else"):
        export_folder(world.store, folder, now=NOW, overwrite=True)
    assert (folder / "thesis.doc").exists()


def test_nothing_is_left_of_an_export_that_failed(
    world: AdWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_batch_id: bytes) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(world.store, "charges_of", fail)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match="the disk is gone"):
        world.export(tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_charged_and_invoiced_meanwhile_does_not_tear_it(
    world: AdWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invoices are closed and batches come after the export has begun: it is of the moment before."""
    batches = world.store.batches

    def interrupted() -> Iterator[StoredRedemption]:
        for number, batch in enumerate(batches()):
            if number == 1:
                menu = world.open_epoch(3)[TEA]
                world.redeem(menu, world.reports(menu, 1, 2))
                assert world.store.close_invoices(NOW + 300)
            yield batch

    monkeypatch.setattr(world.store, "batches", interrupted)
    report = verify(world.export(tmp_path / "out"))
    assert report.holds, report.findings
    assert [each.number for each in report.invoices] == [1, 2, 3, 4]
    assert report.epochs == 3
    assert report.uninvoiced[1].micros == 2 * 2_100
    monkeypatch.undo()
    later = verify(world.export(tmp_path / "later"))
    assert later.holds
    assert len(later.invoices) == 5
    assert not later.uninvoiced


def test_late_batches_of_many_epochs_find_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More epochs at once than files may be open."""
    monkeypatch.setattr(export, "MOST_OPEN", 2)
    world = AdWorld(tmp_path / "ads.sqlite")
    menus = [world.open_epoch(epoch)[COFFEE] for epoch in (1, 2, 3)]
    for _ in range(2):
        for menu in menus:
            world.redeem(menu, world.reports(menu, 1, 0))
    folder = world.export(tmp_path / "out")
    assert verify(folder).holds
    for epoch in (1, 2, 3):
        lines = (folder / epoch_file(epoch, CHARGES)).read_text().splitlines()
        assert len(lines) == 5
        assert len({line.split(",")[0] for line in lines[1:]}) == 2


def test_an_empty_store_gives_an_empty_folder_that_holds(tmp_path: Path) -> None:
    world = AdWorld(tmp_path / "ads.sqlite")
    report = verify(world.export(tmp_path / "out"))
    assert report.holds
    assert (report.epochs, report.reports, report.invoices) == (0, 0, ())


def test_an_epoch_that_nobody_countersigned_is_left_out(tmp_path: Path) -> None:
    world = AdWorld(tmp_path / "ads.sqlite")

    def refuse(_directory: bytes) -> bytes:
        raise OSError("no proxy")

    link, world.countersign = world.countersign, refuse  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError, match="no proxy"):
        world.open_epoch(1)
    world.countersign = link  # type: ignore[method-assign]
    world.open_epoch(2)
    report = verify(world.export(tmp_path / "out"))
    assert report.holds
    assert report.epochs == 1
