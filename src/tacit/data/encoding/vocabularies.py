"""Which values a vocabulary lists: frequent public ones, a public domain, or values selected under DP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tacit import expect
from tacit.data.encoding.buckets import bucket_range
from tacit.data.encoding.counting import Tally
from tacit.data.encoding.selection import Selection
from tacit.data.encoding.sides import Vocabulary
from tacit.data.encoding.tokens import Fingerprints, fingerprints, missing_fingerprint, of_texts
from tacit.data.reading.stream import Examples, LogReader
from tacit.errors import BadInput
from tacit.privacy.randomness import Source
from tacit.schema.columns import NUMERIC, Column, Kind, LogSchema, Role

SMALL_DOMAINS = {Kind.FLAG: 2, Kind.HOUR: 24, Kind.WEEKDAY: 7}


def counted(
    reader: LogReader, columns: Sequence[Column], progress: Callable[[int], None] = lambda _: None
) -> dict[str, Tally]:
    """One pass over the file: how often each value of these columns came, missing ones apart."""
    tallies = {column.name: Tally() for column in columns}
    offset = reader.log.schema.utc_offset_hours

    def tokens(examples: Examples) -> dict[str, Fingerprints]:
        found = {}
        for column in columns:
            array = examples.rows.column(column.source)
            each = fingerprints(column, array.flatten() if column.kind is Kind.SEQUENCE else array, offset)
            found[column.name] = each[each != missing_fingerprint(column.vocabulary)]
        return found

    for block in reader.stream(tokens, progress):
        for name, each in block.items():
            tallies[name].add(each)
    return tallies


def public_vocabulary(schema: LogSchema, tallies: Mapping[str, Tally], threshold: int) -> Vocabulary:
    """Every public value that came at least `threshold` times, by exact counts: anybody may count them."""
    threshold = expect.whole("threshold", threshold, at_least=1)
    columns = schema.having(Role.PUBLIC)
    return _joined(columns, [_frequent(tallies[column.name], threshold) for column in columns])


def sensitive_vocabulary(
    schema: LogSchema, tallies: Mapping[str, Tally], selection: Selection | None, source: Source
) -> Vocabulary:
    """Fields with a public domain list all of it; the others what `selection` draws, and None refuses them."""
    columns = schema.having(Role.SENSITIVE)
    undecided = to_select(schema)
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
            listed.append(selection.listed(tallies[column.name], source))
        else:
            listed.append(np.unique(domain(column)))
    return _joined(columns, listed)


def to_select(schema: LogSchema) -> tuple[Column, ...]:
    """The sensitive columns whose values nobody can know beforehand."""
    unknown = []
    for column in schema.having(Role.SENSITIVE):
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


def domain(column: Column) -> Fingerprints:
    """Every token that anybody would expect in this column: its domain, or all its buckets, hours or days."""
    if column.domain:
        return of_texts(column.vocabulary, list(column.domain))
    if column.kind in SMALL_DOMAINS:
        return of_texts(column.vocabulary, [str(number) for number in range(SMALL_DOMAINS[column.kind])])
    if column.kind not in NUMERIC:
        raise BadInput(f"column {column.name}: expected a domain for kind {column.kind}, got none")
    last = bucket_range(column.kind, column.buckets_per_doubling)
    return of_texts(column.vocabulary, [str(number) for number in range(-last, last + 1)])


def _joined(columns: Sequence[Column], listed: Sequence[Fingerprints]) -> Vocabulary:
    """Columns that share a vocabulary list what any of them lists."""
    values: dict[str, Fingerprints] = {}
    for column, each in zip(columns, listed, strict=True):
        earlier = values.get(column.vocabulary, np.empty(0, dtype=np.uint64))
        values[column.vocabulary] = np.union1d(earlier, each)
    return Vocabulary(tuple(values), tuple(values.values()))


def _frequent(tally: Tally, threshold: int) -> Fingerprints:
    values: Fingerprints = tally.values[tally.counts >= threshold]
    return values
