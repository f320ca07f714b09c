"""The ad server's store on SQLite and on PostgreSQL: epochs, batches, spent tokens, keys that are forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import IntegrityError

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server.store import AdStore, RedeemedReport
from tacit.errors import BadInput, BillError, BillRefused
from tacit.store import SqlAdStore, SqlBillingProxyStore
from tacit.store.billing_ads import BATCHES_AT_ONCE
from tests.support.billing_worlds import (
    CAMPAIGNS,
    EPOCH,
    PRICES,
    TIMES,
    World,
    a_menu,
    a_stored_epoch,
    charged,
    countersigned,
    numbered_key,
    redeem,
    redeemed,
    sign_receipt,
)
from tests.support.ledger_places import Place

LISBON, PORTO = a_menu(), a_menu("Porto", prices=(5, 6), campaigns=(12, 99))
ACCEPTED, DUPLICATE = BillVerdict.ACCEPTED, BillVerdict.DUPLICATE


@pytest.fixture
def store(place: Place) -> Iterator[SqlAdStore]:
    opened = SqlAdStore.open(place.where)
    yield opened
    opened.close()


@pytest.fixture
def begun(store: SqlAdStore) -> SqlAdStore:
    """A store with one epoch of two menus."""
    store.keep_epoch(EPOCH, a_stored_epoch(LISBON, PORTO))
    return store


def impressions(store: AdStore) -> dict[tuple[bytes, int], int]:
    return {(line.menu_id, line.index): line.impressions for line in store.totals()}


def test_an_epoch_comes_back_as_it_was_kept(store: SqlAdStore) -> None:
    stored = a_stored_epoch(LISBON, PORTO)
    assert (store.epoch(EPOCH), store.last_epoch(), store.menu(LISBON.menu_id)) == (None, None, None)
    store.keep_epoch(EPOCH, stored)
    assert store.epoch(EPOCH) == stored
    assert store.menu(PORTO.menu_id) == PORTO
    head = countersigned(stored.directory)
    store.publish_epoch(EPOCH, head)
    store.publish_epoch(EPOCH, head)
    assert store.epoch(EPOCH) == replace(stored, head=head)
    store.keep_epoch(EPOCH, stored)  # again: nothing
    assert store.epoch(EPOCH) == replace(stored, head=head)


def test_an_epoch_keeps_its_first_directory_and_head(begun: SqlAdStore) -> None:
    kept = begun.epoch(EPOCH)
    other = a_stored_epoch(LISBON, PORTO, keys=[numbered_key(2), numbered_key(3)])
    with pytest.raises(BillRefused, match="with another directory"):
        begun.keep_epoch(EPOCH, other)
    with pytest.raises(BillRefused, match="expected the directory of epoch 8"):
        begun.keep_epoch(EPOCH + 1, other)
    with pytest.raises(BillRefused, match="epoch 8 is not kept here"):
        begun.publish_epoch(EPOCH + 1, b"head")
    assert begun.epoch(EPOCH) == kept
    begun.publish_epoch(EPOCH, b"head")
    with pytest.raises(BillRefused, match="with another head"):
        begun.publish_epoch(EPOCH, b"other head")
    stored = begun.epoch(EPOCH)
    assert stored is not None
    assert stored.head == b"head"


def test_epochs_are_listed_until_they_expire(begun: SqlAdStore) -> None:
    later = replace(TIMES, expires=TIMES.expires + 10)
    begun.keep_epoch(2**32 - 1, a_stored_epoch(a_menu(epoch=2**32 - 1), times=later))
    assert begun.epochs(TIMES.expires - 1) == [EPOCH, 2**32 - 1]
    assert begun.epochs(TIMES.expires) == [2**32 - 1]
    assert begun.epochs(later.expires) == []
    assert begun.last_epoch() == 2**32 - 1


def test_a_batch_is_charged_once_and_gets_one_receipt(begun: SqlAdStore) -> None:
    batch = redeemed(LISBON, [charged(LISBON, 1, 2), charged(LISBON, 2, 0), charged(LISBON, 3, 2)])
    assert begun.receipt(batch.batch_id) is None
    receipt = redeem(begun, batch)
    assert receipt.verdicts == bytes([ACCEPTED] * 3)
    assert begun.receipt(batch.batch_id) == receipt.to_bytes()

    def sign_again(_: bytes) -> bytes:
        raise AssertionError("a known batch is not signed again")

    assert begun.redeem(replace(batch, reports=()), sign_again) == receipt.to_bytes()
    assert impressions(begun) == {(LISBON.menu_id, 0): 1, (LISBON.menu_id, 2): 2}
    assert {each.campaign: each.charged_micros for each in begun.campaigns()}[12] == 2 * PRICES[1]


def test_a_known_batch_under_another_statement_is_refused(begun: SqlAdStore) -> None:
    batch = redeemed(LISBON, [charged(LISBON, 1)])
    redeem(begun, batch)
    other = replace(redeemed(LISBON, [charged(LISBON, 2)], "other"), batch_id=batch.batch_id)
    with pytest.raises(BillRefused) as refused:
        redeem(begun, other)
    assert refused.value.reason is BillVerdict.CONFLICT
    assert impressions(begun) == {(LISBON.menu_id, 1): 1}


def test_a_token_is_spent_once_within_a_batch_and_across_batches(begun: SqlAdStore) -> None:
    first = redeemed(LISBON, [charged(LISBON, name, 1) for name in ("a", "b", "a")], 1)
    assert redeem(begun, first).verdicts == bytes([ACCEPTED, ACCEPTED, DUPLICATE])
    second = redeemed(LISBON, [charged(LISBON, name, 3) for name in ("c", "b", "c", "d")], 2)
    assert redeem(begun, second).verdicts == bytes([ACCEPTED, DUPLICATE, DUPLICATE, ACCEPTED])
    elsewhere = redeemed(PORTO, [charged(PORTO, "a", 2)], 3)
    assert redeem(begun, elsewhere).verdicts == bytes([DUPLICATE])
    assert impressions(begun) == {(LISBON.menu_id, 1): 2, (LISBON.menu_id, 3): 2}
    money = {each.campaign: each.charged_micros for each in begun.campaigns()}
    assert money == {11: 2 * PRICES[0], 12: 0, 13: 2 * PRICES[2], 99: 0}


def test_rejected_reports_keep_their_verdicts_and_charge_nothing(begun: SqlAdStore) -> None:
    bad = [RedeemedReport(BillVerdict.FORGED), RedeemedReport(BillVerdict.NO_SUCH_ENTRY)]
    batch = redeemed(LISBON, [bad[0], charged(LISBON, 1), bad[1]])
    receipt = redeem(begun, batch)
    assert (receipt.charged, receipt.duplicate, receipt.rejected) == (1, 0, 2)
    assert receipt.verdicts == bytes([BillVerdict.FORGED, ACCEPTED, BillVerdict.NO_SUCH_ENTRY])
    nothing = redeemed(a_menu("Faro"), bad, "of a menu that nobody knows")
    assert redeem(begun, nothing).rejected == 2
    assert impressions(begun) == {(LISBON.menu_id, 1): 1}


def test_accepted_reports_of_an_unknown_menu_are_refused(begun: SqlAdStore) -> None:
    faro = a_menu("Faro")
    batch = redeemed(faro, [charged(faro, 1)])
    with pytest.raises(BillRefused) as refused:
        redeem(begun, batch)
    assert refused.value.reason is BillVerdict.UNKNOWN_MENU
    assert begun.receipt(batch.batch_id) is None
    assert begun.totals() == []


@pytest.mark.parametrize(
    "wrong",
    [{"price_micros": PRICES[0] + 1}, {"price_micros": 0}, {"index": 2}, {"index": 4}, {"index": 0}],
    ids=str,
)
def test_no_other_price_is_charged_and_the_batch_is_undone(begun: SqlAdStore, wrong: dict[str, Any]) -> None:
    good = charged(LISBON, 1, 1)
    batch = redeemed(LISBON, [good, replace(charged(LISBON, 2, 1), **wrong)])
    with pytest.raises(BillError, match=r"the ads store at .* refused to store a decision"):
        redeem(begun, batch)
    assert begun.receipt(batch.batch_id) is None
    assert begun.totals() == []
    assert [each.charged_micros for each in begun.campaigns()] == [0] * 4
    assert redeem(begun, redeemed(LISBON, [good])).charged == 1


@pytest.mark.parametrize("price", [PRICES[0] - 1, PRICES[0] + 1, 0])
def test_the_database_itself_refuses_any_other_price(begun: SqlAdStore, place: Place, price: int) -> None:
    """Past the store: whoever writes into the tables has the same walls."""
    redeem(begun, redeemed(LISBON, [charged(LISBON, 1)]))
    row = (
        "INSERT INTO bill_ads_charges (nonce, menu, idx, price, batch, place, held, invoice, secret) "
        "VALUES (:nonce, :menu, 1, :price, 1, :place, FALSE, NULL, :secret)"
    )
    values = {"menu": 1, "secret": b"s"}
    engine = create_engine(place.where)
    if place.where.startswith("sqlite"):
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    with engine.connect() as connection:
        with pytest.raises(IntegrityError, match=r"(?i)foreign key"):
            connection.execute(text(row), {"nonce": b"n", "price": price, "place": 1, **values})
        connection.rollback()
        right = {"nonce": b"n", "price": PRICES[0], "place": 1, **values}
        connection.execute(text(row), right)
        with pytest.raises(IntegrityError, match=r"(?i)unique"):
            connection.execute(text(row), {**right, "place": 2})
        connection.rollback()
    engine.dispose()
    assert impressions(begun) == {(LISBON.menu_id, 1): 1}


def test_what_fails_while_signing_charges_nothing(begun: SqlAdStore) -> None:
    batch = redeemed(LISBON, [charged(LISBON, 1)])

    def fail(verdicts: bytes) -> bytes:
        assert verdicts == bytes([ACCEPTED])
        raise BadInput("no key")

    with pytest.raises(BadInput, match="no key"):
        begun.redeem(batch, fail)
    assert (begun.receipt(batch.batch_id), list(begun.totals())) == (None, [])
    assert redeem(begun, batch).charged == 1


def test_an_auditor_reads_batches_and_charges_in_their_order(begun: SqlAdStore) -> None:
    batches = []
    for number in range(2 * BATCHES_AT_ONCE + 1):
        reports = [charged(LISBON, (number, each), each) for each in range(4)]
        reports[1] = replace(RedeemedReport(BillVerdict.UNOPENABLE))
        batches.append(redeemed(LISBON, reports, number))
        redeem(begun, batches[-1])
    found = list(begun.batches())
    assert [each.batch_id for each in found] == [each.batch_id for each in batches]
    for stored, batch in zip(found, batches, strict=True):
        assert (stored.menu_id, stored.statement, stored.data) == (batch.menu_id, batch.statement, batch.data)
        assert stored.receipt == sign_receipt(batch)(bytes(each.verdict for each in batch.reports))
    begun.close_invoices(1)
    charges = begun.charges_of(batches[3].batch_id)
    expected = [(place, batches[3].reports[place]) for place in (0, 2, 3)]
    assert [(each.place, each.nonce, each.index, each.price_micros, each.secret) for each in charges] == [
        (place, report.nonce, report.index, report.price_micros, report.secret) for place, report in expected
    ]
    assert [each.campaign for each in charges] == [None, 12, 13]
    assert [each.held for each in charges] == [False] * 3
    numbers = {each.advertiser: each.number for each in begun.invoices()}
    assert [each.invoice for each in charges] == [None, numbers["campaign 12"], numbers["campaign 13"]]
    assert begun.charges_of(b"unknown") == []


def test_keys_of_expired_epochs_are_forgotten_and_the_rest_stays(begun: SqlAdStore, place: Place) -> None:
    kept = begun.epoch(EPOCH)
    assert kept is not None
    secrets = [kept.sealing_key, *(each.token_key for each in kept.menus)]
    assert begun.forget_keys(TIMES.expires) == 0
    assert begun.epoch(EPOCH) == kept
    assert begun.forget_keys(TIMES.expires + 1) == 1
    assert begun.forget_keys(TIMES.expires + 1) == 0
    after = begun.epoch(EPOCH)
    assert after is not None
    assert (after.sealing_key, [each.token_key for each in after.menus]) == (b"", [b"", b""])
    assert [each.menu for each in after.menus] == [LISBON, PORTO]
    begun.keep_epoch(EPOCH, kept)  # again: nothing, and no key comes back
    assert begun.epoch(EPOCH) == after
    if place.where.startswith("sqlite"):
        path = Path(place.where.removeprefix("sqlite:///"))
        written = b"".join(each.read_bytes() for each in path.parent.glob(path.name + "*"))
        assert LISBON.menu_id in written
        assert not any(secret[at : at + 24] in written for secret in secrets for at in range(0, 32, 8))


def test_campaigns_of_menus_are_there_before_anything_is_charged(begun: SqlAdStore) -> None:
    assert [(each.campaign, each.advertiser, each.budget_micros) for each in begun.campaigns()] == [
        (number, f"campaign {number}", None) for number in (*CAMPAIGNS, 99)
    ]


def test_a_file_is_its_owners_alone_and_no_other_partys(sqlite_place: Place, tmp_path: Path) -> None:
    path = Path(sqlite_place.where.removeprefix("sqlite:///"))
    with World(SqlAdStore.open(path), SqlBillingProxyStore.open(tmp_path / "proxy")) as world:
        world.open_epoch()
        assert [each.stat().st_mode & 0o777 for each in sorted(tmp_path.glob("*"))] == [0o600] * 6
    path.chmod(0o640)
    with pytest.raises(
        BillError, match=r"the ads store at .* expected a file for its owner alone, got mode 640"
    ):
        SqlAdStore.open(path)


def test_the_whole_loop_through_both_parties(place: Place, tmp_path: Path) -> None:
    """Real tokens, real seals: what was reported is what is charged."""
    with World(SqlAdStore.open(place.where), SqlBillingProxyStore.open(tmp_path / "proxy")) as world:
        world.open_epoch(LISBON, PORTO)
        world.report(3, index=2, menu=LISBON)
        world.report(2, index=0, menu=LISBON)
        again = world.report(1, index=1, menu=PORTO)
        assert world.proxy.take(again, world.now) == [ACCEPTED]
        assert sorted(each.reports for each in world.bill()) == [1, 5]
        assert impressions(world.ads) == {
            (LISBON.menu_id, 0): 2, (LISBON.menu_id, 2): 3, (PORTO.menu_id, 1): 1,
        }  # fmt: skip
        assert world.proxied.undelivered() == []
        invoices = world.ads.close_invoices(world.now)
        assert [each.total_micros for each in invoices] == [3 * PRICES[1] + 5]
