"""Vocabularies: exact counts for public values, a public domain or a paid selection for sensitive ones."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data import value_counts
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.fingerprints import Fingerprints, value_fingerprints
from tacit.data.encoding.vocabulary import (
    Hashing,
    Vocabulary,
    VocabularySelection,
    columns_to_select,
    count_column_values,
    known_domain,
    public_vocabulary,
    sensitive_vocabulary,
)
from tacit.data.logs.definition import Log
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.reading.reader import LogReader
from tacit.data.splits import LogSplit
from tacit.data.value_counts import ValueTally
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.accounting import epsilon
from tacit.privacy.budget import Budget, exp_rounded_down
from tacit.privacy.mechanisms.partition_selection import PartitionSelection
from tacit.privacy.units import Relation
from tacit.schema.columns import Column, Kind, LogSchema, Role

SCHEMA = LogSchema(
    "shop",
    (
        Column("page", {Role.PUBLIC}),
        Column("town", {Role.SENSITIVE}),
        Column("visits", {Role.SENSITIVE}, Kind.WHOLE),
        Column("at", {Role.SENSITIVE}, Kind.HOUR),
        Column("bought", {Role.LABEL}, Kind.FLAG),
    ),
)
RAW = {
    "page": CellType.TEXT,
    "town": CellType.TEXT,
    "visits": CellType.WHOLE,
    "at": CellType.WHOLE,
    "bought": CellType.WHOLE,
}
LOG = Log("shop", "", "", SCHEMA, (FileLayout(RAW),), LogSplit("random", {"train": 1}))


def shop(folder: Path, rows: list[str]) -> LogReader:
    path = folder / "shop.csv"
    path.write_text("\n".join([",".join(RAW), *rows, ""]))
    return LogReader(LOG, path)


def tally_of(counts: dict[str, int], field: str = "town") -> ValueTally:
    tally = ValueTally()
    tally.add(np.repeat(value_fingerprints(field, list(counts)), list(counts.values())))
    return tally


@given(st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=12))
def test_a_tally_counts_like_a_dictionary(blocks: list[list[int]]) -> None:
    tally, slow = ValueTally(), Counter[int]()
    usual, value_counts.MERGE_AFTER = value_counts.MERGE_AFTER, 7  # so that it merges often
    try:
        for block in blocks:
            tally.add(np.array(block, dtype=np.uint64))
            slow.update(block)
        assert dict(zip(tally.values.tolist(), tally.counts.tolist(), strict=True)) == slow
        assert np.all(np.diff(tally.values.astype(np.int64)) > 0)
    finally:
        value_counts.MERGE_AFTER = usual


def test_public_values_are_listed_from_the_threshold_on(tmp_path: Path) -> None:
    reader = shop(tmp_path, ["a,x,1,0,0"] * 3 + ["b,x,1,0,1"] * 2 + [",x,1,0,1"] * 5)
    tallies = count_column_values(reader, SCHEMA.columns_with(Role.PUBLIC))
    vocabulary = public_vocabulary(SCHEMA, tallies, threshold=3)
    assert vocabulary.size == 2 + 1  # missing, other, a
    ids = vocabulary.ids("page", value_fingerprints("page", ["a", "b", "never seen"]))
    assert ids.tolist() == [2, 1, 1]


def test_a_sensitive_vocabulary_needs_a_domain_or_a_selection() -> None:
    assert [column.name for column in columns_to_select(SCHEMA)] == ["town"]
    with pytest.raises(BadInput, match="column town: expected a public domain or a private selection"):
        sensitive_vocabulary(SCHEMA, {}, None, Entropy())


def test_a_public_domain_is_listed_whatever_the_data_say() -> None:
    town = Column("town", {Role.SENSITIVE}, domain=("north", "south"))
    schema = LogSchema("shop", (town, *(column for column in SCHEMA.columns if column.name != "town")))
    assert columns_to_select(schema) == ()
    vocabulary = sensitive_vocabulary(schema, {}, None, Entropy())
    listed = dict(zip(vocabulary.fields, vocabulary.listed, strict=True))
    assert {name: len(values) for name, values in listed.items()} == {"town": 2, "visits": 127, "at": 24}
    assert set(value_fingerprints("town", ["north", "south"]).tolist()) == set(listed["town"].tolist())


@pytest.mark.parametrize("kind", [Kind.WHOLE, Kind.REAL, Kind.HOUR, Kind.WEEKDAY, Kind.FLAG])
def test_the_domain_of_a_number_holds_every_token_it_can_become(kind: Kind) -> None:
    import pyarrow as pa

    from tacit.data.encoding.fingerprints import column_fingerprints

    column = Column("n", {Role.SENSITIVE}, kind, buckets_per_doubling=3)
    extremes = [0, 1] if kind is Kind.FLAG else [-(2**63), -1, 0, 1, 2, 5, 1_700_000_000, 2**63 - 1]
    values = pa.array([float(n) for n in extremes] if kind is Kind.REAL else extremes)
    assert np.isin(column_fingerprints(column, values), known_domain(column)).all()


def test_a_sensitive_sequence_without_a_domain_is_refused() -> None:
    schema = LogSchema(
        "x", (Column("seen", {Role.SENSITIVE}, Kind.SEQUENCE), Column("y", {Role.LABEL}, Kind.FLAG))
    )
    with pytest.raises(BadInput, match="column seen: expected a domain"):
        columns_to_select(schema)


@pytest.mark.parametrize("fields", [1, 3, 13])
@pytest.mark.parametrize("asked", ["0.5", "2"])
def test_a_selection_spends_what_was_asked_and_not_more(fields: int, asked: str) -> None:
    budget = Budget.of(asked, "1e-6")
    selection = VocabularySelection.for_budget(budget, fields)
    spent = epsilon(selection.release, delta=float(budget.delta), relation=Relation.REPLACE_ONE)
    assert spent <= float(budget.epsilon)
    stronger = PartitionSelection(selection.mechanism.epsilon * Fraction(6, 5), selection.mechanism.delta)
    beyond = stronger.release(values_per_unit=fields, relation=Relation.REPLACE_ONE)
    assert epsilon(beyond, delta=float(budget.delta), relation=Relation.REPLACE_ONE) > float(budget.epsilon)


def worst_excess(chance: list[Fraction], mechanism: PartitionSelection) -> Fraction:
    """The largest p - e^epsilon q over neighbouring counts, both directions, listed or not."""
    odds = exp_rounded_down(mechanism.epsilon)
    pairs = [pair for one, two in pairwise(chance) for pair in ((one, two), (two, one))]
    return max(max(p - odds * q, (1 - p) - odds * (1 - q)) for p, q in pairs)


@pytest.mark.parametrize("threshold", [0, 1, 5])
def test_a_threshold_keeps_the_guarantee_exactly(threshold: int) -> None:
    mechanism = PartitionSelection(Fraction(1, 2), Fraction(1, 100))
    shifted = [mechanism.probability(max(0, count - threshold)) for count in range(60)]
    assert worst_excess(shifted, mechanism) <= mechanism.delta
    assert all(chance == 0 for chance in shifted[: threshold + 1])
    doubled = [
        mechanism.probability(max(0, 2 * count - threshold)) for count in range(60)
    ]  # a twin that must fail
    assert worst_excess(doubled, mechanism) > mechanism.delta


def test_one_example_replaced_moves_as_many_counts_as_the_release_says(tmp_path: Path) -> None:
    schema = LogSchema(
        "two",
        (
            Column("town", {Role.SENSITIVE}),
            Column("job", {Role.SENSITIVE}),
            Column("y", {Role.LABEL}, Kind.FLAG),
        ),
    )
    layout = FileLayout({"town": CellType.TEXT, "job": CellType.TEXT, "y": CellType.WHOLE})
    log = Log("two", "", "", schema, (layout,), LogSplit("random", {"train": 1}))

    def counts(rows: list[str]) -> Counter[tuple[str, int]]:
        (tmp_path / "two.csv").write_text("\n".join(["town,job,y", *rows, ""]))
        tallies = count_column_values(LogReader(log, tmp_path / "two.csv"), columns_to_select(schema))
        return Counter(
            {
                (name, int(value)): int(count)
                for name, tally in tallies.items()
                for value, count in zip(tally.values, tally.counts, strict=True)
            }
        )

    one, other = counts(["a,p,0", "b,q,1", "a,q,0"]), counts(["a,p,0", "c,r,0", "a,q,0"])
    moved = {key: abs(one[key] - other[key]) for key in one.keys() | other.keys() if one[key] != other[key]}
    assert len(moved) == 4  # 2 * 2 fields
    assert set(moved.values()) == {1}
    release = VocabularySelection.for_budget(Budget.of(1, "1e-6"), fields=2).release
    assert release.partitions == 4


def test_frequent_values_are_listed_and_rare_ones_are_not() -> None:
    selection = VocabularySelection.for_budget(Budget.of(2, "1e-6"), fields=1, threshold=50)
    listed = selection.draw_listed(tally_of({"everybody": 10_000, "below": 50, "nobody else": 1}), Entropy())
    assert listed.tolist() == value_fingerprints("town", ["everybody"]).tolist()


def test_a_simulation_selects_nothing_that_leaves() -> None:
    selection = VocabularySelection.for_budget(Budget.of(2, "1e-6"), fields=1)
    with pytest.raises(EntropyMisuse, match="expected the cryptographic stream"):
        selection.draw_listed(tally_of({"everybody": 10_000}), Simulation(1))


def test_a_selection_over_too_few_fields_is_refused() -> None:
    columns = (*SCHEMA.columns, Column("job", {Role.SENSITIVE}))
    schema = LogSchema("shop", columns)
    selection = VocabularySelection.for_budget(Budget.of(2, "1e-6"), fields=1)
    with pytest.raises(BadInput, match="over 2 fields, got one over 1"):
        sensitive_vocabulary(schema, {}, selection, Entropy())


@pytest.mark.parametrize(("budget", "problem"), [(Budget.of(1, 0), "delta > 0")])
def test_a_budget_that_cannot_select_is_refused(budget: Budget, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        VocabularySelection.for_budget(budget, fields=1)


def test_the_selection_travels_with_the_encoder(tmp_path: Path) -> None:
    selection = VocabularySelection.for_budget(Budget.of(2, "1e-6"), fields=1, threshold=3)
    listed: tuple[Fingerprints, ...] = tuple(np.empty(0, dtype=np.uint64) for _ in range(3))
    vocabulary = Vocabulary(("town", "visits", "at"), listed)
    encoder = Encoder.of(SCHEMA, Hashing(10), vocabulary, selection)
    encoder.save(tmp_path)
    loaded = Encoder.load(tmp_path)
    assert loaded.selection == selection
    assert loaded.selection is not None
    assert loaded.selection.release == selection.release
    assert Encoder.of(SCHEMA, Hashing(10), vocabulary).digest != encoder.digest


@pytest.mark.parametrize(("fields", "threshold"), [(0, 0), (1, -1)])
def test_a_selection_that_nobody_paid_for_cannot_be_made(fields: int, threshold: int) -> None:
    with pytest.raises(BadInput, match="whole number"):
        VocabularySelection(PartitionSelection(Fraction(1), Fraction(1, 100)), fields, threshold)


@pytest.mark.parametrize(("asked", "fields"), [(12, 3), (30, 1), (30, 3)])
def test_large_budgets_are_kept_by_the_accountant_too(asked: int, fields: int) -> None:
    selection = VocabularySelection.for_budget(Budget.of(asked, "1e-12"), fields)
    assert epsilon(selection.release, delta=1e-12, relation=Relation.REPLACE_ONE) <= asked


def test_people_are_never_listed() -> None:
    schema = LogSchema("x", (Column("id", {Role.SENSITIVE, Role.USER}), Column("y", {Role.LABEL}, Kind.FLAG)))
    with pytest.raises(BadInput, match="column id: expected bins for the people's own ids"):
        columns_to_select(schema)
