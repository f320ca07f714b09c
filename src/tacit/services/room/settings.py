"""What each party needs to run, in one TOML file; a key that nobody reads is refused by its name.

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
    file = "labels.parquet"              # or .csv: a column of record ids, and one of 0 and 1 for each task
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
    rank = 8
    out = "adapter.safetensors"

    [run]
    name = "first"                       # with the agreement it names the run: the same name goes on with it
    folder = "runs"                      # the checkpoint and the room's receipts

    [plan]                               # see `Plan`
    epochs = 2

    [patience]                           # changes no promise
    first_seconds = 10                   # for a room that was not reached yet
    again_seconds = 120                  # for one that was

Paths are relative to the file's folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.cleanroom.wire.modes import Role
from tacit.errors import BadInput
from tacit.services.reading import Section
from tacit.services.room.certificates import check_pair, name_on
from tacit.services.room.pace import Pace, Patience
from tacit.services.settings import readable, secret_at
from tacit.toml import read_toml

TLS = ("authority", "certificate", "private_key")
STORE = ("room", "ledger", "room_witness", "ledger_witness")
TOP = {
    Role.ROOM: ("listen", "tls", "agreement", "labels", "secrets", "store", "pace"),
    Role.PLATFORM: ("room", "tls", "agreement", "data", "model", "run", "plan", "secrets", "patience"),
}


@dataclass(frozen=True)
class Identity:
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
    identity: Identity
    agreement: Path
    signing: bytes = field(repr=False)
    labels: Path
    id_column: str
    secret: bytes = field(repr=False)
    token_secret: bytes = field(repr=False)
    store: Path
    ledger: str
    pace: Pace
    room_witness: Path | None = None  # beside the store
    ledger_witness: Path | None = None


@dataclass(frozen=True)
class PlatformSettings:
    """A platform's settings; keys and secrets are read already, and never shown."""

    address: str
    identity: Identity
    agreement: Path
    token_secret: bytes = field(repr=False)
    mask: bytes | None = field(repr=False)  # for private intersection
    columns: Path
    advertiser: int | str
    base: Path
    adapter: str
    rank: int
    out: Path
    run: str
    folder: Path
    plan: Mapping[str, Any]
    patience: Patience


def role_of(path: Path) -> Role:
    """Whose settings these are: only a platform's say where the room is."""
    with _naming(path):
        record = read_toml(path, "settings")
    return Role.PLATFORM if "room" in record else Role.ROOM


def load_room(path: Path) -> RoomSettings:
    """Settings of a room; refuses unknown keys, and secrets that others may read."""
    with _naming(path):
        record, folder = read_toml(path, "settings"), path.resolve().parent
        _refuse_other(record, Role.ROOM)
        section = _Sections(record, folder, Role.ROOM)
        listen = section("listen", ("host", "port"))
        agreement, labels = section("agreement", ("file", "signing")), section("labels", ("file", "id"))
        secrets, store = section("secrets", ("room", "token")), section("store", STORE)
        return RoomSettings(
            host=listen.text("host", "127.0.0.1"),
            port=listen.whole("port", at_most=65_535),
            identity=_identity(section("tls", TLS)),
            agreement=agreement.file("file"),
            signing=secret_at("agreement.signing", agreement.file("signing")),
            labels=labels.file("file"),
            id_column=labels.text("id"),
            secret=secret_at("secrets.room", secrets.file("room")),
            token_secret=secret_at("secrets.token", secrets.file("token")),
            store=store.file("room"),
            ledger=store.place("ledger"),
            pace=Pace(**section("pace", [each.name for each in fields(Pace)]).given()),
            room_witness=store.file_if_any("room_witness"),
            ledger_witness=_ledger_witness(store),
        )


