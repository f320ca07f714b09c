"""Counted ratios, end to end: made-up devices through proxy and server, one bin each, to a prior to plan by."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tacit.arrays import Floats
from tacit.counted_ratios import (
    CONTRIBUTION,
    LINE,
    NODES,
    SIMULATED,
    answer_ratios,
    count_ratios,
    plan_ratios,
    ratios_of,
)
from tacit.deliver.device.ratio_report import ratio_bin
from tacit.deliver.protocol.factor_laws import HeavyTails, IndependentFactors, ObservedRatios, Spread
from tacit.deliver.protocol.forecasts import top_gains
from tacit.deliver.protocol.plans import plan_choice
from tacit.deliver.protocol.priors import ScorePrior, prior_as_json
from tacit.deliver.protocol.ratio_bins import BINS, RATIOS
from tacit.deliver.server.ratio_counts import ratios_from_counts
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, BudgetExceeded, LedgerConflict, Refused, UnknownLine
from tacit.gather.client.reporter import MemoryDeviceStore
from tacit.gather.estimate.plan import plan_run
from tacit.gather.estimate.published_noise import PublishedNoise
from tacit.gather.estimate.top_down import TopDownRun
from tacit.gather.protocol.promises import Contribution
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.gather.simulate.rounds import PartyStores
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.statement import PrivacyStatement

EPSILON = Fraction(1, 4)
DEVICES = 5_000
EPSILONS = (1.0, 2.0, 5.0)


def market(seed: int = 0) -> Floats:
    """Public scores of 20 requests, 8 candidates each."""
    return np.sort(100 * np.random.default_rng(seed).lognormal(0, 0.5, (20, 8)), axis=1)[:, ::-1]


def reported(truth: IndependentFactors, devices: int, seed: int = 1) -> list[list[int]]:
    """One request of each device, and the bin that it would report of it."""
    rng, source, requests = np.random.default_rng(seed), Simulation(seed), market()
    strata, size = truth.strata(8), requests.shape[1]
    bins = []
    for request in rng.integers(0, len(requests), devices):
        private = requests[request] * strata[rng.integers(0, len(strata), size), np.arange(size)]
        bins.append([ratio_bin(requests[request], private, source.uniform_below)])
    return bins


def books(*granted: Budget) -> PartyStores:
    ledgers = MemoryLedger(), MemoryLedger()
    for ledger in ledgers:
        for budget in granted:
            ledger.grant(LINE, budget)
    return PartyStores(MemoryProxyStore(), MemoryServerStore(), *ledgers)


def worth(prior: ScorePrior, truth: ScorePrior, epsilon: float) -> float:
    """What plans by a prior gain over the public best where another law is the truth, as a share of it."""
    gains = []
    for public in market():
        plan = plan_choice(public, prior, epsilon)
        true = top_gains(public[None], truth, (epsilon,))[0, 0]
        assert plan.top is not None
        gains.append(0.0 if plan.skipped else float(true[plan.kept - 1, plan.top - 1]) / float(public[0]))
    return float(np.mean(gains))


@dataclass(frozen=True)
class Counted:
    truth: IndependentFactors
    bins: list[list[int]]
    prior: ObservedRatios
    books: PartyStores


@pytest.fixture(
    scope="module", params=[Spread(0.1), pytest.param(Spread(1.0), marks=pytest.mark.slow)], ids=str
)
def counted(request: pytest.FixtureRequest) -> Counted:
    """5,000 devices at epsilon .25, by the parties' own code."""
    run, bins = plan_ratios(DEVICES, EPSILON), reported(request.param, DEVICES)
    kept = books(run.cost)
    return Counted(
        request.param,
        bins,
        count_ratios("ratios in June", bins, run, kept, Simulation(str(request.param))),
        kept,
    )


def test_plans_by_counted_ratios_are_near_those_by_the_truth_and_never_below_the_public_best(
    counted: Counted,
) -> None:
    for epsilon in EPSILONS:
        learnt, best = (worth(prior, counted.truth, epsilon) for prior in (counted.prior, counted.truth))
        assert learnt >= 0, f"below the public best at epsilon {epsilon}"
        # Measured: .0001 and .009 at most.
        assert best - learnt <= 0.02, f"{best - learnt:.4f} from the true prior at epsilon {epsilon}"


