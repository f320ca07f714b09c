"""The encoder: what each kind of column becomes, vocabularies, and that it is saved and never changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.encoding.encoder import MANIFEST, Encoder
from tacit.data.encoding.fingerprints import missing_fingerprint, value_fingerprints
from tacit.data.encoding.vocabulary import LARGEST, Hashing, Vocabulary
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, LogSchema, Role

PUBLIC, SENSITIVE = {Role.PUBLIC}, {Role.SENSITIVE}
LABEL = Column("label", {Role.LABEL}, Kind.FLAG)
BINS = 2**31 - 1  # so many that different values do not meet in these tests


def encoder(*columns: Column, utc_offset_hours: int = 0, bins: int = BINS) -> Encoder:
    schema = LogSchema("log", (*columns, LABEL), utc_offset_hours)
    return Encoder.of(schema, Hashing(bins), Hashing(bins))


def rows(**columns: Any) -> pa.RecordBatch:
    arrays = [value if isinstance(value, pa.Array) else pa.array(value) for value in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def ids(column: Column, array: pa.Array, utc_offset_hours: int = 0) -> list[int]:
    """One public column's ids."""
    made = encoder(column, utc_offset_hours=utc_offset_hours)
    found: list[int] = made.encode(rows(**{column.source: array})).public[:, 0].tolist()
    return found


def ids_of_texts(name: str, texts: list[str | None]) -> list[int]:
    tokens = np.array(
        [missing_fingerprint(name) if text is None else value_fingerprints(name, [text])[0] for text in texts],
        dtype=np.uint64,
    )
    found: list[int] = Hashing(BINS).ids(name, tokens).tolist()
    return found


def listed(*texts: str, field: str = "site") -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.sort(value_fingerprints(field, list(texts)))


def binary(*texts: str | None) -> pa.Array:
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def test_a_category_is_its_text_or_its_digits() -> None:
    expected = ids_of_texts("site", ["17", None, "", "-1"])
    assert ids(Column("site", PUBLIC), binary("17", None, "", "-1")) == expected
    numbers = ids(Column("site", PUBLIC), pa.array([17, None, -1, 17], pa.int64()))
    assert numbers == ids_of_texts("site", ["17", None, "-1", "17"])


def test_a_whole_number_is_its_bucket() -> None:
    column = Column("age", PUBLIC, Kind.WHOLE)
    values = pa.array([0, 1, 2, 3, 4, -1, -3, None, 2**63 - 1, -(2**63)], pa.int64())
    expected: list[str | None] = ["0", "1", "2", "2", "3", "-1", "-2", None, "63", "-63"]
    assert ids(column, values) == ids_of_texts("age", expected)
    assert ids(column, values[:8].cast(pa.int32())) == ids_of_texts("age", expected[:8])


def test_a_real_number_is_its_bucket_and_nan_is_missing() -> None:
    column = Column("price", PUBLIC, Kind.REAL)
    values = pa.array([0.0, 1.0, 1.5, 2.0, -1.0, 2.0**-31, float("nan"), None, float("inf")])
    expected: list[str | None] = ["0", "31", "31", "32", "-31", "0", None, None, "93"]
    assert ids(column, values) == ids_of_texts("price", expected)
    assert ids(column, pa.array([1, None, -(2**63)])) == ids_of_texts("price", ["31", None, "-93"])


def test_a_flag_is_0_or_1_or_missing() -> None:
    assert ids(Column("flag", PUBLIC, Kind.FLAG), pa.array([0, 1, None])) == ids_of_texts(
        "flag", ["0", "1", None]
    )


TIMES = st.integers(-(10**10), 10**10)  # from the year 1653 to 2286


