"""Tallies that go to disk count what NumPy counts in memory, and take no more memory for a longer file."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.data import value_counts as module
from tacit.data.description import describe, with_delay_columns
from tacit.data.reading.reader import LogReader
from tacit.data.value_counts import count_values, numbers_from_bits, open_tallies, sortable_bits
from tests.data.test_description import LOG, NAMES


def drawn(rows: int, seed: int = 1) -> NDArray[np.uint64]:
    """Values of which some come often and most once."""
    draw = np.random.default_rng(seed)
    return (draw.zipf(1.3, rows) % 100_003).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


@pytest.mark.parametrize("most_held", [1, 100, 10**9])
def test_figures_are_those_of_all_counts(most_held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRETCH", 64)
    tokens = drawn(20_000)
    with open_tallies(most_held) as so_far:
        for block in np.array_split(tokens, 37):
            so_far.add("one", count_values(block))
            so_far.add("other", count_values(block[:10]))
        sizes = so_far.sizes("one")
        values = np.concatenate([values for values, _ in so_far.iterate_sorted("one")])
        assert so_far.sizes("other").total == 370
    known, counts = np.unique(tokens, return_counts=True)
    falling = np.sort(counts)[::-1]
    assert np.array_equal(values, known)
    assert (len(sizes), sizes.total, sizes.mean) == (len(known), 20_000, 20_000 / len(known))
    for share in (0.0, 0.3, 0.5, 0.99, 1.0):
        assert sizes.quantile(share) == pytest.approx(np.quantile(counts, share), rel=1e-12)
    assert [sizes.top(count) for count in (0, 1, 20, 10**6)] == [
        int(falling[:c].sum()) for c in (0, 1, 20, 10**6)
    ]
    assert sizes.share_from(1, 1) == float((counts == 1).mean())
    assert sizes.share_from(10) == float((counts >= 10).mean())
    gaps = np.abs(counts[:, None].astype(np.int32) - counts[None, :].astype(np.int32)).sum(dtype=np.int64)
    assert sizes.gini == pytest.approx(gaps / (2 * len(counts) * counts.sum()), rel=1e-12)


@given(st.lists(st.floats(allow_nan=False), max_size=50))
def test_numbers_and_their_bits_have_one_order(numbers: list[float]) -> None:
    array = np.array(numbers, np.float64)
    bits = sortable_bits(array)
    assert np.array_equal(numbers_from_bits(bits), array)
    assert np.array_equal(numbers_from_bits(np.sort(bits)), np.sort(array))


def test_files_go_when_the_work_ends() -> None:
    with open_tallies(10) as so_far:
        so_far.add("one", count_values(drawn(1000)))
        folder = so_far._folder
        assert list(folder.iterdir())
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()


def peak(path: Path, rows: int, most_held: int) -> float:
    """The most megabytes that NumPy and Python held at a time while describing `rows` people, one row each.

    The least of three tries: how many blocks are under way at once hangs on how busy the machine is.
    """
    lines = (f"u{row},s{row % 50},p{row % 7},{row},a{row // 4},{row % 2},{row % 9999},1" for row in range(rows))
    path.write_text("\n".join([",".join(NAMES), *lines, ""]))
    return min(_peak_of_one_try(path, rows, most_held) for _ in range(3))


def _peak_of_one_try(path: Path, rows: int, most_held: int) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        found = describe(LogReader(with_delay_columns(LOG), path), most_held=most_held)
        held = tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
    assert found.figures["users"] == rows
    return held


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.data.reading.text.blocks.__defaults__", (2**18,))
    monkeypatch.setattr(module, "STRETCH", 2**13)
    small, large = (peak(tmp_path / "log.csv", rows, 10_000) for rows in (30_000, 120_000))
    assert large < 1.6 * small  # blocks under way differ a little from run to run
    # As it would be without an end to what is held.
    assert peak(tmp_path / "log.csv", 120_000, 10**9) > 2.5 * large
