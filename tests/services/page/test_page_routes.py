"""The demonstration's page: what is served, how it is guarded, and that nothing of it is there elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import BillError
from tacit.services import billing_launch, visits
from tacit.services.page import ledger, part
from tacit.services.page.part import load_page
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tests.support.operated_parties import running, write_settings
from tests.support.page_worlds import DemonstrationWorld, a_demonstration, replace_in

GETS = ["/", "/page/index.html", "/demonstration/seen", "/demonstration/ledger", "/demonstration/verification"]
POSTS = ["/demonstration/verification", "/demonstration/round", "/demonstration/visits"]
SHOWN = 7


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemonstrationWorld]:
    with a_demonstration(tmp_path_factory.mktemp("page") / "demo") as made:
        made.show(SHOWN - 2, ("Northport", "Coffee"), "203.0.113.7")
        made.show(2, ("Southwick", "Running"), "203.0.113.8", consent=False)
        made.wait_until(lambda: len(made.get("/demonstration/ledger").json()["charges"]) == SHOWN)
        yield made


@pytest.mark.parametrize("path", GETS)
def test_each_route_is_there_in_a_demonstration(world: DemonstrationWorld, path: str) -> None:
    answer = world.get(path)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    if path.startswith("/demonstration"):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-type"] == "application/json"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("name", sorted(load_page()))
def test_every_file_of_the_page_has_its_headers(world: DemonstrationWorld, name: str) -> None:
    answer = world.get(f"/page/{name}")
    policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
    proxy = world.urls[Party.PROXY]
    assert policy == {
        "default-src": "'none'", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
        "script-src": "'self'", "worker-src": "'self'", "style-src": "'self'", "frame-src": "'self'",
        "img-src": "'self' blob: data:", "connect-src": f"'self' {proxy}",
    }  # fmt: skip
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    again = world.get(f"/page/{name}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_is_at_the_root(world: DemonstrationWorld) -> None:
    assert world.get("/").content == world.get("/page/index.html").content == load_page()["index.html"].body
    assert world.get("/").headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        "/page/../part.py", "/page/%2e%2e/part.py", "/page/..%2fpart.py", "/page//etc/passwd",
        "/page/web/index.html", "/page/nothing.js", "/device/../LICENSE", "/device/%2e%2e/pyproject.toml",
        "/device/..%2fpyproject.toml", "/device/%2e%2e%2fLICENSE", "/device/nothing.js", "/device//etc/passwd",
        "/device/", "/device/bytes.js/x", "/device/%00", "/index.html",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_folders(world: DemonstrationWorld, path: str) -> None:
    assert world.get(path).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/page/index.html", "/device/bytes.js", "/device/parties.json"])
def test_files_are_only_read(world: DemonstrationWorld, method: str, path: str) -> None:
    assert world.ask(method, path).status_code == 405


def no_longer_synthetic(folder: Path) -> None:
    for party in ("proxy", "server"):
        replace_in(folder / f"{party}.toml", "synthetic = true ", "synthetic = false")


def behind_a_reverse_proxy(folder: Path) -> None:
    for party in ("proxy", "server"):
        replace_in(folder / f"{party}.toml", "[listen]\n", "[listen]\nbehind_tls = true\n")


@pytest.mark.parametrize("change", [no_longer_synthetic, behind_a_reverse_proxy])
@pytest.mark.parametrize("party", [Party.SERVER, Party.PROXY])
def test_nothing_of_it_is_there_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, party: Party, change: Callable[[Path], None]
) -> None:
    """In production, and where a reverse proxy lets others in: neither routes nor anybody who looks on."""

    def never(*_: Any) -> None:
        raise AssertionError("somebody looks on")

    monkeypatch.setattr(billing_launch, "SeenMessages", never)
    path = write_settings(tmp_path)[party]
    change(tmp_path)
    with running(load_settings(path, party), monkeypatch) as client:
        assert [client.get(each).status_code for each in GETS] == [404] * len(GETS)
        assert [client.post(each).status_code for each in POSTS] == [404] * len(POSTS)
        if party is Party.SERVER:
            assert client.get("/device/parties.json").json()["demonstration"] is False
            assert client.get("/device/bytes.js").status_code == 200


# The ledger and its check.


def test_charges_arrive_with_their_reasons_and_add_up(world: DemonstrationWorld) -> None:
    told = world.get("/demonstration/ledger").json()
    charges = told["charges"]
    assert len(charges) == SHOWN
    assert sum(each["price_micros"] for each in charges if not each["held"]) == told["total_micros"] > 0
    assert (told["held_micros"], told["more"]) == (0, False)
    numbers = [each["number"] for each in charges]
    assert numbers == sorted(set(numbers))
    for each in charges:
        assert set(each) == {
            "number", "campaign", "advertiser", "title", "entry", "price_micros", "reason", "context", "lane",
            "epoch", "batch", "held", "invoice",
        }  # fmt: skip
        assert each["reason"].startswith("second price per impression, public rank")
        assert each["advertiser"]
        assert each["title"]
    lanes = [each["lane"] for each in charges]
    assert (lanes.count("personal"), lanes.count("public")) == (SHOWN - 2, 2)


def test_who_has_seen_some_asks_for_those_behind_them(
    world: DemonstrationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_CHARGES", 3)
    found: list[int] = []
    pages = []
    while True:
        after = f"?after={found[-1]}" if found else ""
        told = world.get(f"/demonstration/ledger{after}").json()
        pages.append((len(told["charges"]), told["more"]))
        found += [each["number"] for each in told["charges"]]
        if not told["more"]:
            break
    assert pages == [(3, True), (3, True), (1, False)]
    assert len(set(found)) == SHOWN
    assert world.get(f"/demonstration/ledger?after={found[-1]}").json()["charges"] == []
    assert world.get(f"/demonstration/ledger?after={2**53 - 1}").json()["charges"] == []


@pytest.mark.parametrize("after", ["", "-1", "x", "1e3", "٣", str(2**53), "9" * 17])
def test_what_is_no_number_is_refused(world: DemonstrationWorld, after: str) -> None:
    assert world.get(f"/demonstration/ledger?after={after}").status_code == 400


def test_the_auditor_finds_that_all_of_it_holds(world: DemonstrationWorld) -> None:
    assert world.ask("POST", "/demonstration/verification").status_code == 202
    world.wait_until(lambda: not world.get("/demonstration/verification").json()["running"])
    told = world.get("/demonstration/verification").json()
    assert (told["trouble"], told["report"]["holds"], told["report"]["reports"]) == ("", True, SHOWN)
    assert told["report"]["charged"]["micros"] == world.get("/demonstration/ledger").json()["total_micros"]
    assert world.ask("POST", "/demonstration/verification").status_code == 409  # one has just ended


# Who may ask.


@pytest.mark.parametrize("path", [each for each in GETS if each.startswith("/demonstration")] + POSTS)
def test_pages_of_other_sites_are_answered_nothing(world: DemonstrationWorld, path: str) -> None:
    method = "GET" if path in GETS else "POST"
    for site in ("cross-site", "same-site"):
        assert world.ask(method, path, headers={"sec-fetch-site": site}).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200), ("localhost:8472", 200), ("LOCALHOST:1", 200), ("[::1]:8472", 200), ("[::1]", 200),
        ("evil.example:8472", 403), ("127.0.0.1.evil.example", 403), ("localhost.evil.example:8472", 403),
        ("evil.example:127.0.0.1", 403), ("192.0.2.7:8472", 403), ("[::2]", 403), ("", 403),
        ("localhost:", 403), ("user@localhost", 403), ("[::1", 403),
    ],
)  # fmt: skip
def test_who_asks_for_another_host_is_refused(world: DemonstrationWorld, host: str, status: int) -> None:
    """A site whose name was made to lead here asks by its own name (DNS rebinding)."""
    for path in GETS:
        assert world.get(path, headers={"host": host}).status_code == status, path
    assert world.get(part.SEEN, of=Party.PROXY, headers={"host": host}).status_code == status
    if status == 403:
        refused = [world.ask("POST", each, headers={"host": host}).status_code for each in POSTS]
        assert refused == [403] * len(POSTS)


def test_a_long_body_is_refused_before_it_is_read(world: DemonstrationWorld) -> None:
    body = json.dumps({"devices": 200}).encode() + b" " * part.MOST_BODY_BYTES
    assert world.ask("POST", "/demonstration/round", content=body).status_code == 413


# Other phones.


def test_other_phones_show_ads_that_are_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_demonstration(tmp_path / "demo") as world:
        monkeypatch.setattr(visits, "open_client", lambda *_: world.client("203.0.113.9"))
        world.wait_for_epoch()
        told = world.ask("POST", "/demonstration/visits", json={"phones": 9, "ads_each": 2}).json()
        assert (told["phones"], told["shown"], told["refused"]) == (9, 18, {})
        assert told["lanes"]["personal"] >= told["lanes"]["public"] > 0
        world.wait_until(
            lambda: len(world.get("/demonstration/ledger").json()["charges"]) >= 18 - told["waiting"]
        )
        # What waits is in batches that are too small, and is charged when their epoch expires.
        charged = world.get("/demonstration/ledger").json()
        assert 0 < charged["total_micros"] <= told["price_micros"]


def test_other_phones_are_new_ones_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None has spent anything, some are where they are asked to be, and those of `tacit serve visit` are not
    among them: three of four agreed, and show all of their ads privately, as often as somebody asks."""
    with a_demonstration(tmp_path / "demo") as world:
        monkeypatch.setattr(visits, "open_client", lambda *_: world.client("203.0.113.9"))
        for values, neighbours in ((["North", "Sport"], 2), (["South", "Food"], 3)):
            for _ in range(2):
                asked = {"phones": 4, "ads_each": 5, "neighbours": neighbours, "place": values}
                told = world.ask("POST", "/demonstration/visits", json=asked).json()
                # Some may find a menu without tokens left; spent wallets would leave 3 of 15 the second time.
                assert 12 <= told["lanes"]["personal"] <= 15
                assert sum(told["lanes"].values()) == 20
                assert told["here"] >= 4 * neighbours
        assert not (world.folder / "devices").exists()


