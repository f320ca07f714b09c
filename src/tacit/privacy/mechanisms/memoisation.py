"""Memoised flips: the same key, record and label always give the same noisy label.

Reading a label twice through fresh noise would average the noise away. So each flip is a pseudorandom
function of a secret and a key, and the key holds everything that makes a new release: record, task, the
mechanism's exact weights, window and label version. A new key is a fresh flip and is paid for again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse

SECRET_BYTES = 32
TOKEN_BYTES = 16  # one block of AES


@dataclass(frozen=True)
class FlipKey:
    """The key of a set of flips: task, window, version. Two keys that differ anywhere give unrelated flips."""

    task: str
    window: int
    version: int = 0

    def __post_init__(self) -> None:
        if not self.task:
            raise BadInput("expected a task name, got an empty string")
        object.__setattr__(self, "window", expect.integer("window", self.window))
        object.__setattr__(self, "version", expect.whole("version", self.version, at_least=0))

    @property
    def fields(self) -> tuple[str, ...]:
        return self.task, str(self.window), str(self.version)


def flip_labels(
    labels: ArrayLike,
    records: ArrayLike,
    key: FlipKey,
    response: RandomizedResponse,
    secret: bytes,
) -> NDArray[np.int64]:
    """Flip each record's label; the same key, record and label always give the same flip.

    Guarantee:  epsilon-DP per key, epsilon = response.epsilon, however often the flips are read.
    Neighbours: replace label, for one record.
    Assumes:    `secret` is 32 uniform bytes that never leave; AES-256 is a pseudorandom permutation; records
                are distinct 64-bit ids. If a label changes, give it a new version and pay again: here its
                flip is drawn afresh in any case, because reusing the draw would show that it changed.
    Source:     memoisation: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), section 3.2.
    """
    ids, truth = _checked_ids(records, secret), np.asarray(labels)
    if ids.shape != truth.shape:
        raise BadInput(f"expected one record id per label, got shapes {ids.shape} and {truth.shape}")
    checked = response.check_answers(truth)
    weights = (str(response.lie_weight), str(response.classes))
    return response.report(checked, _words(ids, checked, _subkey(("flips", *key.fields, *weights), secret)))


def flip_tokens(
    labels: ArrayLike,
    tokens: NDArray[np.uint8],
    key: FlipKey,
    response: RandomizedResponse,
    secret: bytes,
) -> NDArray[np.int64]:
    """`flip_labels` for records that are named by tokens of 16 bytes, shape (records, 16).

    Guarantee:  epsilon-DP per key, epsilon = response.epsilon, however often the flips are read, in whatever
                batches, order or process: a flip depends on the key, the token, the label and the response.
    Neighbours: replace label, for one record.
    Assumes:    `secret` is 32 uniform bytes that never leave; AES-256 is a pseudorandom permutation. A token
                is a whole block, so two tokens of which one part is the same share nothing. A word is the
                first half of its block: over t blocks under one key it is told apart from independent words
                with an advantage of at most t^2 / 2^129.
    Source:     as for `flip_labels`; the advantage: the switching lemma, Bellare, Rogaway 2006 (Eurocrypt).
    """
    blocks, truth = _checked_tokens(tokens, secret), np.asarray(labels)
    if truth.shape != (len(blocks),):
        raise BadInput(f"expected one token per label, got shapes {blocks.shape} and {truth.shape}")
    checked = response.check_answers(truth)
    words = np.zeros(len(blocks), np.uint64)
    for label in range(response.classes):  # all of them, whichever labels there are: the time tells nothing
        fields = ("token flips", *key.fields, str(response.lie_weight), str(response.classes), str(label))
        words = np.where(checked == label, _encrypt(blocks, _subkey(fields, secret))[::2], words)
    return response.report(checked, words)


def ranks(records: ArrayLike, key: FlipKey, secret: bytes) -> NDArray[np.uint64]:
    """One pseudorandom word per record, the same whenever it is asked for: a random cap that is drawn once."""
    ids = _checked_ids(records, secret)
    return _words(ids, np.zeros(len(ids), np.int64), _subkey(("ranks", *key.fields), secret))


def keyed_words(
    records: ArrayLike, tags: ArrayLike, key: FlipKey, *, mechanism: tuple[str, ...], count: int, secret: bytes
) -> NDArray[np.uint64]:
    """`count` pseudorandom words for each record, shape (records, count), the same whenever they are asked for.

    `mechanism` spells whatever decides the law of a report, and `tags` hold what differs by record, the label
    among it: with any of these another, the words are unrelated. So a draw is never shared by two laws.
    """
    ids, tag = _checked_ids(records, secret), np.asarray(tags)
    if tag.shape != ids.shape or tag.dtype.kind not in "iu":
        raise BadInput(f"expected one whole tag per record, got dtype {tag.dtype} and shape {tag.shape}")
    if tag.size and (tag.min() < 0 or int(tag.max()) >= 2**48):
        raise BadInput("expected tags in 0..2^48-1, got one outside")
    blocks = -(-expect.whole("count", count, at_least=1) // 2)
    if blocks >= 2**16:
        raise BadInput(f"expected count < 2^17, got {count}")
    pairs = np.empty((len(ids), blocks, 2), dtype="<u8")  # distinct: record, then place and tag side by side
    pairs[:, :, 0] = ids[:, None]
    pairs[:, :, 1] = tag.astype(np.uint64)[:, None] | (np.arange(blocks, dtype=np.uint64) << np.uint64(48))
    words = _encrypt(pairs, _subkey(("draws", *mechanism, *key.fields), secret))
    return words.reshape(len(ids), 2 * blocks)[:, :count]


def _checked_tokens(tokens: NDArray[np.uint8], secret: bytes) -> NDArray[np.uint64]:
    """The tokens as pairs of words, shape (records, 2)."""
    if len(secret) != SECRET_BYTES:
        raise BadInput(f"expected a secret of {SECRET_BYTES} bytes, got {len(secret)}")
    given = np.asarray(tokens)
    if given.dtype != np.uint8 or given.ndim != 2 or given.shape[1] != TOKEN_BYTES:
        raise BadInput(
            f"expected tokens of {TOKEN_BYTES} bytes each, got dtype {given.dtype} and shape {given.shape}"
        )
    pairs: NDArray[np.uint64] = np.ascontiguousarray(given).view("<u8")
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    if np.any(np.all(pairs[order[1:]] == pairs[order[:-1]], axis=1)):
        raise BadInput("expected distinct tokens, got a repeated one: it would share its draw")
    return pairs


def _checked_ids(records: ArrayLike, secret: bytes) -> NDArray[np.uint64]:
    expect.kind("secret", secret, bytes, bytearray)
    if len(secret) != SECRET_BYTES:
        raise BadInput(f"expected a secret of {SECRET_BYTES} bytes, got {len(secret)}")
    ids = np.asarray(records)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise BadInput(f"expected a list of whole record ids, got dtype {ids.dtype} and shape {ids.shape}")
    if ids.size and ids.min() < 0:
        raise BadInput("expected record ids >= 0, got a negative one")
    ordered = np.sort(ids)  # unlike np.unique, which takes seven times as long
    if np.any(ordered[1:] == ordered[:-1]):
        raise BadInput("expected distinct record ids, got a repeated one: it would share its draw")
    return ids.astype(np.uint64)


def _words(ids: NDArray[np.uint64], labels: NDArray[np.int64], subkey: bytes) -> NDArray[np.uint64]:
    """One pseudorandom word per (record, label): half of AES of that pair under a key of its own."""
    blocks = np.empty((len(ids), 2), dtype="<u8")
    blocks[:, 0] = ids
    blocks[:, 1] = labels.astype(np.uint64)
    return _encrypt(blocks, subkey)[::2]


def _encrypt(blocks: NDArray[np.uint64], subkey: bytes) -> NDArray[np.uint64]:
    """The blocks under AES, flat. Each block is distinct, so ECB here is the permutation at distinct points."""
    encryptor = Cipher(algorithms.AES256(subkey), modes.ECB()).encryptor()
    return np.frombuffer(encryptor.update(blocks.tobytes()), dtype="<u8").astype(np.uint64)


def _subkey(fields: tuple[str, ...], secret: bytes) -> bytes:
    """A key per purpose. Each field goes in with its length, so that no two lists of fields look alike."""
    message = b"".join(len(field.encode()).to_bytes(8, "big") + field.encode() for field in fields)
    return hashlib.blake2b(message, key=secret, digest_size=32, person=b"tacit-flips").digest()
