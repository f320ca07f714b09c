"""What people do with campaigns: over HTTP with an access key, or on the store itself, by the same methods.

    with open_desk("https://ads.example", key_file=Path("bean.key")) as desk:
        for stored in desk.campaigns():
            print(stored.campaign.number, stored.campaign.title)

`HttpDesk` asks the ad server, which decides what the key may do. `StoreDesk` is for whoever runs the ad
server's machine: it works on the store of its settings, whether the service runs or not, and its changes stand
in the trail as the machine's. With it the first operator's key is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from tacit.deliver.campaigns.access import Access, AccessKey, AccessRole, key_id_of, make_key
from tacit.deliver.campaigns.campaign import AdCampaign
from tacit.deliver.campaigns.creatives import Creative, check_creative
from tacit.deliver.campaigns.files import CampaignFile, by_number, filed_records, read_filed
from tacit.deliver.campaigns.store import (
    MACHINE,
    Advertiser,
    Author,
    CampaignStore,
    CampaignVerdict,
    Change,
    PutOutcome,
    StoredCampaign,
    all_campaigns,
)
from tacit.display import brief
from tacit.entropy import Entropy
from tacit.errors import CampaignRefused
from tacit.services.ads.access_client import AccessClient, open_access
from tacit.services.ads.sanitiser import sanitise_html
from tacit.services.endpoints import Clock


class CampaignDesk(Protocol):
    """Campaigns, ads and keys; what is refused is a CampaignRefused, and changes nothing."""

    def access(self) -> Access:
        """What whoever asks may do."""

    def advertisers(self) -> Sequence[Advertiser]: ...

    def put_advertiser(self, advertiser: Advertiser) -> None: ...

    def erase_contact(self, name: str) -> None:
        """Take an advertiser's contact away, from earlier lines of the trail too."""

    def campaigns(self, advertiser: str | None = None) -> Sequence[StoredCampaign]:
        """By number, of one advertiser or of all that may be seen."""

    def campaign(self, number: int) -> StoredCampaign: ...

    def add_campaign(self, record: Mapping[str, Any]) -> StoredCampaign:
        """Add one; without a number in its record it gets one."""

    def amend_campaign(self, number: int, said: Mapping[str, Any], version: int | None) -> StoredCampaign:
        """Say something else under some keys, if that is still the version."""

    def put_file(self, filed: CampaignFile) -> PutOutcome:
        """Add or change all of a file, or nothing."""

    def creatives(self, campaign: int) -> Sequence[Creative]: ...

    def add_creative(self, campaign: int, record: Mapping[str, Any]) -> Creative: ...

    def remove_creative(self, number: int) -> None: ...

    def keys(self, advertiser: str | None = None) -> Sequence[AccessKey]: ...

    def make_key(self, role: AccessRole, advertiser: str | None, ends: int | None) -> tuple[str, AccessKey]:
        """A new key, as it is spelled and as it is kept."""

    def rotate_key(self, key_id: str, grace_seconds: int, ends: int | None) -> tuple[str, AccessKey, AccessKey]:
        """A new key in the place of one, which holds for so long yet: spelled, kept, and the old one."""

    def revoke_key(self, key_id: str) -> AccessKey: ...

    def changes(
        self, *, advertiser: str | None = None, subject: str | None = None, after: int = 0
    ) -> Iterator[Change]:
        """The trail, the oldest first."""


