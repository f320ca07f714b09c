"""Learning priors from reports: chances by the fast way and by their definition, many menus at once, slates."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.arrays import Floats
from tacit.deliver.protocol.factor_laws import SCENARIOS, Spread
from tacit.deliver.protocol.priors import Favourite, Mixture, _shares
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.deliver.server.report_chances import LAWS, LEARNING_SCENARIOS, favoured_shares, outcome_chances
from tacit.privacy.choice.choice import private_ranking
from tacit.privacy.choice.top_choice import TopChoice


def chances_by_definition(law: TopChoice, public: Floats) -> Floats:
    """The mean of the law's exact pmf over the scenarios of each of the laws."""
    drawn = [prior.scores(public[None], LEARNING_SCENARIOS)[:, 0].T for prior in LAWS]
    return np.stack([law.pmf(scores).mean(axis=0) for scores in drawn])


def menus(count: int) -> list[Floats]:
    draws = np.random.default_rng(7)
    found = []
    for at in range(count):
        scores = np.exp(draws.normal(0, (0.0, 0.3, 1.5)[at % 3], 2 + at % 11))
        if at % 4 == 1:
            scores[-1] = 0.0
        if at % 5 == 2:
            scores[1:] = scores[0]  # all alike: ties
        found.append(np.sort(scores)[::-1])
    return [*found, np.zeros(4)]


@pytest.mark.parametrize("public", menus(22), ids=lambda public: f"{len(public)} candidates")
def test_chances_are_those_of_the_definition(public: Floats) -> None:
    for kept in range(2, len(public) + 1):
        for top in range(1, kept):
            law = TopChoice.for_epsilon(2, len(public), kept, top)
            slow = chances_by_definition(law, public)
            # A pmf has a few words left over, which go to the public best: 2^-60 of it.
            np.testing.assert_allclose(outcome_chances(law, public), slow, rtol=1e-12, atol=1e-15)


def test_favoured_are_as_many_as_are_favoured() -> None:
    for public in menus(12):
        for kept in range(2, len(public) + 1):
            for top in range(1, kept):
                np.testing.assert_allclose(favoured_shares(public, kept, top).sum(axis=1), top, rtol=1e-12)


def test_ties_go_to_the_better_public_rank() -> None:
    public = np.array([2.0, 2.0, 2.0])
    for at, law in enumerate(LAWS):
        ranked = private_ranking(law.scores(public[None], LEARNING_SCENARIOS)[:, 0].T)[:, 0]
        exact = np.bincount(ranked, minlength=3) / LEARNING_SCENARIOS
        chances = outcome_chances(TopChoice.for_epsilon(40, 3, 3, 1), public)
        np.testing.assert_allclose(chances[at], exact, atol=1e-12)


def test_many_menus_teach_what_they_teach_one_by_one() -> None:
    draws = np.random.default_rng(3)
    reported = []
    for public in menus(20):
        law = TopChoice.for_epsilon(2, len(public), len(public), 1)
        counts = draws.multinomial(50, law.pmf(public[None] * draws.lognormal(0, 0.5, len(public)))[0])
        reported.append(ReportedRanks(public, law, counts))
    at_once, one_by_one = PriorEvidence().learn(reported), PriorEvidence()
    for each in reported:
        one_by_one = one_by_one.learn([each])
    np.testing.assert_allclose(at_once.posterior(), one_by_one.posterior(), rtol=1e-9)
    assert at_once.reports == one_by_one.reports == 50 * len(reported)


def test_a_mixture_has_the_scenarios_of_its_parts_one_after_another() -> None:
    """However it works them out: as each part says by itself, number by number, of one request and of many."""
    parts = tuple((1.0 + at % 5, law) for at, law in enumerate((*LAWS, Favourite(0.001, 1.0), Spread(0.0))))
    mixture = Mixture(parts)
    shares = _shares([weight for weight, _ in parts], SCENARIOS)
    for public in menus(12):
        for rows in (public[None], np.stack([public, public / 3, 2 * public])):
            each = [law.scores(rows, own) for (_, law), own in zip(parts, shares, strict=True) if own]
            np.testing.assert_array_equal(mixture.scores(rows), np.concatenate(each, axis=2))
    sigmas = Mixture(((1.0, Spread((0.1, 2.0))), (1.0, Mixture(((2.0, Spread(0.3)), (1.0, Spread()))))))
    public = np.array([[2.0, 1.0]])
    both = [sigmas.parts[at][1].scores(public, SCENARIOS // 2) for at in range(2)]
    np.testing.assert_array_equal(sigmas.scores(public), np.concatenate(both, axis=2))
