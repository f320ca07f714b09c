"""From a plan and a question to the round that asks it."""

from __future__ import annotations

import numpy as np
import pytest

from gather_town import GROUP, ROOT, town
from tacit.errors import BadInput
from tacit.gather.estimate.planning import NoiseBy, plan
from tacit.gather.estimate.published import PublishedNoise
from tacit.gather.estimate.rounds import Task
from tacit.gather.estimate.support import AboveNoise
from tacit.gather.estimate.top_down import Descent
from tacit.gather.wire.checking import check_hash
from tacit.gather.wire.contribution import Contribution
from tacit.gather.wire.groups import Group
from tacit.gather.wire.questions import Question
from tacit.gather.wire.validity.bounds import Bounds

RUN = plan(contribution=Contribution(5, 2), levels=3, parties=40, epsilon=9)
QUESTION = Question((1,), np.arange(3), np.array([0, 2, 2, 4]), np.array([0, 1, 0, 1]))
KEYS = b"p" * 32, b"s" * 32


def test_a_round_says_what_plan_task_and_question_say() -> None:
    task = Task("monday", 40, 30, "clicks", *KEYS, skew=5)
    round = task.round(RUN, QUESTION, level=2, opens=100, closes=200)
    assert (round.task, round.level, round.parties, round.smallest_batch) == ("monday", 2, 40, 30)
    assert (round.cells, round.question) == (3 + 2 * 4, QUESTION.digest)
    assert (round.opens, round.closes, round.skew, round.scope) == (100, 200, 5, "clicks")
    assert (round.noise, round.promise, round.largest) == (RUN.noise, RUN.promise, 2)
    assert (round.group, round.bounds, round.check) == (Group.RING64, None, bytes(32))
    assert (round.proxy_key, round.server_key) == KEYS
    costs = [task.round(RUN, QUESTION, level=each, opens=1, closes=2).cost for each in range(3)]
    assert tuple(costs) == RUN.costs
    with pytest.raises(BadInput, match="level"):
        task.round(RUN, QUESTION, level=3, opens=1, closes=2)


def test_with_proofs_a_report_is_held_to_the_plans_contribution() -> None:
    check = check_hash(b"k" * 32)
    round = Task("monday", 40, 30, "clicks", *KEYS, check=check).round(RUN, 7, level=0, opens=1, closes=2)
    assert (round.group, round.bounds, round.check) == (Group.FIELD64, Bounds(each=2, total=10), check)
    assert (round.cells, round.question) == (7, bytes(32))


class Answered:
    """A result of so many reports, with one total."""

    def __init__(self, question: Question, total: int, count: int) -> None:
        self.values = np.zeros(question.cells, np.int64)
        self.values[question.totals] = total
        self.noise_variance, self.count = 1.0, count


def test_support_is_held_against_the_noise_of_those_who_answered() -> None:
    """Where users add noise, servers add more the more of them are away: another threshold."""
    run = plan(contribution=Contribution(1), levels=2, parties=60, epsilon=1, by=NoiseBy.USERS)
    few, all_ = (PublishedNoise.of(run.noise, count) for count in (20, 60))
    share = AboveNoise().false_expansions
    between = (few.threshold(share) + all_.threshold(share)) // 2
    assert all_.threshold(share) < between < few.threshold(share)
    start = Descent(town().only((GROUP, ROOT)), 2, run)
    assert start.question is not None
    assert start.after(Answered(start.question, between, 60)).question is not None
    assert start.after(Answered(start.question, between, 20)).question is None
