"""Which uploads a proxy takes: every check that needs no store, the cheapest first."""

from __future__ import annotations

from tacit.errors import Refused
from tacit.gather.proxy.known import KnownRounds
from tacit.gather.proxy.store import Added, NewReport
from tacit.gather.wire import credentials
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.sealing import SEAL_OVERHEAD
from tacit.gather.wire.uploads import Upload

ANSWERS = {
    Added.NEW: Refusal.ACCEPTED,
    Added.SAME: Refusal.ACCEPTED,  # its answer got lost, and the device asks again
    Added.NOT_OPEN: Refusal.TOO_LATE,
    Added.DEVICE_TAKEN: Refusal.DUPLICATE,
    Added.ID_TAKEN: Refusal.REPLAYED,
}
"""What a device is told of what the store did."""


def admitted(data: bytes, rounds: KnownRounds, enrolment_secret: bytes, now: int) -> NewReport:
    """The report in an upload, or Refused: by size, spelling, round, time, and the device's tag."""
    if len(data) > rounds.largest_upload:
        raise Refused(Refusal.OVERSIZED)
    upload = Upload.from_bytes(data)
    known = rounds.of(upload.digest)
    if len(data) > known.upload_bytes:
        raise Refused(Refusal.OVERSIZED)
    parts = ((upload.sealed_proxy, known.form.proxy_bytes), (upload.sealed_server, known.form.server_bytes))
    if any(len(sealed) != plain_bytes + SEAL_OVERHEAD for sealed, plain_bytes in parts):
        raise Refused(Refusal.MALFORMED)
    # Devices and the proxy may disagree on the time by `skew`, in either direction.
    if now < known.round.opens - known.round.skew:
        raise Refused(Refusal.TOO_EARLY)
    if now >= known.round.closes + known.round.skew:
        raise Refused(Refusal.TOO_LATE)
    signed = data[: -credentials.TAG_BYTES]  # a message has one spelling, and the tag is last in it
    if not credentials.check(enrolment_secret, upload.device, signed, upload.tag):
        raise Refused(Refusal.FORGED)
    # The tag, now that it is known to fit, is a hash of all the rest: it tells a retry from another report.
    return NewReport(upload.digest, upload.report_id, upload.device, upload.tag, data)
