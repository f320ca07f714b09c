"""A platform from its settings: the model, its advertiser's rows, and the tokens that name them to the room."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.cleanroom.model.examples import Examples, advertiser_key, examples_of
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.plans import Plan
from tacit.cleanroom.wire.agreement import Terms
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
    plan = _plan(settings, terms)
    model.add_adapter(settings.adapter, advertiser, settings.rank, seed=plan.seed, tasks=(plan.task,))
    named = {part: names_of(each.records, settings, terms) for part, each in examples.items()}
    return Ready(model, plan, terms, examples, named)


def _plan(settings: PlatformSettings, terms: Terms) -> Plan:
    allowed = [each.name for each in fields(Plan)]
    for key in settings.plan:
        if key not in allowed:
            raise BadInput(expect.unknown_key(f"plan.{key}", key, allowed))
    try:
        return Plan.for_terms(terms, **settings.plan)
    except BadInput as refusal:
        raise BadInput(f"plan: {refusal}") from None
