"""A market run from its configuration: arms that learn as they go, what they keep, charges by their plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.data import made_up_auctions
from tacit.deliver.auction import learning_choices, simulation
from tacit.deliver.auction.blocks import AuctionBlock, Rates, make_offers, take_auctions
from tacit.deliver.auction.config import SimulationConfig, build_arms, parse_simulation
from tacit.deliver.auction.learning_choices import FIRST_PART, LearningRule, learning_parts
from tacit.deliver.auction.logs import generated_blocks
from tacit.deliver.auction.market import measure, private_scores
from tacit.deliver.auction.simulation import SimulatedMarket, run_simulation
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, LearntPrior
from tacit.entropy import Simulation
from tacit.errors import BadInput

FEW = 64


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts end at 64, 128, 256..., so that a short market learns several times."""
    monkeypatch.setattr(learning_choices, "FIRST_PART", FEW)


def asked(
    kind: str = "display", auctions: int = 200, *, charges: str | None = None, **choice: Any
) -> SimulationConfig:
    given = {"mechanism": "trunc", "epsilon": [2, 5], **choice}
    record: dict[str, Any] = {
        "market": {"generated": kind, "auctions": auctions, "seed": 3},
        "choice": [given],
    }
    if charges is not None:
        record["charges"] = {"file": "charges.parquet", "choice": charges, "seed": 5}
    return parse_simulation(record, Path())


def blocks_of(config: SimulationConfig) -> list[AuctionBlock]:
    return list(generated_blocks(*made_up_auctions(config.market)))  # type: ignore[arg-type]


def test_parts_are_the_same_auctions_and_end_where_their_number_has_doubled() -> None:
    whole = blocks_of(asked(auctions=20_000))
    parts = list(learning_parts(whole))
    assert np.cumsum([part.public.count for part in parts]).tolist() == [
        FIRST_PART, 2 * FIRST_PART, 4 * FIRST_PART, 8 * FIRST_PART, 16 * FIRST_PART, 32 * FIRST_PART, 20_000,
    ]  # fmt: skip
    for column in ("bid_micros", "campaign", "event_rate"):
        once = np.concatenate([getattr(block.public, column) for block in whole])
        again = np.concatenate([getattr(part.public, column) for part in parts])
        np.testing.assert_array_equal(once, again)
    names = np.concatenate([part.public.names.some(np.arange(part.public.count)) for part in parts])
    np.testing.assert_array_equal(names, np.arange(20_000))


def test_taken_auctions_keep_all_of_their_columns() -> None:
    (block,) = blocks_of(asked(auctions=50))
    block = replace(block, truth=Rates(block.private.click / 2), user=np.arange(50))
    places = np.array([3, 4, 17, 49])
    few = take_auctions(block, places)
    assert few.public.count == 4
    assert few.user is not None
    assert few.user.tolist() == places.tolist()
    for at, place in enumerate(places.tolist()):
        old = slice(*block.public.offsets[[place, place + 1]])
        new = slice(*few.public.offsets[[at, at + 1]])
        assert few.public.names.of(at) == str(place)
        for name in ("bid_micros", "campaign", "event_rate"):
            np.testing.assert_array_equal(getattr(few.public, name)[new], getattr(block.public, name)[old])
        assert few.truth is not None
        assert block.truth is not None
        np.testing.assert_array_equal(few.truth.click[new], block.truth.click[old])
        np.testing.assert_array_equal(few.private.click[new], block.private.click[old])


@pytest.mark.usefixtures("short_parts")
def test_where_people_differ_less_than_is_assumed_learning_keeps_more() -> None:
    found = run_simulation(asked("search", 400, epsilon=[5]), made_up_auctions)
    for each in found.planned:
        assert isinstance(each.learnt, LearntPrior)
        assert each.assumed == DEFAULT_PRIOR
        assert each.reports > 150
        assert each.kept is not None
        assert each.kept_assumed is not None
        assert each.kept_hindsight is not None
        assert each.kept_assumed < each.kept < each.kept_hindsight
        assert each.hindsight == Spread(0.3)


