"""The device for browsers in a browser: its worker, its journal in IndexedDB, several tabs, and what it shows.

The parties are real, in this process; one server hands on what goes to the proxy and has the client's modules,
and writes down what it was asked.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tacit.deliver.campaigns.creatives import check_creative
from tacit.deliver.campaigns.store import Advertiser
from tacit.schema.contexts.device_copy import hierarchy_as_json
from tests.support import billing_services
from tests.support.ad_campaigns import ADDRESS, BEAN, BY, a_campaign, image_record, png, text_record
from tests.support.ads_services import AdsWorld
from tests.support.billing_services import PROXY_HOST
from tests.support.browsers import a_browser, needs_chromium
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = needs_chromium
MICRO = 1_000_000
FOOD, SPORT, TEA = ["Northport", "Coffee"], ["Northport", "Running"], ["Southwick", "Tea"]
HOSTILE = '<h2>First flush</h2><script>parent.document.title = "taken"</script><img src="/leak.png">'
PAGE = b"<!doctype html><title>A page</title><div id=ad></div><div id=other></div>"


class Front:
    """One origin: the client's modules, a page, and the proxy's routes for devices."""

    def __init__(self, world: AdsWorld) -> None:
        self._world = world
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.settings: dict[str, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.asked.append((scope["method"], path, headers))
        if path.startswith("/billing/"):
            await self._world.app(PROXY_HOST)(scope, receive, send)
            return
        module = ROOT / "device" / Path(path).name
        settings = json.dumps(self.settings).encode()
        found = {"/": (b"text/html", PAGE), "/device/parties.json": (b"application/json", settings)}
        found["/steps.mjs"] = b"text/javascript", Path(__file__).with_name("steps.mjs").read_bytes()
        if path.startswith("/device/") and module.suffix == ".js" and module.is_file():
            found[path] = b"text/javascript", module.read_bytes()
        media, body = found.get(path, (b"text/plain", b"nothing is here"))
        sent = [(b"content-type", media), (b"set-cookie", b"who=somebody; path=/")]
        await send({"type": "http.response.start", "status": 200 if path in found else 404, "headers": sent})
        await send({"type": "http.response.body", "body": body})

    def of_devices(self) -> list[tuple[str, str, dict[str, str]]]:
        return [each for each in self.asked if each[1].startswith("/billing/")]


class TabWorld(AdsWorld):
    """Both parties by the browser's clock, with ads of every kind."""

    def prepare(self) -> None:
        store = self.running.campaigns
        hostile = text_record(kind="html", content=HOSTILE, title="Tea")
        for number, advertiser, record in (
            (1, BEAN, text_record(title="<b>Fresh</b>")),
            (2, "Long Run Shoes", image_record(png(), title="Picture")),
            (4, "Tea House", hostile),
        ):
            store.put_advertiser(Advertiser(advertiser), BY)
            store.add_campaign(a_campaign(number, advertiser), BY)
            store.add_creative(*check_creative(record, number, lambda html, _: html), BY)
        self.wait_for_epoch()

    def bill_all(self, count: int) -> None:
        """Small cohorts too: what was reported leaves when its epoch has expired."""
        self.now += billing_services.EPOCH_SECONDS + billing_services.REPORT_SECONDS
        self.bill(count)

    @contextmanager
    def served(self) -> Iterator[tuple[str, Front]]:
        front, listening = Front(self), socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(front, lifespan="off", log_config=None, ws="none")
        server = uvicorn.Server(config)
        running = asyncio.run_coroutine_threadsafe(server._serve([listening]), self.loop)
        self.wait_until(lambda: server.started)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        keys = self.keys
        front.settings = {
            "version": 1,
            "proxy": {"url": url, "signing": keys.proxy_signing.hex()},
            "server": {"signing": keys.server_signing.hex(), "sealing": keys.server_sealing.hex()},
            "hierarchy": hierarchy_as_json(self.hierarchy),
            "disclosure": {"levels": [1, 1]},
            "limits": {"local": 6, "central": 6, "perChoice": 2, "delta": 1e-6, "windowSeconds": 864_000},
            "vendor": None,
            "demonstration": False,
        }
        try:
            yield url, front
        finally:
            server.should_exit = True
            running.result(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TabWorld]:
    monkeypatch.setattr(billing_services, "START", int(time.time()) - 10)
    made = TabWorld(tmp_path)
    try:
        made.prepare()
        yield made
    finally:
        made.end()


