"""Where the page has the device's client: a personal menu if consent allows it, the public one if not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tacit.bill.protocol.menus import Lane
from tacit.deliver.device.menu_book import MenuBook, listed_from_bytes
from tacit.schema.contexts.hierarchy import Node
from tests.support.consent_strings import gpp_string, tc_string, us_national
from tests.support.openrtb_samples import VENDOR, ExchangeWorld, with_imp

AGREED = tc_string(vendors=[VENDOR], purposes=range(1, 11))
REFUSED = tc_string(vendors=[VENDOR], purposes=[])
EU = {"gdpr": 1}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExchangeWorld]:
    made = ExchangeWorld(tmp_path_factory.mktemp("consent"))
    try:
        yield made
    finally:
        made.end()


def client_request(regs: Any, user: Any = None, version: Any = 1, **more: Any) -> dict[str, Any]:
    made = with_imp(ext={"tacit": {"version": version}})
    return {**made, "bcat": [], "badv": [], "regs": regs, "user": user, **more}


@pytest.mark.parametrize(
    ("regs", "user"),
    [
        (EU, {"consent": AGREED}),
        ({"ext": {"gdpr": 1}}, {"ext": {"consent": AGREED}}),  # as versions before 2.6 had it
        ({"gdpr": 1, "ext": {"gdpr": 1}}, {"consent": AGREED, "ext": {"consent": AGREED}}),
        ({"gdpr": 0}, None),
        ({"gdpr": 0, "ext": {"gpc": "0"}}, None),
        ({"gpp": gpp_string({2: AGREED}), "gpp_sid": [2]}, None),
        ({"gpp": gpp_string({7: us_national()}), "gpp_sid": [7]}, None),
        ({"us_privacy": "1YNN"}, None),
    ],
)
def test_consent_brings_the_personal_menu_and_no_notice(world: ExchangeWorld, regs: Any, user: Any) -> None:
    (bid,) = world.bids(client_request(regs, user))
    said = bid["ext"]["tacit"]
    assert not {"burl", "nurl"} & bid.keys()  # its device reports: nothing is charged twice
    assert (said["version"], said["lane"], said["epsilon_micros"]) == (1, "personal", 1_000_000)
    listed = listed_from_bytes(base64.b64decode(said["listed"]))
    book = MenuBook(world.keys)
    head = book.check_head(base64.b64decode(said["head"]))  # by both parties' signatures
    book.add_head(head)
    book.add_menu(head, listed, Node((1, 1), ("North", "Food")), Lane.PERSONAL)  # refuses what is not listed
    assert [entry.campaign for entry in listed.menu.entries] == [1, 4, 2]
    assert [each["index"] for each in said["ads"]] == [1, 2, 3]
    assert "Tea House" in said["ads"][1]["adm"]


def test_only_exchanges_that_are_believed_are_sent_personal_menus(world: ExchangeWorld) -> None:
    """Its bid has no notice: whoever says falsely that there is a client is charged for nothing."""
    asked = client_request({"gdpr": 0})
    for clients, keys in ((True, {"ext"}), (False, {"burl"})):
        ((status, body),) = world.ask_all(world.endpoint(clients=clients), [json.dumps(asked).encode()])
        (bid,) = json.loads(body)["seatbid"][0]["bid"]
        assert status == 200
        assert {"ext", "burl"} & bid.keys() == keys


@pytest.mark.parametrize(
    ("regs", "user", "more"),
    [
        (None, None, {}),  # nobody said which law applies
        ({}, {}, {}),
        (EU, None, {}),
        (EU, {"consent": REFUSED}, {}),
        (EU, {"consent": "rubbish"}, {}),
        (EU, {"consent": 7}, {}),
        (EU, {"consent": AGREED, "ext": {"consent": REFUSED}}, {}),
        ({"gdpr": 1, "ext": {"gdpr": 0}}, {"consent": AGREED}, {}),
        ({"gdpr": "no"}, None, {}),
        ("text", {"consent": AGREED}, {}),
        ({"coppa": 1, "gdpr": 0}, None, {}),
        ({"coppa": 1, **EU}, {"consent": AGREED}, {}),
        ({"gdpr": 0, "us_privacy": "1YYN"}, None, {}),
        ({"gpp": gpp_string({7: us_national(opt_outs=(2, 2, 1))}), "gpp_sid": [7]}, None, {}),
        ({"gpp": "x", "gpp_sid": [7]}, None, {}),
        ({"gpp": gpp_string({2: AGREED}), "gpp_sid": "2"}, None, {}),
        ({"gdpr": 0}, None, {"device": {"lmt": 1, "geo": {"region": "NO"}}}),
        ({"gdpr": 0}, None, {"device": {"dnt": "1", "geo": {"region": "NO"}}}),
        ({"gdpr": 0, "ext": {"gpc": "1"}}, None, {}),  # the browser's own objection
        ({"gpc": 1, **EU}, {"consent": AGREED}, {}),
        ({"gdpr": 0}, None, {"device": {"ext": {"atts": 2}, "geo": {"region": "NO"}}}),
        ({"gdpr": 0}, None, {"device": {"ext": {"atts": 0}, "geo": {"region": "NO"}}}),
        ({"gdpr": 0}, None, {"device": {"ext": "text", "geo": {"region": "NO"}}}),
        ({"gdpr": 0}, None, {"test": 1}),
        ({"gdpr": 0}, None, {"bcat": ["IAB17"]}),  # not all that a device may choose could be shown
        ({"gdpr": 0}, None, {"badv": ["tea.example"]}),
        ({"gdpr": 0}, None, {"version": 2}),
    ],
)
def test_without_consent_there_is_the_public_entry_alone(
    world: ExchangeWorld, regs: Any, user: Any, more: Any
) -> None:
    answer = world.bid(client_request(regs, user, **more))
    assert b"listed" not in answer.content
    (bid,) = answer.json()["seatbid"][0]["bid"]
    assert (bid["cid"], bid["price"]) == ("1", 9.8)
    assert "ext" not in bid
    assert "burl" in bid
