"""The phone, its wallet and the ledger in Chromium, with both parties: consent, chances, sums, refusals."""

from __future__ import annotations

import asyncio
import math
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from tacit.bill.protocol.directory import EpochHead
from tacit.deliver.device.outcomes import ShownAd
from tacit.services.page.seen import MOST_MESSAGES
from tacit.services.signatures import Party
from tests.support.browsers import a_browser, needs_chromium
from tests.support.page_worlds import COHORT, DemonstrationWorld, a_demonstration

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

pytestmark = needs_chromium

PRIVATE = ("Northport", "Coffee")  # an exact context
ELSEWHERE = ("Harbour", "Running")  # of which nobody else reports
SPENT = "This period’s epsilon is spent."
SUMS = """
  const rows = [...document.querySelectorAll("#ledger .sums tbody tr")];
  const own = rows.map(row => [...row.querySelectorAll("td")].map(cell => cell.innerText));
"""
HARBOUR, RUNNING = ("Harbour", "Coffee"), ("Northport", "Running")
SOUTHWICK = ("Southwick", "Coffee")
NEAR_RUNNING = ("Northport", "Cycling"), ("Millbridge", "Running")
NEAR_HARBOUR = ("Southwick", "Tea"), ("Harbour", "Tea")  # to others the same place
NOTHING_WAITS = "!/waits here|not shown yet/.test(document.querySelector('#wallet .choices').innerText)"
WRONG_HINTS = """
  [...document.querySelectorAll(".wide")]
    .filter(box => box.parentElement.classList.contains("overflows") !== box.scrollWidth > box.clientWidth + 1)
    .map(box => box.getAttribute("aria-label"))
"""
REFUSED = "The phone refused it"


class ServedParty:
    """One party over HTTP, in the world's own loop; it can be away for a while."""

    def __init__(self, world: DemonstrationWorld, party: Party) -> None:
        self._world, self._port = world, int(world.urls[party].rpartition(":")[2])
        self._app = world._apps[self._port]
        self.begin()

    def begin(self) -> None:
        self._world._apps[self._port] = self._app
        self._server = uvicorn.Server(uvicorn.Config(self._app, lifespan="off", log_config=None, ws="none"))
        listening = socket.create_server(("127.0.0.1", self._port))
        loop = self._world._loop.loop
        self._running = asyncio.run_coroutine_threadsafe(self._server._serve([listening]), loop)
        self._world.wait_until(lambda: self._server.started)

    def end(self) -> None:
        self._world._apps.pop(self._port, None)  # the other party does not reach it either
        self._server.should_exit = self._server.force_exit = True
        self._running.result(10)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemonstrationWorld]:
    with a_demonstration(tmp_path_factory.mktemp("phone") / "demo") as found:
        yield found


@pytest.fixture(scope="module")
def parties(world: DemonstrationWorld) -> Iterator[dict[Party, ServedParty]]:
    served = {party: ServedParty(world, party) for party in world.urls}
    yield served
    for each in served.values():
        each.end()


@pytest.fixture(scope="module")
def browser(parties: dict[Party, ServedParty]) -> Iterator[Browser]:  # noqa: ARG001 (reached over HTTP)
    with a_browser() as opened:
        yield opened


@contextmanager
def a_phone(
    browser: Browser, world: DemonstrationWorld, place: tuple[str, str] | None = None, **options: Any
) -> Iterator[Page]:
    """A browser that nobody used before; nothing went wrong in it, and it asked nobody but both parties."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
    wrong: list[str] = []
    if place is not None:
        context.add_init_script(f"localStorage['tacit-page'] ??= JSON.stringify({{ context: {list(place)} }})")
    yield a_tab(context, world, wrong)
    assert wrong == []
    context.close()


def a_tab(context: BrowserContext, world: DemonstrationWorld, wrong: list[str]) -> Page:
    page = context.new_page()
    urls = (*world.urls.values(), "data:", "blob:")
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("request", lambda asked: None if asked.url.startswith(urls) else wrong.append(asked.url))
    page.goto(world.urls[Party.SERVER])
    page.locator("footer").wait_for()
    page.locator("#phone .phone").scroll_into_view_if_needed()
    return page


def wait_for(page: Page, place: str, words: str, seconds: int = 10) -> str:
    """Until an element says so; all that it says."""
    found = page.locator(place).filter(has_text=re.compile(words))
    found.first.wait_for(timeout=1000 * seconds)
    return found.first.inner_text()


def wait_until(page: Page, expression: str) -> None:
    """Until an expression of the page is true; its policy allows no script to evaluate one."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{expression} never became true")


