"""The proxy's store on SQLite and on PostgreSQL: directories, reports that wait, shuffled batches, and that the
order in which reports came is gone once they are in one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.tokens import token_nonce
from tacit.bill.proxy.store import AddOutcome, FormedBatch, WaitingReports
from tacit.errors import BadInput, BillError, BillRefused
from tacit.store import SqlAdStore, SqlBillingProxyStore, billing_proxy
from tests.support.billing_worlds import (
    DURING,
    EPOCH,
    EXPIRED,
    TIMES,
    a_menu,
    a_secret,
    a_stored_epoch,
    countersigned,
    form_in,
    new_report,
    stored_menus,
)
from tests.support.ledger_places import Place

LISBON, PORTO = a_menu(), a_menu("Porto", smallest_cohort=5)
DIRECTORY = a_stored_epoch(LISBON, PORTO).directory
NEW, SAME, OTHER = AddOutcome.NEW, AddOutcome.SAME, AddOutcome.OTHER


@pytest.fixture
def store(place: Place) -> Iterator[SqlBillingProxyStore]:
    opened = SqlBillingProxyStore.open(place.where)
    yield opened
    opened.close()


@pytest.fixture
def begun(store: SqlBillingProxyStore) -> SqlBillingProxyStore:
    keep(store)
    return store


def keep(store: SqlBillingProxyStore, directory: bytes = DIRECTORY) -> bytes:
    menus = stored_menus(directory)
    return store.keep_directory(menus[0].epoch, directory, countersigned(directory), menus)


def backwards(count: int) -> list[int]:
    return list(range(count))[::-1]


def nonce(name: object) -> bytes:
    return token_nonce(a_secret(name))


def test_a_directory_is_kept_and_its_epoch_has_no_other(store: SqlBillingProxyStore) -> None:
    assert (store.head(EPOCH), store.menu(LISBON.menu_id)) == (None, None)
    head = keep(store)
    assert head == countersigned(DIRECTORY)
    assert store.head(EPOCH) == head
    for menu in stored_menus(DIRECTORY):
        assert store.menu(menu.leaf.menu_id) == menu
    assert store.keep_directory(EPOCH, DIRECTORY, b"signed once more", stored_menus(DIRECTORY)) == head
    other = a_stored_epoch(LISBON).directory
    with pytest.raises(BillRefused) as refused:
        keep(store, other)
    assert refused.value.reason is BillVerdict.CONFLICT
    with pytest.raises(BillRefused) as refused:
        store.keep_directory(EPOCH + 1, other, b"head", stored_menus(other))  # under another number
    assert refused.value.reason is BillVerdict.CONFLICT
    assert (store.head(EPOCH), store.head(EPOCH + 1)) == (head, None)


def test_the_current_head_is_of_the_highest_epoch_that_is_open(begun: SqlBillingProxyStore) -> None:
    later = type(TIMES)(TIMES.opens - 1, TIMES.closes - 1, TIMES.expires)
    after = a_stored_epoch(a_menu(epoch=EPOCH + 1), times=later).directory
    head = keep(begun, after)
    assert begun.current_head(TIMES.opens - 2) is None
    assert begun.current_head(TIMES.opens - 1) == head
    assert begun.current_head(TIMES.closes - 2) == head
    assert begun.current_head(TIMES.closes - 1) == countersigned(DIRECTORY)
    assert begun.current_head(TIMES.closes) is None


def test_a_report_is_taken_once(begun: SqlBillingProxyStore) -> None:
    first = new_report(LISBON, "a")
    other = new_report(LISBON, "a", data=b"other bytes")
    assert begun.add_reports([first, first, other, new_report(PORTO, "b")]) == [NEW, SAME, OTHER, NEW]
    assert begun.add_reports([other, first, new_report(LISBON, "c")]) == [OTHER, SAME, NEW]
    assert begun.add_reports([]) == []
    begun.form_batch(LISBON.menu_id, 10, form_in(backwards, LISBON))
    assert begun.add_reports([first, other, new_report(LISBON, "d")]) == [SAME, OTHER, NEW]
    assert begun.add_reports([first, new_report(LISBON, "d"), first, other]) == [SAME, SAME, SAME, OTHER]
    assert [(each.menu_id, each.count) for each in begun.waiting()] == [
        (each.leaf.menu_id, 1) for each in stored_menus(DIRECTORY)
    ]


def test_reports_of_unknown_menus_or_sizes_are_not_stored(begun: SqlBillingProxyStore) -> None:
    with pytest.raises(BillRefused) as refused:
        begun.add_reports([new_report(LISBON, 1), new_report(a_menu("Faro"), 2)])
    assert refused.value.reason is BillVerdict.UNKNOWN_MENU
    with pytest.raises(BadInput, match="expected reports of 434 bytes"):
        begun.add_reports([new_report(LISBON, 1, data=b"x" * 435)])
    assert begun.waiting() == []


def test_reports_wait_since_the_first_of_them_came(begun: SqlBillingProxyStore) -> None:
    assert begun.waiting() == []
    begun.add_reports([new_report(LISBON, each, arrived=DURING + each) for each in (5, 3, 4)])
    assert begun.waiting() == [WaitingReports(LISBON.menu_id, 3, DURING + 3)]
    seen: list[Sequence[bytes]] = []

    def form(reports: Sequence[bytes]) -> FormedBatch:
        seen.append(reports)
        return form_in(backwards, LISBON)(reports)

    begun.form_batch(LISBON.menu_id, 2, form)
    assert seen == [[new_report(LISBON, each).data for each in (3, 4)]]
    assert begun.waiting() == [WaitingReports(LISBON.menu_id, 1, DURING + 5)]


def test_within_a_second_reports_come_in_the_order_of_arrival(begun: SqlBillingProxyStore) -> None:
    names = list(range(20))
    begun.add_reports([new_report(LISBON, each) for each in names[:12]])
    begun.add_reports([new_report(LISBON, each) for each in names[12:]])

    def form(reports: Sequence[bytes]) -> FormedBatch:
        assert reports == [new_report(LISBON, each).data for each in names]
        return form_in(backwards, LISBON)(reports)

    assert begun.form_batch(LISBON.menu_id, 100, form) is not None


def test_a_batch_is_stored_as_it_was_shuffled_until_it_is_settled(begun: SqlBillingProxyStore) -> None:
    assert begun.form_batch(LISBON.menu_id, 10, form_in(backwards, LISBON)) is None
    assert begun.form_batch(b"unknown", 10, form_in(backwards, LISBON)) is None
    begun.add_reports([new_report(LISBON, each) for each in range(5)] + [new_report(PORTO, "p")])
    statements = [begun.form_batch(LISBON.menu_id, 3, form_in(backwards, LISBON, name)) for name in (1, 2)]
    assert [each.count for each in begun.waiting()] == [1]
    first, second = begun.undelivered()
    stored = begun.batch(first)
    assert stored is not None
    assert (stored.batch_id, stored.statement) == (first, statements[0])
    assert stored.reports == tuple(new_report(LISBON, each).data for each in (2, 1, 0))
    assert begun.batch(b"unknown") is None
    begun.settle(first, b"receipt")
    begun.settle(first, b"receipt")
    for batch_id, receipt in ((first, b"other receipt"), (b"unknown", b"receipt")):
        with pytest.raises(BillRefused) as refused:
            begun.settle(batch_id, receipt)
        assert refused.value.reason is BillVerdict.CONFLICT
    assert (begun.batch(first), begun.undelivered()) == (None, [second])
    assert begun.statements(EPOCH) == statements
    assert begun.statements(EPOCH + 1) == []


def test_a_device_finds_the_statement_of_its_batch(begun: SqlBillingProxyStore) -> None:
    assert begun.statement_for(nonce("a")) == (False, None)
    begun.add_reports([new_report(LISBON, "a")])
    assert begun.statement_for(nonce("a")) == (True, None)
    statement = begun.form_batch(LISBON.menu_id, 10, form_in(backwards, LISBON))
    assert begun.statement_for(nonce("a")) == (True, statement)
    begun.settle(begun.undelivered()[0], b"receipt")
    assert begun.statement_for(nonce("a")) == (True, statement)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, 2, 2], [-1, 0, 1]], ids=str)
def test_an_order_that_loses_or_doubles_reports_forms_nothing(
    begun: SqlBillingProxyStore, order: list[int]
) -> None:
    begun.add_reports([new_report(LISBON, each) for each in range(3)])
    with pytest.raises(BadInput, match="expected an order of all reports of the batch"):
        begun.form_batch(LISBON.menu_id, 10, lambda _: FormedBatch(b"i" * 16, b"statement", order))
    assert begun.waiting() == [WaitingReports(LISBON.menu_id, 3, DURING)]
    assert begun.undelivered() == []


def test_a_batch_id_that_was_used_forms_nothing(begun: SqlBillingProxyStore) -> None:
    begun.add_reports([new_report(LISBON, each) for each in range(2)])
    begun.form_batch(LISBON.menu_id, 1, form_in(backwards, LISBON))
    with pytest.raises(BillError, match="refused to store a decision"):
        begun.form_batch(LISBON.menu_id, 1, form_in(backwards, LISBON))
    assert begun.waiting() == [WaitingReports(LISBON.menu_id, 1, DURING)]


def test_what_is_settled_is_forgotten_when_its_epoch_has_expired(
    begun: SqlBillingProxyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billing_proxy, "FORGET_AT_ONCE", 3)
    later = type(TIMES)(TIMES.opens, TIMES.closes, EXPIRED + 100)
    after = a_menu(epoch=EPOCH + 1)
    keep(begun, a_stored_epoch(after, times=later).directory)
    begun.add_reports([new_report(LISBON, each) for each in range(10)])
    begun.add_reports([new_report(after, ("later", each)) for each in range(10)])
    assert begun.forget(EXPIRED + 1) == 0  # reports wait
    begun.form_batch(LISBON.menu_id, 100, form_in(backwards, LISBON, 1))
    begun.form_batch(after.menu_id, 100, form_in(backwards, after, 2))
    assert begun.forget(EXPIRED + 1) == 0  # a batch is undelivered
    for batch_id in begun.undelivered():
        begun.settle(batch_id, b"receipt")
    assert begun.forget(EXPIRED) == 0  # it expires in this second
    assert [begun.statement_for(nonce(each))[0] for each in range(10)] == [True] * 10
    assert begun.forget(EXPIRED + 1) == 1
    assert begun.forget(EXPIRED + 1) == 0
    assert [begun.statement_for(nonce(each)) for each in range(10)] == [(False, None)] * 10
    assert (begun.head(EPOCH), begun.menu(LISBON.menu_id), begun.statements(EPOCH)) == (None, None, [])
    assert all(begun.statement_for(nonce(("later", each)))[1] for each in range(10))
    for directory in (DIRECTORY, a_stored_epoch(PORTO, times=later).directory):
        with pytest.raises(BillRefused) as refused:
            keep(begun, directory)
        assert refused.value.reason is BillVerdict.STALE_EPOCH
    assert begun.menu(after.menu_id) is not None


def test_rows_of_a_batch_do_not_tell_in_which_order_its_reports_came(
    begun: SqlBillingProxyStore, place: Place
) -> None:
    """By every number that a row has, its place in the database included."""
    came = [new_report(LISBON, each, arrived=DURING + each) for each in range(200)]
    for start in range(0, 200, 20):
        begun.add_reports(came[start : start + 20])
    order = list(range(200))
    random.Random(3).shuffle(order)
    begun.form_batch(LISBON.menu_id, 1000, form_in(lambda _: order, LISBON))
    assert place.sql("SELECT count(*) FROM bill_proxy_waiting") == [(0,)]
    physical = "1" if place.where.startswith("sqlite") else "ctid"
    rows = place.sql(f"SELECT nonce, digest, batch FROM bill_proxy_left ORDER BY {physical}")
    nonces = [bytes(row[0]) for row in rows]
    assert sorted(each.nonce for each in came) == nonces
    assert {row[2] for row in rows} == {1}
    (batch_id,) = begun.undelivered()
    stored = begun.batch(batch_id)
    assert stored is not None
    assert list(stored.reports) == [came[each].data for each in order]
    columns = (
        place.sql("SELECT * FROM bill_proxy_batches")[0] + place.sql("SELECT * FROM bill_proxy_directories")[0]
    )
    arrivals = {DURING + each for each in range(1, 200)}
    assert not arrivals & {value for value in columns if isinstance(value, int)}


def test_a_sqlite_file_has_nothing_left_of_reports_that_were_settled(sqlite_place: Place) -> None:
    store = SqlBillingProxyStore.open(sqlite_place.where)
    keep(store)
    came = [new_report(LISBON, each, data=b"sealed report %03d" % each) for each in range(200)]
    store.add_reports(came)
    path = Path(sqlite_place.where.removeprefix("sqlite:///"))

    def found(pattern: bytes) -> int:
        return sum(each.read_bytes().count(pattern) for each in path.parent.glob(path.name + "*"))

    assert found(b"sealed report") >= 200
    store.form_batch(LISBON.menu_id, 1000, form_in(backwards, LISBON))
    store.close()  # which empties the log that was written ahead
    assert found(b"sealed report") == 200  # once each, in the batch
    ((data,),) = sqlite_place.sql("SELECT data FROM bill_proxy_contents")
    assert data.index(b"report 199") < data.index(b"report 000")
    store = SqlBillingProxyStore.open(sqlite_place.where)
    store.settle(store.undelivered()[0], b"receipt")
    store.close()
    assert found(b"sealed report") == 0
    assert found(came[7].nonce) == 1


def test_parties_stores_refuse_to_lie_in_one_place(place: Place) -> None:
    store = SqlBillingProxyStore.open(place.where)
    store.close()
    with pytest.raises(BillError, match="expected a database without bill_proxy_version at") as refused:
        SqlAdStore.open(place.where)
    assert "\n" not in str(refused.value)
