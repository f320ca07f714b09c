"""Our room as a target, in process: real terms, slabs and codecs, and a platform that encodes as it likes.

Where a mode does not answer a question, the platform asks for the nearest thing that the mode does answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit.arrays import Floats
from tacit.cleanroom.attacks.game import AttackWorld, Records, record_tokens
from tacit.cleanroom.attacks.probes import (
    PROBE_BATCH,
    SURE_OF_ZERO,
    Logits,
    StepQuestion,
    Tokens,
    matrix_derivatives,
    pad_records,
    unit_vector_question,
)
from tacit.cleanroom.in_process import USUAL_DELTA, room_in_process
from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.derivatives import BlockDerivatives
from tacit.cleanroom.protocol.encoding import MOST_SENT, RoomRefusal
from tacit.cleanroom.protocol.losses import Loss, slopes
from tacit.cleanroom.protocol.modes import Mode, NoiseLaw, Signer
from tacit.cleanroom.protocol.requests import LabelsRequest, Purpose, StatisticRequest, StepRequest
from tacit.cleanroom.protocol.signatures import PrivateKey, new_key
from tacit.cleanroom.protocol.slabs import (
    Slab,
    StatisticSlab,
    TokenSlab,
    encode_slab,
    encode_statistic_slab,
    encode_token_slab,
    examples_per_slab,
)
from tacit.cleanroom.protocol.terms import MOST_DELTA, MOST_EPSILON, Terms
from tacit.entropy import Simulation
from tacit.errors import RoomRefused
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.privacy.randomness import Source

NOW = 1_000
LABELS_PER_NUMBER = 20  # labels in one number of an answer, which has 24 bits
TIGHTER = Fraction(1, 1000)  # of epsilon: as little as changes what flips
ROWS_AT_ONCE = 8192  # of slabs without derivatives


@dataclass(frozen=True)
class Protection:
    """What is agreed; the rest of the terms are defaults."""

    mode: Mode = Mode.AGGREGATE
    epsilon: Fraction = Fraction(3)
    delta: Fraction = USUAL_DELTA  # in the modes that have one
    releases_per_record: int = 1
    noise: NoiseLaw = NoiseLaw.GAUSSIAN

    def as_terms(self) -> dict[str, Any]:
        """As fields of the terms."""
        pure = self.mode.flips or self.noise is NoiseLaw.LAPLACE
        return {**vars(self), "delta": Fraction(0) if pure else self.delta}

    def example_terms(self) -> Terms:
        """As a room with one task would have them."""
        return Terms(
            name="example", platform="platform", room="room", platform_key="0" * 64, room_key="1" * 64,
            begins=0, expires=2 * NOW, **self.as_terms(),
        )  # fmt: skip


class DefendedRoom:
    """A room with its own store, ledger and secret, and the platform that attacks it.

    Both first signed for `slack` times the protection, and the room has tightened that to it.
    """

    def __init__(self, world: AttackWorld, protection: Protection, source: Source, *, slack: int = 1) -> None:
        seed = source.bytes(SECRET_BYTES).hex()
        agreed = protection.as_terms()
        first = {
            "epsilon": min(slack * agreed["epsilon"], Fraction(MOST_EPSILON)),
            "delta": min(slack * agreed["delta"], MOST_DELTA),
        }
        self._link = room_in_process(
            record_tokens(world.records), world.labels, source=Simulation(seed), now=NOW, tasks=world.tasks,
            **agreed | first,
        )  # fmt: skip
        self.terms = self._link.room.terms
        again = Simulation(seed)  # the keys of both, of which an attacker uses its own
        self._key, room_key = new_key(again), new_key(again)
        proposed = Agreement.propose(self.terms)
        self._agreement = proposed.sign(Signer.PLATFORM, self._key).sign(Signer.ROOM, room_key)
        tightened = replace(self.terms, epsilon=agreed["epsilon"], delta=agreed["delta"])
        if tightened != self.terms:
            self._amend(tightened, Signer.ROOM, room_key)
        self._source = source
        self._asked = 0

    def tokens(self, records: Records) -> Tokens:
        return record_tokens(records)

    def aggregate(self, asked: StepQuestion) -> Floats:
        """A step; or the same sum from flipped labels; or from a statistic with derivatives for features."""
        if self.terms.mode is Mode.RELEASE:
            weights = slopes(asked.logits, self._labels(asked), asked.loss, self.terms.keep)
            return _sum_derivatives(asked, weights)
        if self.terms.mode is Mode.STATISTIC:
            return self._from_statistic(asked)
        request = StepRequest(
            self.terms.digest, asked.run, asked.number, self._task(asked.task), asked.loss, asked.codec,
            len(asked.tokens), asked.layout,
        )  # fmt: skip
        answer = self._link.step(request, self._slabs(asked))
        return answer.sum.astype(np.float64)

    def sample_gradients(self, tokens: Tokens, logits: Logits, directions: Floats) -> Floats:
        """No room sends them: the platform reads one slope per record instead, and knows the directions."""
        found = np.empty(len(tokens))
        for start in range(0, len(tokens), PROBE_BATCH):
            some = slice(start, start + PROBE_BATCH)
            asked = replace(unit_vector_question(tokens[some], run="slopes", number=start), logits=logits[some])
            found[some] = self.aggregate(asked)[: len(found[some])]
        return found[:, None] * directions

    def log_loss(self, tokens: Tokens, logits: Logits) -> float:
        """No room sends it: the platform asks for sums of labels times logits, twenty per number."""
        self._asked += 1
        count = len(tokens)
        rows = np.concatenate([tokens, record_tokens(pad_records(np.arange(0), self._asked))])
        weights = np.zeros((len(rows), -(-count // LABELS_PER_NUMBER)), np.float32)
        weights[np.arange(count), np.arange(count) // LABELS_PER_NUMBER] = logits
        layout, derivatives = matrix_derivatives(weights)
        blank = np.full(len(rows), SURE_OF_ZERO, np.float32)
        asked = StepQuestion(rows, blank, layout, derivatives, run="loss", number=self._asked)
        of_positives = -self.aggregate(asked).sum()
        return float(np.logaddexp(0, logits.astype(np.float64)).sum() - of_positives)

    def positives(
        self, tokens: Tokens, cells: Records, run: str, purpose: Purpose = Purpose.METRIC, *, task: int = 0
    ) -> Floats:
        count = int(cells.max()) + 1
        request = StatisticRequest(
            self.terms.digest, run, 0, self._task(task), purpose, len(tokens), count, 1, 1.0, 0
        )
        nothing = np.empty((len(tokens), 0), np.float32)
        return self._link.statistic(request, _statistic_slabs(tokens, cells[:, None], nothing)).sums

    def tighten(self) -> None:
        """A little less epsilon, signed by the platform alone."""
        tighter = replace(self.terms, epsilon=self.terms.epsilon - TIGHTER)
        self._amend(tighter, Signer.PLATFORM, self._key)

    def _amend(self, terms: Terms, role: Signer, key: PrivateKey) -> None:
        self._agreement = self._agreement.amend(terms, role, key)
        self._link.room.amend(self._agreement, now=NOW)
        self.terms = self._link.room.terms

    def _task(self, place: int) -> str:
        return self.terms.tasks[place]

    def _labels(self, asked: StepQuestion) -> NDArray[np.uint8]:
        request = LabelsRequest(self.terms.digest, asked.run, self._task(asked.task), len(asked.tokens))
        starts = range(0, len(asked.tokens), ROWS_AT_ONCE)
        slabs = [encode_token_slab(TokenSlab(at, asked.tokens[at : at + ROWS_AT_ONCE])) for at in starts]
        return self._link.labels(request, slabs).labels

    def _from_statistic(self, asked: StepQuestion) -> Floats:
        """sum_i (p_i - y_i) d_i where only sum_i y_i phi_i is given, |phi_i| <= 1: features d_i / most |d|."""
        if asked.loss is not Loss.RAW:
            raise RoomRefused(RoomRefusal.NOT_AGREED, "a statistic is of labels")
        written = [asked.derivatives[block.name].as_dense() for block in asked.layout.blocks]
        matrix = np.concatenate(written, axis=1)
        if not np.isfinite(matrix).all():
            raise RoomRefused(RoomRefusal.NOT_FINITE)
        most = float(np.linalg.norm(matrix.astype(np.float64), axis=1).max())
        features = (matrix / (most or 1.0)).astype(np.float32)
        request = StatisticRequest(
            self.terms.digest, asked.run, asked.number, self._task(asked.task), Purpose.STATISTIC,
            len(asked.tokens), 0, 0, 0.0, features.shape[1],
        )  # fmt: skip
        nothing = np.empty((len(features), 0), np.int64)
        slabs = _statistic_slabs(asked.tokens, nothing, features, asked.slab_rows or ROWS_AT_ONCE)
        sums = self._link.statistic(request, slabs).sums
        known: Floats = expit(asked.logits.astype(np.float64)) @ matrix.astype(np.float64)
        return known - most * sums

    def _slabs(self, asked: StepQuestion) -> list[bytes]:
        codec = codec_named(asked.codec, dense_sequences=self.terms.dense_sequences)
        step = asked.slab_rows or examples_per_slab(asked.layout, codec)
        slabs = []
        for start in range(0, len(asked.tokens), step):
            stop = start + step
            blocks = {name: each.rows(start, stop) for name, each in asked.derivatives.items()}
            whole = {name: each for name, each in blocks.items() if isinstance(each, BlockDerivatives)}
            bad = {name: _unsendable(each.dense) for name, each in whole.items()}
            clean = blocks | {
                name: replace(each, dense=_mark_bad_values(each.dense, bad[name]))
                for name, each in whole.items()
            }
            slab = Slab(start, asked.tokens[start:stop], asked.logits[start:stop], clean)
            data = encode_slab(slab, asked.layout, codec, self._source.words)
            for values in bad.values():
                for mark, value in _marks(values):
                    data = data.replace(mark.tobytes(), value.tobytes())
            slabs.append(data)
        return slabs


def _sum_derivatives(asked: StepQuestion, weights: Floats) -> Floats:
    sums = [
        asked.derivatives[block.name].weighted_sum(weights, dtype=np.float64) for block in asked.layout.blocks
    ]
    return np.concatenate([each.reshape(-1) for each in sums])


def _statistic_slabs(
    tokens: Tokens, cells: Records, features: NDArray[np.float32], at_once: int = ROWS_AT_ONCE
) -> list[bytes]:
    step = max(1, min(at_once, 2**20 // (4 * features.shape[1] + 1)))
    return [
        encode_statistic_slab(
            StatisticSlab(
                at, tokens[at : at + step], cells[at : at + step].astype(np.int32), features[at : at + step]
            )
        )
        for at in range(0, len(tokens), step)
    ]


# Our own encoder refuses to send what no room accepts. An attacker's does not: such numbers are sent as marks,
# numbers that nothing else in the message is, and the marks are overwritten in the bytes.


def _unsendable(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The different numbers that an honest sender would not send."""
    beyond = values[~(np.abs(values) <= MOST_SENT)]
    return np.unique(beyond.view(np.uint32)).view(np.float32)


def _marks(values: NDArray[np.float32]) -> Iterator[tuple[np.float32, np.float32]]:
    for place, value in enumerate(values):
        yield np.float32(2.0**30 + 128 * (place + 1)), value


def _mark_bad_values(values: NDArray[np.float32], bad: NDArray[np.float32]) -> NDArray[np.float32]:
    if not len(bad):
        return values
    marked = values.copy()
    for mark, value in _marks(bad):
        marked[values.view(np.uint32) == value.view(np.uint32)] = mark
    return marked
