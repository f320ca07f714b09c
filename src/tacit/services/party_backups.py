"""Backups of a party's stores, and putting them back so that spending is never taken back.

A backup is a folder: a file per store, and `backup.json`, which says what each is of. Each file is its store at
one moment, taken while the party goes on.

    gathered   statistics: uploads that wait, rounds, results
    billing    the ad server's epochs with their private keys, charges, invoices; the proxy's reports, batches
    evidence   what charges say of devices' scores (the ad server, where it is not in the same database)
    questions  of rounds, which the proxy tells devices (the proxy)
    ledger     what releases have spent: put back only where there is none, and refused by its own witness then
               if it lacks anything

Restoring needs that nobody serves. What billing has lost by it is taken by the rule of
`store.billing_restores`.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit import files
from tacit.errors import BadInput
from tacit.services.billing_settings import AdServerSettings
from tacit.services.launch import lock_stores, served_places
from tacit.services.rounds import QuestionFiles
from tacit.services.settings import PartySettings
from tacit.store import billing_ads, billing_proxy
from tacit.store.backups import back_up_store, backup_name, has_ledger, put_back_store
from tacit.store.billing_restores import AcceptedLoss, accept_older_ads, accept_older_proxy
from tacit.store.billing_witness import BillingWitness
from tacit.store.database import PartyDatabase, make_private_file
from tacit.store.ownership import OwnerLock
from tacit.store.schema_revisions import PartySchema, open_migrated

MANIFEST = "backup.json"
QUESTIONS, QUESTIONS_FILE = "questions", "questions.zip"
FORMAT = "tacit-backup"
VERSION = 1


@dataclass(frozen=True)
class Restored:
    """What was put back, what was left as it is, and what billing has lost by it (None: nothing)."""

    put_back: tuple[str, ...]
    left: tuple[str, ...]
    loss: AcceptedLoss | None

    def as_json(self) -> dict[str, Any]:
        loss = None if self.loss is None else asdict(self.loss)
        return {"put_back": list(self.put_back), "left": list(self.left), "loss": loss}


def party_stores(settings: PartySettings) -> dict[str, str]:
    """Places of a party's stores by name; a database that several are in stands once."""
    places = {"gathered": settings.gathered, "ledger": settings.ledger}
    if settings.billing is not None:
        places["billing"] = settings.billing.store
        if isinstance(settings.billing, AdServerSettings):
            places["evidence"] = settings.billing.evidence
    known: dict[str, str] = {}
    for name, place in places.items():
        if place not in known.values():
            known[name] = place
    return known


def back_up_party(settings: PartySettings, folder: Path, *, now: int) -> list[str]:
    """Copy all stores to a new folder; the names of its files."""
    with files.place_folder(
        folder, MANIFEST, what="a backup", overwrite=False, suffixes=(".sqlite", ".dump", ".zip")
    ) as building:
        building.chmod(files.PRIVATE_FOLDER_MODE)
        made = {}
        for name, place in party_stores(settings).items():
            target = building / backup_name(name, place)
            if back_up_store(place, target):
                made[name] = {"file": target.name, "sha256": files.file_digest(target)}
        # After the rounds that name them: each is kept before its round is opened, and never changes.
        target = building / QUESTIONS_FILE
        if settings.questions is not None and made and _back_up_questions(settings.questions, target):
            made[QUESTIONS] = {"file": target.name, "sha256": files.file_digest(target)}
        if not made:
            raise BadInput("expected stores to copy, got none: the party was never started")
        record = {"format": FORMAT, "version": VERSION, "party": str(settings.party), "made_at": now}
        with files.open_private(building / MANIFEST, "xb") as file:
            file.write(json.dumps({**record, "stores": made}, indent=1).encode() + b"\n")
    return [each["file"] for each in made.values()]


