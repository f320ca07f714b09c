"""An encoded log on disk: memory-mapped columns, and the writer that makes them.

    columns = Columns.open("clicks")
    train = columns.parts()["train"]
    train.of(columns.public), train.of(columns.label)      # (rows, fields), (rows,)

Each array is a file that is mapped when it is first used, so opening a log reads nothing. `public` and
`sensitive` hold one row per example, so that a random batch touches each example's features in one place;
`columns.public[:, 3]` is one field, without copying.

`ColumnsWriter` appends block by block into a private folder beside the destination and moves it there when it
is complete; only the owner can read it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tacit import expect, files
from tacit.data.encoding.encoder import Encoder
from tacit.data.folders import map_array, number_kind, read_manifest
from tacit.data.splits import LogSplit, RowSet
from tacit.display import brief
from tacit.errors import BadInput
from tacit.files import EXISTS, draft_path, refuse_bad_record, replace_folder
from tacit.schema.columns import UNIT_KEYS, Role

VERSION = 1
MANIFEST = "columns.json"
NEEDED = ("rows", "arrays", "split", "sensitive_keys", "synthetic")
MOST_NUMBERS = 2**48


class Columns:
    """An encoded log: arrays by name, all with the same number of rows (flat parts of sequences apart)."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        expect.kind("manifest", manifest, Mapping)
        self.folder, self.manifest = folder, manifest
        self.rows: int = manifest["rows"]

    def __repr__(self) -> str:
        return brief(self, folder=str(self.folder), rows=self.rows)

    @classmethod
    def open(cls, folder: str | Path) -> Columns:
        folder = expect.path("folder", folder)
        place = Path(folder) / MANIFEST
        manifest = read_manifest(Path(folder), MANIFEST, what="a prepared log", version=VERSION)
        lacking = [key for key in NEEDED if key not in manifest]
        if lacking:
            raise BadInput(f"{place}: expected a whole manifest, got one without {lacking[0]}")
        with refuse_bad_record(place, "a manifest"):
            _check_manifest(manifest)
        return cls(Path(folder), manifest)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The array of this name, mapped, not read."""
        expected = self.manifest["arrays"].get(name)
        if expected is None:
            raise BadInput(f"{self.folder}: expected one of {', '.join(self.manifest['arrays'])}, got {name!r}")
        dtype, shape = expected
        if 0 in shape:
            return np.empty(shape, dtype=dtype)  # there is nothing to map
        array = map_array(self.folder / f"{name}.npy")
        if [str(array.dtype), list(array.shape)] != expected:
            raise BadInput(
                f"{self.folder / name}.npy: expected {dtype} of shape {tuple(shape)}, "
                f"got {array.dtype} of shape {array.shape}"
            )
        return array

    def __contains__(self, name: str) -> bool:
        return name in self.manifest["arrays"]

    @cached_property
    def public(self) -> NDArray[np.int32]:
        return self["public"]

    @cached_property
    def sensitive(self) -> NDArray[np.int32]:
        return self["sensitive"]

    @cached_property
    def label(self) -> NDArray[Any]:
        return self["label"]

    def key(self, role: Role) -> NDArray[Any] | None:
        """The column of a role; ids are 64 bits each, time is in seconds; None if the log has none."""
        name = str(role)
        return self[name] if name in self.manifest["arrays"] else None

    def groups(self, role: Role) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the same key together: an order of all rows, and where each group begins in it (and the end).

        Group g has the rows `order[starts[g]:starts[g + 1]]`, in the order of the file.
        """
        keys = self.key(role)
        if keys is None:
            raise BadInput(
                f"{self.folder}: expected a column of role {role} to group by, got a log without one"
            )
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        starts = np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1]))
        return order, np.append(starts, self.rows)

    @property
    def unit_keys(self) -> dict[str, NDArray[Any]]:
        """The keys of privacy units that the log has, by role: what allocating a budget to units needs."""
        return {str(role): self[str(role)] for role in UNIT_KEYS if str(role) in self.manifest["arrays"]}

    @property
    def public_keys(self) -> frozenset[str]:
        """The roles among `unit_keys` that the guarantee does not protect."""
        return frozenset(self.unit_keys) - frozenset(self.manifest["sensitive_keys"])

    @cached_property
    def encoder(self) -> Encoder:
        return Encoder.load(self.folder)

    def auxiliary(self, name: str) -> NDArray[Any]:
        """The label of a further task."""
        return self[f"auxiliary-{name}"]

    @property
    def delay(self) -> NDArray[np.int64] | None:
        """Seconds from each row to its conversion, -1 where none has come; None where the log does not say."""
        known = "delay" in self
        return self["delay"] if known else None

    def sequence(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Where each row's ids begin (one offset more than rows), and all ids."""
        return self[f"offsets-{name}"], self[f"sequence-{name}"]

    @property
    def split(self) -> LogSplit:
        return LogSplit.from_json(self.manifest["split"])

    @property
    def synthetic(self) -> bool:
        return bool(self.manifest["synthetic"])

    def parts(self, split: LogSplit | None = None) -> dict[str, RowSet]:
        """The rows of each part, by the log's own split or another one."""
        chosen = split or self.split
        chosen.refuse_sensitive(str(self.folder), self.manifest["sensitive_keys"])
        return chosen.parts(self.rows, times=self.key(Role.TIME), users=self.key(Role.USER))

    def part_sizes(self) -> dict[str, int]:
        """The number of rows in each part of the log's own split."""
        return self.split.sizes(self.rows, users=self.key(Role.USER))


def _check_manifest(manifest: Mapping[str, Any]) -> None:
    """Refuse what a writer of columns never writes. What is in the arrays is checked when they are opened."""
    rows = expect.whole("rows", manifest["rows"], at_least=0)
    for name, (dtype, shape) in manifest["arrays"].items():
        if Path(name).name != name or not name.isprintable():
            raise BadInput(f"expected arrays by the names of their files, got {name[:60]!r}")
        sizes = [expect.whole(f"the shape of {name}", size, at_least=0) for size in shape]
        if number_kind(dtype) is None or not sizes or math.prod(max(1, size) for size in sizes) > MOST_NUMBERS:
            raise BadInput(f"expected array {name} to have a kind of number and a shape, got others")
        flat = name.startswith("sequence-")
        if not flat and sizes[0] != rows + name.startswith("offsets-"):
            raise BadInput(f"expected {rows} rows in array {name}, got {sizes[0]}")
    LogSplit.from_json(manifest["split"])
    if not isinstance(manifest["synthetic"], bool):
        raise BadInput(f"expected synthetic to be true or false, got {str(manifest['synthetic'])[:60]!r}")
    _check_texts("sensitive_keys", manifest["sensitive_keys"])
    for side, names in manifest.get("fields", {}).items():
        _check_texts(f"the fields of {side}", names)
    for column in manifest.get("columns", ()):
        _check_texts("a column's name and kind", [column["name"], column["kind"]])
        _check_texts(f"the roles of {column['name']}", column["roles"])


def _check_texts(name: str, values: Any) -> None:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadInput(f"expected {name} to be texts, got others")


def check_destination(folder: Path, *, overwrite: bool) -> None:
    """Refuse to write where something would be lost."""
    if not folder.exists():
        return
    if not overwrite:
        raise BadInput(f"expected a new folder for the columns, got {folder}, {EXISTS}")
    ours = (folder / MANIFEST).is_file()
    if not ours or any(entry.suffix not in (".npy", ".json") for entry in folder.iterdir()):
        raise BadInput(f"expected a prepared log to overwrite, got {folder}, which holds something else")


class ColumnsWriter:
    """Writes columns block by block.

    Nothing is seen at `folder` before `finish`; a failure leaves nothing behind.
    """

    def __init__(self, folder: Path, *, overwrite: bool = False) -> None:
        self.folder, self.overwrite = folder, overwrite
        self._place = folder.resolve()  # through links, so that what they point to is replaced and not they
        check_destination(folder, overwrite=overwrite)
        self.building = draft_path(self._place)
        files.make_private_folder(self.building)
        self.rows = 0
        self._files: dict[str, _GrowingArray] = {}

    def append(self, arrays: Mapping[str, NDArray[Any]], rows: int) -> None:
        if self._files and self._files.keys() != arrays.keys():
            raise BadInput(f"expected the arrays {sorted(self._files)} again, got {sorted(arrays)}")
        for name, array in arrays.items():
            if Path(name).name != name:
                raise BadInput(f"expected a column's name that a file can have, got {name!r}")
            if name not in self._files:
                self._files[name] = _GrowingArray(self.building / f"{name}.npy", array)
            self._files[name].append(array)
        self.rows += rows

    def length(self, name: str) -> int:
        """The number of rows of an array so far."""
        return self._files[name].rows if name in self._files else 0

    def finish(self, manifest: Mapping[str, Any]) -> Columns:
        """Write the headers and the manifest, and put the folder in its place."""
        for name, file in self._files.items():
            expected = self.rows + name.startswith("offsets-")
            if not name.startswith("sequence-") and file.rows != expected:
                raise BadInput(f"expected {expected} rows of {name}, got {file.rows}")
        arrays = {name: file.finish() for name, file in self._files.items()}
        record = {"version": VERSION, "rows": self.rows, "arrays": arrays, **manifest}
        (self.building / MANIFEST).write_text(json.dumps(record, indent=2) + "\n")
        # Once more: somebody else may have written there meanwhile.
        check_destination(self.folder, overwrite=self.overwrite)
        files.make_tree_private(self.building)  # an encoder was saved here, too
        replace_folder(self.building, self._place)
        return Columns.open(self.folder)

    def __enter__(self) -> ColumnsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        shutil.rmtree(self.building, ignore_errors=True)


class _GrowingArray:
    """A .npy file that grows row by row. NumPy pads the header so that the final shape fits in its place."""

    def __init__(self, path: Path, like: NDArray[Any]) -> None:
        self._dtype, self._tail = like.dtype, like.shape[1:]
        self.rows = 0
        self._file: BinaryIO = files.open_private(path, "wb")
        self._write_header()
        self._start = self._file.tell()

    def append(self, array: NDArray[Any]) -> None:
        if array.dtype != self._dtype or array.shape[1:] != self._tail:
            raise BadInput(f"expected more of {self._dtype} {self._tail}, got {array.dtype} {array.shape[1:]}")
        self._file.write(np.ascontiguousarray(array).data if array.size else b"")
        self.rows += len(array)

    def finish(self) -> list[Any]:
        self._file.seek(0)
        self._write_header()
        if self._file.tell() != self._start:
            raise AssertionError("the header of a .npy file changed its length")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return [str(self._dtype), [self.rows, *self._tail]]

    def close(self) -> None:
        self._file.close()

    def _write_header(self) -> None:
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": np.lib.format.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (self.rows, *self._tail),
            },
        )
