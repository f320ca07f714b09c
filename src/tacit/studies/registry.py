"""The studies by name; a study's module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tacit.errors import BadInput
from tacit.expect import nearest

if TYPE_CHECKING:
    from tacit.studies.study import Study

STUDIES = {
    "semi-sensitive-display": "semi_sensitive.display",
    "semi-sensitive-search": "semi_sensitive.search",
    "semi-sensitive-network": "semi_sensitive.network",
    "semi-sensitive-split": "semi_sensitive.split",
    "semi-sensitive-size": "semi_sensitive.size",
    "semi-sensitive-hashing": "semi_sensitive.hashing",
    "semi-sensitive-clipping": "semi_sensitive.clipping",
    "semi-sensitive-accounting": "semi_sensitive.accounting",
    "label-dp-users": "label_dp.users",
    "label-dp-epsilon": "label_dp.epsilons",
    "label-dp-units": "label_dp.units",
    "label-dp-split": "label_dp.split",
    "label-dp-corrections": "label_dp.corrections",
    "label-dp-network": "label_dp.network",
    "label-dp-methods": "label_dp.methods",
    "choice-pricing": "choice.pricing",
    "choice-epsilon": "choice.epsilons",
    "choice-clipping": "choice.clipping",
    "choice-gamma": "choice.gamma",
    "choice-auctions": "choice.auctions",
    "choice-scores": "choice.scores",
    "choice-candidates": "choice.candidates",
    "choice-gaps": "choice.gaps",
    "choice-mixing": "choice.mixing",
    "choice-exploration": "choice.exploration",
    "choice-shuffling": "choice.shuffling",
    "choice-frontier": "choice.frontier",
    "choice-calibration": "choice.calibration",
    "choice-budget": "choice.budget",
    "choice-slots": "choice.slots",
    "choice-shading": "choice.shading",
    "choice-cohorts": "choice.cohorts",
    "contexts-threshold": "contexts.thresholds",
    "contexts-ads": "contexts.ads_sent",
    "contexts-disclosure": "contexts.disclosure",
    "contexts-greedy": "contexts.greedy",
    "contexts-history": "contexts.own_history",
    "contexts-shrinkage": "contexts.shrinkage",
    "contexts-cut": "contexts.better_cut",
    "contexts-private": "contexts.private_choice",
    "gather-epsilon": "gather.private_rates",
    "gather-away": "gather.away",
    "gather-bounds": "gather.better_counts",
    "gather-noise": "gather.noise",
    "gather-phases": "gather.phases_study",
    "cleanroom-ranks": "cleanroom.ranks",
    "cleanroom-labels": "cleanroom.labels",
    "cleanroom-debiasing": "cleanroom.debiasing",
    "cleanroom-codecs": "cleanroom.codecs",
    "cleanroom-attacks": "cleanroom.attacks",
    "cleanroom-modes": "cleanroom.modes",
}


def study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        raise BadInput(
            f"expected a study's name (tacit reproduce --list), got {name!r}{nearest(name, STUDIES)}"
        )
    found: Study = import_module(f"tacit.studies.{STUDIES[name]}").STUDY
    return found
