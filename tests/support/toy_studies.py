"""The studies of a family, at toy size: those that take longest run with the slow tests only. Their logs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tacit_lab.studies.logs import ReadyLog, StudyLog, build_log, is_whole, log_folder, open_log
from tacit_lab.studies.registry import STUDIES

LONG = {
    "semi-sensitive-network",
    "semi-sensitive-display",
    "semi-sensitive-search",
    "semi-sensitive-size",
    "label-dp-epsilon",
    "label-dp-corrections",
    "choice-frontier",
    "choice-learning",
    "choice-clipping",
    "choice-calibration",
    "choice-epsilon",
    "choice-auctions",
    "choice-mixing",
    "contexts-disclosure",
    "contexts-cut",
    "contexts-shrinkage",
    "gather-away",
    "gather-bounds",
    "cleanroom-ranks",
    "cleanroom-labels",
    "cleanroom-debiasing",
    "cleanroom-codecs",
    "cleanroom-modes",
    "cleanroom-advertisers",
}


def toy_studies(family: str, without: Collection[str] = ()) -> list[Any]:
    """Names for `parametrize`."""
    names = [name for name in STUDIES if name.startswith(family) and name not in without]
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names]


def prepare_study_log(log: StudyLog, cache: Path) -> ReadyLog:
    """The log, made if it is not there yet."""
    folder = log_folder(log, cache)
    if not is_whole(folder):
        build_log(log, folder)
    return open_log(folder)
