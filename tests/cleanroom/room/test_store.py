"""What the room keeps: one contract for memory and file, and counts that outlive a process dying anywhere."""

from __future__ import annotations

import copy
import multiprocessing
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cleanroom.protocol.audit_log import next_entry, verify_log
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.room.payment import budget_line, release_ledger_key, release_name
from tacit.cleanroom.room.store import MemoryRoomStore, StoredAnswer
from tacit.errors import BadInput, RoomError, RoomRefused
from tacit.privacy.ledger.chain import START
from tacit.store.ledger import LedgerStore
from tacit.store.room import WITNESS_SUBJECT, SqlRoomStore
from tacit.store.tamper_evidence import RollbackWitness
from tests.support.cleanroom_rooms import (
    NOW,
    PLATFORM,
    a_room,
    begin,
    for_labels,
    honest_step,
    noised_terms,
    some_table,
    some_tokens,
    terms,
)
from tests.support.cleanroom_store_children import (
    AGREED,
    COMMIT_MOMENTS,
    LEDGER_MOMENTS,
    WRITES,
    durable_room,
    dying,
    release,
    rival,
)

PROCESSES = multiprocessing.get_context("forkserver")
# Modules of the package only: the server does not know where tests are.
PROCESSES.set_forkserver_preload(
    ["pytest", "tacit.cleanroom.room.party", "tacit.store.ledger", "tacit.store.room"]
)
SECONDS = 60


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryRoomStore() if request.param == "memory" else SqlRoomStore.open(tmp_path / "room.sqlite")


class GivenUp(Exception):
    """To leave a transaction by."""


# --- the contract


def test_values_are_kept_and_replaced(store: Any) -> None:
    with store.transaction() as transaction:
        assert transaction.get("labels/one") is None
        transaction.put("labels/one", b"first")
        transaction.put("labels/two", b"")
        assert transaction.get("labels/one") == b"first"
    with store.transaction() as transaction:
        transaction.put("labels/one", b"second")
    with store.transaction() as transaction:
        assert (transaction.get("labels/one"), transaction.get("labels/two")) == (b"second", b"")


def test_an_answer_is_remembered_under_release_run_and_number(store: Any) -> None:
    answered = StoredAnswer(b"asked", b"answer")
    with store.transaction() as transaction:
        transaction.put_answer("release", "run", 3, answered)
        assert transaction.get_answer("release", "run", 3) == answered
    with store.transaction() as transaction:
        assert transaction.get_answer("release", "run", 3) == answered
        others = [("release", "run", 4), ("release", "other", 3), ("other", "run", 3)]
        assert [transaction.get_answer(*other) for other in others] == [None, None, None]
    with pytest.raises(RoomError), store.transaction() as transaction:
        transaction.put_answer("release", "run", 3, answered)


def test_records_are_counted_up_to_the_most_and_all_or_none(store: Any) -> None:
    records = some_tokens(6)

    def count(which: np.ndarray, most: int, release_of: str = "release") -> bool:
        try:
            with store.transaction() as transaction:
                if not transaction.count(release_of, which, most):
                    raise GivenUp
        except GivenUp:
            return False
        return True

    assert count(records[:4], 2)
    assert count(records[:2], 2)
    assert not count(records, 2)  # two of them are at two
    assert count(records[2:], 2)  # and the others were left as they were: at one, and at none
    assert count(records[4:], 2)
    assert not count(records[5:], 2)
    assert count(records, 2, "another release")
    assert count(records[:0], 2)
    assert not count(records[:1], 1, "another release")


