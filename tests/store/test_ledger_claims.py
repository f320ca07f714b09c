"""A reservation leads to one release: who may go on with it, who has made it, and who is refused."""

from __future__ import annotations

import multiprocessing
import secrets
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import pytest

from tacit.errors import LedgerConflict, LedgerCorrupt, ReservationTaken, UnknownReservation
from tacit.privacy.ledger.chain import (
    START,
    ChainEntry,
    ChainHead,
    decode_event,
    is_intact,
    next_chain_entry,
    replay,
)
from tacit.privacy.ledger.lines import (
    Amount,
    AmountReserved,
    LedgerEvent,
    LineGranted,
    ReleaseMade,
    ReservationAborted,
)
from tacit.privacy.ledger.rules import Reservation, ReservationState
from tacit.store.ledger import LedgerStore, Request
from tests.support.ledger_places import COST, LIMIT, LINE, WEEKS, Place, begun

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "hypothesis", "psycopg", "tacit.store.ledger"])


def reserved(place: Place, key: str = "model-1") -> LedgerStore:
    store = begun(place)
    store.reserve(key, LINE, COST, "a test")
    return store


def refused(*calls: Callable[[], object]) -> None:
    for call in calls:
        with pytest.raises(ReservationTaken):
            call()


def found(place: Place, key: str = "model-1") -> Reservation:
    return place.open().verify().ledger.reservations[key]


def test_an_attempt_from_claim_to_commit(place: Place) -> None:
    store = reserved(place)
    assert store.claim("model-1", "one").attempt is not None
    assert store.claim("model-1", "one").resumed
    assert store.make("model-1", "one", "digest").release == "digest"
    assert store.make("model-1", "one", "digest").resumed
    assert store.commit("model-1", "one").state is ReservationState.COMMITTED
    assert (
        store.make("model-1", "one", "digest").state is ReservationState.COMMITTED
    )  # to put it in its place again
    assert store.commit("model-1", "one").resumed
    kept = store.verify()
    assert kept.head.sequence == 5  # grant, reserve, claim, make, commit
    assert place.open().reserve("model-1", LINE, COST, "a test") == kept.ledger.reservations["model-1"]


def test_only_one_attempt_goes_on(place: Place) -> None:
    store, other = reserved(place), place.open()
    store.claim("model-1", "one")
    before = store.verify()
    refused(
        lambda: other.claim("model-1", "two"),
        lambda: other.claim("model-1", "two", after=["three", "four"]),
        lambda: other.make("model-1", "two", "digest"),
        lambda: other.commit("model-1", "two"),
        lambda: other.commit("model-1"),
        lambda: store.abort("model-1"),  # although it was reserved here
        lambda: other.abort("model-1", "two"),
    )
    assert store.verify() == before
    with pytest.raises(UnknownReservation):
        store.claim("never", "one")


def test_who_goes_on_from_what_was_kept_takes_over(place: Place) -> None:
    store = reserved(place)
    store.claim("model-1", "one")
    store.claim("model-1", "two", after=["one"])
    refused(lambda: store.claim("model-1", "three", after=["one"]), lambda: store.make("model-1", "one", "x"))
    store.claim("model-1", "three", after=["lost on the way", "two"])
    store.make("model-1", "three", "digest")


def test_what_was_made_is_made_once(place: Place) -> None:
    store = reserved(place)
    store.claim("model-1", "one")
    store.make("model-1", "one", "digest")
    refused(
        lambda: store.make("model-1", "one", "another"),
        lambda: store.make("model-1", "two", "digest"),
        lambda: store.claim("model-1", "two", after=["one"]),
        lambda: store.claim("model-1", "one"),
        lambda: store.abort("model-1", "one"),
        lambda: store.hand_over(["model-1"]),
    )
    assert found(place).state is ReservationState.RESERVED
    store.commit("model-1", "one")
    refused(
        lambda: store.make("model-1", "one", "another"),
        lambda: store.claim("model-1", "two"),
        lambda: store.hand_over(["model-1"]),
    )


def test_what_nobody_claimed_is_made_by_the_first(place: Place) -> None:
    store = reserved(place)
    store.make("model-1", "one", "digest")
    refused(lambda: store.make("model-1", "two", "digest"), lambda: store.claim("model-1", "two"))
    store.commit("model-1", "one")


def test_a_claim_is_committed_by_what_it_made(place: Place) -> None:
    store = reserved(place)
    store.claim("model-1", "one")
    with pytest.raises(LedgerConflict, match="to be said first"):
        store.commit("model-1", "one")
    store.commit("model-1", certain=True)  # somebody says that it has left
    refused(
        lambda: store.make("model-1", "one", "digest"), lambda: store.claim("model-1", "two", after=["one"])
    )


