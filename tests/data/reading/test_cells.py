"""How cells may be spelled: texts in an encoding, flags, times, long ids; and headers that do not fit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.data.logs import definition
from tacit.data.logs.definition import Log, find_log
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.reading.reader import LogReader
from tacit.errors import BadInput
from tests.support.reading_checks import read

SCHEMA = """\
name = "shop"
{more}
[columns.site]
role = "public"
[columns.hour]
role = "public"
kind = "hour"
source = "at"
[columns.at]
role = "time"
kind = "whole"
[columns.visitor]
role = "user"
[columns.bought]
role = "label"
kind = "flag"
"""
AT = 1_706_695_200  # 2024-01-31 10:00:00 UTC


def shop(folder: Path, more: str = "") -> Log:
    (folder / "shop.toml").write_text(SCHEMA.format(more=more))
    return definition.load_log(folder / "shop.toml")


def text(folder: Path, *rows: str, header: str = "site,at,visitor,bought", encoding: str = "utf-8") -> Path:
    (folder / "shop.csv").write_bytes("".join(f"{row}\n" for row in (header, *rows)).encode(encoding))
    return folder / "shop.csv"


def parquet(folder: Path, **changes: Any) -> Path:
    columns = {"site": ["a"], "at": [AT], "visitor": ["v"], "bought": [1]}
    pq.write_table(pa.table({**columns, **changes}), folder / "shop.parquet")
    return folder / "shop.parquet"


def refused(log: Log, path: Path) -> str:
    with pytest.raises(BadInput) as refusal:
        read(log, path)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


# Encodings


def test_a_text_that_is_no_utf8_is_refused_by_line_and_column(tmp_path: Path) -> None:
    rows = [f"s{number},{AT},v,1" for number in range(40)]
    rows[30] = f"Orléans,{AT},v,1"
    said = refused(shop(tmp_path), text(tmp_path, *rows, encoding="latin-1"))
    assert said.startswith(f"{tmp_path / 'shop.csv'}: line 32, column site: expected UTF-8, got other bytes")
    assert 'encoding = "latin-1"' in said
    assert "Orl" not in said


def test_utf8_is_read_as_it_is(tmp_path: Path) -> None:
    found = read(shop(tmp_path), text(tmp_path, f"Orléans,{AT},渋谷,1"))
    assert (found.rows[0]["site"], found.rows[0]["visitor"]) == ("Orléans".encode(), "渋谷".encode())


@pytest.mark.parametrize("encoding", ["latin-1", "windows-1252"])
def test_another_encoding_that_is_said_gives_the_same_values(tmp_path: Path, encoding: str) -> None:
    log = shop(tmp_path, f'[file]\nencoding = "{encoding}"')
    found = read(log, text(tmp_path, f"Orléans,{AT},v,1", f"b,{AT},v,0", encoding=encoding))
    assert [row["site"] for row in found.rows] == ["Orléans".encode(), b"b"]


def test_an_encoding_is_said_on_the_command_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop(tmp_path)
    for encoding, folder in (("utf-8", "one"), ("latin-1", "other")):
        path = text(tmp_path, f"Orléans,{AT},v,1", f"b,{AT},v,0", encoding=encoding)
        more = ["--schema", str(tmp_path / "shop.toml"), "--out", str(tmp_path / folder)]
        assert main(["data", "prepare", str(path), *more, "--encoding", encoding]) == 0
    ids = [Columns.open(tmp_path / folder).public.tolist() for folder in ("one", "other")]
    assert ids[0] == ids[1]
    assert main(["data", "describe", str(path), "--schema", str(tmp_path / "shop.toml")]) == 2
    assert "line 2, column site: expected UTF-8" in capsys.readouterr().err


def test_a_header_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    path = text(tmp_path, f"a,{AT},v,1,x", header="site,at,visitor,bought,été", encoding="latin-1")
    assert "line 1: expected UTF-8, got other bytes" in refused(shop(tmp_path), path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_utf16_is_called_so(tmp_path: Path, encoding: str) -> None:
    path = text(tmp_path, f"a,{AT},v,1", encoding=encoding)
    assert "expected UTF-8, got UTF-16" in refused(shop(tmp_path), path)


def test_bytes_that_an_encoding_does_not_have_are_refused_by_their_line(tmp_path: Path) -> None:
    log = shop(tmp_path, '[file]\nencoding = "windows-1252"')
    path = text(tmp_path, f"a,{AT},v,1", f"\x81,{AT},v,1", encoding="latin-1")
    assert "line 3: expected windows-1252, got other bytes" in refused(log, path)


def test_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"expected file\.encoding to be one of utf-8, latin-1, windows-1252"):
        shop(tmp_path, '[file]\nencoding = "klingon"')


def test_a_parquet_text_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    site = pa.array([b"a", b"b", b"\xe9"], pa.binary()).view(pa.string())
    path = parquet(tmp_path, site=site, at=[AT] * 3, visitor=["v"] * 3, bought=[1] * 3)
    assert "row 3, column site: expected UTF-8, got other bytes" in refused(shop(tmp_path), path)


# Flags, times and ids


@pytest.mark.parametrize(
    ("spelled", "flag"),
    [("0", 0), ("1", 1), ("0.0", 0), ("1.0", 1), ("true", 1), ("False", 0), ("TRUE", 1), ("1.", 1)],
)
def test_flags_in_text(tmp_path: Path, spelled: str, flag: int) -> None:
    found = read(shop(tmp_path), text(tmp_path, f"a,{AT},v,1", f"a,{AT},v,{spelled}"))
    assert [row["bought"] for row in found.rows] == [1, flag]


@pytest.mark.parametrize("spelled", ["yes", "2", "0.5", "truely", "1.01", "-1"])
def test_what_is_no_flag_is_a_bad_row(tmp_path: Path, spelled: str) -> None:
    found = read(shop(tmp_path), text(tmp_path, f"a,{AT},v,1", f"a,{AT},v,{spelled}"))
    assert len(found.rows) == 1
    assert found.bad[3].startswith("bought: expected 0 or 1")
    assert spelled not in found.bad[3].partition("got")[2]


@pytest.mark.parametrize(
    "flags",
    [[True, False], [1.0, 0.0], ["true", "false"], ["1", "0"], pa.array([1, 0], pa.uint8()), ["1.0", "FALSE"]],
)
def test_flags_in_parquet(tmp_path: Path, flags: Any) -> None:
    path = parquet(tmp_path, site=["a", "b"], at=[AT] * 2, visitor=["v"] * 2, bought=flags)
    assert [row["bought"] for row in read(shop(tmp_path), path).rows] == [1, 0]


TIMES = {
    str(AT): AT,
    f"{AT}.0": AT,
    "2024-01-31T10:00:00Z": AT,
    "2024-01-31T10:00:00": AT,
    "2024-01-31 10:00:00": AT,
    "2024-01-31 10:00": AT,
    "2024-01-31T12:00:00+02:00": AT,
    "2024-01-31T04:30:00-0530": AT,
    "2024-01-31T10:00:00.999Z": AT,
    "2024-01-31 10:00:00.123456789": AT,
    "2024-01-31": AT - 36_000,
    "1969-12-31T23:59:59.5Z": -1,
}


@pytest.mark.parametrize("spelled", TIMES)
def test_times_in_text(tmp_path: Path, spelled: str) -> None:
    found = read(shop(tmp_path), text(tmp_path, f"a,{AT},v,1", f"a,{spelled},v,1"))
    assert [row["at"] for row in found.rows] == [AT, TIMES[spelled]]


def test_times_of_every_spelling_in_one_file(tmp_path: Path) -> None:
    found = read(shop(tmp_path), text(tmp_path, *(f"a,{spelled},v,1" for spelled in TIMES)))
    assert [row["at"] for row in found.rows] == list(TIMES.values())


@pytest.mark.parametrize(
    "spelled", ["noon", "31.01.2024", "2024-13-01", "10:00:00", "1e9", "2024-02-30T00:00:00Z"]
)
def test_what_is_no_time_is_a_bad_row(tmp_path: Path, spelled: str) -> None:
    found = read(shop(tmp_path), text(tmp_path, f"a,{AT},v,1", f"a,{spelled},v,1"))
    assert found.bad == {
        3: "at: expected seconds since 1970, or a date and time such as 2024-01-31T12:00:00Z, got another text"
    }


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_in_parquet(tmp_path: Path, unit: str, zone: str | None) -> None:
    moment = datetime(2024, 1, 31, 10, tzinfo=UTC) + timedelta(milliseconds=0 if unit == "s" else 999)
    at = pa.array([moment if zone else moment.replace(tzinfo=None)], pa.timestamp(unit, zone))
    assert read(shop(tmp_path), parquet(tmp_path, at=at)).rows[0]["at"] == AT


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_in_parquet(tmp_path: Path, kind: pa.DataType) -> None:
    at = pa.array([date(2024, 1, 31)], kind)
    assert read(shop(tmp_path), parquet(tmp_path, at=at)).rows[0]["at"] == AT - 36_000


def test_texts_of_times_in_parquet(tmp_path: Path) -> None:
    moment = datetime(2024, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    assert read(shop(tmp_path), parquet(tmp_path, at=[moment.isoformat()])).rows[0]["at"] == AT


def test_a_time_of_day_is_no_time(tmp_path: Path) -> None:
    at = pa.array([36_000], pa.time32("s"))
    assert "column at: expected seconds since 1970" in refused(shop(tmp_path), parquet(tmp_path, at=at))


LONG = "12345678901234567890123"


def attribution(folder: Path, **changes: Any) -> Path:
    """Two clicks in the published layout."""
    columns = {
        name: ["1", "1"] for name in find_log("criteo-attribution").layouts[0].columns if name != "publisher"
    }
    columns |= {"uid": [LONG, "7"], **changes}
    rows = zip(*columns.values(), strict=True)
    (folder / "clicks.tsv").write_text("\n".join("\t".join(row) for row in (columns, *rows)) + "\n")
    return folder / "clicks.tsv"


def test_ids_beyond_64_bits_are_categories(tmp_path: Path) -> None:
    log = find_log("criteo-attribution")
    found = read(log, attribution(tmp_path))
    assert [row["uid"] for row in found.rows] == [LONG.encode(), b"7"]
    found = read(log, attribution(tmp_path, uid=["8", "7"]))
    assert [row["uid"] for row in found.rows] == [8, 7]


def test_an_id_is_the_same_however_long_its_neighbours_are(tmp_path: Path) -> None:
    """A block with a long id and one without give 7 the same key."""
    from tacit.data.preparation import hashing_encoder, prepare

    log, users = find_log("criteo-attribution"), []
    for folder, first in (("long", LONG), ("short", "8")):
        reader = LogReader(log, attribution(tmp_path, uid=[first, "7"]))
        prepare(reader, hashing_encoder(log), tmp_path / folder)
        users.append(Columns.open(tmp_path / folder)["user"].tolist())
    assert users[0][1] == users[1][1]
    assert users[0][0] != users[1][0]


def test_a_number_beyond_64_bits_is_called_so(tmp_path: Path) -> None:
    found = read(shop(tmp_path), text(tmp_path, f"a,{AT},v,1", f"a,{LONG},v,1"))
    assert found.bad == {3: "at: expected a whole number below 2^63, got a longer one"}


@pytest.mark.parametrize("spelled", ["-1", "-1.0", "NULL"])
def test_a_word_for_missing_is_one_however_a_number_is_spelled(tmp_path: Path, spelled: str) -> None:
    (tmp_path / "ages.toml").write_text(
        '[file]\nmissing = ["", "-1", "NULL"]\n[columns.age]\nrole = "public"\nkind = "whole"\n'
        '[columns.y]\nrole = "label"\nkind = "flag"\n'
    )
    (tmp_path / "ages.csv").write_text(f"age,y\n3.0,1\n{spelled},0\n")
    found = read(definition.load_log(tmp_path / "ages.toml"), tmp_path / "ages.csv")
    assert [row["age"] for row in found.rows] == [3, None]


# Headers


def test_a_wrong_header_lists_what_was_found_and_the_nearest_name(tmp_path: Path) -> None:
    path = text(tmp_path, f"a,{AT},v,1", header="site,at,visitr,bought")
    said = refused(shop(tmp_path), path)
    assert "expected a header with column visitor" in said
    assert said.endswith("got site, at, visitr, bought: did you mean 'visitr'?")


def test_a_row_in_place_of_a_header_is_not_repeated(tmp_path: Path) -> None:
    path = text(tmp_path, f"a,{AT},v,1", header=f"secret.example,{AT},ann,1")
    said = refused(shop(tmp_path), path)
    assert "got another first line" in said
    assert "ann" not in said


def test_another_separator_is_named(tmp_path: Path) -> None:
    path = text(tmp_path, f"a;{AT};v;1", header="site;at;visitor;bought")
    assert "got one separated by ';': say separator = \";\" under [file]" in refused(shop(tmp_path), path)


def test_parquet_lists_its_columns_too(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"site": ["a"], "at": [AT], "vistor": ["v"], "bought": [1]}), tmp_path / "shop.parquet"
    )
    said = refused(shop(tmp_path), tmp_path / "shop.parquet")
    assert "expected a column visitor, got site, at, vistor, bought: did you mean 'vistor'?" in said


def test_parquet_knows_the_other_names_that_text_does(tmp_path: Path) -> None:
    log = find_log("criteo-search")
    columns: dict[str, list[Any]] = {name: ["-1"] for name in log.layouts[0].columns}
    columns |= {"Sale": [1], "click_timestamp": [AT], "nb_clicks_1week": [3], "SalesAmountInEuro": [-1.0]}
    columns |= {
        "time_delay_for_conversion": [-1],
        "product_price": [0.0],
        "user_id": ["u"],
        "product_category1": ["c"],
    }
    renamed = {name.replace("product_category", "prod_category"): cells for name, cells in columns.items()}
    rows = []
    for table, name in ((columns, "ours"), (renamed, "theirs")):
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
        rows.append(read(log, tmp_path / f"{name}.parquet").rows)
    assert rows[0] == rows[1]
    assert rows[0][0]["product_category1"] == b"c"
    assert rows[0][0]["product_category2"] is None


def test_layouts_refuse_an_encoding_that_is_none() -> None:
    with pytest.raises(BadInput, match="expected Encoding to be one of"):
        FileLayout({"a": CellType.TEXT}, encoding="klingon")
