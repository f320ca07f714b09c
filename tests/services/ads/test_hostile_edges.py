"""What nobody honest sends to the ad server's edges: of every kind a hundred, in the slow run a thousand.

Menus by broken contexts, packs by ids that are none, notices that nobody signed, and changes by keys that do
not hold or bodies that are no campaign: none is served, none is answered by 5xx, and nothing has changed.
`test_openrtb_hostile` does the same to bids.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tacit.deliver.campaigns.access import AccessRole
from tests.support.ad_campaigns import BEAN, campaign_record
from tests.support.ads_services import AdsWorld

FEW, MANY = 100, 1_000
NASTY = (
    "%00",
    "%ff%fe",
    "..%2f..%2fetc",
    "<script>",
    "${jndi:x}",
    "' OR 1=1--",
    "%F0%9F%92%A9",
    "1e309",
    "-0",
    "",
)


class Edges(AdsWorld):
    """An ad server with a campaign, an operator's key, and a count of all that could have changed."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder)
        self.wait_for_epoch()
        self.operator_key = self.key(AccessRole.OPERATOR)
        assert (
            self.ask("PUT", f"/ads/advertisers/{BEAN}", self.operator_key, json={"contact": ""}).status_code
            == 201
        )
        made = self.ask("POST", "/ads/campaigns", self.operator_key, json=campaign_record(77))
        assert made.status_code == 201

    def state(self) -> Any:
        """Campaigns, keys and the trail: what a harmful request would have changed."""
        pages = ("/ads/campaigns", "/ads/keys", "/ads/changes", "/ads/advertisers")
        return [self.get(page, self.operator_key).json() for page in pages]


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edges]:
    made = Edges(tmp_path_factory.mktemp("edges"))
    yield made
    made.end()


Attack = Callable[[Edges, random.Random], httpx.Response]


def noise(draw: random.Random, most: int = 60) -> str:
    letters = string.printable.replace("\r", "").replace("\n", "").replace("\x0b", "").replace("\x0c", "")
    return "".join(draw.choices(letters, k=draw.randrange(1, most)))


def broken_context(edges: Edges, draw: random.Random) -> httpx.Response:
    parts = [
        draw.choice(
            [noise(draw), draw.choice(NASTY), f"{draw.randrange(-9, 999)}:{noise(draw, 9)}", "1:Norht", ":"]
        )
        for _ in range(draw.randrange(0, 5))
    ]
    return edges.get("/menus?" + "&".join(f"context={quote(part, safe='%')}" for part in parts))


def broken_pack(edges: Edges, draw: random.Random) -> httpx.Response:
    made = draw.choice(
        [
            draw.randbytes(32).hex(),
            draw.randbytes(31).hex(),
            "0" * 64,
            "G" * 64,
            "A" * 64,
            quote(noise(draw), safe=""),
        ]
    )
    return edges.get(f"/packs/{made}")


def forged_notice(edges: Edges, draw: random.Random) -> httpx.Response:
    letters = string.ascii_letters + string.digits + "-_"
    token = draw.choice(
        [
            "".join(draw.choices(letters, k=draw.randrange(1, 300))),
            "AQ" + "A" * draw.randrange(300),
            draw.choice(NASTY) or "x",
        ]
    )
    return edges.ask(draw.choice(["GET", "POST"]), f"/openrtb/notice/{quote(token, safe='%')}")


CALLS = (
    ("GET", "/ads/campaigns"), ("POST", "/ads/campaigns"), ("PUT", "/ads/campaigns/77"), ("POST", "/ads/keys"),
    ("PATCH", "/ads/campaigns/77"), ("POST", "/ads/import"), ("GET", "/ads/changes"), ("GET", "/ads/keys"),
    ("PUT", f"/ads/advertisers/{BEAN}"), ("POST", "/ads/campaigns/77/creatives"),
    ("GET", "/ads/console/overview"), ("POST", "/ads/console/verification"),
)  # fmt: skip


def wrong_key(edges: Edges, draw: random.Random) -> httpx.Response:
    """A key that was changed, cut or made up, in every way a header can carry one."""
    real, at = edges.operator_key, draw.randrange(len(edges.operator_key))
    other = draw.choice([each for each in string.ascii_lowercase if each != real[at]])
    key = draw.choice(
        [real[:at] + other + real[at + 1 :], real[:at], real + other, draw.randbytes(20).hex(), ""]
    )
    method, path = draw.choice(CALLS)
    spelled = draw.choice([f"Bearer {key}", f"Basic {key}", f"Bearer {key}, Bearer {key}x", key or "x"])
    return edges.ask(
        method, path, headers={"authorization": spelled}, json=campaign_record(draw.randrange(10**6))
    )


WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    10**30,
    "x" * 300,
    [],
    {},
    [[]],
    {"micros": 1},
    "",
    "\u0000",
    ["\ud800"],
)


def wrong_body(edges: Edges, draw: random.Random) -> httpx.Response:
    """A campaign with a value of another kind, torn text, or no object at all, by a key that holds."""
    record: dict[str, Any] = campaign_record(draw.randrange(1_000, 10**6))
    needed = ("number", "advertiser", "title", "event", "bids")
    record[draw.choice(needed)] = draw.choice(WRONG[2:])
    text = json.dumps(record)
    body = draw.choice(
        [text, text[: draw.randrange(1, len(text))], json.dumps([record]), text + text, noise(draw)]
    )
    headers = {"content-type": draw.choice(["application/json", "application/json", "text/plain", "x"])}
    return edges.ask("POST", "/ads/campaigns", edges.operator_key, content=body.encode(), headers=headers)


ATTACKS: list[Attack] = [broken_context, broken_pack, forged_notice, wrong_key, wrong_body]


def attack(edges: Edges, kind: Attack, times: int) -> None:
    draw, before = random.Random(f"hostile {kind.__name__}"), edges.state()
    for _ in range(times):
        answer = kind(edges, draw)
        assert 400 <= answer.status_code < 500, (kind.__name__, answer.request.url, answer.status_code)
        assert len(answer.content) < 2_000
    assert edges.state() == before


@pytest.mark.parametrize("kind", ATTACKS)
def test_none_is_served_and_none_harms(edges: Edges, kind: Attack) -> None:
    attack(edges, kind, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ATTACKS)
def test_none_of_a_thousand_is_served_or_harms(edges: Edges, kind: Attack) -> None:
    attack(edges, kind, MANY)