def wait_for_time(world: DemonstrationWorld, seconds: int = 20) -> None:
    """Until an epoch is open for so long: its menus are those of a whole test."""

    head = EpochHead.from_bytes(world.get("/billing/head", of=Party.PROXY).content)
    if head.closes - time.time() < seconds:
        time.sleep(head.closes - time.time() + 0.5)


def focused(page: Page) -> str:
    words: str = page.evaluate("document.activeElement.innerText")
    return words


def agree(page: Page) -> None:
    wait_for(page, "#phone .why", "epsilon 0")
    page.get_by_role("button", name="Yes, privately").click()
    wait_for(page, "#phone .why", "Chosen on this phone")


def next_ad(page: Page) -> None:
    """One more, and wait until its record stands."""
    before = page.evaluate("document.querySelectorAll('#wallet tbody tr').length")
    assert before < 7, "the wallet lists so many"
    page.get_by_role("button", name="Next ad").click()
    wait_until(page, f"document.querySelectorAll('#wallet tbody tr').length > {before}")


def spent(page: Page) -> float:
    return float(page.inner_text("#wallet .bar-row:nth-child(2) .number").split(" of ")[0])


def private_sums(page: Page) -> tuple[float, float]:
    """What was spent, by the account and by the list of choices."""
    listed = page.locator("#wallet .choices tbody td:nth-child(2)").all_inner_texts()
    return spent(page), sum(float(each) for each in listed)


def test_nothing_private_is_read_before_somebody_agrees(browser: Browser, world: DemonstrationWorld) -> None:
    with a_phone(browser, world) as page:
        said = wait_for(page, "#phone .why", "epsilon 0")
        assert said == "What everybody in North · Food is shown: epsilon 0."
        assert page.inner_text("#phone .slot small") == "Ad"
        assert "nothing of this is read" in page.inner_text("#phone .chances")
        assert page.get_by_role("button", name="Spend it").is_disabled()
        assert {each["fields"]["lane"] for each in world.seen(Party.SERVER)} == {"public"}
        page.get_by_role("button", name="No", exact=True).click()
        wait_for(page, "#phone .ask", "everybody here is shown")
        assert spent(page) == 0

        page.get_by_role("button", name="Allow it").focus()  # by the keyboard
        page.keyboard.press("Enter")
        wait_for(page, "#phone .why", "Chosen on this phone, with chance mixed in: epsilon 1")
        assert focused(page) == "Take it back"
        assert spent(page) == 1
        chances = page.locator("#phone .tight tbody td:last-child").all_inner_texts()
        favoured, other = math.e / (math.e + 2), 1 / (math.e + 2)
        assert chances == [f"{100 * other:.1f}%", f"{100 * favoured:.1f}%", f"{100 * other:.1f}%", "0%"]
        shown = page.inner_text("#phone .slot strong")
        assert page.inner_text("#phone .tight .chosen th") == shown
        wait_for(page, "#phone .side:nth-child(2) li", "Which one is sealed")
        wait_for(page, "#phone .side:nth-child(3) li", "asks for the personal menu")
        for party in (Party.PROXY, Party.SERVER):
            assert not any(word in str(world.seen(party)) for word in PRIVATE)
        for each in world.seen(Party.PROXY):
            assert not {"entry", "campaign", "price_micros"} & each["fields"].keys()

        page.get_by_role("button", name="Take it back").click()
        wait_for(page, "#phone .why", "What everybody in North · Food is shown: epsilon 0")
        assert spent(page) == 1

        page.locator("footer").scroll_into_view_if_needed()
        page.wait_for_timeout(700)
        asked: list[str] = []
        page.on("request", lambda each: asked.append(each.url))
        page.wait_for_timeout(2300)
        assert asked == []  # while nobody looks


def drawn(page: Page) -> list[tuple[int, float]]:
    """Counts and exact chances, in percent, as the chart says them."""
    label = page.locator("#phone svg.shares").get_attribute("aria-label") or ""
    rows = re.findall(r"([\d,]+) of [\d,]+, (?:exactly ([\d.]+)%|never)", label)
    return [(int(count.replace(",", "")), float(chance or 0)) for count, chance in rows]


def draw(page: Page) -> tuple[str, list[tuple[int, float]]]:
    page.get_by_role("button", name="Choose 1,000 times").click()
    said = wait_for(page, "#phone .rehearsal .verdict", "of [0-9,]+ draws|nothing private is read")
    return said, drawn(page)


