"""Correlated categorical fields, a logit made of them, and hashed-looking names for their values.

The model. Field f of group g has a latent normal z_f = sqrt(tie) u_g + sqrt(1 - tie) e_f, where the common
factors u_g and the fields' own e_f are independent N(0, 1); its rank is the quantile of the field's law,
mostly a Zipf law, at Phi(z_f). Value v of field f carries

    a_f[v] = min(values_f, 16384)^rare_signal * (shared psi_g score(v) + sqrt(1 - shared^2) n_f[v])

with n_f[v] ~ N(0, 1), and a vector of four N(0, 1); score(v) is the normal score of its rank and psi_g is
N(0, 1). The logit is

    base + linear * L + interaction * F + cross * C,

with L the sum of the a_f, F the sum over pairs of fields of the vectors' products, C the sum over pairs
(field, sensitive field) of one N(0, 1) per pair of values; each part is standardised over the law of the rows
and clipped at +-4. `base` is solved so that the mean probability is the requested rate. `rare_signal`
controls how much of the signal is in fields of many, and so rare, values.

A missing value is a value too: rank `values_f`, with an effect and a vector of its own and score 0. Which
fields are missing is drawn separately from the ranks, together where `Absence` says so.

Values beyond the 16,384 most frequent of a field share their numbers n_f[v] with other rare values at random:
a model that tells the values apart cannot notice, and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri

from tacit import expect
from tacit.arrays import Floats
from tacit.data.generators.worlds import seeded_generator

SLOTS = 2**14
CROSS_SLOTS = 2**10
VECTOR = 4
CUT = 4.0
CALIBRATION_ROWS = 2**16
EFFECTS, CALIBRATION = 1_001, 1_002  # places of their own among a seed's streams

Ranks = list[NDArray[np.int64]]  # one array of rows for each field
LogitMoments = list[tuple[float, float]]  # mean and spread of each part of the logit


class FieldLaw(Protocol):
    """How often the ranks 0, 1, ... of a field come: `Zipf`, `Histogram` or `LogNormalCounts`."""

    @property
    def values(self) -> int: ...

    def ranks(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]: ...

    def scores(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Field:
    """One categorical field: its vocabulary and the common factor that it leans on."""

    name: str
    law: FieldLaw
    group: int

    @property
    def missing_rank(self) -> int:
        """The rank that stands for a missing value: one past the vocabulary."""
        return self.law.values


@dataclass(frozen=True)
class Absence:
    """Fields that go missing together, each at its own rate.

    A row has one normal lean h + sqrt(1 - lean^2) e for each absence, h ~ N(0, 1) being common to all
    absences of the row, and a field is missing where that normal is below the quantile of the field's rate:
    at equal rates always together, at a lower rate only where those of higher rates are missing too.
    """

    rates: tuple[tuple[int, float], ...]  # (index of the field, share of rows without it)
    lean: float = 0.0

    def __post_init__(self) -> None:
        expect.probability("|lean|", abs(self.lean), zero=True, one=True)
        for _, rate in self.rates:
            expect.probability("rate", rate)


@dataclass(frozen=True)
class Signal:
    """How the label depends on the values; see the module."""

    rate: float
    rare_signal: float
    shared: float
    linear: float
    interaction: float
    cross: float = 0.0

    def __post_init__(self) -> None:
        expect.probability("rate", self.rate)
        expect.at_least_zero("rare_signal", self.rare_signal)
        expect.probability("shared", self.shared, zero=True, one=True)


@dataclass(frozen=True)
class FieldModel:
    """The joint law of correlated fields and the label that they decide.

    `crossed` pairs indexes of fields whose combination matters by itself.
    """

    seed: int
    fields: tuple[Field, ...]
    signal: Signal
    tie: float = 0.6
    crossed: tuple[tuple[int, int], ...] = ()
    offsets: Sequence[float] = ()  # added to a field's latent normal, where a field leans low or high
    absences: tuple[Absence, ...] = ()

    def ranks(self, draw: np.random.Generator, rows: int) -> Ranks:
        """Ranks of `rows` independent rows."""
        factors = draw.standard_normal((1 + max(f.group for f in self.fields), rows))
        own = draw.standard_normal((len(self.fields), rows))
        near, far = np.sqrt(self.tie), np.sqrt(1 - self.tie)
        shifts = self.offsets or (0.0,) * len(self.fields)
        ranks = [
            f.law.ranks(ndtr(near * factors[f.group] + far * own[index] + shifts[index]))
            for index, f in enumerate(self.fields)
        ]
        if self.absences:
            self._drop(ranks, draw)
        return ranks

    def _drop(self, ranks: Ranks, draw: np.random.Generator) -> None:
        """Put the missing values in their places."""
        common = draw.standard_normal(len(ranks[0]))
        for absence in self.absences:
            own = draw.standard_normal(len(common))
            latent = absence.lean * common + np.sqrt(1 - absence.lean**2) * own
            for index, rate in absence.rates:
                ranks[index][latent < ndtri(rate)] = self.fields[index].missing_rank

    def probabilities(self, ranks: Ranks) -> Floats:
        """The true probability of a positive label for each row."""
        probabilities: Floats = expit(self.logits(ranks))
        return probabilities

    def logits(self, ranks: Ranks) -> Floats:
        return self._calibration.base + self._signal(self._parts(ranks), self._calibration.moments)

    def _signal(self, parts: Sequence[Floats], moments: LogitMoments) -> Floats:
        """The logit without its base."""
        weights = (self.signal.linear, self.signal.interaction, self.signal.cross)
        total = np.zeros(len(parts[0]))
        for weight, part, (mean, spread) in zip(weights, parts, moments, strict=True):
            if weight:
                total += weight * np.clip((part - mean) / spread, -CUT, CUT)
        return total

    def _parts(self, ranks: Ranks) -> tuple[Floats, Floats, Floats]:
        rows = len(ranks[0])
        linear, squares = np.zeros(rows), np.zeros(rows)
        vectors = np.zeros((rows, VECTOR))
        for index, (f, values) in enumerate(zip(self.fields, ranks, strict=True)):
            slots = table_slots(values)
            weight = min(f.law.values, SLOTS) ** self.signal.rare_signal
            own = np.sqrt(1 - self.signal.shared**2) * self._effects.own[index][slots]
            scores = f.law.scores(values)
            if index in self._nullable:
                scores = np.where(values == f.missing_rank, 0.0, scores)
            linear += weight * (self.signal.shared * self._effects.factor[f.group] * scores + own)
            carried = self._effects.vectors[index][slots]
            vectors += carried
            squares += np.einsum("rk,rk->r", carried, carried)
        pairs = 0.5 * (np.einsum("rk,rk->r", vectors, vectors) - squares)
        cross = np.zeros(rows)
        for table, (first, second) in zip(self._effects.cross, self.crossed, strict=True):
            cross += table[table_slots(ranks[first]) % CROSS_SLOTS, table_slots(ranks[second]) % CROSS_SLOTS]
        return linear, pairs, cross

    @cached_property
    def _nullable(self) -> frozenset[int]:
        return frozenset(index for absence in self.absences for index, _ in absence.rates)

    @cached_property
    def _effects(self) -> _Effects:
        draw = seeded_generator(self.seed, EFFECTS)
        sizes = [min(f.law.values + (index in self._nullable), SLOTS) for index, f in enumerate(self.fields)]
        groups = 1 + max(f.group for f in self.fields)
        return _Effects(
            factor=draw.standard_normal(groups),
            own=[draw.standard_normal(size, dtype=np.float32) for size in sizes],
            vectors=[draw.standard_normal((size, VECTOR), dtype=np.float32) for size in sizes],
            cross=[
                draw.standard_normal((min(sizes[a], CROSS_SLOTS), min(sizes[b], CROSS_SLOTS)), dtype=np.float32)
                for a, b in self.crossed
            ],
        )

    @cached_property
    def _calibration(self) -> _Calibration:
        """Mean and spread of each part over the law of the rows, and the base that gives the rate."""
        parts = self._parts(self.ranks(seeded_generator(self.seed, CALIBRATION), CALIBRATION_ROWS))
        moments = [(float(part.mean()), float(part.std()) or 1.0) for part in parts]
        signal = self._signal(parts, moments)
        base = brentq(lambda base: expit(base + signal).mean() - self.signal.rate, -30, 30)
        return _Calibration(moments, float(base))


@dataclass(frozen=True)
class _Calibration:
    moments: LogitMoments
    base: float


@dataclass(frozen=True)
class _Effects:
    factor: Floats
    own: list[NDArray[np.float32]]
    vectors: list[NDArray[np.float32]]
    cross: list[NDArray[np.float32]]


def table_slots(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slot of each value's effects: frequent values have one of their own, rare values share."""
    half = SLOTS // 2
    shared = half + ((ranks * 0x9E3779B1) >> 15) % half
    slots: NDArray[np.int64] = np.where(ranks < SLOTS, ranks, shared)
    return slots


