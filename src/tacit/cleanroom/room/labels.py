"""Labels of a room: its table by record, read from the advertiser's file, and flipped where a mode flips.

A record that is not in the table has the label 0, like most that are in it. Each label is flipped once, and
kept.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.protocol.tokens import record_fingerprints, tokens
from tacit.data.frames import list_names, read_frame
from tacit.errors import BadInput
from tacit.files import parquet_faults
from tacit.privacy.mechanisms.memoisation import TOKEN_BYTES, FlipKey, flip_tokens

Records = NDArray[np.uint8]  # (n, 16): one token each


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Labels of 0 or 1 for each task, sorted by record. Make it with `LabelTable.of`."""

    upper: NDArray[np.uint64]  # (n,): the first eight bytes of each record, ascending
    lower: NDArray[np.uint64]  # (n,): the others
    labels: NDArray[np.uint8]  # (n, tasks)
    tasks: tuple[str, ...]
    longest_run: int  # of records that begin with the same eight bytes

    @classmethod
    def of(cls, records: Records, labels: NDArray[np.integer], tasks: Sequence[str]) -> LabelTable:
        """A table of these labels, shape (n, tasks), in any order; a repeated record is refused."""
        given, values = np.asarray(records), np.asarray(labels)
        if given.dtype != np.uint8 or given.ndim != 2 or given.shape[1] != TOKEN_BYTES:
            raise BadInput(f"expected tokens of {TOKEN_BYTES} bytes, got {given.dtype} of shape {given.shape}")
        if not tasks or len(set(tasks)) < len(tasks):
            raise BadInput("expected at least one task, each once, got another list")
        shape = (len(given), len(tasks))
        if values.shape != shape or values.dtype.kind not in "iub":
            raise BadInput(f"expected whole labels of shape {shape}, got {values.dtype} of {values.shape}")
        if not np.isin(values, (0, 1)).all():
            raise BadInput("expected labels of 0 or 1, got another value")
        upper, lower = token_halves(given)
        order = np.lexsort((lower, upper))
        upper, lower = upper[order], lower[order]
        if np.any((upper[1:] == upper[:-1]) & (lower[1:] == lower[:-1])):
            raise BadInput("expected each record once, got one twice")
        ends = np.append(np.flatnonzero(upper[1:] != upper[:-1]) + 1, len(upper))
        longest = int(np.max(np.diff(ends, prepend=0)))
        return cls(upper, lower, values[order].astype(np.uint8), tuple(tasks), longest)

    def __len__(self) -> int:
        return len(self.upper)

    def look_up(self, records: Records, task: str) -> NDArray[np.uint8]:
        """The label of each record, shape (n,); 0 where it is not in the table.

        Each record is looked for in the same way, found or not, whatever its label.
        """
        column = self.labels[:, self.tasks.index(task)]
        found = np.zeros(len(records), np.uint8)
        if not len(self):
            return found
        upper, lower = token_halves(records)
        first = np.searchsorted(self.upper, upper)
        for step in range(self.longest_run):
            place = np.minimum(first + step, len(self) - 1)
            same = (self.upper[place] == upper) & (self.lower[place] == lower)
            found |= same.astype(np.uint8) * column[place]
        return found

    def count_found(self, records: Records) -> int:
        """How many of these records the table has: the room's own to know, and never told to a platform."""
        if not len(self):
            return 0
        upper, lower = token_halves(records)
        first, found = np.searchsorted(self.upper, upper), np.zeros(len(records), np.bool_)
        for step in range(self.longest_run):
            place = np.minimum(first + step, len(self) - 1)
            found |= (self.upper[place] == upper) & (self.lower[place] == lower)
        return int(np.count_nonzero(found))

    def with_records(self, records: Records) -> LabelTable:
        """The same labels under other records, given in this table's order."""
        return LabelTable.of(records, self.labels, self.tasks)

    @property
    def records(self) -> Records:
        """In the table's order, shape (n, 16)."""
        pairs = np.stack([self.upper, self.lower], axis=1).astype(">u8")
        return pairs.view(np.uint8).reshape(-1, TOKEN_BYTES)

    def digest(self, secret: bytes) -> bytes:
        """Names this very table, to a holder of the secret; to others it tells nothing about the labels."""
        keyed = hmac.new(secret, b"tacit room, label table\n", hashlib.sha256)
        for part in ("\n".join(self.tasks).encode(), self.upper.tobytes(), self.lower.tobytes(), self.labels):
            data = bytes(part)
            keyed.update(len(data).to_bytes(8, "big"))
            keyed.update(data)
        return keyed.digest()


