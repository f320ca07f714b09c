"""The console in Chromium: signing in, every view, what a key may see, changes, hostile texts, looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.campaign import CampaignStatus
from tacit.deliver.campaigns.store import Advertiser
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.units import Relation, Unit, UnitKind
from tests.support.ad_campaigns import BEAN, BY, a_campaign
from tests.support.ads_services import AdsWorld
from tests.support.billing_services import MARKET, THERE
from tests.support.browsers import a_browser, needs_chromium, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = needs_chromium

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
HOSTILE_NAME = "<b onmouseover=alert(3)>Two</b> Wheels"
HOSTILE_PLACE = "<i>South</i>"
PLACE = f'["{HOSTILE_PLACE}", "Food"]'
PUBLIC = ("overview", "campaigns", "pacing", "menus", "invoices")
VIEWS = (*PUBLIC, "cohorts", "ledger", "rounds", "models", "alerts")
SHOWN = 12


class ConsoleWorld(AdsWorld):
    """An ad server with some of everything, reached over HTTP."""

    market_text = MARKET.replace('"Two Wheels"', f"'{HOSTILE_NAME}'").replace('["South", "Food"]', PLACE)
    url: str
    operator_key: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleWorld]:
    made = ConsoleWorld(tmp_path_factory.mktemp("console"))
    try:
        made.wait_for_epoch()
        campaigns = made.running.campaigns
        campaigns.put_advertiser(Advertiser(BEAN), BY)
        campaigns.add_campaign(a_campaign(7, title=HOSTILE), BY)
        made.show(9)
        made.show(3, THERE, first=20)
        made.bill(SHOWN)
        made.ads.close_invoices(made.now)
        assert made.running.gathering is not None
        line = Line("clicks", Unit(UnitKind.DEVICE), Relation.ZERO_OUT)
        made.running.gathering.ledger.grant(line, Budget.of(4, "1e-6"))
        made.running.gathering.ledger.reserve("round", line, Budget.of(3.9, "1e-7"), "a round")
        made.operator_key = made.key(AccessRole.OPERATOR)
        with served(made) as made.url:
            yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as opened:
        yield opened


@contextmanager
def a_page(browser: Browser, world: ConsoleWorld, key: str | None = None, **options: Any) -> Iterator[Page]:
    """A page of its own, signed in by a key, if there is one; nothing may have gone wrong in it."""
    context = browser.new_context(**options)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"a script ran: {dialog.message}"))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(world.url) else None)
    page.on(
        "console",
        lambda said: (
            wrong.append(said.text) if said.type == "error" and "status of 401" not in said.text else None
        ),
    )
    page.goto(f"{world.url}/console")
    if key is not None:
        sign_in(page, key)
        page.wait_for_selector(".view")
    yield page
    assert wrong == []
    context.close()


def sign_in(page: Page, key: str) -> None:
    page.fill("#key", key)
    page.click("button[type=submit]")


def open_view(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = `#/${view}` }", view)
    page.wait_for_selector(f'.view[data-key="{view}"]')


def is_too_wide(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def test_signing_in_and_out(browser: Browser, world: ConsoleWorld) -> None:
    with a_page(browser, world) as page:
        sign_in(page, world.operator_key[:-1] + "x")
        page.wait_for_selector("#key-trouble:has-text('does not hold')")
        sign_in(page, f"  {world.operator_key}\n")
        page.wait_for_selector(".view")
        assert world.operator_key not in page.url
        page.reload()
        page.wait_for_selector(".view")  # the tab remembers it
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_selector("#key")
        assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [0, 0, ""]
        assert world.operator_key not in page.content()


def test_a_key_that_ends_leads_back_to_signing_in(browser: Browser, world: ConsoleWorld) -> None:
    key = world.key(AccessRole.VIEWER)
    with a_page(browser, world, key) as page:
        assert page.get_by_role("switch").count() == 0  # who only looks has nothing to allow
        world.running.campaigns.revoke_key(key.split("_")[1], BY)
        page.evaluate("location.hash = '#/ledger'")
        page.wait_for_selector("#key")
        assert "expired or was revoked" in page.inner_text("#key-trouble")
        assert page.evaluate("sessionStorage.length") == 0


def test_every_view_shows_its_data_at_every_width(browser: Browser, world: ConsoleWorld) -> None:
    expected = {
        "overview": ["Less than a tenth is left", "synthetic", "Charged per epoch"],
        "campaigns": ["Bean & Leaf", HOSTILE_NAME, "no limit"],
        "pacing": ["over budget at worst", "kept below"],
        "menus": [HOSTILE_PLACE, "personal", "trunc"],
        "cohorts": ["Reports that left together", "asked for: 3"],
        "ledger": ["clicks", "zero-out", "0.10"],
        "rounds": ["No round of statistics"],
        "models": ["No statistics and no model"],
        "invoices": ["No. 1", "Verify all invoices"],
        "alerts": ["Nothing is broken", "See more"],
    }
    with a_page(browser, world, world.operator_key) as page:
        for view, texts in expected.items():
            open_view(page, view)
            shown = page.inner_text("main")
            assert [text for text in texts if text not in shown] == [], view
            for width in (360, 390, 1440):
                page.set_viewport_size({"width": width, "height": 800})
                assert not is_too_wide(page), (view, width)
        open_view(page, "menus")
        page.get_by_role("link", name=f"{HOSTILE_PLACE} · Food").first.click()
        page.get_by_role("heading", name="How devices choose").wait_for()
        assert "second price" in page.inner_text("main")


def test_an_advertiser_sees_its_own_alone(browser: Browser, world: ConsoleWorld) -> None:
    key = world.key(AccessRole.ADVERTISER, BEAN)
    with a_page(browser, world, key) as page:
        assert page.locator("nav li").all_inner_texts() == [view.capitalize() for view in PUBLIC]
        for view in PUBLIC:
            open_view(page, view)
            shown = page.inner_text("main")
            assert not any(name in shown for name in (HOSTILE_NAME, "Tea House", "Long Run Shoes")), view
        page.evaluate("location.hash = '#/ledger'")  # what it may not see is not there for it
        page.wait_for_selector('.view[data-key="overview"]')
    for path in ("ledger", "cohorts", "rounds", "verification", "versions"):
        assert world.get(f"/ads/console/{path}", key).status_code == 403


def test_hostile_texts_are_shown_as_texts(browser: Browser, world: ConsoleWorld) -> None:
    with a_page(browser, world, world.operator_key) as page:
        open_view(page, "campaigns")
        assert HOSTILE in page.inner_text("main")
        assert page.locator("main img, main script, main b, main i").count() == 0
        page.fill("#find", HOSTILE[:20])
        page.locator("tbody tr").nth(1).wait_for(state="detached")
        page.fill("#find", f"{HOSTILE}nobody")
        page.wait_for_selector(".empty")
        assert HOSTILE in page.inner_text(".empty")


def test_changes_are_off_until_somebody_allows_them(browser: Browser, world: ConsoleWorld) -> None:
    with a_page(browser, world, world.operator_key) as page:
        open_view(page, "campaigns")
        assert page.locator("[data-action=pause]").count() == 0
        page.get_by_role("switch", name="Allow changes").check()
        page.locator("[data-action=pause]").click()
        assert "left out of menus from the next epoch on" in page.inner_text("dialog")
        page.keyboard.press("Escape")
        assert status_of(world, 7) is CampaignStatus.ACTIVE
        page.locator("[data-action=pause]").click()
        page.get_by_role("button", name="Pause it").click()
        page.wait_for_selector("[data-action=resume]")
        assert status_of(world, 7) is CampaignStatus.PAUSED
        page.locator("[data-action=budget]").click()
        page.fill("#dialog-field", "not much")
        page.get_by_role("button", name="Change the budget").click()
        page.wait_for_selector(".noted:has-text('nothing was changed')")
        page.locator("[data-action=budget]").click()
        page.fill("#dialog-field", "1,234.5")
        page.get_by_role("button", name="Change the budget").click()
        page.wait_for_selector("td [title='1,234,500,000 micros']")
        stored = world.running.campaigns.campaign(7)
        assert stored is not None
        assert stored.campaign.budget_micros == 1_234_500_000
        page.reload()
        page.wait_for_selector(".view")
        assert page.locator("[data-action=pause]").count() == 0  # a reload forgets that it was allowed


def status_of(world: ConsoleWorld, number: int) -> CampaignStatus:
    stored = world.running.campaigns.campaign(number)
    assert stored is not None
    return stored.campaign.status


@pytest.mark.slow
def test_all_invoices_are_verified_by_one_click(browser: Browser, world: ConsoleWorld) -> None:
    with a_page(browser, world, world.operator_key) as page:
        open_view(page, "invoices")
        page.get_by_role("button", name="Verify all invoices").click()
        world.wait_until(lambda: world.get("/ads/console/verification", world.operator_key).json()["ended"])
        wake(page)
        page.wait_for_selector(".report")
        assert "Everything holds." in page.inner_text(".report")
        assert page.locator("[data-action=verify]").is_disabled()


def wake(page: Page) -> None:
    """As a tab does that is looked at again: it asks for what it shows."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