def test_many_choices_meet_their_exact_chances(browser: Browser, world: DemonstrationWorld) -> None:
    """A false alarm in 10^9 runs: no count is further than 6.7 standard deviations and 8 from its mean."""
    with a_phone(browser, world) as page:
        agree(page)
        left = []
        page.on("request", lambda asked: left.append(asked.url) if "/billing/" in asked.url else None)
        for epsilon, law, ads, favoured in (
            (5, "trunc", 2, math.e / (math.e + 2)),
            (7, "rr", 6, math.exp(2) / (math.exp(2) + 7)),
            (11, "rr", 0, math.exp(8) / (math.exp(8) + 1)),
        ):
            page.locator("#rehearsal-epsilon").fill(str(epsilon))
            page.locator("#rehearsal-mechanism").select_option(law)
            page.locator("#rehearsal-number").fill(str(ads))
            said, rows = draw(page)
            assert len(rows) == ads + 2
            assert sum(count for count, _ in rows) == 1000
            assert max(chance for _, chance in rows) == pytest.approx(100 * favoured, abs=0.051)
            for count, chance in rows:
                share = chance / 100
                assert abs(count - 1000 * share) <= 6.7 * math.sqrt(1000 * share * (1 - share)) + 8
            assert re.match(r"(As near as chance allows|Far apart for chance, which happens): of 1,000", said)
            assert re.search(r"Chi-square [\d.]+ at \d degrees? of freedom, p = |too rare to test", said)
        _, rows = draw(page)
        wait_for(page, "#phone .rehearsal .verdict", "of 2,000 draws")
        page.locator("#rehearsal-epsilon").fill("0")
        wait_for(page, "#phone .rehearsal .verdict", "nothing private is read")
        assert "nothing is spent" in page.inner_text("#phone .rehearsal .source")
        assert spent(page) == 1
        assert [each for each in left if "reports" in each and "PUT" in each] == []


def test_a_spent_wallet_and_sums_that_agree(browser: Browser, world: DemonstrationWorld) -> None:
    from axe_playwright_python.sync_playwright import Axe

    # axe itself is no script of this server
    with a_phone(browser, world, ELSEWHERE, color_scheme="dark", bypass_csp=True) as page:
        agree(page)
        page.get_by_role("button", name="Spend it").click()
        wait_for(page, "#wallet .verdict", "Spent: from now on .* begins anew at .* UTC")
        assert spent(page) == 6
        assert wait_for(page, "#phone .why", SPENT).startswith("What everybody in South · Sport is shown")
        assert page.get_by_role("button", name="Spend it").is_disabled()
        assert focused(page) == "Spend it"
        page.keyboard.press("Enter")  # which does nothing any more
        page.get_by_role("button", name="Next ad").click()
        wait_for(page, "#wallet .choices .source", "The last 7 of 9")
        assert spent(page) == 6

        page.locator("#ledger").scroll_into_view_if_needed()
        wait_for(page, "#ledger .verdict", "charged [6-9] ads .* millionth")
        wait_until(page, f"() => {{ {SUMS} return own[1] + '' === own[3] + '' && own[2][0] === own[3][0] }}")
        shown, left, _, charged, everything = page.evaluate(f"() => {{ {SUMS} return own }}")
        assert shown[0] == "9"
        assert left == charged
        assert int(charged[0]) >= 6
        told = world.get("/demonstration/ledger").json()
        assert int(everything[0]) <= len(told["charges"])
        own = [each for each in told["charges"] if each["context"] == "South · Sport"]
        assert len(own) >= int(charged[0])
        assert float(charged[1]) == pytest.approx(
            sum(each["price_micros"] for each in own[: int(charged[0])]) / 1e6
        )
        assert "public rank" in page.inner_text("#ledger .charges tbody tr:first-child .words")
        left_as = page.locator("#wallet .choices .mark").all_inner_texts()
        assert "left with only this phone’s own" in left_as
        assert not any("among" in each for each in left_as)  # nobody else reports there

        page.get_by_role("button", name="Run the auditor’s check").click()
        wait_for(page, "#ledger .found", "Everything holds.")
        assert focused(page) == "Run the auditor’s check"
        assert re.search(
            r"\d+ batches with \d+ reports were signed by the proxy", page.inner_text("#ledger .found")
        )
        page.get_by_text("What such a check cannot show").click()
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        page.set_viewport_size({"width": 360, "height": 900})
        found = Axe().run(page, context={"include": [["#phone"], ["#wallet"], ["#ledger"]]}).response
        serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
        assert [f"{each['id']}: {each['nodes'][0]['html']}" for each in serious] == []
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert page.evaluate(WRONG_HINTS) == []


