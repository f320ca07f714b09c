"""Which uploads a proxy takes: every check that needs no store, the cheapest first."""

from __future__ import annotations

from tacit.errors import Refused
from tacit.gather.proxy.known import KnownRounds
from tacit.gather.proxy.store import Added, NewReport
from tacit.gather.wire import credentials
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.uploads import Upload, digest_of

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
    try:
        known = rounds.of(digest_of(data))
    except Refused:
        Upload.from_bytes(data)  # what is no upload at all is MALFORMED
        raise
    layout = known.layout
    if len(data) > layout.size:
        raise Refused(Refusal.OVERSIZED)
    if not layout.fits(data):
        raise Refused(Refusal.MALFORMED)
    # Devices and the proxy may disagree on the time by `skew`, in either direction.
    if now < known.round.opens - known.round.skew:
        raise Refused(Refusal.TOO_EARLY)
    if now >= known.round.closes + known.round.skew:
        raise Refused(Refusal.TOO_LATE)
    device, tag = data[layout.device], data[layout.tag]
    signed = data[: layout.tag.start]  # the tag is last
    if not credentials.check(enrolment_secret, device, signed, tag):
        raise Refused(Refusal.FORGED)
    # The tag, now that it is known to fit, is a hash of all the rest: it tells a retry from another report.
    return NewReport(known.round.digest, data[layout.report_id], device, tag, data)
