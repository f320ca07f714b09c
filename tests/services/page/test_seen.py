"""What each party of a demonstration tells of what it saw: the latest of its own messages, and nothing that it
cannot read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.protocol.offers import OfferRequest
from tacit.bill.server.store import RedeemedBatch, RedeemedReport
from tacit.deliver.device.outcomes import ShownAd
from tacit.services.page.seen import MOST_ENTRIES, MOST_MESSAGES, AdServerSight, SeenMessages
from tacit.services.signatures import Party
from tests.support.page_worlds import DemonstrationWorld, a_demonstration, replace_in

HOME, ADDRESS = ("Millbridge", "Tea"), "203.0.113.77"
SHOWN = 4
REQUEST = {"address", "length", "answer_length"}
REPORT = {
    "address", "length", "menu", "context", "levels", "values", "lane", "nonce", "commitment", "verdict"
}  # fmt: skip
CONTEXT = {"context", "levels", "values", "lane"}
FORMED = {"batch", "menu", "context", "levels", "values", "lane", "epoch", "reports"}


class Remembered:
    """What went through the ad server's hands, with what it may tell nobody."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[OfferRequest] = []
        self.batches: list[tuple[RedeemedBatch, PricedMenu]] = []
        request, batch = AdServerSight.request, AdServerSight.batch

        def note_request(sight: AdServerSight, sealed: bytes, asked: OfferRequest) -> None:
            self.requests.append(asked)
            request(sight, sealed, asked)

        def note_batch(sight: AdServerSight, data: bytes, got: RedeemedBatch, menu: PricedMenu) -> None:
            self.batches.append((got, menu))
            batch(sight, data, got, menu)

        monkeypatch.setattr(AdServerSight, "request", note_request)
        monkeypatch.setattr(AdServerSight, "batch", note_batch)


@pytest.fixture(scope="module")
def remembered() -> Iterator[Remembered]:
    with pytest.MonkeyPatch.context() as patch:
        yield Remembered(patch)


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory,
    remembered: Remembered,  # noqa: ARG001 (it looks on before the world begins)
) -> Iterator[DemonstrationWorld]:
    def stay(folder: Path) -> None:  # in one epoch, so that all that is shown may leave together
        replace_in(folder / "market.toml", "epoch_seconds = 60 ", "epoch_seconds = 3600 ")

    with a_demonstration(tmp_path_factory.mktemp("seen") / "demo", stay) as made:
        yield made


@pytest.fixture(scope="module")
def shown(world: DemonstrationWorld) -> list[ShownAd]:
    found = world.show(SHOWN, HOME, ADDRESS)
    world.wait_until(
        lambda: sum(each["fields"]["reports"] for each in of_kind(world, Party.SERVER, "batch")) == SHOWN
    )
    return found


def of_kind(world: DemonstrationWorld, party: Party, kind: str) -> list[dict[str, Any]]:
    return [each for each in world.seen(party) if each["kind"] == kind]


def fields(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["fields"] for each in messages]


def test_the_proxy_tells_of_addresses_and_lengths(world: DemonstrationWorld, shown: list[ShownAd]) -> None:
    requests, reports = (of_kind(world, Party.PROXY, kind) for kind in ("request", "report"))
    assert {frozenset(each) for each in fields(requests)} == {frozenset(REQUEST)}
    assert {each["address"] for each in fields(requests) + fields(reports)} == {ADDRESS}
    assert {frozenset(each) for each in fields(reports)} == {frozenset(REPORT)}
    assert {each["nonce"] for each in fields(reports)} == {each.nonce.hex() for each in shown}
    assert {(each["bytes"], len(each["hex"])) for each in reports} == {(434, 128)}
    assert {each["verdict"] for each in fields(reports)} == {"ACCEPTED"}
    batches = fields(of_kind(world, Party.PROXY, "batch"))
    assert {frozenset(each) for each in batches} == {frozenset(FORMED)}
    assert sum(each["reports"] for each in batches) == SHOWN
    heads = fields(of_kind(world, Party.PROXY, "head"))
    assert {frozenset(each) for each in heads} == {frozenset({"address", "epoch"})}


def test_the_ad_server_tells_of_contexts_and_of_choices(
    world: DemonstrationWorld, shown: list[ShownAd]
) -> None:
    requests = fields(of_kind(world, Party.SERVER, "request"))
    assert {each["context"] for each in requests} == {"North · Food"}
    assert {tuple(each["levels"]) for each in requests} == {(1, 1)}
    assert {each["lane"] for each in requests} == {"personal"}
    assert sum(each["tokens"] for each in requests) >= SHOWN
    entries = [entry for each in fields(of_kind(world, Party.SERVER, "batch")) for entry in each["entries"]]
    chosen = sorted((each.campaign, each.price_micros) for each in shown)  # of no particular order there
    assert sorted((each["campaign"], each["price_micros"]) for each in entries) == chosen
    assert {frozenset(each) for each in entries} == {
        frozenset({"entry", "campaign", "price_micros", "verdict"})
    }


