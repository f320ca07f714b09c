"""A log beside a made-up one like it: the same figures of both, and what each field tells about the label.

What a field tells is its AUC alone: the rate of its values among half of the rows, shrunk towards the rate of
all, ranks the other half. Fields together are added up as if they were independent (naive Bayes). Rows are
halved by their numbers, and as many are looked at in both logs, since more rows know more values. All figures
are exact, so they are for the data's owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Flags, Floats, Integers
from tacit.data.description import LogDescription, describe
from tacit.data.encoding.fingerprints import Fingerprints, column_fingerprints
from tacit.data.reading.reader import ExampleBlock, LogReader
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.progress import Count, no_count
from tacit.schema.columns import Kind, Role

SHRINKAGE = 20.0  # examples that the rate of all counts as
SIDES = {Role.PUBLIC: "public fields together", Role.SENSITIVE: "sensitive fields together"}
ALL = "all fields together"


@dataclass(frozen=True)
class LogComparison:
    """A file and a made-up log of its kind. `signals` are AUCs by field and side, of the made-up one and of the
    file; there are none where the label is always the same."""

    made_up: LogDescription
    file: LogDescription
    rows: int
    signals: Mapping[str, tuple[float, float]]

    __repr__ = brief_repr

    def as_json(self) -> dict[str, Any]:
        ours, theirs = self.made_up.figures, self.file.figures
        fields = {each.name: each for each in self.file.fields}
        return {
            "log": self.file.log.name,
            "rows": self.rows,
            "figures": [
                {"name": name, "made_up": ours[name], "file": theirs[name]} for name in ours if name in theirs
            ],
            "fields": [
                {
                    "name": each.name,
                    "role": each.role,
                    "values": [each.values, fields[each.name].values],
                    "top_twenty_share": [each.top_twenty_share, fields[each.name].top_twenty_share],
                    "missing": [each.missing, fields[each.name].missing],
                }
                for each in self.made_up.fields
                if each.name in fields
            ],
            "signals": [
                {"name": name, "made_up": ours, "file": theirs} for name, (ours, theirs) in self.signals.items()
            ],
        }


def compare_logs(
    made_up: LogReader, file: LogReader, *, rows: int, progress: Count = no_count
) -> LogComparison:
    """Both described, and the signal of the first `rows` examples of each."""
    expect.whole("rows", rows, at_least=4)
    if made_up.log.name != file.log.name:
        raise BadInput(f"expected two files of one log, got {made_up.log.name} and {file.log.name}")
    ours, theirs = (field_signals(reader, rows) for reader in (made_up, file))
    signals = {name: (ours[name], theirs[name]) for name in ours if name in theirs}
    return LogComparison(describe(made_up), describe(file, progress), rows, signals)


def field_signals(reader: LogReader, rows: int) -> dict[str, float]:
    """The AUC of each field alone, and of the fields of a side together."""
    label, tokens = _first_rows(reader, rows)
    if len(label) < 4 or label.all() or not label.any():
        return {}
    learnt = np.arange(len(label)) % 2 == 0
    if label[learnt].all() or not label[learnt].any() or len(np.unique(label[~learnt])) < 2:
        return {}
    told = {name: _log_odds(found, label, learnt) for name, found in tokens.items()}
    schema, truth = reader.log.schema, label[~learnt]
    found = {name: _auc(truth, score) for name, score in told.items()}
    for role, words in SIDES.items():
        side = [told[column.name] for column in schema.columns_with(role) if column.name in told]
        if side:
            found[words] = _auc(truth, np.sum(side, axis=0))
    return {**found, ALL: _auc(truth, np.sum(list(told.values()), axis=0))}


def _first_rows(reader: LogReader, rows: int) -> tuple[Flags, dict[str, Fingerprints]]:
    labels: list[Flags] = []
    tokens: dict[str, list[Fingerprints]] = {}
    seen = 0
    for label, found in reader.stream(lambda examples: _tokens(reader, examples)):
        labels.append(label)
        for name, each in found.items():
            tokens.setdefault(name, []).append(each)
        seen += len(label)
        if seen >= rows:
            break
    if not seen:
        raise BadInput(reader.no_examples)
    return np.concatenate(labels)[:rows], {
        name: np.concatenate(each)[:rows] for name, each in tokens.items() if sum(map(len, each)) == seen
    }


def _tokens(reader: LogReader, examples: ExampleBlock) -> tuple[Flags, dict[str, Fingerprints]]:
    rows, schema = examples.rows, reader.log.schema
    label = rows.column(schema.label.source).to_numpy(zero_copy_only=False) > 0
    return label, {
        column.name: column_fingerprints(column, rows.column(column.source), schema.utc_offset_hours)
        for column in schema.columns
        if column.is_feature and column.kind is not Kind.SEQUENCE and column.source in rows.schema.names
    }


def _log_odds(tokens: Fingerprints, label: Flags, learnt: Flags) -> Floats:
    """Of the rows that were not learnt from: how much likelier a positive is there than anywhere."""
    code: NDArray[np.int64] = np.unique(tokens, return_inverse=True)[1].astype(np.int64)
    values, rate = int(code.max()) + 1, float(label[learnt].mean())
    count, positives = _sums(code[learnt], None, values), _sums(code[learnt], label[learnt], values)
    own = (positives + SHRINKAGE * rate) / (count + SHRINKAGE)
    odds: Floats = np.log(own / (1 - own)) - np.log(rate / (1 - rate))
    return odds[code[~learnt]]


def _sums(code: Integers, weight: Flags | None, values: int) -> Floats:
    found: Floats = np.bincount(code, weight, values).astype(np.float64)
    return found


def _auc(truth: Flags, score: Floats) -> float:
    """The chance that a positive is ranked above a negative, ties half."""
    _, rank, count = np.unique(score, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count - 1) / 2
    positives = int(truth.sum())
    above = middle[rank[truth]].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(truth) - positives)))
