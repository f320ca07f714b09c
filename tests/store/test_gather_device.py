"""A device chooses a run's events once and makes a round's upload once, whatever happens to its process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, GatherError, Refused
from tacit.gather.client.contributions import ChosenEvents, Contributions, Event
from tacit.gather.client.reporter import MemoryDeviceStore, Outbox
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.store.gather_device import SqlDeviceStore

Device = MemoryDeviceStore | SqlDeviceStore
MOST, LEVELS = 4, 3
DIGEST, OTHER = bytes(32), bytes([1]) * 32


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Device]:
    """The same memory once more at every call."""
    if request.param == "memory":
        only = MemoryDeviceStore()
        return lambda: only
    return lambda: SqlDeviceStore.open(tmp_path / "device.sqlite")


def shown(*ads: int) -> list[Event]:
    return [Event((f"page {ad}",), ad, clicked=ad % 2 == 0) for ad in ads]


# One contract, in memory and on disk.


def test_the_first_upload_and_the_first_choice_win(opened: Callable[[], Device]) -> None:
    device = opened()
    outbox: Outbox = device
    chosen: ChosenEvents = device
    assert (outbox.find(DIGEST), chosen.find_chosen("clicks")) == (None, None)
    assert (outbox.keep(DIGEST, b"first"), outbox.keep(DIGEST, b"second")) == (b"first", b"first")
    assert chosen.keep_chosen("clicks", b"events") == chosen.keep_chosen("clicks", b"others") == b"events"
    assert device.keep(OTHER, b"") == b""
    again = opened()
    assert (again.find(DIGEST), again.find(OTHER), again.find_chosen("clicks")) == (b"first", b"", b"events")
    assert again.keep_chosen("clicks", b"others") == b"events"
    assert (again.find_chosen("Clicks"), again.find(bytes(31))) == (None, None)


def test_what_is_erased_is_gone_and_not_made_again(opened: Callable[[], Device]) -> None:
    device = opened()
    device.keep(DIGEST, b"upload")
    device.keep_chosen("clicks", b"events")
    device.erase()
    again = opened()
    with pytest.raises(GatherError, match="forgotten"):
        again.find(DIGEST)
    with pytest.raises(GatherError, match="forgotten"):
        again.find_chosen("clicks")
    assert again.keep_chosen("visits", b"later") == b"later"


def test_events_that_came_later_change_nothing(opened: Callable[[], Device]) -> None:
    first = Contributions.once("clicks", shown(*range(50)), MOST, Entropy(), opened())
    assert len(first.events) == MOST
    for later in (shown(*range(50, 99)), shown(), shown(*range(50))):
        assert Contributions.once("clicks", later, MOST, Entropy(), opened()) == first
    # No events at all is a choice too.
    assert Contributions.once("quiet", [], MOST, Entropy(), opened()).events == ()
    assert Contributions.once("quiet", shown(1), MOST, Entropy(), opened()).events == ()


def test_each_run_has_its_own_choice(opened: Callable[[], Device]) -> None:
    runs = [Contributions.once(f"run {n}", shown(*range(50)), MOST, Simulation(n), opened()) for n in range(8)]
    assert len(set(runs)) > 1
    drawn = Contributions.choose(shown(*range(50)), MOST, Simulation(3))
    assert runs[3] == drawn, "the same uniform choice as ever"


def test_another_bound_for_a_run_that_is_kept_is_refused(opened: Callable[[], Device]) -> None:
    first = Contributions.once("clicks", shown(1, 2, 3), 2, Entropy(), opened())
    for most in (1, 3):
        with pytest.raises(Refused, match=f"expected most=2, .*, got {most}$") as refusal:
            Contributions.once("clicks", shown(1, 2, 3), most, Entropy(), opened())
        assert refusal.value.reason is MessageVerdict.CONFLICT
    assert Contributions.once("clicks", [], 2, Entropy(), opened()) == first


def test_what_can_not_be_meant_keeps_nothing(opened: Callable[[], Device]) -> None:
    for task, most in [("", 2), ("a\nb", 2), ("clicks", 0), ("clicks", 10**6)]:
        with pytest.raises(BadInput):
            Contributions.once(task, shown(1), most, Entropy(), opened())
    assert opened().find_chosen("clicks") is None
    opened().keep_chosen("torn", b"no events at all")
    with pytest.raises(Refused) as refusal:
        Contributions.once("torn", shown(1), 2, Entropy(), opened())
    assert refusal.value.reason is MessageVerdict.MALFORMED


def test_a_rival_that_was_faster_is_followed(opened: Callable[[], Device]) -> None:
    """Between a device's look and its keeping, another process of it has chosen."""
    device = opened()
    rival = Contributions.choose(shown(7), MOST, Entropy())

    class Slow:
        def find_chosen(self, task: str) -> bytes | None:
            found = device.find_chosen(task)
            device.keep_chosen(task, rival.to_bytes())
            return found

        keep_chosen = device.keep_chosen

    assert Contributions.once("clicks", shown(*range(50)), MOST, Entropy(), Slow()) == rival


