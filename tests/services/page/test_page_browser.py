"""The page in Chromium: what it says at once, charts from recorded tables, a round by the dials, looks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tacit.services.page.part import load_page
from tests.support.browsers import a_browser, needs_chromium, served_parties
from tests.support.page_worlds import a_demonstration

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = needs_chromium

OURS = ("frontier", "rounds", "cleanroom")
FEW = {"devices": 1, "dropout": 0}  # places on the dials
PAPER = {"light": "rgb(251, 250, 248)", "dark": "rgb(21, 23, 26)"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with a_demonstration(tmp_path_factory.mktemp("page") / "demo") as world, served_parties(world) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as opened:
        yield opened


@contextmanager
def a_page(browser: Browser, url: str, width: int = 1200, **options: Any) -> Iterator[Page]:
    """The page with all panels, in which nothing went wrong and that asked nobody but this machine."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("request", lambda asked: None if is_local(asked.url) else wrong.append(asked.url))
    page.goto(url)
    page.locator("footer").wait_for()
    yield page
    assert wrong == []
    context.close()


def is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:"))


def run_round(page: Page, **dials: int) -> str:
    """Set dials to a place of theirs, run a round, and what the page says of it."""
    for name, place in {**FEW, **dials}.items():
        page.locator(f"#round-{name}").fill(str(place))
    page.get_by_role("button", name="Run a round").click()
    page.locator(".outcome:has-text('eleased')").wait_for()
    return page.inner_text(".outcome")


def test_the_top_says_what_it_is_and_what_epsilon_buys(browser: Browser, url: str) -> None:
    with a_page(browser, url) as page:
        assert page.locator("h1").count() == 1
        shown = page.inner_text("main")
        assert "The market on this page is made up" in shown
        assert f"at most {math.e:.1f} times less often" in shown
        assert "73 to 27" in shown
        dial = page.get_by_role("slider", name="Epsilon").first
        told = []
        for place, epsilon in ((0, 0.5), (1, 1), (2, 2), (3, 3)):
            dial.fill(str(place))
            assert dial.get_attribute("aria-valuetext") == f"epsilon {epsilon}"
            guess = 100 / (1 + math.exp(-epsilon))
            assert page.inner_text(".balance .risk strong") == f"{guess:.0f} in 100"
            told.append(float(page.inner_text(".balance .gain strong").rstrip("%")))
        assert told == sorted(told)
        assert told[2] == 29  # tacit as it comes, as the README says: what the phone on this page has


def test_every_panel_has_its_place_and_its_data(browser: Browser, url: str) -> None:
    expected = {
        "frontier": ["DP-SGD", "Per impression", "synthetic, display log, 160k rows", "Chua et al. 2024"],
        "rounds": ["Run a round", "Dropout", "Proofs"],
        "cleanroom": ["232,314 bytes", "8-bit factors", "predicted / observed", "gradient", "0.905"],
    }
    with a_page(browser, url) as page:
        links = page.locator("nav a").evaluate_all("links => links.map(each => each.hash.slice(1))")
        assert set(OURS) <= set(links)
        assert links == page.locator(".panel").evaluate_all("panels => panels.map(each => each.id)")
        for panel, texts in expected.items():
            shown = page.locator(f"#{panel}").evaluate("panel => panel.textContent")
            assert [text for text in texts if text not in shown] == [], panel
            assert page.locator(f"#{panel} .trouble").count() == 0
        assert page.locator("#frontier svg.chart").count() == 4
        for label in page.locator("svg.chart").evaluate_all("all => all.map(each => each.ariaLabel)"):
            assert label
            assert "NaN" not in label
        assert page.locator("#cleanroom tbody tr").count() < 30
        page.get_by_role("button", name="Show all 23").click()
        assert page.locator("#attacks-table tbody tr").count() == 23
        page.locator("nav a[href='#cleanroom']").click()
        page.locator("nav a[href='#cleanroom'][aria-current]").wait_for()


