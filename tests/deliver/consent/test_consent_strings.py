"""Consent strings are read as their specifications write them, and refused wherever they are not."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.consent.gpp_string import GppString, UsNational, UsPrivacy
from tacit.deliver.consent.tc_string import TcString
from tacit.errors import BadInput
from tests.support.consent_strings import characters, gpp_string, number, tc_string, us_national

# Examples of the TCF's and the GPP's own documents, and what they say of them.
CORE = "COvFyGBOvFyGBAbAAAENAPCAAOAAAAAAAAAAAEEUACCKAAA"
TOLD = (
    "IFoEUQQgAIQwgIwQABAEAAAAOIAACAIAAAAQAIAgEAACEAAAAAgAQBAAAAAAAGBAAgAAAAAAAFAAECAAAgAAQARAEQAAAAAJ"
    "AAIAAgAAAYQEAAAQmAgBC3ZAYzUw"
)
EMPTY = "CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA"


def test_reads_the_frameworks_own_example() -> None:
    said = TcString.parse(f"{CORE}.{TOLD}")
    assert (said.cmp_id, said.vendor_list_version, said.policy_version) == (27, 15, 2)
    assert said.updated == 1_582_243_059
    assert (sorted(said.purposes), sorted(said.interests)) == ([1, 2, 3], [])
    assert [each for each in range(1, 1000) if each in said.vendors] == [2, 6, 8]
    assert [each for each in range(1, 1000) if each in said.vendor_interests] == [2, 6, 8]
    assert said.disclosed is not None
    assert {2, 6, 8, 12, 18, 23} <= {each for each in range(1, 100) if each in said.disclosed}
    assert said.consents(vendor=2, purpose=1)
    assert not said.consents(vendor=2, purpose=4)
    assert not said.consents(vendor=3, purpose=1)
    assert not said.has_interest(vendor=2, purpose=2)


def test_reads_the_platforms_own_examples() -> None:
    assert GppString.parse(f"DBABMA~{EMPTY}").sections == {2: EMPTY}
    assert GppString.parse(f"DBACNYA~{EMPTY}~1YNN").sections == {2: EMPTY, 6: "1YNN"}
    assert GppString.parse(f"DBABjw~{EMPTY}~1YNN").sections == {5: EMPTY, 6: "1YNN"}
    assert not TcString.parse(EMPTY).purposes


PURPOSES = st.frozensets(st.integers(1, 24))
VENDORS = st.lists(st.integers(1, 2000), max_size=6, unique=True)


@given(PURPOSES, PURPOSES, VENDORS, VENDORS, st.none() | VENDORS, st.booleans(), st.booleans())
def test_every_string_says_what_was_written(
    purposes: frozenset[int],
    interests: frozenset[int],
    vendors: list[int],
    vendor_interests: list[int],
    disclosed: list[int] | None,
    treated: bool,
    ranges: bool,
) -> None:
    said = TcString.parse(
        tc_string(
            purposes=purposes, interests=interests, vendors=vendors, vendor_interests=vendor_interests,
            disclosed=disclosed, purpose_one_treatment=treated, ranges=ranges,
        )
    )  # fmt: skip
    assert (said.purposes, said.interests, said.hidden_purpose_one) == (purposes, interests, treated)
    for vendor in {1, 2, 2000, *vendors, *vendor_interests}:
        told = disclosed is None or vendor in disclosed
        for purpose in (1, 2, 3, 7):
            agreed = purpose in purposes and vendor in vendors and told and not (purpose == 1 and treated)
            assert said.consents(vendor=vendor, purpose=purpose) is agreed
            based = purpose in interests and vendor in vendor_interests and told and purpose in (2, 7)
            assert said.has_interest(vendor=vendor, purpose=purpose) is based


def test_what_a_publisher_restricts_counts_whatever_people_said() -> None:
    def said(kind: int) -> TcString:
        return TcString.parse(
            tc_string(interests=[2, 7], vendor_interests=[755], restrictions=[(2, kind, [5, 755])])
        )

    answers = {
        kind: (said(kind).consents(vendor=755, purpose=2), said(kind).has_interest(vendor=755, purpose=2))
        for kind in (0, 1, 2)
    }
    assert answers == {0: (False, False), 1: (True, False), 2: (False, True)}
    assert said(0).consents(vendor=755, purpose=3)  # of another purpose nothing was said


GOOD = tc_string()


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "A", "not a string", f"{CORE}=", f"{CORE} ", f"+{CORE[1:]}", f"{CORE}é",
        tc_string(version=1), tc_string(version=3), CORE[:-4], f"{CORE}B", f"{GOOD}.", f"{GOOD}.{TOLD}",
        f"{CORE}.{characters(number(4, 3) + number(0, 17))}", tc_string(created=9, updated=8),
        tc_string(restrictions=[(2, 3, [1])]), tc_string(restrictions=[(0, 1, [1])]), "C" * 70_000,
    ],
)  # fmt: skip
def test_what_is_no_tc_string_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        TcString.parse(text)


def test_ranges_beyond_their_largest_id_are_refused() -> None:
    head = GOOD.split(".")[0]
    assert TcString.parse(head).disclosed is None
    bad = characters(number(1, 3) + number(5, 16) + "1" + number(1, 12) + "1" + number(4, 16) + number(6, 16))
    with pytest.raises(BadInput, match="ranges of vendors"):
        TcString.parse(f"{head}.{bad}")


@given(st.dictionaries(st.integers(1, 60), st.sampled_from(["1YNN", EMPTY, "x"]), min_size=1, max_size=6))
def test_every_header_lists_its_sections(sections: dict[int, str]) -> None:
    assert GppString.parse(gpp_string(sections)).sections == sections


@pytest.mark.parametrize(
    "text",
    ["", "DBABMA", "DBABMA~", f"DBABMA~{EMPTY}~1YNN", "DBACNYA~x", "CBABMA~x", "DCABMA~x", "DB~x",
     "DBABAAAAAAAAA~x", "DBABj" + "_" * 40 + "~x"],
)  # fmt: skip
def test_what_is_no_gpp_string_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        GppString.parse(text)


@pytest.mark.parametrize(
    ("text", "applies", "allows"),
    [("1YNN", True, True), ("1YNY", True, True), ("1YYN", True, False), ("1NNN", True, False),
     ("1---", False, False), ("1Y-N", True, False), ("1-N-", True, False)],
)  # fmt: skip
def test_us_privacy_strings(text: str, applies: bool, allows: bool) -> None:
    said = UsPrivacy.parse(text)
    assert (said.applies, said.allows_personal) == (applies, allows)


@pytest.mark.parametrize("text", ["", "1YN", "2YNN", "1ynn", "1YNX", "1YNNN"])
def test_what_is_no_us_privacy_string_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        UsPrivacy.parse(text)


@pytest.mark.parametrize("version", [1, 2])
def test_the_us_national_section_allows_what_nobody_opted_out_of(version: int) -> None:
    def allows(**fields: object) -> bool:
        return UsNational.parse(us_national(version=version, **fields)).allows_personal  # type: ignore[arg-type]

    assert allows()
    assert allows(gpc=False)
    assert allows(opt_outs=(0, 0, 2), notices=(1, 0, 0, 1))  # neither sold nor shared
    for fields in (
        {"opt_outs": (1, 2, 2)}, {"opt_outs": (2, 1, 2)}, {"opt_outs": (2, 2, 1)}, {"opt_outs": (2, 2, 0)},
        {"notices": (1, 1, 1, 2)}, {"notices": (1, 1, 1, 0)}, {"notices": (2, 1, 1, 1)}, {"gpc": True},
        {"children": (0, 2)}, {"children": (1,)}, {"personal_data": 1}, {"mspa": (1, 0, 1)},
    ):  # fmt: skip
        assert not allows(**fields), fields


@pytest.mark.parametrize(
    "text",
    [us_national(version=3), us_national(notices=(3, 1, 1, 1)), us_national()[:-2], us_national() + "B",
     us_national(gpc=False) + ".YA", us_national() + "." + characters("000"), ""],
)  # fmt: skip
def test_what_is_no_us_national_section_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        UsNational.parse(text)


URL_SAFE = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~", max_size=120)


@given(URL_SAFE | st.text(max_size=40))
def test_whatever_comes_is_read_or_refused(text: str) -> None:
    for parse in (TcString.parse, GppString.parse, UsPrivacy.parse, UsNational.parse):
        with suppress(BadInput):
            parse(text)
