"""Own history: the rates by the formula, bounded, pure, and silent about itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.device.context import ClickHistory
from tacit.errors import BadInput
from tests.support.device_cases import ALL_LEVELS, EXACT, PLACES, QUARTER, ROOT, here, histories, node

ADS = (1, 2, 3)
REQUESTS = st.lists(st.tuples(st.sampled_from([*ADS, 8, None]), st.sampled_from(PLACES)), max_size=25)


def plainly(
    requests: list[tuple[int | None, str]], ad: int, place: str, server: float, strength: float
) -> float:
    """The definition, from the list of requests."""
    rate = server
    for levels in ALL_LEVELS:
        there = [each for each, where in requests if here(where).at(levels) == here(place).at(levels)]
        rate = (there.count(ad) + strength * rate) / (len(there) + strength)
    return rate


@given(REQUESTS, st.sampled_from(PLACES), st.integers(1, 12), st.sampled_from([0.5, 4.0]))
def test_rates_are_those_of_the_last_requests_by_the_formula(
    requests: list[tuple[int | None, str]], place: str, most: int, strength: float
) -> None:
    history = ClickHistory(ALL_LEVELS, most, strength)
    for ad, where in requests:
        history = history.without_click(here(where)) if ad is None else history.with_click(ad, here(where))
    kept = requests[-most:]
    assert len(history) == len(kept)
    server = np.array([0.0, 0.3, 1.0])
    found = history.rates(ADS, here(place), server)
    wanted = [plainly(kept, ad, place, rate, strength) for ad, rate in zip(ADS, server.tolist(), strict=True)]
    assert found == pytest.approx(wanted, abs=1e-12)
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert server.tolist() == [0.0, 0.3, 1.0]


def test_counts_of_what_is_forgotten_are_gone() -> None:
    history = ClickHistory(ALL_LEVELS, most=2).with_click(1, here("Cafe"))
    for _ in range(2):
        history = history.with_click(2, here("Gym"))
    assert set(history._seen) == {node("*"), node("New"), node("Gym")}
    assert dict(history._seen[node("*")].clicks) == {2: 2}


def test_a_history_never_changes() -> None:
    empty = ClickHistory(ALL_LEVELS)
    one = empty.with_click(1, here("Cafe"))
    before = one.rates(ADS, here("Cafe"), np.zeros(3)).tolist()
    one.with_click(1, here("Cafe")).with_click(2, here("Cafe"))
    assert one.rates(ADS, here("Cafe"), np.zeros(3)).tolist() == before
    assert len(empty) == 0
    assert empty.rates(ADS, here("Cafe"), np.full(3, 0.2)).tolist() == [0.2] * 3


def test_clicks_count_most_where_they_were_made() -> None:
    history = ClickHistory(ALL_LEVELS).with_click(1, here("Cafe"))
    rates = [float(history.rates((1,), here(place), np.array([0.1]))[0]) for place in PLACES]
    cafe, bakery, gym, pool = rates
    assert cafe > bakery > gym == pool > 0.1


def test_its_text_tells_nothing() -> None:
    texts = {repr(each) for each in histories([1, 2], most_clicks=1)}
    assert len(texts) == 1


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(BadInput, match=r"expected each finer than the one before, got \(2,\) after \(1,\)"):
        ClickHistory((QUARTER, ROOT))
    with pytest.raises(BadInput, match="each finer"):
        ClickHistory((EXACT, EXACT))
    with pytest.raises(BadInput, match="strength > 0"):
        ClickHistory(ALL_LEVELS, strength=0)
    with pytest.raises(BadInput, match="most"):
        ClickHistory(ALL_LEVELS, most=0)
    with pytest.raises(BadInput, match="ad to be a whole number >= 0"):
        ClickHistory(ALL_LEVELS).with_click(-1, here("Cafe"))
    with pytest.raises(BadInput, match="levels of the device's hierarchy"):
        ClickHistory(((5,),)).with_click(1, here("Cafe"))
    with pytest.raises(BadInput, match=r"a rate of the server for each of 3 ads, got \(2,\)"):
        ClickHistory(ALL_LEVELS).rates(ADS, here("Cafe"), np.zeros(2))
