"""A party's noise: drawn from its own key, and so one draw for ever for each sum."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from tacit.gather.wire.closing import HASH_BYTES
from tacit.gather.wire.encoding import sized
from tacit.gather.wire.groups import Residues
from tacit.gather.wire.masks import keystream
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import Role, SealingKey
from tacit.privacy.randomness import Words

_LABEL = b"tacit gather noise 1 "


def content_hash(round: Round, ids_hash: bytes, own_total: Residues) -> bytes:
    """Of what a party is about to add noise to: the agreed set, and the party's own sum over it.

    The set alone would not do. Ids say nothing of what stands in reports: a service that was put back to an old
    copy could be given others under the same ids, and the same noise on two sums would show their difference.
    """
    named = sized("ids_hash", ids_hash, HASH_BYTES) + round.group.to_bytes(own_total)
    return hashlib.sha256(b"tacit gather content 1 " + round.digest + named).digest()


def noise_words(key: SealingKey, role: Role, round: Round, content: bytes) -> Words:
    """The words that this party's noise on this sum is made of: the same ones at every call.

    AES-256-CTR under HKDF-SHA256(private key; label, role, round digest, `content_hash`).

    Guarantee:  to whoever lacks the key, as good as uniform words, fresh for each round, set, sum and party. A
                second draw for the same sum, after any crash or from any restored copy, is the first one again:
                asking often averages nothing out.
    Neighbours: none; this is about noise, not about data.
    Assumes:    the private key was drawn uniformly, is this party's alone, and stays secret for as long as
                anybody keeps results: who learns it later can subtract all noise that was made from it. So a
                key that is no longer used is destroyed. The same version of the sampling code: another one may
                make other noise of the same words.
    Source:     HKDF: RFC 5869; AES-256 in counter mode as a pseudo-random generator.
    """
    bound = _LABEL + role.encode() + b" " + round.digest + sized("content", content, HASH_BYTES)
    stream = keystream(key.derived(bound))

    def words(count: int) -> NDArray[np.uint64]:
        return np.frombuffer(stream(8 * count), "<u8").astype(np.uint64, copy=False)

    return words


def own_noise(round: Round, count: int, words: Words) -> Residues:
    """What a party adds, if so many reports were agreed on."""
    law = round.noise.server_law(count)
    drawn = np.zeros(round.cells, np.int64) if law is None else law.sample_array(round.cells, words)
    return round.group.residues(drawn)
