"""A platform from its settings: the model, its advertiser's rows, and the tokens that name them to the room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.cleanroom.model.examples import Examples, advertiser_key, examples_of
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.plans import Plan
from tacit.cleanroom.wire.agreement import Mode, Terms
from tacit.data.columns import Columns
from tacit.errors import BadInput
from tacit.services.room.link_checks import terms_of
from tacit.services.room.naming import names_of
from tacit.services.room.settings import PlatformSettings

TRAIN, TEST = "train", "test"


@dataclass(frozen=True, eq=False)
class Ready:
    """All that a run needs but the room."""

    model: ConversionModel
    plan: Plan
    terms: Terms
    examples: dict[str, Examples]  # of the advertiser, by part of the log
    tokens: dict[str, NDArray[np.uint8]]


def ready(settings: PlatformSettings) -> Ready:
    """Rows of the advertiser, the model with its adapter, and what to do."""
    terms = terms_of(settings)
    columns = Columns.open(settings.columns)
    parts, advertiser = columns.parts(), advertiser_key(settings.advertiser)
    examples = {
        part: examples_of(columns, parts[part]).of_advertiser(advertiser)
        for part in (TRAIN, TEST)
        if part in parts
    }
    if not len(examples[TRAIN]):
        raise BadInput(
            f"data.advertiser: expected an advertiser with rows to train on, got {settings.advertiser!r}"
        )
    model = ConversionModel.load(settings.base)
    plan = _plan(settings.plan, terms, len(examples[TRAIN]))
    try:
        model.add_adapter(settings.adapter, advertiser, settings.rank, seed=plan.seed, tasks=(plan.task,))
    except BadInput as refusal:
        raise BadInput(f"model: {refusal}") from None
    named = {part: names_of(each.records, settings, terms) for part, each in examples.items()}
    return Ready(model, plan, terms, examples, named)


def _plan(given: Mapping[str, Any], terms: Terms, rows: int) -> Plan:
    """What is refused is blamed on the key that is refused by itself, where there is one."""
    defaults = {each.name: each.default for each in fields(Plan)}
    for key, value in given.items():
        if key not in defaults:
            raise BadInput(expect.unknown_key(f"plan.{key}", key, defaults))
        if isinstance(value, str) and not isinstance(defaults[key], str):
            raise BadInput(f"plan.{key}: expected a value without quotes, got {value!r}")
    refusal = _refusal(given, terms, rows)
    if refusal is None:
        return Plan.for_terms(terms, **given)
    if _refusal({}, terms, rows) is None:
        for key, value in given.items():
            if (alone := _refusal({key: value}, terms, rows)) is not None:
                raise BadInput(f"plan.{key}: {alone}")
    raise BadInput(f"plan: {refusal}")


def _refusal(given: Mapping[str, Any], terms: Terms, rows: int) -> BadInput | None:
    try:
        plan = Plan.for_terms(terms, **given)
        if terms.mode in (Mode.AGGREGATE, Mode.NOISED):
            plan.refuse_unless_agreed(terms, rows)
    except BadInput as refusal:
        return refusal
    return None