def token_halves(records: Records) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Each token of 16 bytes as two whole numbers, in the order of the bytes."""
    pairs = np.ascontiguousarray(records).view(">u8").astype(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def has_repeats(records: Records) -> bool:
    """Whether any record is there twice."""
    upper, lower = token_halves(records)
    order = np.lexsort((lower, upper))
    upper, lower = upper[order], lower[order]
    return bool(np.any((upper[1:] == upper[:-1]) & (lower[1:] == lower[:-1])))


def flipped_labels(
    table: LabelTable, records: Records, task: str, terms: Terms, secret: bytes
) -> NDArray[np.uint8]:
    """The flipped label of each record, (n,). A record that is not in the table has the label 0, and a flip.

    Guarantee:  pure epsilon-DP for all labels of one record, epsilon = terms.epsilon, by all that is ever
                computed from these flips, in any number of steps, runs, codecs, losses, metrics and restarts.
    Neighbours: replace label, for one record: its labels of all tasks, each flipped with epsilon / tasks.
    Assumes:    what `memoisation.flip_tokens` does. A record is flipped under the task, the window, the label
                version and the response's exact weights: terms that change one of these are another release.
    Source:     Warner 1965; memoised: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), section 3.2.
    """
    key = FlipKey(task, terms.window, terms.label_version)
    truth = table.look_up(records, task)
    return flip_tokens(truth, records, key, terms.response, secret).astype(np.uint8)


def labels_of_frame(frame: Any, *, record: str, labels: Sequence[str], key: bytes) -> LabelTable:
    """The table of an advertiser's frame: pandas, Polars, Arrow, DuckDB, arrays or rows, as everywhere.

    `record` is the column of ids that the platform knows, too; each of `labels` is a task, of 0 and 1. `key` is
    the collaboration's (`protocol.tokens.token_key`).
    """
    table = read_frame(frame, "labels")
    for name in (record, *labels):
        if name not in table.column_names:
            raise BadInput(f"expected a column {name!r}, got {list_names(table.column_names)}")
    return _label_table(table, record, labels, key)


def read_labels(path: str | Path, id_column: str, tasks: Sequence[str], key: bytes) -> LabelTable:
    """The table in a .parquet or .csv file. `key` is the collaboration's (`protocol.tokens.token_key`).

    Labels are 0 and 1 or false and true. What is wrong is said by column, never by value or row.
    """
    file = Path(path)
    _expect_different(id_column, tasks)
    return _label_table(_read_table(file, [id_column, *tasks]), id_column, tasks, key)


def _expect_different(id_column: str, tasks: Sequence[str]) -> None:
    if len({id_column, *tasks}) < 1 + len(tasks):
        raise BadInput("expected the id column and the tasks to be different columns, got one twice")


def _label_table(table: pa.Table, id_column: str, tasks: Sequence[str], key: bytes) -> LabelTable:
    _expect_different(id_column, tasks)
    if table.column(id_column).null_count:
        raise BadInput(f"column {id_column}: expected an id in every row, got an empty one")
    named = record_fingerprints(table.select([id_column]), id_column)
    if len(np.unique(named)) < len(named):
        raise BadInput(f"column {id_column}: expected each id once, got one twice")
    labels = np.stack([_labels(task, table.column(task)) for task in tasks], axis=1)
    return LabelTable.of(tokens(named, key), labels, tasks)


def _read_table(file: Path, columns: list[str]) -> pa.Table:
    if file.suffix not in (".parquet", ".csv"):
        raise BadInput(f"expected a .parquet or .csv file of labels, got {file.name}")
    try:
        if file.suffix == ".parquet":
            present: list[str] = parquet.read_schema(file).names
        else:
            with csv.open_csv(file) as reader:
                present = reader.schema.names
        for column in columns:
            if present.count(column) != 1:
                raise BadInput(f"expected one column {column} in {file.name}, got {present.count(column)}")
        if file.suffix == ".parquet":
            return parquet.read_table(file, columns=columns)
        as_written = {columns[0]: pa.binary()}  # else an id of 007 would be read as 7
        options = csv.ConvertOptions(include_columns=columns, column_types=as_written, null_values=[""])
        return csv.read_csv(file, convert_options=options)
    except OSError as problem:
        raise BadInput(f"expected a file of labels at {file}, got: {problem.strerror or 'none'}") from None
    except parquet_faults() as problem:  # whose message would quote the file
        if isinstance(problem, BadInput):
            raise
        raise BadInput(
            f"expected a {file.suffix} file of labels at {file}, got one that cannot be read"
        ) from None


def _labels(task: str, column: pa.ChunkedArray) -> NDArray[np.uint8]:
    if column.null_count:
        raise BadInput(f"column {task}: expected a label in every row, got an empty one")
    kind: Any = column.type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind)):
        raise BadInput(f"column {task}: expected labels of 0 or 1, got values of type {kind}")
    whole = pc.cast(column, pa.int64()) if pa.types.is_boolean(kind) else column
    if len(column) and not pc.all(pc.is_in(whole, pa.array([0, 1], whole.type))).as_py():
        raise BadInput(f"column {task}: expected labels of 0 or 1, got another value")
    return np.asarray(whole.to_numpy()).astype(np.uint8)
