"""Retention deletes what nobody needs any more, once, and nothing that goes on; health tells of what fails."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import GatherError
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.rounds import Round
from tacit.gather.proxy.store import NewReport, ProxyPhase, StoredProxyRound
from tacit.services import background as module
from tacit.services.background import DAY_SECONDS, Health, Retention, has_free_disk
from tacit.services.endpoints import LruCache
from tacit.services.proxy_intake import UnsettledRounds
from tacit.store.gather_proxy import SqlProxyStore
from tests.support.service_worlds import CLOSES, OPENS, PROXY_URL, SKEW, a_round, a_world

KEYS = SealingKey.generate(), SealingKey.generate()


def closing_on(day: int, task: str) -> Round:
    return replace(a_round(*KEYS, task=task), closes=CLOSES + day * DAY_SECONDS)


@dataclass
class Store:
    """Rounds with their phases; what was forgotten."""

    phases: dict[Round, ProxyPhase]
    forgotten: list[str] = field(default_factory=list)

    def rounds(self) -> list[StoredProxyRound]:
        return [StoredProxyRound(round.to_bytes(), phase) for round, phase in self.phases.items()]

    def forget(self, digest: bytes) -> None:
        [round] = [each for each in self.phases if each.digest == digest]
        self.forgotten.append(round.task)


class Clock:
    def __init__(self) -> None:
        self.day = 0

    def __call__(self) -> int:
        return CLOSES + self.day * DAY_SECONDS + 1


def test_each_settled_round_is_forgotten_once_after_its_days() -> None:
    early, late, stuck = closing_on(0, "early"), closing_on(3, "late"), closing_on(0, "stuck")
    store = Store({early: ProxyPhase.RELEASED, late: ProxyPhase.TOO_FEW, stuck: ProxyPhase.AGREED})
    clock = Clock()
    forgetting = Retention(store, clock=clock, keep_days=30)
    seen = {}
    for clock.day in (0, 29, 30, 31, 32, 33, 34):
        forgetting.look()
        seen[clock.day] = list(store.forgotten)
    assert (seen[29], seen[30], seen[32], seen[34]) == ([], ["early"], ["early"], ["early", "late"])
    store.phases[stuck] = ProxyPhase.RELEASED  # long after its days: it still has its turn
    forgetting.look()
    forgetting.look()
    assert store.forgotten == ["early", "late", "stuck"]


def test_a_clock_that_was_ahead_keeps_no_round_from_being_forgotten() -> None:
    first, later = closing_on(0, "first"), closing_on(3, "later")
    store, clock = Store({first: ProxyPhase.RELEASED}), Clock()
    forgetting = Retention(store, clock=clock, keep_days=30)
    for clock.day in (1_000, 1):
        forgetting.look()
    store.phases[later] = ProxyPhase.RELEASED  # opened and settled after that
    for clock.day in (32, 34):
        forgetting.look()
    assert store.forgotten[-1] == "later"


def test_in_a_real_store_the_share_stays_and_the_devices_go(tmp_path: Path) -> None:
    store, round = SqlProxyStore.open(tmp_path / "proxy.sqlite"), closing_on(0, "real")
    store.open_round(round.digest, round.task, round.level, round.to_bytes())
    store.add_reports([NewReport(round.digest, bytes(16), bytes(range(16)), bytes(32), b"upload")])
    job = store.begin_job(round.digest, 10)
    assert job is not None
    store.finish_job(round.digest, job.number, bytes(1), b"sum")
    store.set_phase(round.digest, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN}))
    store.keep_share(round.digest, bytes(32), b"share")
    clock = Clock()
    clock.day = 31
    forgetting = Retention(store, clock=clock, keep_days=30)
    assert (forgetting.look(), store.accepted_count(round.digest)) == (0, 1)
    store.set_phase(round.digest, ProxyPhase.RELEASED, only_from=frozenset({ProxyPhase.AGREED}))
    assert (forgetting.look(), store.accepted_count(round.digest)) == (1, 0)
    assert (list(store.accepted_ids(round.digest)), store.share(round.digest)) == ([], b"share")
    store.close()


@pytest.mark.parametrize(
    ("phase", "day", "is_live"),
    [
        (ProxyPhase.OPEN, -100, True),
        (ProxyPhase.CLOSED, -100, True),
        (ProxyPhase.AGREED, -100, True),
        (ProxyPhase.RELEASED, 0, False),
        (ProxyPhase.STOPPED, 0, False),
        (ProxyPhase.TOO_FEW, 0, True),  # the server may not have heard of it
        (ProxyPhase.TOO_FEW, -100, False),  # who reported is forgotten: nothing could be told
    ],
)
def test_what_has_something_to_do_after_a_start(phase: ProxyPhase, day: int, is_live: bool) -> None:
    round = replace(a_round(*KEYS), opens=OPENS - 200 * DAY_SECONDS, closes=CLOSES + day * DAY_SECONDS)
    live = UnsettledRounds(Store({round: phase}), not_before=CLOSES - 30 * DAY_SECONDS)
    assert list(live.all()) == ([round] if is_live else [])
    live.add(round)
    live.settle(round)
    live.settle(round)
    assert not live.all()


def test_a_small_memory_keeps_what_was_used_last() -> None:
    recent: LruCache[int, str] = LruCache(2)
    for key in (1, 2):
        recent.put(key, str(key))
    assert recent.get(1) == "1"
    recent.put(3, "3")
    assert (len(recent), recent.get(1), recent.get(2), recent.get(3)) == (2, "1", None, "3")


def said(health: Health) -> tuple[int, dict[str, Any]]:
    answer = health.answer()
    return answer.status_code, json.loads(bytes(answer.body))


def test_store_and_disk_are_vital_and_the_rest_is_not() -> None:
    wells = {"store": True, "disk": True, "ledger": True, "link": True}
    health = Health({name: (lambda name=name: wells[name]) for name in wells})  # type: ignore[misc]
    health.look()
    assert said(health) == (200, {"status": "ok", **dict.fromkeys(wells, "ok")})
    for name, status in (("store", 503), ("disk", 503), ("ledger", 200), ("link", 200)):
        wells[name] = False
        health.look()
        found = {each: "failing" if each == name else "ok" for each in wells}
        word = "failing" if status == 503 else "degraded"
        assert said(health) == (status, {"status": word, **found})
        wells[name] = True


def test_trouble_is_one_line_however_long_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    trouble = [True]

    def check() -> bool:
        if trouble:
            raise GatherError("the store at postgresql://u:s3cret@h/db could not be used")
        return True

    health = Health({"store": check})
    with caplog.at_level(logging.INFO, "tacit.services"):
        for _ in range(5):
            health.look()
        trouble.clear()
        for _ in range(5):
            health.look()
    assert len(caplog.records) == 2
    assert "store is failing: GatherError: the store at postgresql://u:***@h/db" in caplog.text
    assert "store is well again" in caplog.text


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_free_disk(tmp_path / "proxy.sqlite")
    monkeypatch.setattr(module, "LEAST_FREE_BYTES", 2**80)
    assert not has_free_disk(tmp_path / "proxy.sqlite")


def test_a_proxy_tells_of_its_link_and_asking_costs_no_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEALTH_SECONDS", 0.02)
    with a_world(tmp_path) as world:
        world.open()
        world.stop("server.test")
        world.now = CLOSES + SKEW
        world.wait_until(lambda: world.client.get(f"{PROXY_URL}/healthz").json()["status"] == "degraded")
        assert world.client.get(f"{PROXY_URL}/healthz").json()["link"] == "failing"
        world.start_server()
        world.wait_until(lambda: world.client.get(f"{PROXY_URL}/healthz").json()["status"] == "ok")
    monkeypatch.setattr(module, "HEALTH_SECONDS", 60)
    looks: list[int] = []

    def counted() -> bool:
        looks.append(1)
        return True

    with a_world(tmp_path) as world:
        world.watched["disk"] = counted
        world.start_proxy()
        for _ in range(50):
            assert world.client.get(f"{PROXY_URL}/healthz").json()["disk"] == "ok"
        assert len(looks) <= 1
