"""What a device remembers, for tests and simulations: gone with the process."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.errors import GatherError

FORGOTTEN_RUN = "the events of this run were forgotten; a second choice would let more of them into it"
FORGOTTEN_UPLOAD = "the upload of this round was forgotten; a device makes no second one"


class MemoryDevice:
    """The chosen events of runs and the uploads of rounds: `ChosenEvents` and `Outbox` in one.

    `store.gather_device.SqlDeviceMemory` does the same and lasts.
    """

    def __init__(self) -> None:
        self._chosen: dict[str, bytes | None] = {}  # None: forgotten
        self._uploads: dict[bytes, bytes | None] = {}

    def keep_chosen(self, task: str, events: bytes) -> bytes:
        return _there(self._chosen.setdefault(task, events), FORGOTTEN_RUN)

    def find_chosen(self, task: str) -> bytes | None:
        return _there(self._chosen[task], FORGOTTEN_RUN) if task in self._chosen else None

    def keep(self, digest: bytes, upload: bytes) -> bytes:
        return _there(self._uploads.setdefault(digest, upload), FORGOTTEN_UPLOAD)

    def find(self, digest: bytes) -> bytes | None:
        return _there(self._uploads[digest], FORGOTTEN_UPLOAD) if digest in self._uploads else None

    def forget(self, task: str, digests: Iterable[bytes] = ()) -> None:
        """Drop the events of a run that is over and the uploads of these rounds; never to be made again."""
        self._chosen[task] = None
        self._uploads.update(dict.fromkeys(digests))


def _there(kept: bytes | None, forgotten: str) -> bytes:
    if kept is None:
        raise GatherError(forgotten)
    return kept
