"""A run down the hierarchy over known rows: what is asked, and what devices would answer."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.stats import binom

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.gather.client.contributions import Contributions, Event, answer_question
from tacit.gather.estimate.plan import NoiseBy, plan_run
from tacit.gather.estimate.published_noise import AboveNoise, LargestTotals, PublishedNoise
from tacit.gather.estimate.top_down import GatherTask, TopDownRun, gather_counts, public_nodes
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.promises import Contribution, CountBounds
from tacit.gather.protocol.rounds import Question, check_key_hash
from tacit.gather.simulate.runs import SimulatedResult, choose_rows, clipped_counts
from tacit.privacy.noise.distributions import DiscreteLaplace
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Levels, Sequence
from tacit.schema.contexts.tree import Tree
from tests.support.gather_town import (
    EACH,
    GROUP,
    GROUPS,
    LEAF,
    NAMES,
    PLACES,
    ROOT,
    TOWN,
    Log,
    run_plan,
    silently,
    town,
)

ALPHA = 1e-9


def test_every_child_of_a_node_with_support_is_asked_about_and_no_other() -> None:
    log = Log.drawn(np.random.default_rng(1), 6000, 3000, 3, groups=2)
    asked = []
    count = log.count(run_plan())

    def remembering(question: Question) -> SimulatedResult:
        asked.append(question)
        return silently(count)(question)

    run = gather_counts(town(), 3, run_plan(), remembering)
    assert [question.levels for question in asked] == [ROOT, GROUP, LEAF]
    assert len(asked[0].nodes) == 1
    assert len(asked[1].nodes) == GROUPS
    names = {str(town().name(LEAF, int(node)).values[0]) for node in asked[2].nodes}
    assert names == {place for places in PLACES[:2] for place in places}
    assert run.rounds[-1].question is asked[-1]


def test_levels_left_out_and_lack_of_support_end_a_run() -> None:
    log = Log.drawn(np.random.default_rng(2), 3000, 3000, 2)
    coarse = town().only((GROUP, ROOT))
    shallow = gather_counts(coarse, 2, run_plan(levels=2), silently(log.count(run_plan(levels=2))))
    assert [round.levels for round in shallow.rounds] == [ROOT, GROUP]
    nobody = Log([], np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool), 50)
    empty = gather_counts(town(), 2, run_plan(), silently(nobody.count(run_plan())))
    assert [round.levels for round in empty.rounds] == [ROOT]
    assert empty.question is None
    with pytest.raises(BadInput, match="after its end"):
        empty.with_result(empty.rounds[0].result)


def test_a_plan_that_would_stop_above_the_finest_level_is_refused_before_anything_is_asked() -> None:
    """A sequence of one step gets its root by itself: one round would ask about the root alone."""
    flat = Sequence([Steps("place", Tree.of_paths(["lake", "lawn", "shop"]))], [(0,)])
    nodes = public_nodes(flat, {"place": ["lake", "lawn", "shop"]})
    with pytest.raises(BadInput) as refused:
        TopDownRun(nodes, 2, run_plan(levels=1))
    for words in ("2 levels", "got 1", "only about (1,)", "(0,) would read 0", "levels=2", "only([(0,)])"):
        assert words in str(refused.value)
    # Both ways that it names ask about the leaves.
    leaves = TopDownRun(nodes.only([(0,)]), 2, run_plan(levels=1)).question
    assert leaves is not None
    assert leaves.levels == (0,)
    log = Log(["lake"] * 400, np.arange(400), np.zeros(400, np.int64), np.zeros(400, bool), 400)
    both = gather_counts(nodes, 2, run_plan(levels=2), silently(log.count(run_plan(levels=2), nodes=nodes)))
    assert both.counts.at((0,)).total.max() == 400


def test_a_plan_for_more_levels_than_there_are_is_refused() -> None:
    with pytest.raises(BadInput, match=r"3 levels.*got 4.*more noise than it needs.*levels=3"):
        TopDownRun(town(), 2, run_plan(levels=4))


def test_the_same_results_ask_the_same_again() -> None:
    log = Log.drawn(np.random.default_rng(3), 6000, 3000, 3)
    run = gather_counts(town(), 3, run_plan(), log.count(run_plan()), support=LargestTotals(3))
    again = TopDownRun(town(), 3, run_plan(), LargestTotals(3))
    for round in run.rounds:
        assert again.question is not None
        assert again.question.digest == round.question.digest
        stored = RoundResult(bytes(32), round.result.count, round.result.values, round.result.noise_variance)
        again = again.with_result(RoundResult.from_bytes(stored.to_bytes()))
    assert again.question is None
    assert len(run.rounds[2].question.nodes) == 3 * EACH
    for levels in run.chain:
        assert np.array_equal(run.counts.at(levels).clicks, again.counts.at(levels).clicks)


def test_only_ads_with_bids_are_asked_about() -> None:
    log = Log.drawn(np.random.default_rng(4), 6000, 3000, 5)
    leaf = int(town().id(TOWN.at(["g0p0"], LEAF)))
    given: dict[tuple[Levels, int], ArrayLike] = {(ROOT, 0): [3, 1], (LEAF, leaf): [1]}
    run = gather_counts(town(), 5, run_plan(), silently(log.count(run_plan())), bids=given)
    root, group, below = (round.question for round in run.rounds)
    assert root.ad.tolist() == [1, 3]
    assert group.entries == 0
    assert below.ad.tolist() == [1]
    assert below.nodes[below.entry_node].tolist() == [leaf]
    called = gather_counts(
        town(), 5, run_plan(), silently(log.count(run_plan())), bids=lambda _, node: [node % 5, 4]
    )
    assert called.rounds[1].question.ad[:4].tolist() == [0, 4, 1, 4]
    with pytest.raises(BadInput, match="bids of ads from 0 to 4"):
        gather_counts(town(), 5, run_plan(), log.count(run_plan()), bids=lambda *_: [5])


def test_what_a_run_refuses() -> None:
    start = TopDownRun(town(), 2, run_plan())
    question = start.question
    assert question is not None
    with pytest.raises(BadInput, match=f"{question.cells} cells"):
        start.with_result(SimulatedResult(np.zeros(3, np.int64), 1.0, 5))
    with pytest.raises(BadInput, match="noise_variance > 0"):
        start.with_result(SimulatedResult(np.zeros(question.cells, np.int64), 0.0, 5))
    with pytest.raises(BadInput, match="at least one round"):
        _ = start.counts
    where = Tree.of_paths(["North", "South"])
    crossed = public_nodes(Lattice([Steps("a", where), Steps("b", where)]), {"a": ["North"], "b": ["South"]})
    with pytest.raises(BadInput, match="sequence of levels"):
        TopDownRun(crossed, 2, run_plan())


# The universe.


def test_the_universe_does_not_depend_on_anybody() -> None:
    assert town().count(LEAF) == GROUPS * EACH
    assert town().count(GROUP) == GROUPS
    short = public_nodes(TOWN, {"place": ["g0p0", "g1p0"]})
    log = Log(["g0p1", "g7p0"], np.array([0, 1]), np.array([0, 0]), np.array([True, False]), 2)
    count = log.count(run_plan(), nodes=short)
    asked = {
        levels: Question(levels, np.array([0]), np.array([0, 1]), np.array([0])) for levels in (ROOT, LEAF)
    }
    assert count.exact(asked[ROOT]).tolist() == [2, 1, 1]  # both are somewhere
    assert count.exact(asked[LEAF]).tolist() == [0, 0, 0]  # and in no leaf that is listed
    refused: list[tuple[dict[str, list[Any]], str]] = [
        ({"place": []}, "combinations"),
        ({}, "expected public values for place"),
        ({"place": NAMES, "other": [1]}, "expected public values for place"),
    ]
    for values, match in refused:
        with pytest.raises(BadInput, match=match):
            public_nodes(TOWN, values)


# What devices would answer.


@pytest.mark.parametrize("bound", [Contribution(3), Contribution(3, 1), Contribution(5, 2)])
def test_simulated_counts_are_the_sums_of_devices_answers(bound: Contribution) -> None:
    rng = np.random.default_rng(bound.events)
    log = Log.drawn(rng, 400, 60, 3, groups=2)
    run = run_plan(bound.events, bound.each)
    count = log.count(run)
    nodes = np.sort(rng.choice(2 * EACH, 9, replace=False)).astype(np.int64)
    listed = [np.sort(rng.choice(3, rng.integers(0, 4), replace=False)) for _ in nodes]
    some = Question(
        LEAF, nodes, np.cumsum([0, *map(len, listed)], dtype=np.int64), np.concatenate(listed).astype(np.int64)
    )
    every = Question(GROUP, np.arange(8), np.arange(9) * 3, np.tile(np.arange(3), 8))

    def node_of(levels: tuple[int, ...], context: tuple[Any, ...]) -> int:
        return int(town().locate(levels, {"place": [context[0]]})[0])

    for question in (some, every):
        total = np.zeros(question.cells, np.int64)
        for device in range(log.devices):
            mine = np.flatnonzero(count.device == device)
            place = count.context["place"]
            events = tuple(
                Event((place[int(row)],), int(count.ad[row]), bool(count.clicked[row])) for row in mine
            )
            total += answer_question(question, Contributions(events, bound.events), node_of, bound.most)
        assert np.array_equal(total, count.exact(question))
        # The twin: without the cut, cells come out larger where it matters.
        uncut = replace(count, plan=run_plan(bound.events)).exact(question)
        assert np.array_equal(uncut, total) == (bound.most == bound.events)


def test_each_device_keeps_a_uniform_choice_of_its_rows() -> None:
    device = np.repeat([7, 3, 9], [4, 2, 3])
    times, source = 2000, Simulation("choice")
    kept = [choose_rows(device, 2, source.words) for _ in range(times)]
    seen: Counter[tuple[int, ...]] = Counter(tuple(np.flatnonzero(each[:4])) for each in kept)
    assert set(seen) == set(itertools.combinations(range(4), 2))
    assert all(
        binom.cdf(n, times, 1 / 6) > ALPHA and binom.sf(n - 1, times, 1 / 6) > ALPHA for n in seen.values()
    )
    for each in kept[:50]:
        assert each[4:6].all()
        assert each[6:].sum() == 2
    assert choose_rows(np.zeros(0, np.int64), 2, Simulation(1).words).shape == (0,)


def test_a_question_without_rows_or_ads() -> None:
    question = Question(LEAF, np.array([2, 5]), np.zeros(3, np.int64), np.zeros(0, np.int64))
    none = np.zeros(0, np.int64)
    bound = Contribution(2)
    assert clipped_counts(question, none, none, none, none.astype(bool), contribution=bound).tolist() == [0, 0]
    one = np.ones(1, np.int64)
    found = clipped_counts(question, one, 5 * one, one, one.astype(bool), contribution=bound)
    assert found.tolist() == [0, 1]


def test_the_noise_of_a_simulated_run_is_the_plans() -> None:
    log = Log.drawn(np.random.default_rng(5), 500, 500, 200)
    run = run_plan(epsilon=1)
    count = log.count(run)
    question = TopDownRun(town(), 200, run, LargestTotals(1)).question
    assert question is not None
    noise = np.concatenate([count(question).values - count.exact(question) for _ in range(10)])
    law = run.noise.law if isinstance(run.noise, ServerNoise) else None
    assert law == DiscreteLaplace(Fraction(24))
    published = count(question).noise_variance
    assert published == pytest.approx(2 * law.variance)
    # The kurtosis of a sum of two Laplace draws is 4.5: the mean square has a relative variance of 3.5 / n.
    assert abs((noise**2).mean() / published - 1) < 6 * math.sqrt(3.5 / len(noise))


RUN = plan_run(contribution=Contribution(5, 2), levels=3, parties=40, epsilon=9)
QUESTION = Question((1,), np.arange(3), np.array([0, 2, 2, 4]), np.array([0, 1, 0, 1]))
KEYS = b"p" * 32, b"s" * 32


def test_a_round_says_what_plan_task_and_question_say() -> None:
    task = GatherTask("monday", 40, 30, "clicks", *KEYS, skew=5)
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
    check = check_key_hash(b"k" * 32)
    round = GatherTask("monday", 40, 30, "clicks", *KEYS, check=check).round(RUN, 7, level=0, opens=1, closes=2)
    assert (round.group, round.bounds, round.check) == (Group.FIELD64, CountBounds(each=2, total=10), check)
    assert (round.cells, round.question) == (7, bytes(32))


class Answered:
    """A result of `count` reports, with one total."""

    def __init__(self, question: Question, total: int, count: int) -> None:
        self.values = np.zeros(question.cells, np.int64)
        self.values[question.totals] = total
        self.noise_variance, self.count = 1.0, count


def test_support_is_held_against_the_noise_of_those_who_answered() -> None:
    """Where users add noise, servers add more the more of them are away: another threshold."""
    run = plan_run(contribution=Contribution(1), levels=2, parties=60, epsilon=1, by=NoiseBy.USERS)
    few, all_ = (PublishedNoise.of(run.noise, count) for count in (20, 60))
    share = AboveNoise().false_expansions
    between = (few.threshold(share) + all_.threshold(share)) // 2
    assert all_.threshold(share) < between < few.threshold(share)
    start = TopDownRun(town().only((GROUP, ROOT)), 2, run)
    assert start.question is not None
    assert start.with_result(Answered(start.question, between, 60)).question is not None
    assert start.with_result(Answered(start.question, between, 20)).question is None
