"""The five papers whose findings are run again, and which studies and claims belong to which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.studies.study import Claim, Study

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
