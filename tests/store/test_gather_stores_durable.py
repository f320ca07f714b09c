"""What lasts: through kill -9, rivals, threads, and files that are not what they should be.

Killing a process leaves the operating system alive, so this tests the order of writes and the settings, not the
disk: what a power cut does to unsynced pages is up to SQLite's and PostgreSQL's own tests.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
import stat
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import GatherError, Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.proxy.store import AddOutcome, NewReport, ProxyPhase, StoredProxyRound
from tacit.gather.server import store as server_store
from tacit.gather.server.store import ServerPhase
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.store import gather_proxy, gather_server, gather_tables
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tests.support.gather_store_children import PROXY_STEPS, STEPS, dying, prepared, rival
from tests.support.gather_store_places import DIGEST, OTHER, Stores, a_job, report, reports, word
from tests.support.gather_worlds import ROWS, World, a_round, expect_exact
from tests.support.ledger_places import Place, begun

PROCESSES = multiprocessing.get_context("forkserver")
# All that the children import: each then starts in half the time.
PROCESSES.set_forkserver_preload(
    ["pytest", "psycopg", "tacit.store.gather_proxy", "tacit.store.gather_server", "tacit.store.ledger",
     "tacit.gather.simulate.memory"]
)  # fmt: skip

OPEN, CLOSED = frozenset({ProxyPhase.OPEN}), frozenset({ProxyPhase.CLOSED})


@pytest.fixture
def stores(place: Place) -> Iterator[Stores]:
    opened = Stores(place)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_stores(sqlite_place: Place) -> Iterator[Stores]:
    opened = Stores(sqlite_place)
    yield opened
    opened.close()


def path_of(place: Place) -> Path:
    return Path(place.where.removeprefix("sqlite:///"))


# kill -9.


def content(store: Any) -> list[Any]:
    """Everything that the store says about the round."""
    names = ["round", "accepted_ids", "accepted_count", "totals"]
    names += ["unanswered_job", "waiting_count", "share"] if isinstance(store, SqlProxyStore) else ["result"]
    found: list[Any] = [getattr(store, name)(DIGEST) for name in names]
    if isinstance(store, SqlServerStore):
        found += [store.seen_ids(DIGEST, [word(number) for number in range(9)]), store.job(DIGEST, 1)]
    return [list(each) if isinstance(each, Iterator) else each for each in found]


def kill_at(where: str, step: str, moment: str) -> None:
    process = PROCESSES.Process(target=dying, args=(where, step, moment))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


# Every step is one transaction, in SQLite by our own settings: there each is tried. A server by itself
# undoes what a dead client left: there one step of each party will do.
@pytest.mark.parametrize(
    ("place", "step"),
    [*(("sqlite", step) for step in STEPS), ("postgres", "finish_job"), ("postgres", "keep_job")],
    indirect=["place"],
)
def test_a_killed_step_has_happened_whole_or_not_at_all(stores: Stores, step: str) -> None:
    assert stores.place is not None
    reopened: Any = stores.sql_proxy if step in PROXY_STEPS else stores.sql_server
    store = prepared(reopened(), step)
    before = content(store)
    kill_at(stores.place.where, step, "before its commit")
    assert content(reopened()) == content(store) == before
    STEPS[step](store)  # nobody else holds it
    assert content(reopened()) == content(store) != before


def test_what_returned_outlives_its_process(stores: Stores) -> None:
    assert stores.place is not None
    store = prepared(stores.sql_proxy())
    kill_at(stores.place.where, "add_reports", "after it returned")
    assert store.add_reports(reports(7, 8, 9)) == [AddOutcome.SAME, AddOutcome.SAME, AddOutcome.NEW]


def test_what_returned_is_synced(sqlite_stores: Stores) -> None:
    """The settings that durability hangs on, asked of the very connections that are used."""
    store = sqlite_stores.sql_proxy()
    with store._database.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    with pytest.raises(GatherError, match="readonly"), store._database.reading() as connection:
        connection.exec_driver_sql("DELETE FROM gather_proxy_rounds")
    assert sqlite_stores.place is not None
    assert stat.S_IMODE(path_of(sqlite_stores.place).stat().st_mode) == 0o600


def test_postgres_is_told_to_sync(postgres_place: Place) -> None:
    stores = Stores(postgres_place)
    postgres_place.sql("ALTER DATABASE ledger SET synchronous_commit = off")
    try:
        with stores.sql_proxy()._database.writing() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    finally:
        stores.close()
        postgres_place.sql("ALTER DATABASE ledger RESET synchronous_commit")


# Rivals.


def test_processes_that_begin_jobs_at_once_get_different_reports(stores: Stores) -> None:
    assert stores.place is not None
    rivals = 3
    results: Queue[Any] = PROCESSES.Queue()
    start = PROCESSES.Barrier(rivals)
    workers = [
        PROCESSES.Process(target=rival, args=(stores.place.where, start, results)) for _ in range(rivals)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    results.close()
    assert not [each for each in found if isinstance(each, str)]
    ids = [each for jobs in found for job in jobs for each in job]
    assert len(ids) == len(set(ids)) == 20 * rivals
    store = stores.sql_proxy()
    assert (store.waiting_count(DIGEST), store.accepted_count(DIGEST)) == (0, 20 * rivals)
    assert list(store.accepted_ids(DIGEST)) == sorted(ids)
    assert len(list(store.totals(DIGEST))) == sum(len(jobs) for jobs in found)


def test_many_threads_share_one_store(stores: Stores) -> None:
    store = stores.sql_proxy()
    store.open_round(DIGEST, "clicks", 0, b"body")
    together = threading.Barrier(8)

    def work(thread: int) -> list[AddOutcome]:
        together.wait(60)
        added = []
        for number in range(6):
            # Every second report is sent by two threads: one of them is told that it is the same.
            added += store.add_reports([report(number if number % 2 else 100 * thread + 50 + number)])
            assert store.round(DIGEST) is not None
            assert store.waiting_count(DIGEST) > 0
        return added

    with ThreadPoolExecutor(8) as pool:
        outcomes = [each for added in pool.map(work, range(8)) for each in added]
    assert outcomes.count(AddOutcome.NEW) == 8 * 3 + 3
    assert outcomes.count(AddOutcome.SAME) == 7 * 3
    job = store.begin_job(DIGEST, 99)
    assert job is not None
    assert len(set(job.report_ids)) == 8 * 3 + 3


def test_another_process_must_open_the_store_itself(sqlite_stores: Stores) -> None:
    store = sqlite_stores.sql_proxy()
    store._database._process += 1  # as it looks from a fork
    with pytest.raises(GatherError, match="opened in another process; open it again"):
        store.rounds()


# Memory.


def test_a_stream_takes_no_more_memory_for_more_reports(sqlite_stores: Stores) -> None:
    store = sqlite_stores.sql_server()
    store.open_round(DIGEST, "clicks", 0, b"body")

    def peak_while_streaming() -> int:
        last, count = b"", 0
        tracemalloc.start()
        for each in store.accepted_ids(DIGEST):
            assert each > last
            last, count = each, count + 1
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == store.accepted_count(DIGEST)
        return peak

    peaks = []
    for number in range(4):
        ids = [word(f"{number} {each}") for each in range(gather_tables.IDS_AT_ONCE)]
        store.keep_job(DIGEST, number, b"hash", b"reply", ids, bytes(len(ids)), b"total")
        peaks.append(peak_while_streaming())
    assert store.accepted_count(DIGEST) == 4 * gather_tables.IDS_AT_ONCE
    # A page is held while the next one is read; four pages would be twice that. Half a page for the rest.
    page = peaks[0]
    assert peaks[3] < 2.5 * page


# Files that are not what they should be.


@pytest.mark.parametrize(
    ("place", "kind", "party"),
    [
        ("sqlite", SqlProxyStore, "proxy"),
        ("sqlite", SqlServerStore, "server"),
        ("postgres", SqlServerStore, "server"),
    ],
    indirect=["place"],
)
def test_unknown_versions_and_other_columns_are_refused(place: Place, kind: Any, party: str) -> None:
    kind.open(place.where).close()
    place.sql(f"UPDATE gather_{party}_version SET version = 7")
    with pytest.raises(GatherError, match=f"^expected a {party} store of version 1 at .*, got version 7$"):
        kind.open(place.where)
    place.sql(f"DELETE FROM gather_{party}_version")
    with pytest.raises(GatherError, match="got version none"):
        kind.open(place.where)
    place.sql(f"INSERT INTO gather_{party}_version VALUES (1, 1)")
    place.sql(f"ALTER TABLE gather_{party}_jobs RENAME COLUMN total TO sum")
    with pytest.raises(GatherError, match=rf"^expected columns .*'total'.* in gather_{party}_jobs, got"):
        kind.open(place.where)
    place.sql(f"DROP TABLE gather_{party}_version")
    with pytest.raises(GatherError, match=rf"^expected a {party} store or nothing .*, got tables gather_"):
        kind.open(place.where)


def test_both_parties_in_one_place_are_refused(stores: Stores) -> None:
    stores.sql_proxy()
    with pytest.raises(GatherError, match=r"without the proxy's tables .* one thief finds it$"):
        stores.sql_server()


def test_a_ledger_is_refused_and_stays_as_it_was(place: Place) -> None:
    ledger = begun(place)
    if place.where.startswith("postgresql"):
        SqlProxyStore.open(place.where).close()  # tables of its own, beside others
    else:
        before = path_of(place).read_bytes()
        with pytest.raises(GatherError, match=r"^expected a proxy store or nothing at .*, got tables ledger_"):
            SqlProxyStore.open(place.where)
        assert path_of(place).read_bytes() == before, "not even its journal mode"
    ledger.verify()


def test_what_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"no database at all" * 400)
    for where, words in [
        (tmp_path / "garbage", "is torn or not a proxy store at all: file is not a database"),
        (tmp_path, "could not be used: unable to open database file"),
        (tmp_path / "missing" / "proxy.sqlite", "could not be used: No such file or directory"),
    ]:
        with pytest.raises(GatherError, match=words) as refusal:
            SqlProxyStore.open(where)
        assert "\n" not in str(refusal.value)
    assert not (tmp_path / "missing").exists()
    with pytest.raises(GatherError, match=r"could not be used: .*connection") as refusal:
        SqlServerStore.open(f"postgresql://somebody:secret@/nothing?host={tmp_path}")
    assert "secret" not in str(refusal.value)


# Forgetting.


def test_a_round_that_has_ended_can_be_forgotten(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_proxy, "FORGET_AT_ONCE", 2)
    store = prepared(stores.sql_proxy())
    store.open_round(OTHER, "clicks", 1, b"other body")
    store.add_reports([report(number, digest=OTHER) for number in (1, 2, 3)])
    store.finish_job(DIGEST, 0, bytes([0, 9]), b"total")
    store.begin_job(DIGEST, 9)
    for phase in (ProxyPhase.OPEN, ProxyPhase.CLOSED):
        store.set_phase(DIGEST, phase, only_from=OPEN)
        with pytest.raises(Refused, match="only a round that has ended") as refusal:
            store.forget(DIGEST)
        assert refusal.value.reason is MessageVerdict.CONFLICT
    store.keep_share(DIGEST, b"hash", b"share")
    store.set_phase(DIGEST, ProxyPhase.RELEASED, only_from=frozenset({ProxyPhase.AGREED}))
    for _ in range(2):
        store.forget(DIGEST)
        assert store.round(DIGEST) == StoredProxyRound(b"body", ProxyPhase.RELEASED)
        assert store.share(DIGEST) == b"share"
        left = store.waiting_count(DIGEST), store.accepted_count(DIGEST), list(store.totals(DIGEST))
        assert left == (0, 0, [])
        assert store.add_reports([report(1), report(9)]) == [AddOutcome.NOT_OPEN] * 2
    place = stores.place
    assert place is not None
    # What is left in the tables is of the other round.
    devices = {bytes(device) for (device,) in place.sql("SELECT device FROM gather_proxy_reports")}
    assert devices == {report(number).device for number in (1, 2, 3)}
    assert place.sql("SELECT count(*) FROM gather_proxy_refused") == [(0,)]
    assert place.sql("SELECT count(*) FROM gather_proxy_uploads") == [(3,)]
    assert store.waiting_count(OTHER) == 3


@pytest.mark.parametrize("final", [ProxyPhase.TOO_FEW, ProxyPhase.STOPPED])
def test_a_round_that_ended_without_a_release_can_be_forgotten(
    sqlite_stores: Stores, final: ProxyPhase
) -> None:
    store = prepared(sqlite_stores.sql_proxy())
    store.set_phase(DIGEST, final, only_from=OPEN)
    store.forget(DIGEST)
    assert store.round(DIGEST) == StoredProxyRound(b"body", final)
    assert store.waiting_count(DIGEST) == 0


def test_the_server_forgets_ids_and_keeps_the_result(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_server, "FORGET_AT_ONCE", 2)
    store = prepared(stores.sql_server())
    store.open_round(OTHER, "clicks", 1, b"other body")
    store.keep_job(OTHER, *a_job(0, [1, 2, 3]))
    store.keep_job(DIGEST, *a_job(1, [5, 6, 7]))
    with pytest.raises(Refused, match="only a round that has ended"):
        store.forget(DIGEST)
    store.set_phase(
        DIGEST, server_store.ServerPhase.AGREED, only_from=frozenset({server_store.ServerPhase.OPEN})
    )
    store.keep_result(DIGEST, b"hash", b"result")
    for _ in range(2):
        store.forget(DIGEST)
        assert (store.result(DIGEST), store.accepted_count(DIGEST)) == (b"result", 0)
        assert store.seen_ids(DIGEST, [word(number) for number in range(9)]) == set()
    assert store.seen_ids(OTHER, [word(number) for number in range(9)]) == {word(1), word(2), word(3)}
    assert store.accepted_count(OTHER) == 3


def test_a_finished_job_leaves_no_upload_behind(stores: Stores) -> None:
    store = prepared(stores.sql_proxy())
    store.finish_job(DIGEST, 0, bytes(2), b"total")
    assert stores.place is not None
    assert [bytes(each) for (each,) in stores.place.sql("SELECT upload FROM gather_proxy_uploads")] == [
        report(3).upload
    ]


# The parties on it.


def test_a_round_from_upload_to_result(stores: Stores, tmp_path: Path) -> None:
    server_place = SqlServerStore.open(tmp_path / "server.sqlite")
    world = World(a_round(), proxy_store=stores.sql_proxy(), server_store=server_place)
    world.report(ROWS)
    world.proxy_store = stores.sql_proxy()
    world.restart()
    assert world.drive(most=2) is ProxyPhase.RELEASED
    expect_exact(world, ROWS)
    server_place.close()


Call = tuple[str, tuple[Any, ...]]


def outcome(store: Any, call: Call) -> Any:
    name, arguments = call
    try:
        found = getattr(store, name)(*arguments)
    except Refused as problem:
        return problem.reason
    return sorted(found) if isinstance(found, Iterator) else found


def proxy_calls(draw: random.Random) -> Iterator[Call]:
    """Calls of every kind on two rounds, with names from a small space so that they collide."""
    for _ in range(110):
        digest = draw.choice([DIGEST, DIGEST, OTHER])
        kind = draw.random()
        if kind < 0.35:
            batch: list[NewReport] = []
            for _ in range(draw.randrange(1, 6)):
                number = draw.randrange(60)
                device = number if draw.random() < 0.8 else draw.randrange(60)
                batch.append(report(number, device=device, digest=digest))
            yield "add_reports", (batch,)
        elif kind < 0.5:
            yield "begin_job", (digest, draw.randrange(1, 4))
        elif kind < 0.7:
            verdicts = bytes(draw.choice([0, 0, 0, 9]) for _ in range(draw.randrange(1, 4)))
            yield "finish_job", (digest, draw.randrange(6), verdicts, b"total")
        elif kind < 0.97:
            name = draw.choice(["unanswered_job", "waiting_count", "accepted_ids", "accepted_count", "totals"])
            yield name, (digest,)
        else:
            yield "keep_share", (OTHER, b"hash", b"share")


def server_calls(draw: random.Random) -> Iterator[Call]:
    for _ in range(36):
        digest = draw.choice([DIGEST, DIGEST, OTHER])
        if draw.random() < 0.97:
            ids = draw.sample(range(200), draw.randrange(6))
            yield "keep_job", (digest, *a_job(draw.randrange(30), ids, [draw.choice([0, 0, 8]) for _ in ids]))
            yield "seen_ids", (digest, [word(draw.randrange(200)) for _ in range(5)])
            yield draw.choice(["accepted_ids", "accepted_count", "totals"]), (digest,)
            yield "job", (digest, draw.randrange(30))
        else:
            yield "keep_result", (OTHER, b"hash", b"result")


@pytest.mark.parametrize(("place", "seed"), [("sqlite", 0), ("sqlite", 1), ("postgres", 2)], indirect=["place"])
@pytest.mark.parametrize("party", ["proxy", "server"])
def test_the_same_calls_have_the_same_answers_as_in_memory(place: Place, party: str, seed: int) -> None:
    stores = Stores(place)
    memory: Any = MemoryProxyStore() if party == "proxy" else MemoryServerStore()
    store = getattr(stores, party)()
    for each in (memory, store):
        each.open_round(DIGEST, "clicks", 0, b"body")
        each.open_round(OTHER, "clicks", 1, b"other body")
    draw = random.Random(f"{party} {seed}")
    answers = []
    for number, call in enumerate(proxy_calls(draw) if party == "proxy" else server_calls(draw)):
        if number == 80:  # late, so that much has happened before
            phase = ProxyPhase.CLOSED if party == "proxy" else ServerPhase.AGREED
            for each in (memory, store):
                each.set_phase(OTHER, phase, only_from=frozenset({"open"}))
        expected = outcome(memory, call)
        assert outcome(store, call) == expected, f"call {number}: {call[0]}"
        answers.append(str(expected))
    assert len(set(answers)) > 30, "the calls are about something"
    stores.close()
