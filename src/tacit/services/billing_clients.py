"""HTTP clients of billing: a device's to the proxy, the parties' to each other, an operator's to the ad server.

A device that shows ads has one way to both parties:

    channel = HttpAdChannel(client, "https://proxy.example")

The URL must be https, except on the device's own machine: requests and reports are sealed, but anybody on the
network would see who asks and reports, and could withhold either. What the channel hands on is checked by the
device itself: heads and statements by their signatures, menus by their proofs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from tacit import expect
from tacit.bill.protocol.batches import COHORT_BYTES
from tacit.bill.protocol.encoding import BillVerdict, refuse_malformed
from tacit.bill.protocol.offers import LONGEST_ANSWER, pack_messages, unpack_messages
from tacit.bill.protocol.reports import ImpressionReport
from tacit.deliver.protocol.packs import LONGEST_PACK
from tacit.display import brief
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, BillError, BillRefused
from tacit.files import parse_json
from tacit.services.http_clients import HttpAnswer, PatientCaller, SignedClient, error_from_problem
from tacit.services.settings import check_url


class HttpAdChannel:
    """A device's `deliver.device.parties.AdChannel`: its calls to the proxy, each tried a few times, later and
    later; LinkFailed, an OSError, where there was no answer."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        *,
        entropy: Entropy | Simulation | None = None,
        sleep: Callable[[float], None] = time.sleep,
        attempts: int = 3,
        first_pause_seconds: float = 0.25,
    ) -> None:
        """`entropy` spreads pauses, so that devices that failed together do not come back together."""
        entropy = Entropy() if entropy is None else entropy
        self._url = check_url("url", url)
        self._caller = PatientCaller(
            client, self._url, entropy=entropy, sleep=sleep, attempts=attempts,
            first_pause_seconds=first_pause_seconds,
        )  # fmt: skip

    def __repr__(self) -> str:
        return brief(self, url=expect.without_passwords(self._url))

    def head(self) -> bytes:
        return self._ask("GET", "/billing/head").body

    def offer(self, sealed: bytes) -> bytes:
        return self._ask("POST", "/billing/offers", sealed).body

    def report(self, report: bytes) -> None:
        nonce = ImpressionReport.from_bytes(report).nonce
        self._ask("PUT", f"/billing/reports/{nonce.hex()}", report)

    def statement(self, nonce: bytes) -> bytes | None:
        answer = self._ask("GET", f"/billing/reports/{nonce.hex()}")
        return None if answer.status == 204 else answer.body

    def statements(self, epoch: int) -> Sequence[bytes]:
        body = self._ask("GET", f"/billing/epochs/{epoch}/cohorts").body
        if len(body) % COHORT_BYTES:
            refuse_malformed("expected whole statements")
        return [body[at : at + COHORT_BYTES] for at in range(0, len(body), COHORT_BYTES)]

    def pack(self, menu_id: bytes) -> bytes:
        """The ads of a menu, signed by the ad server."""
        return self._ask("GET", f"/billing/packs/{menu_id.hex()}").body

    def _ask(self, method: str, path: str, body: bytes = b"") -> HttpAnswer:
        answer = self._caller.ask(method, path, body)
        if answer.status not in (200, 201, 204):
            raise error_from_problem(answer.body)
        return answer


class HttpBatches:
    """The proxy's way to the ad server: a `bill.proxy.party.BatchLink`, and what hands devices' requests on."""

    def __init__(self, calls: SignedClient) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return brief(self)

    def deliver(self, batch: bytes) -> bytes:
        return self._calls.post("/billing/batches", batch)

    def offers(self, requests: Sequence[bytes]) -> list[bytes]:
        """The answers, in the same order; empty where a request cannot be opened."""
        answers = unpack_messages(
            self._calls.post("/billing/offers", pack_messages(requests)), longest=LONGEST_ANSWER
        )
        if len(answers) != len(requests):
            refuse_malformed(f"expected {len(requests)} answers")
        return answers

    def pack(self, menu_id: bytes) -> bytes:
        """What the ad server tells everybody of a menu's ads."""
        return self._calls.get_public(f"/packs/{menu_id.hex()}", LONGEST_PACK)


class HttpDirectories:
    """The ad server's way to the proxy: a `bill.server.party.DirectoryLink`."""

    def __init__(self, calls: SignedClient) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return brief(self)

    def countersign(self, directory: bytes) -> bytes:
        return self._calls.post("/billing/directories", directory)


class HttpBillingOperator:
    """The operator's way to the ad server. Records are as its routes write them (`billing_server`)."""

    def __init__(self, calls: SignedClient) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return brief(self)

    def status(self) -> dict[str, Any]:
        """Epochs, campaigns, and what was charged."""
        return dict(_record(self._calls.get("/billing/status"), dict))

    def rotate(self) -> dict[str, Any]:
        """The epoch that was opened now, with new keys and menus, in the place of all others."""
        try:
            return dict(_record(self._calls.post("/billing/rotate", b""), dict))
        except BillRefused as refused:
            if refused.reason is not BillVerdict.MALFORMED:
                raise
            raise BadInput(refused.detail) from None  # of the market: nothing else was sent

    def set_budget(self, campaign: int, budget_micros: int | None) -> dict[str, Any]:
        """The campaign with its new budget (None: no limit); what was held and can now be paid is charged."""
        asked = json.dumps({"campaign": campaign, "budget_micros": budget_micros}).encode()
        return dict(_record(self._calls.post("/billing/campaigns", asked), dict))

    def close_invoices(self) -> list[dict[str, Any]]:
        """The invoices that were closed now: none where no charge was without one."""
        return list(_record(self._calls.post("/billing/invoices", b""), list))


def _record(body: bytes, kind: type) -> Any:
    try:
        found = parse_json(body)
    except ValueError:
        found = None
    if not isinstance(found, kind):
        raise BillError("expected a record from the ad server, got another text")
    return found
