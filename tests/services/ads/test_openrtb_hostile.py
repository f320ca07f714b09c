"""What no exchange sends: a thousand of every kind. None is served, none harms, nothing is answered by 5xx."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tacit.deliver.campaigns.store import MACHINE, Author, StoredCampaign
from tacit.errors import BillError
from tacit.services.ads.openrtb_ads import AdShelf
from tacit.services.ads.openrtb_messages import MOST_BYTES, NoBid
from tacit.store.campaigns import SqlCampaignStore
from tests.support.openrtb_samples import CHECK, WEB, ExchangeWorld, sample, with_imp

EACH = 1_000
HOUSE = json.dumps(WEB).encode()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExchangeWorld]:
    made = ExchangeWorld(tmp_path_factory.mktemp("hostile"))
    try:
        yield made
    finally:
        made.end()


def deep(draw: random.Random) -> bytes:
    """Nests that no stack has room for, in keys that are read and in others."""
    key, depth = draw.choice(["imp", "site", "x", "regs"]), draw.randint(15_000, 20_000)
    opening, closing = draw.choice([(b"[", b"]"), (b'{"a":', b"}")])
    nest = opening * depth + b"1" + closing * depth
    return b'{"id":"1","imp":[{"id":"1"}],"%s":%s}' % (key.encode(), nest)


def torn(draw: random.Random) -> bytes:
    return HOUSE[: draw.randrange(len(HOUSE))]


def noise(draw: random.Random) -> bytes:
    return draw.randbytes(draw.randrange(1, 500))


def no_text(draw: random.Random) -> bytes:
    """A byte that is no UTF-8, within a string that is read."""
    at = HOUSE.index(b"80ce") + draw.randrange(10)
    return HOUSE[:at] + bytes([draw.randrange(0x80, 0x100)]) + HOUSE[at + 1 :]


def half_characters(draw: random.Random) -> bytes:
    return HOUSE.replace(b"80ce", b"\\ud8%02x" % draw.randrange(256), 1)


WRONG: list[Any] = [7, -1, 1.5, True, [], {}, [[]], ["x"], {"x": 1}, "x", 10**30, [None], None]
READ: dict[tuple[str | int, ...], tuple[Any, ...]] = {
    ("id",): ("", "x" * 257, *WRONG[:9], None),
    ("imp",): ([], {}, "x", 7, [7], [[]], [{}], [{"id": 7}], [{"id": ""}], None, [{"id": "1"}] * 65),
    ("imp", 0, "id"): ("", 7, [], {}, None, True, "x" * 300),
    ("imp", 0, "banner"): (7, "x", [], True, {"w": "x"}, {"w": 1.5}, {"format": {}}, {"format": [7]}),
    ("imp", 0, "banner", "format"): ([{"w": 1, "h": 1}] * 65, "x", [[]], [{"w": 10**30, "h": []}]),
    ("imp", 0, "bidfloor"): (-1, "x", [], {}, True, "NaN", "Infinity", "-1e999"),
    ("imp", 0, "bidfloorcur"): (7, [], {}, True),
    ("imp", 0, "pmp"): (7, "x", [], {"private_auction": "x"}),
    ("imp", 0, "ext"): (7, "x", [], {"tacit": 7}, {"tacit": {}}, {"tacit": {"version": "1"}}),
    ("site",): (7, "x", [], {"cat": "x"}, {"cat": [7]}, {"domain": 7}, {"cattax": "1"}),
    ("device",): (7, "x", [], {"geo": 7}, {"geo": {"city": 7}}, {"geo": {"region": []}}),
    ("tmax",): ("x", 1.5, [], {}, True),
    ("test",): ("x", 1.5, [], {}, True),
    ("cur",): (7, "USD", {}, [7]),
    ("wseat",): (7, "x", {}, [7]),
    ("bcat",): (7, "x", {}, [7], [None]),
    ("badv",): (7, "x", {}, [7], [[]]),
    ("cattax",): ("x", 1.5, [], {}),
}


def wrong_types(draw: random.Random) -> bytes:
    path = draw.choice(list(READ))
    made: Any = sample()
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = draw.choice(READ[path])
    return json.dumps(made).encode()


def not_objects(draw: random.Random) -> bytes:
    values: list[Any] = [None, True, 7, "x", [], [WEB], "{}", [[]]]
    return b" " * draw.randrange(5) + json.dumps(draw.choice(values)).encode()


def two_of_them(draw: random.Random) -> bytes:
    return HOUSE + draw.choice([b"{}", b",", b"x", b"\x00", b"]", HOUSE[:50]])


MALFORMED: list[Callable[[random.Random], bytes]] = [
    deep, torn, noise, no_text, half_characters, wrong_types, not_objects, two_of_them,
]  # fmt: skip


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_no_bid_request_gets_400_and_nothing_else(
    world: ExchangeWorld, kind: Callable[[random.Random], bytes]
) -> None:
    draw = random.Random(kind.__name__)
    answers = world.ask_all(world.endpoint(), (kind(draw) for _ in range(EACH)))
    assert set(answers) == {(400, b"")}


def bombs(draw: random.Random) -> bytes:
    return gzip.compress(HOUSE[:-1] + b" " * draw.randrange(MOST_BYTES, 64 * MOST_BYTES), 9)


def test_packed_bombs_and_rubbish_are_unpacked_no_further_than_a_request_may_be(world: ExchangeWorld) -> None:
    draw, whole = random.Random("packed"), gzip.compress(HOUSE)
    bodies = [bombs(draw) for _ in range(20)] * (EACH // 20)
    bodies += [whole[: draw.randrange(len(whole))] for _ in range(EACH)]
    bodies += [whole + draw.choice([b"x", whole]) for _ in range(EACH)]
    bodies += [draw.randbytes(50) for _ in range(EACH)]
    bodies += [zlib.compress(HOUSE)] * 10
    endpoint = world.endpoint()
    assert set(world.ask_all(endpoint, bodies, **{"content-encoding": "gzip"})) == {(400, b"")}
    assert world.ask_all(endpoint, [whole], **{"content-encoding": "gzip"})[0][0] == 200
    for other in ("br", "gzip, gzip", "zstd"):
        assert world.ask_all(endpoint, [whole], **{"content-encoding": other}) == [(400, b"")]


@pytest.mark.parametrize("headers", [{"content-type": "text/xml"}, {"x-openrtb-version": "3.0"}])
def test_other_media_and_versions_are_refused(world: ExchangeWorld, headers: dict[str, str]) -> None:
    assert world.ask_all(world.endpoint(), [HOUSE], **headers) == [(400, b"")]


def test_long_bodies_are_not_held(world: ExchangeWorld) -> None:
    endpoint = world.endpoint()
    assert world.ask_all(endpoint, [b" " * (MOST_BYTES + 1)]) == [(413, b"")]
    for claimed in (str(MOST_BYTES + 1), "9" * 30, "-1", "x"):
        assert world.ask_all(endpoint, [HOUSE], **{"content-length": claimed}) == [(413, b"")]


def test_ids_are_told_back_as_text_whatever_stands_in_them(world: ExchangeWorld) -> None:
    """Control characters, quotes, markup and macros: the answer is JSON, and they are in its ids alone."""
    draw, markup = random.Random("ids"), set()
    parts = [
        '"',
        "\\",
        "</script>",
        "${AUCTION_PRICE}",
        "\x00",
        "\x1f",
        "\u2028",
        "','",
        '"}]}',
        "\U0001f600",
        "é",
    ]
    asked = ["".join(draw.choices(parts, k=draw.randrange(1, 12))) for _ in range(EACH)]
    bodies = [json.dumps(with_imp(id=each) | {"id": each[::-1]}).encode() for each in asked]
    for each, (status, body) in zip(asked, world.ask_all(world.endpoint(), bodies), strict=True):
        said = json.loads(body)
        CHECK.validate(said)
        (bid,) = said["seatbid"][0]["bid"]
        assert (status, said["id"], bid["impid"]) == (200, each[::-1], each)
        markup.add(bid["adm"])
        assert re.fullmatch(r"http://127\.0\.0\.1:8472/openrtb/notice/[A-Za-z0-9_-]+", bid["burl"])
    assert len(markup) == 1


def test_huge_numbers_and_lists_are_read_as_what_they_are(
    world: ExchangeWorld,
) -> None:
    floors = ["1e400", "1e99999999", "9" * 4000, "1E-99999999", "0." + "0" * 3000 + "1"]
    bodies = [HOUSE.replace(b'"bidfloor": 3.5', f'"bidfloor": {each}'.encode()) for each in floors]
    statuses = world.ask_all(world.endpoint(), bodies * 20)
    reasons = [json.loads(body).get("nbr") for _, body in statuses[:5]]
    assert reasons == [NoBid.BELOW_FLOOR, NoBid.BELOW_FLOOR, NoBid.BELOW_FLOOR, None, None]
    for key in ("bidfloor", "qty"):
        for each in ("sNaN", "-sNaN1", "NaN", "Infinity", -1):
            said: Any = {key: {"multiplier": each} if key == "qty" else each}
            odd = with_imp(**said)
            assert world.ask_all(world.endpoint(), [json.dumps(odd).encode()])[0][0] == 400, (key, each)
    many = sample(bcat=["x"] * 5_000, badv=["y.example"] * 5_000, tmax=10**15)
    began = time.perf_counter()
    assert world.ask_all(world.endpoint(), [json.dumps(many).encode()])[0][0] == 200
    assert time.perf_counter() - began < 1


def test_strangers_are_refused_before_their_body_is_looked_at(world: ExchangeWorld) -> None:
    draw = random.Random("keys")
    for _ in range(EACH // 10):
        key = draw.randbytes(32).hex()
        answers = world.ask_all(world.endpoint(), [HOUSE] * 10, authorization=f"Bearer {key}")
        assert set(answers) == {(401, b"")}


class SlowStore(SqlCampaignStore):
    """A store whose disk takes its time."""

    def campaign(self, number: int) -> StoredCampaign | None:
        time.sleep(0.4)
        return super().campaign(number)


def test_what_cannot_be_made_in_time_is_no_bid_in_time_and_a_bid_later(world: ExchangeWorld) -> None:
    endpoint = world.endpoint(store=SlowStore(world.ads.database))
    quick = json.dumps(sample(tmax=120)).encode()
    began = time.perf_counter()
    ((_, body),) = world.ask_all(endpoint, [quick])
    assert time.perf_counter() - began < 0.35
    assert json.loads(body) == {"id": WEB["id"], "nbr": NoBid.INSUFFICIENT_TIME}
    assert b"seatbid" in world.ask_all(endpoint, [json.dumps(sample(tmax=2_000)).encode()])[0][1]
    assert b"seatbid" in world.ask_all(endpoint, [quick])[0][1]


class BrokenStore(SqlCampaignStore):
    """A store that cannot be read."""

    def campaign(self, number: int) -> StoredCampaign | None:  # noqa: ARG002
        raise BillError("the disk is gone")

    def revision(self) -> int:
        raise BillError("the disk is gone")


def test_a_store_that_cannot_be_read_is_no_bid(world: ExchangeWorld, caplog: pytest.LogCaptureFixture) -> None:
    endpoint = world.endpoint(store=BrokenStore(world.ads.database))
    ((status, body),) = world.ask_all(endpoint, [HOUSE])
    assert (status, json.loads(body)["nbr"]) == (200, NoBid.TECHNICAL_ERROR)
    assert "the disk is gone" in caplog.text


@pytest.mark.parametrize(("tmax", "took", "bids"), [(100, 0.07, True), (100, 0.09, False), (5_000, 4.9, True)])
def test_time_counts_from_a_requests_head_and_the_way_back_is_left(
    world: ExchangeWorld, tmax: int, took: float, bids: bool
) -> None:
    """Of tmax, 20 ms are for the network by the settings."""
    seconds = iter([0.0, took / 2, took])
    body = json.dumps(sample(tmax=tmax)).encode()
    endpoint = world.endpoint(timer=lambda: next(seconds))
    ((_, answer),) = world.ask_all(endpoint, [body])
    assert (b"seatbid" in answer) is bids


def test_a_creative_that_is_taken_away_is_no_longer_bid(world: ExchangeWorld) -> None:
    endpoint = world.endpoint()
    assert b"<img" in world.ask_all(endpoint, [HOUSE])[0][1]
    image = next(each for each in world.running.campaigns.creatives(1) if each.width)
    world.running.campaigns.remove_creative(image.number, Author(MACHINE, world.now))
    world.now += 1

    def is_gone() -> bool:
        world.now += 1
        return b"<img" not in world.ask_all(endpoint, [HOUSE])[0][1]

    world.wait_until(is_gone)


def test_what_one_advertiser_changes_is_not_read_again_for_the_others(world: ExchangeWorld) -> None:
    """Or whoever changes something each second has every ad read and rendered anew."""
    store, second = world.running.campaigns, [0]
    shelf = AdShelf(store, lambda: second[0])

    def change(number: int, **said: Any) -> None:
        store.amend_campaign(number, said, None, Author(MACHINE, world.now))

    async def known_later(number: int) -> object:
        second[0] += 1
        shelf.known(number)
        assert shelf._look is not None
        await shelf._look
        return shelf.known(number)

    async def use() -> None:
        await known_later(1)
        first = await shelf.load(1)
        assert first
        for daily in (1, 2, 3):
            change(3, daily_micros=daily)
            assert await known_later(1) is first
        change(1, status="paused")
        assert await known_later(1) is None
        assert await shelf.load(1) == ()
        change(1, status="active")
        reading = asyncio.create_task(shelf.load(1))
        await known_later(1)
        assert await reading == first, "whatever it has read"

    asyncio.run(use())
