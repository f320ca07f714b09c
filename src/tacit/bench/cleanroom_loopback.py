"""A whole run over the network: a room as its own process behind mTLS, beside what both sides compute."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tacit.bench.cleanroom_held import Watched, held_room
from tacit.bench.cleanroom_workload import ADAPTER, SMALL, TASK, Rows, Scale, described, make_batch, make_model
from tacit.bench.measurement import Measurement
from tacit.cleanroom.model.settings import ModelSettings
from tacit.cleanroom.platform.link import RoomLink
from tacit.cleanroom.platform.plans import Plan
from tacit.cleanroom.platform.training import Trained, train_adapter
from tacit.cleanroom.wire import signing
from tacit.cleanroom.wire.agreement import Role, Terms
from tacit.cleanroom.wire.amending import Agreement
from tacit.cleanroom.wire.tokens import token_key, tokens
from tacit.data.encoding.tokens import keys as fingerprints
from tacit.entropy import Entropy, Simulation
from tacit.schema.columns import Role as ColumnRole
from tacit.services.room import keys, trial
from tacit.services.room.calling import RemoteRoom
from tacit.services.room.settings import Identity
from tacit.services.settings import secret_at

LOOPBACK_BAR = 2.0
NAME, HOST = "bench", "127.0.0.1"
HOUR = 3600
SMALL_RANK = 8
POSITIVE = 0.02  # of the labels
STARTED = "listens on"


def loopback(scale: Scale) -> list[Measurement]:
    return [measured for case in cases(scale) for measured in case.measured(scale.served_turns)]


@dataclass(frozen=True)
class Case:
    """One model and its run."""

    name: str
    model: ModelSettings
    rank: int
    rows: int
    batch: int
    bar: float | None = None

    def measured(self, turns: int) -> list[Measurement]:
        """One run by both ways in turns: the clock on the wall beside the sum of what each side's work took."""
        model, examples = make_model(self.model, self.rank), Rows(make_batch(self.model, self.rows, "short"))
        start, labels = model.adapter_values(ADAPTER), make_labels(self.rows)
        plan = Plan(batch=self.batch, epochs=1)

        def trained(link: RoomLink, tokens: NDArray[np.uint8], name: str) -> tuple[float, Trained]:
            model.set_adapter_values(ADAPTER, start)
            began = time.perf_counter()
            done = train_adapter(model, ADAPTER, examples, tokens, link, plan, run=name)
            return time.perf_counter() - began, done

        found = []
        with tempfile.TemporaryDirectory() as place:
            files = Files.made(Path(place), labels, self.batch)
            held = held_room(files.tokens, labels, smallest_batch=self.batch)
            with served(files) as link:
                for turn in range(turns + 1):
                    watched = Watched(held)
                    _, alone = trained(watched, files.tokens, f"held {turn}")
                    wall, done = trained(link, files.tokens, f"served {turn}")
                    if turn:  # the first is to warm up
                        found.append(Turn(wall, alone.seconds_computing, watched.seconds))
        return self._figures(done, found)

    def _figures(self, done: Trained, turns: list[Turn]) -> list[Measurement]:
        wall, platform, room = (
            median(getattr(turn, each) for turn in turns) for each in ("wall", "platform", "room")
        )
        settings = (
            f"{described(self.model)}; rank {self.rank}, int8, {done.steps} steps of {self.batch} rows: "
            f"{done.bytes_sent / 1e6:.1f} MB to a room in a process of its own (gRPC, mTLS, SQLite with a "
            f"commit to disk a step), {done.bytes_received / 1e6:.1f} MB back; wall {wall:.2f} s; computing "
            f"alone, in one process: platform {platform:.2f} s (forward, backward, encoding, step), room "
            f"{room:.2f} s (decoding, joining, adding up); 1 thread a side, both at the same time; median of "
            f"{len(turns)} turns"
        )
        ratio = median(turn.ratio for turn in turns)
        return [
            Measurement(f"{self.name}_wall_vs_compute", ratio, "x", self.bar, False, settings),
            Measurement(f"{self.name}_sent_a_second", done.bytes_sent / 1e6 / wall, "MB/s", settings=settings),
            Measurement(f"{self.name}_examples_a_second", done.examples / wall, "1/s", settings=settings),
        ]


def cases(scale: Scale) -> list[Case]:
    """The large model is held to the bar; the small one computes little, so that all else shows."""
    return [
        Case("loopback", scale.model, scale.rank, scale.served_rows, scale.served_batch, LOOPBACK_BAR),
        Case("loopback_small", SMALL, SMALL_RANK, scale.served_small_rows, scale.served_small_batch),
    ]


@dataclass(frozen=True)
class Turn:
    """Seconds of one run: over the network, and each side's own work."""

    wall: float
    platform: float
    room: float

    @property
    def ratio(self) -> float:
        return self.wall / (self.platform + self.room)


@dataclass(frozen=True, eq=False)
class Files:
    """What both parties have before they meet, in two folders."""

    folder: Path
    address: str
    terms: Terms
    tokens: NDArray[np.uint8]

    @classmethod
    def made(cls, folder: Path, labels: NDArray[np.uint8], smallest_batch: int) -> Files:
        now, port = int(time.time()), _free_port()
        keys.write(folder, platform="platform", room="room", now=now, entropy=Entropy())
        private = {
            role: signing.private_key(secret_at("signing", folder / role / f"{role}.signing")) for role in Role
        }
        terms = Terms(
            name=NAME,
            platform="platform",
            room="room",
            platform_key=signing.public_key(private[Role.PLATFORM]),
            room_key=signing.public_key(private[Role.ROOM]),
            tasks=(TASK,),
            smallest_batch=smallest_batch,
            begins=now - HOUR,
            expires=now + HOUR,
        )
        agreement = Agreement.propose(terms)
        for role, key in private.items():
            agreement = agreement.sign(role, key)
        ids = pa.array(np.arange(len(labels)))
        pq.write_table(pa.table({trial.ID: ids, TASK: labels}), folder / "room" / "labels.parquet")
        (folder / "room" / "agreement.json").write_bytes(agreement.to_bytes())
        (folder / "room" / "room.toml").write_text(trial.ROOM.format(port=port))
        shared = token_key(secret_at("token", folder / "platform" / "token.key"), NAME)
        named = tokens(fingerprints(ids, str(ColumnRole.RECORD)), shared)
        return cls(folder, f"{HOST}:{port}", terms, named)

    @property
    def identity(self) -> Identity:
        own = self.folder / "platform"
        content = [own / name for name in ("authority.crt", "platform.crt", "platform.key")]
        return Identity("platform", *(path.read_bytes() for path in content))


@contextlib.contextmanager
def served(files: Files) -> Iterator[RemoteRoom]:
    """`tacit room serve` as it is, for as long as this lasts, and a link to it."""
    command = [sys.executable, "-m", "tacit.cli", "room", "serve", str(files.folder / "room" / "room.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert STARTED in said, f"expected a room that listens, got {said!r}"
            with RemoteRoom(files.address, files.terms.room, files.identity) as link:
                yield link
        finally:
            process.terminate()


def make_labels(rows: int) -> NDArray[np.uint8]:
    drawn = Simulation("labels").words(rows) < np.uint64(POSITIVE * 2**64)
    return drawn.astype(np.uint8)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
