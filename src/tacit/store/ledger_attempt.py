"""One attempt at a release that is made once, as a ledger store knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.entropy import draw_token
from tacit.privacy.ledger.requests import Decision

if TYPE_CHECKING:
    from tacit.store.ledger import LedgerStore

NOT_NAMED = "made, and not named"


class Attempt:
    """One attempt at a release in `LedgerStore.once`.

    `name_release` says what came of it, if the end should not.
    """

    def __init__(self, ledger: LedgerStore, keys: Sequence[str]) -> None:
        self.keys, self._ledger, self._token = keys, ledger, draw_token()
        self._made = False

    def claiming(self, key: str) -> Decision:
        return Decision(lambda ledger: ledger.claim(key, self._token), key)

    def name_release(self, release: str) -> None:
        """The digest of the release, before it leaves."""
        self._ledger.make_all(self.keys, self._token, release)
        self._made = True

    def commit(self) -> None:
        if not self._made:
            self.name_release(NOT_NAMED)
        self._ledger.commit_all(self.keys, self._token)
