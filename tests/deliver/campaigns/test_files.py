"""Campaigns in TOML and CSV: what is written is read again, and what is wrong is said with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.deliver.campaigns.campaign import (
    AdCampaign,
    BidEvent,
    CampaignStatus,
    ContextBid,
    FrequencyCap,
    Schedule,
)
from tacit.deliver.campaigns.files import (
    CampaignFile,
    FiledCampaign,
    campaigns_as_csv,
    campaigns_as_toml,
    parse_campaign_csv,
    parse_campaign_toml,
    parse_context,
    read_campaign_file,
    spell_context,
)
from tacit.deliver.campaigns.store import Advertiser
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node
from tests.support.ad_campaigns import BEAN, a_campaign

names = (
    st.text(min_size=1, max_size=9)
    | st.text(alphabet="=+-@'\"\\/|;:, #[]{}\u00e9\U0001f3ae a1", min_size=1, max_size=9)
).filter(lambda text: text.isprintable() and bool(text.strip()))  # fmt: skip
nodes = st.lists(st.tuples(st.integers(0, 255), names), min_size=1, max_size=3).map(
    lambda said: Node(tuple(level for level, _ in said), tuple(value for _, value in said))
)
amounts = st.none() | st.integers(0, 2**53)
seconds = st.integers(0, 2**40)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    starts = draw(st.none() | seconds)
    least = 0 if starts is None else starts + 1
    ends = draw(st.none() | st.integers(least, 2**40)) if least <= 2**40 else None
    hours = draw(st.sets(st.integers(0, 167), max_size=12))
    return Schedule(starts, ends, tuple(hours), draw(st.sampled_from([0, -840, 60, 330])))


filed_campaigns = st.builds(
    FiledCampaign,
    st.builds(
        AdCampaign,
        number=st.integers(0, 2**63 - 1),
        advertiser=names,
        title=names,
        event=st.sampled_from(BidEvent),
        bids=st.lists(
            st.builds(ContextBid, st.integers(1, 2**53), st.none() | nodes),
            min_size=1, max_size=3, unique_by=lambda bid: bid.node,
        ).map(tuple),
        status=st.sampled_from(CampaignStatus),
        schedule=schedules(),
        budget_micros=amounts,
        daily_micros=amounts,
        categories=st.lists(names, max_size=3).map(tuple),
        blocked=st.lists(nodes, max_size=2).map(tuple),
        caps=st.lists(
            st.builds(FrequencyCap, st.integers(1, 2**16 - 1), st.integers(1, 2**32 - 1)), max_size=2
        ).map(tuple),
    ),
    version=st.none() | st.integers(1, 2**63 - 1),
)  # fmt: skip
files = st.builds(
    CampaignFile,
    st.lists(
        st.builds(Advertiser, names, names | st.just("")), max_size=2, unique_by=lambda each: each.name
    ).map(tuple),
    st.lists(filed_campaigns, max_size=3, unique_by=lambda each: each.campaign.number).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(files)
def test_what_is_written_is_read_again(filed: CampaignFile) -> None:
    assert parse_campaign_toml(campaigns_as_toml(filed).encode()) == filed
    assert parse_campaign_csv(campaigns_as_csv(filed).encode()) == CampaignFile((), filed.campaigns)


@settings(max_examples=60, deadline=None)
@given(nodes)
def test_a_context_has_one_spelling(node: Node) -> None:
    assert parse_context("context", spell_context(node)) == node


def test_no_cell_is_computed_by_a_spreadsheet() -> None:
    filed = CampaignFile((), (FiledCampaign(a_campaign(advertiser="=1+1", title="@x", categories=["-2"])),))
    lines = campaigns_as_csv(filed).splitlines()
    assert all(not cell.startswith(("=", "+", "-", "@")) for line in lines for cell in line.split(","))
    assert parse_campaign_csv("\n".join(lines).encode()) == filed


TOML = """\
[[advertiser]]
name = "Bean & Leaf"

[[campaign]]
number = 7
version = 2
advertiser = "Bean & Leaf"
title = "Spring roast"
event = "click"
budget_micros = 50_000_000
schedule = { starts = 2027-03-01T01:00:00+01:00, ends = 1_900_000_000, hours = [9] }
bids = [{ micros = 400_000 }, { micros = 650_000, context = { levels = [1, 1], values = ["North", "Food"] } }]

