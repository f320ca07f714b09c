"""Bringing a round to its end over a link that may fail anywhere: call again, and it goes on from the store."""

from __future__ import annotations

from typing import Protocol

from tacit.errors import GatherError, NotYet, TooFew
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.store import Phase
from tacit.gather.wire.closing import Agreement, Receipt


class Link(Protocol):
    """The way to the server. Any call may raise OSError, before or after the server acted on it."""

    def job(self, body: bytes) -> bytes: ...
    def agree(self, body: bytes) -> bytes: ...
    def share(self, body: bytes) -> bytes: ...


def drive(proxy: Proxy, link: Link, digest: bytes, now: int, *, most: int = 500) -> Phase:
    """Bring the round as far as it goes; returns the phase it is in. Safe at any time, after any crash.

    Every message is sent again until it is answered, and the server answers a repeated one as it did before.
    """
    if (phase := proxy.phase(digest)) in (Phase.RELEASED, Phase.STOPPED):
        return phase
    _send_jobs(proxy, link, digest, most)
    try:
        mine = proxy.agreement(digest, now)
    except NotYet:  # by the proxy's clock
        return proxy.phase(digest)
    try:
        theirs = Agreement.from_bytes(link.agree(mine.to_bytes()))
    except NotYet:  # by the server's: it has not agreed to anything
        proxy.reopen(digest, now)
        return proxy.phase(digest)
    try:
        share = proxy.noisy_share(digest, theirs)
    except TooFew:  # and the server knows
        return Phase.TOO_FEW
    proxy.released(Receipt.from_bytes(link.share(share.to_bytes())))
    return proxy.phase(digest)


def _send_jobs(proxy: Proxy, link: Link, digest: bytes, most: int) -> None:
    last = -1
    while (job := proxy.next_job(digest, most=most)) is not None:
        if job.number <= last:
            raise GatherError(f"the answer to job {last} was of another job; nothing was changed by it")
        last = job.number
        proxy.job_answered(link.job(job.to_bytes()))
