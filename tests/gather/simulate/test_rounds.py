"""Simulated rounds: exactly the bad uploads are refused, and the release is the exact sum plus its noise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest, chi2

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.gather.estimate.plan import CountNoiseLaw, NoiseBy
from tacit.gather.estimate.published_noise import PublishedNoise
from tacit.gather.protocol import credentials
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.rounds import Round
from tacit.gather.protocol.uploads import Upload, upload_size
from tacit.gather.simulate.population import (
    MISBEHAVIOURS,
    SHIFT,
    Behaviour,
    Population,
    SimulationKeys,
    expected_refusal,
    misbehaviour_shares,
    plan_for_population,
    plan_simulation,
    round_for_population,
)
from tacit.gather.simulate.rounds import PartyStores, RoundOutcome, SimulatedRound
from tacit.gather.simulate.uploads import UploadSettings, make_upload_blocks, make_uploads
from tacit.privacy.noise.distributions import DiscreteLaplace
from tacit.store.gather_simulation import stores_in_folder

ALPHA = 1e-9
SILENCE = ServerNoise(DiscreteLaplace(Fraction(1, 50)))  # not 0 with probability 4e-22 a draw: sums are exact
KEYS = SimulationKeys.draw(Simulation(7))
PLANNED = [round_for_population(Population(10, 6), KEYS, epsilon=1.0, proof=proof) for proof in (False, True)]


def world(population: Population, round: Round, books: PartyStores | None = None) -> SimulatedRound:
    stores = books or PartyStores.in_memory(round)
    return SimulatedRound(round, population, KEYS, stores, clock=time.process_time)


def silent_round(population: Population, *, proof: bool = False, smallest_batch: int = 1) -> Round:
    return replace(
        PLANNED[proof],
        cells=population.cells,
        parties=population.devices,
        smallest_batch=smallest_batch,
        noise=SILENCE,
        promise=replace(PLANNED[proof].promise, epsilon=Fraction(400), delta=Fraction(0)),
    )


def assert_exact(found: RoundOutcome) -> None:
    assert found.released is not None
    expected = found.exact.copy()
    expected[0] += found.shift
    np.testing.assert_array_equal(found.released, expected)


MIXED = Population(200, 12, away=0.2, misbehaving=misbehaviour_shares(0.5, noise_by_users=False), at_a_time=120)


@pytest.mark.parametrize("proof", [False, True], ids=["plain", "proven"])
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "sqlite"])
def test_a_round_with_cheats_of_every_kind_is_exact(proof: bool, durable: bool, tmp_path: Path) -> None:
    round = silent_round(MIXED, proof=proof)
    found = world(MIXED, round, stores_in_folder(tmp_path, round) if durable else None).run()
    assert found.as_foreseen
    assert len(found.refused) == 6 + proof
    assert_exact(found)
    assert (found.lied, found.shift) == (0, 0) if proof else found.shift == SHIFT * found.lied > 0
    refused = sum(found.refused.values())
    assert found.accepted == found.uploads - refused > 80
    assert found.traffic.uploads > 100 * found.uploads


def test_the_exact_sum_is_that_of_the_accepted_devices() -> None:
    """Counted again, device by device, from what each behaviour should lead to."""
    found = world(MIXED, silent_round(MIXED)).run()
    total = np.zeros(MIXED.cells, np.int64)
    accepted = 0
    for number in range(MIXED.blocks):
        block = MIXED.block(number)
        for row in np.flatnonzero(block.present).tolist():
            behaviour = block.behaves(row)
            if behaviour in (Behaviour.HONEST, Behaviour.DUPLICATE, Behaviour.OUT_OF_RANGE):
                total += block.values(row)
                accepted += 1
    assert found.accepted == accepted
    np.testing.assert_array_equal(found.exact, total)


@pytest.mark.parametrize("behaviour", MISBEHAVIOURS)
@pytest.mark.parametrize("proof", [False, True], ids=["plain", "proven"])
def test_each_cheat_has_its_answer(behaviour: Behaviour, proof: bool) -> None:
    population = Population(30, 6, misbehaving={behaviour: 0.5})
    found = world(population, silent_round(population, proof=proof)).run()
    cheats = sum(population.block(0).behaves(row) is behaviour for row in range(30))
    assert 5 < cheats < 25
    reason = expected_refusal(behaviour, proof=proof)
    assert dict(found.refused) == ({} if reason is MessageVerdict.ACCEPTED else {reason: cheats})
    assert_exact(found)


def test_a_missing_check_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    population = Population(30, 6, misbehaving={Behaviour.FORGED: 0.5})
    monkeypatch.setattr(credentials, "check_report_tag", lambda *_: True)
    found = world(population, silent_round(population)).run()
    assert not found.as_foreseen
    assert found.accepted == 30


def test_a_wrong_sum_shows() -> None:
    """The twin of exactness: one device's counts left out of what we expect."""
    population = Population(40, 6)
    found = world(population, silent_round(population)).run()
    wrong = replace(found, exact=found.exact - population.block(0).values(0))
    with pytest.raises(AssertionError):
        assert_exact(wrong)


