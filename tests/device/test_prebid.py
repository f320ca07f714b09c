"""Prebid.js itself, in Chromium, on a publisher's page: our adapter bids, and is charged for what was rendered.

It needs prebid.js and esbuild, about 120 MB, which no other test needs: `npm install --prefix FOLDER
--ignore-scripts prebid.js esbuild`, then TACIT_PREBID=FOLDER; or both in tests/device/node_modules.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tacit.services.page.client_export import export_client, read_device_parties
from tacit.services.signatures import Party
from tests.support.browsers import a_browser, needs_chromium, served_parties
from tests.support.consent_strings import tc_string
from tests.support.page_worlds import DemonstrationWorld, a_demonstration, replace_in
from tests.support.publisher_sites import a_site, a_visit, stored_rows, wait_for_reports
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ADAPTER = ROOT / "device" / "prebid" / "tacitBidAdapter.js"
MOST_ZIPPED = 3 * 1024
VENDOR = 755
HERE = ["Northport", "Coffee"]
ENTRY = """\
import pbjs from 'prebid.js';
import 'prebid.js/modules/consentManagementTcf';
import 'prebid.js/modules/consentManagementUsp';
import './modules/tacitBidAdapter.js';
pbjs.processQueue();
"""
PAGE = """\
<!doctype html><meta charset="utf-8"><title>News</title><link rel="icon" href="data:,">
<h1>News</h1><div id="slot"></div><div id="second"></div>
<script src="prebid.js"></script>
<script src="page.js"></script>
"""
SCRIPT = """\
const units = codes => codes.map(code =>
  ({ code, mediaTypes: { banner: { sizes: [[300, 250]] } }, bids: [{ bidder: 'tacit', params: {} }] }));
const auction = (codes = ['slot'], timeout = 5000) => new Promise(done => pbjs.requestBids({
  adUnits: units(codes), timeout, bidsBackHandler: (bids, timedOut) => done(
    { bids: codes.flatMap(code => bids[code]?.bids ?? []), timedOut }) }));
const render = (bid, place = 'slot') => new Promise((done, failed) => {
  pbjs.onEvent('adRenderFailed', ({ message }) => failed(new Error(message)));
  pbjs.onEvent('adRenderSucceeded', ({ adId }) => adId === bid.adId && done());
  const frame = document.createElement('iframe');
  frame.width = bid.width, frame.height = bid.height;
  document.getElementById(place).replaceChildren(frame);
  pbjs.renderAd(frame.contentDocument, bid.adId);
});
const openClient = async options => {
  const { openBids } = await import('/tacit/prebid/bids.js');
  const context = ['Northport', 'Coffee'];
  await openBids({ settings: '/tacit/parties.json', currency: 'USD', context, ...options });
};
const told = tcString => pbjs.setConfig({ consentManagement: { gdpr: { cmpApi: 'static', consentData: {
  getTCData: { tcString, gdprApplies: true, purpose: { consents: {} }, vendor: { consents: {} } } } } } });
const usPrivacy = uspString => pbjs.setConfig({ consentManagement: {
  usp: { cmpApi: 'static', consentData: { getUSPData: { uspString } } } } });
