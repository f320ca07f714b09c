"""A small file outside of a billing party's store that knows how far the store had come.

It is written after each commit that others come to hear of, and before they do; what follows where a store
lacks what its witness has seen is in `billing_restores`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit import files
from tacit.errors import BillError
from tacit.expect import RECORD_FAULTS
from tacit.store.database import make_private_file

VERSION = 1


@dataclass(frozen=True)
class WitnessedCampaign:
    """Who pays for a campaign, what it was charged, and what it may be charged in all (None: without limit)."""

    advertiser: str
    charged_micros: int
    budget_micros: int | None


@dataclass(frozen=True)
class StoreMark:
    """How far a store had come: how many batches, with a digest of the last; the last epoch and invoice."""

    batches: int = 0
    digest: str = ""
    epoch: int = -1
    invoice: int = 0
    campaigns: Mapping[int, WitnessedCampaign] = field(default_factory=dict)

    def merged(self, other: StoreMark) -> StoreMark:
        """What both have seen together."""
        return merge_marks((self, other))


def merge_marks(marks: Iterable[StoreMark]) -> StoreMark:
    """What all of them have seen together; of two that saw as many batches, budgets are those of the later."""
    found, campaigns = StoreMark(), dict[int, WitnessedCampaign]()
    for mark in marks:
        is_later = mark.batches >= found.batches
        for number, each in mark.campaigns.items():
            known = campaigns.get(number, each)
            charged = max(known.charged_micros, each.charged_micros)
            campaigns[number] = replace(each if is_later else known, charged_micros=charged)
        last = mark if is_later else found
        epoch, invoice = max(found.epoch, mark.epoch), max(found.invoice, mark.invoice)
        found = StoreMark(last.batches, last.digest, epoch, invoice)
    return replace(found, campaigns=campaigns)


ROOM_BYTES = 2**18
"""By how much the file grows beyond four times what it knows before it is written anew."""


class BillingWitness:
    """The file, for its owner alone: lines of JSON, each behind its own digest.

    The first says all, each other one what a commit has changed: so that a batch costs as much as it is long,
    however many campaigns there are. A last line that is torn was never acted on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._whole_bytes = 0  # of the line that says all, as far as is known here

    def read(self) -> StoreMark | None:
        """What it remembers; None where there is no file."""
        try:
            *lines, _torn = self.path.read_bytes().split(b"\n")
            if not lines:
                raise ValueError
            self._whole_bytes = len(lines[0])
            return merge_marks(_read_line(line) for line in lines)
        except FileNotFoundError:
            return None
        except (*RECORD_FAULTS, ValueError, OSError):
            raise BillError(
                f"the witness {self.path} is torn or cannot be read, so nobody can tell whether the store is "
                "complete; see `tacit serve restore --help`"
            ) from None

    def advance(self, mark: StoreMark) -> None:
        """Remember it beside what is remembered already."""
        with self._hold_lock():
            if not self._append(mark):
                known = self.read()
                self._write(mark if known is None else known.merged(mark))

    def replace(self, mark: StoreMark) -> None:
        """Remember it alone: for somebody who takes the loss."""
        with self._hold_lock():
            self._write(mark)

    def _append(self, mark: StoreMark) -> bool:
        """Add a line; whether that could be done: not where none is there, its end is torn, or it is long."""
        line = _line(mark)
        try:
            with self.path.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                if not self._whole_bytes or size + len(line) > 4 * self._whole_bytes + ROOM_BYTES:
                    return False
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    return False
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
                return True
        except FileNotFoundError:
            return False
        except OSError as problem:
            raise self._trouble(problem) from problem

    def _write(self, mark: StoreMark) -> None:
        line = _line(mark)
        try:
            files.write_atomically(self.path, line, mode=files.PRIVATE_MODE, durable=True)
        except OSError as problem:
            raise self._trouble(problem) from problem
        self._whole_bytes = len(line)

    def _trouble(self, problem: OSError) -> BillError:
        return BillError(
            f"the witness {self.path} could not be written ({problem.strerror}): nothing is answered until it "
            "can be"
        )

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        place = self.path.with_name(f"{self.path.name}.lock")
        try:
            make_private_file(place)
            lock = place.open("ab")
        except OSError as problem:
            raise BillError(f"the witness {self.path} could not be locked: {problem.strerror}") from problem
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _digest(spelled: bytes) -> bytes:
    return hashlib.sha256(b"tacit-billing-witness\n" + spelled).hexdigest().encode()


def _line(mark: StoreMark) -> bytes:
    spelled = json.dumps(_mark_record(mark), separators=(",", ":")).encode()
    return _digest(spelled) + b" " + spelled + b"\n"


def _read_line(line: bytes) -> StoreMark:
    digest, _, spelled = line.partition(b" ")
    if digest != _digest(spelled):
        raise ValueError("expected a line behind its digest")
    return _read_mark(json.loads(spelled))


def _mark_record(mark: StoreMark) -> dict[str, Any]:
    campaigns = {
        str(number): [each.advertiser, each.charged_micros, each.budget_micros]
        for number, each in sorted(mark.campaigns.items())
    }
    return {
        "version": VERSION,
        "batches": mark.batches,
        "digest": mark.digest,
        "epoch": mark.epoch,
        "invoice": mark.invoice,
        "campaigns": campaigns,
    }


def _read_mark(record: dict[str, Any]) -> StoreMark:
    if record["version"] != VERSION:
        raise ValueError(f"expected version {VERSION}")
    campaigns = {int(number): WitnessedCampaign(*each) for number, each in record["campaigns"].items()}
    return StoreMark(record["batches"], record["digest"], record["epoch"], record["invoice"], campaigns)
