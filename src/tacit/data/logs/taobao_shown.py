"""Histories where no behaviour was logged: the ads that each person was shown before, from the impressions
themselves.

Which ads were shown is a feature; whether they were clicked is the label, and is not read here. A history of
clicks would hand other rows' labels to the model as features, and a promise about labels would be void.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.logs.taobao_tables import (
    HISTORY,
    HISTORY_BRAND,
    HISTORY_LENGTH,
    Shape,
    SideTable,
    parsed_blocks,
)
from tacit.data.reading.layout import Raw
from tacit.data.reading.stream import in_order
from tacit.data.reading.text import Parsed
from tacit.errors import BadInput

IMPRESSION = Shape(
    "user", MappingProxyType({"user": Raw.WHOLE, "time_stamp": Raw.TIME, "adgroup_id": Raw.WHOLE})
)
ANY_NUMBER = 2**62  # of rows that cannot be read: the log's own reader has the limit
TIME_BITS = 34  # seconds of five centuries; what is left of 63 bits counts people

Integers = NDArray[np.int64]


class ShownBefore:
    """Read when it is first asked, in one pass; then 12 bytes an impression stay in memory."""

    def __init__(self, impressions: Path, ads: SideTable) -> None:
        self._path, self._ads = impressions, ads
        self._lock = Lock()  # blocks are joined on several threads
        self._shown: _Shown | None = None

    def of(self, users: pa.Array, times: pa.Array) -> dict[str, pa.Array]:
        """The last ads of each person strictly before each time, oldest first: their categories and brands."""
        with self._lock:
            if self._shown is None:
                self._shown = _Shown.read(self._path, self._ads)
        starts, ends = self._shown.before(_numbers(users), _numbers(times))
        offsets = np.concatenate([[0], np.cumsum(ends - starts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], ends - starts)
        ads = pa.array(self._shown.ad[np.repeat(starts, ends - starts) + within])
        where = pa.array(offsets.astype(np.int32))
        columns = ((HISTORY, "cate_id"), (HISTORY_BRAND, "brand"))
        values = self._ads.columns
        return {
            name: pa.ListArray.from_arrays(where, values.column(of_ad).take(ads).combine_chunks())
            for name, of_ad in columns
        }


@dataclass(frozen=True)
class _Shown:
    """Impressions in the order of person and time, equal times in that of the file."""

    people: Integers  # rising
    first: Integers  # (people + 1,): where each one's begin
    key: Integers  # (impressions,): the person's number, then the time since `epoch`
    ad: NDArray[np.int32]  # (impressions,): a row of the ads' table
    epoch: int

    @classmethod
    def read(cls, path: Path, ads: SideTable) -> _Shown:
        """Rows that cannot be read, or whose ad nobody knows, are passed over: the log's own reader says so."""
        users, times, shown = [], [], []
        for parsed in in_order(lambda parse: parse(), _blocks(path)):
            rows = parsed.rows.filter(_whole(parsed.rows))
            number = rows.column("adgroup_id").to_numpy()
            at = np.minimum(np.searchsorted(ads.keys, number), len(ads.keys) - 1)
            known = ads.keys[at] == number
            users.append(rows.column("user").to_numpy()[known])
            times.append(rows.column("time_stamp").to_numpy()[known])
            shown.append(at[known].astype(np.int32))
        nothing = np.empty(0, np.int64)
        user, time = np.concatenate([nothing, *users]), np.concatenate([nothing, *times])
        people, person = np.unique(user, return_inverse=True)
        epoch = int(time.min()) if len(time) else 0
        if len(time) and int(time.max()) - epoch >= 2**TIME_BITS:
            raise BadInput(f"{path}: expected times within {2**TIME_BITS} seconds of each other, got others")
        key = (person << TIME_BITS) | (time - epoch)
        order = np.argsort(key, kind="stable")
        first = np.searchsorted(person[order], np.arange(len(people) + 1))
        ad = np.concatenate([np.empty(0, np.int32), *shown])
        return cls(people, first, key[order], ad[order], epoch)

    def before(self, users: Integers, times: Integers) -> tuple[Integers, Integers]:
        """From where to where each person's last impressions before each time are."""
        if not len(self.people):
            return np.zeros_like(users), np.zeros_like(users)
        person = np.minimum(np.searchsorted(self.people, users), len(self.people) - 1)
        since = np.clip(times - self.epoch, 0, 2**TIME_BITS - 1)
        ends = np.searchsorted(self.key, (person << TIME_BITS) | since, side="left")
        ends = np.where(self.people[person] == users, ends, self.first[person])
        return np.maximum(self.first[person], ends - HISTORY_LENGTH), ends


def _blocks(path: Path) -> Iterator[Callable[[], Parsed]]:
    return parsed_blocks(path, IMPRESSION, bad_rows_limit=ANY_NUMBER)


def _whole(rows: pa.RecordBatch) -> pa.Array:
    user, time, ad = (rows.column(name).is_valid() for name in IMPRESSION.columns)
    return pc.and_(user, pc.and_(time, ad))


def _numbers(array: pa.Array) -> Integers:
    """With 0 for null, in rows that are refused later on."""
    return np.asarray(pc.fill_null(array, 0).to_numpy(zero_copy_only=False), np.int64)
