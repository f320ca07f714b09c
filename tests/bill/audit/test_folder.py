"""The files of an export: what is written is read again, and what is not what it should be is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.bill.audit.folder import (
    CHARGES,
    COLUMNS,
    LONGEST_LINE,
    MANIFEST,
    AuditFolder,
    BlobFile,
    ChargeRow,
    charge_line,
    epoch_file,
    write_blob,
)
from tacit.errors import BadInput

ROW = ChargeRow(2, b"b" * 16, 7, 3, 12, 1_500, 4, held=False, secret=b"s" * 32)


def a_folder(place: Path, **changed: Any) -> Path:
    record = {
        "format": "tacit bill audit",
        "version": 1,
        "exported_at": 1,
        "reports": 2,
        "files": {},
        **changed,
    }
    place.mkdir()
    (place / MANIFEST).write_text(json.dumps(record))
    return place


def charges_of(place: Path, *lines: str) -> tuple[list[ChargeRow], list[str]]:
    folder = AuditFolder.open(a_folder(place))
    said: list[str] = []
    (place / epoch_file(1, CHARGES)).write_text(",".join(COLUMNS[CHARGES]) + "\n" + "".join(lines))
    return list(folder.charges(1, said.append)), said


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        ChargeRow(2, b"\0" * 16, 0, 0, None, 0, None, held=False, secret=b"\xff" * 32),
        ChargeRow(2, b"b" * 16, 99_999, 250, 2**63 - 1, 2**40, None, held=True, secret=b"s" * 32),
    ],
)
def test_a_charge_is_read_as_it_was_written(row: ChargeRow, tmp_path: Path) -> None:
    assert charges_of(tmp_path / "out", charge_line(row)) == ([row], [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (",7,", ",-7,"), (",7,", ",7.0,"), (",7,", ",,"), (",3,", ",256,"), (",1500,", f",{2**63},"),
        (",7,", ",²,"),
        ("62" * 16, "62" * 15), ("62" * 16, "62 " * 16), ("73" * 32, "7g" * 32), (",4,,", ",4,no,"),
        (",4,,", ",4,"), ("\n", ""), ("\n", ",\n"), (",1500,", "," + "9" * 5000 + ","),
        ("73" * 32, "73" * LONGEST_LINE),
    ],
)  # fmt: skip
def test_another_spelling_is_complained_about_and_passed_over(old: str, new: str, tmp_path: Path) -> None:
    broken = charge_line(ROW).replace(old, new, 1)
    assert broken != charge_line(ROW)
    found, said = charges_of(tmp_path / "out", broken if broken.endswith("\n") else broken + "x\n")
    assert found == []
    assert all(each.startswith("line ") and "expected a charge, got another text" in each for each in said)
    assert said


def test_reading_goes_on_behind_a_bad_line(tmp_path: Path) -> None:
    found, said = charges_of(tmp_path / "out", "nonsense\n", charge_line(ROW))
    assert [each.line for each in found] == [3]
    assert said == ["line 2: expected a charge, got another text"]


def test_names_of_advertisers_may_have_anything(tmp_path: Path) -> None:
    place = a_folder(tmp_path / "out")
    (place / "campaigns.csv").write_text('campaign,advertiser\n1,"A ""b"", c\nd"\n2,é\nx,y\n3,"open\n')
    said: list[str] = []
    assert list(AuditFolder.open(place).campaigns(said.append)) == [(1, 'A "b", c\nd'), (2, "é")]
    assert len(said) == 2


def test_another_header_is_refused(tmp_path: Path) -> None:
    place = a_folder(tmp_path / "out")
    for name in ("campaigns.csv", "invoices.csv", "invoice_lines.csv", epoch_file(1, CHARGES)):
        (place / name).write_text("a,b\n")
    folder = AuditFolder.open(place)
    for read in (folder.campaigns, folder.invoices, folder.invoice_lines, lambda say: folder.charges(1, say)):
        with pytest.raises(BadInput, match="expected the columns"):
            list(read(print))


def test_blobs_end_where_the_file_does(tmp_path: Path) -> None:
    place = tmp_path / "blobs"
    place.write_bytes(write_blob(b"one") + write_blob(b"") + write_blob(b"three"))
    with BlobFile(place) as file:
        assert list(file) == [b"one", b"", b"three"]
        file.seek(0)
        assert file.read(first=2) == b"on"
        assert file.read() == b""
    whole = place.read_bytes()
    for cut in range(1, len(whole)):
        place.write_bytes(whole[:cut])
        with BlobFile(place) as file:
            try:
                assert b"".join(map(write_blob, file)) == whole[:cut]
            except BadInput as refusal:
                assert "expected a whole message at byte" in str(refusal)  # noqa: PT017


def test_a_length_that_was_made_up_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_bytes(b"\xff\xff\xff\xff" + b"x" * 10)
    with BlobFile(tmp_path / "blobs") as file, pytest.raises(BadInput, match="got the end of the file"):
        file.read()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": 2}, 'expected "tacit bill audit" of version 1'),
        ({"format": "another"}, "got another format or version"),
        ({"reports": -1}, "expected reports to be a whole number >= 0"),
        ({"files": {"../../secret": {"bytes": 1, "sha256": "0" * 64}}}, "expected names of files of an export"),
        (
            {"files": {"epoch-9999999999.menus.bin": {"bytes": 1, "sha256": "0" * 64}}},
            "expected names of files of an export",
        ),
        ({"files": {"campaigns.csv": {"bytes": 1, "sha256": "0"}}}, "expected SHA-256"),
        ({"files": {"campaigns.csv": {"bytes": 1}}}, "got one without 'sha256'"),
        ({"files": []}, "a value of another kind"),
    ],
)
def test_another_manifest_is_refused_by_its_name(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refusal:
        AuditFolder.open(a_folder(tmp_path / "out", **changed))
    assert said in str(refusal.value)
    assert "manifest.json" in str(refusal.value)
