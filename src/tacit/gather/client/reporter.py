"""A device's one upload per round: made once, kept before it is first sent, the same bytes at every retry.

`MemoryDeviceStore` keeps what a device must remember for tests and simulations; it is gone with the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.display import brief
from tacit.errors import BadInput, EntropyMisuse, GatherError, Refused
from tacit.gather.protocol.credentials import DEVICE_BYTES, TAG_BYTES, PartyRole, report_tag, seal
from tacit.gather.protocol.encoding import MessageVerdict, expect_bytes
from tacit.gather.protocol.rounds import REPORT_ID_BYTES, Round, report_binding
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.gather.protocol.uploads import Upload
from tacit.privacy.randomness import Source
from tacit.sealing import KEY_BYTES as SEALING_KEY_BYTES

KEY_BYTES = 32


class Outbox(Protocol):
    """Where a device keeps what it sent. Durable when `keep` returns."""

    def keep(self, digest: bytes, upload: bytes) -> bytes:
        """Keep the upload of this round, unless one was kept before; what is kept now."""

    def find(self, digest: bytes) -> bytes | None:
        """The upload that was kept for this round."""


class Reporter:
    """Makes a device's uploads.

    Guarantee:  an upload tells the proxy that the device reported, and the server the report's id; of the
                counts neither learns anything from it alone (see `sharing_scheme`). A retry tells no more.
    Neighbours: any two vectors that the round allows.
    Assumes:    proxy and server do not pool what they hold; both their keys came to the device by another way
                than through the proxy, which could else name one of its own as the server's and open both
                parts; the outbox keeps what it was given; the source is an `Entropy` (a study says so with
                `simulated` and may use a seed).
    Source:     the shape of the IETF's Distributed Aggregation Protocol (draft-ietf-ppm-dap).
    """

    def __init__(
        self,
        device: bytes,
        key: bytes,
        entropy: Source,
        outbox: Outbox,
        *,
        proxy_key: bytes,
        server_key: bytes,
        simulated: bool = False,
    ) -> None:
        expect.having("entropy", entropy, "fit_for_release", "an Entropy")
        if not simulated and not entropy.fit_for_release:
            raise EntropyMisuse(
                "expected the cryptographic stream for reports that leave a device, got a simulation; "
                "say simulated=True for a study"
            )
        self._device = expect_bytes("device", device, DEVICE_BYTES)
        self._key = expect_bytes("key", key, KEY_BYTES)
        self._entropy, self._outbox = entropy, outbox
        self._proxy_key = expect_bytes("proxy_key", proxy_key, SEALING_KEY_BYTES)
        self._server_key = expect_bytes("server_key", server_key, SEALING_KEY_BYTES)

    def __repr__(self) -> str:
        return brief(self)

    def upload(self, round: Round, values: NDArray[np.int64]) -> bytes:
        """The bytes to send; those of the first call for as long as the outbox keeps them.

        Refused(UNAUTHENTICATED) for a round that is not sealed to the parties this device knows, and
        Refused(PROMISE_NOT_KEPT) for one whose noise does not keep what it promises: a device trusts nobody.
        """
        if (round.proxy_key, round.server_key) != (self._proxy_key, self._server_key):
            raise Refused(
                MessageVerdict.UNAUTHENTICATED, "expected a round of the known parties, got another's"
            )
        kept = self._outbox.find(round.digest)
        if kept is not None:
            return kept
        round.expect_promise_kept()
        _expect_allowed(round, values)
        upload = make_upload(round, values, device=self._device, key=self._key, entropy=self._entropy)
        return self._outbox.keep(round.digest, upload.to_bytes())


def make_upload(
    round: Round, values: NDArray[np.int64], *, device: bytes, key: bytes, entropy: Source
) -> Upload:
    """An upload of these values, with the device's noise where users add it; nothing is checked or kept."""
    law = round.noise.device_law
    if law is not None:
        values = values + law.sample_array(round.cells, entropy.words)
    report_id = entropy.bytes(REPORT_ID_BYTES)
    bound = report_binding(round.digest, report_id)
    for_proxy, for_server = sharing_scheme(round).split(values, bound, entropy)
    sealed_proxy = seal(for_proxy, round.proxy_key, role=PartyRole.PROXY, binding=bound)
    sealed_server = seal(for_server, round.server_key, role=PartyRole.SERVER, binding=bound)
    parts = (round.digest, report_id, device, sealed_proxy, sealed_server)
    return Upload(*parts, report_tag(key, Upload(*parts, bytes(TAG_BYTES)).signed_bytes))


def _expect_allowed(round: Round, values: NDArray[np.int64]) -> None:
    if values.dtype != np.int64 or values.shape != (round.cells,):
        raise BadInput(f"expected {round.cells} values of type int64, got {values.dtype} {values.shape}")
    if (values < 0).any() or (values > round.largest).any():
        raise BadInput(f"expected values from 0 to {round.largest}, got others")
    if values.sum() > round.most_in_all:  # of at most 2^20 values that are each at most 2^20
        raise BadInput(f"expected values that add up to at most {round.most_in_all}, got more")
    if round.bounds is not None:
        round.bounds.check(values)


FORGOTTEN_RUN = "the events of this run were forgotten; a second choice would let more of them into it"
FORGOTTEN_UPLOAD = "the upload of this round was forgotten; a device makes no second one"


class MemoryDeviceStore:
    """The chosen events of runs and the uploads of rounds: `ChosenEvents` and `Outbox` in one.

    `store.gather_device.SqlDeviceStore` does the same and lasts.
    """

    def __init__(self) -> None:
        self._chosen: dict[str, bytes | None] = {}  # None: forgotten
        self._uploads: dict[bytes, bytes | None] = {}

    def __repr__(self) -> str:
        return brief(self, uploads=len(self._uploads))

    def keep_chosen(self, task: str, events: bytes) -> bytes:
        return _expect_remembered(self._chosen.setdefault(task, events), FORGOTTEN_RUN)

    def find_chosen(self, task: str) -> bytes | None:
        return _expect_remembered(self._chosen[task], FORGOTTEN_RUN) if task in self._chosen else None

    def keep(self, digest: bytes, upload: bytes) -> bytes:
        return _expect_remembered(self._uploads.setdefault(digest, upload), FORGOTTEN_UPLOAD)

    def find(self, digest: bytes) -> bytes | None:
        return _expect_remembered(self._uploads[digest], FORGOTTEN_UPLOAD) if digest in self._uploads else None

    def forget(self, task: str, digests: Iterable[bytes] = ()) -> None:
        """Drop the events of a run that is over and the uploads of these rounds; never to be made again."""
        self._chosen[task] = None
        self._uploads.update(dict.fromkeys(digests))

    def erase(self) -> None:
        """The same of every run and round."""
        self._chosen, self._uploads = dict.fromkeys(self._chosen), dict.fromkeys(self._uploads)


def _expect_remembered(kept: bytes | None, forgotten: str) -> bytes:
    if kept is None:
        raise GatherError(forgotten)
    return kept
