"""Everything for a trial on one machine, on made-up data: two folders, as they would be on two machines.

The platform's log has zeros where the sensitive advertiser's labels were; only the room's folder has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tacit import expect
from tacit.cleanroom.model.examples import advertiser_key, examples_from_log
from tacit.cleanroom.model.learning import LearnSettings, pretrain
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.metrics import LEAST_STANDARD_ERRORS
from tacit.cleanroom.protocol import signatures
from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.modes import Join, Mode, Signer
from tacit.cleanroom.protocol.terms import Terms
from tacit.data.columns import Columns
from tacit.data.generators.conversions import ConversionsWorld
from tacit.data.logs.definition import find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.data.synthetic import MARK, LogDestination, parquet_mark, write_log
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.files import write_new_file
from tacit.services.room import keys
from tacit.services.settings import read_secret_file

LOG, ID, TASKS = "conversions", "click_id", ("conversion", "cart", "engaged")
BINS = 2**13
LEAST_ROWS = 2_000
DAY = 86_400

ROOM = """\
# The room of a trial on one machine. Paths are relative to this file; unknown keys are refused.
[listen]
host = "127.0.0.1"
port = {port}

[tls]
authority = "authority.crt"
certificate = "room.crt"
private_key = "room.key"

[agreement]
file = "agreement.json"
signing = "room.signing"

[labels]                           # made up: labels of the advertiser who does not share them
file = "labels.parquet"
id = "click_id"

[secrets]
room = "room.secret"
token = "token.key"

[store]
room = "room.sqlite"
ledger = "room-ledger.sqlite"
# They notice an old copy that was put back. Elsewhere than the stores, or a backup brings both back together.
room_witness = "../room-witness/room.witness"
ledger_witness = "../room-witness/ledger.witness"
"""

PLATFORM = """\
# The platform of a trial on one machine. Paths are relative to this file; unknown keys are refused.
[room]
address = "127.0.0.1:{port}"

[tls]
authority = "authority.crt"
certificate = "platform.crt"
private_key = "platform.key"

[agreement]
file = "agreement.json"

[secrets]
token = "token.key"
mask = "platform.mask"

[data]
columns = "log"                    # made up; zeros in place of this advertiser's labels
advertiser = {advertiser}

[model]
base = "model.safetensors"         # trained on the advertisers who share
adapter = "sensitive"
rank = {rank}                           # without it, embeddings are tuned where the log has ids
out = "adapter.safetensors"

[run]
name = "first"
folder = "runs"

