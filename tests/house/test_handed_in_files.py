"""Whatever is done to a file that a person hands in or edits: one line and exit code 2, or it is read. Never a
traceback, a hang, or memory for a length that was made up."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tacit.errors import BadInput, LedgerCorrupt
from tacit.privacy.ledger.chain import decode_event, parse_line, parse_series
from tests.support.file_mutations import edits, mutations
from tests.support.handed_in_files import KINDS, whole_kind
from tests.support.handed_in_reading import Kind, little_memory, problem_with
from tests.support.handed_in_whole import Whole

FEW, MANY = 20, 2_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("handed-in"))


def broken(kind: Kind, *, count: int) -> Iterator[bytes]:
    """Damaged bytes; of JSON, as many edited records too, fitted to their digest where it has one."""
    content = kind.file.read_bytes()
    yield from mutations(content, seed=1, count=count)
    if kind.file.suffix == ".json":
        for record in edits(json.loads(content), seed=1, count=count):
            fitted = kind.fitted(record) if kind.fitted is not None else record
            yield json.dumps(fitted).encode()


def problems(kind: Kind, *, count: int) -> Counter[str]:
    with little_memory():
        found = (problem_with(kind, content) for content in broken(kind, count=count))
        return Counter(each for each in found if each is not None)


DEEP, LONG, ENDLESS = b"[" * 3000, b"9" * 5000, 10**12
NAMED: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a deep TOML": ("contexts.toml", lambda _: b"a = " + DEEP, "lists or tables within one another"),
    "a long number": ("simulate.toml", lambda _: b"a = " + LONG, "a number or a date that nothing here can be"),
    "an endless TOML": ("room.toml", lambda _: b"#" * (2**24 + 1), "expected TOML of at most"),
    "no TOML": ("train.toml", lambda _: b"a = \xff", "a file that is no text"),
    "a zero": ("platform.toml", lambda _: rb'a = "\u0000"', "the character zero"),
    "deep terms": ("terms.toml", lambda _: b"a = " + DEEP, "lists or tables within one another"),
    "a deep manifest": ("columns.json", lambda _: DEEP, "columns.json: expected JSON, got something else"),
    "a long number in a manifest": ("columns.json", lambda _: LONG, "columns.json: expected JSON"),
    "a split without a seed": (
        "columns.json",
        lambda whole: whole.replace(b'"seed"', b'"sead"'),
        "columns.json: expected a whole record of a manifest, got one without 'seed'",
    ),
    "rows that are no number": (
        "columns.json",
        lambda whole: re.sub(rb'"rows": (\d+)', rb'"rows": "\1"', whole),
        "columns.json: expected rows to be a whole number >= 0",
    ),
    "an array somewhere else": (
        "columns.json",
        lambda whole: whole.replace(b'"label": [', b'"../label": ['),
        "expected arrays by the names of their files",
    ),
    "a deep model": ("model.json", lambda _: DEEP, "model.json: expected JSON"),
    "an array of a million million rows": (
        "label.npy",
        lambda whole: _with_rows(whole, ENDLESS),
        "label.npy: expected a whole array, got none or a torn one",
    ),
    "a vocabulary of a million million": (
        "vocabulary.npy",
        lambda whole: _with_rows(whole, ENDLESS),
        "expected a vocabulary in vocabulary-public.npy, got none or a torn one",
    ),
    "a header to be evaluated": (
        "label.npy",
        lambda whole: whole.replace(b"'shape': (", b"'shape': *(", 1),
        "label.npy: expected a whole array",
    ),
    "a Parquet name that is no text": (
        "log as Parquet",
        lambda whole: whole.replace(b"visitor", b"vi\xffitor"),
        "shop.parquet: expected a whole Parquet file, got",
    ),
    "a head of a million million fields": (
        "statistic head",
        lambda whole: whole.replace(rb'\"fields\": 2', rb'\"fields\":99'),
        "expected as many fields as there are values of",
    ),
}  # fmt: skip


_SPELLED = (
    '{"relation":"replace-one","scope":"s","unit":{"ad_tech":%s,"kind":"user","window":%s},"window":null}'
)
SPELLED = {
    "deep": "[" * 3000,
    "a long number": "9" * 5000,
    "a name that is none": _SPELLED % ("true", "null"),
    "a list": "[]",
    "nothing": "null",
    "a window of text": _SPELLED % ("null", '"w"'),
}


@pytest.mark.parametrize("read", [parse_line, parse_series, decode_event])
@pytest.mark.parametrize("name", SPELLED)
def test_what_a_ledger_stores_is_taken_or_called_corrupt(name: str, read: Callable[[str], object]) -> None:
    with pytest.raises(LedgerCorrupt) as refusal:
        read(SPELLED[name])
    assert "\n" not in str(refusal.value)


def _with_rows(whole: bytes, rows: int) -> bytes:
    """The array's header with another number of rows, and as long as it was."""
    header, rest = whole[:128], whole[128:]
    longer = re.sub(rb"'shape': \(\d+", f"'shape': ({rows}".encode(), header)
    return longer.rstrip(b" \n")[:127].ljust(127) + b"\n" + rest


@pytest.mark.parametrize("name", NAMED)
def test_what_is_said(name: str, whole: Whole) -> None:
    which, damaged, said = NAMED[name]
    kind = whole_kind(whole, which)
    before = kind.file.read_bytes()
    assert damaged(before) != before
    kind.file.write_bytes(damaged(before))
    try:
        with little_memory(), pytest.raises(BadInput) as refusal:
            kind.read()
    finally:
        kind.file.write_bytes(before)
    assert said in str(refusal.value)


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_read_or_refused_in_one_line(name: str, whole: Whole) -> None:
    assert not problems(whole_kind(whole, name), count=FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_two_thousand_damages_are_read_or_refused_in_one_line(name: str, whole: Whole) -> None:
    assert not problems(whole_kind(whole, name), count=MANY)
