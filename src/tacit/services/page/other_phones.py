"""Other phones for the demonstration's page: made-up devices that visit through the running parties, on asking.

A batch hides a phone among others, and on one's own there are none. These are devices like those of `tacit
serve visit`: each chooses privately by tastes of its own, and reports through the proxy, which cannot tell what
it reports from what the phone on the page does. They are new ones each time, whose wallets are full and gone
afterwards, and some of them stay at the place that the page names: batches are of one menu.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tacit import expect
from tacit.bill.protocol.menus import Lane
from tacit.errors import BadInput, TacitError
from tacit.services.billing_settings import AdServerSettings
from tacit.services.endpoints import Clock
from tacit.services.settings import PartySettings

PHONES, ADS_EACH = 16, 3
MOST_PHONES, MOST_ADS_EACH = 50, 10
MOST_VALUES, LONGEST_VALUE = 16, 200
PATIENCE_SECONDS = 2.0  # for an epoch to open, and for batches to leave
FIRST, APART = (
    2**32,
    2**16,
)  # numbers of devices: those of `tacit serve visit` are below, each group has its own
GROUPS = 2**64  # drawn from: two of the same number are not to be expected


@dataclass(frozen=True)
class VisitDials:
    """How many phones visit, how many ads each of them shows, and how many of them stay at which place."""

    phones: int = PHONES
    ads_each: int = ADS_EACH
    neighbours: int = 0
    place: Sequence[str] = ()

    def __post_init__(self) -> None:
        dials = (("phones", 1, MOST_PHONES), ("ads_each", 1, MOST_ADS_EACH), ("neighbours", 0, self.phones))
        for name, least, most in dials:
            if not least <= expect.integer(name, getattr(self, name)) <= most:
                raise BadInput(f"expected {name} in {least}..{most}, got {getattr(self, name)}")
        is_text = isinstance(self.place, list | tuple) and all(isinstance(each, str) for each in self.place)
        if (
            not is_text
            or len(self.place) > MOST_VALUES
            or any(len(each) > LONGEST_VALUE for each in self.place)
        ):
            raise BadInput("expected place to be a list of a few names, got another value")
        if self.neighbours and not self.place:
            raise BadInput("expected a place of the neighbours, got none")

    @classmethod
    def of(cls, record: Any) -> VisitDials:
        """From JSON: what is left out is as by default, what is unknown is refused."""
        if not isinstance(record, dict) or record.keys() - {"phones", "ads_each", "neighbours", "place"}:
            raise BadInput("expected an object with phones, ads_each, neighbours, place, got another record")
        return cls(**record)


class OtherPhones:
    """Lets phones visit, one group at a time: who asks meanwhile is told to come again."""

    def __init__(self, settings: PartySettings, clock: Clock) -> None:
        self._settings, self._clock, self._running = settings, clock, threading.Lock()

    def visit(self, dials: VisitDials) -> dict[str, Any] | None:
        """What was shown, as JSON; None where a group is visiting already. BadInput: why it cannot be."""
        if not self._running.acquire(blocking=False):
            return None
        try:
            return self._visit(dials)
        finally:
            self._running.release()

    def _visit(self, dials: VisitDials) -> dict[str, Any]:
        # Loaded with the first visit: an ad server has no use for a device.
        from tacit.entropy import Entropy
        from tacit.services.visits import Neighbours, read_place, run_visits

        billing = self._settings.billing
        if not isinstance(billing, AdServerSettings) or billing.parties is None:
            raise BadInput("billing.parties: expected where devices find the parties, got no such key")
        entropy, values = Entropy(), tuple(dials.place)
        try:
            with TemporaryDirectory(prefix="tacit-phones-") as journals:
                seen = run_visits(
                    read_place(billing.parties),
                    devices=dials.phones,
                    visits=dials.ads_each,
                    clock=self._clock,
                    entropy=entropy,
                    wait_seconds=PATIENCE_SECONDS,
                    first=FIRST + APART * entropy.uniform_below(GROUPS),
                    journals=Path(journals),
                    neighbours=Neighbours(values, dials.neighbours) if dials.neighbours else None,
                )
        except TacitError as problem:
            raise BadInput(f"other phones could not visit: {problem}") from None
        told = seen.as_json()
        here = [each for each in seen.ads if each.lane is Lane.PERSONAL and each.disclosed.values == values]
        return {
            "phones": told["devices"],
            "shown": len(seen.ads),
            "price_micros": told["price_micros"],
            "lanes": told["lanes"],
            "here": len(here),
            "refused": told["refused"],
            "waiting": told["waiting"],
        }