[plan]                             # what is not said here suits the agreement's mode
batch = {batch}
"""


@dataclass(frozen=True)
class RoomTrial:
    """What was made, and the settings files to run both parties with."""

    folder: Path
    room: Path
    platform: Path
    rows: int
    sensitive_rows: int
    terms: Terms
    rows_for_auc: int | None  # before the room's flips let AUC be told; None in the modes that do not flip


def make_trial(
    folder: Path,
    *,
    rows: int,
    mode: Mode,
    epsilon: Fraction,
    join: Join = Join.TOKENS,
    port: int,
    seed: int,
    now: int,
    entropy: Entropy,
    said: Callable[[str], None] = lambda _: None,
) -> RoomTrial:
    """Make it; refuses a folder that has some of it already, before anything is written."""
    if expect.whole("--rows", rows, at_least=1) < LEAST_ROWS:
        raise BadInput(f"--rows: expected at least {LEAST_ROWS}, for batches that a room accepts, got {rows}")
    for name in ("room/labels.parquet", "platform/log", "platform/model.safetensors"):
        if (folder / name).exists():
            raise BadInput(f"--out: expected a folder without {name}, got one: nothing is written over")
    terms_from = _terms(rows, mode, epsilon, join, now)
    keys.write_keys(folder, platform="platform", room="room", now=now, entropy=entropy)
    room, platform = folder / "room", folder / "platform"
    said(f"making up {rows:,} clicks")
    advertiser, sensitive_rows = _log(room, platform, rows, seed)
    said("training a model on the advertisers who share")
    _model(platform, advertiser, seed)
    terms = terms_from(**_public_keys(folder), most_ids=sensitive_rows if join is Join.PSI else None)
    agreement = Agreement.propose(terms)
    for role in Signer:
        secret = read_secret_file("signing", folder / str(role) / f"{role}.signing")
        agreement = agreement.sign(role, signatures.private_key(secret))
    for party in (room, platform):
        write_new_file(party / "agreement.json", agreement.to_bytes(), private=False)
    batch = max(terms.smallest_batch, min(1024, sensitive_rows // 8))
    texts = {
        room / "room.toml": ROOM.format(port=port),
        platform / "platform.toml": PLATFORM.format(port=port, advertiser=advertiser, rank=8, batch=batch),
    }
    for path, text in texts.items():
        write_new_file(path, text.encode(), private=False)
    enough = _rows_for_auc(room, rows, terms) if mode.flips else None
    return RoomTrial(
        folder, room / "room.toml", platform / "platform.toml", rows, sensitive_rows, terms, enough
    )


def _rows_for_auc(room: Path, rows: int, terms: Terms) -> int:
    """Rows of a log whose tested positives should stand out from the flips (`cleanroom.platform.metrics`)."""
    labels = np.asarray(pq.read_table(room / "labels.parquet")[terms.tasks[0]])
    variance = terms.keep * (1 - terms.keep) / (2 * terms.keep - 1) ** 2  # of a row's stand-in for its label
    rate = max(float(labels.mean()), 1 / len(labels))
    tested_share = float(find_log(LOG).split.shares["test"])
    tested = LEAST_STANDARD_ERRORS**2 * variance / rate**2
    return math.ceil(tested / tested_share * rows / len(labels))


def _terms(rows: int, mode: Mode, epsilon: Fraction, join: Join, now: int) -> Callable[..., Terms]:
    """The terms but for the parties' keys; refused here if they cannot be."""

    def made(platform_key: str, room_key: str, most_ids: int | None) -> Terms:
        return Terms(
            name="trial",
            platform="platform",
            room="room",
            platform_key=platform_key,
            room_key=room_key,
            mode=mode,
            join=join,
            most_ids=most_ids,
            epsilon=epsilon,
            delta=Fraction(0) if mode.flips else Fraction(1, 10**6),
            releases_per_record=3 if mode is Mode.NOISED else 1,
            smallest_batch=64 if rows < 20_000 else 256,
            begins=now - DAY,
            expires=now + 90 * DAY,
        )

    made("0" * 64, "1" * 64, 1 if join is Join.PSI else None)
    return made


def _public_keys(folder: Path) -> dict[str, str]:
    return {
        f"{role}_key": signatures.public_key(
            signatures.private_key(read_secret_file("signing", folder / str(role) / f"{role}.signing"))
        )
        for role in Signer
    }


def _log(room: Path, platform: Path, rows: int, seed: int) -> tuple[int, int]:
    """The platform's prepared log and the room's labels; the sensitive advertiser and its number of rows."""
    log, world = find_log(LOG), ConversionsWorld(seed)
    advertiser = world.advertisers_sharing  # numbered from 0, the sharing ones first
    whole, without = platform / ".whole.parquet", platform / ".without.parquet"
    try:
        write_log(world, rows, log.layouts[0], LogDestination.at(whole), {"seed": seed})
        table = pq.read_table(whole)
        sensitive = pc.equal(table["advertiser"], advertiser)
        pq.write_table(table.filter(sensitive).select([ID, *TASKS]), room / "labels.parquet")
        (room / "labels.parquet").chmod(0o600)
        hidden = np.asarray(sensitive)
        for task in TASKS:
            values = np.where(hidden, 0, np.asarray(table[task]))
            place = table.schema.get_field_index(task)
            table = table.set_column(place, task, pa.array(values.astype(np.int8)))
        pq.write_table(table.replace_schema_metadata({MARK: parquet_mark(rows, {"seed": seed})}), without)
        prepare(LogReader(log, without), hashing_encoder(log, public_bins=BINS), platform / "log")
    finally:
        whole.unlink(missing_ok=True)
        without.unlink(missing_ok=True)
    return advertiser, int(hidden.sum())


def _model(platform: Path, advertiser: int, seed: int) -> None:
    columns = Columns.open(platform / "log")
    examples = examples_from_log(columns, columns.parts()["train"])
    shared = examples.select(examples.advertiser != advertiser_key(advertiser))
    model = ConversionModel(shared.settings(dim=8, tower=(32,), interactions=1), seed=seed)
    pretrain(model, shared, settings=LearnSettings(batch=min(1024, len(shared)), seed=seed))
    model.save(platform / "model.safetensors")
