"""Table of labels by record, and the labels as modes that flip may see them: each flipped once and kept.

A record that is not in the table has the label 0, like most that are in it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol.terms import Terms
from tacit.errors import BadInput
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
