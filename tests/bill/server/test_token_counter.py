"""No number of processes signs more tokens of a menu than its limit; a crash loses some at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server.store import EpochLimits
from tacit.bill.server.token_counter import ReservedTokens
from tacit.errors import BillError, BillRefused
from tacit.store import SqlAdStore, SqlPacingStore
from tests.support.billing_worlds import EPOCH, TIMES, a_menu, a_stored_epoch, charged, redeem, redeemed
from tests.support.ledger_places import Place

LISBON, PORTO, BRAGA = a_menu(), a_menu("Porto"), a_menu("Braga")
MOST = {LISBON.menu_id: 1_000, PORTO.menu_id: 7, BRAGA.menu_id: 0}
LATER = a_menu(epoch=EPOCH + 1)
Count = Callable[[Any], ReservedTokens]


@pytest.fixture
def ads(place: Place) -> Iterator[SqlAdStore]:
    opened = SqlAdStore.open(place.where)
    opened.keep_epoch(EPOCH, a_stored_epoch(LISBON, PORTO, BRAGA), EpochLimits(MOST, TIMES.opens, None))
    yield opened
    opened.close()


@pytest.fixture
def count(ads: SqlAdStore) -> Iterator[Count]:  # noqa: ARG001 (which is closed after them)
    """Makes counters, one per process."""
    made: list[ReservedTokens] = []

    def make(store: Any) -> ReservedTokens:
        made.append(ReservedTokens(store))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def store(ads: SqlAdStore) -> SqlPacingStore:
    return SqlPacingStore(ads.database)


def drain(counter: ReservedTokens, menu_id: bytes, count: int) -> int:
    """Take until it is refused."""
    taken = 0
    while counter.take(menu_id, count):
        taken += count
    return taken


def test_as_many_are_signed_as_may_be(store: SqlPacingStore, count: Count) -> None:
    counter = count(store)
    assert drain(counter, LISBON.menu_id, 4) == 1_000
    assert drain(counter, PORTO.menu_id, 4) == 4
    assert drain(counter, PORTO.menu_id, 1) == 3, "fewer than were wanted are left to whoever wants fewer"
    assert not counter.take(BRAGA.menu_id, 1)
    assert not counter.take(LATER.menu_id, 1), "no limit is known: none to take"


def test_processes_share_a_limit_and_lose_what_they_had_in_memory(store: SqlPacingStore, count: Count) -> None:
    taken = 0
    for _ in range(5):
        counter = count(store)  # the one before was killed
        taken += sum(counter.take(LISBON.menu_id, 4) for _ in range(3)) * 4
    (tokens, *_) = store.tokens_of(EPOCH)
    assert taken == 60 <= tokens.reserved <= 60 + 5 * 128
    assert taken + drain(count(store), LISBON.menu_id, 1) <= 1_000
    assert store.tokens_of(EPOCH)[0].reserved == 1_000


def test_threads_of_processes_are_told_to_sign_no_more(
    place: Place, store: SqlPacingStore, count: Count
) -> None:
    others = [SqlAdStore.open(place.where) for _ in range(2)]
    counters = [count(SqlPacingStore(each.database)) for each in others]
    with ThreadPoolExecutor(6) as threads:
        taken = list(threads.map(lambda each: drain(each, LISBON.menu_id, 3), counters * 3))
    for counter in counters:
        counter.end()  # what was being set aside in the background is there now
    left = sum(drain(each, LISBON.menu_id, 1) for each in counters)
    assert sum(taken) + left == 1_000
    for each in others:
        each.close()
    assert store.tokens_of(EPOCH)[0].reserved == 1_000


class CountedCalls:
    """A store of tokens that notes how often it is asked, and may be away."""

    def __init__(self, store: SqlPacingStore) -> None:
        self._store, self.calls, self.is_away = store, 0, False

    def reserve_tokens(self, wanted):  # type: ignore[no-untyped-def]
        self.calls += 1
        if self.is_away:
            raise BillError("the store is away")
        return self._store.reserve_tokens(wanted)


def test_the_disk_is_asked_rarely_and_not_at_all_for_what_is_gone(store: SqlPacingStore, count: Count) -> None:
    counted = CountedCalls(store)
    counter = count(counted)
    assert drain(counter, LISBON.menu_id, 1) == 1_000
    assert counted.calls <= 40, "some 60 at a time, and a few more where fewer were left"
    assert drain(counter, PORTO.menu_id, 1) == 7
    before = counted.calls
    for _ in range(50):
        assert not counter.take(LISBON.menu_id, 1)
        assert not counter.take(PORTO.menu_id, 16)
        assert not counter.take(LATER.menu_id, 1)
    assert counted.calls <= before + 1, "strangers who ask for more cost no transaction"
    counter.forget([LISBON.menu_id, LATER.menu_id])
    assert not counter.take(LISBON.menu_id, 1)


def test_nothing_is_signed_while_the_store_is_away(store: SqlPacingStore, count: Count) -> None:
    counted = CountedCalls(store)
    counter = count(counted)
    counted.is_away = True
    with pytest.raises(BillError, match="away"):
        counter.take(PORTO.menu_id, 2)
    counted.is_away = False
    assert counter.take(PORTO.menu_id, 2)


def test_closed_menus_give_no_more_and_retired_ones_are_no_longer_out(
    ads: SqlAdStore, store: SqlPacingStore, count: Count
) -> None:
    counter = count(store)
    assert counter.take(LISBON.menu_id, 4)
    redeem(ads, redeemed(LISBON, [charged(LISBON, name, index) for name, index in ((1, 1), (2, 2), (3, 0))]))
    tokens = store.look(0).tokens[0]
    assert (tokens.most, tokens.reserved, tokens.reported, tokens.out) == (1_000, 62, 3, 997)
    store.close_epoch(EPOCH)
    tokens = store.look(0).tokens[0]
    assert (tokens.most, tokens.reserved, tokens.out) == (1_000, 62, 59)
    assert drain(count(store), LISBON.menu_id, 1) == 0
    assert drain(counter, LISBON.menu_id, 1) <= 58, "what was set aside can still be signed"
    store.retire(EPOCH)
    moment = store.look(0)
    assert (moment.tokens, moment.epochs) == ([], {})
    assert {who: (day.spent_micros, day.exposed_micros) for who, day in moment.days.items()} == {
        11: (1_250_000, 62 * 1_250_000), 12: (700_001, 62 * 700_001), 13: (0, 62 * 3),
    }  # fmt: skip
    store.retire(EPOCH)
    assert store.look(0) == moment, "once"
    redeem(ads, redeemed(LISBON, [charged(LISBON, 4)], "late"))
    assert store.look(0).days[11].spent_micros == 2_500_000, "a late batch is charged all the same"


def test_limits_that_were_counted_before_another_epoch_are_refused(
    ads: SqlAdStore, store: SqlPacingStore
) -> None:
    stored = a_stored_epoch(LATER)
    with pytest.raises(BillRefused) as caught:
        ads.keep_epoch(EPOCH + 1, stored, EpochLimits({LATER.menu_id: 5}, TIMES.opens, None))
    assert caught.value.reason is BillVerdict.CONFLICT
    assert ads.last_epoch() == EPOCH, "nothing of it was kept"
    ads.keep_epoch(EPOCH + 1, stored, EpochLimits({LATER.menu_id: 5}, TIMES.opens, EPOCH))
    assert [each.most for each in store.tokens_of(EPOCH + 1)] == [5]
