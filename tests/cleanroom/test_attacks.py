"""Each attack works where nothing protects a label, and in our room does no better than the terms allow."""

from __future__ import annotations

import inspect
import json
import math
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from tacit.arrays import Floats
from tacit.cleanroom.attacks import careless_attacks, probes, published_attacks, suite
from tacit.cleanroom.attacks.defended_room import DefendedRoom, Protection
from tacit.cleanroom.attacks.game import (
    AttackOutcome,
    AttackWorld,
    accuracy,
    advantage_bound,
    area_under_curve,
    found_positives,
    precision,
    record_tokens,
)
from tacit.cleanroom.attacks.probes import StepQuestion, matrix_derivatives
from tacit.cleanroom.attacks.suite import Attack
from tacit.cleanroom.attacks.unsafe_targets import PublishedProtocol, fresh_flip_room
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Mode, NoiseLaw
from tacit.cleanroom.protocol.row_derivatives import Derivatives
from tacit.cleanroom.room import payment, sums
from tacit.cleanroom.room.labels import has_repeats
from tacit.cleanroom.room.mechanism import clip_factors
from tacit.cleanroom.room.store import _Transaction
from tacit.cli import main
from tacit.entropy import Simulation
from tacit.errors import RoomRefused

SMALL = suite.attacks(time.thread_time, scale=0.2)
DEFAULT = Protection()
NOISED = Protection(Mode.NOISED)
LAPLACE = Protection(Mode.NOISED, noise=NoiseLaw.LAPLACE)
POWERFUL = 500
"""Labels spoken about, from which on an attack that is always right accuses a room of more than epsilon 3."""


def named(name: str) -> Attack:
    (attack,) = [attack for attack in SMALL if attack.name == name]
    return attack


def outcome(attack: Attack, protection: Protection) -> AttackOutcome:
    source = Simulation(f"{attack.name} {protection}")
    world = attack.world(source)
    room = DefendedRoom(world, protection, source, slack=attack.slack)
    return AttackOutcome.of(attack.guessing(world)(room, world.records, source), world)


@pytest.mark.parametrize("attack", SMALL, ids=lambda attack: attack.name)
def test_it_works_where_nothing_protects_and_would_accuse_such_a_room(attack: Attack) -> None:
    """Power: the bound that our room keeps is broken by the unsafe one, where enough labels are guessed."""
    source = Simulation(attack.name)
    world = attack.world(source)
    scores = attack.guessing(world)(attack.victim(world, suite.CARELESS, source), world.records, source)
    assert attack.measure(scores, world) >= attack.bar
    seen = AttackOutcome.of(scores, world)
    if seen.said >= POWERFUL:
        assert seen.at_least() > advantage_bound(suite.CARELESS)
    else:
        assert seen.advantage > advantage_bound(suite.CARELESS)


@pytest.mark.parametrize("protection", [DEFAULT, NOISED, LAPLACE], ids=["default", "noised", "laplace"])
@pytest.mark.parametrize("attack", SMALL, ids=lambda attack: attack.name)
def test_our_room_gives_no_more_than_its_terms_allow(attack: Attack, protection: Protection) -> None:
    """False alarm: 1e-9 for each, and 2 x labels x 1e-6 more with Gaussian noise; the seeds are fixed."""
    terms = protection.example_terms()
    assert outcome(attack, protection).at_least() <= advantage_bound(terms.epsilon, terms.delta)


@pytest.mark.parametrize("mode", [Mode.RELEASE, Mode.STATISTIC])
@pytest.mark.parametrize("name", ["a parameter for each record", "a metric's cell for each record"])
def test_the_other_modes_give_no_more_either(mode: Mode, name: str) -> None:
    protection = Protection(mode)
    terms = protection.example_terms()
    assert outcome(named(name), protection).at_least() <= advantage_bound(terms.epsilon, terms.delta)


@pytest.mark.parametrize("protection", [DEFAULT, NOISED, LAPLACE], ids=["default", "noised", "laplace"])
def test_the_bound_is_nearly_reached(protection: Protection) -> None:
    """The twin of the test above: an attack that gets nothing would pass it. 4096 labels: the standard
    deviation of the advantage is at most 1/64, the figure lies within 6 of them."""
    attack = named("a parameter for each record")
    whole = replace(attack, world=lambda source: AttackWorld.coins(4096, source))
    reached = outcome(whole, protection).advantage
    assert abs(reached - suite.mechanism_advantage(protection.example_terms())) < 6 / 64
    if protection is DEFAULT:
        assert reached > 0.85  # of tanh(1.5) = .905


def test_a_room_with_a_larger_epsilon_is_found_out() -> None:
    attack = replace(named("a parameter for each record"), world=lambda source: AttackWorld.coins(4096, source))
    assert outcome(attack, Protection(epsilon=Fraction(4))).at_least() > advantage_bound(3)