def step(page: Page, name: str, *given: Any) -> Any:
    """What a step of steps.mjs gives in this page."""
    return page.evaluate(
        "async ([name, ...given]) => (await import('/steps.mjs'))[name](...given)", [name, *given]
    )


def open_page(browser: Browser, url: str, **options: Any) -> Page:
    page = browser.new_page()
    page.goto(url)
    step(page, "openDevice", options)
    return page


def test_what_is_shown_runs_nothing_and_tells_nobody(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, front):
        page = open_page(browser, url)
        ad = step(page, "show", "ad", FOOD)
        assert (ad["lane"], ad["campaign"], ad["epsilonMicros"]) == ("public", 1, 0)
        assert "nonce" not in ad, "by which its report could be known again"
        link = page.locator("#ad a")
        assert page.locator("#ad").inner_text() == "Ad <b>Fresh</b>", "a text, whatever it spells"
        said = {name: link.get_attribute(name) for name in ("href", "target", "rel", "referrerpolicy")}
        assert said == {
            "href": ADDRESS, "target": "_blank", "rel": "noopener noreferrer", "referrerpolicy": "no-referrer"
        }  # fmt: skip

        step(page, "show", "ad", SPORT)
        page.wait_for_function("document.querySelector('#ad img').naturalWidth === 32")
        assert str(page.locator("#ad img").get_attribute("src")).startswith("blob:")

        step(page, "show", "ad", TEA)
        frame = page.locator("#ad iframe")
        assert frame.get_attribute("sandbox") == "allow-popups allow-popups-to-escape-sandbox"
        assert page.frame_locator("#ad iframe").locator("h2").inner_text() == "First flush"
        time.sleep(0.3)
        assert page.title() == "A page"
        assert not [path for _, path, _ in front.asked if "leak" in path]

        assert page.evaluate("tacit.pmf(['Northport', 'Coffee']).catch(({ reason }) => reason)") == "MALFORMED"
        page.evaluate("tacit.sendReports()")
        assert {message["kind"] for message in page.evaluate("told")} == {"head", "offer", "pack", "report"}
        sent = front.of_devices()
        assert len(sent) == len(page.evaluate("told")), "each message that left was told"
        assert not any({"cookie", "referer"} & set(headers) for _, _, headers in sent)
        world.bill(3)


def test_an_ad_counts_where_it_is_in_the_page(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, front):
        page = open_page(browser, url, consent=True)
        for spent in (0, MICRO):
            said, before, after = step(page, "showDetached", FOOD)
            assert said == "expected an element in the page"
            assert (before, after) == (spent, MICRO), "drawn once"
        page.evaluate("tacit.sendReports()")
        assert not [path for _, path, _ in front.of_devices() if "reports" in path]
        ad = step(page, "show", "ad", FOOD)
        assert (ad["lane"], ad["epsilonMicros"]) == ("personal", MICRO)
        page.reload()
        step(page, "openDevice", {"consent": True})
        assert page.evaluate("tacit.account()")["localMicros"] == MICRO, "kept beyond the page"
        page.evaluate("tacit.setConsent(false)")
        assert step(page, "show", "ad", FOOD)["lane"] == "public"
        page.evaluate("tacit.sendReports()")
        world.bill_all(2)


def wait_for_states(page: Page, *wanted: str) -> list[dict[str, Any]]:
    """Until the journal's impressions are in these states; the impressions, by their keys."""
    for _ in range(200):
        found: list[dict[str, Any]] = step(page, "records")
        if sorted(each["state"] for each in found) == sorted(wanted):
            return sorted(found, key=lambda each: str(each["key"]))
        page.wait_for_timeout(50)
    raise AssertionError(f"expected {wanted}, got {found}")


