"""Checkpoints: a run that died continues from where it last stood.

A folder beside the model, `.NAME.checkpoint`, belongs to one run of one training. It exists before anything is
paid for, so that a run that finds its payment already made can tell that it made it.

Why continuing is no second release. A checkpoint holds weights and the optimizer's state, and nothing random:
the run that continues draws new batches and new noise. Steps that were taken after the checkpoint are lost;
nobody saw them, and what a run shows on its way (steps, expected counts, the epsilon of a plan) does not depend
on private data. So what leaves in the end came from exactly the planned number of steps, each with fresh noise.
This assumes that what ended the run had nothing to do with private data. The folder is readable by its owner
alone, and is removed when the model is in place and paid for.

Two runs from copies of one folder would be two releases. So a run that is paid for holds its payment by a token
(`hold`), and changes it whenever it starts and whenever it writes a checkpoint. The next token is on the disk
before it is exchanged: a run that dies between the two finds both, and one of them counts. A copy has tokens
that another run has exchanged already, and is refused when it starts; if it was made in the very moment of an
exchange, whichever of the two exchanges its token first continues, and the other is refused at its next
exchange.

The finished model waits in the folder until the folder says, on the disk, that it was made; only then is it put
in its place. A run whose model was made never trains again, even if the model has been moved since.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32
from tacit.data.folders import read_manifest
from tacit.entropy import draw_token
from tacit.errors import BadInput
from tacit.files import (
    PRIVATE_MODE,
    file_digest,
    folder_digest,
    hold_lock,
    open_private,
    record_digest,
    refuse_bad_record,
    write_atomically,
)
from tacit.privacy.units import Unit
from tacit.train.config import CheckpointSettings
from tacit.train.examples import Examples, group_by_unit
from tacit.train.labels.windows import RepeatedFlips
from tacit.train.models.model import Model, named_weights
from tacit.train.plan import Plan, PrivatePhase
from tacit.train.sgd.descent import GradientDescent, TableUpdate
from tacit.train.steps import Mark

VERSION = 2
MANIFEST = "checkpoint.json"
START = Mark(0, 0)

TokenExchange = Callable[[str, Collection[str]], object]
"""Takes a new token in exchange for any of those that are presented, or raises."""


def checkpoint_folder(out: Path) -> Path:
    place = out.resolve()
    return place.with_name(f".{place.name}.checkpoint")


@dataclass(frozen=True)
class CheckpointRecord:
    """What the folder says: whose it is, and how far that run had come."""

    training: str  # the digest of everything that the training depends on
    run: str  # a name for this run alone, which its model carries too
    mark: Mark = START
    file: str | None = None
    file_digest: str | None = None
    taken: Mapping[str, int] | None = None  # by update: the steps that its moments have seen
    made: bool = False  # the model is whole, and may be in its place: this run never trains again
    tokens: tuple[str, ...] = ()  # the payment is held by one of these, the last one most likely
    release: str | None = None  # the digest of the model that was made


class Checkpoints:
    """The folder of one run, held by this process alone; a `run.CheckpointKeeper`."""

    def __init__(self, out: Path, training: str, keeping: CheckpointSettings) -> None:
        self.folder, self._keeping, self._training = checkpoint_folder(out), keeping, training
        self._lock = ExitStack()
        self._kept: CheckpointRecord | None = None
        self._exchange: TokenExchange | None = None
        self._stop, self._since, self._last = False, 0, time.monotonic()

    def claim(self, *, resume: bool) -> bool:
        """Take the folder; whether a run had begun in it. Refused where it is another training's or in use."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        try:
            return self._claimed(resume)
        except BaseException:
            self.release()
            raise

    def _claimed(self, resume: bool) -> bool:
        refusal = "expected no other run here, got one that is training"
        self._lock.enter_context(hold_lock(self.folder / "lock", str(self.folder), refusal))
        if not (self.folder / MANIFEST).exists():
            self._write(CheckpointRecord(self._training, draw_token()))
            return False
        found = _read(self.folder)
        if found.training != self._training:
            raise BadInput(
                f"{self.folder}: expected a checkpoint of this configuration and data, got one of another; "
                "train with what it was begun with, or remove it"
            )
        if not resume:
            raise BadInput(
                f"{self.folder}: expected no checkpoint, got one at {describe_mark(found.mark)} of this "
                "training; go on with --resume, or remove it"
            )
        self._kept = found
        if not found.made:  # staged and never said to be made: this run will make another one
            shutil.rmtree(self.staged, ignore_errors=True)
        return True

    def release(self) -> None:
        """Let go of the folder and leave it as it is."""
        self._lock.close()

    def discard(self) -> None:
        """Nothing will go on from here."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.release()

    @property
    def mark(self) -> Mark:
        return self._current.mark

    @property
    def run(self) -> str:
        """The name of this run."""
        return self._current.run

    @property
    def staged(self) -> Path:
        """Where the model waits, whole, until it is put in its place."""
        return self.folder / "model"

    @property
    def made(self) -> bool:
        """Whether this run has made its model. Training again would be a second one for one payment."""
        return self._current.made

    @property
    def release_digest(self) -> str:
        """Of the model that was made, as `note_made` found it; folders of before there were tokens lack it."""
        return self._current.release or folder_digest(self.staged)

    def is_as_noted(self) -> bool:
        """Whether the model that waits is the one that was made: folders can be put together anew."""
        return folder_digest(self.staged) == self.release_digest

    @property
    def token(self) -> str | None:
        """What holds the payment, once `hold` has returned; None where nothing is held."""
        return self._current.tokens[-1] if self._current.tokens else None

    def hold(self, exchange: TokenExchange) -> None:
        """Hold what was paid from here on, alone: `exchange` is asked now, and at every checkpoint."""
        self._exchange = exchange
        self._exchanged(self._current)

    def note_made(self) -> None:
        """To be said when the model is staged, before anybody can see it in its place."""
        self._write(replace(self._current, made=True, release=folder_digest(self.staged)))

    def unmake(self) -> None:
        """The model that is staged may not leave: somebody else's did."""
        shutil.rmtree(self.staged, ignore_errors=True)
        self._write(replace(self._current, made=False, release=None))

    def ask_to_stop(self) -> None:
        """Keep a checkpoint after the step that is being taken, and end as on Ctrl-C."""
        self._stop = True

    def due(self, mark: Mark) -> bool:
        del mark
        self._since += 1
        keeping = self._keeping
        if self._stop or (keeping.every_steps is not None and self._since >= keeping.every_steps):
            return True
        minutes = (time.monotonic() - self._last) / 60
        return keeping.every_minutes is not None and minutes >= keeping.every_minutes

    def keep(self, mark: Mark, model: Model, descent: GradientDescent) -> None:
        """Write all of it under a new name, and only then say that it is there."""
        name = f"state-{mark.phase}-{mark.step}-{draw_token(4)}.npz"
        with open_private(self.folder / name, "wb") as file:
            np.savez(file, allow_pickle=False, **named_weights(model), **_memories(descent))
            file.flush()
            os.fsync(file.fileno())
        taken = {each: update.steps for each, update in _updates(descent).items() if hasattr(update, "steps")}
        digest = file_digest(self.folder / name)
        self._exchanged(replace(self._current, mark=mark, file=name, file_digest=digest, taken=taken))
        for old in self.folder.glob("state-*.npz"):
            if old.name != name:
                old.unlink()
        self._since, self._last = 0, time.monotonic()
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """End as on Ctrl-C, where nothing is to be kept beyond the last checkpoint."""
        if self._stop:
            raise KeyboardInterrupt

    def restore(
        self, model: Model, start: Callable[[int], GradientDescent]
    ) -> tuple[Mark, GradientDescent | None]:
        kept = self._current
        if kept.file is None:
            return kept.mark, None
        place = self.folder / kept.file
        if not place.is_file() or file_digest(place) != kept.file_digest:
            raise BadInput(f"{place}: expected the checkpoint that was kept, got none or a torn one")
        descent = start(kept.mark.phase)
        expected = {**named_weights(model), **_memories(descent)}
        try:
            with np.load(place, allow_pickle=False) as found:
                if set(found.files) != expected.keys():
                    raise BadInput(f"{place}: expected {', '.join(sorted(expected))}, got other arrays")
                for name, array in expected.items():
                    array[...] = found[name]
        except (OSError, ValueError, EOFError, SyntaxError, MemoryError, zipfile.BadZipFile):
            raise BadInput(f"{place}: expected a whole checkpoint, got something else") from None
        for name, update in _updates(descent).items():
            if kept.taken and name in kept.taken:
                update.steps = kept.taken[name]  # type: ignore[attr-defined]
        return kept.mark, descent

    @property
    def _current(self) -> CheckpointRecord:
        assert self._kept is not None, "claim comes first"
        return self._kept

    def _exchanged(self, kept: CheckpointRecord) -> None:
        """Write the folder's record, and hold the payment by a new token where there is one to hold."""
        if self._exchange is None:
            self._write(kept)
            return
        token, known = draw_token(), kept.tokens
        self._write(replace(kept, tokens=(*known, token)))  # before it counts: a run that dies here has both
        self._exchange(token, known)
        self._kept = replace(kept, tokens=(token,))  # said on the disk with the next one

    def _write(self, kept: CheckpointRecord) -> None:
        record = {
            "version": VERSION,
            "training": kept.training,
            "run": kept.run,
            "mark": [kept.mark.phase, kept.mark.step],
            "file": kept.file,
            "file_digest": kept.file_digest,
            "taken": dict(kept.taken or {}),
            "made": kept.made,
            "tokens": list(kept.tokens),
            "release": kept.release,
        }
        record["digest"] = record_digest(record)
        write_atomically(self.folder / MANIFEST, json.dumps(record, indent=2).encode(), mode=PRIVATE_MODE)
        self._kept = kept


