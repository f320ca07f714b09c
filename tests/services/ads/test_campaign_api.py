"""Campaigns over HTTP, end to end: made, paged, changed by version, with ads; what is hostile is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.store import Author
from tacit.services.ads.access import AccessGate, AccessLimits
from tacit.store.campaigns import SqlCampaignStore
from tests.support.ad_campaigns import ADDRESS, BEAN, SHOES, campaign_record, image_record, png, text_record
from tests.support.ads_services import AdsWorld


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdsWorld]:
    made = AdsWorld(Path(tmp_path_factory.mktemp("campaigns")))
    yield made
    made.end()


@pytest.fixture(scope="module")
def key(world: AdsWorld) -> str:
    made = world.key(AccessRole.OPERATOR)
    for name in (BEAN, SHOES):
        path = f"/ads/advertisers/{name.replace('/', '%2F')}"
        assert world.ask("PUT", path, made, json={"contact": f"ads@{name[:4]}.example"}).status_code == 201
    return made


def titled(title: str, advertiser: str = BEAN) -> dict[str, Any]:
    record = campaign_record(advertiser=advertiser, title=title)
    del record["number"]
    return record


def test_a_campaign_from_its_first_bid_to_its_end(world: AdsWorld, key: str) -> None:
    made = world.post("/ads/campaigns", key, json=titled("Spring roast"))
    assert made.status_code == 201
    place = made.headers["location"]
    stored = made.json()
    assert (stored["version"], stored["charged_micros"], made.headers["etag"]) == (1, 0, '"1"')
    assert world.get(place, key).json() == stored
    again = world.post("/ads/campaigns", key, json=titled("Spring roast"))
    assert (again.status_code, again.json()["type"]) == (409, "tacit:campaign-conflict")
    paused = world.ask("PATCH", place, key, json={"status": "paused"}, headers={"if-match": '"1"'})
    assert (paused.status_code, paused.headers["etag"], paused.json()["campaign"]["status"]) == (
        200,
        '"2"',
        "paused",
    )
    stale = world.ask("PATCH", place + "?version=1", key, json={"budget_micros": 5})
    assert (stale.status_code, stale.json()["detail"]) == (
        412, f"campaign {stored['campaign']['number']}: expected version 2, got 1",
    )  # fmt: skip
    both = world.ask("PATCH", place + "?version=1", key, json={"budget_micros": 5}, headers={"if-match": '"2"'})
    assert both.status_code == 400
    budgets = world.ask("PATCH", place + "?version=2", key, json={"budget_micros": None, "daily_micros": 7})
    assert budgets.json()["campaign"] | {"budget_micros": None, "daily_micros": 7} == budgets.json()["campaign"]
    whole = {**budgets.json()["campaign"], "title": "Autumn"}
    assert world.ask("PUT", place, key, json=whole, headers={"if-match": '"3"'}).json()["version"] == 4
    del whole["budget_micros"]
    partly = world.ask("PUT", place, key, json=whole)
    assert partly.json()["detail"] == "campaign.budget_micros: expected it to be there, got nothing"
    ended = world.ask("PATCH", place, key, json={"status": "ended"})
    assert ended.json()["campaign"]["status"] == "ended"
    assert world.ask("PATCH", place, key, json={"status": "active"}).json()["type"] == "tacit:campaign-ended"
    subject = f"campaign {stored['campaign']['number']}"
    trail = world.get(f"/ads/changes?subject={subject}", key).json()["changes"]
    assert [each["key_id"] for each in trail] == [key.split("_")[1]] * 5
    assert (trail[0]["before"], trail[1]["before"]["status"], trail[1]["after"]["status"]) == (
        None,
        "active",
        "paused",
    )


def test_what_an_advertiser_changes_while_billing_sets_a_budget_stays(
    world: AdsWorld, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = world.post("/ads/campaigns", key, json=titled("Raced")).json()["campaign"]["number"]
    set_budget = SqlCampaignStore.set_budget

    def set_and_change(store: SqlCampaignStore, number: int, micros: int | None, author: Author) -> bool:
        found = set_budget(store, number, micros, author)
        store.amend_campaign(number, {"budget_micros": 3_000}, None, author)
        return found

    monkeypatch.setattr(SqlCampaignStore, "set_budget", set_and_change)
    assert world.operator().set_budget(number, 9_000_000)["budget_micros"] == 3_000
    assert world.get(f"/ads/campaigns/{number}", key).json()["campaign"]["budget_micros"] == 3_000


def test_a_budget_that_billing_changes_stands_in_the_trail(world: AdsWorld, key: str) -> None:
    number = world.post("/ads/campaigns", key, json=titled("Billed")).json()["campaign"]["number"]
    assert world.operator().set_budget(number, 77)["budget_micros"] == 77
    stored = world.get(f"/ads/campaigns/{number}", key).json()
    assert (stored["version"], stored["campaign"]["budget_micros"]) == (2, 77)
    last = world.get(f"/ads/changes?subject=campaign {number}", key).json()["changes"][-1]
    assert (last["key_id"], last["after"]["budget_micros"]) == ("operator", 77)


def test_lists_come_in_pages(world: AdsWorld, key: str) -> None:
    numbers = []
    for title in ("One", "Two", "Three"):
        made = world.post("/ads/campaigns", key, json=titled(title, SHOES))
        numbers.append(made.json()["campaign"]["number"])
    found, after = [], ""
    while True:
        page = world.get(f"/ads/campaigns?advertiser={SHOES}&most=2{after}", key).json()
        found += [each["campaign"]["number"] for each in page["campaigns"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == numbers
    first = world.get("/ads/advertisers?most=1", key).json()
    assert (first["next"], [each["name"] for each in first["advertisers"]]) == (BEAN, [BEAN])
    second = world.get("/ads/advertisers", key, params={"most": 1, "after": BEAN}).json()
    assert ([each["name"] for each in second["advertisers"]], second["next"]) == ([SHOES], None)


def test_a_file_is_put_whole_or_not_at_all(world: AdsWorld, key: str) -> None:
    revision = world.running.campaigns.revision()
    third = [{"name": "Third", "contact": ""}]
    good = [{"campaign": titled("From a file", "Third")}, {"campaign": campaign_record(500, "Third")}]
    for bad in (
        {"campaign": titled("Another", "Nobody")},
        {"campaign": campaign_record(501, "Third"), "version": 3},
        {"campaign": titled("From a file", "Third")},
    ):
        answer = world.post("/ads/import", key, json={"advertisers": third, "campaigns": [*good, bad]})
        assert answer.status_code in (404, 409)
        assert world.running.campaigns.revision() == revision
    done = world.post("/ads/import", key, json={"advertisers": third, "campaigns": good})
    assert done.json() == {"added": [500, 501], "changed": []}
    changed = [{"campaign": campaign_record(500, "Third", title="Winter"), "version": 1}]
    assert world.post("/ads/import", key, json={"campaigns": changed}).json() == {"added": [], "changed": [500]}
    wrong = [{"campaign": titled("x", "Third"), "version": 1}]
    told = world.post("/ads/import", key, json={"campaigns": wrong}).json()["detail"]
    assert told == "campaigns: 1: version: expected none without a number, got one"


def test_ads_are_checked_and_shown_so_that_nothing_in_them_runs(world: AdsWorld, key: str) -> None:
    number = world.post("/ads/campaigns", key, json=titled("With ads")).json()["campaign"]["number"]
    place = f"/ads/campaigns/{number}/creatives"
    image = world.post(place, key, json=image_record(png(), text="On Mondays"))
    assert (image.status_code, image.json()["media"], image.json()["width"]) == (201, "image/png", 32)
    assert world.post(place, key, json=image_record(png(), text="On Mondays")).status_code == 200
    html = f'<h2 onclick="x()">Roast</h2><script>alert(1)</script><a href="{ADDRESS}">Buy</a><img src=x>'
    fragment = world.post(place, key, json=text_record(kind="html", content=html))
    shown = world.get(image.headers["location"] + "/content", key)
    assert (shown.content, shown.headers["content-type"]) == (png(), "image/png")
    assert shown.headers["content-disposition"].startswith("inline")
    shown = world.get(fragment.headers["location"] + "/content", key)
    link = f'<a href="{ADDRESS}" target="_blank" rel="noopener noreferrer nofollow sponsored">Buy</a>'
    assert shown.text == f"<h2>Roast</h2>{link}"
    assert shown.headers["content-disposition"].startswith("attachment")
    for answer in (shown, world.get(image.headers["location"] + "/content", key)):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    listed = world.get(place, key).json()["creatives"]
    assert [each["media"] for each in listed] == ["image/png", "text/html"]
    assert world.ask("DELETE", image.headers["location"], key).status_code == 204
    assert world.get(image.headers["location"] + "/content", key).status_code == 404
    for bad in (
        image_record(b"GIF89a"), image_record(png(8)), text_record(kind="html", content="<script>1</script>"),
        text_record(address="http://bean.example"), text_record(content="x"),
    ):  # fmt: skip
        assert world.post(place, key, json=bad).status_code == 400


def nest(depth: int) -> bytes:
    return b'{"title":' + b"[" * depth + b"]" * depth + b"}"


GOOD = json.dumps(campaign_record(900)).encode()
HOSTILE = {
    "deep lists": nest(100_000),
    "lists as deep as can be read": nest(900),
    "deep tables": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "a number of many digits": GOOD.replace(b"50000000", b"9" * 5_000),
    "a number beyond all": GOOD.replace(b"50000000", b"1e999"),
    "a number beyond 64 bits": GOOD.replace(b"900", b"18446744073709551616"),
    "not a number": GOOD.replace(b"50000000", b"NaN"),
    "infinity": GOOD.replace(b"50000000", b"-Infinity"),
    "half a micro": GOOD.replace(b"50000000", b"0.5"),
    "a micro that is a float": GOOD.replace(b"50000000", b"5.0"),
    "true for a number": GOOD.replace(b"50000000", b"true"),
    "a key twice": GOOD.replace(b'"number": 900', b'"number": 900, "number": 901'),
    "a key twice below": GOOD.replace(b'{"micros": 400000}', b'{"micros": 400000, "micros": 1}'),
    "half of a character": GOOD.replace(b"Spring roast", rb"Spring \ud800 roast"),
    "half of a character as a key": GOOD.replace(b'"number"', rb'"\udfff": 1, "number"'),
    "the character zero": GOOD.replace(b"Spring roast", rb"Spring\u0000roast"),
    "an escape for terminals": GOOD.replace(b"Spring roast", rb"\u001b[2J"),
    "a text turned round": GOOD.replace(b"Spring roast", rb"\u202eroast"),
    "an overlong title": GOOD.replace(b"Spring roast", b"x" * 201),
    "a title of a megabyte": GOOD.replace(b"Spring roast", b"x" * 2**20),
    "no UTF-8": GOOD.replace(b"Spring roast", b"\xff\xfe"),
    "UTF-16": GOOD.decode().encode("utf-16"),
    "two values": GOOD + GOOD,
    "a comment": b"// x\n" + GOOD,
    "nothing": b"",
    "a list": b"[" + GOOD + b"]",
    "null": b"null",
    "a text": b'"campaign"',
    "an unknown key": GOOD.replace(b'"number"', b'"__proto__": {}, "number"'),
    "a thousand and one bids": GOOD.replace(b"[{", b"[" + b'{"micros": 1},' * 1_001 + b"{", 1),
    "a bid twice": GOOD.replace(b'[{"micros": 400000}', b'[{"micros": 400000},{"micros": 1}'),
    "no bid": json.dumps(campaign_record(900, bids=[])).encode(),
    "a bid of nothing": json.dumps(campaign_record(900, bids=[{"micros": 0}])).encode(),
    "a table for a title": json.dumps(campaign_record(900, title={"a": 1})).encode(),
    "a context of no levels": json.dumps(
        campaign_record(900, bids=[{"micros": 1, "context": {"levels": [], "values": []}}])
    ).encode(),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("path", ["/ads/campaigns", "/ads/import"])
def test_a_hostile_body_is_refused_and_changes_nothing(world: AdsWorld, key: str, kind: str, path: str) -> None:
    revision = world.running.campaigns.revision()
    body = HOSTILE[kind]
    if path == "/ads/import":
        body = b'{"campaigns": [{"campaign": ' + body + b"}]}" if kind != "UTF-16" else body
    answer = world.post(path, key, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 413), answer.text[:200]
    assert len(answer.content) < 1_000
    assert answer.headers["content-type"] == "application/problem+json"
    assert world.running.campaigns.revision() == revision


def test_the_body_that_hostile_ones_were_made_of_is_good(world: AdsWorld, key: str) -> None:
    headers = {"content-type": "application/json"}
    assert world.post("/ads/campaigns", key, content=GOOD, headers=headers).status_code == 201
    assert all(body != GOOD for body in HOSTILE.values())


def test_a_parameter_comes_once_and_prints(world: AdsWorld, key: str) -> None:
    for query in ("most=1&most=2", "most=0", "after=-1", "after=1e3", "advertiser=%00", "x=1", "most="):
        assert world.get(f"/ads/campaigns?{query}", key).status_code == 400, query
    for path in ("/ads/advertisers/%00", "/ads/advertisers/", f"/ads/advertisers/{'x' * 201}", "/ads/keys/x"):
        method = "DELETE" if "keys" in path else "GET"
        assert world.ask(method, path, key).status_code == 404, path
    for match in ("1", 'W/"1"', '"0"', '"1", "2"', '"99999999999999999999"'):
        answer = world.ask(
            "PATCH", "/ads/campaigns/1", key, json={"status": "paused"}, headers={"if-match": match}
        )
        assert answer.status_code == 400, match


def test_a_key_asks_only_so_often_and_is_told_when_again(world: AdsWorld, key: str) -> None:
    ticks = [100.0]
    usual = world.running.api._gate
    world.running.api._gate = AccessGate(
        world.running.campaigns, lambda: world.now, AccessLimits(3, 0), ticks=lambda: ticks[0]
    )
    other = world.key(AccessRole.VIEWER)
    try:
        assert [world.get("/ads/whoami", key).status_code for _ in range(4)] == [200, 200, 200, 429]
        refused = world.get("/ads/whoami", key)
        assert (refused.headers["retry-after"], refused.json()["type"]) == ("20", "tacit:too-many-requests")
        assert world.get("/ads/whoami", other).status_code == 200
        ticks[0] += 20
        assert [world.get("/ads/whoami", key).status_code for _ in range(2)] == [200, 429]
    finally:
        world.running.api._gate = usual