class TestBrokenRooms:
    """Our own room with one thing taken out: the attack that is there for it accuses the room."""

    @pytest.mark.parametrize("protection", [NOISED, LAPLACE], ids=["noised", "laplace"])
    def test_one_that_looks_for_repeats_in_each_slab_alone(
        self, protection: Protection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        most, honest_count = careless_attacks.REPEATED_BATCH, _Transaction.count
        monkeypatch.setattr(sums, "has_repeats", lambda some: len(some) <= most and has_repeats(some))
        attack = named("one record in sixteen slabs")
        assert outcome(attack, protection).said == 0  # counts hold the second line: a record came too often
        monkeypatch.setattr(
            _Transaction,
            "count",
            lambda kept, release, some, most: honest_count(kept, release, np.unique(some, axis=0), most),
        )
        assert outcome(attack, protection).at_least() > advantage_bound(3)

    @pytest.mark.parametrize("protection", [NOISED, LAPLACE], ids=["noised", "laplace"])
    def test_one_that_clips_each_block_by_itself(
        self, protection: Protection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def by_block(derivatives: Derivatives, clip_norm: float, noise: NoiseLaw) -> Floats:
            shares = [clip_factors({name: each}, clip_norm, noise) for name, each in derivatives.items()]
            least: Floats = np.min(shares, axis=0)
            return least

        monkeypatch.setattr(sums, "clip_factors", by_block)
        assert outcome(named("a derivative in 100 matrices"), protection).at_least() > advantage_bound(3)

    @pytest.mark.parametrize("protection", [DEFAULT, LAPLACE], ids=["default", "laplace"])
    def test_one_that_keeps_the_budget_that_was_given_up(
        self, protection: Protection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attack = named("tighten what the room has tightened")
        attack = replace(attack, world=lambda source: AttackWorld.coins(4096, source))
        allowed, given = advantage_bound(3), outcome(attack, protection)
        assert given.at_least() <= allowed
        assert given.said == given.asked  # the first release is paid, and no other
        monkeypatch.setattr(payment, "agreed_budget", lambda agreed, *_: agreed.steps[0].terms.budget)
        assert outcome(attack, protection).at_least() > allowed


def test_every_attack_is_in_the_suite() -> None:
    found = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (published_attacks, careless_attacks, probes)
        for name, each in inspect.getmembers(module, inspect.isfunction)
        if each.__module__ == module.__name__ and name.endswith("_scores")
    } - {"probes.slope_scores"}  # which reads what came back, and asks nothing
    assert len(found) >= 20
    assert {name for name in found if name not in inspect.getsource(suite.attacks)} == set()
    assert len({attack.name for attack in SMALL}) == len(SMALL)


class TestNoised:
    def test_a_record_is_released_as_often_as_agreed_and_no_more(self) -> None:
        world = AttackWorld.coins(512, Simulation("thrice"))
        room = DefendedRoom(world, replace(NOISED, releases_per_record=2), Simulation("thrice"))
        for run in ("first", "second"):
            assert not np.isnan(probes.read_slopes(room, world.records, run=run)).any()
        with pytest.raises(RoomRefused) as refused:
            room.aggregate(probes.unit_vector_question(record_tokens(world.records), run="third"))
        assert refused.value.reason is RoomRefusal.RECORD_EXHAUSTED

    def test_one_step_asked_again_is_the_same_bytes(self) -> None:
        world = AttackWorld.coins(512, Simulation("same"))
        room = DefendedRoom(world, NOISED, Simulation("same"))
        first, second = (probes.read_slopes(room, world.records) for _ in range(2))
        assert np.array_equal(first, second)

    def test_averaging_gains_nothing_from_more_runs(self) -> None:
        """64 runs of a record that may be in one: as good as one run, exactly."""
        world = AttackWorld.coins(512, Simulation("runs"))
        rooms = [DefendedRoom(world, NOISED, Simulation("runs")) for _ in range(2)]
        many = careless_attacks.averaging_scores(rooms[0], world.records, Simulation(0))
        once = probes.slope_scores(probes.read_slopes(rooms[1], world.records, run="again-0"))
        assert np.array_equal(many, once)


class TestHostileNumbers:
    @pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 3e38])
    @pytest.mark.parametrize("protection", [DEFAULT, NOISED], ids=["default", "noised"])
    def test_they_do_travel_and_are_refused(self, value: float, protection: Protection) -> None:
        world = AttackWorld.coins(256, Simulation("hostile"))
        room = DefendedRoom(world, protection, Simulation("hostile"))
        values = np.ones((256, 2), np.float32)
        values[17, 1] = value
        asked = StepQuestion(
            record_tokens(world.records), np.zeros(256, np.float32), *matrix_derivatives(values)
        )
        assert np.float32(value).tobytes() in b"".join(room._slabs(asked))
        with pytest.raises(RoomRefused) as refused:
            room.aggregate(asked)
        assert refused.value.reason is RoomRefusal.NOT_FINITE

    def test_after_a_refusal_the_room_goes_on(self) -> None:
        world = AttackWorld.coins(256, Simulation("goes on"))
        room = DefendedRoom(world, DEFAULT, Simulation("goes on"))
        bad = np.full((256, 1), np.inf, np.float32)
        with pytest.raises(RoomRefused):
            room.aggregate(
                StepQuestion(record_tokens(world.records), np.zeros(256, np.float32), *matrix_derivatives(bad))
            )
        assert not np.isnan(probes.read_slopes(room, world.records)).any()


