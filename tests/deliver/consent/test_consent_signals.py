"""What follows from a request's signals: in doubt nothing is personal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.consent.signals import ConsentSignals, ConsentVerdict, decide_consent
from tacit.errors import BadInput
from tests.support.consent_strings import gpp_string, tc_string, us_national

VENDOR = 755
AGREED = tc_string()
EU = ConsentSignals(gdpr=1, tc_string=AGREED)


def verdict(signals: ConsentSignals, vendor: int | None = VENDOR) -> ConsentVerdict:
    found = decide_consent(signals, vendor=vendor)
    assert found.personal is (found.verdict is ConsentVerdict.ALLOWED)
    return found.verdict


def says(**signals: Any) -> ConsentVerdict:
    return verdict(ConsentSignals(**signals))


def test_says_yes_where_everything_that_applies_does() -> None:
    eu, us = gpp_string({2: AGREED}), gpp_string({7: us_national()})
    for signals in (
        EU, ConsentSignals(gdpr=0), ConsentSignals(tc_string=AGREED), ConsentSignals(gdpr=1, gpp=eu),
        ConsentSignals(gpp=eu, gpp_sid=(2,)), ConsentSignals(gpp=us, gpp_sid=(7,)), ConsentSignals(gpp=us),
        ConsentSignals(us_privacy="1YNN"), ConsentSignals(gdpr=0, us_privacy="1---"),
        ConsentSignals(gpp=gpp_string({6: "1YNN"}), gpp_sid=(6,)), replace(EU, coppa=0, lmt=0, dnt=0),
        ConsentSignals(gdpr=0, gpp=gpp_string({2: tc_string(purposes=[])}), gpp_sid=(-1,)),
    ):  # fmt: skip
        assert verdict(signals) is ConsentVerdict.ALLOWED, signals


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"coppa": 1}, ConsentVerdict.CHILD),
        ({"coppa": "no"}, ConsentVerdict.CHILD),
        ({"lmt": 1}, ConsentVerdict.LIMITED),
        ({"dnt": 1}, ConsentVerdict.LIMITED),
        ({"tc_string": None}, ConsentVerdict.MISSING),
        ({"tc_string": ""}, ConsentVerdict.MISSING),
        ({"tc_string": "garbage"}, ConsentVerdict.UNREADABLE),
        ({"tc_string": AGREED[:-1] + "~"}, ConsentVerdict.UNREADABLE),
        ({"gpp": "garbage"}, ConsentVerdict.UNREADABLE),
        ({"gpp": gpp_string({2: tc_string(purposes=[1, 2])})}, ConsentVerdict.NOT_GIVEN),
        ({"gpp": gpp_string({8: "BAAAAAAA"}), "gpp_sid": (8,)}, ConsentVerdict.UNKNOWN_SECTION),
        ({"gpp_sid": (7,)}, ConsentVerdict.MISSING),
        ({"gpp": gpp_string({7: us_national(gpc=True)}), "gpp_sid": (7,)}, ConsentVerdict.OPTED_OUT),
        ({"us_privacy": "1YYN"}, ConsentVerdict.OPTED_OUT),
        ({"us_privacy": "yes"}, ConsentVerdict.UNREADABLE),
        ({"tc_string": tc_string(vendors=[754])}, ConsentVerdict.NOT_GIVEN),
        ({"tc_string": tc_string(disclosed=[754])}, ConsentVerdict.NOT_GIVEN),
        ({"tc_string": tc_string(purpose_one_treatment=True)}, ConsentVerdict.NOT_GIVEN),
        ({"tc_string": tc_string(restrictions=[(4, 0, [755])])}, ConsentVerdict.NOT_GIVEN),
    ],
)
def test_one_signal_that_does_not_allow_it_is_enough(changed: dict[str, Any], expected: ConsentVerdict) -> None:
    assert verdict(replace(EU, **changed)) is expected


def test_nothing_said_is_no_yes() -> None:
    assert says() is ConsentVerdict.UNSAID
    assert says(us_privacy="1---") is ConsentVerdict.UNSAID
    assert says(coppa=0, lmt=0, dnt=0) is ConsentVerdict.UNSAID
    assert says(gdpr=1) is ConsentVerdict.MISSING
    assert says(gdpr=2, tc_string=None) is ConsentVerdict.MISSING
    assert says(gpp_sid=(2,)) is ConsentVerdict.MISSING
    assert says(gdpr=0, gpp_sid=(2,)) is ConsentVerdict.MISSING


def test_a_vendor_that_nobody_was_asked_about_has_no_consent() -> None:
    assert verdict(EU, None) is ConsentVerdict.NO_VENDOR
    assert verdict(EU, 754) is ConsentVerdict.NOT_GIVEN
    assert verdict(ConsentSignals(gdpr=0), None) is ConsentVerdict.ALLOWED
    with pytest.raises(BadInput, match="vendor"):
        decide_consent(EU, vendor=0)


@given(
    st.frozensets(st.integers(1, 10)),
    st.frozensets(st.integers(1, 10)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_purpose_that_is_needed_must_be_there(
    purposes: frozenset[int], interests: frozenset[int], agreed: bool, established: bool, ranges: bool
) -> None:
    text = tc_string(
        purposes=purposes, interests=interests, vendors=[3, VENDOR] if agreed else [3],
        vendor_interests=[VENDOR] if established else [], ranges=ranges,
    )  # fmt: skip
    bases = (purposes if agreed else frozenset()) | (interests & {2, 7} if established else frozenset())
    allowed = agreed and {1, 3, 4} <= purposes and {2, 7} <= bases
    assert (says(gdpr=1, tc_string=text) is ConsentVerdict.ALLOWED) is allowed


TEXTS = st.text(max_size=30) | st.text("ABCDEGIgPQ-_.~1YN", max_size=60)
FLAGS = st.none() | st.integers(0, 2) | st.text(max_size=2)


@given(FLAGS, TEXTS, TEXTS, st.none() | st.lists(st.integers(-2, 30), max_size=3).map(tuple), TEXTS)
def test_garbage_never_says_yes(
    gdpr: Any, text: str, gpp: str, sid: tuple[int, ...] | None, us_privacy: str
) -> None:
    signals = ConsentSignals(
        gdpr=gdpr, tc_string=text or "-", gpp=gpp or "-", gpp_sid=sid, us_privacy=us_privacy
    )
    assert not decide_consent(signals, vendor=VENDOR).personal


@given(st.integers(0, len(AGREED) - 1), st.sampled_from("ABCQ_.~ é"))
def test_a_damaged_character_never_makes_a_yes_of_a_no(place: int, character: str) -> None:
    refused = tc_string(purposes=[1, 2], vendors=[754])
    damaged = refused[:place] + character + refused[place + 1 :]
    assert says(gdpr=1, tc_string=damaged) is not ConsentVerdict.ALLOWED