def test_every_mark_of_a_plot_is_within_it(browser: Browser, url: str) -> None:
    """No path has a number that is none, and no name is cut off, at any width."""
    outside = """
      () => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
        const room = chart.getBoundingClientRect();
        return [...chart.querySelectorAll('text, circle, path.mark-at, path.published')]
          .filter(each => {
            const box = each.getBoundingClientRect();
            return box.left < room.left - 1 || box.right > room.right + 1 || box.bottom > room.bottom + 1;
          })
          .map(each => each.outerHTML);
      })
    """
    with a_page(browser, url) as page:
        run_round(page)
        for width in (360, 390, 768, 1440):
            page.set_viewport_size({"width": width, "height": 800})
            page.wait_for_timeout(50)
            assert page.evaluate(outside) == [], width
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), width
            assert "NaN" not in page.locator("#panels").evaluate("panels => panels.outerHTML")


def test_a_round_tells_what_came_of_it(browser: Browser, url: str) -> None:
    with a_page(browser, url) as page:
        assert page.inner_text(".outcome") == "No round has run yet."
        said = run_round(page)
        assert page.evaluate("document.activeElement.innerText") == "Run a round"
        assert said.startswith("Released: nobody dropped out, no report was refused, and ")
        assert re.search(r"(9|1\d) of 12 intervals hold the truth\.$", said)
        assert page.locator("#rounds svg .truth").count() == 12
        assert page.locator("#rounds svg .mark-at").count() == 12
        assert re.search(r"\d+ reports were refused", run_round(page, cheats=4))
        page.get_by_role("switch", name="Proofs").uncheck()
        assert re.search(r"spoilt: .* \d+ lies went into the sums", run_round(page, cheats=4))
        assert page.locator("#rounds svg .beyond").count() == 1
        assert "Nothing was released" in run_round(page, devices=0, dropout=4, cheats=0)
        assert page.locator("#rounds svg .mark-at").count() == 0
        page.get_by_text("What the round promised").click()
        assert "differentially private per device" in page.inner_text(".statement")


def test_a_refusal_is_one_line_and_the_page_goes_on(browser: Browser, url: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/demonstration/round", lambda route: route.fulfill(status=409, json={"detail": "come again"}))
    page.route("**/page/data/cleanroom.json", lambda route: route.abort())
    page.goto(url)
    page.locator("footer").wait_for()
    assert page.inner_text("#cleanroom .trouble") == "The ad server does not answer: is it running?"
    assert page.locator("#frontier svg.chart").count() == 4
    page.get_by_role("button", name="Run a round").click()
    page.locator(".outcome.trouble").wait_for()
    assert page.inner_text(".outcome") == "The ad server refused: come again"
    assert page.get_by_role("button", name="Run a round").is_enabled()
    context.close()


def test_nothing_moves_that_nobody_asked_for(browser: Browser, url: str) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.add_init_script("""
      window.shifts = [];
      new PerformanceObserver(list => shifts.push(...list.getEntries().map(each => each.value)))
        .observe({ type: "layout-shift", buffered: true });
    """)
    page.goto(url)
    page.locator("footer").wait_for()
    run_round(page)
    page.wait_for_timeout(100)
    assert sum(page.evaluate("shifts")) < 0.02
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.evaluate("document.getAnimations().length") == 0
    context.close()


SLOW = [
    pytest.param(*each, marks=pytest.mark.slow) for each in (("light", 1440), ("dark", 1440), ("light", 360))
]


@pytest.mark.parametrize(("scheme", "width"), [("dark", 390), ("light", 768), *SLOW])
def test_axe_finds_nothing_serious(browser: Browser, url: str, scheme: Any, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    # axe itself is no script of this server
    with a_page(browser, url, width, color_scheme=scheme, bypass_csp=True) as page:
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == PAPER[scheme]
        run_round(page)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        found = Axe().run(page).response["violations"]
        assert [
            f"{each['id']}: {each['nodes'][0]['html']}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ] == []


def test_nothing_comes_from_elsewhere_and_no_text_becomes_markup() -> None:
    site = load_page()
    for name, file in site.items():
        text = file.body.decode()
        assert "://" not in text, name
        for risky in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function("):
            assert risky not in text, (name, risky)
    page = site["index.html"].body.decode()
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)
