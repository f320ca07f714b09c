"""Where the device suite measures: a market of many candidates that `tacit serve` serves, a page of its origin
in Chromium, and what esbuild makes of the client's modules and of the peer's.

Chromium is driven by Playwright, which comes with the extra `dev`; esbuild and the peer are what `make test`
puts beside the tests of the device. What is not there is said, never installed.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.services.demonstration import prepare_folder, running_parties
from tacit.services.page.device_files import device_folder
from tacit.services.settings import load_parties
from tacit_lab.bench.billing_parties import PATIENCE_SECONDS, free_ports

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-features=LocalNetworkAccessChecks",
)  # fmt: skip
PAGE = '<!doctype html><meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,"><p id="ad">'
ISOLATED = {  # a page's clock then goes by 5 microseconds, not 100, but no worker of the client may be opened
    "cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp",
}  # fmt: skip
TRACED = ("toplevel", "blink.user_timing")
TASKS = ("ThreadControllerImpl::RunTask", "RunTask")
PEER = "@cloudflare/blindrsa-ts"
PEER_ENTRY = f'export {{ RSABSSA }} from "{PEER}";'
OWN_ENTRY = 'export { drawToken, finalize } from "./tokens.js";'


def missing_browser() -> str:
    """What keeps the suite from a browser here; empty: nothing."""
    if not any(map(shutil.which, BROWSERS)):
        return "Chromium is not installed"
    if importlib.util.find_spec("playwright") is None:
        return "Playwright, which drives Chromium, is not installed"
    return ""


@contextmanager
def open_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def write_market(folder: Path, candidates: int) -> None:
    """Trial files whose market has so many campaigns that all bid everywhere, without budgets to run out of."""
    proxy, server = free_ports(2)
    prepare_folder(folder, proxy, server, Entropy())
    market = folder / "market.toml"
    said = market.read_text().replace("epoch_seconds = 60 ", "epoch_seconds = 86_400 ")
    market.write_text(said.replace("candidates = 4 ", f"candidates = {candidates} "))
    numbers = range(1, candidates + 1)
    campaigns, creatives = ['[[advertiser]]\nname = "Everything"\n'], list[str]()
    for number in numbers:
        bid = 900_000 - 5_000 * number
        campaigns.append(
            f'[[campaign]]\nnumber = {number}\nadvertiser = "Everything"\ntitle = "Campaign {number}"\n'
            f'event = "click"\ncategories = ["IAB8"]\nbids = [{{ micros = {bid} }}]\n'
        )
        creatives.append(
            f'[[creative]]\ncampaign = {number}\ntitle = "Ad {number}"\ntext = "Nobody has it."\n'
            f'address = "https://ad{number}.example/"\n'
        )
    (folder / "campaigns.toml").write_text("\n".join(campaigns))
    (folder / "creatives.toml").write_text("\n".join(creatives))
    settings = folder / "server.toml"
    settings.write_text(settings.read_text() + "\n[pacing]\nfirst_tokens = 1_000_000\n")


@contextmanager
def serve_market(folder: Path, candidates: int) -> Iterator[str]:
    """The ad server's address, while both parties run and menus are there."""
    write_market(folder, candidates)
    with running_parties(folder):
        known = load_parties(folder / "parties.toml")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with urlopen(f"{known.proxy.url}/billing/head", timeout=10) as answer:
                    answer.read()
                break
            except (URLError, OSError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield known.server.url


class BenchPage:
    """Pages of the ad server's origin: `/bench/` and what lies below it is answered here, the rest there."""

    def __init__(self, browser: Browser, url: str, peer: bytes = b"") -> None:
        self._browser, self._url = browser, url
        steps = (files("tacit_lab.bench") / "device_steps.js").read_bytes()
        self._served = {
            f"{url}/bench/": ("text/html", PAGE.encode()),
            f"{url}/bench/steps.js": ("text/javascript", steps),
            f"{url}/bench/peer.js": ("text/javascript", peer),
        }

    @contextmanager
    def opened(self, headers: Mapping[str, str]) -> Iterator[Page]:
        """A new visitor's, who has been nowhere yet."""

        def answer(route: Route) -> None:
            media, body = self._served[route.request.url]
            route.fulfill(content_type=media, body=body, headers=dict(headers))

        context = self._browser.new_context()
        try:
            context.route(f"{self._url}/bench/**", answer)
            page = context.new_page()
            page.goto(f"{self._url}/bench/")
            yield page
        finally:
            context.close()

    def take(self, step: str, *given: Any) -> Any:
        """What a step of device_steps.js gives in a page of its own, whose clock is a fine one."""
        with self.opened(ISOLATED) as page:
            return take_step(page, step, *given)

    def trace(self, step: str, *given: Any) -> tuple[Any, list[dict[str, Any]]]:
        """The same in a page as any other, with what the browser noted of its tasks meanwhile."""
        with self.opened({}) as page:
            self._browser.start_tracing(page=page, categories=list(TRACED))
            found = take_step(page, step, *given)
            return found, json.loads(self._browser.stop_tracing())["traceEvents"]


def take_step(page: Page, step: str, *given: Any) -> Any:
    asked = "async ([step, ...given]) => (await import('/bench/steps.js'))[step](...given)"
    return page.evaluate(asked, [step, *given])


@dataclass(frozen=True)
class Task:
    """A task of a thread that runs scripts, in milliseconds."""

    wall: float
    processor: float


def tasks_between(events: list[dict[str, Any]], began: str, ended: str) -> list[Task]:
    """Of the thread whose script made two marks, between them; tasks that they fall into included."""
    marks = {each["name"]: each for each in events if each["name"] in (began, ended)}
    if len(marks) < 2:
        raise BadInput(f"expected the marks {began} and {ended} in the browser's trace, got {sorted(marks)}")
    thread, since, until = marks[began]["tid"], marks[began]["ts"], marks[ended]["ts"]
    process = marks[began]["pid"]
    found = [
        Task(each["dur"] / 1000, each.get("tdur", each["dur"]) / 1000)
        for each in events
        if each["name"] in TASKS and "dur" in each and (each["pid"], each["tid"]) == (process, thread)
        and each["ts"] <= until and each["ts"] + each["dur"] >= since
    ]  # fmt: skip
    if not found:
        raise BadInput(f"expected tasks between {began} and {ended} in the browser's trace, got none")
    return found


def zipped_bytes(text: bytes) -> int:
    return len(gzip.compress(text, 9, mtime=0))


def client_folder() -> Path:
    return Path(str(device_folder()))


def modules(below: str = "") -> list[Path]:
    """The client's own, or those of a folder below it."""
    return sorted((client_folder() / below).glob("*.js"))


@dataclass(frozen=True)
class Bundler:
    """esbuild beside the tests of the device, and the peer there."""

    packages: Path

    @classmethod
    def found(cls) -> Bundler:
        return cls(client_folder().parent / "tests" / "device" / "node_modules")

    @property
    def missing(self) -> str:
        """What is not there; empty: all is."""
        lacking = [name for name in ("esbuild", PEER) if not (self.packages / name / "package.json").is_file()]
        if lacking:
            return f"{' and '.join(lacking)} not installed beside the tests of the device (make test does)"
        return "" if shutil.which("node") else "node is not installed"

    def bundle(self, entry: str, folder: Path) -> bytes:
        """One module, minified, of all that an entry needs; its imports are found from a folder."""
        command = [
            str(self.packages / "esbuild" / "bin" / "esbuild"), "--bundle", "--minify", "--format=esm",
            "--platform=browser", "--log-level=error",
        ]  # fmt: skip
        done = subprocess.run(command, input=entry.encode(), cwd=folder, capture_output=True, check=False)
        if done.returncode:
            raise BadInput(f"expected a bundle from esbuild, got: {done.stderr.decode().strip()}")
        return done.stdout

    def whole_client(self, folder: Path | None = None) -> bytes:
        """All modules of the client as one; of a copy of it in a folder."""
        names = [path.stem for path in modules()]
        imports = "".join(f'import * as {name} from "./{name}.js";' for name in names)
        return self.bundle(f"{imports} export {{ {', '.join(names)} }};", folder or client_folder())

    def own_tokens(self) -> bytes:
        return self.bundle(OWN_ENTRY, client_folder())

    def peer_tokens(self) -> bytes:
        return self.bundle(PEER_ENTRY, self.packages.parent)


@contextmanager
def bench_page(folder: Path, candidates: int, peer: bytes = b"") -> Iterator[BenchPage]:
    """Parties with a market of so many candidates, and a browser for pages of their origin."""
    with ExitStack() as stack:
        url = stack.enter_context(serve_market(folder, candidates))
        yield BenchPage(stack.enter_context(open_browser()), url, peer)