def test_a_wallet_is_spent_by_either_limit(browser: Browser, world: DemonstrationWorld) -> None:
    """The ad server's own limit may be the smaller one: what the client refuses, the page calls spent."""
    wait_for_time(world)
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    parties = world.get("/device/parties.json").json()
    parties["limits"]["central"] = 2.5
    context.route("**/device/parties.json", lambda route: route.fulfill(json=parties))
    wrong: list[str] = []
    page = a_tab(context, world, wrong)
    agree(page)
    assert page.get_by_role("button", name="Spend it").is_enabled()
    next_ad(page)
    wait_for(page, "#wallet .verdict", "Spent: from now on")
    assert spent(page) == 2
    next_ad(page)
    assert wait_for(page, "#phone .why", SPENT).startswith("What everybody in")
    assert wrong == []
    context.close()


def test_others_are_counted_without_one_s_own(browser: Browser, world: DemonstrationWorld) -> None:
    """Batches of three: two of others beside one's own, then one of others beside two."""
    wait_for_time(world)
    with a_phone(browser, world, HARBOUR) as page:
        agree(page)
        page.locator("#wallet").scroll_into_view_if_needed()
        world.show(COHORT - 1, NEAR_HARBOUR[0], "203.0.113.5")
        wait_for(page, "#wallet .choices", "left among 2 others")
        for _ in range(2):
            next_ad(page)
        page.locator("#wallet").scroll_into_view_if_needed()
        world.show(COHORT - 2, NEAR_HARBOUR[1], "203.0.113.5")
        wait_for(page, "#wallet .choices", "left among 1 other")
        wait_until(page, "!document.querySelector('#wallet .choices').innerText.includes('waits')")
        left_as = page.locator("#wallet .choices .mark")
        for reloaded in (False, True):
            if reloaded:
                page.reload()
                page.locator("#wallet").scroll_into_view_if_needed()
                wait_for(page, "#wallet .choices", "left among 1 other")
            private = sorted(each for each in left_as.all_inner_texts() if "among" in each)
            assert private == ["left among 1 other"] * 2 + ["left among 2 others"]


def test_sums_say_whose_charges_are_whose(browser: Browser, world: DemonstrationWorld) -> None:
    """What is of others is what was charged but for what has left of one's own, however much waits."""

    def rows() -> list[list[str]]:
        page.wait_for_timeout(50)
        found: list[list[str]] = page.evaluate(f"() => {{ {SUMS} return own }}")
        return found

    def priced(of: list[ShownAd]) -> str:
        return f"{sum(each.price_micros for each in of) / 1e6:.4f} USD"

    wait_for_time(world)
    with a_phone(browser, world, RUNNING) as page:
        agree(page)
        page.locator("#ledger").scroll_into_view_if_needed()
        wait_for(page, "#ledger .verdict", "You showed 2 ads .* is on its way|the rest is on its way")
        others = world.show(COHORT - 1, NEAR_RUNNING[0], "203.0.113.6")
        said = wait_for(page, "#ledger .verdict", "the other 2 ads")
        assert f"the other 2 ads for {priced(others)}" in said
        page.locator("#phone .phone").scroll_into_view_if_needed()
        next_ad(page)
        page.locator("#ledger").scroll_into_view_if_needed()
        said = wait_for(page, "#ledger .verdict", "1 ad of yours is still on the way")
        assert f"the other 2 ads for {priced(others)}" in said
        shown, left, sent, charged, _ = before = rows()
        assert [each[0] for each in (shown, left, sent, charged)] == ["3", "2", "4", "4"]
        assert float(charged[1]) - float(left[1]) == pytest.approx(float(priced(others).split()[0]))
        units = page.locator("#panels th.number small").all_inner_texts()
        assert units.count("USD") == 3  # the wallet's prices, sums, charges
        for _ in range(MOST_MESSAGES):  # of which the proxy remembers no more
            world.get("/billing/head", of=Party.PROXY)
        page.wait_for_timeout(2500)
        assert rows()[:4] == before[:4]
        others += world.show(COHORT, NEAR_RUNNING[1], "203.0.113.6")
        said = wait_for(page, "#ledger .verdict", f"All of yours have left .* other {len(others)} ads")
        assert f"other {len(others)} ads for {priced(others)}" in said


