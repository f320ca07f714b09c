"""One process at a time owns what must not be done twice; another has it when the owner is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tacit.services import background
from tacit.services.background import OwnedTasks
from tacit.store.billing_ads import SCHEMA
from tacit.store.ownership import OWNER_LOCK, OwnerLock
from tests.support.ledger_places import Place

KIND = SCHEMA.kind


def wait_until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def end_sessions(where: str) -> None:
    """As a database does that is started again, or a network that is cut."""
    statement = (
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = :number"
    )
    with create_engine(where, poolclass=NullPool).begin() as connection:
        connection.execute(text(statement), {"number": OWNER_LOCK[0]})


def test_a_process_on_files_is_their_owner(tmp_path: Path) -> None:
    first, second = (OwnerLock([str(tmp_path / "ads.sqlite")], KIND) for _ in range(2))
    assert first.hold()
    assert second.hold()
    assert not first.is_shared


def test_one_of_two_holds_it_until_it_lets_go(postgres_place: Place, tmp_path: Path) -> None:
    places = [str(postgres_place.where), str(tmp_path / "gathered.sqlite")]
    first, second = OwnerLock(places, KIND), OwnerLock(places, KIND)
    assert (first.hold(), second.hold(), first.hold()) == (True, False, True)
    assert (first.is_held, second.is_held) == (True, False)
    first.release()
    assert (second.hold(), first.hold()) == (True, False)
    second.release()


def test_a_session_that_was_cut_holds_nothing(postgres_place: Place) -> None:
    first, second = (OwnerLock([str(postgres_place.where)], KIND) for _ in range(2))
    assert first.hold()
    end_sessions(str(postgres_place.where))
    wait_until(second.hold)
    assert not first.hold()
    assert not first.is_held
    second.release()
    assert first.hold()
    first.release()


def test_a_process_that_is_killed_lets_go(postgres_place: Place) -> None:
    code = (
        "import sys, time; from tacit.store.billing_ads import SCHEMA; "
        "from tacit.store.ownership import OwnerLock; "
        "lock = OwnerLock([sys.argv[1]], SCHEMA.kind); print(lock.hold(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(postgres_place.where)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        other = OwnerLock([str(postgres_place.where)], KIND)
        assert not other.hold()
        os.kill(child.pid, signal.SIGKILL)
        wait_until(other.hold)
        other.release()


class Task:
    """Notes when it runs and when it is to end."""

    def __init__(self, said: list[str]) -> None:
        self._said, self._ended = said, asyncio.Event()

    async def run(self) -> None:
        self._said.append("begun")
        await self._ended.wait()
        self._said.append("ended")

    def end(self) -> None:
        self._ended.set()


class Turns:
    """An owner whose answers are given beforehand."""

    is_shared, is_held = True, True

    def __init__(self, *answers: bool) -> None:
        self._answers, self.released = list(answers), False

    def hold(self) -> bool:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def release(self) -> None:
        self.released = True


def test_tasks_run_only_while_their_process_is_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "OWNER_SECONDS", 0.001)
    said: list[str] = []
    owner = Turns(False, True, True, False, True)

    async def run() -> None:
        tasks = OwnedTasks(owner, lambda: [Task(said)])
        running = asyncio.create_task(tasks.run())
        while said != ["begun", "ended", "begun"]:
            await asyncio.sleep(0.001)
        tasks.end()
        await running

    asyncio.run(asyncio.wait_for(run(), 10))
    assert said == ["begun", "ended", "begun", "ended"]
    assert owner.released
