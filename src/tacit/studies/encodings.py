"""How a study's log is encoded, as values that can be written down; `encoder` carries them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit import expect
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.sides import Vocabulary
    from tacit.data.reading.stream import LogReader


@dataclass(frozen=True)
class Hashed:
    """Fixed bins: nothing is learned from the data."""

    bins: int


@dataclass(frozen=True)
class Frequent:
    """Public values that came at least `threshold` times; the others share a row a field."""

    threshold: int = 1


@dataclass(frozen=True)
class KnownDomain:
    """The values that the made-up world has: sensitive values, but a list of them that anybody may have.

    With `most`, the likeliest so many of each field, by the world's own law; the others share a row a field.
    """

    most: int | None = None


@dataclass(frozen=True)
class Selected:
    """Sensitive values whose counts are above `threshold`, selected under DP and paid for by the training."""

    threshold: int
    epsilon: expect.Number
    delta: expect.Number


Public = Hashed | Frequent
Sensitive = Hashed | KnownDomain | Selected


def encoder(reader: LogReader, public: Public, sensitive: Sensitive) -> Encoder:
    """The encoder of a log. Selected values are drawn anew at each call, from the cryptographic stream."""
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.selection import Selection
    from tacit.data.encoding.sides import Hashing, Side
    from tacit.data.encoding.vocabularies import counted, public_vocabulary, sensitive_vocabulary, to_select
    from tacit.entropy import Entropy
    from tacit.privacy.budget import Budget
    from tacit.schema.columns import Role

    schema = reader.log.schema
    wanted = list(schema.having(Role.PUBLIC)) if isinstance(public, Frequent) else []
    if isinstance(sensitive, Selected):
        wanted += to_select(schema)
    tallies = counted(reader, wanted) if wanted else {}
    public_side: Side = (
        Hashing(public.bins)
        if isinstance(public, Hashed)
        else public_vocabulary(schema, tallies, public.threshold)
    )
    if isinstance(sensitive, Hashed):
        return Encoder.of(schema, public_side, Hashing(sensitive.bins))
    if isinstance(sensitive, KnownDomain):
        return Encoder.of(schema, public_side, _known(reader.log.name, sensitive.most))
    budget = Budget.of(sensitive.epsilon, sensitive.delta)
    selection = Selection.for_budget(budget, len(to_select(schema)), sensitive.threshold)
    listed = sensitive_vocabulary(schema, tallies, selection, Entropy())
    return Encoder.of(schema, public_side, listed, selection)


def _known(log: str, most: int | None) -> Vocabulary:
    """The small display world names the values of a field by their ranks, likeliest first."""
    import numpy as np

    from tacit.data.encoding.sides import Vocabulary
    from tacit.data.encoding.tokens import of_texts
    from tacit.data.generators.criteo_display import SMALL
    from tacit.data.generators.tokens import lower_hex8
    from tacit.data.logs.display_small import SENSITIVE

    if log != SMALL.name:
        raise BadInput(f"expected log {SMALL.name} for a known domain of sensitive values, got {log}")
    listed = {}
    for salt, field in enumerate(SMALL.fields):
        if field.name in SENSITIVE:
            ranks = np.arange(min(field.law.values, most or field.law.values))
            listed[field.name] = np.unique(of_texts(field.name, lower_hex8(ranks, salt).to_pylist()))
    return Vocabulary(tuple(listed), tuple(listed.values()))
