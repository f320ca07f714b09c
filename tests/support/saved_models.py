"""Small saved models, for the tests of saving and of exporting them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.vocabulary import Hashing
from tacit.data.splits import RowSet
from tacit.entropy import Simulation
from tacit.schema.columns import Column, Kind, LogSchema, Role
from tacit.train.examples import Examples
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
from tacit.train.models.model import Architecture
from tacit.train.models.saving import SavedModel, encoded_sizes
from tacit.train.statistic.offset import BesideStatistic
from tacit.train.targets import Head

ARCHITECTURES: tuple[Architecture, ...] = (
    Mlp(dim=3, public_layers=(5,), common_layers=(6, 4), start=0.5),
    Mlp(dim=3, public_layers=(5, 7), common_layers=(), start=0.5),
    Mlp(dim=3, public_layers=(), common_layers=(6,), start=0.5),
    Mlp(dim=3, public_layers=(), common_layers=(), start=0.5),
    FactorizationMachine(dim=4, start=0.5),
    LogisticRegression(),
    BesideStatistic(FactorizationMachine(dim=4, start=0.5), rank=3),
    BesideStatistic(Mlp(dim=3, public_layers=(5,), common_layers=(6,), start=0.5), rank=0),
)


def small_encoder(public: int = 4, sensitive: int = 3) -> Encoder:
    columns = [Column(f"open{i}", {Role.PUBLIC}) for i in range(public)]
    columns += [Column(f"hidden{i}", {Role.SENSITIVE}) for i in range(sensitive)]
    columns.append(Column("clicked", {Role.LABEL}, Kind.FLAG))
    return Encoder.of(LogSchema("small", tuple(columns)), Hashing(9), Hashing(5))


def small_saved(shape: Architecture, encoder: Encoder | None = None, **others: Any) -> SavedModel:
    """A model with no weight at 0."""
    encoder = encoder or small_encoder()
    model = shape.build(encoded_sizes(encoder), Simulation(1).normal)
    for name, array in (*model.tables.items(), *model.dense.items()):
        array += Simulation(name).normal(array.shape, scale=0.2)
    usual: dict[str, Any] = {"head": Head.LOGISTIC, "encoder": encoder, "statement": None, "method": "plain"}
    return SavedModel(model, **usual | others)


def small_log(encoder: Encoder, count: int = 50) -> Examples:
    sizes, draw = encoded_sizes(encoder), np.random.default_rng(3)
    return Examples(
        public=draw.integers(0, sizes.public_rows, (count, sizes.public_fields), dtype=np.int32),
        sensitive=draw.integers(0, sizes.sensitive_rows, (count, sizes.sensitive_fields), dtype=np.int32),
        sizes=sizes,
        at=RowSet(slice(0, count)),
        encoder_digest=encoder.digest,
    )