@pytest.mark.slow
def test_other_phones_come_where_one_is(browser: Browser, world: DemonstrationWorld) -> None:
    """As often as somebody asks, whoever visited before: a report waits, and leaves among theirs."""
    wait_for_time(world, 35)
    with a_phone(browser, world, SOUTHWICK) as page:
        agree(page)
        for shown in (1, 2):
            page.locator("#ledger").scroll_into_view_if_needed()
            said = wait_for(page, "#ledger .way", "A private one waits .* while the menu is offered: until ")
            assert "epoch that is over" not in said
            button = page.get_by_role("button", name="Let other phones visit")
            button.click()
            said = wait_for(page, "#ledger .visited", "16 other phones showed 48 ads", 30)
            private, here, public = map(int, re.findall(r"(\d+)(?: chosen| of them| as)", said))
            assert private + public == 48  # how many of each depends on what menus have left, too
            assert COHORT <= here <= private
            assert focused(page) == "Let other phones visit"
            wait_for(page, "#ledger .way", "Nothing is on its way")
            page.locator("#wallet").scroll_into_view_if_needed()
            left_as = page.locator("#wallet .choices .mark").filter(has_text="left among")
            assert left_as.count() == shown
            if shown == 1:
                next_ad(page)
        assert not (world.folder / "devices").exists()


def test_a_report_of_an_epoch_that_is_over_says_so(browser: Browser, world: DemonstrationWorld) -> None:
    wait_for_time(world)
    with a_phone(browser, world, SOUTHWICK) as page:
        agree(page)
        page.clock.set_system_time(time.time() + 90)  # its menus are offered for a minute
        page.locator("#ledger").scroll_into_view_if_needed()
        said = wait_for(page, "#ledger .way", "It is of an epoch that is over")
        assert re.search(r"it leaves at (\d\d \w+, )?\d\d:\d\d UTC, with however many there are", said)
        assert "Other phones help" not in said
        page.set_viewport_size({"width": 360, "height": 900})
        wait_for(page, "#wallet .choices", "reported, waits for others")
        fits = "box => box.scrollWidth <= box.clientWidth + 1"
        assert page.locator("#wallet .choices .wide").evaluate(fits)
        assert page.evaluate(WRONG_HINTS) == []


def test_a_choice_that_was_drawn_is_shown_after_a_reload(browser: Browser, world: DemonstrationWorld) -> None:
    with a_phone(browser, world) as page:
        agree(page)
        page.evaluate("""() => {
          const post = Worker.prototype.postMessage;
          Worker.prototype.postMessage = function (message) {
            if (message.call === "confirmShown") window.stopped = true;
            else post.call(this, message);
          };
        }""")
        page.get_by_role("button", name="Next ad").click()
        wait_until(page, "window.stopped")
        drawn_before = page.inner_text("#phone .slot strong")
        page.reload()
        page.locator("#phone .phone").scroll_into_view_if_needed()
        wait_for(page, "#phone .why", "Drawn before, and only shown now: the same one")
        assert page.inner_text("#phone .slot strong") == drawn_before
        assert spent(page) == 2
        # Who has agreed and comes back is not charged for that.
        page.reload()
        page.locator("#phone .phone").scroll_into_view_if_needed()
        wait_for(page, "#phone .slot", "Press “Next ad”")
        wait_for(page, "#wallet .bar-row:nth-child(2) .number", "^2.00 of 6$")


def test_two_tabs_are_one_phone(browser: Browser, world: DemonstrationWorld) -> None:
    with a_phone(browser, world) as page:
        agree(page)
        wrong: list[str] = []
        other = a_tab(page.context, world, wrong)
        wait_for(other, "#phone .slot", "Press “Next ad”")
        for _ in range(2):
            for each in (page, other):
                each.get_by_role("button", name="Next ad").click()
        for each in (page, other):
            wait_for(each, "#phone .why", "Chosen on this phone")
            each.locator("#wallet").scroll_into_view_if_needed()
        for each in (page, other):
            wait_until(each, NOTHING_WAITS)
        for _ in range(100):
            if len(found := {*private_sums(page), *private_sums(other)}) == 1:
                break
            page.wait_for_timeout(100)
        # What one tab has drawn and not shown yet, the other may show: then it is one choice.
        assert found <= {3, 4, 5}
        assert len(found) == 1
        assert wrong == []


