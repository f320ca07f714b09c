"""The auditor's check of all invoices, run here: a fresh export in a folder of its own, verified, and deleted.

It finds mistakes of this server. It does not stand in for an auditor, who takes the same export to another
machine, with the parties' public keys and the proxy's own statements.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.bill.audit.export import export_folder
from tacit.bill.audit.verification import verify_folder
from tacit.deliver.campaigns.store import CampaignVerdict
from tacit.errors import CampaignRefused, TacitError
from tacit.services.endpoints import Clock
from tacit.services.log import error_line
from tacit.services.problems import LOG
from tacit.store.billing_ads import SqlAdStore
from tacit.store.console_figures import latest_batches

PAUSE_SECONDS = 30  # between two of them
MOST_BATCHES = 20_000  # beyond, it is work for another machine


class InvoiceCheck:
    """One check at a time, in a thread of its own, and not too often; the last result stays."""

    def __init__(self, store: SqlAdStore, keys: Callable[[], tuple[bytes, bytes]], clock: Clock) -> None:
        """`keys` are the public keys that ad server and proxy sign by."""
        self._store, self._keys, self._clock = store, keys, clock
        self._lock = threading.Lock()
        self._began: int | None = None
        self._ended: int | None = None
        self._report: dict[str, Any] | None = None
        self._trouble = ""
        self._thread: threading.Thread | None = None

    def state(self) -> dict[str, Any]:
        with self._lock:
            return {
                "running": self._is_running,
                "began": self._began,
                "ended": self._ended,
                "report": self._report,
                "trouble": self._trouble,
                "again_in": self._seconds_left(),
            }

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _seconds_left(self) -> int:
        return 0 if self._ended is None else max(0, self._ended + PAUSE_SECONDS - self._clock())

    def start(self) -> dict[str, Any]:
        """Begin one; CampaignRefused where one runs, or has only just ended, or there is too much to check."""
        newest = latest_batches(self._store.database, -1, 1)
        with self._lock:
            if self._is_running:
                raise CampaignRefused(CampaignVerdict.CONFLICT, "a verification is running already")
            if self._seconds_left():
                raise CampaignRefused(CampaignVerdict.CONFLICT, "one has just ended: ask again in a minute")
            if newest and newest[0].number > MOST_BATCHES:
                words = (
                    f"more than {MOST_BATCHES:,} batches: use tacit bill export and verify, on another machine"
                )
                raise CampaignRefused(CampaignVerdict.TOO_MANY, words)
            self._began, self._ended, self._report, self._trouble = self._clock(), None, None, ""
            self._thread = threading.Thread(target=self._run, name="verification", daemon=True)
            self._thread.start()
        return self.state()

    def _run(self) -> None:
        report, trouble = None, ""
        try:
            with tempfile.TemporaryDirectory(prefix="tacit-verification-") as place:
                folder = Path(place) / "export"
                export_folder(self._store, folder, now=self._clock())
                report = verify_folder(folder, *self._keys()).as_json()
        except (TacitError, OSError) as problem:
            trouble = "the export could not be made or read: see the service's log"
            LOG.error("verification: %s", error_line(problem))
        with self._lock:
            self._report, self._trouble, self._ended = report, trouble, self._clock()

    def wait(self) -> None:
        """Until none runs."""
        if self._thread is not None:
            self._thread.join()
