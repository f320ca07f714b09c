"""The traces of these studies: made-up cities, or a log of visits where files are given."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from tacit.data.generators.visits import VisitsWorld
from tacit.data.logs.visits import LOG, with_contexts
from tacit.data.reading.stream import LogReader
from tacit.errors import BadInput
from tacit.studies import report
from tacit.studies.contexts.clustered import Tally
from tacit.studies.contexts.serving import Arm, Served, serve
from tacit.studies.contexts.trace import trace_of
from tacit.studies.contexts.trial import Trial
from tacit.studies.logs import published_file
from tacit.studies.study import Asked, Scale

PAPER = "Hardt and Nath 2012: privacy-aware personalization for mobile advertising (CCS 2012)"
OURS = "ours, beside Hardt and Nath 2012 (CCS 2012)"
SEEDS = {Scale.TOY: 1, Scale.SMALL: 3, Scale.FULL: 10}
VISITS = {Scale.TOY: 3_000, Scale.SMALL: 100_000, Scale.FULL: 200_000}
TESTS = {Scale.TOY: 100, Scale.SMALL: 1_500, Scale.FULL: 20_000}
FILES = ("visits", "checkins_nyc")  # names that a log of visits may have in a folder of published files
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

Key = TypeVar("Key", bound=Hashable)

outcome = partial(report.outcome, unit="request", relation="exact counts, disclosure limited to a level")


@dataclass(frozen=True, eq=False)
class Found:
    """An arm's tallies: over all requests, over first visits to a place, and over repeats."""

    everything: Tally
    discovery: Tally
    repeats: Tally

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


@dataclass(frozen=True)
class Met:
    """How many visits there were in all traces, how many were left out as bad, and how many were tested."""

    visits: int = 0
    left_out: int = 0
    tests: int = 0

    def beside(self, trial: Trial) -> Met:
        trace = trial.trace
        return Met(self.visits + trace.rows, self.left_out + trace.left_out, self.tests + len(trial.tests))

    def words(self, found: Found) -> str:
        bad = f" ({self.left_out:,} bad row{'s' * (self.left_out != 1)} left out)" if self.left_out else ""
        lacking = "".join(f", no {part} among them" for part in found.lacking())
        return f"{self.visits:,} visits{bad}, {self.tests:,} of them tested{lacking}"


@dataclass(frozen=True, eq=False)
class Contest(Generic[Key]):
    """What every arm came to over the people of all traces, and what the requests were, in words."""

    found: Mapping[Key, Found]
    words: str


def contest(
    asked: Asked,
    name: str,
    arms: Callable[[Trial], Mapping[Key, Arm]],
    thresholds: Sequence[float] = THRESHOLDS,
) -> Contest[Key]:
    """All arms on each trace; one trace is held at a time, since its rates are large."""
    found: dict[Key, list[Found]] = {}
    met = Met()
    for at, trial in enumerate(trials(asked)):
        met = met.beside(trial)
        several = arms(trial)
        for done, (key, arm) in enumerate(several.items()):
            asked.track(f"{name}: trace {at + 1}", done, len(several))
            found.setdefault(key, []).append(tallied(trial, serve(trial, arm, thresholds)))
    together = {key: Found.together(each) for key, each in found.items()}
    return Contest(together, met.words(next(iter(together.values()))))  # all arms meet the same requests


def trials(asked: Asked) -> Iterator[Trial]:
    """One a seed; a file has one trace, and the seeds decide how many of its requests are tested."""
    tests = TESTS[asked.scale]
    if asked.data is not None:
        yield read(asked.data, tests * asked.seeds)
        return
    for seed in range(1, asked.seeds + 1):
        yield Trial.of(trace_of(_made_up(seed, VISITS[asked.scale])), tests, seed)


def tallied(trial: Trial, given: Served) -> Found:
    """What a trial's tests were shown, by person."""
    user, again = trial.trace.user[trial.tests], trial.trace.again[trial.tests]
    return Found(*(Tally.of(user, given.shown, given.clicked, among) for among in (None, ~again, again)))


def _made_up(seed: int, visits: int) -> Iterator[pa.RecordBatch]:
    for drawn in VisitsWorld(seed).batches(visits):
        yield with_contexts(drawn.batch)


def read(folder: Path, tests: int) -> Trial:
    """The trial of a log of visits in a folder of published files."""
    for name in FILES:
        try:
            place = published_file(folder, name)
        except BadInput:
            continue
        reader = LogReader(LOG, place)
        batches = [batch for batch in reader.stream(lambda examples: examples.rows) if batch.num_rows]
        if not batches:
            raise BadInput(reader.no_examples)
        try:
            trace = trace_of(batches)
            bad = trace.left_out + reader.bad_rows.count
            return Trial.of(replace(trace, left_out=bad), tests, seed=1)
        except BadInput as refusal:
            raise BadInput(f"{place}: {refusal}") from None
    raise BadInput(
        f"expected a log of visits, {' or '.join(FILES)} with .csv, .csv.gz or .parquet, in {folder}"
    )
