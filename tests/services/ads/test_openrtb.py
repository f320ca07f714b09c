"""Bids for exchanges: what everybody is shown in a request's context, at the menu's price, or a reason."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tacit.services.ads.openrtb_messages import NoBid, price_text
from tests.support.openrtb_samples import APP, MARKS, VIDEO, WEB, ExchangeWorld, sample, with_imp


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExchangeWorld]:
    made = ExchangeWorld(tmp_path_factory.mktemp("exchange"))
    try:
        yield made
    finally:
        made.end()


def test_a_web_banner_gets_the_public_menus_entry_at_its_price(world: ExchangeWorld) -> None:
    answer = world.bid(WEB)
    assert answer.headers["x-openrtb-version"] == "2.6"
    assert answer.headers["content-type"] == "application/json"
    said = json.loads(answer.content, parse_float=Decimal)
    assert (said["cur"], said["seatbid"][0]["seat"]) == ("USD", "tacit")
    (bid,) = world.bids(WEB)
    # North and Food: 400,000 x .031 wins and pays the next, 350,000 x .028 = 9,800 micros: a CPM of 9.8.
    assert said["seatbid"][0]["bid"][0]["price"] == Decimal("9.8")
    assert (bid["impid"], bid["cid"], bid["w"], bid["h"], bid["mtype"]) == ("1", "1", 300, 250, 1)
    assert bid["adomain"] == ["bean.example"]
    assert (bid["cat"], bid["cattax"]) == (["IAB8-5"], 1)
    assert 'src="data:image/png;base64,' in bid["adm"]
    assert 'alt="&quot;Roast&quot; &amp; more"' in bid["adm"]
    assert "ext" not in bid
    assert "nurl" not in bid


def test_an_app_gets_a_text_in_which_no_macro_can_be_filled_in(world: ExchangeWorld) -> None:
    (bid,) = world.bids(APP)
    assert (bid["cid"], bid["w"], bid["h"], bid["attr"]) == ("3", 320, 50, [13])  # South and Sport
    assert "Two Wheels: &#36;{AUCTION_PRICE}" in bid["adm"]
    assert "Now &lt;b&gt;open&lt;/b&gt;" in bid["adm"]


def test_bids_and_keys_differ_from_request_to_request(world: ExchangeWorld) -> None:
    first, second = (world.bids(WEB)[0] for _ in range(2))
    assert first["id"] != second["id"]
    assert first["burl"] != second["burl"]
    assert {**first, "id": "", "burl": ""} == {**second, "id": "", "burl": ""}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (VIDEO, NoBid.UNSUPPORTED_MEDIA),
        (with_imp(banner={"w": 20, "h": 20}), NoBid.NO_CREATIVE),
        (with_imp(banner={}), NoBid.NO_CREATIVE),
        (with_imp(bidfloor=9.801), NoBid.BELOW_FLOOR),
        (with_imp(bidfloorcur="EUR"), NoBid.CURRENCY),
        (with_imp(pmp={"private_auction": 1, "deals": []}), NoBid.DEALS_ONLY),
        (with_imp(qty={"multiplier": 2.5}), NoBid.UNSUPPORTED_MEDIA),
        (sample(cur=["EUR", "JPY"]), NoBid.CURRENCY),
        (sample(wseat=["other"]), NoBid.SEAT),
        (sample(bseat=["tacit"]), NoBid.SEAT),
        (sample(bcat=["IAB8"]), NoBid.BLOCKED),
        (sample(bcat=["IAB8-5"]), NoBid.BLOCKED),
        (sample(bcat=["IAB1"], cattax=6), NoBid.BLOCKED),  # another taxonomy cannot be obeyed
        (sample(acat=["IAB17"], bcat=[]), NoBid.BLOCKED),
        (sample(badv=["bean.example"]), NoBid.BLOCKED),
        (sample(badv=["WWW.Bean.example"]), NoBid.BLOCKED),
        (sample(dooh={"id": "screen"}), NoBid.UNSUPPORTED_MEDIA),
        (sample(tmax=20), NoBid.INSUFFICIENT_TIME),
        (sample(tmax=-1), NoBid.INSUFFICIENT_TIME),
    ],
)
def test_what_cannot_be_answered_is_no_bid_with_its_reason(
    world: ExchangeWorld, request_: Any, reason: NoBid
) -> None:
    assert world.no_bid(request_) == reason


@pytest.mark.parametrize(
    "request_",
    [
        with_imp(bidfloor=9.8),  # exactly the price
        with_imp(bidfloor=0, bidfloorcur="EUR"),
        with_imp(bidfloor=None),
        with_imp(banner={"w": 300, "h": 250, "mimes": ["image/png"]}),
        with_imp(qty={"multiplier": 1}),
        with_imp(pmp={"private_auction": 0, "deals": [{"id": "d1"}]}),
        sample(cur=["EUR", "USD"]),
        sample(cur=None, tmax=None, bcat=None, badv=None, user=None, regs=None, ext=None),
        sample(wseat=["tacit"], bseat=["other"]),
        sample(bcat=["IAB8-55", "IAB80"]),
        sample(acat=["IAB8"], bcat=[]),
        sample(badv=["an.example", "x.bean.example"]),
        sample(cattax=6, bcat=[], badv=[]),
    ],
)
def test_what_only_seems_to_be_in_the_way_is_bid_on(world: ExchangeWorld, request_: Any) -> None:
    (bid,) = world.bids(request_)
    assert bid["cid"] == "1"


def test_an_ad_without_categories_is_not_shown_where_some_are_blocked(world: ExchangeWorld) -> None:
    south_food = sample(device={"geo": {"region": "SO"}}, bcat=[])
    (bid,) = world.bids(south_food)
    assert bid["cid"] == "4"
    assert "cat" not in bid
    assert world.no_bid({**south_food, "bcat": ["IAB25"]}) == NoBid.BLOCKED


@pytest.mark.parametrize(
    ("banner", "kind"),
    [
        ({"format": [{"w": 300, "h": 250}], "btype": [2]}, "text"),
        ({"format": [{"w": 300, "h": 250}], "mimes": ["image/gif"]}, "text"),
        ({"format": [{"w": 300, "h": 250}], "btype": [1], "battr": [13]}, "image"),
        ({"format": [{"w": 728, "h": 90}]}, "text"),
        ({"w": 300, "h": 250, "format": [{"w": 300}]}, "image"),
    ],
)
def test_types_and_attributes_that_are_blocked_are_left_out(
    world: ExchangeWorld, banner: Any, kind: str
) -> None:
    (bid,) = world.bids(with_imp(banner=banner))
    assert ("<img" in bid["adm"]) is (kind == "image")


def test_several_impressions_are_bid_on_one_by_one(world: ExchangeWorld) -> None:
    imps = [
        {"id": "video", "video": {"mimes": ["video/mp4"]}},
        {"id": "large", "banner": {"w": 300, "h": 250}},
        {"id": "dear", "banner": {"w": 300, "h": 250}, "bidfloor": 50},
        {"id": "wide", "banner": {"w": 728, "h": 90}},
    ]
    bids = world.bids(sample(imp=imps))
    assert [bid["impid"] for bid in bids] == ["large", "wide"]
    assert len({bid["burl"] for bid in bids}) == 2


@pytest.mark.parametrize(
    ("geo", "place", "campaign"),
    [
        ({"city": "NORTHPORT "}, {"cat": ["IAB8-5"]}, "1"),  # no menu for the city itself: its region's
        ({"city": "Elsewhere", "region": "no"}, {"cat": ["IAB8"]}, "1"),
        ({"region": "NO"}, {"cat": ["IAB9", "IAB17"]}, "2"),
        ({"region": "SO"}, {"cat": ["IAB1"], "pagecat": ["IAB8-5"]}, "4"),
        ({"region": "SO"}, {"cat": ["IAB8"], "cattax": 6}, "2"),  # of another taxonomy: as if nothing was said
        ({"region": "SO"}, {"cat": ["IAB24"]}, "2"),  # a topic that nobody knows: who tells nothing
        ({}, {}, "2"),
        ({"region": "NO" * 200}, {"cat": ["x" * 5000]}, "2"),
    ],
)
def test_a_request_is_told_at_the_finest_level_that_a_menu_is_for(
    world: ExchangeWorld, geo: Any, place: Any, campaign: str
) -> None:
    (bid,) = world.bids(sample(device={"geo": geo}, site=place, bcat=[], badv=[]))
    assert bid["cid"] == campaign


def test_requests_may_be_packed_and_answers_are_where_that_is_liked(world: ExchangeWorld) -> None:
    body = json.dumps(WEB).encode()
    headers, answer = world.raw(
        gzip.compress(body), **{"content-encoding": "gzip", "accept-encoding": "deflate, gzip"}
    )
    assert headers["content-encoding"] == "gzip"
    assert headers["content-length"] == str(len(answer))
    headers, plain = world.raw(body)
    assert "content-encoding" not in headers
    unpacked = json.loads(gzip.decompress(answer))
    assert unpacked["seatbid"][0]["bid"][0]["adm"] == json.loads(plain)["seatbid"][0]["bid"][0]["adm"]


def test_no_key_no_bid(world: ExchangeWorld) -> None:
    url = "http://server.test/openrtb/bid"
    for path, headers in (
        ("", {}),
        ("", {"authorization": f"Bearer {world.secret[:-1]}0"}),
        ("", {"authorization": f"Basic {world.secret}"}),
        ("/" + "0" * 64, {}),
        ("/" + "0" * 64, {"authorization": f"Bearer {world.secret}"}),
    ):
        answer = world.client.post(url + path, json=WEB, headers=headers)
        assert (answer.status_code, answer.content) == (401, b""), path
    twice = [("authorization", f"Bearer {world.secret}"), ("authorization", "Bearer x")]
    assert world.client.post(url, json=WEB, headers=twice).status_code == 401
    plain = {"accept-encoding": "identity"}
    assert world.client.post(f"{url}/{world.secret}", json=WEB, headers=plain).status_code == 200
    assert world.client.get(f"{url}/{world.secret}").status_code == 405


def test_nothing_of_a_person_is_answered_logged_or_kept(
    world: ExchangeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        answers = [world.bid(each).text for each in (WEB, APP, VIDEO)]
        (bid,) = world.bids(WEB)
        assert world.notify(bid["burl"]) == 204
    kept = b"".join(path.read_bytes() for path in world.folder.rglob("*.sqlite*"))
    for mark in MARKS.values():
        assert mark not in "".join(answers)
        assert mark not in caplog.text
        assert mark.encode() not in kept


@pytest.mark.parametrize(
    ("micros", "text"),
    [(0, b"0"), (1, b"0.001"), (10, b"0.01"), (9_800, b"9.8"), (1_000, b"1"), (2**40, b"1099511627.776")],
)
def test_prices_are_exact_decimals(micros: int, text: bytes) -> None:
    assert price_text(micros) == text
    assert Decimal(text.decode()) * 1000 == micros


def test_listed_menus_are_not_given_to_pages_without_the_client(world: ExchangeWorld) -> None:
    answer = world.bid(with_imp(ext={"tacit": None}))
    assert b"listed" not in answer.content
    assert base64.b64encode(b"tacit") not in answer.content
