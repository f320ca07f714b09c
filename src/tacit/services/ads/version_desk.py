"""Where operators work on versions: on the ad server's own store, or over HTTP with an access key.

with open_store_desk(settings, clock) as desk:              # on the ad server's machine
    desk.add_model(Path("model"), VersionKind.MODEL, use=True)
with open_http_desk("https://ads.example", key_file=Path("operator.key")) as desk:    # from anywhere
    desk.use(41)
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from tacit.deliver.campaigns.store import MACHINE, Author, CampaignVerdict
from tacit.deliver.campaigns.versions import VersionKind
from tacit.errors import BadInput, CampaignRefused
from tacit.schema.contexts.hierarchy import load_hierarchy
from tacit.services.ads.access_client import AccessClient, open_access
from tacit.services.ads.rate_models import model_version, pack_model
from tacit.services.ads.versions import MOST_SENT, contexts_of
from tacit.services.billing_settings import AdServerSettings
from tacit.services.endpoints import Clock
from tacit.services.settings import PartySettings
from tacit.store.billing_ads import SqlAdStore
from tacit.store.versions import SqlVersionStore

Record = dict[str, Any]
"""A version as `StoredVersion.as_json` says it."""


class VersionDesk(Protocol):
    """What operators do with versions."""

    def versions(self, kind: VersionKind) -> list[Record]: ...

    def version(self, number: int) -> Record:
        """CampaignRefused(UNKNOWN) where there is none."""

    def use(self, number: int) -> Record: ...

    def add_model(
        self, folder: Path, kind: VersionKind, *, use: bool, said: Record | None = None
    ) -> tuple[Record, bool]:
        """The version as it is kept, and whether it is new."""


class StoreDesk:
    """On the store itself, as the machine that runs the ad server."""

    def __init__(self, store: SqlVersionStore, contexts: Path, clock: Clock) -> None:
        self._store, self._contexts, self._clock = store, contexts, clock

    @property
    def _author(self) -> Author:
        return Author(MACHINE, self._clock())

    def versions(self, kind: VersionKind) -> list[Record]:
        return [each.as_json() for each in self._store.versions(kind)]

    def version(self, number: int) -> Record:
        found = self._store.version(number)
        if found is None:
            raise CampaignRefused(CampaignVerdict.UNKNOWN, f"version {number}")
        return found.as_json()

    def use(self, number: int) -> Record:
        return self._store.use(number, self._author).as_json()

    def add_model(
        self, folder: Path, kind: VersionKind, *, use: bool, said: Record | None = None
    ) -> tuple[Record, bool]:
        version = model_version(folder, load_hierarchy(self._contexts), kind, said=said)
        kept, new = self._store.add(version, self._author, use=use)
        assert kept is not None, "a model can be added again"
        if use and not new:
            kept = self._store.use(kept.number, self._author)
        return kept.as_json(), new

    def content_in_use(self, kind: VersionKind) -> bytes | None:
        """The model in use, packed; None where there is none."""
        used = self._store.in_use(kind)
        return None if used is None else self._store.content(used.number)


class HttpDesk:
    """Over HTTP, as whoever has the key."""

    def __init__(self, api: AccessClient) -> None:
        self._api = api

    def versions(self, kind: VersionKind) -> list[Record]:
        return self._api.read(lambda told: [*told["versions"]], "GET", f"/ads/versions?kind={kind}")

    def version(self, number: int) -> Record:
        return self._api.read(_record, "GET", f"/ads/versions/{number}")

    def use(self, number: int) -> Record:
        return self._api.read(_record, "POST", f"/ads/versions/{number}/use")

    def add_model(
        self, folder: Path, kind: VersionKind, *, use: bool, said: Record | None = None
    ) -> tuple[Record, bool]:
        if said is not None:
            raise BadInput("expected --settings to say more of a model, got --url")
        content = pack_model(folder)
        if len(content) > MOST_SENT:
            raise BadInput(
                f"{folder}: expected at most {MOST_SENT} bytes over HTTP, got {len(content)}: add it on the ad "
                "server's machine, with --settings"
            )
        asked = {
            "kind": str(kind), "name": folder.resolve().name, "content": base64.b64encode(content).decode(),
            "use": use,
        }  # fmt: skip
        answer = self._api.ask("POST", "/ads/versions", asked)
        return self._api.parse(_record, answer), answer.status == 201


def _record(told: Any) -> Record:
    return {**told}


@contextmanager
def open_store_desk(settings: PartySettings, clock: Clock) -> Iterator[StoreDesk]:
    """On the store that an ad server's settings name; it may be running."""
    if not isinstance(settings.billing, AdServerSettings):
        raise BadInput("expected an ad server's settings, with a table [billing], got none")
    with closing(SqlAdStore.open(settings.billing.store)) as store:
        yield StoreDesk(SqlVersionStore(store.database), contexts_of(settings), clock)


@contextmanager
def open_http_desk(url: str, *, key_file: Path | None = None, trust: Path | None = None) -> Iterator[HttpDesk]:
    """At an ad server's address, with the key of a file or of the environment."""
    with open_access(url, key_file=key_file, trust=trust) as api:
        yield HttpDesk(api)
