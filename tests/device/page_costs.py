"""What the client costs a page, measured in Chromium against parties on this machine.

    python -m tests.device.page_costs

Bytes and requests are exact; milliseconds are the least and the median of fresh visits, measuring included.
Nothing travels further than the loopback interface: what is waited for is computing, storage and this machine's
parties.
"""

from __future__ import annotations

import gzip
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.services.page.client_export import ClientExport, export_client, read_device_parties
from tests.support.browsers import a_browser, served_parties
from tests.support.page_worlds import a_demonstration
from tests.support.publisher_sites import a_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VISITS, IMPRESSIONS = 5, 4
PREFETCHED = 4  # tokens that are asked for at once
PAGE = (
    '<!doctype html><meta charset="utf-8"><title>News</title><link rel="icon" href="data:,"><div id="ad"></div>'
)
OPEN = """async () => {
  const began = performance.now();
  const { openTacit } = await import("/tacit/tacit.js");
  const context = ["Northport", "Coffee"];
  window.tacit = await openTacit({ settings: "/tacit/parties.json", consent: true, context });
  await tacit.setConsent(true);
  return performance.now() - began;
}"""
SHOW = """async () => {
  const began = performance.now();
  await tacit.show(document.querySelector("#ad"));
  return performance.now() - began;
}"""


def visit(browser: Browser, site: str) -> dict[str, Any]:
    """One reader's first visit: opening the client, a first ad, an ad whose token is there, and many more."""
    context = browser.new_context()
    page, asked = context.new_page(), list[str]()
    context.on("request", lambda each: asked.append(each.url))
    page.goto(site)
    inspector = context.new_cdp_session(page)
    inspector.send("Performance.enable")

    def main_thread() -> float:
        """Milliseconds that the page's own thread has worked so far."""
        metrics = {each["name"]: each["value"] for each in inspector.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(metrics["TaskDuration"])

    def count() -> tuple[int, int]:
        """Requests to the site and to the proxy."""
        own = sum(each.startswith(site) for each in asked)
        return own, len(asked) - own

    began, before = main_thread(), count()
    found: dict[str, Any] = {"open": page.evaluate(OPEN), "main_open": main_thread() - began}
    found["own_requests"] = count()[0] - before[0]
    found["modules"] = tuple(sorted({each.rpartition("/")[2] for each in asked if each.endswith(".js")}))
    began = main_thread()
    found["first"], found["main_first"] = page.evaluate(SHOW), main_thread() - began
    page.wait_for_timeout(200)  # its report leaves
    found["first_requests"] = count()[1] - before[1]
    assert page.evaluate("() => tacit.prefetch(['Northport', 'Coffee'])") >= PREFETCHED
    page.wait_for_timeout(100)
    began = main_thread()
    ready = [page.evaluate(SHOW) for _ in range(PREFETCHED)]
    found["ready"], found["main_ready"] = statistics.median(ready), (main_thread() - began) / PREFETCHED
    page.wait_for_timeout(200)
    before = count()
    for _ in range(IMPRESSIONS):
        page.evaluate(SHOW)
    page.wait_for_timeout(300)
    found["later_requests"] = (count()[1] - before[1]) / IMPRESSIONS
    context.close()
    return found


def zipped(folder: Path, names: Iterable[str]) -> int:
    """Bytes of files, each packed with gzip by itself, as a server sends them."""
    return sum(len(gzip.compress((folder / name).read_bytes(), 9)) for name in names)


def measure(folder: Path) -> tuple[ClientExport, list[dict[str, Any]]]:
    with a_demonstration(folder / "demo") as world, served_parties(world) as ads:
        (folder / "site").mkdir()
        (folder / "site" / "index.html").write_text(PAGE)
        parties = read_device_parties(f"{ads}/device/parties.json")
        parties["limits"] |= {"local": 100, "central": 100}  # every ad is a private choice
        made = export_client(folder / "site" / "tacit", parties)
        with a_site(folder / "site", made.policy) as site, a_browser() as browser:
            visit(browser, site)  # the browser's own caches
            return made, [visit(browser, site) for _ in range(VISITS)]


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        made, visits = measure(Path(place))
        client = Path(place) / "site" / "tacit"
        loaded = visits[0]["modules"]
        parts = loaded, ["prebid/bids.js", "prebid/markup.js"], ["prebid/tacitBidAdapter.js"]
        sizes = [zipped(client, names) for names in parts]
    exact = {name: statistics.median(each[name] for each in visits) for name in visits[0] if "requests" in name}

    def took(name: str) -> str:
        """The least, and the median."""
        found = [[each[kind] for each in visits] for kind in (name, f"main_{name}")]
        (least, middle), (own, usual) = [(min(each), statistics.median(each)) for each in found]
        return f"{least:.0f} to {middle:.0f} ms, of which {own:.1f} to {usual:.1f} ms of the page's thread"

    print(f"bytes packed with gzip: {sizes[0]:,} in {len(loaded)} modules;")
    print(f"  {made.parties_zipped_bytes:,} parties.json of a small market;")
    print(f"  for Prebid {sizes[1]:,} more, and {sizes[2]:,} in its build")
    print(f"requests to the site: {exact['own_requests']:.0f} when the client opens")
    print(f"  to the proxy: {exact['first_requests']:.0f} with a first ad, {exact['later_requests']:.2f} later")
    print(f"opening the client: {took('open')}")
    print(f"a first ad: {took('first')}")
    print(f"an ad whose token is there: {took('ready')}")


if __name__ == "__main__":
    main()
