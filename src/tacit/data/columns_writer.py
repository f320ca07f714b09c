"""Writes an encoded log block by block, and puts it in its place only when it is whole: its owner's alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tacit import private
from tacit.data.columns import MANIFEST, VERSION, Columns
from tacit.data.placing import beside, move_folder
from tacit.errors import BadInput


def check_destination(folder: Path, *, overwrite: bool) -> None:
    """Refuse to write where something would be lost."""
    if not folder.exists():
        return
    if not overwrite:
        raise BadInput(f"expected a new folder for the columns, got {folder}, which exists; say --overwrite")
    ours = (folder / MANIFEST).is_file()
    if not ours or any(entry.suffix not in (".npy", ".json") for entry in folder.iterdir()):
        raise BadInput(f"expected a prepared log to overwrite, got {folder}, which holds something else")


class ColumnsWriter:
    """Appends blocks of rows. Nothing is seen at `folder` before `finish`; a failure leaves nothing behind."""

    def __init__(self, folder: Path, *, overwrite: bool = False) -> None:
        self.folder, self.overwrite = folder, overwrite
        self._place = folder.resolve()  # through links, so that what they point to is replaced and not they
        check_destination(folder, overwrite=overwrite)
        self.building = beside(self._place)
        private.make_folder(self.building)
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
        """How long an array is so far."""
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
        private.make_all_private(self.building)  # an encoder was saved here, too
        move_folder(self.building, self._place)
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
        self._file: BinaryIO = private.opened(path, "wb")
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
