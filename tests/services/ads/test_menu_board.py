"""Menus over GET: what everybody is shown, as bytes that caches hold until the epoch is over."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Route

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.menus import Lane
from tacit.deliver.device.menu_book import MenuBook, listed_from_bytes
from tacit.errors import BillRefused
from tacit.schema.contexts.hierarchy import Node
from tacit.services.ads.menu_board import MenuBoard, parse_query, query_spellings
from tacit.services.background import AppPart
from tacit.services.signatures import Party
from tests.support.billing_services import EPOCH_SECONDS, START, BillingWorld

NORTH_FOOD = "context=1:North&context=1:Food"


class MenuWorld(BillingWorld):
    """An ad server with a board."""

    def more_parts(self) -> list[AppPart]:
        self.board = MenuBoard(self.server, self.keeper, self.clock_of(Party.SERVER))
        return [AppPart(routes=[Route("/menus", self.board, methods=["GET"])])]

    def get(self, query: str, **headers: str) -> httpx.Response:
        return self.client.get(f"http://server.test/menus?{query}", headers=headers)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MenuWorld]:
    made = MenuWorld(tmp_path)
    try:
        made.wait_for_epoch()
        yield made
    finally:
        made.end()


def test_says_what_everybody_is_shown_with_a_proof_that_devices_check(world: MenuWorld) -> None:
    found = world.get(NORTH_FOOD)
    said = found.json()
    assert found.status_code == 200
    assert said["lane"] == "public"
    assert said["epsilon_micros"] == 0
    assert said["context"] == {"levels": [1, 1], "values": ["North", "Food"]}
    (entry,) = said["entries"]
    # 400,000 x .031 = 12,400 wins; the next public score is 350,000 x .028 = 9,800.
    assert entry == {
        "index": 1, "campaign": 1, "price_micros": 9_800,
        "reason": "second price per impression, public rank 1, price set by campaign 4",
    }  # fmt: skip
    listed = listed_from_bytes(base64.b64decode(said["listed"]))
    assert listed.menu.menu_id.hex() == said["menu"]
    book = MenuBook(world.keys)
    head = EpochHead.from_bytes(world.channel().head())
    book.add_head(head)
    book.add_menu(head, listed, Node((1, 1), ("North", "Food")), Lane.PUBLIC)  # refuses what is not listed


def test_caches_are_told_until_when_and_need_not_fetch_it_again(world: MenuWorld) -> None:
    found = world.get(NORTH_FOOD)
    assert found.headers["cache-control"] == "public, must-revalidate"
    assert parsedate_to_datetime(found.headers["expires"]).timestamp() == START + EPOCH_SECONDS
    again = world.get(NORTH_FOOD, **{"if-none-match": f'W/"x", {found.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == found.headers["etag"]
    assert world.get(NORTH_FOOD, **{"if-none-match": '"other"'}).status_code == 200
    head = world.client.head(f"http://server.test/menus?{NORTH_FOOD}")
    assert head.content == b""
    assert head.headers["content-length"] == str(len(found.content))


def test_another_epoch_takes_its_place_at_once_and_bytes_are_made_once(world: MenuWorld) -> None:
    first = world.get(NORTH_FOOD)
    (kept,) = {id(each) for each in asyncio.run(world.board.current()).answers.values()}
    world.get("context=1%3ANorth&context=1%3AFood")
    assert {id(each) for each in asyncio.run(world.board.current()).answers.values()} == {kept}
    world.now = START + EPOCH_SECONDS
    world.wait_for_epoch()
    second = world.get(NORTH_FOOD)
    assert second.json()["epoch"] == first.json()["epoch"] + 1
    assert second.headers["etag"] != first.headers["etag"]
    assert world.get(NORTH_FOOD, **{"if-none-match": first.headers["etag"]}).status_code == 200
    world.operator().rotate()
    world.now += 1
    assert world.get(NORTH_FOOD).json()["epoch"] > second.json()["epoch"]


def test_other_spellings_of_a_context_find_the_same_bytes_and_are_not_remembered(world: MenuWorld) -> None:
    found = world.get(NORTH_FOOD)
    for spelled in ("context=1%3ANorth&context=1%3AFood", "context=1:%4eorth&context=1:Food"):
        assert world.get(spelled).content == found.content
    assert world.get("context=2:*&context=2:*").status_code == 200
    assert len(asyncio.run(world.board.current()).answers) == 4  # two contexts, in two spellings each


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("context=1:North&context=1:Tea", 404, "bill-unknown-context"),
        ("context=0:North&context=1:Food", 404, "bill-unknown-context"),
        ("context=1:North", 404, "bill-unknown-context"),
        ("", 400, "bill-malformed"),
        ("context", 400, "bill-malformed"),
        ("context=North&context=Food", 400, "bill-malformed"),
        ("context=01:North&context=1:Food", 400, "bill-malformed"),
        ("context=1:North&context=1:Food&user=7", 400, "bill-malformed"),
        ("context=1:%ff&context=1:Food", 400, "bill-malformed"),
        ("context=999:North", 400, "bill-malformed"),
        ("context=1:" + "x" * 1000, 400, "bill-malformed"),
    ],
)
def test_what_is_no_context_of_the_epoch_gets_a_problem(
    world: MenuWorld, query: str, status: int, kind: str
) -> None:
    found = world.get(query)
    said: dict[str, Any] = found.json()
    assert (found.status_code, said["type"]) == (status, f"tacit:{kind}")
    assert found.headers["content-type"] == "application/problem+json"


def test_other_methods_are_refused_and_no_open_epoch_is_said(world: MenuWorld) -> None:
    assert world.client.post("http://server.test/menus").status_code == 405
    world.stop("proxy.test")
    world.now += 10 * EPOCH_SECONDS
    assert world.get(NORTH_FOOD).json()["type"] == "tacit:bill-stale-epoch"


VALUES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.lists(st.tuples(st.integers(0, 255), VALUES), min_size=1, max_size=3))
def test_every_context_is_read_as_it_is_written(said: list[tuple[int, str]]) -> None:
    node = Node(tuple(level for level, _ in said), tuple(value for _, value in said))
    for spelled in query_spellings(node):
        if len(spelled) <= 640:
            assert parse_query(spelled) == node


@given(st.binary(max_size=700))
def test_whatever_is_asked_is_read_or_refused(query: bytes) -> None:
    with suppress(BillRefused):
        node = parse_query(query)
        assert node.levels
        assert len(node.levels) == len(node.values)