def test_a_look_sees_what_is_left_and_changes_nothing(store: Any) -> None:
    records = some_tokens(1100)  # more than are looked up at once
    with store.transaction() as transaction:
        assert transaction.count("release", records[:1000], 2)
        assert transaction.count("release", records[999:1050], 2)
        transaction.put("key", b"value")
        transaction.put_answer("release", "run", 0, StoredAnswer(b"asked", b"answer"))
        assert not transaction.has_releases_left("release", records[999:1000], 2)
    with store.reading() as view:
        assert view.has_releases_left("release", records[:999], 2)
        assert not view.has_releases_left("release", records[:1000], 2)
        assert not view.has_releases_left("release", records, 2)
        assert view.has_releases_left("release", records, 3)
        assert view.has_releases_left("release", records[1000:], 2)
        assert not view.has_releases_left("release", records[1000:], 1)
        assert view.has_releases_left("release", records[1050:], 1)
        assert view.has_releases_left("another release", records, 1)
        assert view.has_releases_left("release", records[:0], 1)
        assert view.get("key") == b"value"
        assert view.get_answer("release", "run", 0) == StoredAnswer(b"asked", b"answer")
    with store.transaction() as transaction:
        assert transaction.count("release", records[1050:], 1)


def test_the_log_takes_only_the_entry_that_follows(store: Any) -> None:
    with store.transaction() as transaction:
        assert transaction.head() == START
        first = next_entry(transaction.head(), {"kind": "one"})
        transaction.append(first)
        assert transaction.head() == first.head
    with store.transaction() as transaction:
        second = next_entry(transaction.head(), {"kind": "two"})
        transaction.append(second)
    for wrong in (first, second, next_entry(first.head, {"kind": "three"})):
        with pytest.raises(RoomError), store.transaction() as transaction:
            transaction.append(wrong)
    assert store.entries(0, 10) == [first, second]
    assert store.entries(1, 10) == [second]
    assert store.entries(0, 1) == [first]
    assert store.entries(2, 10) == []


def test_a_transaction_that_is_given_up_leaves_nothing(store: Any) -> None:
    with suppress(GivenUp), store.transaction() as transaction:
        transaction.put("key", b"value")
        transaction.put_answer("release", "run", 0, StoredAnswer(b"asked", b"answer"))
        assert transaction.count("release", some_tokens(3), 1)
        transaction.append(next_entry(transaction.head(), {"kind": "one"}))
        raise GivenUp
    with store.transaction() as transaction:
        assert transaction.get("key") is None
        assert transaction.get_answer("release", "run", 0) is None
        assert transaction.head() == START
        assert transaction.count("release", some_tokens(3), 1)


# --- the file


def test_a_store_is_its_owners_alone_and_no_other_file_is_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "room.sqlite"
    SqlRoomStore.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(RoomError, match="owner"):
        SqlRoomStore.open(path)
    foreign = tmp_path / "foreign.sqlite"
    LedgerStore.open(foreign)
    before = foreign.read_bytes()
    with pytest.raises(RoomError, match="expected a room store"):
        SqlRoomStore.open(foreign)
    assert foreign.read_bytes() == before
    torn = tmp_path / "torn.sqlite"
    torn.write_bytes(b"no database at all" * 500)
    torn.chmod(0o600)
    with pytest.raises(RoomError):
        SqlRoomStore.open(torn)
    with pytest.raises(BadInput, match="path"):
        SqlRoomStore.open("postgresql://somewhere/room")


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "room.sqlite"
    SqlRoomStore.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(RoomError, match="version"):
        SqlRoomStore.open(path)


def test_a_store_of_the_version_before_goes_on(tmp_path: Path) -> None:
    """It had no runs that set releases aside, and its payment was settled without a name."""
    agreed = noised_terms(noise="laplace", delta=0, releases_per_record=2)
    room = room_at(tmp_path, tmp_path, agreed)
    ledger, key = (
        LedgerStore.open_existing(tmp_path / "ledger.sqlite"),
        release_ledger_key(agreed, room._store_id),
    )
    ledger.reserve(key, budget_line(agreed), agreed.budget, f"clean room {agreed.name}")
    ledger.commit(key)
    before = room.step(*honest_step(agreed), peer=PLATFORM, now=NOW)
    room._store.close()
    with sqlite3.connect(tmp_path / "room.sqlite") as connection:
        connection.execute("DROP TABLE room_held")
        connection.execute("DELETE FROM room_values WHERE key LIKE 'holder/%'")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    again = room_at(tmp_path, tmp_path, agreed)
    assert np.array_equal(again.step(*honest_step(agreed), peer=PLATFORM, now=NOW).sum, before.sum)
    begin(again, "run", releases=1)
    again.step(*honest_step(agreed, number=1), peer=PLATFORM, now=NOW)
    with pytest.raises(RoomRefused, match=RoomRefusal.RECORD_EXHAUSTED.words):
        begin(again, "other", releases=1)