def describe_mark(mark: Mark) -> str:
    return f"phase {mark.phase + 1}, step {mark.step:,}"


def _read(folder: Path) -> CheckpointRecord:
    record = read_manifest(folder, MANIFEST, what="a checkpoint", version=VERSION)
    if record.get("digest") != record_digest(record):
        raise BadInput(
            f"{folder / MANIFEST}: expected a record that fits its digest, got a torn or changed one"
        )
    with refuse_bad_record(folder / MANIFEST, "a checkpoint"):
        phase, step = (expect.whole("mark", number, at_least=0) for number in record["mark"])
        name = record["file"]
        if name is not None and Path(name).name != name:
            raise BadInput("expected a checkpoint's file by its name alone, got another")
        taken = {str(each): expect.whole("taken", steps, at_least=0) for each, steps in record["taken"].items()}
        return CheckpointRecord(
            str(record["training"]), str(record["run"]), Mark(phase, step), name, record["file_digest"], taken,
            bool(record["made"]),
            tuple(map(str, record.get("tokens", ()))),  # none where the run began before there were any
            None if record.get("release") is None else str(record["release"]),
        )  # fmt: skip


def training_digest(
    settings: str, unit: Unit | None, plan: Plan, examples: Examples, rows: str, secret: str
) -> str:
    """Of everything that a checkpoint depends on. It covers the labels, so it never leaves the checkpoint.

    `settings` is a digest of what decides the rest of a run; `rows` and `secret` are names. Where a `unit` is
    promised something, whose rows are whose is in it too: with other keys there are other units and shares.
    """
    spelled = hashlib.sha256()
    for part in (settings, rows, examples.encoder_digest, secret, repr(plan.releases)):
        spelled.update(f"{part}\n".encode())
    for phase in plan.phases:
        learning = (phase.name, str(phase.part), repr(phase.learning), repr(phase.schedule))
        spelled.update(repr(learning).encode())
        if isinstance(phase, PrivatePhase):
            spelled.update(repr((phase.clipping, phase.sampling_probability)).encode())
            _add(spelled, phase.groups)
        elif phase.labelling is not None:
            _add(spelled, phase.labelling.allocation.kept)
            _add(spelled, phase.labelling.allocation.divisor)
            reported = phase.labelling.mechanism
            if isinstance(reported, RepeatedFlips):
                spelled.update(repr((reported.windows, reported.correction)).encode())
                _add(spelled, reported.closed)
                _add(spelled, examples.delays)
    if unit is not None:
        _add(spelled, group_by_unit(examples, unit))
    if examples.label is not None:
        spelled.update(np.ascontiguousarray(examples.at.of(examples.label)).tobytes())
    return spelled.hexdigest()


def _add(spelled: hashlib._Hash, numbers: NDArray[Any] | None) -> None:
    """With how many there are, so that no two lists of arrays look alike."""
    spelled.update(f"{None if numbers is None else len(numbers)}\n".encode())
    if numbers is not None:
        spelled.update(np.ascontiguousarray(numbers, dtype="<i8").tobytes())


def _updates(descent: GradientDescent) -> dict[str, TableUpdate]:
    tables = {f"tables.{name}": update for name, update in descent.tables.items()}
    return {**tables, **{f"dense.{name}": update for name, update in descent.dense.items()}}


def _memories(descent: GradientDescent) -> dict[str, Floats32]:
    return {
        f"memory.{name}.{what}": array
        for name, update in _updates(descent).items()
        for what, array in update.memory.items()
    }