@pytest.mark.parametrize("handed_over", [False, True])
def test_what_is_settled_by_hand_is_never_taken_for_what_is_older_than_claims(
    place: Place, handed_over: bool
) -> None:
    store = reserved(place)
    if handed_over:
        store.claim("model-1", "one")
        store.hand_over(["model-1"])
    settled = store.commit("model-1", certain=True)
    assert not settled.predates_attempts
    assert store.commit("model-1", certain=True).resumed
    refused(
        lambda: store.claim("model-1", "one"),
        lambda: store.make("model-1", "one", "digest"),
        lambda: store.make("model-1", "one", str(settled.release)),
    )
    assert found(place) == settled == place.open().reservation("model-1")
    store.reserve("model-2", LINE, COST, "a test")
    assert store.commit("model-2").predates_attempts  # as in ledgers that knew no claims


def test_what_was_made_cannot_be_said_never_to_have_left(place: Place) -> None:
    store = reserved(place)
    store.make("model-1", "one", "digest")
    before = store.verify()
    with pytest.raises(LedgerConflict, match="expected a release that was not made"):
        store.abort("model-1", certain=True)
    assert store.verify() == before
    store.commit("model-1", certain=True)


def test_a_chain_in_which_it_was_said_is_still_read() -> None:
    asked = AmountReserved("a", LINE, Amount(1, 0), "a test")
    events: list[LedgerEvent] = [
        LineGranted(LINE, Amount(1, 0)),
        asked,
        ReleaseMade("a", "one", "digest"),
        ReservationAborted("a"),
    ]
    entries: list[ChainEntry] = []
    for event in events:
        entries.append(next_chain_entry(entries[-1].head if entries else START, event))
    known = replay(entries).ledger
    assert known.reservations["a"].state is ReservationState.ABORTED
    assert known.abort("a", certain=True).events == ()


def test_that_it_was_settled_by_hand_cannot_be_edited_away(sqlite_place: Place) -> None:
    store = reserved(sqlite_place)
    store.commit("model-1", certain=True)
    sqlite_place.sql("UPDATE ledger_reservations SET release = NULL")
    with pytest.raises(LedgerCorrupt):
        store.reservation("model-1")


def test_who_holds_it_and_has_made_nothing_gives_it_back(place: Place) -> None:
    reserved(place).claim("model-1", "one")
    store = place.open()
    assert store.abort("model-1", "one").state is ReservationState.ABORTED
    with pytest.raises(UnknownReservation, match="aborted"):
        store.claim("model-1", "one")
    with pytest.raises(UnknownReservation, match="aborted"):
        store.make("model-1", "one", "digest")
    assert found(place).state is ReservationState.ABORTED


def test_a_lost_attempt_hands_over_to_one(place: Place) -> None:
    store = reserved(place)
    store.claim("model-1", "lost")
    (freed,) = store.hand_over(["model-1"])
    assert (freed.attempt, freed.resumed) == (None, False)
    assert store.hand_over(["model-1"])[0].resumed
    with pytest.raises(ReservationTaken):
        store.commit("model-1", "lost")
    store.claim("model-1", "next", after=["older"])
    refused(
        lambda: store.claim("model-1", "third", after=["older"]),
        lambda: store.claim("model-1", "lost again", after=["lost"]),
        lambda: store.make("model-1", "lost", "digest"),
    )
    store.make("model-1", "next", "digest")
    store.commit("model-1", "next")
    assert '{"key":"model-1","kind":"hand-over"}' in [
        row[0] for row in place.sql("SELECT contents FROM ledger_entries")
    ]


def test_all_lines_of_one_release_or_none(place: Place) -> None:
    store = place.open()
    store.renew(WEEKS, LIMIT)
    keys = [f"model/{week}" for week in (3, 4)]
    store.reserve_all([Request(f"model/{week}", WEEKS.line(week), COST, "a test") for week in (3, 4)])
    store.claim("model/4", "another")
    before = store.verify()
    refused(
        lambda: store.claim_all(keys, "one"),
        lambda: store.make_all(keys, "one", "digest"),
        lambda: store.commit_all(keys, "one"),
        lambda: store.abort_all(keys, "one"),
    )
    assert store.verify() == before
    store.hand_over(keys)
    store.claim_all(keys, "one")
    store.make_all(keys, "one", "digest")
    assert [each.state for each in store.commit_all(keys, "one")] == [ReservationState.COMMITTED] * 2


def test_a_token_is_not_kept(place: Place) -> None:
    token = secrets.token_hex(16)
    store = reserved(place)
    store.claim("model-1", token)
    stored = place.sql("SELECT contents FROM ledger_entries") + place.sql("SELECT * FROM ledger_reservations")
    assert token not in str(stored)
    refused(lambda: store.make("model-1", str(found(place).attempt), "digest"))


