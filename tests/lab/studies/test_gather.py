"""Figure 7: what a private run leaves for estimates, and the rules of its studies."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest

from tacit.data.generators.visits import VisitsWorld
from tacit.data.logs.visits import with_contexts
from tacit.gather.estimate.plan import RunPlan
from tacit.gather.estimate.published_noise import LargestTotals
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.promises import Promise
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.claims import REAL, RECORDED
from tacit_lab.studies.contexts.trial import EXACT, LAST, VisitsTrial, read_trace
from tacit_lab.studies.digests import spell_out
from tacit_lab.studies.gather import noise, private_rates
from tacit_lab.studies.gather.setting import (
    ONE_LEVEL,
    REACH_KM,
    GatheredTrial,
    OurNoise,
    PaperNoise,
    PublicBids,
    count_devices,
    gather_trial,
    nearly_all_kept,
)
from tacit_lab.studies.registry import load_study
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import StudyRequest, StudyScale
from tests.support.toy_studies import toy_studies

ALL = 100_000


@lru_cache(maxsize=1)
def trial() -> VisitsTrial:
    world = VisitsWorld(3, median_visits=5, visits_spread=1)
    return VisitsTrial.of(read_trace(with_contexts(each.batch) for each in world.batches(3_000)), 100, 1)


@lru_cache(maxsize=1)
def bids() -> PublicBids:
    return PublicBids(trial())


def nearly_exact(levels: int, events: int, each: int | None = None) -> RunPlan:
    """So little noise that nearly all draws are 0."""
    law = DiscreteLaplace(Fraction(1, 8))
    return RunPlan(Promise(events, each or events, levels, Fraction(10**9), Fraction(0)), ServerNoise(law))


def run_of(plan: RunPlan, levels: tuple[tuple[int, ...], ...]) -> GatheredTrial:
    return gather_trial(trial(), bids(), plan, levels, LargestTotals(ALL), "a run")


def test_with_all_events_and_hardly_any_noise_the_totals_are_the_exact_ones() -> None:
    levels = (LAST, *ONE_LEVEL)
    found = run_of(nearly_exact(2, 1_000), levels)
    for each in levels:
        released, exact = found.counts.by_level[each].total, trial().counts.by_level[each].total
        assert np.mean(released == exact) > 0.99
        assert np.abs(released - exact).max() <= 3


def test_a_device_counts_at_most_once_a_cell_if_that_is_the_bound() -> None:
    found = run_of(nearly_exact(1, 1_000, 1), ONE_LEVEL)
    node, user = np.asarray(trial().nodes.of_row(ONE_LEVEL[0])), trial().trace.user
    pairs = np.unique(np.stack([node, user])[:, trial().learnt], axis=1)
    people = np.bincount(pairs[0], minlength=trial().nodes.count(ONE_LEVEL[0]))
    assert np.mean(found.counts.by_level[ONE_LEVEL[0]].total == people) > 0.99
    assert (people < trial().counts.by_level[ONE_LEVEL[0]].total).any()


def test_the_server_of_a_gathered_trial_sees_nothing_that_was_not_released() -> None:
    promise = Promise(4, 1, 1, Fraction(1), Fraction(1, 100))
    hidden = RunPlan(promise, ServerNoise(DiscreteGaussian(Fraction(40**2))))
    found = run_of(hidden, ONE_LEVEL)
    known = found.known(LAST)
    assert set(known) == set(np.unique(trial().disclosed(LAST)))  # public nodes, visited by people or not
    bidding = {int(ad) for _, ads in known.values() for ad in ads}
    assert bidding > set(trial().trace.place[trial().learnt][:1])
    assert np.isfinite(found.weight).all()
    assert found.weight.min() >= 0
    assert not np.array_equal(found.weight, trial().weight)
    assert found.counts.by_level[EXACT].total.sum() == 0


def test_bids_are_by_kind_and_distance_alone() -> None:
    levels = ONE_LEVEL[0]
    node = int(np.asarray(trial().nodes.of_row(levels))[7])
    ads = bids()(levels, node)
    kinds = {trial().trace.context["query"][np.flatnonzero(trial().trace.place == ad)[0]] for ad in ads}
    asked = trial().trace.attributes[2]
    assert {asked.generalise(kind, 1) for kind in kinds} == {trial().nodes.name(levels, node).values[2]}
    here = np.asarray(trial().trace.context["location"], float)[7]
    apart = (trial().trace.point[ads] - here) * [1, math.cos(math.radians(here[0]))]
    assert np.hypot(*apart.T).max() * 111.2 <= REACH_KM + 2 * math.sqrt(2) * 1.112  # two diagonals of a cell
    everywhere = bids()((6, 2, 3), 0)
    assert len(everywhere) == trial().trace.places


def test_the_published_noise_is_that_of_the_corollary() -> None:
    people = count_devices(trial())
    plain = PaperNoise(epsilon=1).plan(people)
    assert plain.noise.published_variance(people) == pytest.approx(math.ceil(6 * 16 * math.log(400)))
    quarter = PaperNoise(epsilon=1, away=Fraction(3, 4)).plan(people).noise.published_variance(people)
    assert quarter == pytest.approx(4 * plain.noise.published_variance(people), rel=0.02)
    ours = OurNoise(epsilon=1, delta=Fraction(1, 100)).plan(people).noise.published_variance(people)
    assert ours < plain.noise.published_variance(people) / 10


@pytest.mark.parametrize(("low", "high", "verdict"), [(0.92, 1.1, True), (0.2, 0.85, False), (0.5, 1.0, None)])
def test_a_minor_difference_keeps_nearly_all(low: float, high: float, verdict: bool | None) -> None:
    assert nearly_all_kept(MeasuredValue((low + high) / 2, low, high, 0.95)) is verdict
    assert nearly_all_kept(MeasuredValue(math.nan, math.nan, math.nan, 0.95)) is None


def test_sums_of_rounded_shares_are_those_of_a_simulation() -> None:
    users, sd = 50, 0.7
    draws = np.random.default_rng(5).normal(0, sd, (200_000, users))
    for down, rounding in ((True, np.floor), (False, np.rint)):
        law = noise.rounded_shares(sd, users, down=down)
        seen = rounding(draws).sum(axis=1)
        # Of 200,000 draws: five standard errors.
        assert abs(seen.mean() - law.mean) < 5 * law.sd / math.sqrt(len(seen))
        assert abs(seen.var() / law.sd**2 - 1) < 5 * math.sqrt(2 / len(seen))
        assert law.pmf.sum() == pytest.approx(1)
        twin = noise.rounded_shares(sd, users, down=not down)  # the other way of rounding is told apart
        assert abs(seen.mean() - twin.mean) > 5 * twin.sd / math.sqrt(len(seen))


def test_rounding_to_nearest_leaves_no_noise_and_rounding_down_shifts_every_sum() -> None:
    share = partial(noise.rounded_shares, math.sqrt(1150 / 116_431), 116_432)
    assert share(down=False).none() == pytest.approx(0.945, abs=1e-3)
    assert share(down=False).delta(1.0, 4) > 0.99
    assert share(down=True).mean == pytest.approx(-58_216, abs=1)


def test_delta_of_a_count_is_that_of_its_definition() -> None:
    law = noise.SumLaw(-1, np.array([0.25, 0.5, 0.25]))
    # Against a shift of one: two outcomes that only one side has weigh .25 each, and .5 against .25 elsewhere.
    assert law.delta(0.0, 1) == pytest.approx(0.5)
    assert law.delta(math.log(2), 1) == pytest.approx(0.25)
    assert law.delta(1.0, 3) == pytest.approx(1.0)


def test_skellam_keeps_what_was_stated_and_rounded_shares_do_not(tmp_path: Path) -> None:
    found = load_study("gather-noise").outcome(StudyRequest(tmp_path, StudyScale.SMALL, 1))
    assert {each.claim.id: each.holds for each in found.findings} == {
        "M13": False,
        "M14": False,
        "T12": True,
    }


@pytest.mark.parametrize(("off", "holds"), [(0.0, True), (1e-6, True), (-1e-6, False)])
def test_accuracy_is_as_printed_where_no_cell_is_below_it(off: float, holds: bool) -> None:
    recorded = ResultFiles.of(RECORDED, "gather-noise")
    table = {name: list(column) for name, column in recorded.table.items()}
    printed = table[noise.PRINTED]
    table[noise.BETA] = [each if each is None else float(each) for each in printed]
    last = len(printed) - 1
    table[noise.BETA][last] = float(printed[last] or 0) + off
    found = {each.claim: each for each in noise.judge(replace(recorded, table=table))}
    assert found[noise.M14].holds is holds
    assert f"in {24 - (not holds)} of 24 cases" in found[noise.M14].seen


def test_a_table_from_before_accuracy_was_looked_at_leaves_it_open() -> None:
    recorded = ResultFiles.of(RECORDED, "gather-noise")
    table = {name: recorded.table[name][:6] for name in ("noise", "levels", *noise.FIGURES)}
    found = {each.claim: each.holds for each in noise.judge(replace(recorded, table=table))}
    assert found == {noise.M13: False, noise.M14: None, noise.T12: True}


@pytest.mark.parametrize("name", toy_studies("gather-", without=("gather-noise", "gather-phases")))
def test_a_study_runs_and_decides_nothing_at_toy_scale(name: str, tmp_path: Path) -> None:
    found = load_study(name).outcome(StudyRequest(tmp_path, StudyScale.TOY, 1))
    assert [each.claim for each in found.findings] == list(load_study(name).claims)
    assert load_study(name).findings(tmp_path) == found.findings  # the folder is enough
    assert {each.holds for each in found.findings} == {None}
    assert all(path.exists() for path in found.files)


def test_the_seeds_of_recorded_noise_are_spelled_as_they_were() -> None:
    """An arm draws its noise from a seed that spells the arm out: a type that moves must not change it."""
    ours = (
        "tacit.studies.gather.setting.OurNoise(epsilon=int 1, delta=NoneType None, events=int 4, each=int 1, "
        "levels=int {levels}, by=tacit.gather.estimate.planning.NoiseBy.{by}, away=Fraction Fraction(0, 1))"
    )
    spelled = "tacit.studies.gather.setting.Gathering(noise={}, levels=tuple [{}], estimator={})".format
    nothing, one_level = "NoneType None", "tuple [int 3, int 2, int 1]"
    paper = "tacit.studies.gather.setting.PaperNoise(epsilon=str '0.5', away=Fraction Fraction(0, 1))"
    shrinkage = "tacit.deliver.estimates.moments.MomentShrinkage(corrected=bool True, spread=NoneType None)"
    assert spell_out(private_rates.EPSILON_ARMS[private_rates.PAPER_HALF]) == spelled(paper, one_level, nothing)
    assert spell_out(private_rates.AWAY_ARMS[private_rates.SERVERS]) == spelled(
        ours.format(levels=1, by="SERVERS"), one_level, nothing
    )
    assert spell_out(private_rates.BOUNDS_ARMS[private_rates.SHRUNK]) == spelled(
        ours.format(levels=2, by="USERS"), f"tuple [int 4, int 2, int 2], {one_level}", shrinkage
    )
    by_study = (private_rates.EPSILON_ARMS, private_rates.AWAY_ARMS, private_rates.BOUNDS_ARMS)
    arms = (arm for of_study in by_study for arm in of_study.values())
    whole = hashlib.sha256("\n".join(map(spell_out, arms)).encode()).hexdigest()
    assert whole == "58b0a441e1641d28de6eef16dc1e686cf6994e061423ba8b356bd7b2a004ed95"


def test_where_neither_arm_covers_anything_there_is_nothing_to_compare() -> None:
    """With few people noise hides all: a difference of exactly 0 is then no evidence."""
    for name, claims in (("gather-away", {"T14"}), ("gather-bounds", {"T15", "T16", "T17", "T18"})):
        kept = ResultFiles.of(RECORDED / REAL, name)  # 2,582 devices
        found = {each.claim.id: each for each in load_study(name).verdicts(kept) if each.claim.id in claims}
        assert found.keys() == claims
        assert {(each.holds, each.why) for each in found.values()} == {
            (None, "too few people: neither covers anything")
        }
        more = ResultFiles.of(RECORDED / REAL / "jakarta", name)  # 5,262
        assert all(not each.why for each in load_study(name).verdicts(more) if each.claim.id in claims)
