"""A planned run through the real parties: devices, proxy and server, level by level, on one budget."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.errors import BadInput, BudgetExceeded
from tacit.gather.client.contributions import Contributions, Event, answer_question
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.estimate.plan import NoiseBy, RunPlan, plan_run
from tacit.gather.estimate.published_noise import LargestTotals, PublishedNoise
from tacit.gather.estimate.top_down import gather_counts
from tacit.gather.protocol.credentials import issue_device_key
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.promises import Contribution
from tacit.gather.protocol.rounds import Question
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Amount
from tests.support.gather_town import GROUP, LEAF, ROOT, Log, town
from tests.support.gather_worlds import AFTER, DURING, ENROLMENT, PROXY_KEY, SERVER_KEY, World, a_round, name

PARTIES, ADS = 24, 2


def node_of(levels: tuple[int, ...], context: tuple[Any, ...]) -> int:
    return int(town().locate(levels, {"place": [context[0]]})[0])


class Field:
    """Devices with events of their own, and both parties with the run's budget and no more."""

    def __init__(self, run: RunPlan, budget: Budget) -> None:
        self.run = run
        log = Log.drawn(np.random.default_rng(1), 120, PARTIES, ADS)
        entropy = Simulation("devices")
        self.chosen, self.reporters = [], []
        for device in range(PARTIES):
            rows = np.flatnonzero(log.device == device).tolist()
            events = [Event((log.place[row],), int(log.ad[row]), bool(log.clicked[row])) for row in rows]
            self.chosen.append(Contributions.choose(events, run.contribution.events, entropy))
            key = issue_device_key(ENROLMENT, name(device))
            known = {"proxy_key": PROXY_KEY.public, "server_key": SERVER_KEY.public}
            self.reporters.append(
                Reporter(name(device), key, entropy, MemoryDeviceStore(), **known, simulated=True)
            )
        self.kept: dict[str, Any] = {
            "proxy_store": MemoryProxyStore(),
            "server_store": MemoryServerStore(),
            "proxy_ledger": MemoryLedger(),
            "server_ledger": MemoryLedger(),
        }
        for party in ("proxy", "server"):
            self.kept[f"{party}_ledger"].grant(a_round().line, budget)
        self.exact: list[np.ndarray] = []

    def count(self, question: Question) -> RoundResult:
        """One round, as a deployment would hold it."""
        level = len(self.exact)
        round = a_round(
            task="town",
            level=level,
            cells=question.cells,
            question=question.digest,
            parties=PARTIES,
            noise=self.run.noise,
            promise=self.run.promise,
        )
        world = World(round, seed=f"round {level}", limit="", **self.kept)
        answered = partial(answer_question, question, node_of=node_of, each=self.run.contribution.most)
        answers = [answered(contributions=chosen) for chosen in self.chosen]
        uploads = [reporter.upload(round, each) for reporter, each in zip(self.reporters, answers, strict=True)]
        assert not any(world.proxy.take(uploads, DURING))
        world.drive()
        self.exact.append(np.sum(answers, axis=0))
        return world.server.result(round.digest, AFTER)


@pytest.mark.parametrize("by", list(NoiseBy))
def test_a_run_pays_its_epsilon_and_not_more(by: NoiseBy) -> None:
    run = plan_run(contribution=Contribution(3), levels=3, parties=PARTIES, epsilon=20, by=by)
    field = Field(run, run.cost)
    found = gather_counts(town(), ADS, run, field.count, support=LargestTotals(2))
    assert [round.levels for round in found.rounds] == [ROOT, GROUP, LEAF]
    for round, exact in zip(found.rounds, field.exact, strict=True):
        assert round.result.count == PARTIES
        assert round.result.noise_variance == pytest.approx(run.published_sd(PARTIES) ** 2)
        most = PublishedNoise.of(run.noise, PARTIES).threshold(1e-12)  # by the exact law of the noise
        assert np.abs(round.result.values - exact).max() <= most
        assert (round.result.values != exact).any()
    line = a_round().line
    for party in ("proxy", "server"):
        assert field.kept[f"{party}_ledger"].now.accounts[line].remaining == Amount()


def test_a_run_for_totals_alone_asks_no_device_about_ads() -> None:
    """And a device would not answer more: its counts add up to its events, once."""
    bound = Contribution(3, totals_only=True)
    run = plan_run(contribution=bound, levels=3, parties=PARTIES, epsilon=20)
    field = Field(run, run.cost)
    found = gather_counts(town(), 0, run, field.count, support=LargestTotals(8))
    assert [round.question.entries for round in found.rounds] == [0, 0, 0]
    assert [round.question.cells for round in found.rounds] == [1, 8, 48]
    assert field.exact[0].sum() == field.exact[1].sum() == field.exact[2].sum() > 0
    twice = plan_run(contribution=Contribution(3), levels=3, parties=PARTIES, epsilon=20)
    assert run.published_sd(PARTIES) < 0.6 * twice.published_sd(PARTIES)
    with pytest.raises(BadInput, match="expected ads=0 with a plan for totals only, got 2"):
        gather_counts(town(), ADS, run, field.count)
    with pytest.raises(BadInput, match=r"expected ads >= 1.*totals_only=True"):
        gather_counts(town(), 0, twice, field.count)
    round = a_round(cells=9, question=bytes(32), parties=PARTIES, noise=run.noise, promise=run.promise)
    with pytest.raises(BadInput, match="add up to at most 3, got more"):
        field.reporters[0].upload(round, np.array([3, 3, *[0] * 7]))


def test_a_budget_that_is_short_ends_the_run_before_its_last_round() -> None:
    run = plan_run(contribution=Contribution(3), levels=3, parties=PARTIES, epsilon=20)
    short = Budget(run.epsilon - run.costs[-1].epsilon / 2, run.delta)
    field = Field(run, short)
    with pytest.raises(BudgetExceeded):
        gather_counts(town(), ADS, run, field.count, support=LargestTotals(2))
    assert len(field.exact) == 2
