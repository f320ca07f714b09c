"""Terms of a small collaboration, with keys that everybody knows: for tests only."""

from __future__ import annotations

from typing import Any

from tacit.cleanroom.protocol import signatures
from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.modes import Signer
from tacit.cleanroom.protocol.terms import Terms
from tacit.entropy import Simulation

KEYS = {role: signatures.new_key(Simulation(f"the key of the {role}")) for role in Signer}
"""Each party's own."""

TOLD: dict[str, Any] = {
    "name": "spring",
    "platform": "ads.example",
    "room": "shop.example",
    "platform_key": signatures.public_key(KEYS[Signer.PLATFORM]),
    "room_key": signatures.public_key(KEYS[Signer.ROOM]),
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
