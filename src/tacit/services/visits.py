"""Made-up devices that show ads through running parties: `AdDevice`s with tastes of their own, each a journal.

For a trial and for looking at what each party gets to see. A device here does what a real one does, with the
cryptographic stream: it tells a generalised context, chooses privately among its menu, reports, and settles.
Its tastes and its home are made up from its number, so that it is the same device next time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np

from tacit.arrays import Floats
from tacit.bill.protocol.batches import CohortStatement
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.outcomes import ShownAd
from tacit.deliver.device.packs import PackShelf
from tacit.deliver.device.parties import AdChannel, PartyKeys
from tacit.deliver.device.settings import DeviceSettings, StatisticsConsent
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.menu import Menu
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, BillError, BillRefused
from tacit.files import make_private_folder
from tacit.gather.client.contributions import Contributions, Event
from tacit.gather.client.reporter import Reporter
from tacit.gather.protocol import credentials
from tacit.gather.protocol.rounds import Round
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Hierarchy, load_hierarchy
from tacit.services.billing_clients import HttpAdChannel
from tacit.services.device_rounds import CountingDevice, read_clock
from tacit.services.endpoints import Clock
from tacit.services.http_clients import HttpUploads, LinkFailed, PublicKeys, open_client
from tacit.services.rounds import NO_QUESTION
from tacit.services.settings import PARTIES_FILE, Parties, load_parties, load_settings
from tacit.services.signatures import Party
from tacit.store.device_journal import SqlDeviceJournal
from tacit.store.gather_device import SqlDeviceStore
from tacit.store.shown_log import SqlShownLog

CONTEXTS_FILE = "contexts.toml"
AT_ONCE = 8
CLICKED_ONE_IN, CONVERTED_ONE_IN = 20, 40
LOOK_BACK_SECONDS = 60  # so that the conversions of one look are counted in the next; people take days
TIMEOUT_SECONDS = 10
QUIET_SECONDS = (
    4.0  # after which what has not left in a batch is not waited for: a demonstration's leave after two
)


class PackChannel(AdChannel, Protocol):
    """A device's channel that fetches menus' ads, too."""

    def pack(self, menu_id: bytes) -> bytes: ...


class CountingChannel:
    """A device's channel that counts what goes through it."""

    def __init__(self, channel: PackChannel) -> None:
        self._channel = channel
        self.calls, self.sent_bytes, self.got_bytes = Counter[str](), 0, 0

    def head(self) -> bytes:
        return self._count("head", b"", self._channel.head())

    def offer(self, sealed: bytes) -> bytes:
        return self._count("offer", sealed, self._channel.offer(sealed))

    def report(self, report: bytes) -> None:
        self._channel.report(report)
        self._count("report", report, b"")

    def statement(self, nonce: bytes) -> bytes | None:
        found = self._channel.statement(nonce)
        self._count("statement", b"", found or b"")
        return found

    def statements(self, epoch: int) -> Sequence[bytes]:
        return self._channel.statements(epoch)

    def pack(self, menu_id: bytes) -> bytes:
        return self._count("pack", b"", self._channel.pack(menu_id))

    def _count(self, name: str, sent: bytes, got: bytes) -> bytes:
        self.calls[name] += 1
        self.sent_bytes, self.got_bytes = self.sent_bytes + len(sent), self.got_bytes + len(got)
        return got


@dataclass(frozen=True)
class MadeUpTaste:
    """A person's own chances of a click: the public ones, times how much they like each campaign."""

    person: int

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:  # noqa: ARG002 (as `DeviceRates`)
        liking = [float(np.exp(Simulation(f"taste {self.person} {ad}").normal(1)[0])) for ad in menu.ads]
        rates: Floats = np.clip(np.asarray(menu.rates, np.float64) * np.array(liking), 0.0, 1.0)
        return rates