Words32 = NDArray[np.uint32]

LOWER_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
UPPER_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), dtype=np.uint16)
GOLDEN = 0x9E3779B9  # 2^32 over the golden ratio: spreads the salts of neighbouring fields


def mix_ranks(ranks: NDArray[np.int64], salt: int) -> Words32:
    """A permutation of the 32-bit numbers, another for each salt: MurmurHash3's last step after an offset."""
    words = ranks.astype(np.uint32) + np.uint32((salt + 1) * GOLDEN % 2**32)
    words ^= words >> np.uint32(16)
    words *= np.uint32(0x85EBCA6B)
    words ^= words >> np.uint32(13)
    words *= np.uint32(0xC2B2AE35)
    words ^= words >> np.uint32(16)
    return words


def lower_hex8(ranks: NDArray[np.int64], salt: int, missing: NDArray[np.bool_] | None = None) -> pa.StringArray:
    """Eight lowercase digits for each rank below 2^32, null where missing."""
    return _hex_strings(mix_ranks(ranks, salt)[:, None], LOWER_HEX, missing)


def upper_hex32(
    ranks: NDArray[np.int64], salt: int, missing: NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Thirty-two uppercase digits for each rank below 2^32, null where missing; the first eight differ."""
    words = np.stack([mix_ranks(ranks, 4 * salt + part) for part in range(4)], axis=1)
    return _hex_strings(words, UPPER_HEX, missing)


def _hex_strings(
    words: Words32, digits: NDArray[np.uint16], missing: NDArray[np.bool_] | None
) -> pa.StringArray:
    """Each row of words as text, straight into Arrow's buffers."""
    rows, width = len(words), 8 * words.shape[1]
    text = digits[words.astype(">u4").view(np.uint8)]
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    present = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text), present)
