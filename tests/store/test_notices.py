"""Notices on SQLite and on PostgreSQL: the first report of a nonce stays, whoever comes beside or after it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tacit.bill.server.notices import KeptNotice
from tacit.store import SqlAdStore
from tacit.store.notices import SqlNoticeStore
from tests.support.ledger_places import Place


@pytest.fixture
def store(place: Place) -> Iterator[SqlNoticeStore]:
    opened = SqlAdStore.open(place.where)
    yield SqlNoticeStore(opened.database)
    opened.close()


def a_notice(number: int, report: bytes = b"report", expires: int = 100) -> KeptNotice:
    return KeptNotice(number.to_bytes(16, "big"), report, expires)


def test_the_first_report_of_a_nonce_stays(store: SqlNoticeStore) -> None:
    store.add([a_notice(1, b"first"), a_notice(2, expires=50)])
    store.add([a_notice(1, b"second"), a_notice(3)])
    assert [each.report for each in store.waiting(10)] == [b"report", b"first", b"report"]
    assert [each.expires for each in store.waiting(1)] == [50]
    assert store.known([a_notice(n).nonce for n in range(1_500)]) == {a_notice(n).nonce for n in (1, 2, 3)}
    store.mark_delivered([a_notice(1).nonce, a_notice(2).nonce])
    assert [each.nonce for each in store.waiting(10)] == [a_notice(3).nonce]
    assert store.count_waiting() == 1
    assert store.known([a_notice(1).nonce])  # what was delivered is known until it is forgotten


def test_only_what_was_delivered_and_is_over_is_forgotten(store: SqlNoticeStore) -> None:
    store.add([a_notice(1, expires=10), a_notice(2, expires=10), a_notice(3, expires=100)])
    store.mark_delivered([a_notice(1).nonce, a_notice(3).nonce])
    assert store.forget(50) == 1
    assert store.known([a_notice(n).nonce for n in (1, 2, 3)]) == {a_notice(2).nonce, a_notice(3).nonce}


def test_of_rivals_one_report_is_kept(store: SqlNoticeStore) -> None:
    def add(rival: int) -> None:
        store.add([a_notice(number, b"by %d" % rival) for number in range(50)])

    with ThreadPoolExecutor(4) as rivals:
        list(rivals.map(add, range(4)))
    assert store.count_waiting() == 50
    assert len({each.nonce for each in store.waiting(100)}) == 50
