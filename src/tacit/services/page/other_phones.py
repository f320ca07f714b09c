"""Other phones for the demonstration's page: made-up devices that visit through the running parties, on asking.

A batch hides a phone among others, and on one's own there are none. These are the devices of `tacit serve
visit`: each has a journal in the folder of the demonstration, chooses privately by tastes of its own, and
reports through the proxy, which cannot tell what it reports from what the phone on the page does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from tacit import expect
from tacit.errors import BadInput, TacitError
from tacit.services.billing_settings import AdServerSettings
from tacit.services.endpoints import Clock
from tacit.services.settings import PartySettings

PHONES, ADS_EACH = 16, 3
MOST_PHONES, MOST_ADS_EACH = 50, 10
PATIENCE_SECONDS = 2.0  # for an epoch to open, and for batches to leave


@dataclass(frozen=True)
class VisitDials:
    """How many phones visit, and how many ads each of them shows."""

    phones: int = PHONES
    ads_each: int = ADS_EACH

    def __post_init__(self) -> None:
        for name, most in (("phones", MOST_PHONES), ("ads_each", MOST_ADS_EACH)):
            if not 1 <= expect.integer(name, getattr(self, name)) <= most:
                raise BadInput(f"expected {name} in 1..{most}, got {getattr(self, name)}")

    @classmethod
    def of(cls, record: Any) -> VisitDials:
        """From JSON: what is left out is as by default, what is unknown is refused."""
        if not isinstance(record, dict) or record.keys() - {"phones", "ads_each"}:
            raise BadInput("expected an object with phones and ads_each, got another record")
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
        from tacit.services.visits import read_place, run_visits

        billing = self._settings.billing
        if not isinstance(billing, AdServerSettings) or billing.parties is None:
            raise BadInput("billing.parties: expected where devices find the parties, got no such key")
        try:
            seen = run_visits(
                read_place(billing.parties),
                devices=dials.phones,
                visits=dials.ads_each,
                clock=self._clock,
                entropy=Entropy(),
                wait_seconds=PATIENCE_SECONDS,
            )
        except TacitError as problem:
            raise BadInput(f"other phones could not visit: {problem}") from None
        told = seen.as_json()
        return {
            "phones": told["devices"],
            "shown": len(seen.ads),
            "price_micros": told["price_micros"],
            "lanes": told["lanes"],
            "refused": told["refused"],
            "waiting": told["waiting"],
        }
