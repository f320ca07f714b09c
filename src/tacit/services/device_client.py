"""A device's HTTP client: fetches the open rounds, and hands in one upload per round, until it has arrived.

    uploads = HttpUploads(client, "https://proxy.example", reporter, parties, entropy=entropy, sleep=time.sleep)
    for announced in uploads.rounds():
        uploads.report(announced.round, answers)

A device knows both parties' public keys from the start and uses no round with others: a proxy that could name
the server's key would open both halves of a report. The URL must be https, except on the device's own machine:
reports are sealed, but anybody on the network would see who reports, and could withhold rounds or reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import httpx
import numpy as np
from numpy.typing import NDArray

from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.gather.client.reporter import Reporter
from tacit.gather.protocol.rounds import Round
from tacit.gather.protocol.uploads import Upload
from tacit.services import rounds
from tacit.services.http_client import HttpAnswer, LinkFailed, error_from_problem, fetch
from tacit.services.rounds import AnnouncedRound
from tacit.services.settings import check_url

LONGEST_PAUSE_SECONDS = 60.0
COME_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True)
class PublicKeys:
    """Whom a device seals to: told with the app, never by the network."""

    proxy: bytes
    server: bytes


class HttpUploads:
    """One device's calls to the proxy. Each is tried `attempts` times at most, later and later."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        reporter: Reporter,
        keys: PublicKeys,
        *,
        entropy: Entropy | Simulation,
        sleep: Callable[[float], None],
        attempts: int = 8,
        first_pause_seconds: float = 0.25,
    ) -> None:
        self._client, self._url, self._reporter, self._keys = client, check_url("url", url), reporter, keys
        self._entropy, self._sleep = entropy, sleep
        self._attempts, self._first_pause = attempts, first_pause_seconds

    def rounds(self) -> list[AnnouncedRound]:
        """The rounds that take reports now and are sealed to the parties that this device knows."""
        answer = self._asked("GET", "/rounds", b"")
        if answer.status != 200:
            raise error_from_problem(answer.body)
        return [each for each in rounds.unpack_rounds(answer.body) if self._is_ours(each.round)]

    def report(self, round: Round, values: NDArray[np.int64]) -> None:
        """Hand in this device's one report for the round; Refused says why it was not accepted.

        The upload is made once and kept before it is sent, so that asking again, also after the device was off,
        sends the very same bytes.
        """
        if not self._is_ours(round):
            raise BadInput("expected a round that is sealed to the parties this device knows, got another")
        body = self._reporter.upload(round, values)
        report_id = Upload.from_bytes(body).report_id
        answer = self._asked("PUT", f"/rounds/{round.digest.hex()}/reports/{report_id.hex()}", body)
        if answer.status not in (200, 201):
            raise error_from_problem(answer.body)

    def _is_ours(self, round: Round) -> bool:
        return (round.proxy_key, round.server_key) == (self._keys.proxy, self._keys.server)

    def _asked(self, method: str, path: str, body: bytes) -> HttpAnswer:
        pause = self._first_pause
        for attempt in range(1, self._attempts + 1):
            try:
                request = self._client.build_request(method, self._url + path, content=body)
                answer = fetch(self._client, request)
            except LinkFailed:
                if attempt == self._attempts:
                    raise
            else:
                if answer.status < 500 and answer.status not in COME_AGAIN:
                    return answer
            if attempt < self._attempts:
                # Somewhere in the pause's second half: devices that failed together do not return together.
                self._sleep(pause * (0.5 + self._entropy.uniform_below(1 << 16) / (1 << 17)))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        raise LinkFailed(f"expected an answer from the proxy, got failures {self._attempts} times")
