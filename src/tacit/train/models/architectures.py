"""Architectures by the name that a configuration file or a saved model gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tacit.errors import BadInput
from tacit.train.models.din import Din
from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
from tacit.train.models.fnn import Fnn
from tacit.train.models.mlp import Mlp
from tacit.train.models.model import Architecture
from tacit.train.statistic.field_machine import FieldFactors

KNOWN: tuple[type[FactorizationMachine | LogisticRegression | Mlp | Fnn | Din | FieldFactors], ...] = (
    FactorizationMachine,
    LogisticRegression,
    Mlp,
    Fnn,
    Din,
    FieldFactors,
)


def architecture(name: str, settings: Mapping[str, Any]) -> Architecture:
    """The architecture of this name, with these of its fields and the defaults of the others."""
    by_name = {kind.name: kind for kind in KNOWN}
    if name not in by_name:
        raise BadInput(f"expected an architecture named {', '.join(by_name)}, got {name!r}")
    kind = by_name[name]
    allowed = [field.name for field in fields(kind)]
    for key in settings:
        if key not in allowed:
            raise BadInput(f"architecture {name}: expected {', '.join(allowed) or 'no settings'}, got {key!r}")
    return kind(**settings)


def settings_of(shape: Architecture) -> dict[str, Any]:
    """What `architecture` needs, with the name, to make the same one."""
    if not isinstance(shape, KNOWN):
        raise BadInput(f"expected {', '.join(kind.name for kind in KNOWN)}, got {type(shape).__name__}")
    return {field.name: getattr(shape, field.name) for field in fields(shape)}
