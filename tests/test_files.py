"""Files that are their owner's alone, from their first moment, whatever the umask lets through."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tacit import files
from tacit.bill.charges_file import write_charges
from tacit.cleanroom.protocol.audit_log import sign_receipt
from tacit.cleanroom.protocol.signatures import new_key, public_key
from tacit.data.columns import ColumnsWriter
from tacit.deliver.auction.choices import TopChoiceRule
from tacit.deliver.auction.market import Arm, show_block
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import ChainHead
from tacit.services import trial
from tacit.services.room.receipts import KeptReceipt, ReceiptFile
from tacit.store.gather_device import SqlDeviceStore
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tacit.store.room import SqlRoomStore
from tests.data.test_columns import RECORD, blocks
from tests.support.auction_blocks import smooth_block
from tests.support.ledger_places import LINE


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """Everybody may read and write whatever is not made with care."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_prepared_log(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with ColumnsWriter(folder) as writer:
        assert mode(writer.building) == 0o700
        for arrays, rows in blocks(30):
            writer.append(arrays, rows)
        assert {mode(each) for each in writer.building.iterdir()} == {0o600}
        np.save(writer.building / "listed-sensitive.npy", np.arange(3))  # as an encoder does
        writer.finish(RECORD)
    assert mode(folder) == 0o700
    found = {each.name: mode(each) for each in folder.iterdir()}
    assert found.keys() >= {"label.npy", "sensitive.npy", "listed-sensitive.npy", "columns.json"}
    assert set(found.values()) == {0o600}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_charges(tmp_path: Path, ending: str) -> None:
    place = tmp_path / f"charges.{ending}"
    shown = show_block(smooth_block(1, 20), Arm(TopChoiceRule(2.0)), Simulation("bill").words)
    write_charges([shown], place, pa.int64())
    assert mode(place) == 0o600


def test_receipts_also_where_an_older_file_was_not(tmp_path: Path) -> None:
    key = new_key(Simulation(1))
    given = [
        KeptReceipt(sign_receipt(ChainHead(number, "a" * 64), key), "asked", "answer") for number in (1, 2)
    ]
    for place in (tmp_path / "runs/receipts.jsonl", tmp_path / "old/receipts.jsonl"):
        if place.parent.name == "old":
            place.parent.mkdir()
            place.touch(0o644)
        for each in given:
            ReceiptFile(place, [public_key(key)]).keep(each)
            assert mode(place) == 0o600
        assert ReceiptFile(place, [public_key(key)]).read() == given


STORES: dict[str, Callable[[Path], object]] = {
    "proxy": SqlProxyStore.open,
    "server": SqlServerStore.open,
    "device": SqlDeviceStore.open,
    "room": lambda path: SqlRoomStore.open(path, witness=path.with_name("room.witness")),
    "ledger": lambda path: LedgerStore.open(path).grant(LINE, Budget.of(1)),
}


@pytest.mark.parametrize("name", STORES)
def test_stores_and_what_lies_beside_them(tmp_path: Path, name: str) -> None:
    store = STORES[name](tmp_path / f"{name}.sqlite")
    found = {each.name: mode(each) for each in tmp_path.iterdir()}
    assert f"{name}.sqlite" in found
    assert set(found.values()) == {0o600}, found
    del store


def test_secrets_of_a_trial(tmp_path: Path) -> None:
    trial.write_trial(tmp_path, proxy_port=1, server_port=2, entropy=Entropy())
    for each in tmp_path.iterdir():
        assert mode(each) == (0o600 if each.suffix in (".secret", ".sealing") else 0o644), each.name


def test_a_private_file(tmp_path: Path) -> None:
    place = tmp_path / "it"
    with files.open_private(place, "xb") as file:
        assert mode(place) == 0o600
        file.write(b"one")
    with pytest.raises(FileExistsError):
        files.open_private(place, "xb")
    place.chmod(0o640)
    with files.open_private(place, "ab") as file:
        assert mode(place) == 0o600
        file.write(b" two")
    assert place.read_bytes() == b"one two"
    files.make_private_folder(tmp_path / "folder")
    assert mode(tmp_path / "folder") == 0o700
    with pytest.raises(FileExistsError):
        files.make_private_folder(tmp_path / "folder")


def test_a_file_that_is_replaced_appears_whole_and_with_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "new" / "it"
    for content, durable in ((b"one", True), (b"two", False)):
        files.write_atomically(place, content, mode=0o600, durable=durable)
        assert (place.read_bytes(), mode(place)) == (content, 0o600)
    place.unlink()
    place.mkdir()  # which no file replaces
    with pytest.raises(OSError, match="directory"):
        files.write_atomically(place, b"three")
    assert list(place.parent.iterdir()) == [place]  # no draft stays


def test_the_first_to_write_a_file_once_wins(tmp_path: Path) -> None:
    place = tmp_path / "it"
    assert files.write_once(place, b"first", mode=0o600) == b"first"
    assert files.write_once(place, b"second") == b"first"
    assert (place.read_bytes(), mode(place)) == (b"first", 0o600)
    assert list(tmp_path.iterdir()) == [place]


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    lock = tmp_path / "folder" / "lock"
    with (
        pytest.raises(BadInput, match=r"^run\.folder: .*lock: no such file"),
        files.hold_lock(lock, "run.folder", "expected nobody, got another"),
    ):
        pass
    with files.hold_lock(lock, "run.folder", "expected nobody, got another", make_folder=True):
        assert mode(lock) == 0o600
        with (
            pytest.raises(BadInput, match=r"^run\.folder: expected nobody, got another$"),
            files.hold_lock(lock, "run.folder", "expected nobody, got another"),
        ):
            pass
    with files.hold_lock(lock, "run.folder", "expected nobody, got another"):
        pass


def test_new_files_are_refused_before_any_is_written(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"old")
    with pytest.raises(BadInput, match=r"^--out: expected a folder without b, got one"):
        files.write_new_files(tmp_path, {"a": (b"1", True), "b": (b"2", False)})
    assert [each.name for each in tmp_path.iterdir()] == ["b"]