[[campaign]]
advertiser = "Bean & Leaf"
title = "Autumn"
event = "impression"
bids = [{ micros = 90 }]
"""
CSV = """\
number,version,advertiser,title,event,budget_micros,starts,ends,hours,context,bid_micros
7,2,Bean & Leaf,Spring roast,click,50000000,2027-03-01T00:00:00Z,1900000000,9,,400000
,,Bean & Leaf,Autumn,impression,,,,,,90
7,2,Bean & Leaf,Spring roast,click,50000000,2027-03-01T00:00:00Z,1900000000,9,1:North/1:Food,650000
"""


def test_a_file_as_people_write_it(tmp_path: Path) -> None:
    for name, text in (("a.toml", TOML), ("a.csv", CSV), ("b.CSV", "\ufeff" + CSV.replace("\n", "\r\n"))):
        (tmp_path / name).write_text(text)
        found = read_campaign_file(tmp_path / name)
        spring, autumn = found.campaigns
        when = Schedule(1_803_859_200, 1_900_000_000, (9,))
        assert spring == FiledCampaign(a_campaign(schedule={**vars_of(when)}), True, 2)
        assert (autumn.numbered, autumn.version, autumn.campaign.title) == (False, None, "Autumn")
        assert found.advertisers == ((Advertiser(BEAN),) if name.endswith("toml") else ())


def vars_of(when: Schedule) -> dict[str, Any]:
    return {"starts": when.starts, "ends": when.ends, "hours": list(when.hours)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("micros = 90", "micros = 0", "a.toml: campaign 2: micros: expected a bid in"),
        ("micros = 90", 'micros = "90"', "campaign 2: expected micros to be a whole number, got '90'"),
        ('event = "impression"', 'event = "view"', "campaign 2: expected event to be one of"),
        ("number = 7\n", "", "campaign 1: version: expected none without a number"),
        ("version = 2", "version = 0", "campaign 1: expected version to be a whole number >= 1"),
        ("budget_micros =", "budget =", "campaign 1: campaign.budget: .*did you mean 'budget_micros'"),
        ("+01:00", "", "campaign 1: schedule: expected whole seconds with their offset"),
        ("2027-03-01T01:00:00+01:00", "2027-03-01", "campaign 1: .*schedule.starts"),
        ('name = "Bean & Leaf"', 'name = ""', "advertiser 1: name: expected a printable text"),
        (
            "[[campaign]]\nadvertiser",
            "[[campaign]]\nnumber = 7\nadvertiser",
            "campaign: expected each once, got 7 twice",
        ),
        ("[[advertiser]]", "[advertiser]", r"advertiser: expected tables \[\[advertiser\]\]"),
        ("[[advertiser]]", "[[publisher]]", "file.publisher: expected one of advertiser, campaign"),
        ("[[advertiser]]", "[[advertiser]", "expected TOML, got"),
    ],
)
def test_what_is_wrong_in_toml_is_said_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TOML
    place = tmp_path / "a.toml"
    place.write_text(TOML.replace(old, new, 1))
    with pytest.raises(BadInput, match=message) as caught:
        read_campaign_file(place)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(place))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bid_micros\n", "bid\n", "row 1: bid: expected one of .*, got the unknown key 'bid'"),
        (",hours,", ",ends,", "row 1: expected each column once"),
        ("title,", "event,", "row 1: expected one column title, got 0"),
        (",90", ",90,", "row 3: expected 11 cells, got 12"),
        (",90", ",ninety", "row 3: bid_micros: expected a whole number, got 'ninety'"),
        (",90", ",0", "row 3: micros: expected a bid"),
        (",,Bean & Leaf,Autumn", "7,2,Bean & Leaf,Autumn", "row 3: title: expected what row 2 says"),
        ("1:North/1:Food", "North/1:Food", "row 4: context: expected LEVEL:VALUE"),
        ("1:North/1:Food", "1:North/1:Food\\", "row 4: expected a character behind each backslash"),
        ("1:North/1:Food", "1:North/999:Food", "row 4: context: expected levels from 0 to 255"),
        ("impression,,,", "impression,,yesterday,", "row 3: starts: expected seconds since 1970 or 2027-"),
        ("impression,,,,", "impression,,,,17-8", "row 3: hours: expected hours of the week"),
        ("impression,,,,", "impression,,,,9-x", "row 3: hours: expected hours of the week as 8-17 32-41"),
        ("1900000000,9", "1900000000,9x", "row 4: hours: expected what row 2"),
        (",,Bean & Leaf,Autumn", ",1,Bean & Leaf,Autumn", "row 3: version: expected none without a number"),
        ("impression", "view", "row 3: expected event to be one of"),
        ("7,2,Bean & Leaf,Spring roast", '7,2,"Bean & Leaf,Spring roast', "expected CSV, got"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_csv_is_said_with_its_row(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CSV
    place = tmp_path / "a.csv"
    place.write_text(CSV.replace(old, new, 1))
    with pytest.raises(BadInput, match=message) as caught:
        read_campaign_file(place)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{place}: ")


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    for name, message in (("a.json", "expected a file NAME.toml or NAME.csv"), ("a.csv", "no such file")):
        with pytest.raises(BadInput, match=message):
            read_campaign_file(tmp_path / name)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="expected CSV in UTF-8"):
        read_campaign_file(tmp_path / "b.csv")
    for empty in (b"", b"\n"):
        with pytest.raises(BadInput, match="row 1: expected one column advertiser, got 0"):
            parse_campaign_csv(empty)
    assert parse_campaign_toml(b"") == CampaignFile()
