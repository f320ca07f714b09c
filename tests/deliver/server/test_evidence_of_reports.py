"""What reports say about the prior: chances by definition, kept ones the same, likelihoods that add up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tacit.deliver.protocol.plans import plan_choice
from tacit.deliver.protocol.priors import DEFAULT_PRIOR
from tacit.deliver.server.prior_evidence import (
    DEFAULT_SHARE,
    FAMILIES,
    LAWS,
    LEARNING_SCENARIOS,
    PriorEvidence,
    ReportedRanks,
    log_chances,
    outcome_chances,
)
from tacit.errors import BadInput
from tacit.privacy.choice.top_choice import TopChoice

PUBLIC = np.array([1.0, 0.9, 0.7, 0.2])


@pytest.mark.parametrize(("kept", "top"), [(2, 1), (3, 1), (4, 2)])
def test_chances_are_the_mean_of_the_exact_pmf_over_scenarios(kept: int, top: int) -> None:
    law = TopChoice.for_epsilon(2, 4, kept, top)
    found = outcome_chances(law, PUBLIC)
    for at, prior in enumerate(LAWS):
        drawn = prior.scores(PUBLIC[None], LEARNING_SCENARIOS)[:, 0].T
        assert found[at] == pytest.approx(law.pmf(drawn).mean(axis=0), abs=1e-12), str(prior)
    first = log_chances(law, PUBLIC)
    assert first == pytest.approx(np.log(np.maximum(found, 1e-12)))
    assert log_chances(law, PUBLIC.copy()) is first, "the same menu and law are worked out once"
    assert not first.flags.writeable
    assert not np.array_equal(log_chances(law, 0.5 + PUBLIC / 2), first)


def test_reports_add_up_whatever_their_order_and_only_by_private_laws() -> None:
    law = plan_choice(PUBLIC, None, 3).law
    one, other = (ReportedRanks(PUBLIC, law, counts) for counts in ([50, 30, 0, 0], [10, 60, 0, 0]))
    both = PriorEvidence().learn([ReportedRanks(PUBLIC, law, [60, 90, 0, 0])])
    for order in ([one, other], [other, one]):
        assert PriorEvidence().learn(order).posterior() == pytest.approx(both.posterior())
    assert PriorEvidence().learn([one]).learn([other]).reports == 150
    free = ReportedRanks(PUBLIC, TopChoice.public_best(4), [1000, 0, 0, 0])
    assert both.learn([free]).reports == 150, "who reads nothing private tells nothing"
    kept = json.loads(json.dumps(both.as_json()))
    assert PriorEvidence.of_json(kept).prior() == both.prior()


def test_half_of_what_is_planned_by_stays_the_default() -> None:
    assert PriorEvidence().prior().mixture.parts == ((1.0, DEFAULT_PRIOR),)
    assert PriorEvidence().posterior() == pytest.approx(
        [1 / len(FAMILIES) / len(family) for family in FAMILIES for _ in family]
    )
    law = TopChoice.for_epsilon(5, 4, 4, 1)
    always = PriorEvidence().learn([ReportedRanks(PUBLIC, law, [20_000, 0, 0, 0])]).prior()
    (share, default), *others = always.mixture.parts
    assert (share, default) == (DEFAULT_SHARE, DEFAULT_PRIOR)
    assert sum(weight for weight, _ in others) == pytest.approx(1 - DEFAULT_SHARE, abs=1e-3)


def test_one_report_moves_no_law_against_another_by_more_than_its_epsilon() -> None:
    law = TopChoice.for_epsilon(2, 4, 3, 1)
    for rank in range(3):
        moved = log_chances(law, PUBLIC)[:, rank]
        assert moved.max() - moved.min() <= law.epsilon + 1e-9
    with pytest.raises(BadInput, match="expected reports of the 3 candidates that the law keeps, got rank 3"):
        ReportedRanks(PUBLIC, law, [0, 0, 0, 1])