def test_a_release_that_is_made_once(place: Place) -> None:
    store, request = begun(place), Request("model-1", LINE, COST, "a test")
    with store.once(request) as attempt:
        refused(lambda: place.open().claim("model-1", "another"))
        attempt.name_release("digest")
        assert found(place).state is ReservationState.RESERVED
    assert (found(place).state, found(place).release) == (ReservationState.COMMITTED, "digest")
    entered = []
    with pytest.raises(ReservationTaken, match="got model-1"), place.open().once(request):
        entered.append(True)
    assert not entered
    with pytest.raises(OSError, match="no disk"), store.once(Request("model-2", LINE, COST, "a test")):
        raise OSError("no disk")
    assert found(place, "model-2").state is ReservationState.RESERVED
    store.reserve("model-3", LINE, COST, "a test")  # by somebody who may have released it
    with pytest.raises(ReservationTaken), store.once(Request("model-3", LINE, COST, "a test")):
        entered.append(True)
    with store.once(*(Request(f"model-{name}", LINE, COST, "a test") for name in (4, 5))):
        pass
    assert {found(place, f"model-{name}").state for name in (4, 5)} == {ReservationState.COMMITTED}
    assert not entered


# Rivals for one reservation, each from the same copy.


def rival(name: int, place: Place, start: Barrier, results: Queue[str]) -> None:
    try:
        mine = place.open()
        start.wait()
        try:
            mine.claim("model-1", f"{name}", after=["kept"])
            mine.claim("model-1", f"{name}-b", after=[f"{name}"])
            mine.make("model-1", f"{name}-b", f"digest {name}")
            mine.commit("model-1", f"{name}-b")
            results.put("made")
        except ReservationTaken:
            results.put("refused")
    except Exception as problem:
        results.put(f"{type(problem).__name__}: {problem}")


def test_of_six_processes_from_one_copy_one_goes_on(place: Place) -> None:
    reserved(place).claim("model-1", "kept")
    results: Queue[str] = PROCESSES.Queue()
    start = PROCESSES.Barrier(6)
    workers = [PROCESSES.Process(target=rival, args=(name, place, start, results)) for name in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(results.get() for _ in workers) == ["made"] + ["refused"] * 5
    assert str(found(place).release).startswith("digest ")


# Edits are noticed by whoever is about to rely on them, not only when the ledger is opened.

EDITS = [
    "UPDATE ledger_reservations SET attempt = NULL",
    "UPDATE ledger_reservations SET attempt = repeat_f",
    "UPDATE ledger_reservations SET release = NULL",
    "UPDATE ledger_reservations SET state = 'aborted'",
    "UPDATE ledger_reservations SET purpose = 'another'",
    "UPDATE ledger_reservations SET asked_epsilon_nanos = 1",
    "UPDATE ledger_reservations SET last_entry = 2",
    "UPDATE ledger_reservations SET first_entry = 1",
    "UPDATE ledger_entries SET contents = replace(contents, 'make', 'claim') WHERE sequence = 4",
    "DELETE FROM ledger_entries WHERE sequence = 2",
]


def test_an_edited_reservation_is_noticed_where_it_is_used(sqlite_place: Place) -> None:
    store = reserved(sqlite_place)
    store.claim("model-1", "one")
    store.make("model-1", "one", "digest")
    store.reserve("model-2", LINE, COST, "a test")  # so that no edit is of the last entry
    sqlite_place.backup()
    uses: list[Callable[[], object]] = [
        lambda: store.claim("model-1", "two"),
        lambda: store.make("model-1", "two", "other"),
        lambda: store.commit("model-1", "one"),
        lambda: store.reservation("model-1"),
        lambda: sqlite_place.open(),
    ]
    for edit in EDITS:
        sqlite_place.restore()
        sqlite_place.sql(edit.replace("repeat_f", f"'{'f' * 64}'"))
        for use in uses:
            with pytest.raises(LedgerCorrupt):
                use()


def test_an_entry_that_was_edited_and_hashed_again_is_noticed_where_it_is_used(sqlite_place: Place) -> None:
    """It is whole, and its reservation is what it says; but the entry after it follows another one."""
    store = reserved(sqlite_place)
    store.make("model-1", "one", "digest")
    store.reserve("model-2", LINE, COST, "a test")
    store.reserve("model-3", LINE, COST, "a test")
    before = store.reservation("model-1")
    ((previous, contents),) = sqlite_place.sql(
        "SELECT previous, contents FROM ledger_entries WHERE sequence = 3"
    )
    event = decode_event(contents)
    assert isinstance(event, ReleaseMade)
    edited = next_chain_entry(ChainHead(2, previous), replace(event, release="another"))
    assert is_intact(edited)
    values = {"contents": edited.contents, "hash": edited.hash}
    sqlite_place.sql(
        "UPDATE ledger_entries SET contents = :contents, hash = :hash WHERE sequence = 3", **values
    )
    sqlite_place.sql("UPDATE ledger_reservations SET release = 'another' WHERE key = 'model-1'")
    with pytest.raises(LedgerCorrupt, match="entry 3 is not whole or not followed by the next"):
        store.reservation("model-1")
    assert before is not None
    assert before.release == "digest"


def test_a_ledger_of_version_1_is_claimed_like_any_other(place: Place) -> None:
    place.load_version_1()
    store = place.open()
    store.claim("clicks/model-2", "one")
    refused(lambda: store.claim("clicks/model-2", "two"), lambda: store.claim("clicks/model-1", "two"))
    store.make("clicks/model-2", "one", "digest")
    store.commit("clicks/model-2", "one")
    assert place.open().verify().head.sequence == 10
