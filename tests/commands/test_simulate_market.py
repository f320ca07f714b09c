"""From a simulation's words to what runs and is written: every setting counts, and nothing falls through."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.commands.simulate_config import MECHANISMS, PRICES, Chooser, SimulationConfig, parse_simulation
from tacit.commands.simulate_market import MAKERS, build_arms
from tacit.commands.simulate_output import choice_record, show_epsilon, table_footer, write_charges
from tacit.deliver.auction.blocks import EVENT_CODES, AuctionBlock, PublicCandidates, Rates, make_offers
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED, Greedy, NonPersonalised, TopChoiceRule
from tacit.deliver.auction.market import Arm, measure, private_scores, show_block
from tacit.deliver.auction.metrics import METRICS
from tacit.deliver.auction.noisy_choices import NoisyMaxRule
from tacit.deliver.auction.planned_choices import planned_rule
from tacit.deliver.protocol.forecasts import Spread
from tacit.deliver.protocol.prices import BillingEvent, FirstPrice, PriceRule, Rules, SecondPrice
from tacit.entropy import Simulation
from tacit.privacy.choice.noise import Noise
from tacit.schema.impressions import DUE_ON
from tests.support.auction_blocks import smooth_block


def config(text: str) -> SimulationConfig:
    return parse_simulation(tomllib.loads(f'[market]\ngenerated = "display"\n{text}'), Path())


def choice(mechanism: str, **settings: object) -> str:
    """A [[choice]] named x, in TOML."""
    lines = [f"{key} = {str(value).lower()}" for key, value in settings.items()]
    return "\n".join(["[[choice]]", 'name = "x"', f'mechanism = "{mechanism}"', *lines, ""])


@pytest.mark.parametrize(
    ("text", "arm"),
    [
        (choice("rr", epsilon=1), Arm(TopChoiceRule(1.0))),
        (choice("rr", epsilon=1, kept=4, top=2), Arm(TopChoiceRule(1.0, kept=4, top=2))),
        (choice("rr", epsilon=1, gamma=0.8), Arm(TopChoiceRule(1.0), Rules(cutoff=0.8))),
        (choice("rr", epsilon=1, gamma=0), Arm(TopChoiceRule(1.0), Rules(cutoff=0.0))),
        (choice("gumbel", epsilon=5, clip=0.5), Arm(NoisyMaxRule(5.0, Noise.GUMBEL, clip_micros=500_000.0))),
        (choice("laplace", epsilon=2, calibrated=True), Arm(NoisyMaxRule(2.0, Noise.LAPLACE, calibrated=True))),
        (choice("exponential", epsilon=2), Arm(NoisyMaxRule(2.0, Noise.EXPONENTIAL))),
    ],
)
def test_a_choice_has_every_setting_that_was_asked(text: str, arm: Arm) -> None:
    found = build_arms(config(text))
    assert found == {NON_PERSONALISED: Arm(NonPersonalised()), GREEDY: Arm(Greedy()), "x": arm}


def test_a_planned_choice_has_the_spread_that_was_asked() -> None:
    block = smooth_block(1, 40)
    offers = make_offers(block.public, Rules())
    scores = private_scores(block, offers)

    def law(*lines: str) -> list[float]:
        text = "\n".join(['[[choice]]\nmechanism = "trunc"\nname = "x"\nepsilon = 3', *lines])
        law: list[float] = build_arms(config(text))["x"].choice.pmf(offers, scores).tolist()
        return law

    for spread in (0.3, 0.9):
        assert law(f"spread = {spread}") == planned_rule(Spread(spread), 3).pmf(offers, scores).tolist()
    assert law() == law("spread = 0.3") != law("spread = 0.9")


def test_every_mechanism_has_its_own_maker_and_no_other_is_made() -> None:
    assert MAKERS.keys() == MECHANISMS.keys()
    added = replace(config(""), choosers=(Chooser("floors at 3", "floors", 3.0, None),))
    with pytest.raises(KeyError, match="floors"):
        build_arms(added)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", Rules()),
        ('price = "first"', Rules(FirstPrice())),
        ('price = "second"\ncharged = "impression"', Rules(SecondPrice(BillingEvent.IMPRESSION))),
        ('price = "first"\ncharged = "impression"', Rules(FirstPrice(BillingEvent.IMPRESSION))),
        ("reserve_micros = 70\nempty_worth_micros = 30.5", Rules(reserve_micros=70, empty_worth_micros=30.5)),
        ("empty_worth_micros = 0", Rules(empty_worth_micros=0.0)),
        ("gamma = 0.4", Rules(cutoff=0.4)),
        ("gamma = 0", Rules(cutoff=0.0)),
    ],
)
def test_the_auction_has_every_rule_that_was_asked(text: str, rules: Rules) -> None:
    found = config(f"[auction]\n{text}\n" + choice("rr", epsilon=1, gamma=0.7))
    assert found.rules == rules
    arms = build_arms(found)
    assert arms[GREEDY].rules == arms[NON_PERSONALISED].rules == rules
    assert arms["x"].rules == replace(rules, cutoff=0.7)


def test_every_price_rule_has_its_word() -> None:
    assert set(PRICES.values()) == set(get_args(PriceRule))
    for word, rule in PRICES.items():
        assert type(config(f'[auction]\nprice = "{word}"\n').rules.price) is rule


def _two_kinds() -> AuctionBlock:
    """Two candidates, the privately best of public rank 2; bids for a click and for an impression."""
    kinds = np.array([EVENT_CODES[kind] for kind in EVENT_CODES][:2][::-1], np.uint8)
    public = PublicCandidates(
        np.array([0, 2]), np.array([1000, 200]), Rates(np.array([0.5, 0.5])), kinds, np.array([4, 5])
    )
    return AuctionBlock(public, Rates(np.array([0.1, 0.5])))


def test_charges_of_several_blocks_are_one_bill(tmp_path: Path) -> None:
    blocks, arm = [smooth_block(seed, 60) for seed in (1, 2, 3)], Arm(TopChoiceRule(2.0))
    place = tmp_path / "charges.parquet"
    written = write_charges(blocks, arm, Simulation("bill").words, place, pa.int64())
    words = Simulation("bill").words  # the same choices, one block after the other
    shown = [show_block(block, arm, words) for block in blocks]
    table = pq.read_table(place)
    for column, name in (("price_micros", "price_micros"), ("campaign", "campaign")):
        expected = np.concatenate([getattr(each, name) for each in shown])
        np.testing.assert_array_equal(table[column].to_numpy(), expected)
    ranks = np.concatenate([each.rank for each in shown])
    np.testing.assert_array_equal(table["public_rank"].to_numpy(), ranks + 1)
    assert ranks.min() == 0 < ranks.max()
    campaigns = table["campaign"].to_numpy()
    assert len(np.unique(campaigns)) < sum(len(np.unique(each.campaign)) for each in shown), "some come again"
    assert written.lines == table.num_rows == 180
    assert written.campaigns == len(np.unique(campaigns))
    assert written.total_micros == int(table["price_micros"].to_numpy().sum())


def test_a_line_says_its_rank_from_1_and_what_it_is_due_on(tmp_path: Path) -> None:
    lines = []
    for rule in (NonPersonalised(), Greedy()):
        place = tmp_path / f"{type(rule).__name__}.parquet"
        arm = Arm(rule, Rules(FirstPrice()))
        write_charges([_two_kinds()], arm, Simulation(1).words, place, pa.int64())
        lines += pq.read_table(place).to_pylist()
    public, private = lines
    assert (public["public_rank"], public["campaign"], public["due_on"]) == (1, 4, "click")
    assert (private["public_rank"], private["campaign"], private["due_on"]) == (2, 5, "impression")
    assert tuple(DUE_ON[code] for code in EVENT_CODES.values()) == tuple(EVENT_CODES)


def test_a_record_has_the_interval_of_its_lift() -> None:
    arms = {NON_PERSONALISED: Arm(NonPersonalised()), "rr": Arm(TopChoiceRule(3.0))}
    results = measure([smooth_block(2, 300)], arms)
    record = choice_record(results, "rr")
    for metric in METRICS:
        value, error = results.lift("rr", NON_PERSONALISED, metric)
        mean, own = results.mean("rr", metric), results.standard_error("rr", metric)
        assert record["ctr" if metric == "clicks" else metric] == pytest.approx(
            {
                "value": mean, "low": mean - 1.96 * own, "high": mean + 1.96 * own,
                "lift": value, "lift_low": value - 1.96 * error, "lift_high": value + 1.96 * error,
            }
        )  # fmt: skip
        assert error > 0


def test_an_epsilon_that_was_only_asked_is_not_called_a_bound() -> None:
    arms = {NON_PERSONALISED: Arm(NonPersonalised()), GREEDY: Arm(Greedy()), "rr": Arm(TopChoiceRule(3.0))}
    block = smooth_block(2, 20)
    bounds = measure([block], arms)
    assert "sked" not in table_footer(bounds)
    results = measure([block], {**arms, "noisy": Arm(NoisyMaxRule(3.0))})
    assert [show_epsilon(results, arm) for arm in results.arms] == ["0", "no privacy", "3", "3 asked"]
    assert "Asked: for measuring only, and no bound on what a choice tells." in table_footer(results)
    assert [choice_record(results, arm)["measured_only"] for arm in results.arms] == [False, False, False, True]