def test_a_removed_file_is_noticed(tmp_path: Path) -> None:
    store = SqlRoomStore.open(tmp_path / "room.sqlite")
    (tmp_path / "room.sqlite").unlink()
    with pytest.raises(RoomError, match="removed"), store.transaction():
        pass


def test_commits_are_synced_before_they_return(tmp_path: Path) -> None:
    store = SqlRoomStore.open(tmp_path / "room.sqlite")
    with store._database.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() in (2, 3)  # FULL or EXTRA
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_no_label_and_no_sum_is_in_the_file(tmp_path: Path) -> None:
    """Whoever steals it finds tokens and digests: the same sizes of rows, whatever the labels are."""
    room = durable_room(tmp_path)
    release(room)
    with sqlite3.connect(tmp_path / "room.sqlite") as connection:
        used = {row[0] for row in connection.execute("SELECT DISTINCT used FROM room_counts")}
        keys = {row[0].split("/")[0] for row in connection.execute("SELECT key FROM room_values")}
    connection.close()
    assert used == {1}
    assert keys == {"agreement", "begun", "bytes", "found", "holder", "labels", "paid", "store", "terms"}


# --- dying


def in_child(target: Callable[..., None], *given: Any) -> int:
    process = PROCESSES.Process(target=target, args=given)
    process.start()
    process.join(SECONDS)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def counts(folder: Path) -> list[int]:
    with sqlite3.connect(folder / "room.sqlite") as connection:
        found = [row[0] for row in connection.execute("SELECT used FROM room_counts")]
    connection.close()
    return found


MOMENTS = (*LEDGER_MOMENTS, *COMMIT_MOMENTS, *(str(number) for number in range(1, WRITES + 1)))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return release(durable_room(tmp_path_factory.mktemp("uninterrupted"))).sum


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_release_that_dies_anywhere_is_counted_at_most_once_and_can_be_had_again(
    moment: str, tmp_path: Path, uninterrupted: Any
) -> None:
    assert in_child(dying, str(tmp_path), moment) == 9
    assert not (tmp_path / "answer").exists()
    found = counts(tmp_path)
    assert found in ([], [1] * 32), "all or none"
    assert bool(found) == (
        moment in ("before the ledger swaps", "after the ledger swapped", "after the commit")
    )
    room = durable_room(tmp_path)
    assert np.array_equal(release(room).sum, uninterrupted)
    assert counts(tmp_path) == [1] * 32
    account = LedgerStore.open_existing(tmp_path / "ledger.sqlite").account(budget_line(AGREED))
    assert account is not None
    assert account.used.budget == AGREED.budget
    with pytest.raises(RoomRefused, match=RoomRefusal.RECORD_EXHAUSTED.words):
        release(room, number=1)
    entries = room.audit(0, peer=PLATFORM)
    verify_log(entries)
    charged = [entry.event["charged"] for entry in entries if entry.event["kind"] == "step"]
    assert sorted(set(charged)) in ([str(AGREED.budget)], [str(AGREED.budget), "nothing"])
    assert charged.count(str(AGREED.budget)) == 1


def test_the_moments_cover_every_write_of_a_release(tmp_path: Path) -> None:
    assert in_child(dying, str(tmp_path), str(WRITES + 1)) == 0
    assert (tmp_path / "answer").exists()


