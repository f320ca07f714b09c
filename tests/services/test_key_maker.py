"""Token keys that are drawn ahead: as many as an epoch took, each handed out once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tacit.bill.server.token_keys import TokenKey
from tacit.services.http_clients import LinkFailed
from tacit.services.key_maker import KeyMaker


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Keys that take no time, in the order in which they were drawn."""
    found: list[object] = []

    def generate() -> object:
        found.append(key := object())
        return key

    monkeypatch.setattr(TokenKey, "generate", generate)
    return found


def wait_until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.002)


def test_as_many_as_an_epoch_took_are_drawn_for_the_next(drawn: list[object]) -> None:
    keys = KeyMaker(workers=2)
    keys.expect(5)
    assert not drawn, "nothing is drawn by a process that asks for none"
    first = [keys() for _ in range(5)]
    wait_until(lambda: len(drawn) >= 10)
    time.sleep(0.02)
    assert len(drawn) == 10, "the stock is full"
    keys.expect(5)
    second = [keys() for _ in range(5)]
    assert len({*map(id, first), *map(id, second)}) == 10
    wait_until(lambda: len(drawn) == 15)
    keys.end()
    with pytest.raises(LinkFailed, match="ending"):
        keys()


def test_the_stock_is_bounded(drawn: list[object]) -> None:
    keys = KeyMaker(workers=1, most=3)
    keys.expect(100)
    keys()
    wait_until(lambda: len(drawn) >= 4)
    time.sleep(0.02)
    assert len(drawn) == 4
    keys.end()


def test_without_workers_keys_are_drawn_when_they_are_asked_for(drawn: list[object]) -> None:
    keys = KeyMaker()
    keys.expect(9)
    assert keys() is drawn[0]
    assert len(drawn) == 1


def test_threads_end_with_the_service(drawn: list[object]) -> None:
    keys = KeyMaker(workers=2)
    keys.expect(1)
    keys()
    drawing = [each for each in threading.enumerate() if each.name.startswith("token-keys")]
    assert len(drawing) >= 2
    wait_until(lambda: len(drawn) == 2)
    keys.end()
    wait_until(lambda: not any(each.is_alive() for each in drawing[-2:]))


def test_real_keys_differ() -> None:
    keys = KeyMaker(workers=1)
    keys.expect(2)
    assert len({keys().public for _ in range(3)}) == 3
    keys.end()
