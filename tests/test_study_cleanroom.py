"""Tables 1, 2 and A1 of the clean room: toy runs from beginning to end, and the rules of their verdicts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tacit.studies.cleanroom import codecs, labels, ranks
from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.setting import ALL, LOWRANK, NONE, VALUE, Arm
from tacit.studies.registry import study
from tacit.studies.runs import Runs
from tacit.studies.study import Asked, Finding, Scale
from toy_studies import toy_studies

SEEDS = (1, 2, 3)


def measured(figures: dict[Arm, dict[str, float]]) -> Measurements:
    """Every seed a little beside the next, so that intervals are short and not empty."""
    rows = [
        {
            **asdict(arm),
            "seed": seed,
            "calibration_ratio": 1.0,
            "others_changed": 0,
            "bytes_an_example": 1000.0,
            **{name: value * (1 + 1e-6 * seed) for name, value in known.items()},
        }
        for arm, known in figures.items()
        for seed in SEEDS
    ]
    return Measurements(list(figures), Runs(rows))


def verdicts(found: list[Finding]) -> dict[str, bool | None]:
    return {each.id: each.holds for each in found}


def of_ranks(share: float) -> Measurements:
    figures: dict[Arm, dict[str, float]] = {}
    for world in (VALUE, LOWRANK):
        figures[Arm(NONE, world=world)] = {"auc": 0.8}
        figures[Arm(ALL, world=world)] = {"auc": 0.84}
        for rank in ranks.RANKS:
            figures[Arm(rank, world=world)] = {"auc": 0.8 + 0.04 * share}
    return measured(figures)


@pytest.mark.parametrize(("share", "holds"), [(0.95, True), (0.91, True), (0.89, False), (0.7, False)])
def test_rank_32_holds_from_nine_tenths_of_the_gain_on(share: float, holds: bool) -> None:
    assert ranks._share(of_ranks(share), VALUE, 32, ranks.ABOUT_95, "C1").holds is holds


def test_one_changed_prediction_of_another_advertiser_fails() -> None:
    found = of_ranks(0.95)
    assert ranks._untouched(found).holds
    found._runs.rows[-1]["others_changed"] = 1
    assert not ranks._untouched(found).holds


def of_labels(raw: tuple[float, float], ratios: tuple[float, float], forward: float = 1.0) -> Measurements:
    figures: dict[Arm, dict[str, float]] = {Arm(NONE): {"auc": 0.78}, Arm(): {"auc": 0.8}}
    for at, epsilon in enumerate(labels.EPSILONS):
        lost = 0.8 * (1 - raw[at] / 100)
        figures[Arm(epsilon=epsilon)] = {"auc": lost, "calibration_ratio": ratios[at]}
        figures[Arm(epsilon=epsilon, loss="forward")] = {"auc": 0.799, "calibration_ratio": forward}
    return measured(figures)


def test_the_papers_own_figures_would_hold() -> None:
    found = of_labels((8.3, 2.1), (4.0, 1.4))
    assert labels._lost(found).holds
    assert labels._calibrated(found, "raw").holds
    assert labels._calibrated(found, "forward").holds


@pytest.mark.parametrize(
    ("raw", "ratios", "forward", "fails"),
    [
        ((1.8, 0.2), (4.0, 1.4), 1.0, "C3"),
        ((8.3, 2.1), (1.5, 1.1), 1.0, "C4"),
        ((8.3, 2.1), (4.0, 1.4), 1.07, "C5"),
        ((8.3, 2.1), (4.0, 1.4), 0.93, "C5"),
    ],
)
def test_other_figures_fail(raw: Any, ratios: Any, forward: float, fails: str) -> None:
    found = of_labels(raw, ratios, forward)
    findings = [labels._lost(found), *(labels._calibrated(found, loss) for loss in ("raw", "forward"))]
    assert [id for id, holds in verdicts(findings).items() if not holds] == [fails]


def of_codecs(lost: dict[str, float]) -> Measurements:
    figures: dict[Arm, dict[str, float]] = {Arm(NONE): {"auc": 0.78}}
    for codec in (*codecs.DENSE, *codecs.FACTORED):
        figures[codecs.through(codec)] = {"auc": 0.8 * (1 - lost.get(codec, 0.0) / 100)}
    return measured(figures)


def test_codecs_are_judged_by_what_they_cost() -> None:
    published = of_codecs({"qsgd-8": 0.61, "bf16-dense": 0.67})
    assert codecs._costs(published).holds
    assert codecs._hardly(published).holds
    assert not codecs._costs(of_codecs({"qsgd-8": 0.06})).holds
    assert not codecs._hardly(of_codecs({"int8": 0.2})).holds


@pytest.mark.parametrize("name", toy_studies("cleanroom"))
def test_a_toy_run_leaves_all_its_files_and_decides_nothing(name: str, tmp_path: Path) -> None:
    outcome = study(name).outcome(Asked(tmp_path, Scale.TOY, seeds=1, processes=1))
    assert outcome.rows
    assert all(path.exists() for path in outcome.files)
    assert {finding.holds for finding in outcome.findings} == {None}
    assert "synthetic" in outcome.note
