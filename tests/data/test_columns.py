"""Columns on disk: mapped and not read, whole or not there at all, and refused where they are torn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.data.columns import MANIFEST, Columns, ColumnsWriter
from tacit.data.splits import LogSplit
from tacit.errors import BadInput
from tacit.schema.columns import Role

RECORD = {
    "split": LogSplit("chronological", {"train": "0.8", "test": "0.2"}).as_json(),
    "sensitive_keys": [],
    "synthetic": False,
}


def blocks(rows: int, size: int = 7) -> Iterator[tuple[dict[str, NDArray[Any]], int]]:
    for first in range(0, rows, size):
        at = np.arange(first, min(rows, first + size))
        yield (
            {
                "public": np.stack([at, 10 * at, at + 1], axis=1).astype(np.int32),
                "sensitive": np.empty((len(at), 0), dtype=np.int32),
                "label": (at % 2).astype(np.uint8),
                "user": at.astype(np.uint64),
                "time": at.astype(np.int64),
            },
            len(at),
        )


def written(folder: Path, rows: int = 100, *, overwrite: bool = False) -> Columns:
    with ColumnsWriter(folder, overwrite=overwrite) as writer:
        for arrays, count in blocks(rows):
            writer.append(arrays, count)
        return writer.finish(RECORD)


def held(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, byte by byte."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as refusal:
        act()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


# Mapped


def test_blocks_come_back_as_one_mapped_array(tmp_path: Path) -> None:
    columns = written(tmp_path / "clicks")
    at = np.arange(100)
    assert columns.rows == 100
    np.testing.assert_array_equal(columns.public, np.stack([at, 10 * at, at + 1], axis=1))
    assert (str(columns.public.dtype), str(columns.label.dtype)) == ("int32", "uint8")
    np.testing.assert_array_equal(columns.label, at % 2)
    user = columns.key(Role.USER)
    assert user is not None
    assert user.dtype == np.uint64
    assert columns.key(Role.PUBLISHER) is None
    assert "user" in columns
    assert "publisher" not in columns
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clicks"]


def test_reading_a_field_or_a_stretch_copies_nothing(tmp_path: Path) -> None:
    columns = written(tmp_path / "clicks")
    assert isinstance(columns.public, np.memmap)
    assert not columns.public.flags.writeable
    assert columns.public.flags.c_contiguous
    assert np.shares_memory(columns.public[:, 1], columns.public)
    train = columns.parts()["train"].of(columns.public)
    assert train.shape == (80, 3)
    assert np.shares_memory(train, columns.public)


def test_a_matrix_without_fields_has_its_shape(tmp_path: Path) -> None:
    columns = written(tmp_path / "clicks")
    assert columns.sensitive.shape == (100, 0)
    assert columns.sensitive.dtype == np.int32


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
def test_torch_takes_the_pages_as_they_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    columns = written(tmp_path / "clicks")
    tensor = torch.from_numpy(columns.public)
    assert tensor.data_ptr() == columns.public.ctypes.data
    assert tensor.shape == (100, 3)
    assert int(tensor[7, 1]) == 70


def test_numpy_opens_every_array_by_itself(tmp_path: Path) -> None:
    columns = written(tmp_path / "clicks")
    for name, (dtype, shape) in columns.manifest["arrays"].items():
        array = np.load(columns.folder / f"{name}.npy")
        assert (str(array.dtype), list(array.shape)) == (dtype, shape)


OPEN = """
import json, resource, sys, time
from tacit.data.columns import Columns
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
columns = Columns.open(sys.argv[1])
shapes = columns.public.shape, columns.label.shape
took = time.perf_counter() - start
last = columns.public[-1].tolist()
print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, shapes, last]))
"""


def test_a_large_set_opens_at_once_and_takes_no_memory(tmp_path: Path) -> None:
    rows, fields = 128_000_000, 39  # 20 GB of ids; the file has holes, and no disk can be that fast
    folder = tmp_path / "large"
    written(folder, 10)
    record = json.loads((folder / MANIFEST).read_text())
    record["rows"], record["arrays"] = rows, {}
    for name, dtype, shape in (
        ("public", np.dtype(np.int32), (rows, fields)),
        ("label", np.dtype("u1"), (rows,)),
    ):
        record["arrays"][name] = [str(dtype), list(shape)]
        with (folder / f"{name}.npy").open("wb") as file:
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            os.truncate(file.fileno(), file.tell() + dtype.itemsize * int(np.prod(shape)))
    (folder / MANIFEST).write_text(json.dumps(record))
    assert (folder / "public.npy").stat().st_size > 19e9
    done = subprocess.run([sys.executable, "-c", OPEN, str(folder)], capture_output=True, text=True, check=True)
    seconds, kilobytes, shapes, last = json.loads(done.stdout)
    assert shapes == [[rows, fields], [rows]]
    assert last == [0] * fields
    assert seconds < 0.05
    assert kilobytes < 4096


# Whole, or not there at all


def fails_in_the_middle(folder: Path, *, overwrite: bool) -> None:
    with ColumnsWriter(folder, overwrite=overwrite) as writer:
        for index, (arrays, count) in enumerate(blocks(100)):
            if index == 3:
                raise KeyboardInterrupt
            writer.append(arrays, count)


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fails_in_the_middle(tmp_path / "clicks", overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_does_not_touch_what_was_there(tmp_path: Path) -> None:
    written(tmp_path / "clicks", 10)
    before = held(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fails_in_the_middle(tmp_path / "clicks", overwrite=True)
    assert held(tmp_path) == before


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "clicks"
    with ColumnsWriter(folder) as writer:
        for arrays, count in blocks(20):
            writer.append(arrays, count)
            assert not folder.exists()
        writer.finish(RECORD)
        assert folder.exists()
    assert Columns.open(folder).rows == 20
    assert [path.name for path in folder.parent.iterdir()] == ["clicks"]


def test_overwriting_replaces_the_folder_as_a_whole(tmp_path: Path) -> None:
    written(tmp_path / "clicks", 10)
    (tmp_path / "clicks" / "old.npy").write_bytes(b"")
    assert written(tmp_path / "clicks", 30, overwrite=True).rows == 30
    assert not (tmp_path / "clicks" / "old.npy").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["clicks"]


def test_a_folder_that_exists_is_refused_unless_told(tmp_path: Path) -> None:
    written(tmp_path / "clicks", 10)
    before = held(tmp_path)
    assert "expected a new folder" in refused(lambda: written(tmp_path / "clicks"))
    assert held(tmp_path) == before


def test_a_folder_that_is_not_ours_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday" / "photo.jpg").write_bytes(b"photo")
    (tmp_path / "file").write_text("text")
    written(tmp_path / "mixed", 10)
    (tmp_path / "mixed" / "notes.txt").write_text("mine")
    before = held(tmp_path)
    for name in ("holiday", "file", "mixed"):
        said = refused(lambda name=name: written(tmp_path / name, overwrite=True))  # type: ignore[misc]
        assert "which holds something else" in said
    assert held(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_somebody_wrote_there_meanwhile_is_not_touched(overwrite: bool, tmp_path: Path) -> None:
    folder = tmp_path / "clicks"

    def with_a_rival() -> None:
        with ColumnsWriter(folder, overwrite=overwrite) as writer:
            for arrays, count in blocks(20):
                writer.append(arrays, count)
            folder.mkdir()
            (folder / "theirs.txt").write_text("theirs")
            writer.finish(RECORD)

    refused(with_a_rival)
    assert held(tmp_path) == {"clicks/theirs.txt": b"theirs"}


def test_a_failing_replacement_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "clicks", 10)
    before = held(tmp_path)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if target == tmp_path / "clicks" and not self.name.endswith(".replaced"):
            raise OSError("no space left")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no space left"):
        written(tmp_path / "clicks", 30, overwrite=True)
    assert held(tmp_path) == before


def test_a_link_is_followed(tmp_path: Path) -> None:
    written(tmp_path / "disk" / "clicks", 10)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "clicks")
    assert written(tmp_path / "link", 30, overwrite=True).rows == 30
    assert (tmp_path / "link").is_symlink()
    assert Columns.open(tmp_path / "disk" / "clicks").rows == 30
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_dir()) == ["clicks", "disk", "link"]


WRONG_BLOCKS: dict[str, tuple[list[dict[str, NDArray[Any]]], str]] = {
    "another type": ([{"a": np.zeros(2)}, {"a": np.zeros(2, np.int32)}], "expected more of float64"),
    "another width": ([{"a": np.zeros((2, 3))}, {"a": np.zeros((2, 4))}], "expected more of float64 (3,)"),
    "another array": ([{"a": np.zeros(2)}, {"b": np.zeros(2)}], "expected the arrays ['a'] again"),
    "another length": ([{"a": np.zeros(2), "b": np.zeros(3)}], "expected 2 rows of b, got 3"),
    "offsets without the first": ([{"a": np.zeros(2), "offsets-b": np.zeros(2)}], "expected 3 rows"),
    "a name with a folder": ([{"../a": np.zeros(2)}], "a column's name that a file can have, got '../a'"),
}


@pytest.mark.parametrize("name", WRONG_BLOCKS)
def test_blocks_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    given_blocks, expected = WRONG_BLOCKS[name]

    def write() -> None:
        with ColumnsWriter(tmp_path / "clicks") as writer:
            for arrays in given_blocks:
                writer.append(arrays, 2)
            writer.finish(RECORD)

    assert expected in refused(write)
    assert list(tmp_path.iterdir()) == []


# Torn


@pytest.mark.parametrize("keep", [0, 5, 60, 128, -1])
def test_a_torn_array_is_refused(keep: int, tmp_path: Path) -> None:
    columns = written(tmp_path / "clicks")
    place = columns.folder / "public.npy"
    place.write_bytes(place.read_bytes()[:keep])
    assert refused(lambda: columns["public"]) == f"{place}: expected a whole array, got none or a torn one"
    place.unlink()
    assert "public.npy: expected a whole array" in refused(lambda: columns["public"])


@pytest.mark.parametrize(
    "other", [np.zeros((99, 3), np.int32), np.zeros((100, 3), np.int64), np.zeros(300, np.int32)], ids=str
)
def test_an_array_that_is_not_the_manifests_is_refused(other: NDArray[Any], tmp_path: Path) -> None:
    columns = written(tmp_path / "clicks")
    np.save(columns.folder / "public.npy", other)
    assert "public.npy: expected int32 of shape (100, 3), got" in refused(lambda: columns["public"])


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", '{"version": 2}', '{"version": 1, "rows": 3}', "\udcff"])
def test_a_torn_manifest_is_refused(text: str, tmp_path: Path) -> None:
    written(tmp_path / "clicks")
    (tmp_path / "clicks" / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    said = refused(lambda: Columns.open(tmp_path / "clicks"))
    assert said.startswith(f"{tmp_path / 'clicks' / MANIFEST}: expected ")


def test_a_place_without_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "none", tmp_path / "file"):
        assert "expected a prepared log here" in refused(lambda place=place: Columns.open(place))  # type: ignore[misc]
    columns = written(tmp_path / "clicks")
    assert "expected one of public, sensitive, label, user, time, got 'x'" in refused(lambda: columns["x"])
