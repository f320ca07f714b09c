"""What a study of choice leaves behind: as every study does, for its own unit and relation."""

from __future__ import annotations

from typing import Any

from tacit.studies import report
from tacit.studies.choice.setting import LOG, RELATION, UNIT
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Outcome

__all__ = ["Axes", "outcome"]


def outcome(name: str, asked: Asked, **told: Any) -> Outcome:
    """As `report.outcome`; where files are given, the log among them says whether it was made up, and its
    auctions are one sample, however many seeds are asked for."""
    given = {} if asked.data is None else {"used": [asked.data / LOG], "seeds": report.ONE_SEED}
    return report.outcome(name, asked, **{"unit": UNIT, "relation": RELATION, **given, **told})
