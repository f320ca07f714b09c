"""The secret that keys the flips of labels, in a file of its own, and a register of what was flipped with it.

With the secret every flip can be undone. If it is lost, flipping the same labels again is another release. The
register beside it holds keyed digests of the labels behind each release, and of each unit's share of epsilon.
Flips of labels that changed since would show which ones did, and flips of other rows of the same people would
show more than was paid for: both need a new version and a new payment.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.files import OTHERS_MODE, PRIVATE_MODE, read_json, write_atomically, write_once
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.train.examples import CHUNK, Examples


def read_secret(path: Path) -> bytes | None:
    """The secret in this file; None if there is no file."""
    try:
        mode = path.stat().st_mode
        secret = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise BadInput(f"ledger.secret: expected a file, got {path}: {problem.strerror}") from None
    if mode & OTHERS_MODE:
        raise BadInput(
            f"ledger.secret: expected {path} for its owner alone (chmod 600), got mode {mode & 0o777:o}"
        )
    if len(secret) != SECRET_BYTES:
        raise BadInput(f"ledger.secret: expected {SECRET_BYTES} bytes in {path}, got {len(secret)}")
    return secret


def write_secret(path: Path, secret: bytes) -> None:
    """Put a new secret into its file, whole or not at all; one that is there already must be the same."""
    write_once(path, secret, mode=PRIVATE_MODE)
    if read_secret(path) != secret:  # somebody else made one meanwhile
        raise BadInput(f"ledger.secret: expected no file at {path} yet, got one: try again")


def secret_name(secret: bytes) -> str:
    """A name for a secret, which tells nothing about it: with another one, flips are another release."""
    return hashlib.blake2b(b"name", key=secret, digest_size=8, person=b"tacit-secret").hexdigest()


def keyed_token(secret: bytes) -> str:
    """How a ledger knows a holder of this secret: nobody else can say it, and it tells nothing about it."""
    return hashlib.blake2b(b"attempt", key=secret, digest_size=16, person=b"tacit-secret").hexdigest()


class FlipRegister:
    """What was behind each release of flips, as digests that only the secret's owner can make.

    Whoever pays, and from which ledger, one secret has one register. What it knows is never replaced.
    """

    def __init__(self, secret_path: Path, secret: bytes) -> None:
        self._path, self._secret = secret_path.with_name(f"{secret_path.name}.flipped.json"), secret
        self._secret_path = secret_path

    def knows(self, name: str) -> bool:
        return name in self._read()

    def agrees(self, digests: Mapping[str, str]) -> bool:
        """Whether nothing else is known under these names. If so, what was not known yet is noted, on the disk
        before this returns: ask before the flips are paid for."""
        with self._secret_path.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # two runs that begin at once must not both be the first
            known = self._read()
            if any(known.get(name, digest) != digest for name, digest in digests.items()):
                return False
            if not digests.keys() <= known.keys():
                noted = json.dumps({**known, **digests}, indent=2).encode()
                write_atomically(self._path, noted, mode=PRIVATE_MODE)
        return True

    def digest(self, *columns: NDArray[Any]) -> str:
        """Of whole numbers, by columns. It tells nothing to anybody without the secret."""
        keyed = hashlib.blake2b(key=self._secret, digest_size=16, person=b"tacit-labels")
        for column in columns:
            keyed.update(len(column).to_bytes(8, "little"))
            keyed.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        return keyed.hexdigest()

    def digests_of_rows(self, examples: Examples) -> tuple[str, str]:
        """Of which rows belong together by their keys, whatever these are called, and when; and of what an
        encoder made of each row's features, some rows at a time."""
        columns = [
            _in_order(examples.key(name)) for name in sorted(examples.keys) if name not in ("row", "time")
        ]
        times = [examples.key("time")] if "time" in examples.keys else []
        features = hashlib.blake2b(key=self._secret, digest_size=16, person=b"tacit-row-ids")
        for first in range(0, len(examples), CHUNK):
            rows = examples.rows(np.arange(first, min(first + CHUNK, len(examples)), dtype=np.int64))
            for ids in (examples.public, examples.sensitive):
                features.update(np.asarray(ids).take(rows, axis=0).tobytes())
        return self.digest(*columns, *times), features.hexdigest()

    def _read(self) -> dict[str, str]:
        try:
            found = read_json(self._path)
        except FileNotFoundError:
            return {}
        except BadInput:
            found = None
        if not isinstance(found, dict) or not all(isinstance(digest, str) for digest in found.values()):
            raise BadInput(f"{self._path}: expected the register of flipped labels, got a torn one")
        return found


def _in_order(names: NDArray[Any]) -> NDArray[Any]:
    """The same for other names: each becomes the number of those that came before it."""
    _, first, which = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]
