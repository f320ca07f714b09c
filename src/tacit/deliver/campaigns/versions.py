"""Versions of what rates in menus are made of: released statistics and trained models, one of a kind in use.

    store.add(NewVersion(VersionKind.MODEL, "model 3f2a...", body, content), author, use=True)
    store.use(41, author)                      # back to an older one: that is all a rollback takes

What was added never changes. Which version is in use does, at once for everybody, and who changed it and when
stands in the trail of changes. Old versions stay; beyond `MOST_VERSIONS` of a kind or `MOST_BYTES` in all of
them, the oldest that are not in use are deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tacit import expect
from tacit.deliver.campaigns.store import Author
from tacit.errors import BadInput

MOST_VERSIONS = 100
"""Of a kind."""
MOST_BYTES = 512 * 2**20
"""Of a kind, in all its versions together."""
MOST_CONTENT = 64 * 2**20
MOST_SOURCE = 200


class VersionKind(expect.Choice):
    """What a version is.

    STATISTICS             noisy counts of impressions and clicks that a round released
    CONVERSION_STATISTICS  the same of impressions and conversions
    MODEL                  a model of clicks
    CONVERSIONS            a model of conversions
    ROUND                  a scheduled round as it was announced, kept before anybody hears of it; never in use
    """

    STATISTICS = "statistics"
    CONVERSION_STATISTICS = "conversion-statistics"
    MODEL = "model"
    CONVERSIONS = "conversion-model"
    ROUND = "round"

    @property
    def is_once(self) -> bool:
        """Whether a source that was deleted stays so: a round is held once, and its result counted once."""
        return self not in (VersionKind.MODEL, VersionKind.CONVERSIONS)


@dataclass(frozen=True)
class NewVersion:
    """What is to be kept.

    source    where it comes from; a kind has each source once: added again, it changes nothing
    body      what is said of it, as JSON: its privacy statement among it
    content   the thing itself
    """

    kind: VersionKind
    source: str
    body: Mapping[str, Any]
    content: bytes = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", VersionKind.named("kind", self.kind))
        expect.kind("source", self.source, str)
        expect.kind("content", self.content, bytes)
        if not 1 <= len(self.source) <= MOST_SOURCE:
            raise BadInput(f"source: expected 1 to {MOST_SOURCE} characters, got {len(self.source)}")
        if not 1 <= len(self.content) <= MOST_CONTENT:
            raise BadInput(f"expected a version of 1 to {MOST_CONTENT} bytes, got {len(self.content)}")

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class StoredVersion:
    """A version as it is kept, without its content.

    made    when it was added, in Unix seconds
    digest  SHA-256 of its content, in hexadecimal digits
    """

    number: int
    kind: VersionKind
    made: int
    in_use: bool
    source: str
    digest: str
    size: int
    body: Mapping[str, Any] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """For machines and for people's lists: all that is said of it."""
        names = ("number", "made", "in_use", "source", "digest", "size")
        found = {name: getattr(self, name) for name in names}
        return {**found, "kind": str(self.kind), "body": dict(self.body)}


class VersionStore(Protocol):
    """Where versions are kept. A method is one transaction, on disk when it returns."""

    def add(
        self, version: NewVersion, author: Author, *, use: bool = False
    ) -> tuple[StoredVersion | None, bool]:
        """The version as it is kept, and whether it is new; with `use` a new one is in use from then on.

        A source that was added before changes nothing, and gives what is kept of it: None where that was
        deleted meanwhile, to make room. A model that was deleted can be added again.
        """

    def versions(self, kind: VersionKind) -> Sequence[StoredVersion]:
        """All of a kind, the newest first."""

    def version(self, number: int) -> StoredVersion | None: ...

    def content(self, number: int) -> bytes | None:
        """What was added; refused where it is no longer what its digest says."""

    def in_use(self, kind: VersionKind) -> StoredVersion | None: ...

    def use(self, number: int, author: Author) -> StoredVersion:
        """Put this one in use in the place of the one that is; again: nothing changes."""