def test_a_reload_in_the_middle_of_each_state_goes_on_from_it(browser: Browser, world: TabWorld) -> None:
    """What was asked, issued, drawn or shown before is what it is after; nothing is drawn or paid again."""
    issued = ["ISSUED"] * 3
    with world.served() as (url, _):
        page = open_page(browser, url)

        def begin_again() -> None:
            page.reload()  # first: what waits is answered once nothing is in its way
            page.unroute_all(behavior="ignoreErrors")
            step(page, "openDevice", {})  # as where the page hears only later that somebody has agreed
            page.evaluate("tacit.setConsent(true)")

        def spent() -> int:
            return int(page.evaluate("tacit.account()")["localMicros"])

        # The second question for menus is for tokens: it is never answered.
        asked: list[str] = []

        def answer_once(route: Route) -> None:
            asked.append(route.request.url)
            if len(asked) == 1:
                route.continue_()

        page.route("**/billing/offers", answer_once)
        page.evaluate("tacit.setConsent(true)")
        page.evaluate("context => void tacit.choose(context).catch(() => {})", FOOD)
        before = wait_for_states(page, *["NEW"] * 4)
        begin_again()
        after = wait_for_states(page, "ISSUED", *issued)
        assert [each["key"] for each in after] == [each["key"] for each in before], "the same secrets"
        begin_again()
        assert wait_for_states(page, "ISSUED", *issued) == after
        assert spent() == 0

        drawn = page.evaluate("context => tacit.choose(context)", FOOD)
        wait_for_states(page, "CHOSEN", *issued)
        begin_again()
        page.route("**/billing/reports/*", lambda _: None)  # on its way for ever
        shown = step(page, "show", "ad", FOOD)
        assert (shown["campaign"], shown["lane"]) == (drawn["campaign"], "personal")
        assert spent() == MICRO
        wait_for_states(page, "SHOWN", *issued)
        begin_again()
        acked = wait_for_states(page, "ACKED", *issued)
        begin_again()
        assert wait_for_states(page, "ACKED", *issued) == acked

        world.bill_all(1)
        begin_again()
        wait_for_states(page, "SETTLED", *issued)
        begin_again()
        wait_for_states(page, "SETTLED", *issued)
        assert spent() == MICRO


def test_a_script_of_the_page_can_not_have_more_than_one_choice_is(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, front):
        page = browser.new_page()
        page.goto(url)
        found = step(page, "attack", FOOD)
        assert found["refused"] == ["MALFORMED"] * 6
        assert found["again"] == {"drawn": 1, "spent": MICRO}, "drawn once, however often it is put back"
        assert found["counted"], "again is no error"
        sent = [path for method, path, _ in front.of_devices() if method == "PUT"]
        assert len(sent) == len(set(sent)) == 1, "and no second report"
        # Each new draw is paid for, until nothing is left: then it is everybody's ad.
        assert found["lanes"] == ["personal"] * 5 + ["public"] * 5
        assert found["spent"] == 6 * MICRO
        for each in step(page, "records"):
            assert each["key"][1:] not in found["words"], "nothing by which a report is known again"
        nonces = [path.rpartition("/")[2] for path in sent]
        assert not any(each in found["words"] for each in nonces)
        zero = "00" * 32
        assert not any(zero in each["key"] for each in step(page, "records")), "secrets are the worker's own"


def two_tabs(browser: Browser, url: str) -> list[Page]:
    """Of one browser, in which somebody has agreed."""
    context = browser.new_context()
    tabs = [context.new_page() for _ in range(2)]
    for tab in tabs:
        tab.goto(url)
        step(tab, "openDevice", {"consent": True})
    return tabs


def own_name(world: TabWorld) -> str:
    return f"tacit {world.keys.server_signing.hex()[:16]}"


def test_where_nothing_can_be_kept_nothing_is_chosen(browser: Browser, world: TabWorld) -> None:
    """A wallet in memory would be full again with each reload."""
    with world.served() as (url, _):
        page = browser.new_page()
        page.goto(url)
        page.evaluate(
            "name => new Promise(done => { const open = indexedDB.open(name, 2);"
            " open.onsuccess = () => { open.result.close(); done(); } })",
            own_name(world),
        )  # of a version that the client does not know
        step(page, "openDevice", {"consent": True})
        assert step(page, "show", "ad", FOOD)["lane"] == "public"
        reason = "tacit.setConsent(true).catch(({ reason }) => reason)"
        assert page.evaluate(reason) == "NOT_STORED"
        assert page.evaluate("tacit.setConsent(false).then(() => 'taken')") == "taken", "a no is always taken"
        erased = "tacit.erase().catch(({ reason }) => reason)"
        assert page.evaluate(erased) == "NOT_STORED", "what may lie there was not erased, and that is said"
        assert page.evaluate("tacit.account()")["localMicros"] == 0


