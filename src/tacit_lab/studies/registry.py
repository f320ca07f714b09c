"""Papers and studies by name; a study's module is imported when it is asked for.

`PAPERS` are the five papers whose findings are run again. Ids of claims and names of studies say which
paper they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from tacit.errors import BadInput
from tacit.expect import nearest

if TYPE_CHECKING:
    from tacit_lab.studies.study import Claim, Study

OURS = "ours"


@dataclass(frozen=True)
class Paper:
    """`name` is what one types; ids of claims begin with `letter`, names of studies with one of `families`."""

    name: str
    letter: str
    families: tuple[str, ...]
    short: str
    title: str
    venue: str

    @property
    def cited(self) -> str:
        return f"{self.short}, {self.title} ({self.venue})"


PAPERS = (
    Paper(
        "laro",
        "R",
        ("choice-",),
        "Laro et al. 2023",
        "Randomized algorithms for precise measurement of differentially-private, personalized recommendations",
        "arXiv 2308.03735",
    ),
    Paper(
        "chua",
        "S",
        ("semi-sensitive-",),
        "Chua et al. 2024",
        "Training Differentially Private Ad Prediction Models With Semi-Sensitive Features",
        "AdKDD 2024, arXiv 2401.15246",
    ),
    Paper(
        "ghazi",
        "L",
        ("label-dp-",),
        "Ghazi",
        "Evaluation of Label DP (Randomized Response) Mechanisms on Binary Conversion Models",
        "slides, Google Research",
    ),
    Paper(
        "li",
        "C",
        ("cleanroom-",),
        "Li et al. 2024",
        "Privacy Preserving Conversion Modeling in Data Clean Room",
        "RecSys 2024",
    ),
    Paper(
        "hardt",
        "M",
        ("contexts-", "gather-"),
        "Hardt and Nath 2012",
        "Privacy-Aware Personalization for Mobile Advertising",
        "CCS 2012",
    ),
)


def paper_of_claim(claim: Claim) -> Paper | None:
    """The paper that makes a claim; none for one of ours."""
    return next((paper for paper in PAPERS if claim.id.startswith(paper.letter)), None)


def paper_beside(study: Study) -> Paper | None:
    """The paper that a study runs again or goes beyond."""
    return next((paper for paper in PAPERS if study.name.startswith(paper.families)), None)


def paper_of_study(study: Study) -> Paper | None:
    """The paper whose figure or table a study runs again; none for one that goes beyond."""
    return None if study.paper.startswith((OURS, "beside")) else paper_beside(study)


# A module of this package that has the study as STUDY, or module:NAME where it has several.
STUDIES = {
    "semi-sensitive-display": "semi_sensitive.loss_over_epsilon:DISPLAY_STUDY",
    "semi-sensitive-search": "semi_sensitive.loss_over_epsilon:SEARCH_STUDY",
    "semi-sensitive-network": "semi_sensitive.loss_over_epsilon:NETWORK_STUDY",
    "semi-sensitive-split": "semi_sensitive.split",
    "semi-sensitive-size": "semi_sensitive.vocabulary:SIZE_STUDY",
    "semi-sensitive-hashing": "semi_sensitive.vocabulary:HASHING_STUDY",
    "semi-sensitive-clipping": "semi_sensitive.clipping",
    "semi-sensitive-accounting": "semi_sensitive.accounting",
    "label-dp-users": "label_dp.units:SIZES_STUDY",
    "label-dp-epsilon": "label_dp.loss_over_epsilon:UNITS_STUDY",
    "label-dp-units": "label_dp.units:ORDER_STUDY",
    "label-dp-split": "label_dp.units:SPLIT_STUDY",
    "label-dp-corrections": "label_dp.loss_over_epsilon:CORRECTIONS_STUDY",
    "label-dp-network": "label_dp.loss_over_epsilon:NETWORK_STUDY",
    "label-dp-methods": "label_dp.methods",
    "choice-pricing": "choice.pricing:PRICING_STUDY",
    "choice-epsilon": "choice.mechanisms:EPSILON_STUDY",
    "choice-clipping": "choice.mechanisms:CLIPPING_STUDY",
    "choice-gamma": "choice.gamma",
    "choice-auctions": "choice.auctions",
    "choice-scores": "choice.scores",
    "choice-candidates": "choice.market_statistics:CANDIDATES_STUDY",
    "choice-gaps": "choice.market_statistics:GAPS_STUDY",
    "choice-mixing": "choice.mixing",
    "choice-exploration": "choice.exploration",
    "choice-shuffling": "choice.shuffling",
    "choice-frontier": "choice.frontier",
    "choice-learning": "choice.learning",
    "choice-calibration": "choice.calibration",
    "choice-budget": "choice.budget",
    "choice-slots": "choice.slots",
    "choice-shading": "choice.pricing:SHADING_STUDY",
    "choice-cohorts": "choice.cohorts",
    "contexts-threshold": "contexts.ads_shown:THRESHOLD_STUDY",
    "contexts-ads": "contexts.ads_shown:ADS_STUDY",
    "contexts-disclosure": "contexts.disclosure:DISCLOSURE_STUDY",
    "contexts-greedy": "contexts.greedy",
    "contexts-history": "contexts.own_history",
    "contexts-shrinkage": "contexts.shrinkage",
    "contexts-cut": "contexts.disclosure:CUT_STUDY",
    "contexts-private": "contexts.private_choice",
    "gather-epsilon": "gather.private_rates:EPSILON_STUDY",
    "gather-away": "gather.private_rates:AWAY_STUDY",
    "gather-bounds": "gather.private_rates:BOUNDS_STUDY",
    "gather-noise": "gather.noise",
    "gather-phases": "gather.phases_study",
    "cleanroom-ranks": "cleanroom.sizes:RANKS_STUDY",
    "cleanroom-labels": "cleanroom.labels:LABELS_STUDY",
    "cleanroom-debiasing": "cleanroom.labels:DEBIASING_STUDY",
    "cleanroom-codecs": "cleanroom.sizes:CODECS_STUDY",
    "cleanroom-attacks": "cleanroom.attacks",
    "cleanroom-modes": "cleanroom.labels:MODES_STUDY",
    "cleanroom-advertisers": "cleanroom.advertisers",
}


def load_study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        raise BadInput(
            f"expected a study's name (tacit reproduce --list), got {name!r}{nearest(name, STUDIES)}"
        )
    module, _, study = STUDIES[name].partition(":")
    found: Study = getattr(import_module(f"tacit_lab.studies.{module}"), study or "STUDY")
    return found