@pytest.mark.usefixtures("short_parts")
def test_shares_of_a_short_market_are_those_of_its_figures() -> None:
    found = run_simulation(asked(), made_up_auctions)

    def share(results: Any, arm: str) -> float:
        public, greedy = (results.mean(end, "welfare") for end in ("non-personalised", "greedy"))
        return float((results.mean(arm, "welfare") - public) / (greedy - public))

    for each in found.planned:
        assert each.judged == 200
        assert each.kept == pytest.approx(share(found.results, each.arm))
    fixed = run_simulation(asked(prior="assumed"), made_up_auctions)
    for each, learnt in zip(fixed.planned, found.planned, strict=True):
        assert each.learnt is None
        assert each.kept == pytest.approx(each.kept_assumed)
        assert each.kept_assumed == pytest.approx(learnt.kept_assumed)


@pytest.mark.usefixtures("short_parts")
def test_runs_are_told_by_their_seed_and_others_learn_otherwise() -> None:
    first, again, other = (
        run_simulation(config, made_up_auctions) for config in (asked(), asked(), asked(learning_seed=9))
    )
    assert [each.learnt for each in first.planned] == [each.learnt for each in again.planned]
    assert [each.learnt for each in first.planned] != [each.learnt for each in other.planned]
    for arm in first.results.arms:
        assert first.results.mean(arm, "welfare") == again.results.mean(arm, "welfare")


def shown_ranks(market: SimulatedMarket) -> list[int]:
    return [rank for shown in market.shown() for rank in shown.rank.tolist()]


@pytest.mark.usefixtures("short_parts")
def test_charges_are_drawn_by_the_plans_of_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    config = asked(charges="trunc at 5")
    found = run_simulation(config, made_up_auctions)
    planned: list[Any] = []
    drawn = LearningRule.choose

    def choose(rule: LearningRule, *given: Any) -> Any:
        planned.append(rule.prior)
        return drawn(rule, *given)

    monkeypatch.setattr(LearningRule, "choose", choose)
    first = shown_ranks(found)
    assert planned[0] == DEFAULT_PRIOR
    assert len({str(prior) for prior in planned}) == len(planned) == 3, "a part each: to 64, 128 and 200"
    assert shown_ranks(found) == first
    # The plans of the pass that measured, once more and by hand.
    arms = build_arms(config)
    seen: list[Any] = []
    for part in simulation._learning(blocks_of(config), arms):
        seen.append(arms["trunc at 5"].choice.prior)  # type: ignore[attr-defined]
        measure([part], arms)
    assert planned[: len(seen)] == seen


@pytest.mark.usefixtures("short_parts")
def test_no_part_is_planned_by_itself_or_by_what_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    config = asked(charges="trunc at 5")
    (whole,) = blocks_of(config)
    first = shown_ranks(run_simulation(config, made_up_auctions))
    turned = whole.private.click.copy()
    begin = int(whole.public.offsets[2 * FEW])
    turned[begin:] = turned[begin:][::-1]  # other people from the third part on
    others = replace(whole, private=Rates(turned))
    monkeypatch.setattr(simulation, "generated_blocks", lambda *_: iter([others]))
    again = shown_ranks(run_simulation(config, made_up_auctions))
    assert first[: 2 * FEW] == again[: 2 * FEW]
    assert first[2 * FEW :] != again[2 * FEW :]


def test_an_auction_spends_no_more_than_was_asked_whatever_is_learnt() -> None:
    (block,) = blocks_of(asked("search", auctions=60))
    rule = LearningRule(2, Simulation(1).words)
    for _ in range(3):
        offers = make_offers(block.public, asked().rules)
        assert 0 < rule.epsilon(offers).max() <= 2
        rule.learn(offers, private_scores(block, offers))
    assert rule.evidence.reports > 60


def test_a_market_that_is_made_up_needs_somebody_who_makes_it() -> None:
    with pytest.raises(BadInput, match="expected make_auctions for a generated market"):
        run_simulation(asked())
    with pytest.raises(BadInput, match=r"expected a configuration with \[charges\], got none"):
        next(run_simulation(asked(auctions=20), made_up_auctions).shown())


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"spread": 1.0, "prior": "learnt"}, "choice 1.prior: expected no such key beside spread"),
        ({"spread": 1.0, "learning_seed": 1}, "choice 1.learning_seed: expected no such key beside spread"),
        ({"prior": "assumed", "learning_seed": 1}, "expected no such key where the prior is assumed"),
        ({"prior": "guessed"}, "expected one of learnt, assumed, got 'guessed'"),
        ({"mechanism": "rr", "prior": "learnt"}, "expected only keys that rr reads"),
    ],
)
def test_priors_that_cannot_be_meant_are_refused(choice: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        asked(**choice)
    assert words in str(refused.value)
