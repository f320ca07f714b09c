"""Arms that meet the same requests: what each showed on each trace is measured once and kept.

A record is named by the digest of its trace, its arm and the code of both, so that studies share what they have
in common, and whoever is interrupted goes on where they were.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from tacit.studies.contexts.clustered import Tally
from tacit.studies.contexts.kept_arrays import Arrays, keep, kept
from tacit.studies.contexts.serving import Served
from tacit.studies.contexts.trial import Trial
from tacit.studies.digests import digest, room_of, spelled
from tacit.studies.processes import spread
from tacit.studies.study import Asked, Scale

ROOMS = (
    "data",
    "schema",
    "kernels",
    "deliver",
    "studies/contexts/trace",
    "studies/contexts/trial",
    "studies/contexts/serving",
)

Key = TypeVar("Key", bound=Hashable)


class Source(Protocol):
    """Where a trial comes from: a frozen value whose fields decide all of it."""

    def trial(self) -> Trial: ...


class Entrant(Protocol):
    """An arm: a frozen value. `rooms` is the code that its figures hang on beside ROOMS and its own module."""

    @property
    def rooms(self) -> tuple[str, ...]: ...

    def on(self, trial: Trial) -> Served: ...


@dataclass(frozen=True, eq=False)
class Found:
    """An arm's tallies: over all requests, over first visits to a place, and over repeats."""

    everything: Tally
    discovery: Tally
    repeats: Tally

    @classmethod
    def of(cls, record: Arrays) -> Found:
        user, again, shown, clicked = (record[name] for name in ("user", "again", "shown", "clicked"))
        return cls(*(Tally.of(user, shown, clicked, among) for among in (None, ~again, again)))

    @classmethod
    def together(cls, founds: Sequence[Found]) -> Found:
        """The people of several trials."""
        parts = zip(*((each.everything, each.discovery, each.repeats) for each in founds), strict=True)
        return cls(*map(Tally.together, parts))

    def parts(self) -> Mapping[str, Tally]:
        """Those that have any requests."""
        return {name: tally for name, tally in self._named().items() if tally.requests.any()}

    def lacking(self) -> list[str]:
        """The parts that have none."""
        return [name for name, tally in self._named().items() if not tally.requests.any()]

    def _named(self) -> Mapping[str, Tally]:
        return {"all": self.everything, "first visits": self.discovery, "repeats": self.repeats}


@dataclass(frozen=True, eq=False)
class Contest(Generic[Key]):
    """What every arm came to over the people of all traces, and the bits that it disclosed on average."""

    found: Mapping[Key, Found]
    bits: Mapping[Key, float]
    met: Mapping[str, int]  # over all traces: visits, left_out, tests, devices

    @property
    def words(self) -> str:
        """What the requests were."""
        visits, left_out, tests = (self.met[name] for name in ("visits", "left_out", "tests"))
        bad = f" ({left_out:,} bad row{'s' * (left_out != 1)} left out)" if left_out else ""
        first = next(iter(self.found.values()))  # all arms meet the same requests
        lacking = "".join(f", no {part} among them" for part in first.lacking())
        return f"{visits:,} visits{bad}, {tests:,} of them tested{lacking}"


def contest(asked: Asked, name: str, sources: Sequence[Source], arms: Mapping[Key, Entrant]) -> Contest[Key]:
    """All arms on each trace; a process holds one trace at a time, since its rates are large."""
    place = {(source, key): _place(asked.cache, source, arm) for source in sources for key, arm in arms.items()}
    missing = {
        source: {path: arms[key] for key in arms if kept(path := place[source, key]) is None}
        for source in sources
    }
    processes = 1 if asked.scale is Scale.TOY else asked.processes  # another would not have started by then
    items = list(shared_out({source: each for source, each in missing.items() if each}, processes))
    label = f"{name}: arms on traces"
    if items:
        asked.track(label, 0, len(items))
    for done, _ in enumerate(spread(_measure, items, processes), start=1):
        asked.track(label, done, len(items))
    records = {key: [_found(place[source, key]) for source in sources] for key in arms}
    first = next(iter(records.values()))
    return Contest(
        {key: Found.together([Found.of(record) for record in each]) for key, each in records.items()},
        {key: float(np.mean([record["bits"] for record in each])) for key, each in records.items()},
        {name: int(sum(record[name] for record in first)) for name in _MET},
    )


_MET = ("visits", "left_out", "tests", "devices")
Item = tuple[Source, Mapping[Path, Entrant]]


def _place(cache: Path, source: Source, arm: Entrant) -> Path:
    rooms = (*ROOMS, *arm.rooms, *room_of(arm), *room_of(source))
    return cache / "served" / f"{digest(spelled(source), spelled(arm), rooms=rooms)}.npz"


def shared_out(missing: Mapping[Source, Mapping[Path, Entrant]], processes: int) -> Iterator[Item]:
    """A trace with all of its arms; where traces do not share out evenly, the last ones' arms are."""
    whole = len(missing) - len(missing) % processes
    for at, (source, arms) in enumerate(missing.items()):
        parts = 1 if at < whole else min(processes, len(arms))
        for part in range(parts):
            yield source, dict(list(arms.items())[part::parts])


def _measure(item: Item) -> None:
    source, arms = item
    trial = source.trial()
    for path, arm in arms.items():
        keep(path, _record(trial, arm.on(trial)))


def _record(trial: Trial, served: Served) -> Arrays:
    trace = trial.trace
    return {
        "shown": served.shown,
        "clicked": served.clicked,
        "bits": np.array(served.bits),
        "user": trace.user[trial.tests],
        "again": trace.again[trial.tests],
        "visits": np.array(trace.rows),
        "left_out": np.array(trace.left_out),
        "tests": np.array(len(trial.tests)),
        "devices": np.array(len(np.unique(trace.user[trial.learnt]))),
    }


def _found(path: Path) -> Arrays:
    record = kept(path)
    assert record is not None, "it was there, or was made just now"
    return record
