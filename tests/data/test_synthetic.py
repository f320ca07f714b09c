"""Made-up logs on disk: Parquet and the published layout agree, both are marked, nothing is half done."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tacit.data.generators.taobao import TaobaoWorld
from tacit.data.generators.worlds import MAKERS, WITH_RARE_SIGNAL, GeneratedRows, LogWorld, world
from tacit.data.logs.definition import LOG_NAMES, find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.data.synthetic import MARK, Format, LogDestination, is_synthetic, write_log
from tacit.errors import BadInput

ROWS = 3000


@cache
def small_world(name: str) -> LogWorld:
    """The same for all tests: what a world solves to have its rates, it solves once."""
    return TaobaoWorld(seed=5, ads=2000, people=3000) if name == "taobao" else world(name, seed=5)


def made(folder: Path, name: str, file: str, rows: int = ROWS, **options: object) -> Path:
    destination = LogDestination.at(folder / file, **options)  # type: ignore[arg-type]
    write_log(small_world(name), rows, find_log(name).layouts[0], destination, {"seed": 5})
    return folder / file


def test_every_log_has_a_world() -> None:
    assert set(MAKERS) == set(LOG_NAMES)
    assert all(world(name, 1).name == name for name in LOG_NAMES)


@pytest.mark.parametrize("name", [name for name in LOG_NAMES if name != "conversions"])
def test_parquet_and_the_published_layout_prepare_to_the_same_columns(tmp_path: Path, name: str) -> None:
    log = find_log(name)
    folder = name == "taobao"
    binary = made(tmp_path, name, "binary")
    text = made(tmp_path, name, "text" if folder else "text.tsv.gz", format=Format.PUBLISHED)
    columns = [
        prepare(LogReader(log, path), hashing_encoder(log), tmp_path / f"{path.name}.columns").columns
        for path in (binary, text)
    ]
    assert columns[0].manifest["rows_read"] == columns[1].manifest["rows_read"] == ROWS
    assert columns[0].synthetic
    assert columns[1].synthetic
    assert columns[0].manifest["bad_rows"]["count"] == columns[1].manifest["bad_rows"]["count"] == 0
    for array in columns[0].manifest["arrays"]:
        np.testing.assert_array_equal(columns[0][array], columns[1][array], err_msg=array)


def test_lists_cannot_be_written_as_text(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="column sequence_topic: expected Parquet"):
        made(tmp_path, "conversions", "conversions.csv", rows=10)
    assert list(tmp_path.iterdir()) == []


def test_the_truth_is_a_file_of_its_own(tmp_path: Path) -> None:
    path = made(tmp_path, "display-small", "log.parquet", truth=tmp_path / "truth.parquet")
    log, truth = pq.read_table(path), pq.read_table(tmp_path / "truth.parquet")
    assert "probability" not in log.column_names
    assert truth.num_rows == log.num_rows
    assert abs(np.mean(truth.column("probability")) - np.mean(log.column("label"))) < 0.05
    assert MARK in log.schema.metadata
    assert MARK in truth.schema.metadata


def test_real_files_are_not_called_synthetic(tmp_path: Path) -> None:
    path = made(tmp_path, "display-small", "log.csv")
    assert is_synthetic(path)
    copied = tmp_path / "without its mark.csv"
    copied.write_bytes(path.read_bytes())
    assert not is_synthetic(copied)


class Failing(LogWorld):
    """A world that breaks on its second batch."""

    name = "display-small"

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        yield next(iter(small_world("display-small").batches(rows)))
        raise MemoryError("no more")

    def side_tables(self) -> dict[str, object]:
        return {}


def test_a_failure_leaves_the_old_file_and_no_new_one(tmp_path: Path) -> None:
    path = made(tmp_path, "display-small", "log.parquet", rows=100)
    before = path.read_bytes()
    destination = LogDestination.at(path, overwrite=True, truth=None)
    with pytest.raises(MemoryError):
        write_log(Failing(), 100, find_log("display-small").layouts[0], destination, {})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = made(tmp_path, "display-small", "log.parquet", rows=100)
    with pytest.raises(BadInput, match="which exists"):
        made(tmp_path, "display-small", "log.parquet", rows=10)
    assert pq.read_metadata(path).num_rows == 100
    made(tmp_path, "display-small", "log.parquet", rows=10, overwrite=True)
    assert pq.read_metadata(path).num_rows == 10


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    with pytest.raises(BadInput, match="holds something else"):
        made(tmp_path, "taobao", "thesis", rows=10, overwrite=True)
    assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "years of work"


@pytest.mark.parametrize("name", sorted(set(LOG_NAMES) - WITH_RARE_SIGNAL))
def test_the_dial_for_rare_values_is_refused_where_there_is_none(name: str) -> None:
    with pytest.raises(BadInput, match="expected rare_signal for"):
        world(name, 1, rare_signal=0.2)


@pytest.mark.parametrize("name", sorted(WITH_RARE_SIGNAL))
def test_the_dial_for_rare_values_changes_the_truth(name: str) -> None:
    first = [next(iter(world(name, 1, rare_signal=dial).batches(500))).truth for dial in (0.0, 0.5)]
    assert not first[0].equals(first[1])


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected rows to be a whole number >= 1"):
        made(tmp_path, "display-small", "log.parquet", rows=0)