@pytest.mark.slow
def test_without_a_network_the_last_figures_stay_and_say_so(browser: Browser, world: ConsoleWorld) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{world.url}/console")
    sign_in(page, world.operator_key)
    page.wait_for_selector(".view")
    before = page.inner_text(".facts")
    context.set_offline(True)
    wake(page)
    page.wait_for_selector(".asof.stale")
    assert "does not answer" in page.inner_text(".asof")
    assert page.inner_text(".facts") == before
    assert "does not answer" in page.inner_text("#said")
    context.set_offline(False)
    wake(page)
    page.wait_for_selector(".asof:not(.stale)")
    assert page.inner_text("#said") == "The console is up to date again."
    context.close()


@pytest.mark.slow
def test_a_keyboard_reaches_everything_and_refreshing_leaves_it_there(
    browser: Browser, world: ConsoleWorld
) -> None:
    with a_page(browser, world, world.operator_key) as page:
        open_view(page, "campaigns")
        page.keyboard.press("Tab")
        page.evaluate("document.querySelector('.skip').focus()")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        page.locator(".explain summary").first.click()
        page.locator("nav a[href='#/menus']").focus()
        page.evaluate("window.kept = document.activeElement")
        with page.expect_response("**/ads/console/campaigns"):
            wake(page)
        page.wait_for_timeout(50)
        assert page.evaluate("document.activeElement === window.kept")
        assert page.locator(".explain details[open]").count() == 1


