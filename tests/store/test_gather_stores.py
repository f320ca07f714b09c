"""One contract for the parties' stores, in memory, SQLite and PostgreSQL: the same calls, the same answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tacit.errors import BadInput, Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.proxy.store import AddOutcome, ProxyPhase, ProxyStore, StoredProxyRound
from tacit.gather.server import store as server_store
from tacit.gather.server.store import AnsweredJob, ServerStore
from tacit.gather.simulate.memory import MemoryProxyStore
from tacit.store import gather_proxy, gather_tables
from tests.support.gather_store_places import DIGEST, OTHER, Stores, a_job, report, reports, word

FINAL = frozenset({ProxyPhase.OPEN, ProxyPhase.CLOSED})
ServerPhase = server_store.ServerPhase


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    place = None if request.param == "memory" else request.getfixturevalue(f"{request.param}_place")
    opened = Stores(place)
    yield opened
    opened.close()


@pytest.fixture
def proxy(stores: Stores) -> ProxyStore:
    store = stores.proxy()
    store.open_round(DIGEST, "clicks", 0, b"body")
    return store


@pytest.fixture
def server(stores: Stores) -> ServerStore:
    store = stores.server()
    store.open_round(DIGEST, "clicks", 0, b"body")
    return store


def refused(call: Callable[[], object]) -> MessageVerdict:
    with pytest.raises(Refused) as refusal:
        call()
    reason = refusal.value.reason
    assert isinstance(reason, MessageVerdict)
    return reason


def finish(store: ProxyStore, number: int, verdicts: list[int], total: bytes = b"total") -> None:
    store.finish_job(DIGEST, number, bytes(verdicts), total)


# Rounds.


@pytest.mark.parametrize("party", ["proxy", "server"])
def test_a_round_is_opened_once(stores: Stores, party: str) -> None:
    store = getattr(stores, party)()
    for _ in range(2):
        store.open_round(DIGEST, "clicks", 0, b"body")
    store.open_round(OTHER, "clicks", 1, b"other body")
    assert refused(lambda: store.open_round(word("third"), "clicks", 0, b"another")) is MessageVerdict.CONFLICT
    assert store.round(word("third")) is None
    for again in (store, getattr(stores, party)()):
        assert again.round(DIGEST).body == b"body"
        found = [(each.body, each.phase) for each in again.rounds()]
        assert found == [(b"body", "open"), (b"other body", "open")]


@pytest.mark.parametrize("party", ["proxy", "server"])
def test_a_round_that_is_not_there(stores: Stores, party: str) -> None:
    store = getattr(stores, party)()
    calls = [
        lambda: store.accepted_count(DIGEST),
        lambda: list(store.accepted_ids(DIGEST)),
        lambda: list(store.totals(DIGEST)),
        lambda: store.set_phase(DIGEST, ProxyPhase.TOO_FEW, only_from=FINAL),
    ]
    if party == "proxy":
        calls += [
            lambda: store.begin_job(DIGEST, 1),
            lambda: store.unanswered_job(DIGEST),
            lambda: store.finish_job(DIGEST, 0, b"", b""),
            lambda: store.waiting_count(DIGEST),
            lambda: store.keep_share(DIGEST, b"hash", b"share"),
            lambda: store.share(DIGEST),
        ]
        assert store.add_reports([report(1)]) == [AddOutcome.NOT_OPEN]
    else:
        calls += [
            lambda: store.job(DIGEST, 0),
            lambda: store.seen_ids(DIGEST, [word(1)]),
            lambda: store.keep_job(DIGEST, *a_job(0, [1])),
            lambda: store.keep_result(DIGEST, b"hash", b"result"),
            lambda: store.result(DIGEST),
        ]
    assert {refused(call) for call in calls} == {MessageVerdict.UNKNOWN_ROUND}
    assert store.round(DIGEST) is None
    assert store.rounds() == []


def test_phases_go_where_they_may(proxy: ProxyStore, stores: Stores) -> None:
    agreed = frozenset({ProxyPhase.AGREED})
    assert (
        refused(lambda: proxy.set_phase(DIGEST, ProxyPhase.RELEASED, only_from=agreed))
        is MessageVerdict.CONFLICT
    )
    assert proxy.round(DIGEST) == StoredProxyRound(b"body", ProxyPhase.OPEN)
    proxy.set_phase(DIGEST, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN}))
    proxy.set_phase(DIGEST, ProxyPhase.CLOSED, only_from=frozenset())
    assert stores.proxy().round(DIGEST) == StoredProxyRound(b"body", ProxyPhase.CLOSED)


def test_reports_are_found_in_any_phase_and_nothing_is_kept_by_it(proxy: ProxyStore) -> None:
    proxy.add_reports(reports(1, 2))
    changed, elsewhere = report(1, upload_hash=bytes(32)), report(1, digest=OTHER)
    looked_for = [report(2), report(3), changed, elsewhere, report(1)]
    expected = [AddOutcome.SAME, AddOutcome.NOT_OPEN, AddOutcome.NOT_OPEN, AddOutcome.NOT_OPEN, AddOutcome.SAME]
    assert proxy.find_reports(looked_for) == expected
    assert proxy.find_reports([]) == []
    proxy.set_phase(DIGEST, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN}))
    assert proxy.find_reports(looked_for) == expected
    proxy.set_phase(DIGEST, ProxyPhase.OPEN, only_from=frozenset({ProxyPhase.CLOSED}))
    assert proxy.add_reports(reports(3)) == [AddOutcome.NEW]
    assert proxy.waiting_count(DIGEST) == 3


def test_the_first_share_wins(proxy: ProxyStore, stores: Stores) -> None:
    keep = proxy.keep_share
    assert refused(lambda: keep(DIGEST, b"hash", b"share")) is MessageVerdict.CONFLICT
    assert proxy.share(DIGEST) is None
    proxy.set_phase(DIGEST, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN}))
    assert keep(DIGEST, b"hash", b"share") == b"share"
    assert proxy.round(DIGEST) == StoredProxyRound(b"body", ProxyPhase.AGREED)
    assert keep(DIGEST, b"hash", b"another draw") == b"share"
    assert refused(lambda: keep(DIGEST, b"another set", b"share")) is MessageVerdict.CONFLICT
    proxy.set_phase(DIGEST, ProxyPhase.RELEASED, only_from=frozenset({ProxyPhase.AGREED}))
    assert keep(DIGEST, b"hash", b"another draw") == b"share"
    again = stores.proxy()
    assert (again.share(DIGEST), again.round(DIGEST)) == (
        b"share",
        StoredProxyRound(b"body", ProxyPhase.RELEASED),
    )


def test_the_first_result_wins(server: ServerStore, stores: Stores) -> None:
    keep = server.keep_result
    assert refused(lambda: keep(DIGEST, b"hash", b"result")) is MessageVerdict.CONFLICT
    server.set_phase(DIGEST, ServerPhase.AGREED, only_from=frozenset({ServerPhase.OPEN}))
    assert server.result(DIGEST) is None
    assert keep(DIGEST, b"hash", b"result") == b"result"
    assert keep(DIGEST, b"hash", b"another draw") == b"result"
    assert refused(lambda: keep(DIGEST, b"another set", b"result")) is MessageVerdict.CONFLICT
    again = stores.server()
    assert again.result(DIGEST) == b"result"
    assert again.round(DIGEST) == server_store.StoredServerRound(b"body", ServerPhase.RELEASED)


# Reports.


def test_what_becomes_of_a_report(proxy: ProxyStore) -> None:
    assert proxy.add_reports([]) == []
    assert proxy.add_reports(reports(1, 2)) == [AddOutcome.NEW] * 2
    cases = [
        (report(1), AddOutcome.SAME),
        (report(1, upload_hash=word("other")), AddOutcome.DEVICE_TAKEN),
        (report(1, device=8), AddOutcome.ID_TAKEN),
        (report(3, device=1), AddOutcome.DEVICE_TAKEN),
        (report(1, device=2), AddOutcome.DEVICE_TAKEN),  # both are taken, by two reports
        (report(3), AddOutcome.NEW),
        (report(3), AddOutcome.SAME),
        (report(4, device=3), AddOutcome.DEVICE_TAKEN),
        (report(3, device=4), AddOutcome.ID_TAKEN),
        (report(1, device=5), AddOutcome.ID_TAKEN),  # its device comes, but later
        (report(5), AddOutcome.NEW),
        (report(5, digest=OTHER), AddOutcome.NOT_OPEN),
    ]
    assert proxy.add_reports([case for case, _ in cases]) == [outcome for _, outcome in cases]
    for case, outcome in cases[:-3]:
        assert proxy.add_reports([case]) == [AddOutcome.SAME if outcome is AddOutcome.NEW else outcome]
    assert proxy.waiting_count(DIGEST) == 4


def test_a_retry_is_known_for_ever_and_nothing_else_after_closing(proxy: ProxyStore) -> None:
    proxy.add_reports(reports(1, 2))
    proxy.begin_job(DIGEST, 1)
    finish(proxy, 0, [0])
    proxy.set_phase(DIGEST, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN}))
    late = [report(1), report(2), report(3), report(4, device=1), report(1, device=4)]
    assert proxy.add_reports(late) == [AddOutcome.SAME] * 2 + [AddOutcome.NOT_OPEN] * 3
    assert proxy.waiting_count(DIGEST) == 1


def test_rounds_do_not_meet(proxy: ProxyStore) -> None:
    proxy.open_round(OTHER, "clicks", 1, b"other body")
    mixed = [report(1), report(1, digest=OTHER), report(2, digest=OTHER), report(2), report(2, digest=OTHER)]
    assert proxy.add_reports(mixed) == [AddOutcome.NEW] * 4 + [AddOutcome.SAME]
    assert proxy.add_reports(reports(3)) == [AddOutcome.NEW]
    first, second = proxy.begin_job(DIGEST, 9), proxy.begin_job(OTHER, 9)
    assert first is not None
    assert second is not None
    assert (first.number, first.report_ids) == (0, (word(1), word(2), word(3)))
    assert (second.number, second.report_ids) == (0, (word(1), word(2)))
    finish(proxy, 0, [0, 0, 0], b"first")
    assert (proxy.waiting_count(DIGEST), proxy.waiting_count(OTHER)) == (0, 2)
    assert proxy.unanswered_job(OTHER) == second
    assert (list(proxy.totals(DIGEST)), list(proxy.totals(OTHER))) == ([b"first"], [])
    assert list(proxy.accepted_ids(OTHER)) == []


# The proxy's jobs.


def test_jobs_take_reports_in_order_and_give_them_back_unchanged(proxy: ProxyStore, stores: Stores) -> None:
    assert proxy.unanswered_job(DIGEST) is None
    assert proxy.begin_job(DIGEST, 9) is None
    # The second call leaves gaps behind: its first two reports are taken already.
    proxy.add_reports(reports(5, 3, 9))
    proxy.add_reports([report(5), report(3), *reports(1, 7)])
    first, second = proxy.begin_job(DIGEST, 3), proxy.begin_job(DIGEST, 3)
    assert first is not None
    assert second is not None
    assert (first.number, first.report_ids) == (0, (word(5), word(3), word(9)))
    assert (second.number, second.report_ids) == (1, (word(1), word(7)))
    assert second.uploads == (report(1).upload, report(7).upload)
    assert proxy.begin_job(DIGEST, 3) is None
    assert proxy.waiting_count(DIGEST) == 5
    again = stores.proxy()
    assert again.unanswered_job(DIGEST) == first
    finish(again, 0, [0, 0, 0])
    assert proxy.unanswered_job(DIGEST) == second
    assert proxy.waiting_count(DIGEST) == 2
    finish(proxy, 1, [0, 0])
    assert again.unanswered_job(DIGEST) is None
    assert again.waiting_count(DIGEST) == 0
    again.add_reports(reports(2))
    third = proxy.begin_job(DIGEST, 3)
    assert third is not None
    assert (third.number, third.report_ids) == (2, (word(2),))


def test_a_job_is_finished_once(proxy: ProxyStore) -> None:
    proxy.add_reports(reports(1, 2))
    assert refused(lambda: finish(proxy, 0, [0, 0])) is MessageVerdict.CONFLICT
    proxy.begin_job(DIGEST, 9)
    assert refused(lambda: finish(proxy, 0, [0])) is MessageVerdict.CONFLICT
    assert refused(lambda: finish(proxy, 1, [0, 0])) is MessageVerdict.CONFLICT
    assert proxy.waiting_count(DIGEST) == 2
    for _ in range(2):
        finish(proxy, 0, [0, 10], b"total")
    assert refused(lambda: finish(proxy, 0, [0, 0], b"total")) is MessageVerdict.CONFLICT
    assert refused(lambda: finish(proxy, 0, [0, 10], b"other")) is MessageVerdict.CONFLICT
    assert list(proxy.accepted_ids(DIGEST)) == [word(1)]
    assert list(proxy.totals(DIGEST)) == [b"total"]


def test_accepted_are_those_of_finished_jobs_that_were_not_refused(proxy: ProxyStore) -> None:
    numbers = [8, 1, 6, 3, 5, 7, 4, 2, 9]
    proxy.add_reports([*reports(*numbers[:2]), report(8), *reports(*numbers[2:])])
    for _ in range(4):
        proxy.begin_job(DIGEST, 2)  # the last report is in no job
    assert list(proxy.accepted_ids(DIGEST)) == []
    finish(proxy, 2, [0, 0], b"third")
    assert list(proxy.accepted_ids(DIGEST)) == sorted([word(5), word(7)])
    finish(proxy, 0, [9, 0], b"first")
    finish(proxy, 3, [10, 10], b"fourth")
    expected = sorted([word(1), word(5), word(7)])
    assert (list(proxy.accepted_ids(DIGEST)), proxy.accepted_count(DIGEST)) == (expected, 3)
    assert sorted(proxy.totals(DIGEST)) == [b"first", b"fourth", b"third"]
    unanswered = proxy.unanswered_job(DIGEST)
    assert unanswered is not None
    assert unanswered.number == 1
    assert proxy.waiting_count(DIGEST) == 3


# The server's jobs.


def test_an_answer_is_kept_once(server: ServerStore, stores: Stores) -> None:
    assert server.job(DIGEST, 4) is None
    first = server.keep_job(DIGEST, *a_job(4, [3, 1, 2], [0, 10, 0]))
    assert first == AnsweredJob(word("hash 4"), b"reply 4")
    assert server.keep_job(DIGEST, 4, b"other", b"other", [word(9)], bytes(1), b"other") == first
    again = stores.server()
    assert (again.job(DIGEST, 4), again.job(DIGEST, 0)) == (first, None)
    assert again.seen_ids(DIGEST, [word(number) for number in (1, 2, 3, 9)]) == {word(1), word(2), word(3)}
    assert (list(again.accepted_ids(DIGEST)), again.accepted_count(DIGEST)) == (sorted([word(3), word(2)]), 2)
    assert list(again.totals(DIGEST)) == [b"total 4"]
    server.keep_job(DIGEST, *a_job(0, []))
    assert server.seen_ids(DIGEST, []) == set()
    assert sorted(server.totals(DIGEST)) == [b"total 0", b"total 4"]


def test_a_replayed_id_keeps_nothing_of_its_job(server: ServerStore) -> None:
    server.keep_job(DIGEST, *a_job(0, [1, 2], [0, 10]))
    for replayed in (1, 2):  # accepted or refused
        assert refused(lambda: server.keep_job(DIGEST, *a_job(1, [3, replayed, 4]))) is MessageVerdict.REPLAYED  # noqa: B023
    assert server.job(DIGEST, 1) is None
    assert server.seen_ids(DIGEST, [word(3), word(4)]) == set()
    assert (server.accepted_count(DIGEST), list(server.totals(DIGEST))) == (1, [b"total 0"])
    server.open_round(OTHER, "clicks", 1, b"other body")
    assert server.seen_ids(OTHER, [word(1)]) == set()
    server.keep_job(OTHER, *a_job(0, [1, 2]))
    assert (server.accepted_count(DIGEST), server.accepted_count(OTHER)) == (1, 2)


def test_after_the_agreement_no_job_is_added(server: ServerStore) -> None:
    kept = server.keep_job(DIGEST, *a_job(0, [1]))
    server.set_phase(DIGEST, ServerPhase.AGREED, only_from=frozenset({ServerPhase.OPEN}))
    assert server.keep_job(DIGEST, *a_job(0, [1])) == kept
    assert refused(lambda: server.keep_job(DIGEST, *a_job(1, [2]))) is MessageVerdict.CLOSED
    assert list(server.accepted_ids(DIGEST)) == [word(1)]


# Streams.


def test_streams_are_sorted_and_whole_across_pages(proxy: ProxyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_tables, "IDS_AT_ONCE", 5)
    monkeypatch.setattr(gather_tables, "TOTALS_AT_ONCE", 3)
    for size in (5, 7, 18):  # one whole page; not whole; whole again: 5, 12 and 30 in all
        numbers = random.Random(size).sample(range(10**9), size)
        proxy.add_reports(reports(*numbers))
        while (job := proxy.begin_job(DIGEST, 3)) is not None:
            proxy.finish_job(DIGEST, job.number, bytes(len(job.report_ids)), b"total %d" % job.number)
        ids = list(proxy.accepted_ids(DIGEST))
        assert ids == sorted(ids)
        assert len(set(ids)) == proxy.accepted_count(DIGEST)
        assert {word(number) for number in numbers} <= set(ids)
    assert proxy.accepted_count(DIGEST) == 30
    assert list(proxy.totals(DIGEST)) == [b"total %d" % number for number in range(2 + 3 + 6)]


def test_one_may_write_while_reading_a_stream(proxy: ProxyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_tables, "IDS_AT_ONCE", 2)
    proxy.add_reports(reports(*range(6)))
    proxy.begin_job(DIGEST, 9)
    finish(proxy, 0, [0] * 6)
    for number, _ in enumerate(proxy.accepted_ids(DIGEST)):
        assert proxy.add_reports(reports(100 + number)) == [AddOutcome.NEW]
    assert proxy.waiting_count(DIGEST) == 6


def test_what_can_not_be_meant_is_refused(proxy: ProxyStore, tmp_path: Path) -> None:
    if not isinstance(proxy, MemoryProxyStore):
        with pytest.raises(BadInput, match="expected most to be a whole number >= 1, got 0"):
            proxy.begin_job(DIGEST, 0)
    with pytest.raises(BadInput, match="expected the path or URL of a proxy store, got an empty string"):
        gather_proxy.SqlProxyStore.open(" ")
    with pytest.raises(BadInput, match="mysql"):
        gather_proxy.SqlProxyStore.open("mysql://somewhere/else")
    assert list(tmp_path.iterdir()) == [] or isinstance(proxy, gather_proxy.SqlProxyStore)
