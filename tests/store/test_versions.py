"""Versions of statistics and models on SQLite and on PostgreSQL: one in use, each source once, a trail."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from tacit.deliver.campaigns.store import Author, CampaignVerdict
from tacit.deliver.campaigns.versions import MOST_CONTENT, NewVersion, VersionKind
from tacit.errors import BadInput, BillError, CampaignRefused
from tacit.store import SqlAdStore, SqlCampaignStore, SqlVersionStore
from tacit.store.market_tables import VERSIONS
from tests.support.ad_campaigns import BY
from tests.support.ledger_places import Place

STATISTICS, MODEL, ROUND = VersionKind.STATISTICS, VersionKind.MODEL, VersionKind.ROUND
LATER = Author("k2", BY.at + 60)


@pytest.fixture
def ads(place: Place) -> Iterator[SqlAdStore]:
    opened = SqlAdStore.open(place.where)
    yield opened
    opened.close()


@pytest.fixture
def store(ads: SqlAdStore) -> SqlVersionStore:
    return SqlVersionStore(ads.database)


def a_version(number: int = 1, kind: VersionKind = STATISTICS, size: int = 4) -> NewVersion:
    return NewVersion(kind, f"round {number}", {"reports": number}, bytes([number]) * size)


def add(store: SqlVersionStore, number: int, kind: VersionKind = STATISTICS, *, use: bool = False) -> int:
    kept, new = store.add(a_version(number, kind), BY, use=use)
    assert kept is not None
    assert new
    return kept.number


def test_a_version_comes_back_as_it_was_added(store: SqlVersionStore) -> None:
    assert store.in_use(STATISTICS) is None
    number = add(store, 1)
    kept = store.version(number)
    assert kept is not None
    assert (kept.kind, kept.made, kept.in_use, kept.source) == (STATISTICS, BY.at, False, "round 1")
    assert (kept.digest, kept.size, kept.body) == (a_version(1).digest, 4, {"reports": 1})
    assert store.content(number) == b"\1" * 4
    assert store.versions(STATISTICS) == [kept]
    assert store.versions(MODEL) == []
    assert (store.version(99), store.content(99)) == (None, None)


def test_a_source_is_added_once(store: SqlVersionStore, ads: SqlAdStore) -> None:
    number = add(store, 1, use=True)
    other = add(store, 2, use=True)
    revision = SqlCampaignStore(ads.database).revision()
    again, new = store.add(a_version(1), LATER, use=True)
    assert again == store.version(number)
    assert not new
    assert SqlCampaignStore(ads.database).revision() == revision
    found = store.in_use(STATISTICS)
    assert found is not None
    assert found.number == other


def test_one_of_a_kind_is_in_use_and_the_trail_says_who_rolled_what_out(
    store: SqlVersionStore, ads: SqlAdStore
) -> None:
    first, second, model = add(store, 1, use=True), add(store, 2, use=True), add(store, 3, MODEL, use=True)
    assert [each.number for each in store.versions(STATISTICS) if each.in_use] == [second]
    assert store.use(first, LATER).in_use
    store.use(first, LATER)  # again: no line
    assert [each.number for each in store.versions(STATISTICS) if each.in_use] == [first]
    found = store.in_use(MODEL)
    assert found is not None
    assert found.number == model
    lines = SqlCampaignStore(ads.database).changes(subject="statistics in use")
    told = [(each.key_id, each.at, each.before, each.after) for each in lines]
    assert told == [
        (BY.key_id, BY.at, None, {"number": first}),
        (BY.key_id, BY.at, {"number": first}, {"number": second}),
        (LATER.key_id, LATER.at, {"number": second}, {"number": first}),
    ]


def test_the_database_itself_refuses_two_in_use(store: SqlVersionStore, ads: SqlAdStore) -> None:
    add(store, 1, use=True)
    second = add(store, 2)
    with pytest.raises((IntegrityError, BillError)), ads.database.writing() as connection:
        connection.execute(update(VERSIONS).where(VERSIONS.c.number == second).values(in_use=True))


def test_what_cannot_be_put_in_use_is_refused(store: SqlVersionStore) -> None:
    number = add(store, 1, ROUND)
    for asked, verdict in ((number, CampaignVerdict.CONFLICT), (99, CampaignVerdict.UNKNOWN)):
        with pytest.raises(CampaignRefused) as caught:
            store.use(asked, BY)
        assert caught.value.reason == verdict


def test_the_oldest_that_is_not_in_use_makes_room(ads: SqlAdStore) -> None:
    store = SqlVersionStore(ads.database, most_versions=3)
    numbers = [add(store, each, use=each == 1) for each in range(1, 5)]
    assert [each.number for each in store.versions(STATISTICS)] == [numbers[3], numbers[2], numbers[0]]
    gone, new = store.add(a_version(2), BY)  # a round counts once, for ever
    assert (gone, new) == (None, False)
    [line] = [
        each for each in SqlCampaignStore(ads.database).changes(subject="statistics round 2") if not each.after
    ]
    assert line.before["number"] == numbers[1]


def test_a_model_that_was_deleted_can_be_added_again(ads: SqlAdStore) -> None:
    store = SqlVersionStore(ads.database, most_bytes=8)
    first, second, third = (add(store, each, MODEL) for each in (1, 2, 3))
    assert [each.number for each in store.versions(MODEL)] == [third, second]
    assert add(store, 1, MODEL) > third
    assert store.version(first) is None


def test_of_many_at_once_one_is_in_use_and_a_source_is_kept_once(store: SqlVersionStore) -> None:
    def roll_out(number: int) -> int:
        kept, _ = store.add(a_version(number % 3), BY, use=True)
        assert kept is not None
        return store.use(kept.number, LATER).number

    with ThreadPoolExecutor(4) as pool:
        used = list(pool.map(roll_out, range(12)))
    kept = store.versions(STATISTICS)
    assert len(kept) == 3
    assert {each.number for each in kept} == set(used)
    assert sum(each.in_use for each in kept) == 1


def test_content_that_was_changed_is_refused(store: SqlVersionStore, ads: SqlAdStore) -> None:
    number = add(store, 1)
    with ads.database.writing() as connection:
        connection.execute(update(VERSIONS).where(VERSIONS.c.number == number).values(content=b"other"))
    with pytest.raises(BillError, match="its digest differs"):
        store.content(number)


@pytest.mark.parametrize(
    ("kind", "source", "content", "words"),
    [
        ("other", "a", b"b", "expected kind to be one of"),
        (MODEL, "", b"b", "source: expected 1 to 200 characters"),
        (MODEL, "a", b"", "expected a version of 1 to"),
        (MODEL, "a", bytes(MOST_CONTENT + 1), "expected a version of 1 to"),
    ],
    ids=["kind", "source", "empty", "large"],
)
def test_what_is_no_version_is_refused(kind: VersionKind, source: str, content: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        NewVersion(kind, source, {}, content)
