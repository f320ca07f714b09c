"""Clean room: bytes by codec, what room and platform compute, growth, a whole run over mTLS, AUC.

The baselines are the codecs that Li et al. (RecSys 2024) measured, on derivatives written out: fp32, QSGD,
top-k and PowerSGD, in the same run on the same model. Frameworks for vertical federated learning take no
part: they are platforms of several services, train by other protocols, and are no small package to install
beside.

Over the network a room is its own process behind mTLS, beside what both sides compute. For AUC one adapter is
tuned twice on the conversions log, by int8 and by fp32.

Each part runs in a process of its own with one thread: `python -m tacit_lab.bench.cleanroom NAME SCALE`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from tacit.cleanroom.model.examples import ConversionExamples
from tacit.cleanroom.model.learning import LearnSettings, predict, pretrain
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.model.settings import ModelSettings
from tacit.cleanroom.platform.steps import AdapterPlan
from tacit.cleanroom.platform.training import AdapterRunSummary, train_adapter
from tacit.cleanroom.protocol import signatures
from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.modes import Signer
from tacit.cleanroom.protocol.requests import RoomLink
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.protocol.tokens import KEY_BYTES, token_key, tokens
from tacit.data.encoding.fingerprints import key_fingerprints as fingerprints
from tacit.data.generators.conversion_model import LONGEST
from tacit.data.generators.conversions import FIELD_NAMES, FIELD_VALUES, ConversionsWorld
from tacit.data.generators.worlds import LogWorld
from tacit.entropy import Entropy, Simulation
from tacit.schema.columns import Role as ColumnRole
from tacit.services.room import keys, trial
from tacit.services.room.remote_room import RemoteRoom
from tacit.services.room.settings import TlsIdentity
from tacit.services.settings import read_secret_file
from tacit.train.evaluation.intervals import mean_over_seeds
from tacit.train.evaluation.measures import expected_auc
from tacit_lab.bench.cleanroom_costs import platform_work, room_memory, room_work, sizes, step_growth
from tacit_lab.bench.cleanroom_workload import (
    ACTION_PARTS,
    ADAPTER,
    SMALL,
    TASK,
    CleanroomScale,
    TrainingRows,
    WatchedRoom,
    held_room,
    make_batch,
    make_model,
    model_text,
)
from tacit_lab.bench.measurement import Measurement, SuiteProgress
from tacit_lab.bench.training import ONE_THREAD

LOOPBACK_BAR = 2.0
NAME, HOST = "bench", "127.0.0.1"
HOUR = 3600
SMALL_RANK = 8
POSITIVE = 0.02  # of the labels
STARTED = "listens on"


def loopback(scale: CleanroomScale) -> list[Measurement]:
    return [measured for case in cases(scale) for measured in case.measure(scale.served_turns)]


@dataclass(frozen=True)
class LoopbackCase:
    """One model and its run."""

    name: str
    model: ModelSettings
    rank: int
    rows: int
    batch: int
    bar: float | None = None

    def measure(self, turns: int) -> list[Measurement]:
        """One run by both ways in turns: the clock on the wall beside the sum of what each side's work took."""
        model, examples = (
            make_model(self.model, self.rank),
            TrainingRows(make_batch(self.model, self.rows, "short")),
        )
        start, labels = model.adapter_values(ADAPTER), make_labels(self.rows)
        plan = AdapterPlan(batch=self.batch, epochs=1)

        def train(link: RoomLink, tokens: NDArray[np.uint8], name: str) -> tuple[float, AdapterRunSummary]:
            model.set_adapter_values(ADAPTER, start)
            began = time.perf_counter()
            done = train_adapter(model, ADAPTER, examples, tokens, link, plan, run=name)
            return time.perf_counter() - began, done

        found = []
        with tempfile.TemporaryDirectory() as place:
            files = PartyFiles.make(Path(place), labels, self.batch)
            held = held_room(files.tokens, labels, smallest_batch=self.batch)
            with serve_room(files) as link:
                for turn in range(turns + 1):
                    watched = WatchedRoom(held)
                    _, alone = train(watched, files.tokens, f"held {turn}")
                    wall, done = train(link, files.tokens, f"served {turn}")
                    if turn:  # the first is to warm up
                        found.append(LoopbackTurn(wall, alone.seconds_computing, watched.seconds))
        return self._figures(done, found)

    def _figures(self, done: AdapterRunSummary, turns: list[LoopbackTurn]) -> list[Measurement]:
        wall, platform, room = (
            median(getattr(turn, each) for turn in turns) for each in ("wall", "platform", "room")
        )
        settings = (
            f"{model_text(self.model)}; rank {self.rank}, int8, {done.steps} steps of {self.batch} rows: "
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


def cases(scale: CleanroomScale) -> list[LoopbackCase]:
    """The large model is held to the bar; the small one computes little, so that all else shows."""
    return [
        LoopbackCase("loopback", scale.model, scale.rank, scale.served_rows, scale.served_batch, LOOPBACK_BAR),
        LoopbackCase("loopback_small", SMALL, SMALL_RANK, scale.served_small_rows, scale.served_small_batch),
    ]


@dataclass(frozen=True)
class LoopbackTurn:
    """Seconds of one run: over the network, and each side's own work."""

    wall: float
    platform: float
    room: float

    @property
    def ratio(self) -> float:
        return self.wall / (self.platform + self.room)


@dataclass(frozen=True, eq=False)
class PartyFiles:
    """What both parties have before they meet, in two folders."""

    folder: Path
    address: str
    terms: Terms
    tokens: NDArray[np.uint8]

    @classmethod
    def make(cls, folder: Path, labels: NDArray[np.uint8], smallest_batch: int) -> PartyFiles:
        now, port = int(time.time()), _free_port()
        keys.write_keys(folder, platform="platform", room="room", now=now, entropy=Entropy())
        private = {
            role: signatures.private_key(read_secret_file("signing", folder / role / f"{role}.signing"))
            for role in Signer
        }
        terms = Terms(
            name=NAME,
            platform="platform",
            room="room",
            platform_key=signatures.public_key(private[Signer.PLATFORM]),
            room_key=signatures.public_key(private[Signer.ROOM]),
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
        shared = token_key(read_secret_file("token", folder / "platform" / "token.key"), NAME)
        named = tokens(fingerprints(ids, str(ColumnRole.RECORD)), shared)
        return cls(folder, f"{HOST}:{port}", terms, named)

    @property
    def identity(self) -> TlsIdentity:
        own = self.folder / "platform"
        content = [own / name for name in ("authority.crt", "platform.crt", "platform.key")]
        return TlsIdentity("platform", *(path.read_bytes() for path in content))


@contextlib.contextmanager
def serve_room(files: PartyFiles) -> Iterator[RemoteRoom]:
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


AS_GOOD_AS_TRUE = Fraction(40)  # an epsilon at which one label in 10^17 is flipped
AUC_BAR = 0.1  # percent of AUC, either way
SEED = 11
TEST_SHARE = 1 / 3  # of the sensitive advertiser's clicks, the last ones
CODECS = ("fp32", "int8")
RATE = 5e-3  # so that there is a gain to lose: at the plan's own rate an adapter this small hardly learns
LIGHT: dict[str, Any] = {"dim": 8, "interactions": 1, "tower": (32,)}  # fast to train; the rest are defaults


@dataclass(frozen=True, eq=False)
class QualitySetting:
    """A pre-trained model, and the clicks of the advertiser that it was not trained on."""

    model: ConversionModel
    tuned: ConversionExamples
    test: ConversionExamples
    truth: NDArray[np.float64]  # the probability of each conversion in `test`

    @classmethod
    def make(cls, rows: int) -> QualitySetting:
        sharing = ConversionsWorld.advertisers_sharing
        # Half of all clicks are its own.
        world = ConversionsWorld(SEED, shares=(1 / sharing,) * sharing + (1.0,))
        examples, truth = draw_examples(world, rows)
        own = np.flatnonzero(examples.advertiser == sharing)
        model = ConversionModel(examples.settings(**LIGHT), seed=SEED)
        others = examples.select(examples.advertiser != sharing)
        pretrain(model, others, settings=LearnSettings(batch=512, seed=SEED))
        last = own[-round(TEST_SHARE * len(own)) :]
        tuned = examples.select(own[: len(own) - len(last)])
        return cls(model, tuned, examples.select(last), truth[last])

    def auc_after(self, codec: str, rank: int, seed: int) -> float:
        """Without the noise of labels in the test: their probabilities are known."""
        key = bytes(KEY_BYTES)
        named = tokens(self.tuned.records, key)
        link = held_room(named, self.tuned.labels(TASK), epsilon=AS_GOOD_AS_TRUE)
        self.model.add_adapter(ADAPTER, int(self.tuned.advertiser[0]), rank, seed=seed)
        try:
            batch = min(1024, len(self.tuned))
            plan = AdapterPlan(loss=Loss.RAW, codec=codec, batch=batch, learning_rate=RATE, seed=seed)
            train_adapter(self.model, ADAPTER, self.tuned, named, link, plan, run=f"{codec} {seed}")
            return expected_auc(predict(self.model, self.test, TASK), self.truth)
        finally:
            self.model.remove_adapter(ADAPTER)


def quality(scale: CleanroomScale) -> list[Measurement]:
    setting = QualitySetting.make(scale.log_rows)
    before = expected_auc(predict(setting.model, setting.test, TASK), setting.truth)
    found = [
        {codec: setting.auc_after(codec, scale.tuned_rank, seed) for codec in CODECS}
        for seed in range(scale.seeds)
    ]
    losses = [100 * (1 - each["int8"] / each["fp32"]) for each in found]
    loss = mean_over_seeds(losses)
    settings = (
        f"{model_text(setting.model.settings)}; conversions log, made up: {len(setting.tuned):,} clicks of the "
        f"sensitive advertiser, tested on {len(setting.test):,} with known probabilities; rank "
        f"{scale.tuned_rank}, {scale.seeds} seeds, one cycle up to "
        f"{RATE} in {AdapterPlan.epochs} epochs; the same rows, order and start for both codecs; AUC "
        f"before {before:.4f}, after: "
        + ", ".join(f"fp32 {each['fp32']:.5f} int8 {each['int8']:.5f}" for each in found)
        + f"; loss of AUC {loss.value:+.4f}% +- {loss.high - loss.value:.4f} ({loss.level:.0%}, over seeds); "
        f"memoised flips at epsilon {AS_GOOD_AS_TRUE}, so that rounding is all that differs"
    )
    gains = [100 * (each["int8"] / before - 1) for each in found]
    return [
        Measurement("auc_change_int8_percent", abs(loss.value), "%", AUC_BAR, False, settings),
        Measurement("auc_gain_by_tuning_percent", mean(gains), "%", settings=settings),
    ]


def draw_examples(world: LogWorld, rows: int) -> tuple[ConversionExamples, NDArray[np.float64]]:
    """Clicks as a model reads them, and the probability of each conversion."""
    parts = list(world.batches(rows))
    table = pa.Table.from_batches([part.batch for part in parts])
    truth = np.concatenate([part.truth["probability"].to_numpy() for part in parts])
    lists = {name: table[f"sequence_{name}"].combine_chunks() for name in ACTION_PARTS}
    lengths = np.diff(lists["topic"].offsets.to_numpy())
    sequences = np.zeros((rows, LONGEST, len(ACTION_PARTS)), np.int64)
    for part, values in enumerate(lists.values()):
        sequences[np.arange(LONGEST) < lengths[:, None], part] = values.flatten().to_numpy()
    examples = ConversionExamples(
        np.stack([table[name].to_numpy() for name in FIELD_NAMES], axis=1),
        np.zeros((rows, 0), np.float32),
        sequences,
        lengths,
        table["advertiser"].to_numpy(),
        table["click_id"].to_numpy().astype(np.uint64),
        {TASK: table[TASK].to_numpy().astype(np.uint8)},
        tuple(FIELD_VALUES),
        tuple(ACTION_PARTS.values()),
    )
    return examples, truth


PARTS: dict[str, Callable[[CleanroomScale], list[Measurement]]] = {
    "sizes": sizes,
    "room": room_work,
    "platform": platform_work,
    "growth": step_growth,
    "memory": room_memory,
    "loopback": loopback,
    "quality": quality,
}


FULL = CleanroomScale()
BASELINES = "1 thread; no framework of vertical learning beside: baselines are the published codecs"


def run(progress: SuiteProgress, scale: CleanroomScale = FULL) -> list[Measurement]:
    parts: list[Callable[[], list[Measurement]]] = [partial(_in_a_process, name, scale) for name in PARTS]
    return [measured for part in progress(parts, "cleanroom") for measured in part()]


def _in_a_process(name: str, scale: CleanroomScale) -> list[Measurement]:
    """One part, by a process whose environment is this one's but for the number of threads."""
    arguments = ["tacit_lab.bench.cleanroom", name, json.dumps(scale.as_json())]
    command = [
        "env",
        *(f"{key}={value}" for key, value in ONE_THREAD.items()),
        sys.executable,
        "-m",
        *arguments,
    ]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    versions = ", ".join(f"{package} {version(package)}" for package in ("numpy", "torch", "grpcio"))
    return [
        replace(measured, settings=f"{measured.settings}; {BASELINES}; {versions}")
        for measured in (Measurement(**record) for record in json.loads(child.stdout))
    ]


def main() -> None:
    name, scale = sys.argv[1], CleanroomScale.from_json(json.loads(sys.argv[2]))
    torch.set_num_threads(1)
    print(json.dumps([asdict(measured) for measured in PARTS[name](scale)]))


if __name__ == "__main__":
    main()
