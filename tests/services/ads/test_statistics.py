"""Rounds by schedule: opened once per period, answered by devices, made into versions, whatever is cut off."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tacit.bill.protocol.menus import PricedMenu
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.campaigns.store import Author
from tacit.deliver.campaigns.versions import NewVersion, StoredVersion, VersionKind
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.settings import StatisticsConsent
from tacit.deliver.server.released_statistics import ReleasedStatistics
from tacit.entropy import Simulation
from tacit.errors import BadInput, GatherError
from tacit.gather.estimate.plan import default_delta
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.rounds import Round
from tacit.privacy.noise.distributions import DiscreteGaussian
from tacit.schema.contexts.hierarchy import Hierarchy, Node, load_hierarchy
from tacit.services import trial
from tacit.services.ads.menu_questions import KeptRound, ask_about_menus
from tacit.services.ads.statistics import ScheduledRounds
from tacit.services.http_clients import LinkFailed
from tacit.services.market_file import read_market
from tacit.services.rounds import AnnouncedRound
from tacit.store.campaigns import SqlCampaignStore
from tacit.store.versions import SqlVersionStore
from tests.support.ad_campaigns import a_campaign
from tests.support.billing_services import EPOCH_SECONDS, HERE, THERE, liking
from tests.support.listed_market import LISTED_MARKET
from tests.support.statistics_worlds import (
    EPSILON,
    EVERY_SECONDS,
    LINE,
    OPEN_SECONDS,
    StatisticsWorld,
    scheduled,
)

ROUND, STATISTICS = VersionKind.ROUND, VersionKind.STATISTICS


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StatisticsWorld]:
    made = StatisticsWorld(tmp_path)
    yield made
    made.end()


def rounds_at(world: StatisticsWorld) -> int:
    return len(world.server_rounds.rounds())


def versions(world: StatisticsWorld, kind: VersionKind) -> list[StoredVersion]:
    return list(world.running.versions.versions(kind))


def run_round(world: StatisticsWorld) -> dict[tuple[tuple[str, str], int], list[int]]:
    """Four devices show two ads each and click some; what they counted, by context and campaign."""
    counted: dict[tuple[tuple[str, str], int], list[int]] = {}
    devices = []
    for number in range(4):
        device = world.asking_device(number)
        for context in (HERE, THERE):
            ad = device.show(context, liking, world.now)
            clicked = number % 2 == 0 and context == HERE
            if clicked:
                assert device.note_click(ad)
            assert ad.campaign is not None
            found = counted.setdefault((context, ad.campaign), [0, 0])
            found[0] += clicked
            found[1] += 1
        devices.append(world.counting_device(number, device))
    for counting in devices:
        assert len(counting.join(charging=True, wifi=True)) == 1
        assert counting.join(charging=True, wifi=True) == []  # it has been answered
    return counted


def test_a_round_is_opened_on_schedule_and_its_answers_make_the_next_rates(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    world.rounds.look()
    [kept] = versions(world, ROUND)
    assert rounds_at(world) == 1
    counted = run_round(world)

    world.now += OPEN_SECONDS + 60
    world.wait_for_result()
    world.rounds.look()
    world.rounds.look()
    [made] = versions(world, STATISTICS)
    assert made.in_use
    assert made.body["reports"] == 4
    assert made.body["statement"]["epsilon"] == pytest.approx(made.body["epsilon"], rel=1e-6)
    assert made.body["statement"]["unit"] == "device"
    content = world.running.versions.content(made.number)
    assert content is not None
    statistics = ReleasedStatistics.from_bytes(content)
    nodes = {context: world.hierarchy.at(context, (1, 1)) for context in (HERE, THERE)}
    for (context, campaign), (clicks, shown) in counted.items():
        cells = statistics.cells(world.hierarchy, [nodes[context]], [campaign])
        assert (cells[0][0, 0], cells[1][0, 0]) == (clicks, shown)
    book = statistics.rate_book(world.hierarchy, version="1")
    campaigns = sorted({campaign for _, campaign in counted})
    clicks, shown = np.sum(list(counted.values()), axis=0)
    assert book.rates([nodes[HERE]], campaigns, BidEvent.CLICK) == pytest.approx(
        clicks / shown
    )  # too few to differ
    trail = SqlCampaignStore(world.ads.database).changes(subject="statistics in use")
    assert [(line.key_id, line.after) for line in trail] == [("schedule", {"number": made.number})]
    assert kept.body["closes"] == made.body["closes"]

    for ledger in world.ledgers.values():
        account = ledger.account(LINE)
        assert account is not None
        assert account.used.epsilon_nanos == pytest.approx(EPSILON * 1e9)


MADE_OF_CAMPAIGNS = """\
epoch_seconds = 600
report_seconds = 3600
epsilon = 1.0
smallest_cohort = 3
contexts = "contexts.toml"
levels = [[1, 1], [2, 2]]
[menus]
default_rate = 0.02
"""


def test_what_a_round_released_is_in_the_menus_of_the_next_epoch(tmp_path: Path) -> None:
    campaigns = [a_campaign(number, bids=[{"micros": 100_000 * number}]) for number in (1, 2)]
    world = StatisticsWorld(tmp_path, market=MADE_OF_CAMPAIGNS, campaigns=campaigns)
    try:
        world.wait_for_epoch()
        node = world.hierarchy.at(HERE, (1, 1))

        def rates_now() -> set[float]:
            opened = [head for head in world.keeper.heads() if head.opens <= world.now < head.closes]
            stored = world.ads.epoch(opened[-1].epoch)
            assert stored is not None
            return {
                float(entry.rate)
                for kept in stored.menus
                if kept.menu.node == node
                for entry in kept.menu.entries
            }

        assert rates_now() == {0.02}
        world.rounds.look()
        run_round(world)
        world.now += OPEN_SECONDS + 60
        world.wait_for_epoch()
        assert rates_now() == {0.02}  # nothing was released yet
        world.wait_for_result()
        world.rounds.look()
        world.now += EPOCH_SECONDS + EPOCH_SECONDS // 2  # what was opened before stays as it is
        world.wait_for_epoch()
        [made] = versions(world, STATISTICS)
        content = world.running.versions.content(made.number)
        assert content is not None
        book = ReleasedStatistics.from_bytes(content).rate_book(world.hierarchy, version="1")
        expected = book.rates([node], [1, 2], BidEvent.CLICK)[0]
        assert sorted(rates_now()) == pytest.approx(sorted({*expected.tolist()}))
        assert min(rates_now()) > 0.1
    finally:
        world.end()


def test_each_period_has_its_round(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    world.now += EVERY_SECONDS
    world.wait_for_epoch()
    world.rounds.look()
    first, second = (each.source for each in reversed(versions(world, ROUND)))
    assert int(second.rpartition("-")[2]) == int(first.rpartition("-")[2]) + 1
    assert rounds_at(world) == 2


def test_what_was_counted_is_deleted_from_the_device(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    device = world.asking_device(1, ("menu-rates",))  # no conversions, which would be counted later
    device.show(HERE, liking, world.now)
    assert device.log is not None
    assert len(device.log.events()) == 1
    counting = world.counting_device(1, device)
    assert counting.join(charging=False, wifi=True) == []  # as its person wants it
    assert len(device.log.events()) == 1
    assert len(counting.join(charging=True, wifi=True)) == 1
    assert device.log.events() == []
    [kept] = versions(world, ROUND)
    with pytest.raises(GatherError, match="forgotten"):
        counting._memory.find_chosen(kept.source)


def test_a_round_that_promises_less_than_the_person_wants_is_left(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    [kept] = versions(world, ROUND)
    device = world.asking_device(1)
    device.show(HERE, liking, world.now)
    wants = StatisticsConsent(allowed=True)
    careful = AdDevice(
        replace(device.settings, statistics=wants), world.keys, device.journal, world.channel(), Simulation(1),
        log=device.log, simulated=True,
    )  # fmt: skip
    counting = world.counting_device(1, careful)
    assert counting.join(charging=True, wifi=True) == []
    assert careful.log is not None
    assert len(careful.log.events()) == 1, "nothing was chosen for it"
    assert counting._memory.find_chosen(kept.source) is None


def test_a_round_that_leaves_more_to_chance_than_the_person_wants_is_left(world: StatisticsWorld) -> None:
    """At delta near 1 hardly any noise keeps what a round promises, whatever its epsilon."""
    world.wait_for_epoch()
    world.rounds.look()
    device = world.asking_device(1)
    device.show(HERE, liking, world.now)
    counting = world.counting_device(1, device)
    [open_] = counting._uploads.rounds()
    answered = list[Fraction]()

    class Announced:
        def __init__(self, delta: Fraction) -> None:
            promise = replace(open_.round.promise, delta=delta)
            noise = ServerNoise(DiscreteGaussian(Fraction(10**6)))  # more than enough
            self._round = AnnouncedRound(replace(open_.round, promise=promise, noise=noise), open_.question)
            self._round.round.expect_promise_kept()

        def rounds(self) -> list[AnnouncedRound]:
            return [self._round]

        def report(self, round: Round, values: Any) -> None:  # noqa: ARG002
            answered.append(round.promise.delta)

    tried = [Fraction(999, 1000), Fraction(2, 10**6), Fraction(1, 10**6)]
    for delta in tried:
        counting._uploads = Announced(delta)
        counting.join(charging=True, wifi=True)
    assert answered == [default_delta(1)] == tried[-1:]


def test_an_answer_that_got_lost_is_sent_again_and_then_forgotten(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    device = world.asking_device(1)
    device.show(HERE, liking, world.now)
    counting = world.counting_device(1, device)
    sent: list[bytes] = []

    def lose(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        answer = send(request)
        if request.method != "PUT":
            return answer
        sent.append(request.content)
        if len(sent) == 1:
            raise httpx.ReadError("the answer got lost")
        return answer

    world.network.meddle = lose
    with pytest.raises(LinkFailed):
        counting.join(charging=True, wifi=True)
    assert len(counting.join(charging=True, wifi=True)) == 1
    assert sent[0] == sent[1]
    assert counting.join(charging=True, wifi=True) == []


def test_who_erases_has_nothing_left_of_rounds(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    device = world.asking_device(1)
    device.show(HERE, liking, world.now)
    counting = world.counting_device(1, device)
    counting._memory.keep_chosen("menu-rates-1", b"where somebody was")
    assert counting.erase() >= 1
    assert device.log is not None
    assert device.log.events() == []
    with pytest.raises(GatherError, match="forgotten"):
        counting._memory.find_chosen("menu-rates-1")


def test_who_withdraws_has_nothing_of_it_left(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    device = world.asking_device(1)
    device.show(HERE, liking, world.now)
    log = device.log
    assert log is not None
    withdrawn = replace(device.settings, statistics=StatisticsConsent(allowed=False))
    again = AdDevice(
        withdrawn, world.keys, device.journal, world.channel(), Simulation(1), log=log, simulated=True
    )
    assert again.log is None
    assert log.events() == []


def test_a_ledger_that_cannot_pay_opens_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = StatisticsWorld(tmp_path, granted=1.0)
    try:
        world.wait_for_epoch()
        caplog.clear()
        for _ in range(3):
            assert world.rounds.look() > 60
        assert rounds_at(world) == 0
        assert versions(world, ROUND) == []
        said = [
            record for record in caplog.records if "no round of statistics is opened" in record.getMessage()
        ]
        assert len(said) == 1
        figures = {each.name: each.value for each in world.rounds.readings()}
        assert figures["tacit_statistics_refused"] == 1
    finally:
        world.end()


def test_too_few_answers_leave_the_rates_as_they_are(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    device = world.asking_device(1)
    device.show(HERE, liking, world.now)
    world.counting_device(1, device).join(charging=True, wifi=True)
    world.now += OPEN_SECONDS + 60
    world.wait_for_result()
    world.rounds.look()
    assert versions(world, STATISTICS) == []
    assert {each.name: each.value for each in world.rounds.readings()}["tacit_statistics_rounds_waiting"] == 0


class CutOff(Exception):
    """The process ends here."""


class CuttingStore:
    """A version store whose process ends before or after a write."""

    def __init__(self, store: SqlVersionStore, kind: VersionKind, *, after: bool) -> None:
        self._store, self._kind, self._after = store, kind, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(
        self, version: NewVersion, author: Author, *, use: bool = False
    ) -> tuple[StoredVersion | None, bool]:
        if version.kind is not self._kind:
            return self._store.add(version, author, use=use)
        if self._after:
            self._store.add(version, author, use=use)
        raise CutOff


def cut(world: StatisticsWorld, kind: VersionKind, *, after: bool) -> None:
    """Look once, and end at this write; then start anew."""
    cutting = scheduled(world.running)
    cutting._versions = CuttingStore(world.running.versions, kind, after=after)
    with pytest.raises(CutOff):
        cutting.look()
    world.rounds = scheduled(world.running)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_restart_at_any_write_opens_and_counts_once(world: StatisticsWorld, after: bool) -> None:
    world.wait_for_epoch()
    cut(world, ROUND, after=after)
    assert rounds_at(world) == 0
    world.rounds.look()
    world.rounds = scheduled(world.running)
    world.rounds.look()  # a process that does not know what it opened
    assert rounds_at(world) == 1
    run_round(world)
    world.now += OPEN_SECONDS + 60
    world.wait_for_result()
    cut(world, STATISTICS, after=after)
    world.rounds.look()
    world.rounds = scheduled(world.running)
    world.rounds.look()
    assert len(versions(world, STATISTICS)) == 1
    assert len(SqlCampaignStore(world.ads.database).changes(subject="statistics in use")) == 1


def test_a_proxy_that_is_away_gets_the_very_same_round(world: StatisticsWorld) -> None:
    world.wait_for_epoch()

    def away(request: Any, send: Any) -> Any:
        if request.url.host == "proxy.test" and request.url.path == "/rounds":
            raise LinkFailed("nobody listens")
        return send(request)

    honest, world.network.meddle = world.network.meddle, away
    world.rounds.look()
    [kept] = versions(world, ROUND)
    assert world.proxy_rounds.rounds() == []
    world.now += 120
    world.network.meddle = honest
    world.rounds = scheduled(world.running)
    world.rounds.look()
    [opened] = world.proxy_rounds.rounds()
    content = world.running.versions.content(kept.number)
    assert content is not None
    assert opened.body == KeptRound.from_bytes(content).announced.round.to_bytes()


def test_an_older_result_does_not_replace_a_newer_one(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    run_round(world)
    newer = NewVersion(STATISTICS, "round of later", {"closes": world.now + 10 * EVERY_SECONDS}, b"newer")
    kept, _ = world.running.versions.add(newer, Author("k", world.now), use=True)
    world.now += OPEN_SECONDS + 60
    world.wait_for_result()
    world.rounds.look()
    used = world.running.versions.in_use(STATISTICS)
    assert kept is not None
    assert used is not None
    assert used.number == kept.number
    assert len(versions(world, STATISTICS)) == 2


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[PricedMenu], Hierarchy]:
    folder = tmp_path_factory.mktemp("market")
    (folder / "market.toml").write_text(LISTED_MARKET)
    (folder / "contexts.toml").write_text(trial.CONTEXTS)
    return read_market(folder / "market.toml").priced(7), load_hierarchy(folder / "contexts.toml")


def test_what_is_asked_follows_from_public_menus(market: tuple[list[PricedMenu], Hierarchy]) -> None:
    menus, hierarchy = market
    asked = ask_about_menus(menus, hierarchy, cells_most=20_000)
    assert asked is not None
    assert {node.values for node in asked.nodes} == set(
        itertools.product(("North", "South"), ("Food", "Sport"))
    )
    assert asked.question.levels == (1, 1)
    # The menu of anywhere has all four campaigns, so that each context is asked about all of them.
    assert asked.question.ad.tolist() == [1, 2, 3, 4] * 4
    assert asked.left_out == 0
    coarse = ask_about_menus(menus, hierarchy, levels=(2, 2), cells_most=20_000)
    assert coarse is not None
    assert coarse.nodes == (Node((2, 2), ("*", "*")),)
    assert ask_about_menus([], hierarchy, cells_most=10) is None


def test_beyond_the_bound_what_ranks_lowest_is_left_out(market: tuple[list[PricedMenu], Hierarchy]) -> None:
    menus, hierarchy = market
    asked = ask_about_menus(menus, hierarchy, cells_most=4 + 2 * 5)
    assert asked is not None
    assert (asked.question.cells, asked.left_out) == (14, 11)
    first = {menu.node: menu.entries[0].campaign for menu in menus}
    for place, node in enumerate(asked.nodes):
        start, end = asked.question.offsets[place : place + 2]
        assert first[node] in asked.question.ad[start:end]
    fewer = ask_about_menus(menus, hierarchy, cells_most=3)
    assert fewer is not None
    assert (len(fewer.nodes), fewer.question.entries) == (3, 0)


def test_a_kept_round_that_was_changed_is_refused(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    [stored] = versions(world, ROUND)
    content = world.running.versions.content(stored.number)
    assert content is not None
    kept = KeptRound.from_bytes(content)
    assert KeptRound.from_bytes(kept.to_bytes()).nodes == kept.nodes
    swapped = KeptRound(kept.announced, (kept.nodes[1], kept.nodes[0], *kept.nodes[2:]))
    for wrong in (content[:-1], b"", b"\x92\xc4\x00\x90", swapped.to_bytes()):
        with pytest.raises(BadInput, match="expected"):
            KeptRound.from_bytes(wrong)
    assert np.diff(kept.question.nodes).min() > 0
    assert isinstance(world.rounds, ScheduledRounds)
