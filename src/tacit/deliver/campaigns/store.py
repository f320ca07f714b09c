"""What the ad server keeps of advertisers and campaigns. A method is one transaction, on disk when it returns.

Each change is one with its row in the trail of changes: who, when, before, after. Rows stay for ever; only an
advertiser's contact, which may be a person's, can be erased from them. A campaign's advertiser never
changes, and one that has ended never comes back. Whoever changes a campaign says which version of it they have
seen: where somebody else was faster, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tacit import expect
from tacit.deliver.campaigns.access import AccessKey
from tacit.deliver.campaigns.campaign import AdCampaign, expect_keys, expect_name
from tacit.deliver.campaigns.creatives import Creative

MOST_PER_PAGE = 1_000
MOST_CAMPAIGNS, MOST_CREATIVES, MOST_KEYS = 10_000, 20, 100
"""Campaigns and keys of an advertiser, creatives of a campaign: what has ended or was revoked counts not."""


class CampaignVerdict(expect.Choice):
    """Why something about campaigns is refused."""

    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    CONFLICT = "conflict"
    STALE = "stale"
    ENDED = "ended"
    TOO_MANY = "too-many"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    CampaignVerdict.MALFORMED: "this is not what is expected here",
    CampaignVerdict.UNKNOWN: "there is no such thing here, or it is another's",
    CampaignVerdict.CONFLICT: "it is there already, and says something else",
    CampaignVerdict.STALE: "it was changed meanwhile: read it again",
    CampaignVerdict.ENDED: "what has ended never comes back",
    CampaignVerdict.TOO_MANY: "there are as many as there may be",
    CampaignVerdict.UNAUTHENTICATED: "expected an access key that holds",
    CampaignVerdict.FORBIDDEN: "this key may not do that",
}


@dataclass(frozen=True)
class Author:
    """Who changes something, and when: a key's id, or a word for what has none.

    pays  whether it is who pays for the campaigns that it changes: it lowers no budget below what was charged,
          is held, and may still be charged by menus that are out (`CONFLICT`)
    """

    key_id: str
    at: int
    pays: bool = False


MACHINE = "machine"
"""Who works on the store itself, with no key: whoever runs the ad server's machine."""
ERASED = "erased"
"""What the trail says in the place of a contact that was erased."""
OPERATOR = "operator"
"""Who signs with the secret that the ad server shares with its operator, and not by a key."""


