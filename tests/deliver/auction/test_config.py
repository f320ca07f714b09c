"""From a simulation's words to what runs: every setting counts, and nothing falls through."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tacit.commands.simulate_output import show_epsilon, table_footer
from tacit.deliver.auction.blocks import make_offers
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED, Greedy, NonPersonalised, TopChoiceRule
from tacit.deliver.auction.config import (
    MAKERS,
    MECHANISMS,
    Chooser,
    SimulationConfig,
    build_arms,
    parse_simulation,
)
from tacit.deliver.auction.market import Arm, measure, private_scores
from tacit.deliver.auction.metrics import METRICS
from tacit.deliver.auction.noisy_choices import NoisyMaxRule
from tacit.deliver.auction.planned_choices import planned_rule
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.prices import PRICES, BillingEvent, FirstPrice, PriceRule, Rules, SecondPrice
from tacit.privacy.choice.noise import Noise
from tacit.schema.impressions import DUE_ON, price_rule_words
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
    assert law() == law("spread = 1.0") != law("spread = 0.3")


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
    assert tuple(PRICES) == ("second", "first")
    for word, rule in PRICES.items():
        assert type(config(f'[auction]\nprice = "{word}"\n').rules.price) is rule
        for charged in BillingEvent:
            said = [price_rule_words(str(rule(charged)), due) for due in DUE_ON]
            assert said == [f"{word} price per {due}" for due in DUE_ON], "a bill says what each line is due on"


def test_a_record_has_the_interval_of_its_lift() -> None:
    arms = {NON_PERSONALISED: Arm(NonPersonalised()), "rr": Arm(TopChoiceRule(3.0))}
    results = measure([smooth_block(2, 300)], arms)
    record = results.record("rr", NON_PERSONALISED)
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
    assert [results.record(arm, NON_PERSONALISED)["measured_only"] for arm in results.arms] == [
        False,
        False,
        False,
        True,
    ]