def test_the_forgotten_is_never_made_again(opened: Callable[[], Device]) -> None:
    device = opened()
    kept = Contributions.once("kept", shown(1), MOST, Entropy(), device)
    Contributions.once("over", shown(1), MOST, Entropy(), device)
    for digest in (DIGEST, OTHER):
        device.keep(digest, b"upload")
    for _ in range(2):
        device.forget("over", [DIGEST])
        device.forget("never begun")
    for task in ("over", "never begun"):
        with pytest.raises(GatherError, match="events of this run were forgotten"):
            Contributions.once(task, shown(2), MOST, Entropy(), opened())
        with pytest.raises(GatherError, match="forgotten"):
            opened().keep_chosen(task, b"events")
    with pytest.raises(GatherError, match="upload of this round was forgotten"):
        opened().find(DIGEST)
    with pytest.raises(GatherError, match="upload of this round was forgotten"):
        opened().keep(DIGEST, b"second")
    assert opened().find(OTHER) == b"upload"
    assert Contributions.once("kept", shown(2), MOST, Entropy(), opened()) == kept


# Restarts and rivals.

CHILD = """
import os, signal, sys
from tacit.entropy import Entropy
from tacit.gather.client.contributions import Contributions, Event
from tacit.store.gather_device import SqlDeviceStore
place, first, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
memory = SqlDeviceStore.open(place)
events = [Event(("page",), ad, False) for ad in range(first, first + 50)]
chosen = Contributions.once("clicks", events, most, Entropy(), memory)
print(*(event.ad for event in chosen.events), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def started(place: str, first: int) -> subprocess.Popen[str]:
    """A device that answers one level, with events of its own time, and is killed."""
    arguments = [sys.executable, "-c", CHILD, place, str(first), str(MOST)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def ads_of(process: subprocess.Popen[str]) -> set[int]:
    said, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    return {int(ad) for ad in said.split()}


def test_a_device_killed_between_levels_lets_no_more_events_in(tmp_path: Path) -> None:
    place = str(tmp_path / "device.sqlite")
    levels = [ads_of(started(place, 50 * level)) for level in range(LEVELS)]
    assert len(set.union(*levels)) == MOST
    # The twin: with a memory that begins anew, each level brings events of its own.
    forgetful = [
        Contributions.once(
            "clicks", shown(*range(50 * level, 50 * level + 50)), MOST, Entropy(), MemoryDeviceStore()
        )
        for level in range(LEVELS)
    ]
    assert len({event.ad for chosen in forgetful for event in chosen.events}) == LEVELS * MOST


def test_processes_that_share_a_file_have_one_choice(tmp_path: Path) -> None:
    place = str(tmp_path / "device.sqlite")
    rivals = [started(place, 50 * number) for number in range(3)]  # the file is made by one of them
    chosen = [ads_of(rival) for rival in rivals]
    assert chosen[0] == chosen[1] == chosen[2]
    assert len(chosen[0]) == MOST


def test_threads_that_share_a_file_have_one_choice(tmp_path: Path) -> None:
    memory = SqlDeviceStore.open(tmp_path / "device.sqlite")
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda number: memory.keep(DIGEST, b"upload %d" % number), range(8)))
    assert len(set(kept)) == 1
    assert memory.find(DIGEST) == kept[0]


# The file.


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "device.sqlite"
    before = os.umask(0)
    try:
        SqlDeviceStore.open(path).keep(DIGEST, b"upload")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()] == [0o600]
    for mode in (0o644, 0o640, 0o602):
        path.chmod(mode)
        with pytest.raises(GatherError, match=f"got mode {mode:o}; chmod 600 {path}$"):
            SqlDeviceStore.open(path)
        assert stat.S_IMODE(path.stat().st_mode) == mode
    path.chmod(0o600)
    assert SqlDeviceStore.open(path).find(DIGEST) == b"upload"


def test_what_is_kept_is_synced_and_what_is_forgotten_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "device.sqlite"
    memory = SqlDeviceStore.open(path)
    with memory._transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
    # Short ones lie within a page, long ones on pages of their own.
    for task, length in [("short", 1), ("long", 1000)]:
        memory.keep_chosen(task, f"marked event of {task} ".encode() * length)
        memory.keep(task.encode(), f"marked upload of {task} ".encode() * length)
        assert path.read_bytes().count(b"marked") > length  # some are cut by the ends of pages
        memory.forget(task, [task.encode()])
        assert b"marked" not in path.read_bytes()


def test_what_is_no_device_store_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    garbage, other, newer = (tmp_path / name for name in ("garbage", "other", "newer"))
    garbage.touch(0o600)
    garbage.write_bytes(b"no database at all" * 400)
    other.touch(0o600)
    with create_engine(f"sqlite:///{other}").begin() as connection:
        connection.execute(text("CREATE TABLE diary (line TEXT)"))
    SqlDeviceStore.open(newer)
    with create_engine(f"sqlite:///{newer}").begin() as connection:
        connection.execute(text("PRAGMA user_version = 7"))
    before = [path.read_bytes() for path in (garbage, other, newer)]
    for path, words in [
        (garbage, "is torn or not a device store at all"),
        (other, "expected a device store or nothing at .*, got tables diary$"),
        (newer, "expected a device store of version 1 at .*, got version 7$"),
        (tmp_path / "missing" / "device.sqlite", "could not be used: No such file or directory$"),
        (tmp_path, "could not be used: unable to open database file$"),
    ]:
        with pytest.raises(GatherError, match=words):
            SqlDeviceStore.open(path)
    assert [path.read_bytes() for path in (garbage, other, newer)] == before
    with pytest.raises(BadInput, match="expected the path of a device store"):
        SqlDeviceStore.open("postgresql://somewhere/else")


def test_a_file_that_was_removed_is_not_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "device.sqlite"
    memory = SqlDeviceStore.open(path)
    memory.keep(DIGEST, b"upload")
    path.unlink()
    with pytest.raises(GatherError, match=r"it was removed$"):
        memory.find(DIGEST)
    assert not path.exists()