def test_the_prior_is_what_was_counted_up_to_its_noise(counted: Counted) -> None:
    exact = np.bincount([bins[0] for bins in counted.bins], minlength=BINS)
    assert counted.prior.weights is not None
    found = dict(zip(counted.prior.values, counted.prior.weights, strict=True))
    sd = plan_ratios(DEVICES, EPSILON).published_sd(DEVICES)
    assert sd == pytest.approx(7.98, abs=0.01)
    for place, ratio in enumerate(RATIOS):
        # Two discrete Laplace draws of scale 4, less one deviation: beyond 60 in about one bin of 1e5.
        assert abs(found.get(ratio, 0.0) - max(exact[place] - sd, 0)) < 60


def test_what_is_stated_is_what_both_ledgers_paid(counted: Counted) -> None:
    assert counted.prior.statement == SIMULATED  # the fixture's noise has a seed
    for ledger in (counted.books.proxy_ledger, counted.books.server_ledger):
        assert isinstance(ledger, MemoryLedger)
        account = ledger.account(LINE)
        assert account is not None
        assert account.spent.epsilon_nanos == 250_000_000
        assert account.spent == account.limit
        assert not account.reserved.epsilon_nanos


def test_ratios_in_earnest_state_what_was_paid() -> None:
    run = plan_ratios(200, 4)
    prior = count_ratios("in earnest", [[8]] * 200, run, books(run.cost), Entropy())
    assert isinstance(prior.statement, PrivacyStatement)
    assert prior.statement.headline == "(4, 0)-DP per device, zero-out neighbours"
    assert prior.statement.as_text("These ratios") == prior_as_json(prior)["statement"]


def test_a_second_round_of_the_same_name_is_refused(counted: Counted) -> None:
    run = plan_ratios(DEVICES, EPSILON)
    fresh = PartyStores(
        MemoryProxyStore(), MemoryServerStore(), counted.books.proxy_ledger, counted.books.server_ledger
    )
    for kept in (counted.books, fresh):
        with pytest.raises((Refused, LedgerConflict)):
            count_ratios("ratios in June", counted.bins[:20], run, kept, Simulation("again"))
    with pytest.raises(BudgetExceeded):
        count_ratios("ratios in July", counted.bins[:20], run, counted.books, Simulation("again"))


def test_nothing_is_counted_that_was_not_granted() -> None:
    run = plan_ratios(20, EPSILON)
    with pytest.raises(UnknownLine):
        count_ratios("ratios in June", [[8]] * 20, run, books(), Simulation(1))


@pytest.mark.parametrize("bins", [[], [3], [3, 3, 3], [0, 5, 16]])
def test_a_device_adds_one_to_one_bin_once_however_many_requests_it_had(bins: list[int]) -> None:
    run = plan_ratios(20, EPSILON)
    question = TopDownRun(NODES, 0, run).question
    assert question is not None
    assert question.cells == BINS
    memory = MemoryDeviceStore()
    answers = []
    for attempt in (bins, [*bins, 9], [12]):  # a device that is asked again, and has drawn anew meanwhile
        answers.append(answer_ratios("ratios in June", question, attempt, Entropy(), memory))
    assert answers[0].sum() == (1 if bins else 0)
    assert set(answers[0].tolist()) <= {0, 1}
    if bins:
        name = NODES.name((0,), int(question.nodes[int(np.argmax(answers[0]))])).values[0]
        assert int(name.removeprefix("bin ")) in bins
    assert all(np.array_equal(answers[0], later) for later in answers)


def test_every_bin_is_counted_as_itself() -> None:
    """With next to no noise: 17 bins, as many devices in each as its number plus one."""
    bins = [[place] for place in range(BINS) for _ in range(place + 1)]
    run = plan_ratios(len(bins), 20)
    prior = count_ratios("exact", bins, run, books(run.cost), Simulation(1))
    assert prior.values == pytest.approx(RATIOS)
    assert prior.weights is not None
    np.testing.assert_allclose(prior.weights, np.arange(BINS) + 1, atol=0.1)


