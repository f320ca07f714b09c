"""What an arm showed on a trace is measured once, whoever asks, and shared out evenly among processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tacit.studies.contexts.contest import contest, shared_out
from tacit.studies.contexts.kept_arrays import keep, kept
from tacit.studies.contexts.serving import Arm, Served
from tacit.studies.contexts.trace import Trace
from tacit.studies.contexts.trial import LAST, Trial
from tacit.studies.digests import spelled
from tacit.studies.gather import away, better_counts, private_rates
from tacit.studies.study import Asked, Scale


@dataclass(frozen=True)
class Trail:
    """Ten requests of one person, the last of them tested; who made it is remembered."""

    seed: int
    made: ClassVar[list[int]] = []

    def trial(self) -> Trial:
        self.made.append(self.seed)
        again = np.ones(10, bool)
        return Trial(Trace(np.ones(10, int), np.zeros(10, int), {}, again, (), np.zeros((1, 2))), np.array([9]))


@dataclass(frozen=True)
class Always:
    """Shows an ad to everybody."""

    clicked: bool
    rooms: ClassVar[tuple[str, ...]] = ()
    asked: ClassVar[list[bool]] = []

    def on(self, trial: Trial) -> Served:
        self.asked.append(self.clicked)
        shown = np.ones((len(trial.tests), 1), bool)
        return Served(shown, shown & self.clicked, bits=float(len(self.asked)))


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    Trail.made.clear()
    Always.asked.clear()


def test_an_arm_meets_a_trace_once(tmp_path: Path) -> None:
    asked = Asked(tmp_path, Scale.TOY)
    one = contest(asked, "one", [Trail(1), Trail(2)], {"yes": Always(True)})
    other = contest(asked, "other", [Trail(2), Trail(1)], {"no": Always(False), "yes": Always(True)})
    assert Always.asked == [True, True, False, False]
    assert Trail.made == [1, 2, 2, 1]
    again = contest(asked, "again", [Trail(1), Trail(2)], {"no": Always(False), "yes": Always(True)})
    assert len(Trail.made) == 4  # all is known: no trace is made
    for found in (one, other, again):
        assert found.found["yes"].everything.clicked.tolist() == [[1], [1]]
        assert found.found["yes"].parts().keys() == {"all", "repeats"}
        assert found.bits["yes"] == 1.5  # 1 on the first trace, 2 on the second
        assert found.words == "20 visits, 2 of them tested, no first visits among them"


def test_a_record_that_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    asked = Asked(tmp_path, Scale.TOY)
    contest(asked, "one", [Trail(1)], {"yes": Always(True)})
    (record,) = asked.cache.glob("served/*.npz")
    record.write_bytes(record.read_bytes()[:-40])
    assert kept(record) is None
    found = contest(asked, "one", [Trail(1)], {"yes": Always(True)})
    assert found.found["yes"].everything.shown.tolist() == [[1]]
    assert len(Always.asked) == 2


def test_records_hold_what_they_were_given(tmp_path: Path) -> None:
    keep(tmp_path / "new" / "a.npz", {"shown": np.eye(2, dtype=bool), "bits": np.array(0.5)})
    found = kept(tmp_path / "new" / "a.npz")
    assert found is not None
    assert (found["shown"].tolist(), float(found["bits"])) == ([[True, False], [False, True]], 0.5)
    assert kept(tmp_path / "none.npz") is None


@pytest.mark.parametrize(
    ("traces", "processes", "sizes"), [(3, 2, [4, 4, 2, 2]), (1, 2, [2, 2]), (2, 2, [4] * 2)]
)
def test_work_is_shared_out_evenly(traces: int, processes: int, sizes: list[int]) -> None:
    arms = {Path(f"{at}.npz"): Always(at > 1) for at in range(4)}
    items = list(shared_out({Trail(seed): arms for seed in range(traces)}, processes))
    assert [len(each) for _, each in items] == sizes
    assert sum(sizes) == 4 * traces
    assert {path for _, each in items for path in each} == set(arms)


def test_studies_share_what_they_have_in_common() -> None:
    """Arms are spelled alike wherever they are the same."""
    gathering = [spelled(arm) for study in (private_rates, away, better_counts) for arm in study.ARMS.values()]
    assert len(gathering) - len(set(gathering)) == 5  # exact and ours three times, the published noise twice
    assert spelled(Arm(LAST)) == spelled(Arm(LAST, ads=10)) != spelled(Arm(LAST, ads=5))
