"""Ratios counted over both services, with proofs that a device adds one to one bin and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.counted_ratios import LINE, NODES, answer_ratios, plan_ratios, ratios_of
from tacit.deliver.protocol.ratio_bins import BINS, RATIOS
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.gather.client.reporter import MemoryDeviceStore
from tacit.gather.estimate.top_down import GatherTask, TopDownRun
from tacit.gather.protocol.rounds import Question, check_key_hash
from tacit.privacy.statement import PrivacyStatement
from tacit.services.rounds import AnnouncedRound
from tests.support.service_worlds import CHECK, CLOSES, OPENS, SERVER_URL, SKEW, a_world, fetch_result, settle

DEVICES = 30


def test_a_prior_from_a_round_over_both_services(tmp_path: Path) -> None:
    with a_world(tmp_path) as world:
        run = plan_ratios(DEVICES, 20)  # hardly any noise
        asked = TopDownRun(NODES, 0, run)
        assert asked.question is not None
        keys = world.round.proxy_key, world.round.server_key
        task = GatherTask("ratios in June", DEVICES, 5, LINE.scope, *keys, SKEW, check_key_hash(CHECK))
        world.round = task.round(run, asked.question, level=0, opens=OPENS, closes=CLOSES)
        for ledger in (world.proxy_ledger, world.server_ledger):
            ledger.grant(LINE, run.cost)
        world.open(AnnouncedRound(world.round, asked.question.to_bytes()))
        for number in range(DEVICES):
            device = world.device(number)
            [announced] = device.rounds()
            question = Question.of_round(announced.round, announced.question)
            bins = [number % 3 + 7] * 2  # two requests
            answer = answer_ratios("ratios in June", question, bins, Entropy(), MemoryDeviceStore())
            with pytest.raises(BadInput, match="from 0 to 1"):
                device.report(announced.round, 5 * answer)  # could not be proved
            device.report(announced.round, answer)
        settle(world)
        result = fetch_result(world.client, SERVER_URL, world.round.digest)
        assert result.count == DEVICES
        prior = ratios_of(asked.with_result(result).counts, run)
        assert prior.values == tuple(RATIOS[place] for place in (7, 8, 9))
        assert prior.weights is not None
        np.testing.assert_allclose(prior.weights, (10, 10, 10), atol=0.1)
        assert isinstance(prior.statement, PrivacyStatement)
        for ledger in (world.proxy_ledger, world.server_ledger):
            assert str(ledger.now.accounts[LINE].spent) == str(run.cost)
        assert asked.question.cells == BINS
