"""Billing: what tokens, reports and charges cost beside the cryptography that they cannot do without.

Contestants take turns in one run, by processor time. Tokens are asked for from an ad server that runs as a
process of its own, over loopback, so that its whole request is in the figure. `python -m
tacit_lab.bench.billing` measures the memory that one number of reports takes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tacit.arrays import Floats
from tacit.bill.in_process import BillingParties
from tacit.bill.protocol.batches import Batch, BatchStatement, Receipt
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.protocol.reports import ImpressionReport
from tacit.bill.protocol.tokens import HASH_BYTES, TOKEN_BITS, encode_pss, token_message, token_nonce
from tacit.bill.proxy.party import HoldRule
from tacit.bill.server.party import EpochTimes
from tacit.bill.server.store import RedeemedBatch, RedeemedReport
from tacit.bill.server.token_keys import TokenKey
from tacit.deliver.device.account import DeviceLimits
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.journal import MemoryJournal
from tacit.deliver.device.parties import PartyKeys
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.priced_menus import price_list
from tacit.deliver.protocol.prices import BillingEvent, Rules, SecondPrice
from tacit.deliver.server.candidates import price_menu
from tacit.entropy import Entropy
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Sequence as ContextLevels
from tacit.schema.contexts.tree import Tree
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit_lab.bench.billing_parties import AskedServer, DistantParties, temporary_postgres
from tacit_lab.bench.measurement import Measurement, SuiteProgress, UnitCost, process_kilobytes, processor_model

ISSUE_BAR, REDEEM_BAR, PROXY_BAR = 1.6, 0.7, 3.0
MOST_RISE = 1.1
TURN_BAR_MS, BYTES_BAR = 5.0, 1600
CANDIDATES = 8
TIMES = EpochTimes(opens=0, closes=1_000, expires=2_000)
EPSILON = 2
TOPICS = Tree.of_paths(["Food > Coffee", "Food > Tea", "Sport > Running"])
LEVELS = ContextLevels((Steps("topic", TOPICS),), ((0,), (1,)))
PSS = padding.PSS(padding.MGF1(hashes.SHA384()), HASH_BYTES)


@dataclass(frozen=True)
class BillingScale:
    """How much of everything; tests take less."""

    reports: int = 500
    turns: int = 15
    requests: int = 150  # in one turn of asking for tokens
    tokens: int = 4  # in one request: as many as a device prefetches
    together: int = 8  # devices whose requests the proxy hands on at once
    devices: int = 60
    memory_reports: int = 100_000  # more than the stores' page caches hold
    postgres: bool = True


FULL = BillingScale()
TIMES_MORE = 2


def run(progress: SuiteProgress, scale: BillingScale = FULL) -> list[Measurement]:
    parts: list[Callable[[], list[Measurement]]] = [
        partial(tokens, scale),
        partial(redeeming, scale, "sqlite"),
        partial(redeeming, scale, "postgres"),
        partial(forwarding, scale),
        partial(device_turns, scale),
        partial(memory, scale.memory_reports),
    ]
    return [measurement for part in progress(parts, "billing") for measurement in part()]


def bench_menu(epoch: int = 0) -> PricedMenu:
    """A context with some candidates whose public scores are near each other, so that a choice is worth it."""
    node = LEVELS.at(("Coffee",), (1,))
    bids = [1_000_000 - 20_000 * place for place in range(CANDIDATES)]
    rates = [0.03 - 0.001 * place for place in range(CANDIDATES)]
    rules = Rules(SecondPrice(BillingEvent.IMPRESSION))
    ranked = price_menu(node, list(range(1, 1 + CANDIDATES)), bids, rates, rules)
    return price_list(ranked, epoch=epoch, epsilon=EPSILON, smallest_cohort=1)


class BillingSetup:
    """Both parties on durable stores, one open epoch, and reports of devices that never come twice."""

    def __init__(self, ads: str | Path, reports: str | Path) -> None:
        self.source = Entropy()
        self.ads, self.reports = SqlAdStore.open(ads), SqlBillingProxyStore.open(reports)
        key = TokenKey.generate()
        self.parties = BillingParties(
            self.ads, self.reports, self.source, hold=HoldRule(seconds=0), make_key=lambda: key
        )
        self.menu, self.key = bench_menu(), key
        self.head = self.parties.open_epoch([self.menu], TIMES)

    def make_reports(self, count: int) -> list[bytes]:
        """Reports with real tokens, signed in the open: what is left after blinding is the same signature."""
        made = []
        for at in range(count):
            secret = self.source.bytes(32)
            message = token_message(token_nonce(secret), self.menu.menu_id)
            encoded = encode_pss(message, TOKEN_BITS - 1, self.source.bytes(HASH_BYTES))
            token = self.key.sign_blinded(encoded, self.source)
            index = 1 + at % CANDIDATES
            report = ImpressionReport.make(self.menu.menu_id, secret, token, index, self.head.sealing_key)
            made.append(report.to_bytes())
        return made

    def batch(self, reports: Sequence[bytes]) -> Batch:
        batch_id = self.source.bytes(16)
        key = self.parties.proxy_key
        return Batch(BatchStatement.sign(key, batch_id, self.menu.menu_id, 0, reports), tuple(reports))

    def close(self) -> None:
        self.ads.close()
        self.reports.close()


Answer = TypeVar("Answer")


class TurnTimer:
    """What each kind of work took in a turn, by name."""

    def __init__(self) -> None:
        self.cost: dict[str, UnitCost] = {}

    def time(self, name: str, work: Callable[[], Answer]) -> Answer:
        wall, processor = time.perf_counter(), time.process_time()
        answer = work()
        before = self.cost.get(name, UnitCost(0.0, 0.0))
        self.cost[name] = UnitCost(
            before.processor + time.process_time() - processor, before.wall + time.perf_counter() - wall
        )
        return answer


def tokens(scale: BillingScale) -> list[Measurement]:
    """A whole request for tokens, by the ad server's own process, beside as many signatures of OpenSSL."""
    peer = rsa.generate_private_key(65_537, TOKEN_BITS)
    message = bytes(82)
    alone: list[float] = []
    ways = {"together": (scale.together, scale.tokens), "alone": (1, scale.tokens), "single": (1, 1)}
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder, AskedServer(Path(folder)) as asked:
        for turn in range(scale.turns + 1):
            before = time.process_time()
            for _ in range(scale.requests):
                peer.sign(message, PSS, hashes.SHA384())
            signature = (time.process_time() - before) / scale.requests
            for name, (devices, tokens) in ways.items():
                seconds = asked.seconds_per_token(-(-scale.requests // devices), devices, tokens)
                if turn:
                    ratios[name].append(seconds / signature)
            if turn:
                alone.append(signature)
    settings = (
        f"processor time of the ad server's process per token, requests signed by the proxy over HTTP on "
        f"loopback, against RSA-{TOKEN_BITS} PSS signatures of the `cryptography` package ({_us(alone)} us); "
        f"{scale.requests} requests a turn, medians of {scale.turns} interleaved turns on {processor_model()}"
    )
    together = f"requests of {scale.together} devices handed on together, as the proxy does under load"
    words = {"together": f"{together}; {scale.tokens} tokens each", "single": "one device, one token"}
    words["alone"] = f"one device at a time, {scale.tokens} tokens each"
    return [
        Measurement(
            f"issue_{name}_vs_pss_sign", median(ratios[name]), "x", ISSUE_BAR if name == "together" else None,
            False, f"{words[name]}; {settings}",
        )
        for name in ways
    ]  # fmt: skip


def _us(seconds: Sequence[float]) -> str:
    return f"{1e6 * median(seconds):.0f}"


def redeeming(scale: BillingScale, kind: str) -> list[Measurement]:
    """A batch from its bytes to its receipt, beside its verifications, openings and commit measured alone."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places: list[str | Path] = [folder / "ads.sqlite", folder / "alone.sqlite"]
        if kind == "postgres":
            databases = stack.enter_context(temporary_postgres(2)) if scale.postgres else None
            if databases is None:
                why = "not measured: PostgreSQL's programs are not installed"
                return [Measurement(f"redeem_{kind}", float("nan"), "x", REDEEM_BAR, settings=why)]
            places = list(databases)
        setup = BillingSetup(places[0], folder / "reports.sqlite")
        stack.callback(setup.close)
        beside = SqlAdStore.open(places[1])
        stack.callback(beside.close)
        stored = setup.ads.epoch(0)
        assert stored is not None
        beside.keep_epoch(0, stored)
        turns = [redeem_turn(setup, beside, scale.reports) for _ in range(1 + scale.turns)][1:]
    share = median(
        (each["verify"].processor + each["open"].processor + each["commit"].processor) / each["whole"].processor
        for each in turns
    )
    costs = ", ".join(
        f"{name} {1e6 * median(each[name].processor for each in turns) / scale.reports:.0f} "
        f"({1e6 * median(each[name].wall for each in turns) / scale.reports:.0f})"
        for name in turns[0]
    )
    settings = (
        f"{scale.reports} reports a batch, one transaction; processor microseconds a report (wall): {costs}; "
        f"medians of {scale.turns} interleaved turns on {processor_model()}"
    )
    return [Measurement(f"redeem_{kind}", share, "x", REDEEM_BAR, True, settings)]


def redeem_turn(setup: BillingSetup, beside: SqlAdStore, count: int) -> dict[str, UnitCost]:
    data = setup.make_reports(count)
    batch, timer = setup.batch(data), TurnTimer()
    reports = [ImpressionReport.from_bytes(each) for each in data]
    opened = setup.parties.server.load_epoch(0)
    opening, public = opened.opening, setup.key.public
    assert opening is not None
    assert all(timer.time("verify", lambda: [each.has_token_of(public) for each in reports]))
    found = timer.time("open", lambda: [each.open(opening) for each in reports])
    rows = tuple(
        RedeemedReport(
            BillVerdict.ACCEPTED, report.nonce, each.index, setup.menu.entries[each.index - 1].price_micros,
            setup.menu.entries[each.index - 1].campaign, each.secret,
        )
        for report, each in zip(reports, found, strict=True)
    )  # fmt: skip
    statement = batch.statement
    prepared = RedeemedBatch(statement.batch_id, statement.menu_id, statement.to_bytes(), b"".join(data), rows)
    receipt = Receipt.sign(setup.parties.server_key, statement.batch_id, bytes(count)).to_bytes()
    timer.time("commit", lambda: beside.redeem(prepared, lambda _: receipt))
    whole = timer.time("whole", partial(setup.parties.server.redeem, batch.to_bytes()))
    assert Receipt.from_bytes(whole).charged == count
    return timer.cost


def forwarding(scale: BillingScale) -> list[Measurement]:
    """The proxy's whole work for a report, from its bytes to its batch's receipt, beside checking its token."""
    with tempfile.TemporaryDirectory() as place:
        setup = BillingSetup(Path(place) / "ads.sqlite", Path(place) / "reports.sqlite")
        turns = [forward_turn(setup, scale.reports) for _ in range(1 + scale.turns)][1:]
        setup.close()
    ratio = median(each["proxy"].processor / each["token"].processor for each in turns)
    costs = ", ".join(
        f"{name} {1e6 * median(each[name].processor for each in turns) / scale.reports:.0f}"
        for name in turns[0]
    )
    settings = (
        f"{scale.reports} reports at a time: checked, stored, shuffled, signed, read back, settled; SQLite, "
        f"a commit to disk for each step; processor microseconds a report: {costs}; medians of {scale.turns} "
        f"interleaved turns on {processor_model()}"
    )
    return [Measurement("proxy_vs_token_check", ratio, "x", PROXY_BAR, False, settings)]


def forward_turn(setup: BillingSetup, count: int) -> dict[str, UnitCost]:
    data, timer, proxy = setup.make_reports(count), TurnTimer(), setup.parties.proxy
    reports = [ImpressionReport.from_bytes(each) for each in data]
    assert all(timer.time("token", lambda: [each.has_token_of(setup.key.public) for each in reports]))
    taken = timer.time("proxy", lambda: proxy.take(data, TIMES.opens))
    assert set(taken) == {BillVerdict.ACCEPTED}
    timer.time("proxy", lambda: proxy.form_batches(TIMES.opens, setup.source))
    batches: list[bytes] = []

    class Link:
        """The ad server's part is not the proxy's work: the receipt is made beside the clock."""

        def deliver(self, batch: bytes) -> bytes:
            batches.append(batch)
            began = time.process_time()
            receipt = Receipt.sign(setup.parties.server_key, batch[1:17], bytes(count)).to_bytes()
            self.seconds = time.process_time() - began
            return receipt

    link = Link()
    assert timer.time("proxy", lambda: proxy.deliver_batches(link)) == 1
    cost = timer.cost["proxy"]
    timer.cost["proxy"] = UnitCost(cost.processor - link.seconds, cost.wall)
    return timer.cost


def device_turns(scale: BillingScale) -> list[Measurement]:
    """One impression of a device that knows nothing yet: head, menu, plan, token, choice, report; and bytes."""
    with tempfile.TemporaryDirectory() as place:
        setup = BillingSetup(Path(place) / "ads.sqlite", Path(place) / "reports.sqlite")
        first = [device_seconds(setup, prefetch=1, shown=1) for _ in range(scale.devices)]
        before = dict(setup.parties.bytes)
        many = 8
        device_seconds(setup, prefetch=scale.tokens, shown=many)
        used = {kind: count - before.get(kind, 0) for kind, count in setup.parties.bytes.items()}
        setup.close()
    crossing = sum(used[kind] for kind in ("heads", "requests", "offers", "reports", "statements")) / many
    sizes = ", ".join(f"{kind} {count}" for kind, count in used.items() if count)
    settings = (
        f"{CANDIDATES} candidates, epsilon {EPSILON}; a device that fetches head, menu and one token, checks, "
        f"plans, chooses, seals and keeps its journal in memory; {scale.devices} devices on {processor_model()}"
    )
    return [
        Measurement("device_turn_ms", 1000 * median(first), "ms", TURN_BAR_MS, False, settings),
        Measurement(
            "bytes_per_impression", crossing, "bytes", BYTES_BAR, False,
            f"bodies of all messages of one device, both ways, {many} impressions of one menu with tokens "
            f"fetched {scale.tokens} at a time: {sizes}",
        ),
    ]  # fmt: skip


def device_seconds(setup: BillingSetup, *, prefetch: int, shown: int) -> float:
    """The processor time per impression of a new device, without the parties' own."""
    parties = setup.parties
    keys = PartyKeys(parties.opening.public, parties.server_key.public, parties.proxy_key.public)
    limits = DeviceLimits(local=Fraction(EPSILON * shown), per_choice=Fraction(EPSILON))
    settings = DeviceSettings(LEVELS, DisclosureLevel((1,)), consent=True, limits=limits, prefetch=prefetch)
    channel = DistantParties(parties)
    began = time.process_time()
    device = AdDevice(settings, keys, MemoryJournal(), channel, setup.source)
    for _ in range(shown):
        device.show(("Coffee",), _made_up_rates, TIMES.opens)
    device.send_reports(TIMES.opens)
    seconds = time.process_time() - began - channel.seconds
    parties.bill()
    device.settle(TIMES.opens)
    return seconds / shown


def _made_up_rates(menu: Menu, context: DeviceContext) -> Floats:  # noqa: ARG001
    return menu.rates[::-1].copy()


def memory(reports: int) -> list[Measurement]:
    """The most that a process grew by while both parties took, batched and charged reports."""
    few, many = (_in_a_process(count) for count in (reports, TIMES_MORE * reports))
    settings = (
        f"peak growth of a process in which both parties take, shuffle and charge reports on SQLite: "
        f"{reports:,} reports {few / 1e6:.1f} MB, {TIMES_MORE * reports:,} reports {many / 1e6:.1f} MB"
    )
    name = f"memory_rise_at_{TIMES_MORE}_times_the_reports"
    return [Measurement(name, many / few, "x", MOST_RISE, False, settings)]


def peak_growth(folder: Path, reports: int, at_once: int = 1_000) -> int:
    """By this process itself, in bytes; it should have done nothing else."""
    setup = BillingSetup(folder / "ads.sqlite", folder / "reports.sqlite")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = process_kilobytes("VmRSS")
    for _ in range(reports // at_once):
        assert set(setup.parties.take_reports(setup.make_reports(at_once))) == {BillVerdict.ACCEPTED}
        setup.parties.bill()
    assert sum(line.impressions for line in setup.ads.totals()) == reports // at_once * at_once
    return 1024 * (process_kilobytes("VmHWM") - before)


def _in_a_process(reports: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tacit_lab.bench.billing", folder, str(reports)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    print(peak_growth(Path(sys.argv[1]), int(sys.argv[2])))
