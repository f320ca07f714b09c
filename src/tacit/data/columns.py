"""An encoded log on disk: one array a file, opened by mapping it, so that nothing is read before it is used.

    columns = Columns.open("clicks")
    train = columns.parts()["train"]
    train.of(columns.public), train.of(columns.label)      # (rows, fields), (rows,)

`public` and `sensitive` hold a row for each example, so that a batch drawn at random touches each example's
features in one place; `columns.public[:, 3]` is one field, without copying.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.data.arrays import map_array, number_kind
from tacit.data.encoding.encoder import Encoder
from tacit.data.manifest import read_manifest
from tacit.data.splits import Rows, Split
from tacit.errors import BadInput
from tacit.records import taken_apart
from tacit.schema.columns import UNIT_KEYS, Role

VERSION = 1
MANIFEST = "columns.json"
NEEDED = ("rows", "arrays", "split", "sensitive_keys", "synthetic")
MOST_NUMBERS = 2**48


class Columns:
    """Arrays by name, all with the same number of rows (the flat parts of sequences apart)."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.rows: int = manifest["rows"]

    @classmethod
    def open(cls, folder: str | Path) -> Columns:
        place = Path(folder) / MANIFEST
        manifest = read_manifest(Path(folder), MANIFEST, what="a prepared log", version=VERSION)
        lacking = [key for key in NEEDED if key not in manifest]
        if lacking:
            raise BadInput(f"{place}: expected a whole manifest, got one without {lacking[0]}")
        with taken_apart(place, "a manifest"):
            _check(manifest)
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
        """User, publisher, advertiser, auction and record as 64 bits each; time in seconds; None if absent."""
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
        """Those of them that the guarantee does not protect."""
        return frozenset(self.unit_keys) - frozenset(self.manifest["sensitive_keys"])

    @cached_property
    def encoder(self) -> Encoder:
        return Encoder.load(self.folder)

    def auxiliary(self, name: str) -> NDArray[Any]:
        """The label of a further task."""
        return self[f"auxiliary-{name}"]

    def sequence(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Where each row's ids begin (one offset more than rows), and all ids."""
        return self[f"offsets-{name}"], self[f"sequence-{name}"]

    @property
    def split(self) -> Split:
        return Split.from_json(self.manifest["split"])

    @property
    def synthetic(self) -> bool:
        return bool(self.manifest["synthetic"])

    def parts(self, split: Split | None = None) -> dict[str, Rows]:
        """The log's own split, or another one."""
        chosen = split or self.split
        chosen.refuse_sensitive(str(self.folder), self.manifest["sensitive_keys"])
        return chosen.parts(self.rows, times=self.key(Role.TIME), users=self.key(Role.USER))

    def part_sizes(self) -> dict[str, int]:
        """How many rows each part of the log's own split has."""
        return self.split.sizes(self.rows, users=self.key(Role.USER))


def _check(manifest: Mapping[str, Any]) -> None:
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
    Split.from_json(manifest["split"])
    if not isinstance(manifest["synthetic"], bool):
        raise BadInput(f"expected synthetic to be true or false, got {str(manifest['synthetic'])[:60]!r}")
    _texts("sensitive_keys", manifest["sensitive_keys"])
    for side, names in manifest.get("fields", {}).items():
        _texts(f"the fields of {side}", names)
    for column in manifest.get("columns", ()):
        _texts("a column's name and kind", [column["name"], column["kind"]])
        _texts(f"the roles of {column['name']}", column["roles"])


def _texts(name: str, values: Any) -> None:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadInput(f"expected {name} to be texts, got others")
