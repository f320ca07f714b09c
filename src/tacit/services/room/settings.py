"""Settings of a clean room and of its platform: one TOML file per party; unknown keys are refused by name.

room.toml:

    [listen]
    host = "127.0.0.1"
    port = 8481

    [tls]
    authority = "authority.crt"          # signs both parties' certificates
    certificate = "room.crt"
    private_key = "room.key"

    [agreement]
    file = "agreement.json"
    signing = "room.signing"

    [labels]
    file = "labels.parquet"              # or .csv: a column of record ids, and one of 0 and 1 per task
    id = "click_id"

    [secrets]
    room = "room.secret"
    token = "token.key"

    [store]
    room = "room.sqlite"                 # counts, flips' register, audit log
    ledger = "room-ledger.sqlite"
    room_witness = "/witness/room"       # notice an old copy that was put back: keep them where a restored
    ledger_witness = "/witness/ledger"   # backup of the stores does not bring them back, too

    [pace]                               # changes no promise
    stall_seconds = 30

platform.toml has [tls], [agreement] (file) and [secrets] (token; mask, for join = psi) as well, and:

    [room]
    address = "127.0.0.1:8481"

    [data]
    columns = "log"                      # a prepared log
    advertiser = 8                       # whose rows are trained on, as the log's file calls it

    [model]
    base = "model.safetensors"           # pre-trained on those who share
    adapter = "sensitive"                # its name
    embeddings = true                    # tune those of the advertiser's values; if not said, where no rank is
                                         # and an adapter trains on a log with ids
    rank = 8                             # of changes to layers; if not said 8, or 0 where embeddings are tuned
    out = "adapter.safetensors"

    [run]
    name = "first"                       # with the agreement it names the run: the same name goes on with it
    folder = "runs"                      # the checkpoint and the room's receipts

    [plan]                               # see `AdapterPlan`
    epochs = 2

    [patience]                           # changes no promise
    first_seconds = 10                   # for a room that was not reached yet
    again_seconds = 120                  # for one that was

Paths are relative to the file's folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.cleanroom.protocol.modes import Signer
from tacit.config import ConfigTable, error_prefix, read_toml
from tacit.errors import BadInput
from tacit.files import OTHERS_MODE
from tacit.services.room.keys import check_key_pair, name_on_certificate
from tacit.services.settings import check_readable, read_secret_file


@dataclass(frozen=True)
class RoomPace:
    """Limits and time limits of a room's calls."""

    streams_most: int = 16  # open at the same time; more are told to come again
    steps_most: int = 2  # worked on at the same time; others wait, unread
    stall_seconds: int = 30  # for the next message of a stream
    call_seconds: int = 900  # for a whole call
    finish_seconds: int = 10  # for calls under way when the room is asked to end

    def __post_init__(self) -> None:
        _check_whole(self, "pace")


@dataclass(frozen=True)
class LinkPatience:
    """How long a platform waits for its room."""

    call_seconds: int = 900  # for one call
    first_seconds: int = 10  # for a room that was not reached yet: it may not run, or refuse our certificate
    again_seconds: int = 120  # for a room that cannot be reached

    def __post_init__(self) -> None:
        _check_whole(self, "patience")

    @property
    def at_first(self) -> LinkPatience:
        """Before the room has ever answered; never longer than afterwards."""
        return replace(self, again_seconds=min(self.first_seconds, self.again_seconds))


def _check_whole(record: Any, section: str) -> None:
    for each in fields(record):
        expect.whole(f"{section}.{each.name}", getattr(record, each.name), at_least=1)


TLS = ("authority", "certificate", "private_key")
STORE = ("room", "ledger", "room_witness", "ledger_witness")
TOP = {
    Signer.ROOM: ("listen", "tls", "agreement", "labels", "secrets", "store", "pace"),
    Signer.PLATFORM: ("room", "tls", "agreement", "data", "model", "run", "plan", "secrets", "patience"),
}


@dataclass(frozen=True)
class TlsIdentity:
    """What a party shows in TLS, and whom it believes; all in PEM."""

    name: str
    authority: bytes
    certificate: bytes
    private_key: bytes = field(repr=False)


@dataclass(frozen=True)
class RoomSettings:
    """A room's settings; keys and secrets are read already, and never shown."""

    host: str
    port: int
    identity: TlsIdentity
    agreement: Path
    signing: bytes = field(repr=False)
    labels: Path
    id_column: str
    secret: bytes = field(repr=False)
    token_secret: bytes = field(repr=False)
    store: Path
    ledger: str
    pace: RoomPace
    room_witness: Path | None = None  # beside the store
    ledger_witness: Path | None = None


@dataclass(frozen=True)
class PlatformSettings:
    """A platform's settings; keys and secrets are read already, and never shown."""

    address: str
    identity: TlsIdentity
    agreement: Path
    token_secret: bytes = field(repr=False)
    mask: bytes | None = field(repr=False)  # for private intersection
    columns: Path
    advertiser: int | str
    base: Path
    adapter: str
    rank: int | None
    embeddings: bool | None
    out: Path
    run: str
    folder: Path
    plan: Mapping[str, Any]
    patience: LinkPatience


def settings_role(path: Path) -> Signer:
    """Whose settings these are: only a platform's say where the room is."""
    with error_prefix(str(path)):
        record = read_toml(path, "settings")
    return Signer.PLATFORM if "room" in record else Signer.ROOM


