"""The pictures of the page in its documentation, made anew from a demonstration in Chromium.

    python -m tests.services.page.page_figures docs/figures

As a reader would see it. Look at them before they are committed: what they show is of chance, and of the hour.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.browsers import a_browser, served_parties
from tests.support.page_worlds import a_demonstration

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VISITED = "16 other phones showed"
SETTLING = 6_000  # milliseconds, in which reports leave and panels are drawn


def press(page: Page, *names: str) -> None:
    for name in names:
        button = page.get_by_role("button", name=name)
        button.scroll_into_view_if_needed()
        button.click()
        page.wait_for_timeout(1_500)


def agree_and_choose(page: Page) -> None:
    press(page, "Yes, privately", "Next ad", "Next ad")


def run_a_round(page: Page) -> None:
    press(page, "Run a round")
    page.locator("#rounds svg").first.wait_for()


def let_others_visit(page: Page) -> None:
    agree_and_choose(page)
    press(page, "Let other phones visit")
    page.get_by_text(VISITED).wait_for(timeout=60_000)
    page.wait_for_timeout(SETTLING)
    press(page, "Run the auditor’s check")
    page.get_by_text("Everything holds.").wait_for()


PICTURES: tuple[tuple[str, str, int, int, str, Callable[[Page], None]], ...] = (
    ("page_phone", "phone", 1440, 1080, "light", agree_and_choose),
    ("page_wallet_phone", "wallet", 390, 844, "light", agree_and_choose),
    ("page_ledger_phone", "ledger", 390, 1320, "dark", let_others_visit),
    ("page_rounds", "rounds", 1440, 900, "dark", run_a_round),
    ("page_frontier", "frontier", 768, 1000, "light", lambda _: None),
    ("page_cleanroom", "cleanroom", 768, 1000, "dark", lambda _: None),
)  # name, panel, width, height, theme, what is done before


def take(browser: Browser, url: str, folder: Path, picture: tuple[Any, ...]) -> None:
    name, panel, width, height, theme, act = picture
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    page.goto(url)
    page.locator("footer").wait_for()
    act(page)
    page.evaluate("panel => document.getElementById(panel).scrollIntoView({ behavior: 'instant' })", panel)
    page.wait_for_timeout(SETTLING)
    page.screenshot(path=folder / f"{name}.png")
    context.close()


def main(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as trial,
        a_demonstration(Path(trial) / "demo") as world,
        served_parties(world) as url,
        a_browser() as browser,
    ):
        for picture in PICTURES:
            take(browser, url, folder, picture)
            print(folder / f"{picture[0]}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
