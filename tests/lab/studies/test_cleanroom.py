"""Tables 1, 2 and A1 of the clean room: toy runs from beginning to end, and the rules of their verdicts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tacit.arrays import Floats
from tacit.cleanroom.attacks import suite
from tacit.cleanroom.attacks.game import AttackWorld
from tacit.cleanroom.attacks.probes import Logits, Tokens
from tacit.cleanroom.attacks.probes import StepQuestion as AskedStep
from tacit.cleanroom.attacks.unsafe_targets import PublishedProtocol
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.entropy import Simulation
from tacit.errors import RoomRefused
from tacit_lab.studies.cleanroom import attacks, labels, sizes
from tacit_lab.studies.cleanroom.setting import ALL, LOWRANK, NONE, VALUE, TuningArm
from tacit_lab.studies.cleanroom.tuning import TuningMeasurements
from tacit_lab.studies.registry import load_study
from tacit_lab.studies.results import ResultFiles, StudySettings, write_result
from tacit_lab.studies.study import Finding, Study, StudyRequest, StudyScale
from tests.support.toy_studies import toy_studies

SEEDS = (1, 2, 3)
SOLVING = "solve 576 equations for 384 labels"
Figures = Mapping[TuningArm, Mapping[str, float | Sequence[float]]]
USUAL = {
    "calibration_ratio": 1.0, "others_changed": 0, "bytes_an_example": 1e3, "dense_qsgd_8_bytes": 2e4,
    "trained_parameters": 2.0, "parameters": 200.0,
}  # fmt: skip


def table(figures: Figures) -> list[dict[str, Any]]:
    """A row for each arm and seed: figures seed by seed, or one for all, every seed a little beside the next so
    that intervals are short and not empty."""
    rows = []
    for arm, known in figures.items():
        for at, seed in enumerate(SEEDS):
            told = {
                name: value * (1 + 1e-6 * seed) if isinstance(value, int | float) else value[at]
                for name, value in {**USUAL, **known}.items()
            }
            rows.append({**asdict(arm), "seed": seed, **told})
    return rows


def judged(folder: Path, judging: Study, rows: Sequence[Mapping[str, Any]]) -> dict[str, bool | None]:
    """Verdicts on a table that was written and read again."""
    settings = StudySettings(
        judging.name, data="made up", synthetic=True, seeds=SEEDS, unit="click", relation="replace label",
        command="none", parameters={"scale": "small"},
    )  # fmt: skip
    write_result(folder, settings, {name: [row[name] for row in rows] for name in rows[0]}, minutes=0.0)
    found = judging.findings(folder)
    assert {each.claim for each in found} == set(judging.claims)
    return {name(each): each.holds for each in found}


def name(found: Finding) -> str:
    return f"{found.claim.id} {found.where}" if found.claim is sizes.T26 else found.claim.id


def of_ranks(kept: float | Sequence[float]) -> list[dict[str, Any]]:
    """Adapters that keep this share of the gain of tuning everything."""
    shares = [kept] * len(SEEDS) if isinstance(kept, float) else kept
    figures: dict[TuningArm, dict[str, Any]] = {}
    for world in (VALUE, LOWRANK):
        figures[TuningArm(NONE, world=world)] = {"auc": 0.8}
        figures[TuningArm(ALL, world=world)] = {"auc": 0.84}
        for rank in sizes.RANKS:
            figures[TuningArm(rank, world=world)] = {"auc": [0.8 + 0.04 * share for share in shares]}
    return table(figures)


@pytest.mark.parametrize(
    ("kept", "about_95", "most"),
    [
        (0.95, True, True),
        (0.91, True, True),
        (0.89, False, True),
        (0.4, False, False),
        ((0.8, 0.95, 1.1), None, True),
        ((0.2, 0.6, 0.9), None, None),
        ((0.4, 0.45, 0.6), False, None),
    ],
)
def test_adapters_are_judged_by_the_share_of_the_gain(
    kept: float | Sequence[float], about_95: bool | None, most: bool | None, tmp_path: Path
) -> None:
    found = judged(tmp_path, sizes.RANKS_STUDY, of_ranks(kept))
    assert found == {"C1": about_95, "T19": about_95, "C2": most, "C8": True}
    whys = {each.claim.id: each.why for each in sizes.RANKS_STUDY.findings(tmp_path)}
    assert whys == {"C1": "", "T19": "", "C2": "", "C8": "by construction: only a bug could fail it"}


def test_one_changed_prediction_of_another_advertiser_fails(tmp_path: Path) -> None:
    rows = of_ranks(0.95)
    rows[-1]["others_changed"] = 1
    assert judged(tmp_path, sizes.RANKS_STUDY, rows)["C8"] is False


def of_labels(raw: Sequence[float], ratios: Sequence[float], forward: float = 1.0) -> list[dict[str, Any]]:
    figures: dict[TuningArm, dict[str, float]] = {TuningArm(NONE): {"auc": 0.78}, TuningArm(): {"auc": 0.8}}
    for at, epsilon in enumerate(labels.EPSILONS):
        lost = 0.8 * (1 - raw[at] / 100)
        figures[TuningArm(epsilon=epsilon)] = {"auc": lost, "calibration_ratio": ratios[at]}
        figures[TuningArm(epsilon=epsilon, loss="forward")] = {"auc": 0.799, "calibration_ratio": forward}
    return table(figures)


def test_the_papers_own_figures_would_hold(tmp_path: Path) -> None:
    found = judged(tmp_path, labels.LABELS_STUDY, of_labels((8.3, 2.1), (4.0, 1.4)))
    assert found == {"C3": True, "C4": True, "C5": True}


@pytest.mark.parametrize(
    ("raw", "ratios", "forward", "fails"),
    [
        ((1.8, 0.2), (4.0, 1.4), 1.0, "C3"),
        ((8.3, 2.1), (1.5, 1.1), 1.0, "C4"),
        ((8.3, 2.1), (4.0, 1.4), 1.07, "C5"),
        ((8.3, 2.1), (4.0, 1.4), 0.93, "C5"),
    ],
)
def test_other_figures_fail(raw: Any, ratios: Any, forward: float, fails: str, tmp_path: Path) -> None:
    found = judged(tmp_path, labels.LABELS_STUDY, of_labels(raw, ratios, forward))
    assert [id for id, holds in found.items() if holds is False] == [fails]


def test_figures_about_labels_that_span_their_bar_decide_nothing(tmp_path: Path) -> None:
    rows = of_labels((8.3, 2.1), (4.0, 1.4))
    by_seed = {1: (0.94, 0.7), 2: (1.0, 1.0), 3: (1.06, 1.3)}
    for row in rows:
        near, far = by_seed[row["seed"]]
        if row["epsilon"] in labels.EPSILONS:
            row["calibration_ratio"] *= near if row["loss"] == "forward" else far
            row["auc"] *= 1.0 if row["loss"] == "forward" else 1 - 0.05 * (row["seed"] - 2)
    assert judged(tmp_path, labels.LABELS_STUDY, rows) == {"C3": None, "C4": None, "C5": None}


def test_two_seeds_decide_nothing_about_labels(tmp_path: Path) -> None:
    rows = [row for row in of_labels((8.3, 2.1), (4.0, 1.4)) if row["seed"] < 3]
    assert set(judged(tmp_path, labels.LABELS_STUDY, rows).values()) == {None}


@pytest.mark.parametrize(
    ("forward", "holds"),
    [
        (1.02, True),
        (4.0, False),
        (1.1, False),  # nearer than the raw loss, and not what is observed
        ((0.8, 1.2, 4.8), None),
        ((2.0, 5.0, 6.0), None),
        ((0.93, 1.0, 1.07), None),
    ],
)
def test_de_biasing_is_judged_by_how_far_off_it_is(forward: Any, holds: bool | None, tmp_path: Path) -> None:
    figures: dict[TuningArm, dict[str, Any]] = {TuningArm(NONE): {"auc": 0.78}}
    for epsilon in (3.0, 5.0):
        figures[TuningArm(epsilon=epsilon)] = {"auc": 0.8, "calibration_ratio": 4.0}
        figures[TuningArm(epsilon=epsilon, loss="forward")] = {"auc": 0.8, "calibration_ratio": forward}
    assert judged(tmp_path, labels.DEBIASING_STUDY, table(figures)) == {"T20": holds}


def of_codecs(lost: Mapping[str, Any], fewer: Mapping[int, float] | None = None) -> list[dict[str, Any]]:
    """AUC lost by codec, and how many times fewer bytes int8 takes than dense 8-bit, by rank."""
    figures: dict[TuningArm, dict[str, Any]] = {TuningArm(NONE): {"auc": 0.78}}
    for rank in (sizes.CODEC_RANK, sizes.PAPERS_RANK):
        for codec in (*sizes.DENSE, *sizes.FACTORED):
            percent = lost.get(codec, 0.0)
            by_seed = [percent] * len(SEEDS) if isinstance(percent, float) else percent
            figures[sizes.codec_arm(codec, rank)] = {
                "auc": [
                    0.8 * (1 - each / 100 + 1e-8 * seed) for each, seed in zip(by_seed, SEEDS, strict=True)
                ],
                "dense_qsgd_8_bytes": 1e3 * (fewer or {}).get(rank, 12.0),
            }
    return table(figures)


def test_codecs_are_judged_by_what_they_cost(tmp_path: Path) -> None:
    published = judged(tmp_path, sizes.CODECS_STUDY, of_codecs({"qsgd-8": 0.61, "bf16-dense": 0.67}))
    assert published == {"C6": True, "T21": True, "T26 rank 8": True, "T26 rank 32": True}
    less = judged(tmp_path, sizes.CODECS_STUDY, of_codecs({"qsgd-8": 0.06, "int8": 0.2}))
    assert set(less.values()) == {False}
    spread = judged(tmp_path, sizes.CODECS_STUDY, of_codecs({"int8": (0.0, 0.05, 0.15)}))
    assert spread == {"C6": False, "T21": None, "T26 rank 8": None, "T26 rank 32": None}
    rough = judged(tmp_path, sizes.CODECS_STUDY, of_codecs({"qsgd-8": (0.0, 0.5, 1.0), "bf16-dense": 0.67}))
    assert rough["C6"] is None, "the interval spans its bars"


def test_factors_are_judged_by_their_bytes_rank_by_rank(tmp_path: Path) -> None:
    found = judged(tmp_path, sizes.CODECS_STUDY, of_codecs({}, {8: 4.9, 32: 10.1}))
    assert (found["T26 rank 8"], found["T26 rank 32"]) == (False, True)


def of_modes(gained: Mapping[str, Any]) -> list[dict[str, Any]]:
    figures: dict[TuningArm, dict[str, Any]] = {TuningArm(NONE): {"auc": 0.78}, TuningArm(): {"auc": 0.8}}
    for mode, (arm, _) in labels.MODE_LINES.items():
        for epsilon in (1.0, 3.0, 5.0):
            figures[replace(arm, epsilon=epsilon)] = {"auc": gained.get(mode, 0.79)}
    beyond = replace(labels.MODE_LINES["one noisy statistic"][0], epsilon=5.0)  # what is claimed
    figures[beyond] = {"auc": 0.7}
    return table(figures)


@pytest.mark.parametrize(
    ("auc", "holds"), [(0.795, True), (0.785, False), ((0.785, 0.80, 0.81), None), ((0.7, 0.79, 0.8), None)]
)
def test_modes_are_judged_seed_by_seed(auc: Any, holds: bool | None, tmp_path: Path) -> None:
    gained = {"one noisy statistic": auc, "noised, projected": auc}
    assert judged(tmp_path, labels.MODES_STUDY, of_modes(gained)) == {"T22": holds, "T23": holds}


def test_nothing_that_was_run_decides_nothing(tmp_path: Path) -> None:
    rows = [row for row in of_ranks(0.95) if row["tuned"] in (ALL, NONE)]
    assert sizes._judge_untouched(measurements(rows)).holds is None
    rows = [row for row in of_modes({}) if not row["project"]]
    found = judged(tmp_path, labels.MODES_STUDY, rows)
    assert found["T23"] is None
    assert attacks._judge_published([], 1.0).holds is None
    assert attacks._ours([]).holds is None


def measurements(rows: Sequence[Mapping[str, Any]]) -> TuningMeasurements:
    return TuningMeasurements.of_table(ResultFiles({name: [row[name] for row in rows] for name in rows[0]}, {}))


def of_attacks(reached: float, at_least: float) -> list[dict[str, Any]]:
    """One attack on the published protocol, and the one that reads a parameter for each record besides."""
    from tacit.cleanroom.attacks.suite import PUBLISHED

    usual = {"bar": 0.9, "advantage": 0.85, "at_least": 0.8, "allowed": 0.905, "epsilon": 3.0}
    return [
        {"attack": SOLVING, "works_against": PUBLISHED, "reached": reached, **usual, "at_least": at_least},
        {"attack": "gradient matching", "works_against": PUBLISHED, "reached": 1.0, **usual},
        {"attack": "gradients", "works_against": "split learning", "reached": 1.0, **usual},
        {"attack": attacks.READER, "works_against": PUBLISHED, "reached": 1.0, **usual, "epsilon": 8.0},
    ]


@pytest.mark.parametrize(
    ("reached", "at_least", "published", "ours"),
    [(1.0, 0.9, False, True), (0.89, 0.9, True, True), (0.89, 0.91, True, False)],
)
def test_attacks_are_judged_at_the_agreed_epsilon(
    reached: float, at_least: float, published: bool, ours: bool, tmp_path: Path
) -> None:
    found = judged(tmp_path, attacks.STUDY, of_attacks(reached, at_least))
    assert found == {"C7": published, "T24": ours}, "a batch of 256 is not large"
    assert [each.why for each in attacks.STUDY.findings(tmp_path)] == [
        "no attack of ours does" if published else "",
        "a theorem: only a bug could fail it",
    ]
    rows = [row for row in of_attacks(reached, at_least) if row["epsilon"] == 3.0]
    assert attacks._judge_published(rows, 1.0).seen == (
        f"{int(not published)} of 1 attacks on batches of 384 reach theirs; 1 of 1 attacks on batches of 256 "
        "reach theirs"
    )


class Refusing(PublishedProtocol):
    """Counts the rows of what it is asked, and answers nothing."""

    def __init__(self, world: AttackWorld) -> None:
        super().__init__(world)
        self.rows: set[int] = set()

    def aggregate(self, asked: AskedStep) -> Floats:
        return self._refused(asked.tokens)

    def log_loss(self, tokens: Tokens, logits: Logits) -> float:
        del logits
        return float(self._refused(tokens)[0])

    def _refused(self, tokens: Tokens) -> Floats:
        self.rows.add(len(tokens))
        raise RoomRefused(RoomRefusal.NOT_AGREED, "no")


@pytest.mark.parametrize("size", [0.1, 1.0])
def test_batches_are_those_that_attacks_ask_for(size: float) -> None:
    asked = {}
    for attack in suite.attacks(time.perf_counter, scale=size):
        if attack.unsafe == suite.PUBLISHED:
            source = Simulation(attack.name)
            world = attack.world(source)
            target = Refusing(world)
            attack.guessing(world)(target, world.records, source)
            asked[attack.name] = max(target.rows)
    assert asked == attacks.batch_sizes(size)


@pytest.mark.parametrize("name", toy_studies("cleanroom"))
def test_a_toy_run_leaves_all_its_files_and_decides_nothing(name: str, tmp_path: Path) -> None:
    outcome = load_study(name).outcome(StudyRequest(tmp_path, StudyScale.TOY, seeds=1, processes=1))
    assert outcome.rows
    assert all(path.exists() for path in outcome.files)
    assert {finding.holds for finding in outcome.findings} == {None}
    assert outcome.findings == load_study(name).findings(tmp_path)
    assert {finding.claim for finding in outcome.findings} == set(load_study(name).claims)
    assert "synthetic" in outcome.note