def test_devices_without_a_request_answer_too() -> None:
    run = plan_ratios(30, 20)
    prior = count_ratios("some", [[8]] * 20 + [[]] * 10, run, books(run.cost), Simulation(1))
    assert prior.weights == pytest.approx((20.0,), abs=0.1)


def test_too_few_devices_for_their_noise_are_no_prior() -> None:
    run = plan_ratios(2, Fraction(1, 100))
    source = Simulation(9)  # with which no bin's noise passes its own deviation
    with pytest.raises(BadInput, match=r"above its noise of .* ask more devices"):
        count_ratios("few", [[8], [8]], run, books(run.cost), source)


def test_another_run_or_bin_is_refused_before_anything_is_paid() -> None:
    run = plan_ratios(20, EPSILON)
    kept = books(run.cost)
    for other in (
        plan_run(contribution=Contribution(2, 1, totals_only=True), levels=1, parties=20, epsilon=1),
        plan_run(contribution=Contribution(1, 1), levels=1, parties=20, epsilon=1),
        plan_run(contribution=CONTRIBUTION, levels=2, parties=20, epsilon=1),
    ):
        with pytest.raises(BadInput, match="one round and one bin per device"):
            count_ratios("ratios in June", [[8]] * 20, other, kept, Simulation(1))
    for bins, says in (
        ([[17]] * 20, "bin below 17, got 17"),
        ([[-1]] * 20, "bin"),
        ([[0.5]] * 20, "bin"),
        ([8] * 20, "bins of a device"),
    ):
        with pytest.raises(BadInput, match=says):
            count_ratios("ratios in June", bins, run, kept, Simulation(1))  # type: ignore[arg-type]
    assert isinstance(kept.server_ledger, MemoryLedger)
    account = kept.server_ledger.account(LINE)
    assert account is not None
    assert not account.spent.epsilon_nanos
    assert not account.reserved.epsilon_nanos


def released(bins: list[int], seed: int) -> ObservedRatios:
    """As a round would release them: exact counts and its noise."""
    run = plan_ratios(len(bins), EPSILON)
    noise = PublishedNoise.of(run.noise, len(bins)).sample(BINS, Simulation(seed).words)
    return ratios_from_counts(np.bincount(bins, minlength=BINS) + noise, run.published_sd(len(bins)), "a study")


@pytest.mark.parametrize(
    ("truth", "most"), [(Spread(0.1), 0.1), (Spread(1.0), 0.02), (HeavyTails(0.5), 0.02)], ids=str
)
def test_one_fake_in_twenty_moves_plans_by_no_more_than_this(truth: IndependentFactors, most: float) -> None:
    """All of them at the highest bin, the worst that one cell allows.

    Measured: .08 where people hardly differ, about what the default loses there; nothing where they do.
    """
    honest = [bins[0] for bins in reported(truth, DEVICES)]
    faked = [BINS - 1] * (DEVICES // 20) + honest[DEVICES // 20 :]
    for epsilon in EPSILONS:
        kept, moved = (worth(released(bins, 5), truth, epsilon) for bins in (honest, faked))
        assert kept >= 0
        assert kept - moved <= most, f"{kept - moved:.4f} lost to fakes at epsilon {epsilon}"
    assert released(faked, 5).deviation(8) > released(honest, 5).deviation(8)


def test_counts_of_another_run_get_no_statement_of_this_one() -> None:
    loose, strict = plan_ratios(400, 4), plan_ratios(400, 0.25)
    level = SimpleNamespace(noise_sd=loose.published_sd(1), total=np.full(BINS, 50.0))
    counts: Any = SimpleNamespace(at=lambda _: level)
    assert ratios_of(counts, loose).statement == loose.statement
    with pytest.raises(BadInput, match="expected counts with this run's noise"):
        ratios_of(counts, strict)