def test_of_rivals_for_the_last_release_one_is_answered(tmp_path: Path) -> None:
    durable_room(tmp_path)
    start, results = PROCESSES.Barrier(3), PROCESSES.Queue()
    rivals = [
        PROCESSES.Process(target=rival, args=(str(tmp_path), number, start, results)) for number in range(3)
    ]
    for process in rivals:
        process.start()
    found = sorted(results.get(timeout=SECONDS) for _ in rivals)
    for process in rivals:
        process.join(SECONDS)
    assert found == ["answered", "record_exhausted", "record_exhausted"]
    assert counts(tmp_path) == [1] * 32


def test_release_names_and_tokens_are_all_that_counts_are_kept_under(tmp_path: Path) -> None:
    release(durable_room(tmp_path))
    with sqlite3.connect(tmp_path / "room.sqlite") as connection:
        names = [row[0] for row in connection.execute("SELECT release FROM room_releases")]
        records = {bytes(row[0]) for row in connection.execute("SELECT record FROM room_counts")}
    connection.close()
    assert names == [release_name(AGREED)]
    assert records == {each.tobytes() for each in some_tokens(32)}


def test_an_old_copy_of_the_store_is_refused(tmp_path: Path) -> None:
    path, old = tmp_path / "room.sqlite", tmp_path / "old.sqlite"
    store = SqlRoomStore.open(path)
    with store.transaction() as transaction:
        transaction.append(next_entry(transaction.head(), {"kind": "first"}))
    store.close()
    shutil.copy(path, old)
    store = SqlRoomStore.open(path)
    with store.transaction() as transaction:
        transaction.append(next_entry(transaction.head(), {"kind": "second"}))
        assert transaction.count("release", some_tokens(3), 1)
    store.close()
    shutil.copy(old, path)
    with pytest.raises(RoomError, match="an old copy was put back"):
        SqlRoomStore.open(path)


def test_a_store_needs_its_witness_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "room.sqlite"
    store = SqlRoomStore.open(path)
    with store.transaction() as transaction:
        transaction.append(next_entry(transaction.head(), {"kind": "first"}))
    store.close()
    (tmp_path / "room.sqlite.witness").unlink()
    with pytest.raises(RoomError, match="expected the room store's witness"):
        SqlRoomStore.open(path)


