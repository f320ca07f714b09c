"""The traces of these studies: made-up cities, or a log of visits where files are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tacit.data.generators.visits import VisitsWorld
from tacit.data.logs.visits import LOG, with_contexts
from tacit.data.reading.stream import LogReader
from tacit.errors import BadInput
from tacit.studies import report
from tacit.studies.contexts.contest import Source
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

outcome = partial(report.outcome, unit="request", relation="exact counts, disclosure limited to a level")


@dataclass(frozen=True)
class City:
    """Made-up visits, and how many requests of theirs are tested."""

    world: VisitsWorld
    visits: int
    tests: int

    def trial(self) -> Trial:
        trace = trace_of(with_contexts(each.batch) for each in self.world.batches(self.visits))
        return Trial.of(trace, self.tests, self.world.seed)


@dataclass(frozen=True)
class VisitsFile:
    """A log of visits as it is now: its size and time of change tell it from one that was changed since."""

    place: Path
    size: int
    changed: int
    tests: int

    @classmethod
    def within(cls, folder: Path, tests: int) -> VisitsFile:
        for name in FILES:
            try:
                place = published_file(folder, name)
            except BadInput:
                continue
            state = place.stat()
            return cls(place, state.st_size, state.st_mtime_ns, tests)
        raise BadInput(
            f"expected a log of visits, {' or '.join(FILES)} with .csv, .csv.gz or .parquet, in {folder}"
        )

    def trial(self) -> Trial:
        reader = LogReader(LOG, self.place)
        batches = [batch for batch in reader.stream(lambda examples: examples.rows) if batch.num_rows]
        if not batches:
            raise BadInput(reader.no_examples)
        try:
            trace = trace_of(batches)
            bad = trace.left_out + reader.bad_rows.count
            return Trial.of(replace(trace, left_out=bad), self.tests, seed=1)
        except BadInput as refusal:
            raise BadInput(f"{self.place}: {refusal}") from None


def sources(asked: Asked) -> Sequence[Source]:
    """One a seed; a file has one trace, and the seeds decide how many of its requests are tested."""
    tests = TESTS[asked.scale]
    if asked.data is not None:
        return [VisitsFile.within(asked.data, tests * asked.seeds)]
    return [City(VisitsWorld(seed), VISITS[asked.scale], tests) for seed in range(1, asked.seeds + 1)]
