"""The key with which both parties check proofs: the same at both, and for as long as a round lasts."""

from __future__ import annotations

import hashlib

from tacit.errors import Refused
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round

_LABEL = b"tacit gather check key 1 "


def check_hash(check_key: bytes) -> bytes:
    """What a round says of its check key: enough to know the key by, and nothing to find it from."""
    return hashlib.sha256(_LABEL + check_key).digest()


def expect_check_key(round: Round, check_key: bytes) -> None:
    """Refused(CONFLICT) if the round's proofs are checked with another key.

    A message about a proof is an evaluation at a point that the key decides. One says nothing of the counts;
    two of one report, under two keys, give a party equations enough to solve for them.
    """
    if round.bounds is not None and round.check != check_hash(check_key):
        raise Refused(
            Refusal.CONFLICT,
            f"{round.key} was opened with another check key: finish or abandon open rounds before changing it",
        )
