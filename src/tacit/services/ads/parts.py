"""Parts of the ad server's app beside billing itself: each a function from what they share to an `AppPart`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.bill.server.party import AdServer
from tacit.entropy import Entropy
from tacit.services.ads.menu_board import menu_part
from tacit.services.background import AppPart
from tacit.services.endpoints import Clock
from tacit.services.epochs import EpochKeeper
from tacit.services.settings import PartySettings
from tacit.services.signatures import RequestGate
from tacit.store.billing_ads import SqlAdStore


@dataclass(frozen=True, eq=False)
class RunningAds:
    """What the parts of an ad server share."""

    settings: PartySettings
    store: SqlAdStore
    server: AdServer
    keeper: EpochKeeper
    operator_gate: RequestGate
    entropy: Entropy
    clock: Clock


PARTS: tuple[Callable[[RunningAds], AppPart], ...] = (menu_part,)
"""In the order of their routes."""