def variance_is(found: RoundOutcome, expected: float) -> bool:
    """Whether the mean square of the noise fits a variance; false alarms are rarer than ALPHA.

    The noise is nearly normal: the excess kurtosis of these laws is below 1 / variance, here below 0.01, which
    widens the spread of the mean square by less than half of that. The bounds have a tenth of room.
    """
    assert found.variance_seen is not None
    cells = len(found.exact)
    low, high = (float(chi2.ppf(share, cells)) / cells for share in (ALPHA / 2, 1 - ALPHA / 2))
    return 1 - 1.1 * (1 - low) < found.variance_seen / expected < 1 + 1.1 * (high - 1)


NEARLY_NORMAL = {
    NoiseBy.SERVERS: CountNoiseLaw.DISCRETE_GAUSSIAN,
    NoiseBy.USERS: CountNoiseLaw.SKELLAM,
}  # as `variance_is` takes it


@pytest.mark.parametrize("by", NoiseBy)
def test_the_noise_has_the_variance_that_is_stated(by: NoiseBy) -> None:
    population = Population(60, 3000, away=0.3)
    round = round_for_population(
        population, KEYS, plan_for_population(population, epsilon=1.0, by=by, law=NEARLY_NORMAL[by])
    )
    found = world(population, round).run()
    assert found.variance_stated == found.variance_expected == round.noise.published_variance(found.accepted)
    assert variance_is(found, found.variance_expected)
    assert not variance_is(found, found.variance_expected / 2)
    assert not variance_is(found, found.variance_expected * 2)


# What `plan_run` chooses by itself: pure noise by servers, by users, for totals.
PLANS: list[dict[str, Any]] = [
    {"events": 4},
    {"events": 4, "silent": 0.1},
    {"events": 4, "totals_only": True},
    {"events": 12},
]


@pytest.mark.parametrize("asked", PLANS)
def test_the_planned_error_is_what_happens(asked: dict[str, Any]) -> None:
    """Counts beyond the planned standard deviation are as many as the chosen law says, by an exact test.

    The twin has noise for 5/4 of the epsilon, which is a fifth less of it, and is found out.
    """
    silent = asked.get("silent")
    population = Population(40, 4000, asked["events"], totals_only=asked.get("totals_only", False))
    run = plan_for_population(population, epsilon=1.0, silent=silent)
    assert run.options[0].sd == run.published_sd(40)
    # Fixed beforehand: how often a count is off by more than the planned error, by the exact law.
    chance = PublishedNoise.of(run.noise, 40).outside(run.options[0].sd)

    def beyond(epsilon: float) -> int:
        drawn = plan_for_population(population, epsilon=epsilon, silent=silent, law=run.law, by=run.by)
        found = world(population, round_for_population(population, KEYS, drawn)).run()
        assert found.accepted == 40
        assert found.noise is not None
        return int((np.abs(found.noise) > run.options[0].sd).sum())

    assert binomtest(beyond(1.0), 4000, chance).pvalue >= ALPHA
    assert binomtest(beyond(1.25), 4000, chance).pvalue < ALPHA


