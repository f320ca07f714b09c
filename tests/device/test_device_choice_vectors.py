"""Golden vectors of plans, choices, contexts and models on devices: they come out as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.repository import VECTORS
from tests.vectors.make_device_choice_v1 import records

KEPT: dict[str, Any] = json.loads((VECTORS / "device_choice_v1.json").read_text())
MOST_BYTES = 300_000


def test_all_vectors_come_out_as_they_are() -> None:
    made = json.loads(json.dumps(records()))
    # Sums of doubles may differ in their last digits from one processor to the next.
    for ours, theirs in zip(made["plans"], KEPT["plans"], strict=True):
        if theirs["plan"] is not None:
            assert ours["plan"].pop() == pytest.approx(theirs["plan"][-1], rel=1e-12)
            ours["plan"].append(theirs["plan"][-1])
    for name, model in made["models"].items():
        assert model["scores"] == pytest.approx(KEPT["models"][name]["scores"], abs=1e-6)
        model["scores"] = KEPT["models"][name]["scores"]
    assert made == KEPT


def test_they_are_enough() -> None:
    plans = [each["plan"] for each in KEPT["plans"]]
    assert len(plans) >= 60
    assert {len(each["menu"]["entries"]) for each in KEPT["plans"]} >= {1, 2, 3, 5, 8, 13, 20}
    assert sum(plan is None for plan in plans) >= 10
    assert sum(plan is not None and plan[1] > 1 for plan in plans) >= 6
    assert (VECTORS / "device_choice_v1.json").stat().st_size < MOST_BYTES
