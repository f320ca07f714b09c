"""The traces of the context studies: made-up cities, or a log of visits where files are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tacit.data.generators.visits import VisitsWorld
from tacit.data.logs.visits import LOG, with_contexts
from tacit.data.reading.reader import LogReader
from tacit.errors import BadInput
from tacit_lab.studies import report
from tacit_lab.studies.contexts.contest import TrialSource
from tacit_lab.studies.contexts.trial import VisitsTrial, read_trace
from tacit_lab.studies.published import exact_file
from tacit_lab.studies.study import StudyInputs, StudyRequest, StudyScale

PAPER = "Hardt and Nath 2012: privacy-aware personalization for mobile advertising (CCS 2012)"
OURS = "ours, beside Hardt and Nath 2012 (CCS 2012)"
SEEDS = {StudyScale.TOY: 1, StudyScale.SMALL: 3, StudyScale.FULL: 10}
VISITS = {StudyScale.TOY: 3_000, StudyScale.SMALL: 100_000, StudyScale.FULL: 200_000}
TESTS = {StudyScale.TOY: 100, StudyScale.SMALL: 1_500, StudyScale.FULL: 20_000}
CITIES = {"": ("visits", "checkins_nyc"), "jakarta": ("visits_jakarta",)}
"""Logs of visits that a folder of published files may have: the names of each city's file."""
FILE_MINUTES = {StudyScale.TOY: 0.5, StudyScale.SMALL: 3.0, StudyScale.FULL: 15.0}
OF_VISITS = StudyInputs(tuple(name for names in CITIES.values() for name in names), CITIES, FILE_MINUTES)

write_outcome = partial(
    report.write_outcome, unit="request", relation="exact counts, disclosure limited to a level"
)


@dataclass(frozen=True)
class VisitsCity:
    """Made-up visits, and how many requests of theirs are tested."""

    world: VisitsWorld
    visits: int
    tests: int

    def trial(self) -> VisitsTrial:
        trace = read_trace(with_contexts(each.batch) for each in self.world.batches(self.visits))
        return VisitsTrial.of(trace, self.tests, self.world.seed)


@dataclass(frozen=True)
class VisitsFile:
    """A log of visits as it is now: its size and time of change tell it from one that was changed since."""

    place: Path
    size: int
    changed: int
    tests: int

    @classmethod
    def within(cls, folder: Path, tests: int, city: str = "") -> VisitsFile:
        for name in CITIES[city]:
            place = exact_file(folder, name)
            if place is not None:
                state = place.stat()
                return cls(place, state.st_size, state.st_mtime_ns, tests)
        names = " or ".join(CITIES[city])
        raise BadInput(f"expected a log of visits, {names} with .csv, .csv.gz or .parquet, in {folder}")

    def trial(self) -> VisitsTrial:
        reader = LogReader(LOG, self.place)
        batches = [batch for batch in reader.stream(lambda examples: examples.rows) if batch.num_rows]
        if not batches:
            raise BadInput(reader.no_examples)
        try:
            trace = read_trace(batches)
            bad = trace.left_out + reader.bad_rows.count
            return VisitsTrial.of(replace(trace, left_out=bad), self.tests, seed=1)
        except BadInput as refusal:
            raise BadInput(f"{self.place}: {refusal}") from None


def trial_sources(asked: StudyRequest) -> Sequence[TrialSource]:
    """One per seed; a file has one trace, and the seeds decide how many of its requests are tested."""
    tests = TESTS[asked.scale]
    if asked.data is not None:
        return [VisitsFile.within(asked.data, tests * asked.seeds, asked.city)]
    return [VisitsCity(VisitsWorld(seed), VISITS[asked.scale], tests) for seed in range(1, asked.seeds + 1)]