@pytest.mark.parametrize(
    "body",
    [
        {"phones": 0},
        {"phones": 51},
        {"ads_each": 11},
        {"phones": 2.5},
        {"phones": True},
        {"more": 1},
        [],
        3,
        {"neighbours": 3},
        {"neighbours": 17, "place": ["North", "Food"]},
        {"neighbours": 16, "place": ["North", "Food"]},
        {"neighbours": 1, "place": ["North", "Opera"]},
        {"neighbours": 1, "place": "North"},
        {"place": ["x" * 201]},
    ],
)
def test_visits_that_cannot_be_are_refused(world: DemonstrationWorld, body: Any) -> None:
    answer = world.ask("POST", "/demonstration/visits", json=body)
    assert answer.status_code == 400
    assert "expected" in answer.json()["title"]


def test_one_group_visits_at_a_time(world: DemonstrationWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay(*_: Any, **__: Any) -> None:
        inside.set()
        leave.wait(20)
        raise BillError("nobody came")

    monkeypatch.setattr(visits, "run_visits", stay)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.ask, "POST", "/demonstration/visits", json={})
        assert inside.wait(20)
        assert world.ask("POST", "/demonstration/visits", json={}).status_code == 409
        leave.set()
        assert first.result().status_code == 400  # and in words
        assert first.result().json()["title"] == "other phones could not visit: nobody came"