def test_a_witness_kept_elsewhere_is_used(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "room.sqlite", tmp_path / "other" / "witness"
    elsewhere.parent.mkdir()
    store = SqlRoomStore.open(path, witness=elsewhere)
    assert (
        RollbackWitness(elsewhere, WITNESS_SUBJECT).read() == START
    )  # a process that dies before its first entry loses nothing
    with store.transaction() as transaction:
        transaction.append(next_entry(transaction.head(), {"kind": "first"}))
        head = transaction.head()
    assert RollbackWitness(elsewhere, WITNESS_SUBJECT).read() == head


# --- copies


def copied(folder: Path, place: Path) -> Path:
    """The store with its witness, as in a snapshot of the machine; the ledger is elsewhere, and one."""
    place.mkdir()
    for each in folder.glob("room.sqlite*"):
        shutil.copy(each, place)
    return place


def room_at(place: Path, ledger: Path, agreed: Any, table: Any = None) -> Any:
    store = SqlRoomStore.open(place / "room.sqlite")
    return a_room(agreed, table, store=store, ledger=LedgerStore.open(ledger / "ledger.sqlite"))


def test_of_copies_of_a_store_one_goes_on(tmp_path: Path) -> None:
    agreed = noised_terms(noise="laplace", delta=0, releases_per_record=3)
    room = room_at(tmp_path, tmp_path, agreed)
    ask = partial(honest_step, agreed)
    room.step(*ask(number=0), peer=PLATFORM, now=NOW)
    early = copied(tmp_path, tmp_path / "early")
    room.step(*ask(number=1), peer=PLATFORM, now=NOW)
    late, later = copied(tmp_path, tmp_path / "late"), copied(tmp_path, tmp_path / "later")
    with pytest.raises(
        RoomError, match="another copy of this store has counted releases that it knows nothing"
    ):
        room_at(early, tmp_path, agreed)
    same = room_at(late, tmp_path, agreed)  # as the original stands: whoever counts first goes on
    same.step(*ask(number=1), peer=PLATFORM, now=NOW)  # what is kept is kept in both, and is the same
    same.step(*ask(number=2), peer=PLATFORM, now=NOW)
    with pytest.raises(RoomError, match="another copy"):
        room.step(*ask(number=2, run="other"), peer=PLATFORM, now=NOW)
    with pytest.raises(RoomError, match="another copy"):
        room_at(later, tmp_path, agreed)
    used = LedgerStore.open_existing(tmp_path / "ledger.sqlite").account(budget_line(agreed))
    assert used is not None
    assert used.used.budget == agreed.budget


ROOMS = ("memory", "sqlite")


def room_in(kind: str, folder: Path, agreed: Any) -> Any:
    return a_room(agreed) if kind == "memory" else room_at(folder, folder, agreed)


@pytest.mark.parametrize("kind", ROOMS)
def test_calls_that_overlap_are_not_taken_for_copies(kind: str, tmp_path: Path) -> None:
    """Between one call's look at its tokens and its claim, another call counts and claims."""
    agreed = noised_terms(noise="laplace", delta=0, releases_per_record=5)
    room = room_in(kind, tmp_path, agreed)
    claim, between = room._ledger.claim, [3, 2, 1]

    def slow_claim(*given: Any, after: Any) -> Any:
        if between:
            room.step(*honest_step(agreed, number=between.pop()), peer=PLATFORM, now=NOW)
        return claim(*given, after=after)

    room._ledger.claim = slow_claim
    room.step(*honest_step(agreed, number=0), peer=PLATFORM, now=NOW)
    assert not between
    room.step(*honest_step(agreed, number=4), peer=PLATFORM, now=NOW)


@pytest.mark.parametrize("kind", ROOMS)
def test_threads_that_share_a_room_are_not_taken_for_copies(kind: str, tmp_path: Path) -> None:
    agreed = noised_terms(noise="laplace", delta=0, releases_per_record=40)
    room = room_in(kind, tmp_path, agreed)
    asked = [honest_step(agreed, 8, number=number) for number in range(40)]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda each: room.step(*each, peer=PLATFORM, now=NOW), asked))
    assert len({answer.sum.tobytes() for answer in answers}) == 40
    with pytest.raises(RoomRefused, match=RoomRefusal.RECORD_EXHAUSTED.words):
        room.step(*honest_step(agreed, 8, number=40), peer=PLATFORM, now=NOW)


def test_a_copy_from_before_the_first_release_makes_none_of_its_own(tmp_path: Path) -> None:
    room = room_at(tmp_path, tmp_path, AGREED)
    early = copied(tmp_path, tmp_path / "early")
    both = room, room_at(early, tmp_path, AGREED)
    release(both[0])
    with pytest.raises(RoomError, match="another copy"):
        release(both[1], run="other")
    ledger = LedgerStore.open_existing(tmp_path / "ledger.sqlite")
    ledger.hand_over([release_ledger_key(AGREED, both[0]._store_id)])  # its machine is lost, says the operator
    release(both[1], run="other")
    with pytest.raises(RoomError, match="another copy"):
        release(both[0], first=32, number=5)


def test_what_is_settled_by_hand_stops_the_room(tmp_path: Path) -> None:
    agreed = noised_terms(noise="laplace", delta=0, releases_per_record=3)
    room = room_at(tmp_path, tmp_path, agreed)
    room.step(*honest_step(agreed), peer=PLATFORM, now=NOW)
    ledger, key = (
        LedgerStore.open_existing(tmp_path / "ledger.sqlite"),
        release_ledger_key(agreed, room._store_id),
    )
    known = ledger.reservation(key)
    assert known is not None
    assert known.purpose.endswith("held as long as it is open, not to be settled")
    ledger.commit(key, certain=True)
    with pytest.raises(RoomError, match="was settled by hand"):
        room.step(*honest_step(agreed, number=1), peer=PLATFORM, now=NOW)


