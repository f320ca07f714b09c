"""Counts tokens before they are signed, of what was set aside in the store: `ReservedTokens`.

Tokens are set aside some at a time, and more in the background before those are used up, so that a request
rarely waits for the disk. What a process had set aside and not signed when it ended counts as signed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from tacit.bill.server.store import GrantedTokens
from tacit.display import brief
from tacit.errors import BillError


class TokenStore(Protocol):
    """Where tokens are set aside."""

    def reserve_tokens(self, wanted: Mapping[bytes, int]) -> Mapping[bytes, GrantedTokens]:
        """Set tokens aside: of each menu, by id, at least as many as are wanted, or none; on disk when it
        returns. Menus without a limit are not in the answer."""


@dataclass
class _Menu:
    left: int = 0  # set aside, and not signed
    room: int | None = None  # that could still be set aside when we last heard; it only shrinks
    chunk: int = 0  # how many we got at once
    lock: threading.Lock = field(
        default_factory=threading.Lock
    )  # whoever waits for the store holds up one menu


class ReservedTokens:
    """A `TokenCounter` of one process; any thread may call, and any number of processes share a store.

    Guarantee:  all processes together are told to sign no more tokens of a menu than its limit in the store:
                each token that is taken was set aside before, on disk, by one process, for itself. A menu
                without a limit has none to take.
    Neighbours: none: this is about money.
    Assumes:    the store sets aside no more than the limit, and no old copy of it is put back while its menus
                can still be reported.
    Source:     no published rule.
    """

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._menus: dict[bytes, _Menu] = {}
        self._low: set[bytes] = set()
        self._ahead = ThreadPoolExecutor(1, "tokens-ahead")

    def __repr__(self) -> str:
        return brief(self, menus=len(self._menus))

    def take(self, menu_id: bytes, count: int) -> bool:
        """Whether so many tokens of a menu may be signed now; they are counted as signed, all or none."""
        menu = self._menus.get(menu_id) or self._menus.setdefault(menu_id, _Menu())
        if self._take(menu_id, menu, count):
            return True
        if menu_id not in self._low:
            return False
        with suppress(RuntimeError):  # of a service that is ending
            self._ahead.submit(int).result()  # what is being set aside in the background
        return self._take(menu_id, menu, count)

    def _take(self, menu_id: bytes, menu: _Menu, count: int) -> bool:
        with menu.lock:
            lacking = count - menu.left
            if lacking > 0:
                if menu.room is not None and menu.room < lacking:
                    return False
                self._enter(menu, self._store.reserve_tokens({menu_id: lacking}).get(menu_id))
                if menu.left < count:
                    return False
            menu.left -= count
            is_low = 2 * menu.left < menu.chunk and bool(menu.room)
        if is_low and menu_id not in self._low:
            self._low.add(menu_id)
            with suppress(RuntimeError):
                self._ahead.submit(self._fill)
        return True

    def _enter(self, menu: _Menu, granted: GrantedTokens | None) -> None:
        if granted is None:
            menu.room = 0
        else:
            menu.left, menu.room, menu.chunk = menu.left + granted.given, granted.room, granted.given

    def _fill(self) -> None:
        """Set aside more of every menu that runs low, in one transaction."""
        low = [menu_id for menu_id in list(self._low) if menu_id in self._menus]
        try:
            granted = self._store.reserve_tokens(dict.fromkeys(low, 1)) if low else {}
        except BillError:
            granted = {}  # whoever needs some asks again, and is told
        for menu_id in low:
            menu = self._menus.get(menu_id)
            if menu is not None and menu_id in granted:
                with menu.lock:
                    self._enter(menu, granted[menu_id])
        self._low.difference_update(low)

    def forget(self, menus: Iterable[bytes]) -> None:
        """Let go of menus of which no more tokens are asked for; what was set aside of them is lost."""
        for menu_id in menus:
            self._menus.pop(menu_id, None)
            self._low.discard(menu_id)

    def end(self) -> None:
        """Set aside nothing more in the background; what is being set aside is waited for."""
        self._ahead.shutdown(cancel_futures=True)