class TestTightening:
    def test_it_does_not_pay_for_fresh_flips(self) -> None:
        world = AttackWorld.coins(256, Simulation("tighter"))
        room = DefendedRoom(world, DEFAULT, Simulation("tighter"))
        asked = probes.unit_vector_question(record_tokens(world.records))
        room.aggregate(asked)
        room.tighten()
        assert room.terms.epsilon < 3
        with pytest.raises(RoomRefused) as refused:
            room.aggregate(asked)
        assert refused.value.reason is RoomRefusal.BUDGET

    def test_it_does_not_spend_what_the_room_gave_up(self) -> None:
        world = AttackWorld.coins(256, Simulation("given up"))
        room = DefendedRoom(world, DEFAULT, Simulation("given up"), slack=6)
        assert room.terms.epsilon == 3
        room.aggregate(probes.unit_vector_question(record_tokens(world.records)))
        room.tighten()
        with pytest.raises(RoomRefused) as refused:
            room.aggregate(probes.unit_vector_question(record_tokens(world.records)))
        assert refused.value.reason is RoomRefusal.BUDGET

    def test_before_the_first_release_it_is_free(self) -> None:
        world = AttackWorld.coins(256, Simulation("before"))
        room = DefendedRoom(world, DEFAULT, Simulation("before"))
        room.tighten()
        assert not np.isnan(probes.read_slopes(room, world.records)).any()


class TestOutcome:
    def test_bounds_are_those_of_an_exact_binomial_test(self) -> None:
        seen = AttackOutcome(right=180, said=200, asked=220)
        interval = binomtest(180, 200).proportion_ci(0.98, method="exact")
        assert seen.at_least(0.01) == pytest.approx(2 * interval.low - 1)
        assert seen.at_most(0.01) == pytest.approx(2 * interval.high - 1)
        assert seen.advantage == pytest.approx(0.8)

    @pytest.mark.parametrize(("said", "right"), [(0, 0), (50, 0), (50, 50)])
    def test_ends(self, said: int, right: int) -> None:
        seen = AttackOutcome(right, said, 50)
        assert -1 <= seen.at_least() <= seen.advantage <= seen.at_most() <= 1 or said == 0
        if not said:
            assert (seen.advantage, seen.at_least()) == (0, -1)

    @pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
    def test_false_alarms_are_as_rare_as_stated_exactly(self, epsilon: float) -> None:
        """Summed over every number of right guesses: no simulation. The twin takes what it sees for a bound."""
        said, alpha, truth = 60, 0.02, math.exp(epsilon) / (1 + math.exp(epsilon))
        allowed = advantage_bound(epsilon)
        chances = [float(binom.pmf(right, said, truth)) for right in range(said + 1)]
        alarms = [AttackOutcome(right, said, said).at_least(alpha) > allowed for right in range(said + 1)]
        naive = [AttackOutcome(right, said, said).advantage > allowed for right in range(said + 1)]
        assert np.dot(chances, alarms) <= alpha
        assert np.dot(chances, naive) > 0.2

    def test_the_guarantee_is_the_total_variation_of_the_worst_pair(self) -> None:
        """Randomized response that tells all with probability delta is the worst (epsilon, delta)-DP pair."""
        epsilon, delta = 1.2, 0.1
        truth = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
        variation = delta + truth - (1 - delta - truth)
        assert advantage_bound(epsilon, delta) == pytest.approx(variation)
        assert advantage_bound(epsilon) == pytest.approx(math.tanh(0.6))

    def test_measures(self) -> None:
        world = AttackWorld(np.array([[1], [0], [1], [0]], np.uint8), np.arange(4))
        right, silent = np.array([1.0, -1, 1, -1]), np.array([1.0, 0, 0, -1])
        assert accuracy(right, world) == 1
        assert accuracy(silent, world) == 0.5
        assert found_positives(silent, world) == 0.5
        assert found_positives(np.ones(4), world) == 0
        assert precision(np.ones(4), world) == 0.5
        assert area_under_curve(np.array([0.9, 0.1, 0.4, 0.4]), world) == pytest.approx(0.875)
        assert AttackOutcome.of(silent, world) == AttackOutcome(right=2, said=2, asked=4)


