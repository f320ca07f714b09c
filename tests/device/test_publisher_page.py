"""The lines that `tacit device export` prints, on a page of a publisher's own site, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tacit.services.page.client_export import export_client, read_device_parties
from tacit.services.signatures import Party
from tests.support.browsers import a_browser, needs_chromium, served_parties
from tests.support.page_worlds import DemonstrationWorld, a_demonstration
from tests.support.publisher_sites import a_site, a_visit, stored_rows, wait_for_reports

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_chromium

PAGE = '<!doctype html><meta charset="utf-8"><title>News</title><link rel="icon" href="data:,">\n'
NONCE = "c2l0ZQ"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemonstrationWorld]:
    with a_demonstration(tmp_path_factory.mktemp("publisher") / "demo") as made, served_parties(made):
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as opened:
        yield opened


@pytest.mark.parametrize("consent", [False, True])
def test_the_printed_lines_show_an_ad_and_ask_nobody_else(
    browser: Browser, world: DemonstrationWorld, tmp_path: Path, consent: bool
) -> None:
    url = f"{world.urls[Party.SERVER]}/device/parties.json"
    made = export_client(tmp_path / "tacit", read_device_parties(url))
    snippet = made.snippet.replace('type="module"', f'type="module" nonce="{NONCE}"')
    if consent:
        snippet = snippet.replace("context:", "consent: true, context:")
    (tmp_path / "index.html").write_text(PAGE + snippet)
    policy = made.policy.replace("script-src 'self'", f"script-src 'self' 'nonce-{NONCE}'")
    with (
        a_site(tmp_path, policy) as site,
        a_visit(browser, site, world.urls[Party.PROXY]) as (page, to_proxy),
    ):
        page.locator("#ad a[href^='https://']").wait_for()
        assert page.inner_text("#ad small") == "Ad"
        wait_for_reports(page, to_proxy, 1)
        asked = [each.partition("/billing/")[2].partition("/")[0] for each in to_proxy]
        assert sorted(set(asked)) == ["head", "offers", "packs", "reports"]
        rows = stored_rows(page)
        requests = [each for each in world.seen(Party.SERVER) if each["kind"] == "request"]
        lane = requests[-1]["fields"]["lane"]
        if consent:
            assert lane == "personal"
            assert "account" in [row["key"] for row in rows]
        else:
            assert lane == "public"
            assert rows == [], "nothing is stored before somebody agrees"
            assert page.evaluate("indexedDB.databases()") == []