SLOW = [
    pytest.param(scheme, width, VIEWS, marks=pytest.mark.slow)
    for scheme in ("light", "dark")
    for width in (1440, 390)
]


@pytest.mark.parametrize(("scheme", "width", "views"), [("light", 1440, ("overview", "campaigns")), *SLOW])
def test_axe_finds_nothing_serious(
    browser: Browser, world: ConsoleWorld, scheme: Any, width: int, views: tuple[str, ...]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    context = browser.new_context(bypass_csp=True, **options)  # axe itself is no script of this server
    page = context.new_page()
    page.goto(f"{world.url}/console")
    assert serious(axe.run(page).response) == []
    sign_in(page, world.operator_key)
    page.wait_for_selector(".view")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(251, 250, 248)", "dark": "rgb(21, 23, 26)"}[scheme]
    for view in views:
        open_view(page, view)
        if view == "campaigns":
            page.get_by_role("switch").check()
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert serious(axe.run(page).response) == [], view
    for place in DEEPER if views == VIEWS else ():
        open_deeper(page, place)
        assert serious(axe.run(page).response) == [], place
    context.close()


DEEPER = ("a menu", "an invoice", "a change")


def open_deeper(page: Page, place: str) -> None:
    """What is a click away from a view, in a tab that allows changes."""
    view, link = {
        "a menu": ("menus", "tbody a[href^='#/menus/']"),
        "an invoice": ("invoices", "tbody a[href^='#/invoices/']"),
        "a change": ("campaigns", "[data-action=budget]"),
    }[place]
    open_view(page, view)
    page.locator(link).first.click()
    page.locator(".back" if place != "a change" else "dialog[open]").wait_for()


def serious(found: Any) -> list[str]:
    return [
        f"{each['id']}: {each['nodes'][0]['html']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