class StoreDesk:
    """A `CampaignDesk` on the store itself."""

    def __init__(self, store: CampaignStore, entropy: Entropy, clock: Clock) -> None:
        self._store, self._entropy, self._clock = store, entropy, clock

    def __repr__(self) -> str:
        return brief(self, store=self._store)

    @property
    def _author(self) -> Author:
        return Author(MACHINE, self._clock())

    def access(self) -> Access:
        return Access(MACHINE, AccessRole.OPERATOR)

    def advertisers(self) -> Sequence[Advertiser]:
        found: list[Advertiser] = []
        while page := self._store.advertisers(after=found[-1].name if found else ""):
            found += page
        return found

    def put_advertiser(self, advertiser: Advertiser) -> None:
        self._store.put_advertiser(advertiser, self._author)

    def erase_contact(self, name: str) -> None:
        self._store.erase_contact(name, self._author)

    def campaigns(self, advertiser: str | None = None) -> Sequence[StoredCampaign]:
        return [*all_campaigns(self._store, advertiser)]

    def campaign(self, number: int) -> StoredCampaign:
        found = self._store.campaign(number)
        if found is None:
            raise CampaignRefused(CampaignVerdict.UNKNOWN, f"campaign {number}")
        return found

    def add_campaign(self, record: Mapping[str, Any]) -> StoredCampaign:
        filed = read_filed(record)
        return self._store.add_campaign(filed.campaign, self._author, numbered=filed.numbered)[0]

    def amend_campaign(self, number: int, said: Mapping[str, Any], version: int | None) -> StoredCampaign:
        return self._store.amend_campaign(number, said, version, self._author)

    def put_file(self, filed: CampaignFile) -> PutOutcome:
        numbered, unnumbered = by_number(filed.campaigns)
        return self._store.put_all(filed.advertisers, numbered, self._author, unnumbered=unnumbered)

    def creatives(self, campaign: int) -> Sequence[Creative]:
        return self._store.creatives(self.campaign(campaign).campaign.number)

    def add_creative(self, campaign: int, record: Mapping[str, Any]) -> Creative:
        creative, content = check_creative(record, self.campaign(campaign).campaign.number, sanitise_html)
        return self._store.add_creative(creative, content, self._author)[0]

    def remove_creative(self, number: int) -> None:
        self._store.remove_creative(number, self._author)

    def keys(self, advertiser: str | None = None) -> Sequence[AccessKey]:
        return self._store.keys(advertiser)

    def make_key(self, role: AccessRole, advertiser: str | None, ends: int | None) -> tuple[str, AccessKey]:
        spelled, key = make_key(role, advertiser, self._entropy.bytes, now=self._clock(), ends=ends)
        self._store.add_key(key, self._author)
        return spelled, key

    def rotate_key(self, key_id: str, grace_seconds: int, ends: int | None) -> tuple[str, AccessKey, AccessKey]:
        old = self._store.key(key_id)
        if old is None:
            raise CampaignRefused(CampaignVerdict.UNKNOWN, f"key {key_id}")
        now = self._clock()
        spelled, key = make_key(old.role, old.advertiser, self._entropy.bytes, now=now, ends=ends)
        return spelled, key, self._store.rotate_key(key_id, key, now + grace_seconds, Author(MACHINE, now))

    def revoke_key(self, key_id: str) -> AccessKey:
        return self._store.revoke_key(key_id, self._author)

    def changes(
        self, *, advertiser: str | None = None, subject: str | None = None, after: int = 0
    ) -> Iterator[Change]:
        while page := self._store.changes(advertiser=advertiser, subject=subject, after=after):
            yield from page
            after = page[-1].number