def test_what_was_stored_is_reported_and_erased_without_consent_too(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, _):
        page = open_page(browser, url, consent=True)
        page.route("**/billing/reports/*", lambda _: None)
        step(page, "show", "ad", FOOD)
        page.evaluate("context => tacit.choose(context)", FOOD)
        assert page.evaluate("indexedDB.databases()") == [{"name": own_name(world), "version": 1}]
        page.reload()
        page.unroute_all(behavior="ignoreErrors")
        step(page, "openDevice", {})
        assert step(page, "show", "ad", FOOD)["lane"] == "public"
        wait_for_states(page, "ACKED", "CHOSEN", "ISSUED", "ISSUED")
        assert page.evaluate("tacit.erase()") >= 4
        assert step(page, "records") == []
        # What was spent stays spent.
        page.evaluate("tacit.setConsent(true)")
        assert page.evaluate("tacit.account()")["localMicros"] == 2 * MICRO


def test_a_no_in_one_tab_is_a_no_in_all(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, _):
        tabs = two_tabs(browser, url)
        for tab in tabs:
            assert step(tab, "show", "ad", FOOD)["lane"] == "personal"
        tabs[0].evaluate("tacit.setConsent(false)")
        assert step(tabs[1], "show", "ad", FOOD)["lane"] == "public"
        tabs[1].evaluate("tacit.setConsent(true)")
        assert step(tabs[1], "show", "ad", FOOD)["lane"] == "personal"


def test_what_is_shown_while_consent_changes_counts(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, front):
        page = open_page(browser, url)
        show = "tacit.show(document.getElementById('ad'), ['Northport', 'Coffee'])"
        page.evaluate(f"Promise.all([{show}, tacit.setConsent(true)]).then(() => null)")
        page.evaluate("tacit.sendReports()")
        assert len([path for method, path, _ in front.of_devices() if method == "PUT"]) == 1
        assert page.locator("#ad a").count() == 1


def test_a_site_whose_data_is_cleared_begins_anew_in_the_open_page(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, _):
        page = open_page(browser, url, consent=True)
        step(page, "show", "ad", FOOD)
        page.evaluate(
            "name => new Promise(done => { indexedDB.deleteDatabase(name).onsuccess = done; }).then(() => 0)",
            own_name(world),
        )
        assert page.evaluate("tacit.account()")["localMicros"] == 0
        assert step(page, "show", "ad", FOOD)["lane"] == "personal"


def test_what_a_page_hands_in_is_refused_by_name(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, _):
        page = browser.new_page()
        page.goto(url)
        page.evaluate("Object.prototype.consent = true; 0")
        step(page, "openDevice", {})
        assert step(page, "show", "ad", FOOD)["lane"] == "public", "nobody has agreed"
        page.evaluate("delete Object.prototype.consent; 0")
        for call in ("confirmShown(99)", "putBack()", "setProfile({ clicks: 5 })", "answerRounds()"):
            assert page.evaluate(f"tacit.{call}.catch(({{ reason }}) => reason)") == "MALFORMED", call
        for settings in ("null", "'/'", "{ proxy: {} }"):
            said = page.evaluate(
                "settings => import('/device/tacit.js').then(({ openTacit }) => openTacit({ settings }))"
                ".catch(({ reason }) => reason)",
                None if settings == "null" else settings.strip("'"),
            )
            assert said == "MALFORMED"


def test_two_tabs_never_draw_for_the_same_token_nor_spend_twice(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, _):
        tabs = two_tabs(browser, url)
        for tab in tabs:
            step(tab, "showTwo", FOOD)
        drawn = sum(len(tab.evaluate("shown")) for tab in tabs)
        assert drawn == 4
        for tab in tabs:
            tab.evaluate("tacit.sendReports()")
        records = step(tabs[0], "records")
        assert {each["state"] for each in records} <= {"ISSUED", "ACKED", "SETTLED"}
        spent = sum(each["epsilon"] for each in records)
        assert tabs[1].evaluate("tacit.account()")["localMicros"] == spent
        world.bill_all(sum(each["state"] != "ISSUED" for each in records))


def test_without_locks_the_journal_alone_keeps_tabs_apart(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, _):
        page = browser.new_page()
        page.goto(url)
        found = step(page, "showWithoutLocks", FOOD)
        assert found["same"]
        assert found["spent"] == found["drawn"] * MICRO
        assert set(found["states"]) == {"ACKED"}
        world.bill_all(found["drawn"])


def test_the_journal_in_a_database_keeps_its_rules(browser: Browser, world: TabWorld) -> None:
    with world.served() as (url, _):
        page = browser.new_page()
        page.goto(url)
        assert step(page, "tryJournal") == {
            "reasons": [None, "MOVED_ON"], "half": "MOVED_ON", "conflict": "CONFLICT", "gone": 1,
            "left": [0, 0, 1], "others": 0, "kept": ["ISSUED", 0, False, True],
        }  # fmt: skip
