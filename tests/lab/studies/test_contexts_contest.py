"""What an arm showed on a trace is measured once, whoever asks, and shared out evenly among processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tacit_lab.studies.contexts.contest import (
    ServedTests,
    ServingArm,
    load_arrays,
    run_contest,
    save_arrays,
    share_work,
)
from tacit_lab.studies.contexts.trial import LAST, Trace, VisitsTrial
from tacit_lab.studies.digests import spell_out
from tacit_lab.studies.gather.private_rates import AWAY_ARMS, BOUNDS_ARMS, EPSILON_ARMS
from tacit_lab.studies.study import StudyRequest, StudyScale


@dataclass(frozen=True)
class Trail:
    """Ten requests of one person, the last of them tested; who made it is remembered."""

    seed: int
    made: ClassVar[list[int]] = []

    def trial(self) -> VisitsTrial:
        self.made.append(self.seed)
        again = np.ones(10, bool)
        return VisitsTrial(
            Trace(np.ones(10, int), np.zeros(10, int), {}, again, (), np.zeros((1, 2))), np.array([9])
        )


@dataclass(frozen=True)
class Always:
    """Shows an ad to everybody."""

    clicked: bool
    packages: ClassVar[tuple[str, ...]] = ()
    asked: ClassVar[list[bool]] = []

    def on(self, trial: VisitsTrial) -> ServedTests:
        self.asked.append(self.clicked)
        shown = np.ones((len(trial.tests), 1), bool)
        return ServedTests(shown, shown & self.clicked, bits=float(len(self.asked)))


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    Trail.made.clear()
    Always.asked.clear()


def test_an_arm_meets_a_trace_once(tmp_path: Path) -> None:
    asked = StudyRequest(tmp_path, StudyScale.TOY)
    one = run_contest(asked, "one", [Trail(1), Trail(2)], {"yes": Always(True)})
    other = run_contest(asked, "other", [Trail(2), Trail(1)], {"no": Always(False), "yes": Always(True)})
    assert Always.asked == [True, True, False, False]
    assert Trail.made == [1, 2, 2, 1]
    again = run_contest(asked, "again", [Trail(1), Trail(2)], {"no": Always(False), "yes": Always(True)})
    assert len(Trail.made) == 4  # all is known: no trace is made
    for found in (one, other, again):
        assert found.found["yes"].everything.clicked.tolist() == [[1], [1]]
        assert found.found["yes"].parts().keys() == {"all", "repeats"}
        assert found.bits["yes"] == 1.5  # 1 on the first trace, 2 on the second
        assert found.words == "20 visits, 2 of them tested, no first visits among them"


def test_a_record_that_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    asked = StudyRequest(tmp_path, StudyScale.TOY)
    run_contest(asked, "one", [Trail(1)], {"yes": Always(True)})
    (record,) = asked.cache.glob("served/*.npz")
    record.write_bytes(record.read_bytes()[:-40])
    assert load_arrays(record) is None
    found = run_contest(asked, "one", [Trail(1)], {"yes": Always(True)})
    assert found.found["yes"].everything.shown.tolist() == [[1]]
    assert len(Always.asked) == 2


def test_records_hold_what_they_were_given(tmp_path: Path) -> None:
    save_arrays(tmp_path / "new" / "a.npz", {"shown": np.eye(2, dtype=bool), "bits": np.array(0.5)})
    found = load_arrays(tmp_path / "new" / "a.npz")
    assert found is not None
    assert (found["shown"].tolist(), float(found["bits"])) == ([[True, False], [False, True]], 0.5)
    assert load_arrays(tmp_path / "none.npz") is None


@pytest.mark.parametrize(
    ("traces", "processes", "sizes"), [(3, 2, [4, 4, 2, 2]), (1, 2, [2, 2]), (2, 2, [4] * 2)]
)
def test_work_is_shared_out_evenly(traces: int, processes: int, sizes: list[int]) -> None:
    arms = {Path(f"{at}.npz"): Always(at > 1) for at in range(4)}
    items = list(share_work({Trail(seed): arms for seed in range(traces)}, processes))
    assert [len(each) for _, each in items] == sizes
    assert sum(sizes) == 4 * traces
    assert {path for _, each in items for path in each} == set(arms)


def test_studies_share_what_they_have_in_common() -> None:
    """Arms are spelled alike wherever they are the same."""
    by_study = (EPSILON_ARMS, AWAY_ARMS, BOUNDS_ARMS)
    gathering = [spell_out(arm) for of_study in by_study for arm in of_study.values()]
    assert len(gathering) - len(set(gathering)) == 5  # exact and ours three times, the published noise twice
    assert (
        spell_out(ServingArm(LAST)) == spell_out(ServingArm(LAST, ads=10)) != spell_out(ServingArm(LAST, ads=5))
    )
