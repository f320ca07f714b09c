"""Terms of a small collaboration, with keys that everybody knows: for tests only."""

from __future__ import annotations

from typing import Any

from tacit.cleanroom.wire import signing
from tacit.cleanroom.wire.agreement import Role, Terms
from tacit.cleanroom.wire.amending import Agreement
from tacit.entropy import Simulation

KEYS = {role: signing.new_key(Simulation(f"the key of the {role}")) for role in Role}
"""Each party's own."""

TOLD: dict[str, Any] = {
    "name": "spring",
    "platform": "ads.example",
    "room": "shop.example",
    "platform_key": signing.public_key(KEYS[Role.PLATFORM]),
    "room_key": signing.public_key(KEYS[Role.ROOM]),
    "begins": 1_000,
    "expires": 2_000,
}
"""What has no default."""


def terms(**other: Any) -> Terms:
    return Terms(**{**TOLD, **other})


def signed(given: Terms) -> Agreement:
    agreement = Agreement.propose(given)
    for role, key in KEYS.items():
        agreement = agreement.sign(role, key)
    return agreement
