"""What other processes do to billing's stores in the tests: die in the middle of a step, or redeem and
form at the same time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import cache
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

from sqlalchemy import event

from tacit.bill.server.store import Campaign, StoredEpoch
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tests.support.billing_worlds import (
    EPOCH,
    EXPIRED,
    a_menu,
    a_stored_epoch,
    charged,
    countersigned,
    form_in,
    new_report,
    redeem,
    redeemed,
    stored_menus,
)

LISBON = a_menu(prices=(100, 30, 1), campaigns=(1, 2, 3))
LATER = a_menu(epoch=EPOCH + 1)
BEFORE_COMMIT = 0  # else the number of the statement that is not reached


@cache
def stored() -> StoredEpoch:
    """The epoch of `LISBON`; when it is asked for, since drawing its key takes time."""
    return a_stored_epoch(LISBON)


def a_batch_of(number: int, names: range = range(4)) -> Any:
    return redeemed(LISBON, [charged(LISBON, name, name % 4) for name in names], number)


ADS_STEPS: dict[str, Callable[[Any], object]] = {
    "keep_epoch": lambda store: store.keep_epoch(EPOCH + 1, a_stored_epoch(LATER)),
    "publish_epoch": lambda store: store.publish_epoch(EPOCH, b"head"),
    # Some were spent before, one stands twice, and one is over its budget.
    "redeem": lambda store: redeem(store, a_batch_of(2, range(2, 9))),
    "put_campaigns": lambda store: store.put_campaigns([Campaign(8, "Bolt"), Campaign(1, "campaign 1", 100)]),
    "close_invoices": lambda store: store.close_invoices(5),
    "forget_keys": lambda store: store.forget_keys(EXPIRED + 1),
}
PROXY_STEPS: dict[str, Callable[[Any], object]] = {
    "keep_directory": lambda store: keep(store, a_stored_epoch(LATER).directory),
    "add_reports": lambda store: store.add_reports([new_report(LISBON, name) for name in range(8, 18)]),
    "form_batch": lambda store: store.form_batch(LISBON.menu_id, 4, form_in(backwards, LISBON, 2)),
    "settle": lambda store: store.settle(store.undelivered()[0], b"receipt"),
}
STEPS = ADS_STEPS | PROXY_STEPS


def backwards(count: int) -> list[int]:
    return list(range(count))[::-1]


def keep(store: SqlBillingProxyStore, directory: bytes) -> bytes:
    menus = stored_menus(directory)
    return store.keep_directory(menus[0].epoch, directory, countersigned(directory), menus)


def open_for(step: str, where: str) -> Any:
    return SqlAdStore.open(where) if step in ADS_STEPS else SqlBillingProxyStore.open(where)


def prepared(step: str, where: str) -> Any:
    """A store in the middle of its work, where the step can be made."""
    store = open_for(step, where)
    if isinstance(store, SqlAdStore):
        store.keep_epoch(EPOCH, stored())
        store.put_campaigns([Campaign(1, "campaign 1", 0), Campaign(2, "campaign 2", 60)])
        redeem(store, a_batch_of(1))
    else:
        keep(store, stored().directory)
        store.add_reports([new_report(LISBON, name) for name in range(10)])
        store.form_batch(LISBON.menu_id, 4, form_in(backwards, LISBON, 1))
    return store


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(where: str, step: str, statement: int) -> None:
    """Make one step and die before this statement of it, or just before its commit, or, where it has fewer
    statements, just after it returned."""
    store = open_for(step, where)
    writer = store._database._writer
    reached = 0

    def count(*_: Any) -> None:
        nonlocal reached
        reached += 1
        if reached == statement:
            die()

    if statement == BEFORE_COMMIT:
        event.listen(writer, "commit", die)
    else:
        event.listen(writer, "before_cursor_execute", count)
    STEPS[step](store)
    die()


def redeeming(where: str, numbers: list[int], start: Barrier, results: Queue[Any]) -> None:
    """Redeem batches that others redeem too, or whose tokens stand in others' batches."""
    try:
        start.wait(60)
        store = SqlAdStore.open(where)
        receipts = {}
        for number in numbers:
            receipts[number] = redeem(store, a_batch_of(number, range(5 * number, 5 * number + 10))).to_bytes()
        store.close_invoices(os.getpid())
        results.put(receipts)
    except Exception as problem:
        results.put(f"{type(problem).__name__}: {problem}")


def forming(where: str, mine: int, start: Barrier, results: Queue[Any]) -> None:
    """Add reports, some of which others add too, and form and settle batches meanwhile."""
    try:
        start.wait(60)
        store = SqlBillingProxyStore.open(where)
        outcomes, formed = [], 0
        for turn in range(5):
            names = [f"shared {turn} {each}" for each in range(5)] + [
                f"{mine} {turn} {each}" for each in range(5)
            ]
            outcomes += [str(each) for each in store.add_reports([new_report(LISBON, name) for name in names])]
            if store.form_batch(LISBON.menu_id, 7, form_in(backwards, LISBON, (mine, turn))) is not None:
                formed += 1
        results.put((outcomes, formed))
    except Exception as problem:
        results.put(f"{type(problem).__name__}: {problem}")