def test_noise_that_devices_leave_out_is_missing() -> None:
    population = Population(60, 3000, misbehaving={Behaviour.NO_NOISE: 0.6})
    run = plan_for_population(population, epsilon=1.0, by=NoiseBy.USERS, law=CountNoiseLaw.SKELLAM, silent=0.7)
    round = round_for_population(population, KEYS, run)
    found = world(population, round).run()
    assert found.without_noise > 20
    assert variance_is(found, found.variance_expected)
    assert not variance_is(found, found.variance_stated)


def test_too_few_reports_release_nothing() -> None:
    population = Population(50, 6, away=0.5)
    found = world(population, silent_round(population, smallest_batch=45)).run()
    assert found.released is None
    assert found.noise is None
    assert found.as_json()["released"] is False
    assert found.as_json()["noise_variance_seen"] is None


def test_other_processes_make_the_same_round() -> None:
    population = replace(MIXED, at_a_time=70)
    told: list[int] = []
    alone = world(population, silent_round(population)).run()
    together = world(population, silent_round(population)).run(processes=2, progress=told.append)
    assert together.as_foreseen
    assert_exact(together)
    assert (together.accepted, together.uploads) == (alone.accepted, alone.uploads)
    np.testing.assert_array_equal(together.exact, alone.exact)
    assert told[-1] == population.devices
    assert told == sorted(told)
    assert len(told) == population.blocks


def test_who_was_there_and_what_was_sent_is_counted_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes and seconds of a simulation are those of its messages and of its parties' calls."""
    population = Population(90, 6, away=0.3, at_a_time=20)
    round = silent_round(population)
    ticks = iter(range(10**9))
    found_world = SimulatedRound(
        round, population, KEYS, PartyStores.in_memory(round), clock=lambda: float(next(ticks))
    )
    to_server, from_server = [], []
    for name in ("job", "agree", "share"):
        real = getattr(found_world.server, name)

        def heard(body: bytes, now: int, real: Any = real) -> bytes:
            reply: bytes = real(body, now)
            to_server.append(len(body))
            from_server.append(len(reply))
            return reply

        monkeypatch.setattr(found_world.server, name, heard)
    found = found_world.run()
    there = sum(int(population.block(number).present.sum()) for number in range(population.blocks))
    assert found.present == there == found.uploads == found.accepted < 90
    assert found.traffic.uploads == there * upload_size(round)
    assert (found.traffic.to_server, found.traffic.from_server) == (sum(to_server), sum(from_server))
    # One tick for each call that is timed: a block's making, its jobs at either party, and the closing.
    jobs = len(to_server) - 2
    assert found.seconds.devices == population.blocks
    assert found.seconds.server == jobs + 2
    assert found.seconds.proxy > jobs
    assert not found_world._refused_by_proxy


def test_blocks_are_made_as_they_are_taken() -> None:
    """Memory does not grow with the number of devices: no block is made before it is asked for."""
    population = Population(10**9, 6, at_a_time=20)
    devices = UploadSettings(
        silent_round(replace(population, devices=100)), population, bytes(32), time.process_time
    )
    blocks = make_upload_blocks(devices, 1)
    assert [next(blocks).block for _ in range(2)] == [0, 1]


def test_a_cheat_changes_one_thing_only() -> None:
    population = Population(30, 6, misbehaving={Behaviour.REPLAY: 0.5})
    made = make_uploads(
        UploadSettings(silent_round(population), population, KEYS.enrolment_secret, time.process_time), 0
    )
    block = population.block(0)
    honest = [Upload.from_bytes(each.data) for each in made.sent if block.behaves(each.row) is Behaviour.HONEST]
    by_id = {each.report_id: each for each in honest}
    copies = 0
    for each in made.sent:
        if block.behaves(each.row) is Behaviour.REPLAY:
            copied = Upload.from_bytes(each.data)
            original = by_id[each.report_id]
            assert copied.sealed_proxy == original.sealed_proxy
            assert copied.device != original.device
            assert credentials.check_report_tag(
                KEYS.enrolment_secret, copied.device, copied.signed_bytes, copied.tag
            )
            copies += 1
    assert copies > 5