@given(times=st.lists(st.none() | TIMES, min_size=1, max_size=10), offset=st.integers(-14, 14))
def test_hours_and_weekdays_are_those_of_the_calendar(times: list[int | None], offset: int) -> None:
    local = timezone(timedelta(hours=offset))
    there = [None if at is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at) for at in times]
    hours = [None if at is None else str(at.astimezone(local).hour) for at in there]
    days = [None if at is None else str(at.astimezone(local).weekday()) for at in there]
    array = pa.array(times, pa.int64())
    hour, day = (Column(kind, PUBLIC, kind, source="time") for kind in (Kind.HOUR, Kind.WEEKDAY))
    assert ids(hour, array, offset) == ids_of_texts("hour", hours)
    assert ids(day, array, offset) == ids_of_texts("weekday", days)


@pytest.mark.parametrize("offset", [-14, 0, 14])
def test_the_last_second_there_is_still_has_an_hour(offset: int) -> None:
    for second in (2**63 - 1, -(2**63)):
        found = ids(Column("hour", PUBLIC, Kind.HOUR), pa.array([second]), offset)
        assert found == ids_of_texts("hour", [str((second // 3600 + offset) % 24)])


LISTS: list[list[str | None] | None] = [["a", "b"], [], None, ["a", None, "c"], [], ["17"]]


@pytest.mark.parametrize("kind", [pa.list_(pa.binary()), pa.large_list(pa.binary())])
@pytest.mark.parametrize("first", [0, 1, 4, 6])
def test_a_sequence_is_lengths_and_all_ids(kind: pa.DataType, first: int) -> None:
    array = pa.array([None if items is None else [i and i.encode() for i in items] for items in LISTS], kind)
    made = encoder(Column("history", SENSITIVE, Kind.SEQUENCE))
    encoded = made.encode(rows(history=array.slice(first)))
    lengths, flat = encoded.sequences["history"]
    assert lengths.dtype == np.int64
    assert lengths.tolist() == [len(items or []) for items in LISTS[first:]]
    assert flat.tolist() == ids_of_texts("history", [i for items in LISTS[first:] for i in items or []])
    assert encoded.public.shape == encoded.sensitive.shape == (len(LISTS) - first, 0)
    assert made.fields(Role.SENSITIVE) == ()


def test_a_sequence_of_whole_numbers_has_the_ids_of_their_digits() -> None:
    array = pa.array([[17, None], None, []], pa.list_(pa.int64()))
    _, flat = encoder(Column("h", PUBLIC, Kind.SEQUENCE)).encode(rows(h=array)).sequences["h"]
    assert flat.tolist() == ids_of_texts("h", ["17", None])


def test_what_is_no_list_is_refused_by_name() -> None:
    made = encoder(Column("history", PUBLIC, Kind.SEQUENCE))
    with pytest.raises(BadInput, match="column history: expected lists, got int64"):
        made.encode(rows(history=[1, 2]))


TWO_SIDES = (Column("site", PUBLIC), Column("age", SENSITIVE, Kind.WHOLE), Column("hour", PUBLIC, Kind.HOUR))


def test_the_sides_are_apart_and_in_the_order_of_the_schema() -> None:
    made = Encoder.of(LogSchema("log", (*TWO_SIDES, LABEL)), Hashing(1000), Hashing(3))
    assert made.fields(Role.PUBLIC) == ("site", "hour")
    assert made.fields(Role.SENSITIVE) == ("age",)
    batch = rows(label=[0, 1], age=[3, None], hour=[0, 7200], site=["a", "b"])
    batch = batch.set_column(3, "site", binary("a", "b"))
    encoded = made.encode(batch)
    assert encoded.public.dtype == encoded.sensitive.dtype == np.int32
    assert encoded.public.shape == (2, 2)
    assert encoded.sensitive.shape == (2, 1)
    assert encoded.public.flags.c_contiguous
    expected = Hashing(1000).ids("hour", value_fingerprints("hour", ["0", "2"]))
    np.testing.assert_array_equal(encoded.public[:, 1], expected)
    changed = made.encode(batch.set_column(1, "age", pa.array([900, 5])))
    np.testing.assert_array_equal(changed.public, encoded.public)


@pytest.mark.parametrize(
    "column",
    [Column("a", PUBLIC, source="theirs"), Column("a", SENSITIVE, Kind.SEQUENCE, source="theirs")],
)
def test_a_column_that_is_gone_is_named(column: Column) -> None:
    with pytest.raises(BadInput, match="expected a column theirs as the encoder knows it, got none"):
        encoder(column).encode(rows(ours=[1, 2]))


def test_a_log_without_features_is_refused() -> None:
    with pytest.raises(BadInput, match="log log: expected at least one feature, got none"):
        encoder()


# Vocabularies


def test_a_vocabulary_has_rows_for_missing_for_others_and_for_each_value() -> None:
    sides = Vocabulary(("site", "shop", "empty"), (listed("a", "b"), listed("a", field="shop"), listed()))
    assert sides.size == (2 + 2) + (2 + 1) + (2 + 0)
    first, second = (
        int(np.flatnonzero(listed("a", "b") == value_fingerprints("site", [t])[0])[0]) for t in "ab"
    )
    tokens = np.append(value_fingerprints("site", ["a", "c", "b", ""]), missing_fingerprint("site"))
    assert sides.ids("site", tokens).tolist() == [2 + first, 1, 2 + second, 1, 0]
    tokens = np.append(value_fingerprints("shop", ["b", "a"]), missing_fingerprint("shop"))
    assert sides.ids("shop", tokens).tolist() == [5, 6, 4]
    tokens = np.append(value_fingerprints("empty", ["a"]), missing_fingerprint("empty"))
    assert sides.ids("empty", tokens).tolist() == [8, 7]
    assert sides.ids("empty", tokens).dtype == np.int32
    assert len(sides.ids("site", tokens[:0])) == 0


def test_a_vocabulary_tells_values_of_one_field_from_those_of_another() -> None:
    sides = Vocabulary(("site", "shop"), (listed("a"), listed("a", field="shop")))
    assert sides.ids("shop", value_fingerprints("site", ["a"])).tolist() == [4]  # another


@given(values=st.sets(st.text(max_size=5), max_size=20), asked=st.lists(st.text(max_size=5), max_size=20))
def test_a_vocabulary_finds_exactly_what_is_listed(values: set[str], asked: list[str]) -> None:
    sides = Vocabulary(("site",), (listed(*values),))
    found = sides.ids("site", value_fingerprints("site", asked)).tolist()
    assert [row >= 2 for row in found] == [text in values for text in asked]
    assert len(set(sides.ids("site", value_fingerprints("site", sorted(values))).tolist())) == len(values)


WRONG_LISTS: dict[str, tuple[Callable[[], object], str]] = {
    "not sorted": (lambda: Vocabulary(("a",), (listed("x", "y")[::-1],)), "sorted values without repeats"),
    "repeated": (lambda: Vocabulary(("a",), (np.repeat(listed("x"), 2),)), "sorted values without repeats"),
    "signed": (lambda: Vocabulary(("a",), (np.arange(3),)), "flat lists of 64-bit fingerprints"),  # type: ignore[arg-type]
    "too few": (lambda: Vocabulary(("a", "b"), (listed("x"),)), "one list of values for each field"),
    "twice": (lambda: Vocabulary(("a", "a"), (listed(), listed())), "one list of values for each field"),
    "no bins": (lambda: Hashing(0), "bins to be a whole number >= 1"),
    "too many bins": (lambda: Hashing(LARGEST + 1), f"at most {LARGEST} bins"),
}


@pytest.mark.parametrize("name", WRONG_LISTS)
def test_wrong_sides_are_refused(name: str) -> None:
    make, expected = WRONG_LISTS[name]
    with pytest.raises(BadInput, match=f"expected {expected}"):
        make()


def test_a_vocabulary_that_lacks_a_field_is_refused_at_once() -> None:
    with pytest.raises(BadInput, match="column hour: expected it in its side's vocabulary"):
        Encoder.of(LogSchema("log", (*TWO_SIDES, LABEL)), Vocabulary(("site",), (listed(),)), Hashing(3))


def test_bins_are_used_to_the_last() -> None:
    tokens = np.array([0, 2**64 - 1, 2**63], dtype=np.uint64)
    assert Hashing(LARGEST).ids("", tokens).tolist() == [0, LARGEST - 1, LARGEST // 2]
    assert Hashing(1).ids("", tokens).tolist() == [0, 0, 0]


# Saved and loaded


def with_vocabulary() -> Encoder:
    public = Vocabulary(("site", "hour"), (listed("a", "b", "c"), listed("0", field="hour")))
    return Encoder.of(LogSchema("log", (*TWO_SIDES, LABEL), 8), public, Hashing(50))


def all_hashing() -> Encoder:
    return Encoder.of(LogSchema("log", (*TWO_SIDES, LABEL)), Hashing(np.int64(100)), Hashing(50))  # type: ignore[arg-type]


def nothing_listed() -> Encoder:
    schema = LogSchema("log", (TWO_SIDES[1], LABEL))
    return Encoder.of(schema, Vocabulary((), ()), Vocabulary(("age",), (listed(field="age"),)))


Made = pytest.mark.parametrize("make", [with_vocabulary, all_hashing, nothing_listed])


@Made
def test_loaded_is_as_saved(make: Callable[[], Encoder], tmp_path: Path) -> None:
    saved = make()
    saved.save(tmp_path / "new" / "folder")
    loaded = Encoder.load(tmp_path / "new" / "folder")
    assert loaded.digest == saved.digest
    assert loaded == saved
    assert hash(loaded) == hash(saved)
    batch = rows(site=binary("a", "x", None), hour=[0, None, 4000], age=[1, None, 9])
    again, before = loaded.encode(batch), saved.encode(batch)
    np.testing.assert_array_equal(again.public, before.public)
    np.testing.assert_array_equal(again.sensitive, before.sensitive)


def test_an_encoder_is_applied_unchanged_to_other_rows_in_another_order() -> None:
    made = with_vocabulary()
    one = made.encode(rows(site=binary("a", "b", "x", None), hour=[0, 1, 2, 3], age=[1, 2, 3, 4]))
    other = made.encode(rows(age=[4, 9, 1], hour=[3, 3, 0], site=binary(None, "z", "a")))
    np.testing.assert_array_equal(other.public[[2, 0]], one.public[[0, 3]])
    np.testing.assert_array_equal(other.sensitive[[2, 0]], one.sensitive[[0, 3]])
    assert other.public[1, 0] == one.public[2, 0]  # what is not listed shares a row


def changed(make: Callable[[], Encoder], change: Callable[[dict[str, Any]], None], folder: Path) -> None:
    make().save(folder)
    record = json.loads((folder / MANIFEST).read_text())
    change(record)
    (folder / MANIFEST).write_text(json.dumps(record))


def set_to(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(record: Any) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return change


CHANGES = {
    "bins": set_to("sensitive", "bins", value=51),
    "offset": set_to("utc_offset_hours", value=7),
    "a name": set_to("columns", 0, "name", value="sites"),
    "a kind": set_to("columns", 0, "kind", value="whole"),
    "a side": set_to("columns", 1, "roles", value=["public"]),
    "fineness": set_to("columns", 1, "buckets_per_doubling", value=2),
    "a source": set_to("columns", 0, "source", value="other"),
    "the order": lambda record: record["columns"].reverse(),
    "one less": lambda record: record["columns"].pop(),
    "fields": set_to("public", "fields", value=["hour", "site"]),
    "how many values": set_to("public", "values", value=[2, 2]),
    "too many values": set_to("public", "values", value=[3, 2]),
    "no digest": lambda record: record.pop("digest"),
    "the digest": set_to("digest", value="0" * 64),
    "no columns": lambda record: record.pop("columns"),
    "columns of another kind": set_to("columns", value=[1, 2]),
    "an unknown key": set_to("columns", 0, "secret", value=1),
    "an unknown role": set_to("columns", 0, "roles", value=["spy"]),
    "an unknown way": set_to("public", "way", value="guess"),
    "sides of another kind": set_to("public", value=[1]),
    "no bins": set_to("sensitive", "bins", value=0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_encoder_is_refused(name: str, tmp_path: Path) -> None:
    changed(with_vocabulary, CHANGES[name], tmp_path)
    with pytest.raises(BadInput, match=f"^{tmp_path / MANIFEST}: .*expected ") as refusal:
        Encoder.load(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_an_unknown_version_is_refused(version: object, tmp_path: Path) -> None:
    changed(with_vocabulary, set_to("version", value=version), tmp_path)
    with pytest.raises(BadInput) as refusal:
        Encoder.load(tmp_path)
    assert str(refusal.value) == f"{tmp_path / MANIFEST}: expected version 1, got {version!r}"


def test_a_spoiled_vocabulary_is_refused(tmp_path: Path) -> None:
    with_vocabulary().save(tmp_path)
    place = tmp_path / "vocabulary-public.npy"
    whole, values = place.read_bytes(), np.load(place)

    def refused() -> str:
        with pytest.raises(BadInput) as refusal:
            Encoder.load(tmp_path)
        return str(refusal.value)

    for torn in (b"", whole[:20], whole[:-1], b"x" * 200):
        place.write_bytes(torn)
        assert "expected a vocabulary in vocabulary-public.npy, got none or a torn one" in refused()
    for wrong in (values + np.uint64(1), values[:-1], values.reshape(2, -1)):
        np.save(place, wrong)
        assert "expected" in refused()
    np.save(place, values.view(np.int64))
    assert "64-bit fingerprints" in refused()
    place.unlink()
    assert "got none or a torn one" in refused()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"version": 1}', "\udcff"])
def test_what_is_no_encoder_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput, match="expected") as refusal:
        Encoder.load(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "none", tmp_path / "file"):
        with pytest.raises(BadInput, match=r"expected an encoder here \(encoder\.json\), got none"):
            Encoder.load(place)


def test_the_digest_tells_whatever_matters_apart() -> None:
    site, age, hour = TWO_SIDES
    made = with_vocabulary()
    public = made.public
    assert isinstance(public, Vocabulary)
    others = [
        made,
        replace(made, utc_offset_hours=9),
        replace(made, sensitive=Hashing(51)),
        replace(made, public=Hashing(100)),
        replace(made, public=Hashing(50), sensitive=Hashing(100)),
        replace(made, public=Vocabulary(public.fields[::-1], public.listed[::-1])),
        replace(made, public=Vocabulary(public.fields, (listed("a", "b", "d"), public.listed[1]))),
        replace(made, public=Vocabulary(public.fields, (public.listed[0], listed("1", field="hour")))),
        replace(made, columns=(site, hour, age)),
        replace(made, columns=(site, hour)),
        replace(made, columns=(Column("site", PUBLIC, source="sites"), age, hour)),
        replace(made, columns=(site, Column("age", SENSITIVE, Kind.REAL), hour)),
        replace(made, columns=(site, Column("age", SENSITIVE, Kind.WHOLE, buckets_per_doubling=4), hour)),
    ]
    assert len({other.digest for other in others}) == len(others)
    assert len(set(others)) == len(others)
    alike = Column("age", SENSITIVE, Kind.WHOLE, between=(0, 120), why="it is somebody's")
    assert replace(made, columns=(site, alike, hour)) == made
    assert made != "an encoder"