class HttpDesk:
    """A `CampaignDesk` over HTTP, with an access key; what fails on the way is a LinkFailed, an OSError."""

    def __init__(self, api: AccessClient) -> None:
        self._api = api

    def __repr__(self) -> str:
        return brief(self, api=self._api)

    def access(self) -> Access:
        return self._api.read(
            lambda told: Access(told["key_id"], AccessRole(told["role"]), told["advertiser"]),
            "GET", "/ads/whoami",
        )  # fmt: skip

    def advertisers(self) -> Sequence[Advertiser]:
        return [*self._api.pages("/ads/advertisers", "advertisers", Advertiser.from_json)]

    def put_advertiser(self, advertiser: Advertiser) -> None:
        name = quote(advertiser.name, safe="")
        self._api.ask("PUT", f"/ads/advertisers/{name}", {"contact": advertiser.contact})

    def erase_contact(self, name: str) -> None:
        self._api.ask("DELETE", f"/ads/advertisers/{quote(name, safe='')}/contact")

    def campaigns(self, advertiser: str | None = None) -> Sequence[StoredCampaign]:
        return [*self._api.pages("/ads/campaigns", "campaigns", _stored, advertiser=advertiser)]

    def campaign(self, number: int) -> StoredCampaign:
        return self._api.read(_stored, "GET", f"/ads/campaigns/{number}")

    def add_campaign(self, record: Mapping[str, Any]) -> StoredCampaign:
        return self._api.read(_stored, "POST", "/ads/campaigns", record)

    def amend_campaign(self, number: int, said: Mapping[str, Any], version: int | None) -> StoredCampaign:
        where = f"/ads/campaigns/{number}" + ("" if version is None else f"?version={version}")
        return self._api.read(_stored, "PATCH", where, said)

    def put_file(self, filed: CampaignFile) -> PutOutcome:
        return self._api.read(
            lambda told: PutOutcome(tuple(told["added"]), tuple(told["changed"])),
            "POST", "/ads/import", filed_records(filed),
        )  # fmt: skip

    def creatives(self, campaign: int) -> Sequence[Creative]:
        return self._api.read(
            lambda told: [_creative(each) for each in told["creatives"]],
            "GET", f"/ads/campaigns/{campaign}/creatives",
        )  # fmt: skip

    def add_creative(self, campaign: int, record: Mapping[str, Any]) -> Creative:
        return self._api.read(_creative, "POST", f"/ads/campaigns/{campaign}/creatives", record)

    def remove_creative(self, number: int) -> None:
        self._api.ask("DELETE", f"/ads/creatives/{number}")

    def keys(self, advertiser: str | None = None) -> Sequence[AccessKey]:
        where = "/ads/keys" + ("" if advertiser is None else "?" + urlencode({"advertiser": advertiser}))
        return self._api.read(lambda told: [AccessKey(**each) for each in told["keys"]], "GET", where)

    def make_key(self, role: AccessRole, advertiser: str | None, ends: int | None) -> tuple[str, AccessKey]:
        asked = {"role": str(role), "advertiser": advertiser, "ends": ends}
        return self._api.read(
            lambda told: (_spelled(told), AccessKey(**told["key"])), "POST", "/ads/keys", asked
        )

    def rotate_key(self, key_id: str, grace_seconds: int, ends: int | None) -> tuple[str, AccessKey, AccessKey]:
        asked = {"grace_seconds": grace_seconds, "ends": ends}
        return self._api.read(
            lambda told: (_spelled(told), AccessKey(**told["key"]), AccessKey(**told["old"])),
            "POST", f"/ads/keys/{quote(key_id, safe='')}/rotate", asked,
        )  # fmt: skip

    def revoke_key(self, key_id: str) -> AccessKey:
        return self._api.read(lambda told: AccessKey(**told), "DELETE", f"/ads/keys/{quote(key_id, safe='')}")

    def changes(
        self, *, advertiser: str | None = None, subject: str | None = None, after: int = 0
    ) -> Iterator[Change]:
        said = {"advertiser": advertiser, "subject": subject, "after": after}
        return self._api.pages("/ads/changes", "changes", lambda told: Change(**told), **said)

    def report(self, **said: str | None) -> bytes:
        """`GET /ads/reports`, as it is answered: said are `advertiser`, `from`, `until`, `by`, `form`."""
        known = {key: value for key, value in said.items() if value is not None}
        return self._api.ask("GET", f"/ads/reports?{urlencode(known)}").body

    def pacing(self) -> dict[str, Any]:
        """`GET /ads/pacing`: budgets of campaigns, what is out of them, and bounds."""
        return self._api.read(lambda told: dict(told), "GET", "/ads/pacing")


def _stored(told: Any) -> StoredCampaign:
    return StoredCampaign(AdCampaign.from_json(told["campaign"]), told["version"], told["charged_micros"])


def _creative(told: Any) -> Creative:
    return Creative(**{**told, "digest": bytes.fromhex(told["digest"])})


def _spelled(told: Any) -> str:
    if key_id_of(told["spelled"]) is None:
        raise ValueError
    return str(told["spelled"])


@contextmanager
def open_desk(
    url: str | None, *, key_file: Path | None = None, trust: Path | None = None
) -> Iterator[HttpDesk]:
    """The desk of an ad server; where nothing else is said, the environment says where it is and the key."""
    with open_access(url, key_file=key_file, trust=trust) as api:
        yield HttpDesk(api)
