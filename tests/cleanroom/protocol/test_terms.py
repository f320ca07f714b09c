"""The terms: one spelling, strict reading; and what each mode promises for one record."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from tacit.cleanroom.protocol import modes
from tacit.cleanroom.protocol.modes import Join, Mode, NoiseLaw
from tacit.cleanroom.protocol.terms import _CHECKS, Terms, format_time, terms_from_toml
from tacit.errors import BadInput
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Amount
from tacit.privacy.units import Relation
from tests.support.room_terms import TOLD, terms

GAUSSIAN: dict[str, Any] = {"mode": Mode.NOISED, "delta": "1e-6"}
EVERY_MODE = [
    terms(),
    terms(mode="release", tasks=["conversion", "cart", "engaged"]),
    terms(**GAUSSIAN, releases_per_record=3, clip_norm=0.5),
    terms(mode="noised", noise="laplace", releases_per_record=4),
    terms(mode="statistic", delta=1e-6),
    terms(join="psi", most_ids=1000, window=-3, label_version=2),
]


def test_every_field_has_a_check() -> None:
    assert set(_CHECKS) == {field.name for field in fields(Terms)}


@pytest.mark.parametrize("each", EVERY_MODE, ids=lambda each: f"{each.mode}-{each.noise}-{each.join}")
def test_terms_survive_being_written(each: Terms) -> None:
    again = Terms.from_bytes(each.to_bytes())
    assert again == each
    assert again.to_bytes() == each.to_bytes()
    assert again.digest == each.digest
    assert Terms.from_json(json.loads(each.to_bytes())) == each


@given(
    epsilon=st.integers(10**6, 40 * 10**9).map(lambda n: Fraction(n, 10**9)),
    batch=st.integers(1, 2**40),
    tasks=st.lists(st.sampled_from("abcd"), min_size=1, unique=True),
    clip=st.floats(1e-9, 1e9),
    other=st.integers(10**6, 40 * 10**9).map(lambda n: Fraction(n, 10**9)),
)
@settings(max_examples=60, deadline=None)
def test_terms_are_equal_exactly_where_their_bytes_are(
    epsilon: Fraction, batch: int, tasks: list[str], clip: float, other: Fraction
) -> None:
    one = terms(epsilon=epsilon, smallest_batch=batch, tasks=tasks, clip_norm=clip)
    assert Terms.from_bytes(one.to_bytes()) == one
    two = replace(one, epsilon=other)
    assert (one == two) == (one.to_bytes() == two.to_bytes()) == (one.digest == two.digest)


def test_numbers_are_as_they_were_written() -> None:
    one = terms(**GAUSSIAN, epsilon=0.1)
    assert (one.epsilon, one.delta) == (Fraction(1, 10), Fraction(1, 10**6))
    assert one.as_json()["epsilon"] == "1/10"
    assert one.budget == Budget(Fraction(1, 10), Fraction(1, 10**6))
    # A ledger in whole parts can be granted and charged just this: it rounds neither.
    assert Amount.limit(one.budget) == Amount.spending(one.budget)


WRONG: dict[str, Any] = {
    "begins": "soon", "clip_norm": 1, "codecs": "int8", "delta": "0.0", "dense_sequences": 0, "epsilon": "6/2",
    "expires": 2_000.0, "join": "names", "label_version": -1, "metrics": "yes", "mode": "plain", "most_ids": 0,
    "name": "", "noise": None, "platform": "a b", "platform_key": "A" * 64, "releases_per_record": True,
    "room": "shop\n", "room_key": "00", "smallest_batch": 0, "tasks": ["a", "a"], "window": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("key", sorted(WRONG))
def test_a_wrong_value_is_refused_by_its_key(key: str) -> None:
    with pytest.raises(BadInput, match=rf"\b{key}\b"):
        Terms.from_json({**terms().as_json(), key: WRONG[key]})


def test_wrong_values_are_listed_for_every_field() -> None:
    assert set(WRONG) == {field.name for field in fields(Terms)}


@pytest.mark.parametrize("key", sorted(terms().as_json()))
def test_a_missing_key_is_refused_by_its_name(key: str) -> None:
    told = terms().as_json()
    del told[key]
    with pytest.raises(BadInput, match=key):
        Terms.from_json(told)


@pytest.mark.parametrize("epsilon", [3, 3.0, "1e9999999999", "3.0", " 3", "+3", "3/1", "1_0", "٣", "6/2", "0"])
def test_an_exact_number_has_one_spelling(epsilon: object) -> None:
    with pytest.raises(BadInput, match="epsilon"):
        Terms.from_json({**terms().as_json(), "epsilon": epsilon})


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"[]", b"null", b"\xff", b"[" * 40_000, terms().to_bytes() + b" ",
        b" " + terms().to_bytes(),
        terms().to_bytes().replace(b'"begins":1000', b'"begins":1000,"begins":1000'),
        terms().to_bytes().replace(b'"clip_norm":1.0', b'"clip_norm":NaN'),
        terms().to_bytes().replace(b'"clip_norm":1.0', b'"clip_norm":1.00'), b'"' + b"a" * 2**17 + b'"',
    ],
    ids=range(12),
)  # fmt: skip
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        Terms.from_bytes(data)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_are_other_terms_or_none(data: st.DataObject) -> None:
    whole = bytearray(terms().to_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = Terms.from_bytes(bytes(whole))
    except BadInput:
        return
    assert found.to_bytes() == whole


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"delta": 1e-6}, "delta = 0"),
        ({"mode": "noised"}, "delta from"),
        ({"mode": "statistic"}, "delta from"),
        ({"mode": "noised", "noise": "laplace", "delta": 1e-6}, "delta = 0"),
        ({"mode": "statistic", "noise": "laplace", "delta": 1e-6}, "noise"),
        ({"releases_per_record": 2}, "releases_per_record = 1"),
        ({"expires": 1_000}, "expires after begins, 1970-01-01 00:16:40 UTC, got"),
        ({"join": "psi"}, "most_ids"),
        ({"most_ids": 5}, "most_ids"),
        ({"room": "ads.example"}, "two names"),
        ({"room_key": TOLD["platform_key"]}, "two keys"),
        ({"epsilon": 41}, "epsilon"),
        ({"codecs": ["fp32", "int9"]}, "did you mean 'int8'"),
        ({"epsilon": Fraction(1, 3)}, "billionths"),
    ],
    ids=str,
)
def test_terms_that_cannot_be_meant_are_refused(other: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        terms(**other)


TOML = f"""
name = "spring"
platform = "ads.example"
room = "shop.example"
platform_key = "{TOLD["platform_key"]}"
room_key = "{TOLD["room_key"]}"
epsilon = 0.5
tasks = ["conversion", "cart"]
begins = 1970-01-01T00:16:40Z
expires = 1970-01-01T01:33:20+01:00
"""


def test_terms_are_read_from_toml() -> None:
    assert terms_from_toml(TOML) == terms(epsilon="1/2", tasks=("conversion", "cart"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TOML + "epsilom = 3", "did you mean 'epsilon'"),
        (TOML + "[privacy]\nepsilon = 3", "unknown key 'privacy'"),
        (TOML.replace("room = ", "rooms = "), "unknown key 'rooms'"),
        (TOML.replace('name = "spring"', ""), "name: expected"),
        (TOML.replace("40Z", "40"), "offset"),
        (TOML.replace("epsilon = 0.5", "epsilon = nan"), "epsilon"),
        (TOML.replace("epsilon = 0.5", "epsilon = true"), "epsilon"),
        ("name = ", "expected TOML"),
        (TOML.replace("epsilon = 0.5", 'epsilon = "3"'), "expected epsilon to be a number without quotes"),
        (TOML + 'mode = "plain"', "expected mode to be one of statistic, release, aggregate, noised"),
        (TOML + 'noise = "some"', "expected noise to be one of gaussian, laplace"),
        (TOML + 'join = "names"', "expected join to be one of tokens, psi"),
        (
            TOML.replace('tasks = ["conversion", "cart"]', "tasks = []"),
            "tasks to be a list of at least one name",
        ),
        (TOML.replace("1970-01-01T00:16:40Z", "00:16:40"), "expected begins as a date like"),
        (TOML.replace("1970-01-01T01:33:20+01:00", "1970-01-01"), "got 1970-01-01 00:00:00 UTC"),
    ],
    ids=range(15),
)
def test_toml_that_is_not_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        terms_from_toml(text)


def test_a_date_is_its_midnight_in_utc() -> None:
    dates = TOML.replace("1970-01-01T00:16:40Z", "2026-01-01").replace(
        "1970-01-01T01:33:20+01:00", "2026-06-01"
    )
    read = terms_from_toml(dates)
    assert (read.begins, read.expires) == (1_767_225_600, 1_780_272_000)
    assert format_time(read.expires) == "2026-06-01 00:00:00 UTC"


def test_a_time_beyond_all_calendars_is_shown_as_it_is() -> None:
    assert format_time(253_402_300_799) == "9999-12-31 23:59:59 UTC"
    assert format_time(253_402_300_800) == "Unix second 253402300800"
    assert terms(expires=2**40).why_closed(2**40) == f"EXPIRED on Unix second {2**40}"


def test_why_terms_do_not_hold_is_said_with_the_date() -> None:
    assert [terms().why_closed(now) for now in (999, 1_000, 1_999, 2_000)] == [
        "NOT BEGUN before 1970-01-01 00:16:40 UTC", None, None, "EXPIRED on 1970-01-01 00:33:20 UTC",
    ]  # fmt: skip


def test_terms_hold_from_their_first_second_to_before_their_last() -> None:
    assert [terms().is_open(now) for now in (999, 1_000, 1_999, 2_000)] == [False, True, True, False]


def test_a_token_is_as_long_as_the_join_makes_it() -> None:
    assert (terms().token_bytes, terms(join=Join.PSI, most_ids=9).token_bytes) == (16, 32)


# What is promised.


@pytest.mark.parametrize("each", EVERY_MODE, ids=lambda each: f"{each.mode}-{each.noise}-{each.join}")
def test_the_statement_is_what_was_agreed(each: Terms) -> None:
    stated = each.statement()
    assert stated.relation is Relation.REPLACE_LABEL
    assert stated.delta == float(each.delta)
    # Sums of logarithms that are rounded up may end a few units in the last place above.
    assert 0.99 * float(each.epsilon) <= stated.epsilon <= float(each.epsilon) * (1 + 1e-15 * len(each.tasks))
    text = stated.as_text()
    for gap in (
        "several impressions",
        "from the room",
        "guarantees nothing",
        "how many records",
        "any feature",
    ):
        assert gap in text


def test_tasks_share_epsilon_exactly() -> None:
    one = terms(epsilon=2, tasks=("a", "b", "c"))
    assert one.task_epsilon == Fraction(2, 3)
    assert one.response.epsilon <= 2 / 3 + 1e-15
    assert one.keep == pytest.approx(math.exp(2 / 3) / (1 + math.exp(2 / 3)), rel=1e-12)


def delta_of(noise: float, epsilon: float, releases: int) -> float:
    """Balle, Wang 2018 (arXiv 1805.06530), theorem 8; releases of equal noise are one of noise / sqrt(K)."""
    mu = math.sqrt(releases) / noise
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(
    ("releases", "epsilon", "figure"),
    [(1, 3, 1.54), (1, 5, 0.98), (3, 3, 2.67), (3, 5, 1.70), (10, 3, 4.88), (10, 5, 3.10)],
)
def test_the_noise_is_the_least_that_keeps_the_promise(releases: int, epsilon: int, figure: float) -> None:
    noise = terms(**GAUSSIAN, epsilon=epsilon, releases_per_record=releases).noise_multiplier
    least = brentq(lambda noise: delta_of(noise, epsilon, releases) - 1e-6, 0.1, 50)
    assert round(least, 2) == figure  # what others computed
    assert least <= noise <= 1.003 * least
    assert delta_of(0.997 * noise, epsilon, releases) > 1e-6 > delta_of(noise, epsilon, releases)


def test_noise_is_computed_once() -> None:
    one = terms(**GAUSSIAN, epsilon="7/2")
    first = one.noise_multiplier
    before = modes.gaussian_multiplier.cache_info().hits
    assert replace(one, name="other").noise_multiplier == first
    assert modes.gaussian_multiplier.cache_info().hits == before + 1


def test_laplace_noise_grows_with_releases_and_flips_need_none() -> None:
    one = terms(mode="noised", noise=NoiseLaw.LAPLACE, epsilon=3, releases_per_record=4)
    assert one.noise_multiplier == pytest.approx(4 / 3)
    assert Fraction(one.noise_multiplier) >= Fraction(4, 3)
    assert terms().noise_multiplier == 0


@pytest.mark.parametrize(("epsilon", "percent"), [(3, 17), (5, 60), (8, 97)])
def test_what_a_flip_tells_about_its_label(epsilon: int, percent: int) -> None:
    told = modes.posterior_of_positive(0.01, epsilon)
    assert round(100 * told) == percent
    keep = terms(epsilon=epsilon).keep
    assert told == pytest.approx(0.01 * keep / (0.01 * keep + 0.99 * (1 - keep)), rel=1e-9)  # Bayes


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), 1, 3, 8])
def test_the_best_advantage_is_that_of_reading_the_flip(epsilon: Fraction) -> None:
    assert modes.best_advantage(epsilon) == pytest.approx(2 * terms(epsilon=epsilon).keep - 1, rel=1e-9)
