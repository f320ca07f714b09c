"""How tokens become rows of an embedding table: hashed bins, or a vocabulary of listed values.

A side (all public or all sensitive fields) shares one table. `Hashing` learns nothing from the data. A
`Vocabulary` lists values: frequent ones of public fields, a publicly known domain, or sensitive values that
were selected under differential privacy and paid for (`VocabularySelection`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tacit import expect
from tacit.arrays import Ids
from tacit.data.encoding.fingerprints import (
    Fingerprints,
    bucket_range,
    column_fingerprints,
    missing_fingerprint,
    value_fingerprints,
)
from tacit.data.reading.reader import ExampleBlock, LogReader
from tacit.data.value_counts import ValueTally
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.accounting import epsilon as epsilon_of
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms.partition_selection import PartitionSelection
from tacit.privacy.randomness import Source
from tacit.privacy.releases import SelectedPartitions
from tacit.privacy.units import Relation
from tacit.progress import Count, no_count
from tacit.schema.columns import NUMERIC, Column, Kind, LogSchema, Role

LARGEST = 2**31 - 1


class Side(Protocol):
    """The table that all public or all sensitive fields share, of `size` rows."""

    @property
    def size(self) -> int: ...

    def ids(self, field: str, tokens: Fingerprints) -> Ids: ...


@dataclass(frozen=True)
class Hashing:
    """Every token falls into one of `size` bins by its fingerprint alone: nothing is learned from the data."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", expect.whole("bins", self.size, at_least=1))
        if self.size > LARGEST:
            raise BadInput(f"expected at most {LARGEST} bins, got {self.size}")

    def ids(self, field: str, tokens: Fingerprints) -> Ids:  # noqa: ARG002 (the tokens carry the field)
        bins = tokens >> np.uint64(32)
        bins *= np.uint64(self.size)  # in place: new arrays cost more than the arithmetic
        bins >>= np.uint64(32)
        return bins.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Listed values by field: a row for a missing value, one for values not listed, and one for each that is.

    `listed` holds the fingerprints of a field's values, sorted. The rows of a field lie together.
    """

    fields: tuple[str, ...]
    listed: tuple[Fingerprints, ...]

    def __post_init__(self) -> None:
        if len(self.fields) != len(self.listed) or len(set(self.fields)) != len(self.fields):
            raise BadInput(
                f"expected one list of values for each field, got {len(self.listed)} for {self.fields}"
            )
        if any(values.dtype != np.uint64 or values.ndim != 1 for values in self.listed):
            raise BadInput("expected flat lists of 64-bit fingerprints, got others")
        if any(np.any(values[1:] <= values[:-1]) for values in self.listed):
            raise BadInput("expected sorted values without repeats, got others")
        if self.size > LARGEST:
            raise BadInput(f"expected at most {LARGEST} rows, got {self.size}")

    @cached_property
    def starts(self) -> Sequence[int]:
        return [0, *np.cumsum([len(values) + 2 for values in self.listed]).tolist()]

    @property
    def size(self) -> int:
        return self.starts[-1]

    def ids(self, field: str, tokens: Fingerprints) -> Ids:
        index = self.fields.index(field)
        values, missing, other = self.listed[index], self.starts[index], self.starts[index] + 1
        at = np.searchsorted(values, tokens)
        found = (
            values[np.minimum(at, len(values) - 1)] == tokens
            if len(values)
            else np.zeros(len(tokens), np.bool_)
        )
        ids = np.where(found, at + other + 1, other).astype(np.int32)
        ids[tokens == missing_fingerprint(field)] = missing
        return ids


BISECTIONS = 12
STEP_BACK = Fraction(999, 1000)


@dataclass(frozen=True)
class VocabularySelection:
    """Which sensitive values may be listed, decided under DP: `mechanism` on each value's count above
    `threshold`.

    Guarantee:  (epsilon, delta)-DP for the list of selected values, as `release` composes it.
    Neighbours: one example's sensitive features replaced (replace-one, unit impression). It has one value in
                each of `fields` fields, so up to 2 * fields counts move by one.
    Assumes:    each example counts once a field; the threshold and the fields were chosen without looking at
                the sensitive values; lowering every count by the threshold moves no count by more than before;
                which rows are examples, and which are bad, is the same in both datasets.
    Source:     Desfontaines, Voss, Gipson, Mandayam 2020 (arXiv 2006.03684), theorem 1, for one count.
    """

    mechanism: PartitionSelection
    fields: int
    threshold: int = 0

    def __post_init__(self) -> None:
        expect.whole("fields", self.fields, at_least=1)
        expect.whole("threshold", self.threshold, at_least=0)

    @classmethod
    def for_budget(cls, budget: Budget, fields: int, threshold: int = 0) -> VocabularySelection:
        """The strongest selection that the budget pays for, all fields together.

        Half of delta goes to the values themselves, the other half to composing them.
        """
        fields = expect.whole("fields", fields, at_least=1)
        if budget.delta <= 0:
            raise BadInput("expected delta > 0: without it no value can ever be listed, got 0")
        each = budget.delta / (4 * fields)
        # Adding up always fits, but for the accountant's rounding up: so a little less than that.
        low, high = budget.epsilon / (2 * fields) * STEP_BACK, budget.epsilon
        while _epsilon(PartitionSelection(low, each), fields, budget.delta) > budget.epsilon:
            low, high = low * STEP_BACK, low
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            fits = _epsilon(PartitionSelection(middle, each), fields, budget.delta) <= budget.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return cls(PartitionSelection(Fraction(low), each), fields, threshold)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> VocabularySelection:
        epsilon, delta = (expect.exact(key, record[key]) for key in ("epsilon", "delta"))
        mechanism = PartitionSelection(epsilon, delta)
        return cls(mechanism, record["fields"], record["threshold"])

    def as_json(self) -> dict[str, Any]:
        """`epsilon` and `delta` are those of one value, exactly; `release` composes them."""
        return {
            "epsilon": str(self.mechanism.epsilon),
            "delta": str(self.mechanism.delta),
            "fields": self.fields,
            "threshold": self.threshold,
        }

    @property
    def release(self) -> SelectedPartitions:
        return self.mechanism.release(values_per_unit=self.fields, relation=Relation.REPLACE_ONE)

    def draw_listed(self, tally: ValueTally, source: Source) -> Fingerprints:
        """Draw which of a field's values are listed. Once for one payment: drawing again is another release."""
        if not source.fit_for_release:
            raise EntropyMisuse("expected the cryptographic stream for a release, got a simulation")
        above = np.maximum(tally.counts - self.threshold, 0)
        return tally.values[self.mechanism.select(above, source.words)]


