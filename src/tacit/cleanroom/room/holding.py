"""Releases that a run sets aside when it begins, so that no other run can use them up under it.

A run names its records and how often it will release each of them. All of that is counted at once, or the run
is refused before it has begun; its steps then use what is its own. So of runs that compete the first ends, and
the others leave without cost. What a run did not use is free again once the room's operator hands it back; the
run itself may come back for it while it is there. A run that never said that it begins is counted step by step,
from what nobody has set aside.

Guarantee:  no record is released more than `most` times, whoever begins, abandons or goes on with what: what is
            set aside is counted when it is, and what is handed back is what no step has used and none will.
Neighbours: as of the releases that are counted. Nothing here depends on labels.
Assumes:    the store's transactions are what they say.
Source:     `releasing.Counting`, which asks here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from tacit.cleanroom.room.labels import Records
from tacit.cleanroom.room.store import Kept, Looked
from tacit.cleanroom.wire.canonical import spell
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.requests import BeginRequest
from tacit.errors import BadInput, RoomRefused

MOST_RUNS = 1000
"""That begin under one release: their names are kept for good."""
SHOWN = 3


@dataclass(frozen=True)
class HeldRun:
    """A run that has begun: for how many records, how many releases of each, and whether it holds them."""

    content: str  # a digest of what it said when it began
    rows: int
    releases: int
    begun: int  # the second
    handed_back: bool = False


def runs(looked: Looked, release: str) -> dict[str, HeldRun]:
    """All runs that ever began under this release, by name, in their order."""
    found = looked.find(_key(release))
    return {} if found is None else {name: HeldRun(**each) for name, each in json.loads(found).items()}


def begin(kept: Kept, release: str, request: BeginRequest, records: Records, most: int, now: int) -> None:
    """Set aside what the run needs, or refuse: then the transaction is given up.

    Asked for again it changes nothing; after it was handed back, it takes what the run has not used.
    """
    known = runs(kept, release)
    content = hashlib.sha256(spell([request.training, request.releases]) + records.tobytes()).hexdigest()
    found = known.get(request.run)
    if found is not None and found.content != content:
        raise RoomRefused(Refusal.CONFLICT, f"run {request.run} began as another one: name this one otherwise")
    if found is not None and not found.handed_back:
        return
    if found is None and len(known) >= MOST_RUNS:
        raise RoomRefused(Refusal.OVERSIZED, f"expected at most {MOST_RUNS} runs under these terms")
    left = most - kept.most_used(release, records)
    if not kept.hold(release, request.run, records, request.releases, most):
        raise _does_not_fit(request, left, most, known)
    _keep(kept, release, {**known, request.run: HeldRun(content, request.rows, request.releases, now)})


def _does_not_fit(request: BeginRequest, left: int, most: int, known: dict[str, HeldRun]) -> RoomRefused:
    """Who holds how many, and what is left. All of these names are the platform's own."""
    holding = [f"{name} holds {run.releases}" for name, run in known.items() if not run.handed_back]
    shown = ", ".join(holding[-SHOWN:]) or "the others are used"
    needs = f"run {request.run} needs {request.releases} releases of each record"
    return RoomRefused(Refusal.RECORD_EXHAUSTED, f"{needs}, {left} of {most} are left; {shown}")


def hand_back(kept: Kept, release: str, run: str) -> int:
    """Free what the run has set aside and not used: how many releases of single records that is."""
    known = runs(kept, release)
    if run not in known:
        raise BadInput(f"expected the name of a run that began here, got {run!r}")
    if known[run].handed_back:
        return 0
    _keep(kept, release, {**known, run: replace(known[run], handed_back=True)})
    return kept.hand_back(release, run)


def _keep(kept: Kept, release: str, known: dict[str, HeldRun]) -> None:
    kept.keep(_key(release), json.dumps({name: vars(each) for name, each in known.items()}).encode())


def _key(release: str) -> str:
    return f"runs/{release}"
