"""The file of receipts that a platform keeps of its room."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tacit import files
from tacit.cleanroom.protocol.answers import AuditReceipt
from tacit.cleanroom.protocol.audit_log import AuditEntry, check_receipt
from tacit.errors import AuditBroken, BadInput, TacitError
from tacit.files import parse_json, refuse_bad_record


@dataclass(frozen=True)
class KeptReceipt:
    """A receipt, and what it was given for: the digest of our request, and the hash of the answer that came."""

    receipt: AuditReceipt
    request: str
    answer: str

    def as_json(self) -> dict[str, Any]:
        return {**self.receipt.as_json(), "request": self.request, "answer": self.answer}

    @classmethod
    def from_json(cls, record: Any) -> KeptReceipt:
        told = dict(record)
        request, answer = told.pop("request"), told.pop("answer")
        if not isinstance(request, str) or not isinstance(answer, str):
            raise BadInput("expected the request and the answer of a receipt as texts, got something else")
        return cls(AuditReceipt.from_json(told), request, answer)

    def check(self, entry: AuditEntry | None) -> None:
        """Refuse a log whose entry behind the receipt tells of something else."""
        event = {} if entry is None else entry.event
        if (event.get("request"), event.get("answer")) != (self.request, self.answer):
            raise AuditBroken(
                f"entry {self.receipt.sequence} tells of another request or answer than its receipt is for"
            )


class ReceiptFile:
    """Every receipt that a room gave this platform, one line each; the room's log must have them all.

    `room_keys` are those that the agreement has named for the room, the one in force last.
    """

    def __init__(self, path: Path, room_keys: Sequence[str]) -> None:
        self._path, self._room_keys, self._whole = path, room_keys, False

    def keep(self, given: KeptReceipt) -> None:
        """Refuses one that the room of the agreement did not sign."""
        check_receipt(given.receipt, self._room_keys[-1])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with files.open_private(self._path, "a+b") as file:
            self._drop_torn_line(file)
            file.write(json.dumps(given.as_json(), sort_keys=True).encode() + b"\n")

    def _drop_torn_line(self, file: BinaryIO) -> None:
        """What a killed process left half written goes, once: nothing may be written behind it."""
        if self._whole:
            return
        file.seek(0)
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
        self._whole = True

    def read(self) -> list[KeptReceipt]:
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().split(b"\n")
        try:  # what follows the last line break was being written when the process was killed
            with refuse_bad_record(self._path, "receipts"):
                found = [KeptReceipt.from_json(parse_json(line)) for line in lines[:-1] if line]
        except TacitError:
            raise BadInput(
                f"{self._path}: expected receipts of a room, one per line, got another text"
            ) from None
        for each in found:
            self._check(each.receipt)
        return found

    def _check(self, receipt: AuditReceipt) -> None:
        """By the key in force, or by one that was when the receipt was given."""
        for key in self._room_keys[:-1]:
            with suppress(AuditBroken):
                check_receipt(receipt, key)
                return
        check_receipt(receipt, self._room_keys[-1])