def copies_in(kind: str, folder: Path, agreed: Any) -> tuple[Any, Any]:
    """A room that has counted one release, and another one on a copy of its store; they share the ledger."""
    room = room_in(kind, folder, agreed)
    room.step(*honest_step(agreed), peer=PLATFORM, now=NOW)
    if kind == "sqlite":
        return room, room_at(copied(folder, folder / "copy"), folder, agreed)
    store = MemoryRoomStore()
    store._state = copy.deepcopy(room._store._state)
    return room, a_room(agreed, store=store, ledger=room._ledger)


def by_hand(ledger: Any, key: str, decide: Callable[[Any], Any]) -> None:
    """What an operator decides, in either ledger."""
    if isinstance(ledger, LedgerStore):
        ledger._decide(decide, key=key)
    else:
        ledger._decide([decide])


@pytest.mark.parametrize("handed_over", [False, True])
@pytest.mark.parametrize("kind", ROOMS)
def test_what_is_handed_over_and_settled_by_hand_stops_every_copy(
    kind: str, handed_over: bool, tmp_path: Path
) -> None:
    agreed = noised_terms(noise="laplace", delta=0, releases_per_record=3)
    rooms = copies_in(kind, tmp_path, agreed)
    key = release_ledger_key(agreed, rooms[0]._store_id)
    if handed_over:
        by_hand(rooms[0]._ledger, key, lambda ledger: ledger.hand_over(key))
    by_hand(rooms[0]._ledger, key, lambda ledger: ledger.commit(key, certain=True))
    for number, room in enumerate(rooms, 1):
        with pytest.raises(RoomError, match="was settled by hand"):
            room.step(*honest_step(agreed, number=number), peer=PLATFORM, now=NOW)


def test_what_was_settled_by_hand_before_ledgers_said_so_stops_every_copy(tmp_path: Path) -> None:
    """The chain has a plain commit after the hand-over; the purpose tells that the room knew of tokens."""
    agreed = noised_terms(noise="laplace", delta=0, releases_per_record=3)
    rooms = copies_in("sqlite", tmp_path, agreed)
    ledger, key = (
        LedgerStore.open_existing(tmp_path / "ledger.sqlite"),
        release_ledger_key(agreed, rooms[0]._store_id),
    )
    ledger.hand_over([key])
    ledger.commit(key)
    for number, room in enumerate(rooms, 1):
        with pytest.raises(RoomError, match="was settled by hand"):
            room.step(*honest_step(agreed, number=number), peer=PLATFORM, now=NOW)


def test_a_copy_flips_no_other_labels(tmp_path: Path) -> None:
    """Flips of the same labels are the same from every copy; of others they would be more than was paid for."""
    agreed = terms(mode=Mode.RELEASE)
    room = room_at(tmp_path, tmp_path, agreed)
    early = copied(tmp_path, tmp_path / "early")
    changed = copied(tmp_path, tmp_path / "changed")
    first = room.labels(*for_labels(agreed, some_tokens(64)), peer=PLATFORM, now=NOW)
    same = room_at(early, tmp_path, agreed)
    again = same.labels(*for_labels(agreed, some_tokens(64)), peer=PLATFORM, now=NOW)
    assert np.array_equal(first.labels, again.labels)
    other = room_at(changed, tmp_path, agreed, some_table(seed="others"))
    with pytest.raises(RoomRefused, match=RoomRefusal.LABELS_CHANGED.words):
        other.labels(*for_labels(agreed, some_tokens(64)), peer=PLATFORM, now=NOW)
