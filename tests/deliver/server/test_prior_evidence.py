"""What reports say about the prior: exact chances, a posterior that finds the law, and bounds on lies."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.arrays import Floats
from tacit.deliver.protocol.factor_laws import FewLiked, HeavyTails, SomeKnown, Spread
from tacit.deliver.protocol.plans import plan_choice
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, Favourite, LearntPrior, prior_as_json, read_prior
from tacit.deliver.server import prior_evidence, report_chances
from tacit.deliver.server.prior_evidence import ALL, SHRINKAGE, PriorEvidence, ReportedRanks, weigh
from tacit.deliver.server.report_chances import FAMILIES, LAWS, LEARNING_SCENARIOS, log_chances, outcome_chances
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.choice import ChoiceLaw
from tacit.privacy.choice.floors import Floors
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.scores import Clipped, Scaled
from tacit.privacy.choice.slate_response import OverlapSlates, TopSlates
from tacit.privacy.choice.slates import PeeledSlates, PrivateSlate
from tacit.privacy.choice.top_choice import TopChoice

PUBLIC = np.array([5.0, 4.0, 3.5, 1.0])
CHOICES: dict[str, ChoiceLaw] = {
    "randomized response": TopChoice.for_epsilon(2, 4, 4, 1),
    "the best two": TopChoice.for_epsilon(2, 4, 4, 2),
    "of the best three": TopChoice.for_epsilon(1, 4, 3, 1),
    "two of the best three": TopChoice.for_epsilon(3, 4, 3, 2),
    "floors": Floors.nearest(1, (0.2, 0.12, 0.08, 0.05), 64),
    **{f"{noise}, scaled": NoisyMax.nominal(noise, Scaled(4), 2) for noise in Noise},
    **{
        f"{noise}, clipped": NoisyMax.calibrated(noise, Clipped((5.0, 4.0, 3.5, 1.0), 2.0), 2)
        for noise in Noise
    },
}
SLATES: dict[str, PrivateSlate] = {
    "overlap": OverlapSlates.for_epsilon(1, 4, 2, top=3, needed=2),
    "top": TopSlates.for_epsilon(1, 4, 2, favoured=2),
    "peeled": PeeledSlates.for_epsilon(1, 4, 2),
}


def brute_force(law: Any, count: int) -> Floats:
    """The mean of the law's own pmf over each prior's scenarios, one scenario at a time."""
    return np.stack(
        [
            np.mean([law.pmf(scores) for scores in prior.scores(PUBLIC[None], count)[:, 0].T], axis=0)
            for prior in LAWS
        ]
    )


@pytest.mark.parametrize("law", CHOICES.values(), ids=CHOICES.keys())
def test_chances_of_choices_are_means_of_the_exact_pmf(law: ChoiceLaw, monkeypatch: pytest.MonkeyPatch) -> None:
    count = LEARNING_SCENARIOS
    if not isinstance(law, TopChoice):  # a mean of fewer is told from another as well, and takes less time
        count = 64
        monkeypatch.setattr(report_chances, "LEARNING_SCENARIOS", count)
    found = outcome_chances(law, PUBLIC)
    assert found.shape == (len(LAWS), 4)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(found, brute_force(law, count), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("law", SLATES.values(), ids=SLATES.keys())
def test_chances_of_slates_are_means_of_the_exact_pmf(
    law: PrivateSlate, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 64
    for name in ("LEARNING_SCENARIOS", "LEAST_SLATE_SCENARIOS"):
        monkeypatch.setattr(report_chances, name, count)
    found = outcome_chances(law, PUBLIC)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(found, brute_force(law, count), rtol=1e-9, atol=1e-15)


DRAWS = 20_000
TRUTHS: dict[Any, Callable[[np.random.Generator], Floats]] = {
    Spread(1.0): lambda rng: PUBLIC * rng.lognormal(-0.5, 1.0, (DRAWS, 4)),
    HeavyTails(0.5): lambda rng: PUBLIC * np.exp(rng.laplace(0, 0.5, (DRAWS, 4))) * 0.75,
    FewLiked(0.25, 10.0): lambda rng: PUBLIC * np.where(rng.random((DRAWS, 4)) < 0.25, 10.0, 1.0),
    SomeKnown(0.5, 1.2): lambda rng: (
        PUBLIC * np.where(rng.random((DRAWS, 4)) < 0.5, rng.lognormal(-0.72, 1.2, (DRAWS, 4)), 1.0)
    ),
    Favourite(0.5, 1.0): lambda rng: np.where(
        rng.random((DRAWS, 1)) < 0.5,
        PUBLIC.sum() * np.eye(4)[rng.choice(4, DRAWS, p=PUBLIC / PUBLIC.sum())],
        PUBLIC,
    ),
}


@pytest.mark.parametrize(("truth", "people"), TRUTHS.items(), ids=map(str, TRUTHS))
def test_scenarios_stand_for_people(truth: Any, people: Callable[[np.random.Generator], Floats]) -> None:
    """Against draws from each law by another generator, and law.pmf on every one of them."""
    private = people(np.random.default_rng(7))
    for law in (CHOICES["randomized response"], CHOICES["two of the best three"], CHOICES["floors"]):
        found = outcome_chances(law, PUBLIC)[LAWS.index(truth)]
        drawn = law.pmf(private)
        # Six standard errors of the draws, and what 512 strata miss of independent people.
        error = 6 * drawn.std(axis=0) / math.sqrt(DRAWS)
        assert (np.abs(found - drawn.mean(axis=0)) < error + 0.02).all(), (found, drawn.mean(axis=0))


def reports(truth: Any, law: ChoiceLaw, seed: int, group: str = ALL) -> ReportedRanks:
    chosen = law.choose(TRUTHS[truth](np.random.default_rng(seed)), Simulation(seed).words)
    return ReportedRanks(PUBLIC, law, np.bincount(chosen, minlength=4), group)


@pytest.mark.parametrize("truth", TRUTHS, ids=str)
def test_the_posterior_finds_the_law_within_its_family(truth: Any) -> None:
    """Ranks do not tell all families apart; within one, the truth or a neighbour of it is the most likely."""
    learnt = PriorEvidence().learn([reports(truth, TopChoice.for_epsilon(3, 4, 4, 1), 3)])
    family = next(family for family in FAMILIES if truth in family)
    within = np.array([learnt.posterior()[LAWS.index(law)] for law in family])
    best = family[int(within.argmax())]
    target = outcome_chances(CHOICES["randomized response"], PUBLIC)
    far = np.abs(target[LAWS.index(best)] - target[LAWS.index(truth)]).max()
    assert far < 0.02, f"{best} is not told from {truth} by reports"


def test_a_narrow_truth_and_a_wide_one_are_told_apart() -> None:
    law, rng = TopChoice.for_epsilon(3, 4, 4, 1), np.random.default_rng(5)
    means = []
    for sigma in (0.1, 1.8):
        people = PUBLIC * rng.lognormal(-(sigma**2) / 2, sigma, (DRAWS, 4))
        counts = np.bincount(law.choose(people, Simulation(1).words), minlength=4)
        posterior = PriorEvidence().learn([ReportedRanks(PUBLIC, law, counts)]).posterior()
        means.append(float(posterior @ [prior.deviation(4) for prior in LAWS]))
    assert means[0] < 0.3 < 1.0 < means[1]


@settings(max_examples=40)
@given(
    st.sampled_from([*CHOICES.values()]),
    st.integers(0, 3),
    st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4).map(lambda scores: sorted(scores, reverse=True)),
)
def test_one_report_moves_two_laws_against_each_other_by_at_most_epsilon(
    law: ChoiceLaw, rank: int, scores: list[float]
) -> None:
    if isinstance(law, TopChoice) and rank >= law.kept:
        return
    public = np.array(scores)
    chances = log_chances(law, public)[:, rank]
    assert chances.max() - chances.min() <= law.epsilon + 1e-9
    (one,) = weigh([ReportedRanks(public, law, np.eye(4, dtype=np.int64)[rank])])
    assert np.ptp(one.log_likelihood) <= law.epsilon + 1e-9


@pytest.mark.parametrize("law", SLATES.values(), ids=SLATES.keys())
def test_so_does_one_slate(law: PrivateSlate) -> None:
    chances = log_chances(law, PUBLIC)
    assert np.ptp(chances, axis=0).max() <= law.epsilon + 1e-9


# Evidence.

LAW = TopChoice.for_epsilon(2, 4, 4, 1)


def batch(*counts: int, group: str = ALL) -> ReportedRanks:
    return ReportedRanks(PUBLIC, LAW, np.array(counts), group)


def expect_same(one: PriorEvidence, other: PriorEvidence) -> None:
    assert one.groups.keys() == other.groups.keys()
    for name, known in one.groups.items():
        assert known.reports == pytest.approx(other.groups[name].reports)
        np.testing.assert_allclose(known.log_likelihood, other.groups[name].log_likelihood, atol=1e-8)


def test_nothing_learnt_is_the_default() -> None:
    prior = PriorEvidence().prior()
    assert prior.mixture.parts == ((1.0, DEFAULT_PRIOR),)
    assert prior.reports == 0
    assert PriorEvidence().reports == 0
    posterior = PriorEvidence().posterior()
    assert posterior.sum() == pytest.approx(1.0)
    starts = np.cumsum([0, *map(len, FAMILIES)])
    by_family = [posterior[low:high].sum() for low, high in itertools.pairwise(starts)]
    np.testing.assert_allclose(by_family, 1 / len(FAMILIES))


def test_what_reads_nothing_private_tells_nothing() -> None:
    best = TopChoice.public_best(4)
    learnt = PriorEvidence().learn([ReportedRanks(PUBLIC, best, np.array([50, 0, 0, 0])), batch(0, 0, 0, 0)])
    assert learnt.groups == {}


def test_a_quarter_of_the_scenarios_stays_the_defaults_and_more_where_reports_are_few() -> None:
    for counts, share in (((10_000, 0, 0, 0), 0.265), ((0, 0, 0, 10_000), 0.265), ((3, 3, 3, 3), 0.958)):
        prior = PriorEvidence().learn([batch(*counts)]).prior()
        weights = dict[Any, float]()
        for weight, law in prior.mixture.parts:
            weights[law] = weights.get(law, 0.0) + weight
        assert prior.mixture.parts[0][0] == pytest.approx(share, abs=1e-3)
        assert prior.mixture.parts[0][1] == DEFAULT_PRIOR
        assert sum(weights.values()) == pytest.approx(1.0, abs=1e-3)
        assert prior.reports == sum(counts)
        assert read_prior(json.loads(json.dumps(prior_as_json(prior)))) == prior
        assert plan_choice(PUBLIC, prior, 2).epsilon_spent in (0.0, 2.0)


def test_order_and_cut_of_batches_do_not_matter_below_the_horizon() -> None:
    batches = [batch(5, 3, 2, 1), batch(1, 0, 0, 9, group="sport"), batch(20, 10, 4, 0), batch(2, 2, 0, 0)]
    whole = PriorEvidence().learn(batches)
    expect_same(whole, PriorEvidence().learn(reversed(batches)))
    step = PriorEvidence()
    for each in batches:
        step = step.learn([each])
    expect_same(whole, step)
    expect_same(whole, PriorEvidence().add(weigh(batches)))
    assert whole.reports == 59


def test_evidence_fades_beyond_the_horizon() -> None:
    narrow, wide = batch(900, 50, 40, 10), batch(250, 250, 250, 250)
    evidence = PriorEvidence(horizon=1000).learn([narrow])
    for _ in range(12):
        evidence = evidence.learn([wide])
        assert evidence.reports == pytest.approx(1000)
    fresh = PriorEvidence(horizon=1000).learn([wide])
    # What was learnt first counts 2^-12 of itself, and the last batch as half of the horizon and more.
    drift = evidence.groups[ALL].log_likelihood - fresh.groups[ALL].log_likelihood
    assert (
        np.abs(drift).max()
        < 2 * 2**-12 * np.abs(PriorEvidence().learn([narrow]).groups[ALL].log_likelihood).max()
    )


def test_a_batch_longer_than_the_horizon_counts_as_the_horizon() -> None:
    evidence = PriorEvidence(horizon=100).learn([batch(900, 50, 40, 10)])
    assert evidence.reports == pytest.approx(100)
    expected = PriorEvidence().learn([batch(900, 50, 40, 10)]).groups[ALL].log_likelihood / 10
    np.testing.assert_allclose(evidence.groups[ALL].log_likelihood, expected)


def test_a_new_group_starts_with_what_the_others_know_counted_as_a_few() -> None:
    alike = PriorEvidence().learn([batch(5_000, 2_000, 2_000, 1_000, group="news")])
    np.testing.assert_allclose(alike.posterior("sport"), alike.forget(1 - SHRINKAGE / 10_000).posterior("news"))
    assert alike.prior("sport").reports == 0
    assert alike.prior("sport").group == "sport"
    assert alike.prior("sport").mixture != PriorEvidence().prior().mixture


def test_own_reports_win_later() -> None:
    """Others are far from the public order; this group follows it."""
    others = [batch(2_500, 2_500, 2_500, 2_500, group=name) for name in ("news", "music")]
    widths = np.array([law.deviation(4) for law in LAWS])
    found = []
    for own in (0, 100, 5_000):
        counts = (np.array([0.7, 0.1, 0.1, 0.1]) * own).astype(int)
        evidence = PriorEvidence().learn([*others, *([batch(*counts, group="sport")] if own else [])])
        found.append(float(evidence.posterior("sport") @ widths))
    alone = PriorEvidence().learn([batch(3_500, 500, 500, 500, group="sport")]).posterior("sport") @ widths
    assert found[0] > found[1] > found[2]
    assert abs(found[2] - float(alone)) < 0.1 * found[0]


def test_forgetting_takes_a_share_away() -> None:
    evidence = PriorEvidence().learn([batch(50, 30, 15, 5), batch(5, 3, 1, 5, group="sport")])
    half = evidence.forget(0.5)
    assert half.reports == pytest.approx(57)
    np.testing.assert_allclose(half.groups[ALL].log_likelihood, 0.5 * evidence.groups[ALL].log_likelihood)
    assert evidence.forget(0).reports == evidence.reports
    none = evidence.forget(1)
    assert none.reports == 0
    np.testing.assert_allclose(none.posterior(), PriorEvidence().posterior())
    assert none.prior().mixture == PriorEvidence().prior().mixture
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(BadInput, match="share"):
            evidence.forget(share)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ReportedRanks(PUBLIC, LAW, [1, 2, 3]), "whole count for each of 4"),
        (lambda: ReportedRanks(PUBLIC, LAW, [1, 2, 3, 4, 5]), "whole count for each of 4"),
        (lambda: ReportedRanks(PUBLIC, LAW, [[1, 2, 3, 4]]), "whole count"),
        (lambda: ReportedRanks(PUBLIC, LAW, [1.0, 2.0, 3.0, 4.0]), "whole count"),
        (lambda: ReportedRanks(PUBLIC, LAW, [True, False, True, True]), "whole count"),
        (lambda: ReportedRanks(PUBLIC, LAW, [1, 2, 3, -1]), "counts >= 0"),
        (lambda: ReportedRanks(PUBLIC, LAW, [[1], [2, 3]]), "count"),
        (lambda: ReportedRanks(PUBLIC, LAW, np.array([2**63, 0, 0, 0], np.uint64)), "count"),
        (
            lambda: ReportedRanks(PUBLIC, CHOICES["of the best three"], [1, 2, 3, 4]),
            "3 candidates that the law keeps, got rank 3",
        ),
        (
            lambda: ReportedRanks(PUBLIC, TopChoice.public_best(4), [1, 1, 0, 0]),
            "1 candidates that the law keeps, got rank 1",
        ),
        (lambda: ReportedRanks(PUBLIC, "rr", [1, 2, 3, 4]), "with its pmf, got str"),  # type: ignore[arg-type]
        (
            lambda: ReportedRanks(PUBLIC, TopChoice.for_epsilon(2, 5, 5, 1), [1, 2, 3, 4]),
            "menu's 4 candidates, got one of 5",
        ),
        (lambda: ReportedRanks(PUBLIC[::-1], LAW, [1, 2, 3, 4]), "largest down"),
        (lambda: ReportedRanks(PUBLIC, LAW, [1, 2, 3, 4], group=None), "group"),  # type: ignore[arg-type]
        (lambda: ReportedRanks(PUBLIC, SLATES["top"], [1, 2, 3, 4]), "each of 6"),
        (lambda: PriorEvidence(horizon=0), "horizon"),
        (lambda: PriorEvidence().learn([batch(1, 1, 1, 1), (1, 2)]), "reported ranks, got tuple"),  # type: ignore[list-item]
    ],
)
def test_bad_reports_are_refused_in_one_line(make: Callable[[], object], says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("chances", [np.nan, 5.0, -1.0, "x"], ids=["nan", "five", "negative", "text"])
def test_a_law_whose_pmf_is_none_teaches_nothing(chances: Any) -> None:
    class Wrong:
        candidates, epsilon = 4, 1.0

        def pmf(self, scores: Any) -> Any:
            return "x" if chances == "x" else np.full(np.shape(scores), chances)

    with pytest.raises(BadInput, match=r"expected a law whose pmf .* got Wrong"):
        PriorEvidence().learn(ReportedRanks(PUBLIC, Wrong(), [1, 2, 3, 0]))  # type: ignore[arg-type]


def test_one_report_need_not_be_put_in_a_list() -> None:
    alone, listed = PriorEvidence().learn(batch(9, 2, 1, 0)), PriorEvidence().learn([batch(9, 2, 1, 0)])
    assert alone.prior() == listed.prior()
    for wrong in (None, 3, "abc"):
        with pytest.raises(BadInput, match="expected report"):
            PriorEvidence().learn(wrong)  # type: ignore[arg-type]


def test_nothing_is_learnt_of_a_batch_that_is_refused() -> None:
    evidence = PriorEvidence().learn([batch(1, 2, 3, 4)])
    before = evidence.as_json()
    with pytest.raises(BadInput):
        evidence.learn([batch(5, 5, 5, 5), "no reports"])  # type: ignore[list-item]
    assert evidence.as_json() == before


def test_counts_are_kept_as_they_were() -> None:
    """A value: whoever made the array may use it again."""
    counts = np.array([1, 2, 3, 4])
    reported = ReportedRanks(PUBLIC, LAW, counts)
    counts[0] = 99
    assert reported.counts.tolist() == [1, 2, 3, 4]


# Kept as JSON.


def test_evidence_is_read_back_as_it_was() -> None:
    evidence = PriorEvidence(horizon=500).learn([batch(50, 30, 15, 5), batch(5, 3, 1, 5, group="sport")])
    again = PriorEvidence.of_json(json.loads(json.dumps(evidence.as_json())))
    assert again.as_json() == evidence.as_json()
    assert again.horizon == 500
    for group in (ALL, "sport", "new"):
        assert again.prior(group) == evidence.prior(group)


KEPT = PriorEvidence().learn([batch(5, 3, 1, 5)]).as_json()


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (3, "expected version 1, got 3"),
        ({}, "expected version 1, got None"),
        (KEPT | {"version": 2}, "expected version 1, got 2"),
        (KEPT | {"version": True}, "expected version 1, got True"),
        ({"version": 1, "groups": {}}, "groups and horizon"),
        (KEPT | {"groups": 3}, "groups and horizon"),
        (KEPT | {"horizon": 0}, "horizon"),
        (KEPT | {"horizon": "many"}, "horizon"),
        (KEPT | {"groups": {"": {"reports": 3}}}, "groups and horizon"),
        (KEPT | {"groups": {"": {"reports": 3, "log_likelihood": [0.0]}}}, "51 finite figures for group ''"),
        (KEPT | {"groups": {"": {"reports": -1, "log_likelihood": [0.0] * 51}}}, "finite figures"),
        (KEPT | {"groups": {"": {"reports": 1, "log_likelihood": [math.nan] * 51}}}, "finite figures"),
        (KEPT | {"groups": {"": {"reports": 1, "log_likelihood": ["a"] * 51}}}, "groups and horizon"),
        (KEPT | {"groups": {"": {"reports": math.inf, "log_likelihood": [0.0] * 51}}}, "finite figures"),
    ],
)
def test_other_records_are_refused(record: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        PriorEvidence.of_json(record)
    assert "\n" not in str(refused.value)


def test_the_laws_that_are_compared_are_those_of_their_version() -> None:
    """Kept evidence is of these, in this order: change them only with the version."""
    assert len(LAWS) == 51
    assert prior_evidence.VERSION == 1
    first_and_last = [str(family[place]) for family in FAMILIES for place in (0, -1)]
    assert first_and_last == [
        "factors lognormal with sigma 0.05",
        "factors lognormal with sigma 2.2",
        "factors log-Laplace with scale 0.1",
        "factors log-Laplace with scale 0.8",
        "0.03 of the ads liked 3 times as much as the others",
        "0.5 of the ads liked 30 times as much as the others",
        "0.1 of the ads known, lognormal with sigma 0.6",
        "0.5 of the ads known, lognormal with sigma 2",
        "0.1 of the people with a favourite that takes 0.3 of all",
        "1 of the people with a favourite that takes 1 of all",
    ]
    assert LEARNING_SCENARIOS == 512
    assert isinstance(PriorEvidence().prior(), LearntPrior)