def test_what_nobody_signed_is_refused(browser: Browser, world: DemonstrationWorld) -> None:
    """A directory's head, then an answer with menus, of which one bit is another one."""
    sent: list[str] = []

    def change(route: Route) -> None:
        body = bytearray(route.fetch().body())
        body[len(body) // 2] ^= 1
        route.fulfill(status=200, body=bytes(body), headers={"access-control-allow-origin": "*"})

    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.route("**/billing/head", change)
    wrong: list[str] = []
    page = a_tab(context, world, wrong)
    page.on("request", lambda asked: sent.append(f"{asked.method} {asked.url}"))
    page.get_by_role("button", name="Yes, privately").click()
    wait_for(page, "#phone .hand .trouble", REFUSED)
    assert not any("/billing/offers" in each for each in sent)
    context.route("**/billing/offers", change)
    context.unroute("**/billing/head")
    with page.expect_response("**/billing/offers"):
        page.get_by_role("button", name="Next ad").click()
    page.wait_for_timeout(200)
    wait_for(page, "#phone .hand .trouble", REFUSED)
    assert page.locator("#phone .slot a").count() == 0
    assert page.locator("#wallet tbody tr").count() == 0
    assert spent(page) == 0
    assert not any(each.startswith("PUT") for each in sent)
    context.unroute("**/billing/offers")
    page.get_by_role("button", name="Next ad").click()
    wait_for(page, "#phone .why", "Chosen on this phone")
    assert page.inner_text("#phone .hand .trouble") == ""
    assert wrong == []
    context.close()


def test_reports_wait_while_the_proxy_is_away(
    browser: Browser, world: DemonstrationWorld, parties: dict[Party, ServedParty]
) -> None:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(world.urls[Party.SERVER])
    page.locator("#phone .phone").scroll_into_view_if_needed()
    wait_for(page, "#phone .why", "epsilon 0")
    parties[Party.PROXY].end()
    try:
        next_ad(page)  # tokens are there already
        wait_for(page, "#wallet .choices", "shown, report waits here")
        page.get_by_label("City", exact=True).select_option("Harbour")
        page.get_by_role("button", name="Next ad").click()
        wait_for(page, "#phone .hand .trouble", "The proxy does not answer")
        wait_for(page, "#phone .side:nth-child(2) li", "The proxy does not answer: is it running?")
    finally:
        parties[Party.PROXY].begin()
    wait_for(page, "#phone .hand .trouble", "^$")
    page.get_by_role("button", name="Next ad").click()
    wait_for(page, "#phone .why", "What everybody in South · Food is shown")
    page.locator("#wallet").scroll_into_view_if_needed()
    wait_until(page, "!document.querySelector('#wallet .choices').textContent.includes('waits here')")
    context.close()


def test_the_page_goes_on_while_the_ad_server_is_away(
    browser: Browser, world: DemonstrationWorld, parties: dict[Party, ServedParty]
) -> None:
    """The phone chooses from what it has, the proxy takes its reports; what is missing is said in a line."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page, wrong = context.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(world.urls[Party.SERVER])
    page.locator("#phone .phone").scroll_into_view_if_needed()
    agree(page)
    parties[Party.SERVER].end()
    try:
        next_ad(page)  # its token and its ads are there already
        wait_for(page, "#phone .why", "Chosen on this phone")
        page.locator("#wallet").scroll_into_view_if_needed()
        wait_until(page, "!document.querySelector('#wallet .choices').textContent.includes('waits here')")
        page.locator("#phone .phone").scroll_into_view_if_needed()
        page.get_by_label("City", exact=True).select_option("Harbour")
        page.get_by_role("button", name="Next ad").click()
        wait_for(page, "#phone .hand .trouble", "The proxy does not answer, or the ad server behind it")
        wait_for(page, "#phone .side:nth-child(3) li", "The ad server does not answer: is it running?")
        page.locator("#ledger").scroll_into_view_if_needed()
        page.get_by_role("button", name="Run the auditor’s check").click()
        wait_for(page, "#ledger .found", "The ad server does not answer: is it running?")
        wait_for(page, "#ledger", "What is known already stays")
        page.get_by_role("button", name="Run a round").click()
        wait_for(page, "#rounds", "The ad server does not answer")
        page.locator("#phone .phone").scroll_into_view_if_needed()
    finally:
        parties[Party.SERVER].begin()
    wait_for(page, "#phone .hand .trouble", "^$")
    page.get_by_role("button", name="Next ad").click()
    wait_for(page, "#phone .why", "Chosen on this phone")
    page.locator("#ledger").scroll_into_view_if_needed()
    wait_for(page, "#ledger .verdict", "charged [1-9]")
    assert wrong == []
    context.close()