class TestPopulation:
    def test_a_block_does_not_depend_on_the_number_of_devices(self) -> None:
        small, large = Population(700, 30, away=0.3), Population(10**6, 30, away=0.3)
        np.testing.assert_array_equal(small.block(0).touched, large.block(0).touched)
        np.testing.assert_array_equal(small.block(0).present, large.block(0).present)
        assert (len(small.block(1)), len(large.block(1))) == (200, 500)
        assert small.block(1).device(0) == large.block(1).device(0) != large.block(0).device(0)

    @pytest.mark.parametrize("each", [1, 2, 4])
    def test_totals_are_sums_of_values_within_bounds(self, each: int) -> None:
        population = Population(80, 7, events=4, each=each)
        block = population.block(0)
        rows = np.array([3, 5, 70])
        values = [block.values(row) for row in rows]
        np.testing.assert_array_equal(block.total(rows), sum(values))
        assert all(value.max() <= each and value.sum() <= 8 for value in values)
        if each == 4:  # nothing is cut: every event is one total and one click or no-click
            assert all(
                value[: population.totals].sum() == 4 == value[population.totals :].sum() for value in values
            )
        np.testing.assert_array_equal(block.total(rows[:0]), np.zeros(7))

    def test_shares_are_as_stated(self) -> None:
        population = Population(20_000, 6, away=0.3, misbehaving={Behaviour.LATE: 0.1, Behaviour.GARBAGE: 0.02})
        blocks = [population.block(number) for number in range(population.blocks)]
        for share, count in (
            (0.7, sum(int(block.present.sum()) for block in blocks)),
            *(
                (share, sum(self.kinds(block).count(kind) for block in blocks))
                for kind, share in ((Behaviour.LATE, 0.1), (Behaviour.GARBAGE, 0.02), (Behaviour.HONEST, 0.88))
            ),
        ):
            tail = min(binom.cdf(count, 20_000, share), binom.sf(count - 1, 20_000, share))
            assert tail > ALPHA

    @staticmethod
    def kinds(block: object) -> list[Behaviour]:
        return [block.behaves(row) for row in range(len(block))]  # type: ignore[attr-defined, arg-type]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"devices": 0},
            {"cells": 1},
            {"away": 1.0},
            {"away": -0.1},
            {"misbehaving": {Behaviour.HONEST: 0.1}},
            {"misbehaving": {Behaviour.LATE: 0.6, Behaviour.REPLAY: 0.6}},
            {"misbehaving": {"lazy": 0.1}},
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(BadInput, match="expected"):
            Population(**{"devices": 10, "cells": 6, **wrong})  # type: ignore[arg-type]

    def test_cheats_are_spread_evenly(self) -> None:
        spread = misbehaviour_shares(0.8, noise_by_users=True)
        assert set(spread) == set(MISBEHAVIOURS)
        assert set(spread.values()) == {0.1}
        assert Behaviour.NO_NOISE not in misbehaviour_shares(0.8, noise_by_users=False)
        assert misbehaviour_shares(0.0, noise_by_users=True) == {}


@pytest.fixture(autouse=True)
def _no_workers_are_left() -> Iterator[None]:
    import multiprocessing

    yield
    assert not multiprocessing.active_children()


def test_a_planned_simulation_says_nothing_of_silence_unless_devices_add_noise() -> None:
    honest = Population(200, 6)
    by_servers = plan_simulation(honest, Simulation("keys"), epsilon=1.0, malicious=0.1)
    assert by_servers.run.by is NoiseBy.SERVERS
    assert Behaviour.NO_NOISE not in by_servers.population.misbehaving
    assert not any("as was stated" in each.assumes for each in by_servers.options)
    by_users = plan_simulation(honest, Simulation("keys"), epsilon=1.0, malicious=0.1, by=NoiseBy.USERS)
    assert Behaviour.NO_NOISE in by_users.population.misbehaving
    assert any("at most 0.1 of the devices" in each.assumes for each in by_users.options)
    with pytest.raises(BadInput, match="by: expected servers with proof, got users"):
        plan_simulation(honest, Simulation("keys"), epsilon=1.0, by=NoiseBy.USERS, proof=True)