@dataclass(eq=False)
class Visitor:
    """One made-up device, and what became of its visits."""

    number: int
    device: AdDevice
    channel: CountingChannel
    contexts: Sequence[tuple[str, ...]]
    shown: list[tuple[tuple[str, ...], ShownAd]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    rounds: list[str] = field(default_factory=list)

    def visit(self, times: int, clock: Clock) -> None:
        """Show ads at so many contexts, and report them. What was left from last time is reported first."""
        self.device.recover(clock())
        chance = Simulation(f"visits {self.number} {clock()}")
        home = self.contexts[Simulation(f"home {self.number}").uniform_below(len(self.contexts))]
        for _ in range(times):
            away = chance.uniform_below(4) == 0
            here = self.contexts[chance.uniform_below(len(self.contexts))] if away else home
            try:
                ad = self.device.show(here, MadeUpTaste(self.number), clock())
                self.shown.append((here, ad))
                if Simulation(f"click {self.number} {ad.nonce.hex()}").uniform_below(CLICKED_ONE_IN) == 0:
                    self.device.note_click(ad)
                buys = Simulation(f"buy {self.number} {ad.nonce.hex()}").uniform_below(CONVERTED_ONE_IN) == 0
                if buys and ad.campaign is not None:
                    self.device.note_conversion(ad.campaign, clock())
            except BillRefused as refused:
                self.refused[BillVerdict(refused.reason).words] += 1
        self.device.send_reports(clock())

    def join_rounds(
        self, uploads: HttpUploads, memory: SqlDeviceStore, entropy: Entropy, clock: Clock = read_clock
    ) -> None:
        """Answer what the ad server asks by schedule; and report how often each campaign was shown, in rounds
        without a question whose cells are campaigns."""
        counting = CountingDevice(self.device, uploads, memory, entropy, clock=clock)
        self.rounds += counting.join(charging=True, wifi=True)
        consent = self.device.settings.statistics
        events = [Event(here, ad.campaign, False) for here, ad in self.shown if ad.campaign is not None]
        for announced in uploads.rounds():
            round = announced.round
            if round.question == NO_QUESTION and consent.allows(round.task, charging=True, wifi=True):
                chosen = Contributions.once(round.task, events, round.promise.events, entropy, memory)
                uploads.report(round, campaign_counts(round, chosen))
                self.rounds.append(round.task)


def campaign_counts(round: Round, chosen: Contributions) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many of the chosen events each campaign has, by its number, as far as the round has cells."""
    counts = np.zeros(round.cells, np.int64)
    for event in chosen.events:
        if event.ad < round.cells:
            counts[event.ad] += 1
    return np.minimum(counts, round.promise.each)


@dataclass(frozen=True)
class Seen:
    """What some visits came to, for their people and for each party."""

    visitors: tuple[Visitor, ...]
    batches: tuple[int, ...]  # sizes that the proxy signed, of the epochs that were visited
    settled: int
    waiting: int

    @property
    def ads(self) -> list[ShownAd]:
        return [ad for visitor in self.visitors for _, ad in visitor.shown]

    def count(self, call: str) -> int:
        return sum(visitor.channel.calls[call] for visitor in self.visitors)

    def as_json(self) -> dict[str, Any]:
        ads, joined = self.ads, Counter(task for visitor in self.visitors for task in visitor.rounds)
        lanes = Counter(str(ad.lane) for ad in ads)
        return {
            "devices": len(self.visitors),
            "shown": [
                {"context": context, "lane": lane, "campaign": campaign, "price_micros": price, "times": times}
                for (context, lane, campaign, price), times in sorted(self.by_menu().items(), key=str)
            ],
            "refused": dict(sum((visitor.refused for visitor in self.visitors), Counter[str]())),
            "lanes": {str(lane): lanes[str(lane)] for lane in Lane},
            "epsilon": sum(ad.epsilon_micros for ad in ads) / 1e6,
            "price_micros": sum(ad.price_micros for ad in ads),
            "requests": self.count("offer"),
            "reports": self.count("report"),
            "sent_bytes": sum(visitor.channel.sent_bytes for visitor in self.visitors),
            "got_bytes": sum(visitor.channel.got_bytes for visitor in self.visitors),
            "batches": list(self.batches),
            "settled": self.settled,
            "waiting": self.waiting,
            "rounds": dict(joined),
        }

    def by_menu(self) -> Counter[tuple[str, str, int | None, int]]:
        """How often each campaign was shown, by what was disclosed and by lane."""
        return Counter((str(ad.disclosed), str(ad.lane), ad.campaign, ad.price_micros) for ad in self.ads)


@dataclass(frozen=True)
class Place:
    """Where the parties are, and how contexts generalise: parties.toml and contexts.toml of one folder."""

    folder: Path
    parties: Parties
    keys: PartyKeys
    hierarchy: Hierarchy
    contexts: tuple[tuple[str, ...], ...]

    @property
    def disclosure(self) -> DisclosureLevel:
        """What its devices tell of a context."""
        levels = self.hierarchy.levels()
        return DisclosureLevel(levels[min(1, len(levels) - 1)])


@dataclass(frozen=True)
class Neighbours:
    """So many devices that agreed stay where this is what one discloses: their reports are of its menus."""

    values: tuple[str, ...]
    devices: int

    def settle_in(self, visitors: Sequence[Visitor], place: Place) -> None:
        """Give them contexts there alone. BadInput: nothing is there, or they are too few."""
        there = [
            each
            for each in place.contexts
            if place.disclosure.disclose(place.hierarchy, each).values == self.values
        ]
        if not there:
            raise BadInput("expected a place that contexts generalise to, got another")
        agreed = [each for each in visitors if each.device.settings.consent]
        if self.devices > len(agreed):
            raise BadInput(f"expected at most {len(agreed)} neighbours of so many devices, got {self.devices}")
        for each in agreed[: self.devices]:
            each.contexts = there


def read_place(given: Path) -> Place:
    """A folder, or the parties.toml in it."""
    path = given / PARTIES_FILE if given.is_dir() else given
    parties = load_parties(path)
    for name, party in (("proxy", parties.proxy), ("server", parties.server)):
        if party.signing_key is None:
            raise BadInput(f"{path}: {name}.signing_key: expected a key that devices check by, got no such key")
    assert parties.server.signing_key is not None, "checked"
    assert parties.proxy.signing_key is not None, "checked"
    keys = PartyKeys(parties.server.public_key, parties.server.signing_key, parties.proxy.signing_key)
    hierarchy = load_hierarchy(path.parent / CONTEXTS_FILE)
    return Place(path.parent, parties, keys, hierarchy, _all_contexts(hierarchy))


def _all_contexts(hierarchy: Hierarchy) -> tuple[tuple[str, ...], ...]:
    """Every exact context, for as long as all attributes are trees of few leaves."""
    found: list[tuple[str, ...]] = [()]
    for attribute in hierarchy.attributes:
        if not isinstance(attribute, Steps):
            raise BadInput(f"{CONTEXTS_FILE}: attribute {attribute.name}: expected a tree to visit, got others")
        found = [(*before, leaf) for before in found for leaf in attribute.tree.leaves()]
        if len(found) > 100_000:
            raise BadInput(f"{CONTEXTS_FILE}: expected at most 100000 contexts to visit, got more")
    return tuple(found)


def run_visits(
    place: Place,
    *,
    devices: int,
    visits: int,
    clock: Clock,
    entropy: Entropy,
    wait_seconds: float = 10.0,
    first: int = 0,
    journals: Path | None = None,
    neighbours: Neighbours | None = None,
) -> Seen:
    """Let devices visit, wait a little for their batches, and say what became of it. They are numbered from
    `first` on, and have what they spent in `journals`: by default in the folder of the parties."""
    journals = place.folder / "devices" if journals is None else journals
    if not journals.is_dir():
        make_private_folder(journals)
    url = place.parties.proxy.url
    with open_client(place.parties.proxy.trust, TIMEOUT_SECONDS) as client, _answering(url):
        channel = HttpAdChannel(client, url, entropy=entropy, sleep=time.sleep)
        _wait_for_epoch(channel, wait_seconds)
        visitors = [
            _visitor(place, journals, number, channel, entropy) for number in range(first, first + devices)
        ]
        if neighbours is not None:
            neighbours.settle_in(visitors, place)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda visitor: visitor.visit(visits, clock), visitors))
            list(
                pool.map(
                    lambda visitor: _join_rounds(place, journals, visitor, client, entropy, clock), visitors
                )
            )
        settled, waiting = _settle(visitors, clock, wait_seconds)
        epochs = sorted({ad.epoch for visitor in visitors for _, ad in visitor.shown})
        sizes = [size for epoch in epochs for size in _batch_sizes(channel, epoch)]
    return Seen(tuple(visitors), tuple(sizes), settled, waiting)


@contextmanager
def _answering(url: str) -> Iterator[None]:
    try:
        yield
    except LinkFailed as problem:
        raise BillError(f"expected an answer from the proxy at {url}, got none: {problem}") from None


def _wait_for_epoch(channel: AdChannel, seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            channel.head()
            return
        except BillRefused:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _visitor(place: Place, journals: Path, number: int, channel: PackChannel, entropy: Entropy) -> Visitor:
    """Three of four agreed that it chooses for them, and one of two that it counts. It keeps to campaigns' caps
    as devices do."""
    counting = CountingChannel(channel)
    settings = DeviceSettings(
        place.hierarchy,
        place.disclosure,
        consent=number % 4 != 3,
        statistics=StatisticsConsent(allowed=number % 2 == 0),
        look_back_seconds=LOOK_BACK_SECONDS,
    )
    journal = SqlDeviceJournal.open(journals / f"{number}.sqlite")
    log = SqlShownLog.open(journals / f"{number}-shown.sqlite") if settings.statistics.allowed else None
    packs = PackShelf(counting.pack, place.keys)
    device = AdDevice(settings, place.keys, journal, counting, entropy, packs=packs, log=log)
    return Visitor(number, device, counting, place.contexts)


def _join_rounds(
    place: Place, journals: Path, visitor: Visitor, client: httpx.Client, entropy: Entropy, clock: Clock
) -> None:
    """Where the folder has the proxy's secret to enrol devices with, as that of a trial does."""
    settings = place.folder / "proxy.toml"
    if not visitor.device.settings.statistics.allowed or not settings.exists():
        return
    name = visitor.number.to_bytes(credentials.DEVICE_BYTES, "big")
    key = credentials.issue_device_key(load_settings(settings, Party.PROXY).secrets["enrolment"], name)
    keys = PublicKeys(place.parties.proxy.public_key, place.parties.server.public_key)
    memory = SqlDeviceStore.open(journals / f"{visitor.number}-counts.sqlite")
    reporter = Reporter(name, key, entropy, memory, proxy_key=keys.proxy, server_key=keys.server)
    uploads = HttpUploads(
        client, place.parties.proxy.url, reporter, keys, entropy=entropy, sleep=time.sleep, attempts=3
    )
    visitor.join_rounds(uploads, memory, entropy, clock)


def _settle(visitors: Sequence[Visitor], clock: Clock, seconds: float) -> tuple[int, int]:
    """How many reports left in a batch, and how many wait for theirs: once all did, none has for a while or the
    time is over."""
    end, settled, latest = time.monotonic() + seconds, 0, time.monotonic()
    while True:
        done = [visitor.device.settle(clock()) for visitor in visitors]
        more = sum(each.by_size + each.in_full for each in done)
        waiting, now = sum(each.waiting for each in done), time.monotonic()
        settled, latest = settled + more, now if more else latest
        if not waiting or now > min(end, latest + QUIET_SECONDS):
            return settled, waiting
        time.sleep(0.5)


def _batch_sizes(channel: AdChannel, epoch: int) -> list[int]:
    return [CohortStatement.from_bytes(each).reports for each in channel.statements(epoch)]
