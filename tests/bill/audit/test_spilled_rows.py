"""Rows that begin alike meet, in memory or on disk."""

from __future__ import annotations

import random

import pytest

from tacit.bill.audit import spilled_rows
from tacit.bill.audit.spilled_rows import SpilledRows


@pytest.mark.parametrize("memory", [1, 2**19])
def test_groups_are_those_of_a_dictionary(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_rows, "BUCKET_MEMORY", memory)
    draw = random.Random(3)
    rows = [bytes([draw.randrange(256), draw.randrange(3), draw.randrange(256)]) for _ in range(3_000)]
    spilled = SpilledRows(size=3, key=2)
    expected: dict[bytes, list[bytes]] = {}
    for row in rows:
        spilled.add(row)
        expected.setdefault(row[:2], []).append(row)
    found = list(spilled.groups())
    spilled.close()
    assert {group[0][:2]: group for group in found} == {key: sorted(group) for key, group in expected.items()}
    assert len(found) == len(expected)


def test_rows_beyond_its_memory_go_to_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_rows, "BUCKET_MEMORY", 100)
    spilled = SpilledRows(size=10, key=1)
    for number in range(50):
        spilled.add(bytes([0]) + number.to_bytes(9, "big"))
    assert [vars(bucket)["_rolled"] for bucket in spilled._buckets].count(True) == 1
    (group,) = spilled.groups()
    assert len(group) == 50
    spilled.close()