def test_a_party_tells_nothing_that_it_cannot_read(world: DemonstrationWorld, shown: list[ShownAd]) -> None:
    """An exact context and a person's own rates leave no device; a choice is no matter of the proxy's, nor an
    address or a request's report of the ad server's."""
    said = {party: json.dumps(world.seen(party), ensure_ascii=False) for party in (Party.PROXY, Party.SERVER)}
    for text in said.values():
        assert not any(place in text for place in HOME)
    for word in ("entry", "entries", "campaign", "price", "tokens", "answer_key"):
        assert f'"{word}"' not in said[Party.PROXY]
    assert ADDRESS in said[Party.PROXY]
    assert ADDRESS not in said[Party.SERVER]
    assert "192.0.2.200" not in said[Party.SERVER]  # nor the proxy's own
    for each in shown:
        assert each.nonce.hex() in said[Party.PROXY]
        assert each.nonce.hex() not in said[Party.SERVER]


def test_nobody_is_told_what_opens_a_message(
    world: DemonstrationWorld, shown: list[ShownAd], remembered: Remembered
) -> None:
    assert shown
    said = json.dumps([world.seen(Party.PROXY), world.seen(Party.SERVER)])
    keys = {request.answer_key.hex() for request in remembered.requests}
    secrets = {report.secret.hex() for batch, _ in remembered.batches for report in batch.reports}
    assert len(keys) >= SHOWN
    assert len(secrets) == SHOWN
    assert not [each for each in keys | secrets if each[:16] in said]


def test_the_proxy_tells_which_menus_are_fetched_and_what_is_asked_of_reports(
    world: DemonstrationWorld, shown: list[ShownAd]
) -> None:
    """All that devices ask for in the clear, also where nothing is shown; what is asked again stands once."""
    menu, nonce, epoch = shown[0].menu_id.hex(), shown[0].nonce.hex(), shown[0].epoch
    for _ in range(3):
        for path in (f"packs/{menu}", f"reports/{nonce}", f"epochs/{epoch}/cohorts"):
            assert world.get(f"/billing/{path}", of=Party.PROXY).status_code == 200
    packs, statements, sizes = (
        fields(of_kind(world, Party.PROXY, kind)) for kind in ("pack", "statement", "sizes")
    )
    assert {frozenset(each) for each in packs} == {frozenset({*CONTEXT, "address", "menu"})}
    assert [(each["menu"], each["context"], each["lane"]) for each in packs[-3:]] == [
        (menu, "North · Food", "personal")
    ] * 3
    assert statements == [{"address": "127.0.0.1", "nonce": nonce, "known": True, "times": 3}]
    assert sizes == [{"address": "127.0.0.1", "epoch": epoch, "times": 3}]


def test_the_latest_hundred_are_kept(world: DemonstrationWorld) -> None:
    for _ in range(MOST_MESSAGES + 10):
        world.get("/billing/head", of=Party.PROXY)
    assert len(world.seen(Party.PROXY)) == MOST_MESSAGES


def test_the_proxy_answers_pages_of_the_ad_server(world: DemonstrationWorld) -> None:
    own = world.urls[Party.SERVER]
    named = own.replace("127.0.0.1", "localhost")
    port = own.rpartition(":")[2]
    others = [
        "https://evil.example", f"http://evil.example:{port}", f"http://127.0.0.1.evil.example:{port}", "null",
        f"http://[::1]x:{port}", f"{own}0", "http://localhost:1", f"https://localhost:{port}",
        f"http://localhost:1:{port}",
    ]  # fmt: skip
    for asking, allowed in [(own, own), (named, named), *((each, own) for each in others)]:
        answer = world.get("/demonstration/seen", of=Party.PROXY, headers={"origin": asking})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == allowed, asking
        assert answer.headers["cache-control"] == "no-store"


def test_many_threads_may_tell_at_once() -> None:
    seen = SeenMessages(lambda: 7, most=50)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: seen.note("head", bytes(200), number=number), range(2_000)))
    found = seen.latest()
    assert len(found) == 50
    assert {(each["at"], each["kind"], each["bytes"], each["hex"]) for each in found} == {
        (7, "head", 200, "00" * 64)
    }
    assert len({each["fields"]["number"] for each in found}) == 50
    assert repr(seen) == "SeenMessages(messages=50)"


def test_a_large_batch_is_told_in_part(
    world: DemonstrationWorld, shown: list[ShownAd], remembered: Remembered
) -> None:
    assert shown
    assert world
    batch, menu = remembered.batches[0]
    many = replace(batch, reports=(RedeemedReport(BillVerdict.DUPLICATE),) * 10_000)
    seen = SeenMessages(lambda: 0)
    AdServerSight(seen).batch(b"", many, menu)
    (told,) = fields(seen.latest())
    assert (told["reports"], len(told["entries"])) == (10_000, MOST_ENTRIES)
    assert told["entries"][0] == {"entry": 0, "campaign": None, "price_micros": 0, "verdict": "DUPLICATE"}
