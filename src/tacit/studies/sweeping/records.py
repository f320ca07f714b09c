"""The records of a sweep: its runs by their digests, refusals left out."""

from __future__ import annotations

from pathlib import Path

from tacit.studies import records
from tacit.studies.records import Record
from tacit.studies.sweeping.runs import REFUSED, SweepRun


class Records:
    """A folder of records, one for each run that worked."""

    def __init__(self, folder: Path) -> None:
        self._records = records.Records(folder)

    def of(self, run: SweepRun) -> Record | None:
        """The record of a run; None if it is not done."""
        return self._records.of(run.digest)

    def keep(self, run: SweepRun, record: Record) -> None:
        """Refusals are not kept: whoever asks again may have changed what was refused."""
        if REFUSED not in record:
            self._records.keep(run.digest, record)