def load_room_settings(path: Path) -> RoomSettings:
    """Settings of a room; refuses unknown keys, and secrets that others may read."""
    with error_prefix(str(path)):
        record, folder = read_toml(path, "settings"), path.resolve().parent
        _refuse_other(record, Signer.ROOM)
        section = _tables(record, Signer.ROOM, folder)
        listen = section("listen", ("host", "port"))
        agreement, labels = section("agreement", ("file", "signing")), section("labels", ("file", "id"))
        secrets, store = section("secrets", ("room", "token")), section("store", STORE)
        return RoomSettings(
            host=listen.text("host", "127.0.0.1"),
            port=listen.whole("port", at_most=65_535),
            identity=_identity(section("tls", TLS)),
            agreement=agreement.file("file"),
            signing=read_secret_file("agreement.signing", agreement.file("signing")),
            labels=labels.file("file"),
            id_column=labels.text("id"),
            secret=read_secret_file("secrets.room", secrets.file("room")),
            token_secret=read_secret_file("secrets.token", secrets.file("token")),
            store=store.file("room"),
            ledger=store.place("ledger"),
            pace=RoomPace(**section("pace", [each.name for each in fields(RoomPace)]).everything()),
            room_witness=store.optional_file("room_witness"),
            ledger_witness=_ledger_witness(store),
        )


def load_platform_settings(path: Path) -> PlatformSettings:
    """Settings of a platform; refuses unknown keys, and secrets that others may read."""
    with error_prefix(str(path)):
        record, folder = read_toml(path, "settings"), path.resolve().parent
        _refuse_other(record, Signer.PLATFORM)
        section = _tables(record, Signer.PLATFORM, folder)
        agreement, secrets = section("agreement", ("file",)), section("secrets", ("token", "mask"))
        mask = secrets.optional_file("mask")
        data, run = section("data", ("columns", "advertiser")), section("run", ("name", "folder"))
        model = section("model", ("base", "adapter", "rank", "embeddings", "out"))
        return PlatformSettings(
            address=_address(section("room", ("address",)).text("address")),
            identity=_identity(section("tls", TLS)),
            agreement=agreement.file("file"),
            token_secret=read_secret_file("secrets.token", secrets.file("token")),
            mask=None if mask is None else read_secret_file("secrets.mask", mask),
            columns=data.file("columns"),
            advertiser=_advertiser(data),
            base=model.file("base"),
            adapter=_file_name("model.adapter", model.text("adapter")),
            rank=_rank(model),
            embeddings=model.flag("embeddings") if "embeddings" in model else None,
            out=model.file("out"),
            run=_file_name("run.name", run.text("name")),
            folder=run.file("folder"),
            plan=section("plan", record.get("plan", ())).everything(),
            patience=LinkPatience(
                **section("patience", [each.name for each in fields(LinkPatience)]).everything()
            ),
        )


def _tables(record: Mapping[str, Any], role: Signer, folder: Path) -> Callable[..., ConfigTable]:
    """The tables of one party's file, each by its name and the keys that it may have."""
    ConfigTable(record, "", TOP[role])
    return partial(ConfigTable.under, record, folder=folder)


def _refuse_other(record: Mapping[str, Any], role: Signer) -> None:
    """One clear line where the parties' files were confused, instead of a list of unknown keys."""
    found = Signer.PLATFORM if "room" in record else Signer.ROOM
    if found is not role and not record.keys() <= set(TOP[role]):
        raise BadInput(f"expected a {role}'s settings, got a {found}'s")


def _identity(section: ConfigTable) -> TlsIdentity:
    places = {key: section.file(key) for key in TLS}
    for key, place in places.items():
        mode = check_readable(f"tls.{key}", place)
        if key == "private_key" and mode & OTHERS_MODE:
            raise BadInput(f"tls.{key}: expected a file that only its owner may read (chmod 600), got {place}")
    content = {key: place.read_bytes() for key, place in places.items()}
    name = name_on_certificate("tls.certificate", content["certificate"])
    check_key_pair(**content)
    return TlsIdentity(name, **content)


def _file_name(key: str, name: str) -> str:
    """A name that files are called by: it must not lead to another folder, nor hide."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name):
        raise BadInput(
            f"{key}: expected 1 to 100 letters, digits and - . _ without a dot in front, got {name[:100]!r}"
        )
    return name


def _rank(model: ConfigTable) -> int | None:
    if "rank" not in model:
        return None
    return expect.whole("model.rank", model.whole("rank", at_most=4096), at_least=1)


def _ledger_witness(store: ConfigTable) -> Path | None:
    found = store.optional_file("ledger_witness")
    if found is None and store.place("ledger").startswith("postgresql"):
        raise BadInput(
            "store.ledger_witness: expected a path, which a ledger in PostgreSQL needs, got no such key"
        )
    return found


def _advertiser(data: ConfigTable) -> int | str:
    value = data.everything().get("advertiser")
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return data.text("advertiser")


def _address(spelled: str) -> str:
    host, colon, port = spelled.rpartition(":")
    if not colon or not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65_536:
        raise BadInput(f"room.address: expected HOST:PORT, got {spelled[:100]!r}")
    return spelled
