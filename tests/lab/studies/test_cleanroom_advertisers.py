"""The study of real advertisers: the rules of its verdicts, and which partners are tuned for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import BadInput
from tacit_lab.studies.cleanroom import advertisers
from tacit_lab.studies.cleanroom.partners import (
    ALL,
    BOTH,
    CALIBRATION,
    NONE,
    OWN,
    VALUES,
    PartnerArm,
    Partners,
    PartnerWork,
    partner_log,
    partner_work,
)
from tacit_lab.studies.logs import Frequent, Hashed, StudyLog
from tacit_lab.studies.results import StudySettings, write_result
from tacit_lab.studies.study import StudyRequest, StudyScale
from tests.support.toy_studies import prepare_study_log

PARTNERS = (1, 2, 3, 4, 5, 6, 7)
BASE = 0.6
EMBEDDINGS, LAYERS = advertisers.private(VALUES, 3.0), advertisers.private("32", 3.0)
USUAL = {"log_loss": 0.3, "calibration_ratio": 1.1, "others_changed": 0, "bytes_an_example": 100.0}


def judged(folder: Path, changes: Mapping[PartnerArm, Mapping[str, float]]) -> dict[str, bool | None]:
    """Verdicts on a table where all is as the claims say, but for these; partners differ by very little."""
    gains = {
        NONE: 0.0, ALL: 5.0, "32": 4.9, "8": 4.8, "1": 4.0, VALUES: 9.0, BOTH: 9.0, OWN: 3.0, CALIBRATION: 0.0
    }  # fmt: skip
    rows = []
    for arm in advertisers._arms():
        gain = gains[arm.tuned]
        told: dict[str, Any] = {**USUAL}
        at_three = 0 if arm.epsilon == 3.0 else 1
        if arm.tuned == "32" and arm.epsilon in (3.0, 5.0) and arm.codec == "fp32":
            lost, ratio = advertisers.LOST[arm.loss][at_three], advertisers.RATIOS[arm.loss][at_three]
            gain = 100 * ((1 + gain / 100) * (1 - lost / 100) - 1)
            told["calibration_ratio"] = 1.1 * ratio
        if arm.codec in advertisers.CODEC_LOSS:
            gain = 100 * ((1 + gain / 100) * (1 - advertisers.CODEC_LOSS[arm.codec] / 100) - 1)
        if arm.tuned == CALIBRATION:
            told["log_loss"] = 0.32
        told["auc"] = BASE * (1 + gain / 100)
        told |= changes.get(arm, {})
        for partner in PARTNERS:
            own = {
                name: value * (1 + 1e-5 * (partner % 3) * (arm.tuned != NONE)) for name, value in told.items()
            }
            own["others_changed"] = int(told["others_changed"])
            rows.append({"seed": partner, **asdict(arm), **own})
    settings = StudySettings(
        advertisers.NAME, data="made up", synthetic=True, seeds=(1,), unit="click", relation="replace label",
        command="none", parameters={"scale": "small"},
    )  # fmt: skip
    write_result(folder, settings, {name: [row[name] for row in rows] for name in rows[0]}, minutes=0.0)
    found = advertisers.STUDY.findings(folder)
    assert [each.claim for each in found] == list(advertisers.STUDY.claims)
    return {each.claim.id: each.holds for each in found}


def test_what_the_claims_say_holds(tmp_path: Path) -> None:
    assert set(judged(tmp_path, {}).values()) == {True}


@pytest.mark.parametrize(
    ("claim", "arm", "figures"),
    [
        ("C1", PartnerArm("32"), {"auc": BASE * 1.04}),
        ("C2", PartnerArm("1"), {"auc": BASE * 1.02}),
        ("C3", PartnerArm("32", 3.0), {"auc": BASE * 1.04}),
        ("C4", PartnerArm("32", 3.0), {"calibration_ratio": 1.5}),
        ("C5", PartnerArm("32", 3.0, "forward"), {"auc": BASE}),
        ("C5", PartnerArm("32", 5.0, "forward"), {"calibration_ratio": 1.3}),
        ("C6", PartnerArm("8", codec="bf16"), {"auc": BASE * 1.048}),
        ("C8", EMBEDDINGS, {"others_changed": 1}),
        ("T71", LAYERS, {"auc": BASE * 1.2}),
        ("T72", advertisers.private(BOTH, 3.0), {"auc": BASE * 1.2}),
        ("T73", advertisers.private(OWN, 3.0), {"auc": BASE * 1.2}),
        ("T74", EMBEDDINGS, {"log_loss": 0.4}),
    ],
)
def test_each_rule_can_fail(claim: str, arm: PartnerArm, figures: Mapping[str, float], tmp_path: Path) -> None:
    assert judged(tmp_path, {arm: figures})[claim] is False


def test_partners_that_do_not_share_are_in_nobody_elses_clicks(tmp_path: Path) -> None:
    log = StudyLog("search-small", 8_000, 1, public=Frequent(5), sensitive=Hashed(64))
    ready, work = prepare_study_log(log, tmp_path), PartnerWork(8_000, 3_000, 10, 2, 30)
    split = Partners.of(ready, work)
    keys, times = np.asarray(ready.columns["advertiser"]), np.asarray(ready.columns["time"])
    assert len(split.own) == 2
    assert len(split.base) <= 3_000
    assert times[split.base].max() <= np.quantile(times, 0.7)
    for rows in split.own:
        mine = np.unique(keys[rows])
        assert len(mine) == 1
        assert mine[0] not in keys[split.base]
        assert (np.asarray(ready.columns.label)[rows] == 1).sum() >= 30
        assert np.all(np.diff(times[rows]) >= 0)
    tuned, test = split.split(0)
    assert len(tuned) == int(0.7 * len(split.own[0]))
    assert len(tuned) + len(test) == len(split.own[0])


def test_a_published_file_is_found_by_either_name(tmp_path: Path) -> None:
    asked = StudyRequest(tmp_path, StudyScale.SMALL, data=tmp_path)
    with pytest.raises(BadInput, match=r"expected criteo-search\.csv, \.tsv, \.txt"):
        partner_log(asked)
    for name in ("criteo_search_219_partners.parquet", "criteo-search.parquet"):
        (tmp_path / name).write_bytes(b"")
        assert partner_log(asked).file == tmp_path / name
    assert partner_work(asked).tuned == 20
    assert partner_log(StudyRequest(tmp_path, StudyScale.TOY)).file is None
