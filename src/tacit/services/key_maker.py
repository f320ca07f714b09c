"""Token keys, drawn ahead of need: an epoch of many menus opens at once, and not when its last key was drawn.

A key of RSA takes some hundredths of a second of a processor, and each menu of each epoch has its own. When an
epoch is opened, as many keys as it took are drawn for the next one, in threads of low priority; OpenSSL draws
without holding Python's lock, so that requests go on. A key is handed out once, and never kept but in memory.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress

from tacit import expect
from tacit.bill.server.token_keys import TokenKey
from tacit.display import brief
from tacit.services.http_clients import LinkFailed

MOST_STOCK = 4_096
"""Keys that are drawn ahead: a few kilobytes of memory each."""

NICE = 10  # drawing ahead can wait; whoever asks draws for itself meanwhile


class KeyMaker:
    """Hands out new token keys, to whatever thread asks, until the service is to end.

    workers  threads that draw ahead; 0: all are drawn when they are asked for
    """

    def __init__(self, workers: int = 0, most: int = MOST_STOCK) -> None:
        self._workers = expect.whole("workers", workers, at_least=0)
        self._most = expect.whole("most", most, at_least=0)
        self._ended = threading.Event()
        self._change = threading.Condition()
        self._stock: deque[TokenKey] = deque()
        self._wanted = self._drawing = 0
        self._threads: list[threading.Thread] = []

    def __repr__(self) -> str:
        return brief(self, stock=len(self._stock), wanted=self._wanted)

    def __call__(self) -> TokenKey:
        with self._change:
            if self._ended.is_set():
                raise LinkFailed("this service is ending")
            if self._stock:
                key = self._stock.popleft()
                self._change.notify_all()
                return key
            self._start()
        return TokenKey.generate()

    def expect(self, count: int) -> None:
        """So many are asked for now, and again for the next epoch."""
        with self._change:
            self._wanted = min(count, self._most)
            self._change.notify_all()

    def _start(self) -> None:
        """Threads begin with the first key that is missing: a process that opens no epochs has none."""
        if self._threads or not self._workers:
            return
        for number in range(self._workers):
            thread = threading.Thread(target=self._draw, name=f"token-keys-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _draw(self) -> None:
        with suppress(OSError, AttributeError):  # elsewhere than on Linux a thread has no priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while True:
            with self._change:
                self._change.wait_for(
                    lambda: self._ended.is_set() or len(self._stock) + self._drawing < self._wanted
                )
                if self._ended.is_set():
                    return
                self._drawing += 1
            key = TokenKey.generate()
            with self._change:
                self._drawing -= 1
                self._stock.append(key)

    @property
    def is_ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """Hand out no more; threads end after the key that they are drawing, and nobody waits for them."""
        with self._change:
            self._ended.set()
            self._stock.clear()
            self._change.notify_all()
