"""What a platform's run tunes where its settings leave it open."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tacit.cleanroom.model.examples import has_ids
from tacit.cleanroom.model.settings import ModelSettings
from tacit.cleanroom.protocol.modes import Mode
from tacit.services.room.platform_run import tunes_embeddings
from tests.support.cleanroom_models import some_rows

IDS = some_rows(ModelSettings(fields=(4, 400)), 2000)
CATEGORIES = some_rows(ModelSettings(fields=(4, 40)), 2000)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("rank", [None, 8])
def test_embeddings_are_tuned_where_an_adapter_trains_on_a_log_with_ids(mode: Mode, rank: int | None) -> None:
    terms = SimpleNamespace(mode=mode)
    for said in (None, True, False):
        settings = SimpleNamespace(rank=rank, embeddings=said)
        suits = mode is not Mode.STATISTIC and rank is None
        found = tunes_embeddings(settings, terms, IDS)  # type: ignore[arg-type]
        assert found == (suits if said is None else said)
        assert not tunes_embeddings(settings, terms, CATEGORIES) or said  # type: ignore[arg-type]


def test_ids_are_told_by_how_many_values_rows_have() -> None:
    assert has_ids(IDS)
    assert not has_ids(CATEGORIES)
    assert not has_ids(IDS.select(np.arange(50)))
