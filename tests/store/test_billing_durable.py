"""What lasts of billing: through kill -9 at every statement, rivals among processes and threads, forks.

Killing a process leaves the operating system alive, so this tests the order of writes and the settings, not the
disk: what a power cut does to unsynced pages is up to SQLite's and PostgreSQL's own tests.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from typing import Any

import pytest
from sqlalchemy import event

from tacit.bill.protocol.batches import Receipt
from tacit.bill.server.store import Campaign
from tacit.errors import BillError
from tacit.store import SqlAdStore, SqlBillingProxyStore
from tests.support.billing_store_children import (
    ADS_STEPS,
    BEFORE_COMMIT,
    LISBON,
    STEPS,
    a_batch_of,
    backwards,
    dying,
    forming,
    keep,
    open_for,
    prepared,
    redeeming,
    stored,
)
from tests.support.billing_worlds import EPOCH, form_in, new_report, redeem
from tests.support.ledger_places import Place

# Forks have all imports already. SQLite must have no connection open in the process that forks.
PROCESSES = multiprocessing.get_context("fork")


def content(place: Place, step: str) -> dict[str, list[Any]]:
    """Every row of every table of the party."""
    from tacit.store.billing_tables import ADS, PROXY

    tables = (ADS if step in ADS_STEPS else PROXY).tables
    return {name: sorted(place.sql(f"SELECT * FROM {name}"), key=repr) for name in tables}


def kill_at(where: str, step: str, statement: int) -> None:
    process = PROCESSES.Process(target=dying, args=(where, step, statement))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def count_statements(step: str, where: str) -> int:
    store = prepared(step, where)
    reached = 0

    def count(*_: Any) -> None:
        nonlocal reached
        reached += 1

    event.listen(store._database._writer, "before_cursor_execute", count)
    STEPS[step](store)
    store.close()
    return reached


# In SQLite by our own settings: there each step is tried. A server by itself undoes what a dead client left:
# there one step of each party will do.
@pytest.mark.parametrize(
    ("place", "step"),
    [*(("sqlite", step) for step in STEPS), ("postgres", "redeem"), ("postgres", "form_batch")],
    indirect=["place"],
)
def test_a_killed_step_has_happened_whole_or_not_at_all(place: Place, step: str) -> None:
    prepared(step, place.where).close()
    before = content(place, step)
    kill_at(place.where, step, BEFORE_COMMIT)
    assert content(place, step) == before
    store = open_for(step, place.where)
    STEPS[step](store)  # nobody else holds it
    assert content(place, step) != before
    store.close()


@pytest.mark.parametrize("step", ["redeem", "form_batch"])
def test_killed_at_any_statement_it_has_not_happened(sqlite_place: Place, tmp_path: Any, step: str) -> None:
    statements = count_statements(step, str(tmp_path / "counted.sqlite"))
    assert statements >= 7
    prepared(step, sqlite_place.where).close()
    before = content(sqlite_place, step)
    for statement in range(1, statements + 1):
        kill_at(sqlite_place.where, step, statement)
        assert content(sqlite_place, step) == before, f"statement {statement}"
    kill_at(sqlite_place.where, step, statements + 1)  # after it returned
    after = content(sqlite_place, step)
    assert after != before
    store = open_for(step, sqlite_place.where)
    if step == "redeem":  # once more, as the proxy does that saw no receipt
        STEPS[step](store)
        assert content(sqlite_place, step) == after
    store.close()


def test_what_returned_is_synced(sqlite_place: Place, tmp_path: Any) -> None:
    """The settings that durability hangs on, asked of the very connections that are used."""
    for store in (SqlAdStore.open(sqlite_place.where), SqlBillingProxyStore.open(tmp_path / "proxy")):
        settings = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}
        with store._database.writing() as connection:
            found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in settings}
        assert found == settings
        store.close()


def run_together(target: Any, arguments: list[tuple[Any, ...]]) -> list[Any]:
    results: Queue[Any] = PROCESSES.Queue()
    start = PROCESSES.Barrier(len(arguments))
    processes = [PROCESSES.Process(target=target, args=(*each, start, results)) for each in arguments]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert not [each for each in found if isinstance(each, str)]
    return found


def test_processes_that_redeem_overlapping_batches_charge_each_token_once(place: Place) -> None:
    store = SqlAdStore.open(place.where)
    store.keep_epoch(EPOCH, stored())
    store.put_campaigns([Campaign(1, "campaign 1", 1000)])
    store.close()
    numbers = list(range(8))
    shuffled = [random.Random(seed).sample(numbers, len(numbers)) for seed in range(3)]
    first, *others = run_together(redeeming, [(place.where, each) for each in shuffled])
    assert all(each == first for each in others)  # one receipt per batch, whoever asked
    store = SqlAdStore.open(place.where)
    store.close_invoices(1)
    check_charges(store, tokens=45)
    receipts = [Receipt.from_bytes(each) for each in first.values()]
    assert sum(each.received for each in receipts) == 80
    assert sum(each.charged for each in receipts) == 45
    assert sum(each.duplicate for each in receipts) == 35
    store.close()


def check_charges(store: SqlAdStore, *, tokens: int) -> None:
    """Every token once; sums by campaign, by entry and by invoice agree; no budget is passed."""
    charges = [each for batch in store.batches() for each in store.charges_of(batch.batch_id)]
    assert len({each.nonce for each in charges}) == len(charges) == tokens
    paid = [each for each in charges if not each.held]
    by_campaign: Counter[int] = Counter()
    for each in paid:
        if each.campaign is not None:
            by_campaign[each.campaign] += each.price_micros
    campaigns = store.campaigns()
    assert by_campaign == Counter({each.campaign: each.charged_micros for each in campaigns})
    assert not [
        one for one in campaigns if one.budget_micros is not None and one.charged_micros > one.budget_micros
    ]
    assert sum(line.impressions for line in store.totals()) == len(paid)
    assert sum(line.total_micros for line in store.totals()) == sum(by_campaign.values())
    assert sum(each.total_micros for each in store.invoices()) == sum(by_campaign.values())
    on_invoices = Counter(each.invoice for each in charges if each.invoice is not None)
    assert on_invoices == {each.number: each.impressions for each in store.invoices()}
    held = sum(each.price_micros for each in charges if each.held)
    assert sum(store.held_micros().values()) == held


def test_threads_that_redeem_raise_budgets_and_close_invoices_agree(place: Place) -> None:
    store = SqlAdStore.open(place.where)
    store.keep_epoch(EPOCH, stored())
    store.put_campaigns([Campaign(1, "campaign 1", 150), Campaign(2, "campaign 2", 60)])

    def work(turn: int) -> None:
        if turn % 4 == 1:
            store.put_campaigns([Campaign(1, "campaign 1", 150 + 20 * turn)])
        elif turn % 4 == 3:
            store.close_invoices(turn)
        else:
            redeem(store, a_batch_of(turn, range(turn, turn + 10)))

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(40)))
    # The largest of all: threads set budgets in any order, and one that is lowered takes no charge back.
    store.put_campaigns([Campaign(1, "campaign 1", 150 + 20 * 37)])
    store.close_invoices(99)
    check_charges(store, tokens=48)
    store.close()


def test_processes_that_add_and_form_at_once_lose_and_double_nothing(place: Place) -> None:
    store = SqlBillingProxyStore.open(place.where)
    keep(store, stored().directory)
    store.close()
    found = run_together(forming, [(place.where, each) for each in range(3)])
    outcomes = Counter(each for listed, _ in found for each in listed)
    assert outcomes == {"new": 3 * 25 + 25, "same": 2 * 25}
    store = SqlBillingProxyStore.open(place.where)
    while store.form_batch(LISBON.menu_id, 50, form_in(backwards, LISBON, os.urandom(8))) is not None:
        pass
    batches = [store.batch(each) for each in store.undelivered()]
    reports = [report for batch in batches if batch is not None for report in batch.reports]
    assert len(reports) == len(set(reports)) == 100
    assert len(store.statements(EPOCH)) == len(batches) >= sum(formed for _, formed in found)
    assert store.waiting() == []
    store.close()


def test_threads_that_add_reports_and_form_batches_lose_nothing(place: Place) -> None:
    store = SqlBillingProxyStore.open(place.where)
    keep(store, stored().directory)

    def work(turn: int) -> object:
        if turn % 5 == 4:
            return store.form_batch(LISBON.menu_id, 1000, form_in(backwards, LISBON, turn))
        return store.add_reports([new_report(LISBON, (turn, each)) for each in range(10)])

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(30)))
    store.form_batch(LISBON.menu_id, 1000, form_in(backwards, LISBON, "last"))
    batches = [store.batch(each) for each in store.undelivered()]
    assert len({report for batch in batches if batch is not None for report in batch.reports}) == 240
    store.close()


def test_a_fork_cannot_use_its_parents_connections(sqlite_place: Place) -> None:
    store = SqlAdStore.open(sqlite_place.where)
    child = os.fork()
    if child == 0:
        try:
            store.campaigns()
        except BillError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.campaigns() == []
    store.close()