const agreed = tcString => {
  window.__tcfapi = (command, version, answer) => answer(
    { gdprApplies: true, tcString, eventStatus: 'tcloaded', cmpStatus: 'loaded', listenerId: 1 }, true);
  pbjs.setConfig({ consentManagement: { gdpr: { cmpApi: 'iab', timeout: 500 } } });
};
"""


def find_prebid() -> Path | None:
    """A folder of npm packages that has prebid.js and esbuild."""
    named = os.environ.get("TACIT_PREBID")
    for folder in ([Path(named), Path(named) / "node_modules"] if named else []) + [
        Path(__file__).parent / "node_modules"
    ]:
        if (folder / "prebid.js" / "package.json").is_file() and (folder / "esbuild" / "bin").is_dir():
            return folder.resolve()
    return None


FOUND = find_prebid()
needs_prebid = pytest.mark.skipif(
    FOUND is None,
    reason="NOT TRIED WITH PREBID: npm install --prefix FOLDER --ignore-scripts prebid.js esbuild, "
    "then TACIT_PREBID=FOLDER",
)


def test_the_adapter_is_small_asks_nobody_and_stores_nothing() -> None:
    text = ADAPTER.read_text()
    assert len(gzip.compress(text.encode(), 9)) <= MOST_ZIPPED
    for risky in (
        "://", "fetch(", "XMLHttpRequest", "sendBeacon", "WebSocket", "ajax(", "localStorage", "cookie",
        "indexedDB", "import(", "createElement", "eval(", "loadExternalScript", "getUserSyncs", "Math.random",
    ):  # fmt: skip
        assert risky not in text, risky


class Publisher(NamedTuple):
    """A site with Prebid on this machine, and the parties that its client asks."""

    url: str
    proxy: str
    world: DemonstrationWorld

    def lanes(self, to_proxy: list[str]) -> set[str]:
        """Of what the ad server was asked in a visit."""
        count = sum(each == "POST /billing/offers" for each in to_proxy)
        requests = [each for each in self.world.seen(Party.SERVER) if each["kind"] == "request"]
        return {each["fields"]["lane"] for each in requests[-count:]}


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    folder = tmp_path_factory.mktemp("publisher")
    assert FOUND is not None
    with a_demonstration(folder / "demo", with_vendor) as world, served_parties(world) as ads:
        site = folder / "site"
        made = export_client(site / "tacit", read_device_parties(f"{ads}/device/parties.json"))
        build_prebid(FOUND, folder / "build", site / "prebid.js")
        (site / "index.html").write_text(PAGE)
        (site / "page.js").write_text(SCRIPT)
        # Prebid renders by an inline script of its own.
        policy = made.policy.replace("script-src 'self'", "script-src 'self' 'unsafe-inline'")
        with a_site(site, policy) as url:
            yield Publisher(url, world.urls[Party.PROXY], world)


def with_vendor(folder: Path) -> None:
    replace_in(folder / "server.toml", 'currency = "USD"\n', f'currency = "USD"\nvendor = {VENDOR}\n')


def build_prebid(packages: Path, folder: Path, out: Path) -> None:
    """Prebid with our adapter among its modules; what is in the packages stays as it is."""
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / ADAPTER.name).write_bytes(ADAPTER.read_bytes())
    (folder / "src").symlink_to(packages / "prebid.js" / "dist" / "src" / "src")
    (folder / "node_modules").symlink_to(packages)
    (folder / "entry.js").write_text(ENTRY)
    command = [str(packages / "esbuild" / "bin" / "esbuild"), "entry.js", "--bundle", f"--outfile={out}"]
    command.append("--log-level=error")
    subprocess.run(command, cwd=folder, check=True, timeout=60)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as opened:
        yield opened


def states(page: Page) -> list[str]:
    return sorted(row["state"] for row in stored_rows(page) if row["key"].startswith("i"))


@needs_prebid
@needs_chromium
def test_our_bid_wins_is_rendered_and_reported_once(browser: Browser, publisher: Publisher) -> None:
    with a_visit(browser, publisher.url, publisher.proxy) as (page, to_proxy):
        assert stored_rows(page) == [], "a page that only has Prebid and the adapter stores nothing"
        found = page.evaluate("async () => { openClient({ consent: true }); return await auction(); }")
        (bid,) = found["bids"]
        assert not found["timedOut"]
        assert (bid["bidder"], bid["currency"], bid["netRevenue"]) == ("tacit", "USD", True)
        assert (bid["width"], bid["height"], bid["mediaType"]) == (300, 250, "banner")
        assert publisher.lanes(to_proxy) == {"personal"}
        assert bid["cpm"] > 0
        assert states(page).count("CHOSEN") == 1
        assert not any("/reports/" in each for each in to_proxy), "nothing was shown yet"
        page.evaluate("bid => render(bid)", bid)
        outer = page.frame_locator("#slot > iframe")
        inner = outer.frame_locator("iframe").frame_locator("iframe[sandbox]")
        assert "Ad" in inner.locator("small").inner_text()
        assert inner.locator("a[href^='https://']").count() == 1
        wait_for_reports(page, to_proxy, 1)
        assert states(page).count("CHOSEN") == 0
        page.evaluate("bid => tacit.confirmShown(bid.tacitAd)", bid)  # again: nothing changes
        assert sum(each.startswith("PUT ") for each in to_proxy) == 1


@needs_prebid
@needs_chromium
def test_a_bid_that_is_not_rendered_is_the_next_one_and_charges_nobody(
    browser: Browser, publisher: Publisher
) -> None:
    with a_visit(browser, publisher.url, publisher.proxy) as (page, to_proxy):
        page.evaluate("openClient({ consent: true })")
        bids = [page.evaluate("auction()")["bids"][0] for _ in range(3)]
        assert len({(each["creativeId"], each["cpm"]) for each in bids}) == 1
        assert states(page).count("CHOSEN") == 1, "one draw, whatever was lost"
        assert page.evaluate("tacit.account()")["localMicros"] == 1_000_000
        two = page.evaluate("auction(['slot', 'second'])")["bids"]
        assert len(two) == 2, "two places at once are two choices"
        assert states(page).count("CHOSEN") == 2
        assert not any("/reports/" in each for each in to_proxy)


@needs_prebid
@needs_chromium
def test_without_consent_everybody_gets_the_public_ad(browser: Browser, publisher: Publisher) -> None:
    with a_visit(browser, publisher.url, publisher.proxy) as (page, to_proxy):
        page.evaluate("openClient({})")
        (bid,) = page.evaluate("auction()")["bids"]
        menu = publisher.world.get("/menus", params={"context": ["1:North", "1:Food"]}).json()
        assert (bid["cpm"], bid["creativeId"]) == (
            menu["entries"][0]["price_micros"] / 1000, str(menu["entries"][0]["campaign"]),
        )  # fmt: skip
        assert publisher.lanes(to_proxy) == {"public"}
        page.evaluate("bid => render(bid)", bid)
        wait_for_reports(page, to_proxy, 1)
        assert stored_rows(page) == [], "nothing is stored before somebody agrees"


@needs_prebid
@needs_chromium
@pytest.mark.parametrize(
    ("said", "lane"),
    [
        ("agreed(%s)", "personal"),
        ("agreed(%s)", "public"),
        ("told(%s)", "personal"),
        ("told(%s)", "public"),
        ("usPrivacy('1YNN')", "personal"),
        ("usPrivacy('1YYN')", "public"),
        ("pbjs.setConfig({ coppa: true })", "public"),
        ("pbjs.setConfig({ ortb2: { device: { lmt: 1 } } })", "public"),
    ],
)
def test_what_prebid_knows_of_consent_decides(
    browser: Browser, publisher: Publisher, said: str, lane: str
) -> None:
    purposes = (1, 2, 3, 4, 7) if lane == "personal" else (1, 2, 4, 7)
    text = tc_string(purposes=purposes, vendors=(VENDOR,))
    with a_visit(browser, publisher.url, publisher.proxy) as (page, to_proxy):
        page.evaluate(said.replace("%s", json.dumps(text)))
        page.evaluate("openClient({ consent: true })")
        (bid,) = page.evaluate("auction()")["bids"]
        assert bid["cpm"] > 0
        assert publisher.lanes(to_proxy) == {lane}


@needs_prebid
@needs_chromium
def test_where_the_client_cannot_bid_the_auction_ends_in_time(browser: Browser, publisher: Publisher) -> None:
    with a_visit(browser, publisher.url, publisher.proxy) as (page, _):
        found = page.evaluate("auction(['slot'], 300)")  # nobody opened a client
        assert found["bids"] == []
        assert not found["timedOut"]
        page.evaluate("openClient({ context: ['Northport', 'no such topic'] })")
        began = page.evaluate("performance.now()")
        assert page.evaluate("auction(['slot'], 5000)")["bids"] == []
        assert page.evaluate("performance.now()") - began < 2000, "a refusal is an answer"


@needs_prebid
@needs_chromium
def test_a_choice_that_comes_too_late_is_put_back(browser: Browser, publisher: Publisher) -> None:
    with a_visit(browser, publisher.url, publisher.proxy) as (page, _):
        page.evaluate("openClient({ consent: true })")
        page.evaluate("""() => {
          const bid = tacit.bid;
          tacit.bid = async request => { const made = await bid({ ...request, by: Infinity });
            await new Promise(done => setTimeout(done, 1500)); tacit.bid = bid; return made; };
        }""")
        assert page.evaluate("auction(['slot'], 1000)")["bids"] == []
        page.wait_for_timeout(1500)
        (bid,) = page.evaluate("auction()")["bids"]
        assert states(page).count("CHOSEN") == 1, bid
