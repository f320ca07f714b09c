"""A small file outside the database that remembers how far a chain of entries had come, a ledger's or room's.

It is written after every commit and before the caller hears of it. So whatever was released is behind the
witness, and a database that lacks the witnessed entry was put back to an older state.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit import private
from tacit.errors import LedgerCorrupt, LedgerError, LedgerRolledBack, TacitError
from tacit.privacy.ledger.chain import Head
from tacit.store.database import make_private


@dataclass(frozen=True)
class Watched:
    """Whose chain a witness watches, and how its troubles are called."""

    noun: str
    trouble: type[TacitError]
    corrupt: type[TacitError]
    rolled_back: type[TacitError]
    remedy: str


LEDGER = Watched("ledger", LedgerError, LedgerCorrupt, LedgerRolledBack, "see `tacit ledger accept --help`")


class Witness:
    """The highest entry that was ever seen, in one line of text that checks itself."""

    def __init__(self, path: Path, watched: Watched = LEDGER) -> None:
        self.path, self._watched = path.resolve(), watched

    def read(self) -> Head | None:
        """What the witness remembers; None if there is no file."""
        try:
            return self._parse(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as problem:
            trouble = f"the witness {self.path} could not be read: {problem.strerror}"
            raise self._watched.trouble(trouble) from problem

    def advance(self, head: Head) -> None:
        """Remember `head` unless something later is remembered already."""
        if self.read() == head:
            return
        with self._locked():
            known = self.read()
            if known is not None and known.sequence > head.sequence:
                return
            if known is not None and known.sequence == head.sequence and known != head:
                raise self._watched.rolled_back(
                    f"entry {head.sequence} is not the one that the witness {self.path} has seen: "
                    f"the {self._watched.noun} was put back and went on from there"
                )
            self._write(head)

    def replace(self, head: Head) -> None:
        """Remember `head`, whatever was known before: only for somebody who accepts the loss."""
        with self._locked():
            self._write(head)

    def _write(self, head: Head) -> None:
        draft = self.path.with_name(self.path.name + ".new")
        with private.opened(draft, "wb") as file:
            os.fchmod(file.fileno(), self._mode())
            file.write(self._spell(head))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # or a power cut may bring the old name back
        finally:
            os.close(folder)

    def _mode(self) -> int:
        """A new witness is its owner's alone; one that somebody let others read stays so."""
        try:
            return stat.S_IMODE(self.path.stat().st_mode)
        except FileNotFoundError:
            return private.MODE

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # The witness itself is replaced by renaming, so the lock needs a file that stays.
        try:
            place = self.path.with_name(self.path.name + ".lock")
            make_private(place)  # one that is there keeps its mode, as the witness does
            with place.open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as problem:
            raise self._watched.trouble(
                f"the witness {self.path} could not be written ({problem.strerror}); what was just reserved "
                "stays reserved, and nothing may be released on it"
            ) from problem

    def _spell(self, head: Head) -> bytes:
        line = f"tacit-{self._watched.noun.replace(' ', '-')}-witness-1 {head.sequence} {head.hash}"
        return f"{line} {hashlib.sha256(line.encode()).hexdigest()}\n".encode()

    def _parse(self, stored: bytes) -> Head:
        parts = stored.decode("ascii", "replace").split(" ")
        if len(parts) == 4 and parts[1].isdecimal() and len(parts[1]) < 20:
            head = Head(int(parts[1]), parts[2])
            if self._spell(head) == stored:
                return head
        raise self._watched.corrupt(
            f"the witness {self.path} is torn or edited, so nobody can tell whether the {self._watched.noun} "
            f"is complete; {self._watched.remedy}"
        )
