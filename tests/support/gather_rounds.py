"""Rounds and messages of every kind, shared by the tests of gathering."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.gather.client.contributions import Contributions, Event
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.messages import (
    Job,
    JobEntry,
    JobReply,
    NoisyShare,
    ReportSet,
    RoundResult,
    ShareReceipt,
)
from tacit.gather.protocol.noise import ServerNoise, UserNoise
from tacit.gather.protocol.promises import CountBounds, Promise
from tacit.gather.protocol.rounds import Question, Round, check_key_hash
from tacit.gather.protocol.uploads import Upload
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy.noise.shares import PolyaShares, SkellamShares

PROXY_KEY = SealingKey.from_bytes(bytes(range(32)))
SERVER_KEY = SealingKey.from_bytes(bytes(range(32, 64)))
CHECK_KEY = bytes(range(64, 96))
PROMISE = Promise(events=4, each=4, levels=8, epsilon=Fraction(6), delta=Fraction(1, 10**9))
PURE = replace(PROMISE, epsilon=Fraction(8), delta=Fraction(0))
SECRET = b"enrolment secret of at least 32 bytes"

QUESTION = Question(
    levels=(3, 0),
    nodes=np.array([2, 5, 9]),
    offsets=np.array([0, 2, 2, 5]),
    ad=np.array([1, 7, 0, 1, 4]),
)


def a_round(**changes: Any) -> Round:
    plain = Round(
        task="clicks of a week",
        level=0,
        cells=QUESTION.cells,
        question=QUESTION.digest,
        group=Group.RING64,
        opens=1_700_000_000,
        closes=1_700_086_400,
        skew=60,
        parties=1000,
        smallest_batch=100,
        noise=ServerNoise(Skellam(Fraction(1285))),
        bounds=None,
        scope="clicks",
        promise=PROMISE,
        check=bytes(32),
        proxy_key=PROXY_KEY.public,
        server_key=SERVER_KEY.public,
    )
    checked = {"check": check_key_hash(CHECK_KEY)} if changes.get("bounds") else {}
    return replace(plain, **(checked | changes))


def rounds_of_every_kind() -> dict[str, Round]:
    return {
        "skellam by servers": a_round(),
        "discrete Gaussian by servers, ring32": a_round(
            group=Group.RING32, noise=ServerNoise(DiscreteGaussian(Fraction(571, 2)))
        ),
        "discrete Laplace by servers, delta 0": a_round(
            noise=ServerNoise(DiscreteLaplace(Fraction(16))), promise=PURE, level=7
        ),
        "skellam by users": a_round(
            noise=UserNoise(SkellamShares(Fraction(1142), 1000, Fraction(1, 10))), task="größer"
        ),
        "polya by users": a_round(
            noise=UserNoise(PolyaShares(Fraction(50, 3), 1000, Fraction(1, 1000))), promise=PURE
        ),
        "with proofs": a_round(group=Group.FIELD64, bounds=CountBounds(each=4, total=8)),
    }


def messages_of_every_kind() -> dict[str, Any]:
    """One message of each class, of fixed bytes. Seals are stand-ins of the right sizes."""
    digest = a_round().digest
    ids = [bytes([number]) * 16 for number in range(3)]
    upload = Upload(digest, ids[1], b"device of 16 byt", b"p" * 152, b"s" * 80, b"t" * 32)
    entries = tuple(JobEntry(each, b"s" * 79 + each[:1], b"proof") for each in ids)
    job = Job(digest, 3, entries)
    verdicts = bytes([0, 9, 0])
    event = Event((("40.76", -73.98), "Coffee"), 7, True)
    return {
        **{f"round, {name}": each for name, each in rounds_of_every_kind().items()},
        "question": QUESTION,
        "upload": upload,
        "job": job,
        "job without proofs": Job(digest, 0, tuple(JobEntry(each, b"s" * 80) for each in ids)),
        "job reply": JobReply(digest, 3, job.hash, verdicts, (b"proof", bytes(5), b"PROOF")),
        "job reply without proofs": JobReply(digest, 3, job.hash, verdicts, (b"",) * 3),
        "agreement": ReportSet(digest, 3, b"h" * 32),
        "noisy share": NoisyShare(digest, b"h" * 32, Group.RING64.to_bytes(np.arange(13, dtype=np.uint64))),
        "receipt": ShareReceipt(digest, b"h" * 32, True),
        "result": RoundResult(digest, 900, np.array([-3, 0, 2**40, -(2**63)]), 2570.0),
        "contributions": Contributions((event, Event((1.5, ()), 0, False)), most=4),
    }
