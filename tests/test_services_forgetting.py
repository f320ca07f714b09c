"""What nobody needs any more is deleted, once, and never what is still going on; memories stay small."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from service_worlds import CLOSES, OPENS, a_round
from tacit.gather.proxy.store import NewReport, Phase, StoredRound
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import SealingKey
from tacit.services.forgetting import DAY_SECONDS, Forgetting
from tacit.services.live import LiveRounds
from tacit.services.recent import Recent
from tacit.store.gather_proxy import SqlProxyStore

KEYS = SealingKey.generate(), SealingKey.generate()


def closing_on(day: int, task: str) -> Round:
    return replace(a_round(*KEYS, task=task), closes=CLOSES + day * DAY_SECONDS)


@dataclass
class Store:
    """Rounds with their phases; what was forgotten."""

    phases: dict[Round, Phase]
    forgotten: list[str] = field(default_factory=list)

    def rounds(self) -> list[StoredRound]:
        return [StoredRound(round.to_bytes(), phase) for round, phase in self.phases.items()]

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
    store = Store({early: Phase.RELEASED, late: Phase.TOO_FEW, stuck: Phase.AGREED})
    clock = Clock()
    forgetting = Forgetting(store, clock=clock, keep_days=30)
    seen = {}
    for clock.day in (0, 29, 30, 31, 32, 33, 34):
        forgetting.look()
        seen[clock.day] = list(store.forgotten)
    assert (seen[29], seen[30], seen[32], seen[34]) == ([], ["early"], ["early"], ["early", "late"])
    store.phases[stuck] = Phase.RELEASED  # long after its days: it still has its turn
    forgetting.look()
    forgetting.look()
    assert store.forgotten == ["early", "late", "stuck"]


def test_a_clock_that_was_ahead_keeps_no_round_from_being_forgotten() -> None:
    first, later = closing_on(0, "first"), closing_on(3, "later")
    store, clock = Store({first: Phase.RELEASED}), Clock()
    forgetting = Forgetting(store, clock=clock, keep_days=30)
    for clock.day in (1_000, 1):
        forgetting.look()
    store.phases[later] = Phase.RELEASED  # opened and settled after that
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
    store.set_phase(round.digest, Phase.CLOSED, only_from=frozenset({Phase.OPEN}))
    store.keep_share(round.digest, bytes(32), b"share")
    clock = Clock()
    clock.day = 31
    forgetting = Forgetting(store, clock=clock, keep_days=30)
    assert (forgetting.look(), store.accepted_count(round.digest)) == (0, 1)
    store.set_phase(round.digest, Phase.RELEASED, only_from=frozenset({Phase.AGREED}))
    assert (forgetting.look(), store.accepted_count(round.digest)) == (1, 0)
    assert (list(store.accepted_ids(round.digest)), store.share(round.digest)) == ([], b"share")
    store.close()


@pytest.mark.parametrize(
    ("phase", "day", "is_live"),
    [
        (Phase.OPEN, -100, True),
        (Phase.CLOSED, -100, True),
        (Phase.AGREED, -100, True),
        (Phase.RELEASED, 0, False),
        (Phase.STOPPED, 0, False),
        (Phase.TOO_FEW, 0, True),  # the server may not have heard of it
        (Phase.TOO_FEW, -100, False),  # who reported is forgotten: nothing could be told
    ],
)
def test_what_has_something_to_do_after_a_start(phase: Phase, day: int, is_live: bool) -> None:
    round = replace(a_round(*KEYS), opens=OPENS - 200 * DAY_SECONDS, closes=CLOSES + day * DAY_SECONDS)
    live = LiveRounds(Store({round: phase}), not_before=CLOSES - 30 * DAY_SECONDS)
    assert list(live.all()) == ([round] if is_live else [])
    live.add(round)
    live.settle(round)
    live.settle(round)
    assert not live.all()


def test_a_small_memory_keeps_what_was_used_last() -> None:
    recent: Recent[int, str] = Recent(2)
    for key in (1, 2):
        recent.keep(key, str(key))
    assert recent.get(1) == "1"
    recent.keep(3, "3")
    assert (len(recent), recent.get(1), recent.get(2), recent.get(3)) == (2, "1", None, "3")
