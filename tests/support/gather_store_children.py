"""What other processes do to a store in the tests: die in the middle of a step, or compete for reports.

Few imports: every process that a test starts reads this file anew.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

from sqlalchemy import event

from tacit.gather.proxy.store import ProxyPhase
from tacit.gather.server import store as server_store
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tests.support.gather_store_places import DIGEST, a_job, report, reports

PROXY_STEPS: dict[str, Callable[[Any], object]] = {
    "add_reports": lambda store: store.add_reports(reports(7, 8)),
    "begin_job": lambda store: store.begin_job(DIGEST, 1),
    "finish_job": lambda store: store.finish_job(DIGEST, 0, bytes([0, 9]), b"total"),
    "set_phase": lambda store: store.set_phase(
        DIGEST, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN})
    ),
    "keep_share": lambda store: store.keep_share(DIGEST, b"hash", b"share"),
}
SERVER_STEPS: dict[str, Callable[[Any], object]] = {
    "keep_job": lambda store: store.keep_job(DIGEST, *a_job(1, [3, 4])),
    "keep_result": lambda store: store.keep_result(DIGEST, b"hash", b"result"),
}
STEPS = PROXY_STEPS | SERVER_STEPS


def prepared(store: Any, step: str = "") -> Any:
    """A store in the middle of a round, where the step can be made."""
    store.open_round(DIGEST, "clicks", 0, b"body")
    if isinstance(store, SqlProxyStore):
        store.add_reports(reports(1, 2, 3))
        store.begin_job(DIGEST, 2)
        if step == "begin_job":
            STEPS["finish_job"](store)
        if step == "keep_share":
            STEPS["set_phase"](store)
    else:
        store.keep_job(DIGEST, *a_job(0, [1, 2], [0, 9]))
        if step == "keep_result":
            agreed, only_from = server_store.ServerPhase.AGREED, frozenset({server_store.ServerPhase.OPEN})
            store.set_phase(DIGEST, agreed, only_from=only_from)
    return store


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(where: str, step: str, moment: str) -> None:
    """Make one step and die: just before its commit, or just after the call returned."""
    kind: Any = SqlProxyStore if step in PROXY_STEPS else SqlServerStore
    store = kind.open(where)
    if moment == "before its commit":
        event.listen(store._database._writer, "commit", die)
    STEPS[step](store)
    die()


def rival(where: str, start: Barrier, results: Queue[Any]) -> None:
    """Open the store at the same moment as the others, and take jobs until there are none."""
    try:
        start.wait(60)
        store = SqlProxyStore.open(where)
        store.open_round(DIGEST, "clicks", 0, b"body")
        mine = os.getpid()
        store.add_reports([report(1000 * mine + number) for number in range(20)])
        start.wait(60)
        taken = []
        while (job := store.begin_job(DIGEST, 3)) is not None:
            taken.append(job.report_ids)
            store.finish_job(DIGEST, job.number, bytes(len(job.report_ids)), b"total")
        results.put(taken)
    except Exception as problem:
        results.put(f"{type(problem).__name__}: {problem}")