def _epsilon(mechanism: PartitionSelection, fields: int, delta: Fraction) -> Fraction:
    release = mechanism.release(values_per_unit=fields, relation=Relation.REPLACE_ONE)
    return Fraction(epsilon_of(release, delta=float(delta), relation=Relation.REPLACE_ONE))


SMALL_DOMAINS = {Kind.FLAG: 2, Kind.HOUR: 24, Kind.WEEKDAY: 7}


def count_column_values(
    reader: LogReader, columns: Sequence[Column], progress: Count = no_count
) -> dict[str, ValueTally]:
    """How often each value of these columns came, missing ones apart; one pass over the file."""
    tallies = {column.name: ValueTally() for column in columns}
    offset = reader.log.schema.utc_offset_hours

    def tokens(examples: ExampleBlock) -> dict[str, Fingerprints]:
        found = {}
        for column in columns:
            array = examples.rows.column(column.source)
            each = column_fingerprints(
                column, array.flatten() if column.kind is Kind.SEQUENCE else array, offset
            )
            found[column.name] = each[each != missing_fingerprint(column.vocabulary)]
        return found

    for block in reader.stream(tokens, progress):
        for name, each in block.items():
            tallies[name].add(each)
    return tallies


def public_vocabulary(schema: LogSchema, tallies: Mapping[str, ValueTally], threshold: int) -> Vocabulary:
    """Every public value that came at least `threshold` times, by exact counts: anybody may count them."""
    threshold = expect.whole("threshold", threshold, at_least=1)
    columns = schema.columns_with(Role.PUBLIC)
    return _join_columns(columns, [_frequent(tallies[column.name], threshold) for column in columns])


def sensitive_vocabulary(
    schema: LogSchema, tallies: Mapping[str, ValueTally], selection: VocabularySelection | None, source: Source
) -> Vocabulary:
    """A vocabulary of the sensitive fields: a public domain in full, or else what `selection` draws.

    Without a selection, a field that has no public domain is refused.
    """
    columns = schema.columns_with(Role.SENSITIVE)
    undecided = columns_to_select(schema)
    if undecided and selection is None:
        raise BadInput(
            f"column {undecided[0].name}: expected a public domain or a private selection for a sensitive "
            "vocabulary, got neither: listing what occurs would tell that somebody has it"
        )
    if selection is not None and selection.fields < len(undecided):
        raise BadInput(f"expected a selection over {len(undecided)} fields, got one over {selection.fields}")
    listed = []
    for column in columns:
        if column in undecided and selection is not None:
            listed.append(selection.draw_listed(tallies[column.name], source))
        else:
            listed.append(np.unique(known_domain(column)))
    return _join_columns(columns, listed)


def columns_to_select(schema: LogSchema) -> tuple[Column, ...]:
    """The sensitive columns whose values nobody can know beforehand."""
    unknown = []
    for column in schema.columns_with(Role.SENSITIVE):
        if column.domain or column.kind in SMALL_DOMAINS or column.kind in NUMERIC:
            continue
        if column.kind is Kind.SEQUENCE:
            raise BadInput(
                f"column {column.name}: expected a domain, got a sensitive sequence without one: an example "
                "has any number of its values, so no selection bounds what one example changes"
            )
        if Role.USER in column.roles:
            raise BadInput(
                f"column {column.name}: expected bins for the people's own ids, got a vocabulary, which would "
                "list whoever has many examples: the promise is for one example"
            )
        unknown.append(column)
    return tuple(unknown)


def known_domain(column: Column) -> Fingerprints:
    """Every token that anybody would expect in this column: its domain, or all its buckets, hours or days."""
    if column.domain:
        return value_fingerprints(column.vocabulary, list(column.domain))
    if column.kind in SMALL_DOMAINS:
        return value_fingerprints(
            column.vocabulary, [str(number) for number in range(SMALL_DOMAINS[column.kind])]
        )
    if column.kind not in NUMERIC:
        raise BadInput(f"column {column.name}: expected a domain for kind {column.kind}, got none")
    last = bucket_range(column.kind, column.buckets_per_doubling)
    return value_fingerprints(column.vocabulary, [str(number) for number in range(-last, last + 1)])


def _join_columns(columns: Sequence[Column], listed: Sequence[Fingerprints]) -> Vocabulary:
    """Columns that share a vocabulary list what any of them lists."""
    values: dict[str, Fingerprints] = {}
    for column, each in zip(columns, listed, strict=True):
        earlier = values.get(column.vocabulary, np.empty(0, dtype=np.uint64))
        values[column.vocabulary] = np.union1d(earlier, each)
    return Vocabulary(tuple(values), tuple(values.values()))


def _frequent(tally: ValueTally, threshold: int) -> Fingerprints:
    values: Fingerprints = tally.values[tally.counts >= threshold]
    return values