@dataclass(frozen=True)
class Advertiser:
    """Who pays for campaigns. The name stands on invoices and never changes."""

    name: str
    contact: str = ""

    def __post_init__(self) -> None:
        expect_name("name", self.name)
        if self.contact != "":
            expect_name("contact", self.contact)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "contact": self.contact}

    @classmethod
    def from_json(cls, record: Any) -> Advertiser:
        said = expect_keys("advertiser", record, ("name",), ("name", "contact"))
        return cls(said["name"], said.get("contact", ""))


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign as it is kept: its version, which grows with every change, and what it was charged."""

    campaign: AdCampaign
    version: int
    charged_micros: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "charged_micros": self.charged_micros,
            "campaign": self.campaign.as_json(),
        }


@dataclass(frozen=True)
class Change:
    """A line of the trail: `before` is None where something was made, `after` where it was taken away.

    advertiser   whom it is about; None where that is nobody
    """

    number: int
    at: int
    key_id: str
    subject: str
    advertiser: str | None
    before: Any = field(repr=False)
    after: Any = field(repr=False)

    @property
    def campaign(self) -> int | None:
        """The campaign that it changed, itself or one of its ads."""
        kind, _, number = self.subject.partition(" ")
        if kind == "creative":
            return int((self.after or self.before)["campaign"])
        return int(number) if kind == "campaign" else None

    def as_json(self) -> dict[str, Any]:
        names = ("number", "at", "key_id", "subject", "advertiser", "before", "after")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class PutOutcome:
    """What became of campaigns that were put together: the numbers of those that are new, and of those that are
    not as they were."""

    added: tuple[int, ...]
    changed: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return {"added": list(self.added), "changed": list(self.changed)}


class CampaignReader(Protocol):
    """Campaigns as whoever builds menus, paces or reports reads them."""

    def ad_campaigns(self) -> Sequence[AdCampaign]:
        """All that have not ended, by number."""

    def revision(self) -> int:
        """A number that grows with every change of a campaign or a creative: what has not changed need not be
        read again."""

    def creatives(self, campaign: int | None = None) -> Sequence[Creative]:
        """Those of a campaign, or of all, by number."""

    def content(self, creative: int) -> bytes | None:
        """What is shown of a creative, checked; empty for a text. None where there is no such creative."""


class CampaignStore(CampaignReader, Protocol):
    """Campaigns as whoever administers them reads and changes them."""

    def campaign(self, number: int) -> StoredCampaign | None: ...

    def campaigns(
        self, *, advertiser: str | None = None, after: int = -1, most: int = MOST_PER_PAGE
    ) -> Sequence[StoredCampaign]:
        """By number, from behind `after` on; of one advertiser, or of all. Those that have ended too."""

    def add_campaign(
        self, campaign: AdCampaign, author: Author, *, numbered: bool = True
    ) -> tuple[StoredCampaign, bool]:
        """The campaign as it is kept, and whether it is new. The same one again changes nothing; one that is
        not `numbered` gets the next number that is free, and may not be called as another of its advertiser's
        that has not ended: so that who asks again, since an answer was lost, does not sell twice."""

    def change_campaign(self, campaign: AdCampaign, version: int | None, author: Author) -> StoredCampaign:
        """`version` is the one that was seen; None: whichever is there."""

    def amend_campaign(
        self, number: int, said: Mapping[str, Any], version: int | None, author: Author
    ) -> StoredCampaign:
        """Say something else under some keys of its record, and leave the others as they are."""

    def set_budget(self, number: int, budget_micros: int | None, author: Author) -> bool:
        """Give a campaign another budget, as billing does it; whether there is such a campaign here."""

    def put_all(
        self,
        advertisers: Sequence[Advertiser],
        campaigns: Sequence[tuple[AdCampaign, int | None]],
        author: Author,
        *,
        unnumbered: Sequence[AdCampaign] = (),
    ) -> PutOutcome:
        """Add or change all of them, or none. A campaign comes with the version that was seen, or None; those
        that are `unnumbered` get the next free numbers."""

    def advertiser(self, name: str) -> Advertiser | None: ...

    def advertisers(self, *, after: str = "", most: int = MOST_PER_PAGE) -> Sequence[Advertiser]: ...

    def put_advertiser(self, advertiser: Advertiser, author: Author) -> bool:
        """Add one, or change what is said of it; whether it is new."""

    def erase_contact(self, name: str, author: Author) -> bool:
        """Take an advertiser's contact away, here and from all lines of the trail, where `ERASED` stands
        instead; whether there was one. The lines stay, and one more says who did it."""

    def add_creative(self, creative: Creative, content: bytes, author: Author) -> tuple[Creative, bool]:
        """The creative with its number, and whether it is new: the same one again is found by its digest."""

    def creative(self, number: int) -> Creative | None: ...

    def remove_creative(self, number: int, author: Author) -> None: ...

    def key(self, key_id: str) -> AccessKey | None: ...

    def keys(self, advertiser: str | None = None) -> Sequence[AccessKey]:
        """Those of one advertiser, or all; revoked ones too."""

    def add_key(self, key: AccessKey, author: Author) -> None: ...

    def rotate_key(self, key_id: str, key: AccessKey, ends: int, author: Author) -> AccessKey:
        """Add a key in the place of one that holds until `ends` at the latest; the old one, as it is now."""

    def revoke_key(self, key_id: str, author: Author) -> AccessKey: ...

    def changes(
        self,
        *,
        advertiser: str | None = None,
        subject: str | None = None,
        after: int = 0,
        most: int = MOST_PER_PAGE,
    ) -> Sequence[Change]:
        """The trail from behind a number on, the oldest first; of one advertiser or one subject, or all."""


def all_campaigns(store: CampaignStore, advertiser: str | None = None) -> Iterator[StoredCampaign]:
    """By number, page by page; of one advertiser, or of all. Those that have ended too."""
    after = -1
    while page := store.campaigns(advertiser=advertiser, after=after):
        yield from page
        after = page[-1].campaign.number