class TestHonestNetwork:
    def test_derivatives_are_those_of_the_logit(self) -> None:
        """Against differences of the logit itself, for entries of both adapters."""
        network = probes.HonestNetwork.draw(3, Simulation("network"))
        inputs = Simulation("inputs").normal((5, probes.HONEST_WIDTHS[0]), dtype=np.float64).astype(np.float64)
        sent = network.make_batch(inputs)
        assert sum(block.parameters for block in sent.layout.blocks) == sent.matrix.shape[1]
        for place, (part, matrices) in [(0, ("A", network.down)), (1, ("A", network.down)),
                                        (0, ("B", network.up)), (1, ("B", network.up))]:  # fmt: skip
            written = sent.derivatives[f"layer{place}.{part}"].as_dense().reshape(5, *matrices[place].shape)
            for row, col in [(0, 0), (2, 1)]:
                original = matrices[place][row, col]
                sides = []
                for step in (1e-5, -1e-5):
                    matrices[place][row, col] = original + step
                    sides.append(network.logits(inputs))
                matrices[place][row, col] = original
                assert written[:, row, col] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-4, abs=1e-7)

    def test_a_rank_of_1_on_one_layer_has_fewer_parameters_than_a_batch(self) -> None:
        assert probes.honest_batch(4, 1, Simulation(0), adapted=1).layout.parameters == 96


def test_fresh_flips_are_worth_what_they_are_said_to_be() -> None:
    """2% positives, epsilon 3: of those read as 1 in one epoch 28% are; after five, 95% (exact tails 1e-9)."""
    truth = math.exp(3) / (1 + math.exp(3))
    five = float(binom.sf(2, 5, truth)), float(binom.sf(2, 5, 1 - truth))
    assert 0.02 * truth / (0.02 * truth + 0.98 * (1 - truth)) == pytest.approx(0.29, abs=0.01)
    assert 0.02 * five[0] / (0.02 * five[0] + 0.98 * five[1]) == pytest.approx(0.954, abs=0.01)
    world = AttackWorld.coins(20_000, Simulation("flips"))
    victim = fresh_flip_room(world, Fraction(3), Simulation("flips"))
    right = int(
        (probes.unit_vector_scores(victim, world.records, Simulation(0)) > 0)
        .__eq__(world.labels[:, 0] == 1)
        .sum()
    )
    assert binomtest(right, 20_000, truth).pvalue > 1e-9


def test_the_unsafe_ones_refuse_what_they_do_not_have() -> None:
    world = AttackWorld.coins(4, Simulation(0))
    with pytest.raises(RoomRefused):
        PublishedProtocol(world).sample_gradients(
            record_tokens(world.records), np.zeros(4, np.float32), np.ones((4, 2))
        )


class TestCommand:
    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        some = [named(name) for name in ("a parameter for each record", "replay with one row zeroed")]
        monkeypatch.setattr(suite, "attacks", lambda _clock: some)

    def test_it_prints_records_and_succeeds(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["room", "attack", "--json", "--seed", "3"]) == 0
        records = json.loads(capsys.readouterr().out)
        assert len(records) == 2 * 2 + 1
        assert all(record["holds"] for record in records)
        assert all({"name", "value", "bar", "holds"} <= record.keys() for record in records)

    def test_it_prints_both_columns(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["room", "attack", "--mode", "noised", "--epsilon", "1", "--seed", "4"]) == 0
        out = capsys.readouterr().out
        assert "published protocol" in out
        assert "withstands" in out
        assert "nothing to go by" in out  # a record is released once: there is nothing to replay

    def test_it_fails_when_a_room_gives_away_too_much(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(suite, "advantage_bound", lambda _epsilon, _delta: 0.2)
        assert main(["room", "attack", "--seed", "5"]) == 1
        assert "GIVES AWAY TOO MUCH" in capsys.readouterr().out

    def test_it_fails_when_an_attack_does_not_work(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        idle = replace(
            named("a parameter for each record"), guessing=lambda _: lambda _t, r, _s: np.ones(len(r))
        )
        monkeypatch.setattr(suite, "attacks", lambda _clock: [idle])
        assert main(["room", "attack", "--seed", "6"]) == 1
        assert "does not work" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "wrong",
        [
            ["--epsilon", "none"],
            ["--epsilon", "0"],
            ["--mode", "open"],
            ["--noise", "white"],
            ["--releases", "2"],
        ],
    )
    def test_bad_input_is_one_line(self, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["room", "attack", *wrong]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