def restore_party(settings: PartySettings, folder: Path, *, now: int) -> Restored:
    """Put the stores of a backup in their places, and take what billing has lost by it. The ledger is put back
    only where there is none."""
    copies = _read_backup(settings, folder)
    with _alone(settings):
        put_back, left = [], []
        for name, copy in copies.items():
            if name == QUESTIONS:
                _put_back_questions(settings, copy)
                put_back.append(name)
                continue
            place = party_stores(settings)[name]
            if name == "ledger" and has_ledger(place):
                left.append(name)
                continue
            left += put_back_store(place, copy)
            put_back.append(name)
        return Restored(tuple(put_back), tuple(left), _accept(settings, now))


def _back_up_questions(folder: Path, target: Path) -> bool:
    """Copy all questions into one file; no where there are none."""
    names = QuestionFiles(folder).names() if folder.is_dir() else []
    if not names:
        return False
    make_private_file(target)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            packed.write(folder / name, name)
    return True


def _put_back_questions(settings: PartySettings, copy: Path) -> None:
    """Those that are there stay: a question's name is its digest, so that they are the same."""
    assert settings.questions is not None, "looked at before"
    kept = QuestionFiles(settings.questions)
    try:
        with zipfile.ZipFile(copy) as packed:
            found = {name: packed.read(name) for name in packed.namelist()}
    except zipfile.BadZipFile:
        raise BadInput(f"{copy}: expected questions, got a file that cannot be read") from None
    for name, question in found.items():
        if hashlib.sha256(question).hexdigest() != name:
            raise BadInput(f"{copy}: expected questions by their digests, got another file")
        kept.keep(bytes.fromhex(name), question)


def accept_loss(settings: PartySettings, *, now: int) -> Restored:
    """Take what billing's store has lost, however it was put back."""
    with _alone(settings):
        return Restored((), (), _accept(settings, now))


@contextmanager
def _alone(settings: PartySettings) -> Iterator[None]:
    """While nobody serves: files are locked, and of PostgreSQL's databases this process is the owner."""
    owner = OwnerLock(served_places(settings), billing_ads.SCHEMA.kind)
    with lock_stores(settings):
        if not owner.hold():
            raise BadInput(
                f"expected stores that nobody serves, got a {settings.party} that is running on them"
            )
        try:
            yield
        finally:
            owner.release()


def _accept(settings: PartySettings, now: int) -> AcceptedLoss | None:
    billing = settings.billing
    if billing is None or billing.witness is None:
        return None
    of_ads = isinstance(billing, AdServerSettings)
    schema = billing_ads.SCHEMA if of_ads else billing_proxy.SCHEMA
    accept = accept_older_ads if of_ads else accept_older_proxy
    with _opened(billing.store, schema) as database:
        return accept(database, BillingWitness(billing.witness), now)


@contextmanager
def _opened(place: str, schema: PartySchema) -> Iterator[PartyDatabase]:
    database = open_migrated(place, schema)
    try:
        yield database
    finally:
        database.close()


def _read_backup(settings: PartySettings, folder: Path) -> dict[str, Path]:
    """The files of a backup by store, whole and of this party, each of a store of its kind."""
    place = folder / MANIFEST
    try:
        record = files.read_json(place)
    except OSError:
        raise BadInput(f"expected a folder that `tacit serve backup` wrote, got {folder}") from None
    with files.refuse_bad_record(place, "a backup"):
        if (record["format"], record["version"]) != (FORMAT, VERSION):
            raise BadInput(f'expected "{FORMAT}" of version {VERSION}, got another format or version')
        if record["party"] != str(settings.party):
            raise BadInput(f"expected a backup of the {settings.party}, got one of another party")
        stores = {name: (folder / str(each["file"]), each["sha256"]) for name, each in record["stores"].items()}
    known = {name: backup_name(name, place) for name, place in party_stores(settings).items()}
    if settings.questions is not None:
        known[QUESTIONS] = QUESTIONS_FILE
    for name, (copy, digest) in stores.items():
        if copy.name != known.get(name):
            raise BadInput(f"{copy}: expected a store of these settings, of the same kind, got another")
        if not copy.is_file() or files.file_digest(copy) != digest:
            raise BadInput(f"{copy}: expected the file that was written, got none or another")
    return {name: copy for name, (copy, _) in stores.items()}
