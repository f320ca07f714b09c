"""The secret that keys the flips of labels, in a file of its own, and a register of what was flipped with it.

With the secret every flip can be undone. If it is lost, flipping the same labels again is another release. The
register beside it holds keyed digests of the labels behind each release, and of each unit's share of epsilon.
Flips of labels that changed since would show which ones did, and flips of other rows of the same people would
show more than was paid for: both need a new version and a new payment.

A release of flips (`LabelFlipRelease`) has its own name in the ledger: it is drawn once, and read for ever.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.files import OTHERS_MODE, PRIVATE_MODE, read_json, write_atomically, write_once
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES, FlipKey
from tacit.train.config import PrivacySettings
from tacit.train.examples import CHUNK, Examples, group_by_unit
from tacit.train.labels.mechanism import LabelMechanism
from tacit.train.labels.noisy_targets import labels_for_mechanism
from tacit.train.labels.windows import RepeatedFlips


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

    def agrees(
        self,
        digests: Mapping[str, str],
        of_known: Callable[[Collection[str]], Mapping[str, str]] = lambda _: {},
    ) -> bool:
        """Whether nothing else is known under these names. If so, what was not known yet is noted, on the disk
        before this returns: ask before the flips are paid for. `of_known` makes more of them from the names
        that there are."""
        with self._secret_path.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # two runs that begin at once must not both be the first
            known = self._read()
            digests = {**digests, **of_known(known.keys())}
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


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """The true labels of some rows, and which of them a cap keeps with which share of their unit's epsilon."""

    labels: NDArray[Any]
    records: NDArray[Any]
    allocation: Allocation
    groups: NDArray[Any] | None  # each row's unit; None where every row is its own
    examples: Examples
    reported: RepeatedFlips | None = None  # where labels, as seconds to conversion, are reported several times

    @classmethod
    def of(
        cls, examples: Examples, allocation: Allocation, mechanism: LabelMechanism | None = None
    ) -> LabelledRows:
        """Of labels that are 0 or 1, or such as the mechanism reads."""
        labels = examples.labels if mechanism is None else labels_for_mechanism(mechanism, examples)
        groups = group_by_unit(examples, allocation.unit)
        reported = mechanism if isinstance(mechanism, RepeatedFlips) else None
        return cls(_whole(labels), examples.key("row"), allocation, groups, examples, reported)


def labels_changed(version: int) -> BadInput:
    return BadInput(
        "labels.version: expected a higher one for labels that have changed since they were flipped, "
        f"or whose rows are of other people now, got {version}; a new version is a new release, and is paid for"
    )


@dataclass(frozen=True, eq=False)
class LabelFlipRelease:
    """Labels that are flipped once and read for ever: all that their law and their draws depend on."""

    privacy: PrivacySettings
    spelled: str
    flips: FlipKey
    secret: bytes = field(repr=False)
    scope: str  # of the ledger that pays for them
    secret_path: Path | None = None  # where the secret is kept, with its register beside it

    @property
    def key(self) -> str:
        """Their name in the ledger."""
        privacy, cap = self.privacy, self.privacy.cap
        assert privacy.epsilon is not None
        facts = [repr(privacy.unit), str(cap.impressions), cap.choice, cap.split]
        return self._named(f"{self.scope}/labels", *facts, str(Fraction(privacy.epsilon)), self.spelled)

    @property
    def attempt(self) -> str:
        """Their attempt in the ledger, known by the secret alone: with it, anybody makes the same flips."""
        return keyed_token(self.secret)

    def refuse_changed(self, behind: LabelledRows, *, paid_as: str | None = None) -> str:
        """Flips must be of the labels that they were drawn from, of the same rows of the same people, whichever
        ledger pays for them. What they are drawn from comes back as a digest, for the ledger; `paid_as` is the
        key under which that knows these flips already, if it does.

        A row's flip depends on its place, its label, its law and the secret. Releases under other caps and
        budgets may share laws, so all of them are of one set of labels. In another order the same people would
        be flipped once more, so what stands in each row is looked at too: its keys, and what an encoder makes
        of its features.
        """
        assert self.secret_path is not None, "a secret that is paid for is kept"
        register = FlipRegister(self.secret_path, self.secret)
        if paid_as is not None and not register.knows(self.key):
            raise BadInput(
                f"ledger.secret: expected a register beside {self.secret_path} that knows the labels behind "
                f"{paid_as}, got none; put it back, or raise labels.version for a new release"
            )
        allocation = behind.allocation
        shares = [allocation.kept, allocation.divisor, *([] if behind.groups is None else [behind.groups])]
        # Of labels that are reported as time goes on, the ledger is told the rows, and the register keeps them.
        told = [] if behind.reported is not None else [behind.labels]
        truth, shared = register.digest(behind.records, *told), register.digest(behind.records, *shares)
        keys, features = register.digests_of_rows(behind.examples)
        encoder = behind.examples.encoder_digest
        same = register.agrees(
            {
                self._named(f"{self.scope}/truth" if told else f"{self.scope}/reported"): truth,
                self._named(f"{self.scope}/keys"): keys,
                self._named(f"{self.scope}/rows", encoder): features,
                self.key: shared,
            },
            lambda known: (
                {} if behind.reported is None else self._reports(register, behind, behind.reported, known)
            ),
        )
        if not same:
            raise labels_changed(self.flips.version)
        return f"{truth}{shared}{keys}"

    def _reports(
        self, register: FlipRegister, behind: LabelledRows, reported: RepeatedFlips, known: Collection[str]
    ) -> dict[str, str]:
        """Digests of the labels as each report found them: of the rows up to the last that it was made of by
        now, and up to each last row that the register knows. Labels of later rows are not reported yet."""
        times, found = np.asarray(behind.examples.key("time"), np.int64), {}
        for report, delay in enumerate(reported.windows.delays):
            name = f"{self._named(f'{self.scope}/truth', f'{delay} seconds')}/up to "
            lasts = {int(each.removeprefix(name)) for each in known if each.startswith(name)}
            if (reported.closed > report).any():
                lasts.add(int(times[reported.closed > report].max()))
            labels = reported.windows.labels(behind.labels, report)
            for last in lasts:
                rows = times <= last
                found[f"{name}{last}"] = register.digest(behind.records[rows], labels[rows])
        return found

    def _named(self, kind: str, *facts: str) -> str:
        spelled = json.dumps([*self.flips.fields, *facts, secret_name(self.secret)])
        return f"{kind}/{hashlib.sha256(spelled.encode()).hexdigest()[:24]}"


def _whole(labels: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers that differ where labels do: their bits, where some are fractions."""
    whole = labels.dtype.kind != "f" or (np.isfinite(labels) & (labels == np.trunc(labels))).all()
    return labels.astype(np.int64) if whole else labels.astype("<f8").view("<i8")


def _in_order(names: NDArray[Any]) -> NDArray[Any]:
    """The same for other names: each becomes the number of those that came before it."""
    _, first, which = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]