def load_platform(path: Path) -> PlatformSettings:
    """Settings of a platform; refuses unknown keys, and secrets that others may read."""
    with _naming(path):
        record, folder = read_toml(path, "settings"), path.resolve().parent
        _refuse_other(record, Role.PLATFORM)
        section = _Sections(record, folder, Role.PLATFORM)
        agreement, secrets = section("agreement", ("file",)), section("secrets", ("token", "mask"))
        mask = secrets.file_if_any("mask")
        data, run = section("data", ("columns", "advertiser")), section("run", ("name", "folder"))
        model = section("model", ("base", "adapter", "rank", "out"))
        return PlatformSettings(
            address=_address(section("room", ("address",)).text("address")),
            identity=_identity(section("tls", TLS)),
            agreement=agreement.file("file"),
            token_secret=secret_at("secrets.token", secrets.file("token")),
            mask=None if mask is None else secret_at("secrets.mask", mask),
            columns=data.file("columns"),
            advertiser=_advertiser(data),
            base=model.file("base"),
            adapter=_file_name("model.adapter", model.text("adapter")),
            rank=_rank(model),
            out=model.file("out"),
            run=_file_name("run.name", run.text("name")),
            folder=run.file("folder"),
            plan=section.free("plan").given(),
            patience=Patience(**section("patience", [each.name for each in fields(Patience)]).given()),
        )


class _Sections:
    """The tables of one party's file."""

    def __init__(self, record: Mapping[str, Any], folder: Path, role: Role) -> None:
        Section(record, "", TOP[role], folder)
        self._record, self._folder = record, folder

    def __call__(self, name: str, allowed: list[str] | tuple[str, ...]) -> Section:
        return Section(self._record, name, allowed, self._folder)

    def free(self, name: str) -> Section:
        """A table whose keys are checked by the record that they are for."""
        found = self._record.get(name, {})
        return Section(self._record, name, list(found) if isinstance(found, Mapping) else (), self._folder)


class _naming:  # noqa: N801 (used like a function)
    """Puts the file's name before what is refused in it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, refusal: BaseException | None, _trace: object) -> None:
        if isinstance(refusal, BadInput):
            raise BadInput(f"{self._path}: {refusal}") from None


def _refuse_other(record: Mapping[str, Any], role: Role) -> None:
    """One clear line where the parties' files were confused, instead of a list of unknown keys."""
    found = Role.PLATFORM if "room" in record else Role.ROOM
    if found is not role and not record.keys() <= set(TOP[role]):
        raise BadInput(f"expected a {role}'s settings, got a {found}'s")


def _identity(section: Section) -> Identity:
    places = {key: section.file(key) for key in TLS}
    for key, place in places.items():
        mode = readable(f"tls.{key}", place)
        if key == "private_key" and mode & 0o077:
            raise BadInput(f"tls.{key}: expected a file that only its owner may read (chmod 600), got {place}")
    content = {key: place.read_bytes() for key, place in places.items()}
    name = name_on("tls.certificate", content["certificate"])
    check_pair(**content)
    return Identity(name, **content)


def _file_name(key: str, name: str) -> str:
    """A name that files are called by: it must not lead to another folder, nor hide."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name):
        raise BadInput(
            f"{key}: expected 1 to 100 letters, digits and - . _ without a dot in front, got {name[:100]!r}"
        )
    return name


def _rank(model: Section) -> int:
    rank = model.whole("rank", at_most=4096, default=8)
    return expect.whole("model.rank", rank, at_least=1)


def _ledger_witness(store: Section) -> Path | None:
    found = store.file_if_any("ledger_witness")
    if found is None and store.place("ledger").startswith("postgresql"):
        raise BadInput(
            "store.ledger_witness: expected a path, which a ledger in PostgreSQL needs, got no such key"
        )
    return found


def _advertiser(data: Section) -> int | str:
    value = data.given().get("advertiser")
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return data.text("advertiser")


def _address(spelled: str) -> str:
    host, colon, port = spelled.rpartition(":")
    if not colon or not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65_536:
        raise BadInput(f"room.address: expected HOST:PORT, got {spelled[:100]!r}")
    return spelled
