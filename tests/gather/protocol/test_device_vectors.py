"""Golden vectors of a device's part in statistics, for two languages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tacit.errors import Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.promises import promise_shortfall
from tacit.gather.protocol.rounds import Question, Round
from tests.support.gather_rounds import QUESTION, a_round
from tests.support.repository import VECTORS
from tests.vectors.make_device_statistics_v1 import records

STATISTICS_V1: dict[str, Any] = json.loads((VECTORS / "device_statistics_v1.json").read_text())


def test_all_vectors_come_out_as_they_are() -> None:
    least = {at: each["parts"]["least"] for at, each in enumerate(STATISTICS_V1["noise"])}
    assert json.loads(json.dumps(records(least))) == STATISTICS_V1


def test_planned_noise_keeps_its_promise_and_is_hardly_more_than_needed() -> None:
    for each in STATISTICS_V1["noise"]:
        assert each["kept"] == {"refused": False, "least": True, "planned": True}, each["run"]
        assert 0.997 < each["parts"]["least"] / each["parts"]["planned"] < 0.9995, each["run"]


@pytest.mark.parametrize("name", STATISTICS_V1["rounds"])
def test_rounds(name: str) -> None:
    said = STATISTICS_V1["rounds"][name]
    found = Round.from_bytes(bytes.fromhex(said["bytes"]))
    assert found.digest.hex() == said["digest"]
    assert (promise_shortfall(found.promise, found.noise) is None) is said["kept"]


@pytest.mark.parametrize("name", [*STATISTICS_V1["bad_rounds"], *STATISTICS_V1["left_to_parties"]])
def test_bad_rounds_are_refused_here_whatever_a_device_makes_of_them(name: str) -> None:
    spelled = STATISTICS_V1["left_to_parties"].get(name) or STATISTICS_V1["bad_rounds"][name]["bytes"]
    with pytest.raises(Refused) as refusal:
        Round.from_bytes(bytes.fromhex(spelled))
    assert refusal.value.reason is MessageVerdict.MALFORMED


@pytest.mark.parametrize("name", STATISTICS_V1["bad_questions"])
def test_bad_questions(name: str) -> None:
    said = STATISTICS_V1["bad_questions"][name]
    with pytest.raises(Refused) as refusal:
        Question.of_round(a_round(question=QUESTION.digest), bytes.fromhex(said["bytes"]))
    assert MessageVerdict(refusal.value.reason).name == said["reason"]
