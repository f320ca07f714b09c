"""The demonstration's round of statistics: the estimate beside the truth, dropouts, cheats, and its bounds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tacit.errors import BadInput
from tacit.gather.simulate.population import SHIFT
from tacit.services.page import statistics_round
from tacit.services.page.statistics_round import (
    LABELS,
    MOST_DEVICES,
    SMALLEST_BATCH,
    RoundDemonstration,
    RoundDials,
    simulate_round,
)
from tests.support.page_worlds import DemonstrationWorld, a_demonstration


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemonstrationWorld]:
    simulate_round(RoundDials(devices=SMALLEST_BATCH, dropout=0))  # what it loads is loaded
    with a_demonstration(tmp_path_factory.mktemp("rounds") / "demo") as made:
        yield made


def test_a_round_over_http(world: DemonstrationWorld) -> None:
    dials = {"devices": 200, "dropout": 0.2, "cheats": 0, "epsilon": 2, "proofs": False, "seed": 5}
    answer = world.ask("POST", "/demonstration/round", json=dials)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert told["labels"] == list(LABELS)
    for name in ("truth", "everybody", "estimate", "low", "high"):
        assert len(told[name]) == len(LABELS)
    assert told["released"] is True
    assert told["devices"] == told["accepted"] + told["dropped"] == 200
    assert "(2, 0)-differentially private per device" in told["statement"]


def test_estimates_are_about_the_truth_by_as_much_as_was_said() -> None:
    """With a seed it is the same round again, so that this cannot fail by chance: the noise of 12 counts, of
    which each is outside its interval with probability 0.05 at most."""
    told = simulate_round(RoundDials(devices=1_000, dropout=0.1, seed=11))
    assert told == {
        **simulate_round(RoundDials(devices=1_000, dropout=0.1, seed=11)),
        "seconds": told["seconds"],
    }
    held = [
        low <= truth <= high for truth, low, high in zip(told["truth"], told["low"], told["high"], strict=True)
    ]
    assert sum(held) >= len(LABELS) - 2
    assert all(
        truth <= all_of_them for truth, all_of_them in zip(told["truth"], told["everybody"], strict=True)
    )
    assert told["estimate"] != told["truth"]
    wider = simulate_round(RoundDials(devices=1_000, dropout=0.1, epsilon=0.2, seed=11))
    assert wider["high"][0] - wider["low"][0] > 4 * (told["high"][0] - told["low"][0])


def test_cheats_pass_without_proofs_and_are_refused_with_them() -> None:
    dials: dict[str, Any] = {"devices": 400, "dropout": 0.1, "cheats": 0.05, "seed": 3}
    without = simulate_round(RoundDials(**dials))
    assert without["accepted_lies"] > 0
    assert without["refused"] == 0
    assert without["estimate"][0] > without["accepted_lies"] * SHIFT
    assert without["high"][0] < without["accepted_lies"] * SHIFT + without["truth"][0] + 200
    proved = simulate_round(RoundDials(**dials, proofs=True))
    assert (proved["accepted_lies"], proved["refused"]) == (0, without["accepted_lies"])
    assert proved["refused_why"] == {"OUT_OF_RANGE": proved["refused"]}
    assert abs(proved["estimate"][0] - proved["truth"][0]) < 200


def test_too_few_reports_release_nothing() -> None:
    told = simulate_round(RoundDials(devices=SMALLEST_BATCH, dropout=0.5))
    assert (told["released"], told["estimate"], told["low"], told["high"]) == (False, [], [], [])
    assert told["accepted"] < told["smallest_batch"]


@pytest.mark.parametrize(
    "record",
    [
        {"devices": MOST_DEVICES + 1}, {"devices": SMALLEST_BATCH - 1}, {"devices": 0}, {"devices": -5},
        {"devices": 200.0}, {"devices": "200"}, {"devices": True}, {"devices": None},
        {"dropout": 1}, {"dropout": 0.99}, {"dropout": -0.1}, {"dropout": "0.1"},
        {"cheats": 0.6}, {"cheats": -1}, {"epsilon": 0}, {"epsilon": -1}, {"epsilon": 1e9}, {"epsilon": 1e-9},
        {"epsilon": "1"}, {"epsilon": True}, {"proofs": 1}, {"proofs": "no"}, {"proofs": None},
        {"seed": -1}, {"seed": 2**53}, {"seed": 1.5}, {"smallest_batch": 1}, [], None, 7, "devices",
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused(world: DemonstrationWorld, record: Any) -> None:
    with pytest.raises(BadInput):
        RoundDials.of(record)
    assert world.ask("POST", "/demonstration/round", json=record).status_code == 400


@pytest.mark.parametrize("body", [b"", b"{", b'{"seed": 1, "seed": 2}', b"\xff", b'{"epsilon": NaN}'])
def test_what_is_no_json_is_refused(world: DemonstrationWorld, body: bytes) -> None:
    assert world.ask("POST", "/demonstration/round", content=body).status_code == 400


def test_one_runs_at_a_time(world: DemonstrationWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Event(), threading.Event()

    def wait(_dials: RoundDials) -> dict[str, Any]:
        began.set()
        assert may_end.wait(10)
        return {}

    monkeypatch.setattr(statistics_round, "simulate_round", wait)
    first = threading.Thread(target=lambda: world.ask("POST", "/demonstration/round", json={}))
    first.start()
    assert began.wait(10)
    try:
        assert world.ask("POST", "/demonstration/round", json={}).status_code == 409
    finally:
        may_end.set()
        first.join()
    assert world.ask("POST", "/demonstration/round", json={}).status_code == 200


def test_a_round_that_fails_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_dials: RoundDials) -> dict[str, Any]:
        raise RuntimeError

    rounds = RoundDemonstration()
    with monkeypatch.context() as patch:
        patch.setattr(statistics_round, "simulate_round", fail)
        with pytest.raises(RuntimeError):
            rounds.run(RoundDials())
    assert rounds.run(RoundDials(devices=SMALLEST_BATCH)) is not None
