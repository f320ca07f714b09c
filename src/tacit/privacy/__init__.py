"""Differential privacy: pure maths, with no clock, no files and no randomness of its own.

`budget`, `units`              the nouns of a guarantee: epsilon and delta, units, neighbouring relations
`allocation`                   how a unit's budget is divided among its impressions
`releases`, `statement`        what was published, and what that guarantees in words
`mechanisms`, `noise`          what makes a release private, each with its exact law
`choice`                       choosing one of several candidates, or a slate, by private scores
`accounting`, `calibration`    epsilon from noise, noise from epsilon
`shuffling`                    privacy amplification by shuffling
`ledger`                       the rules of spending a budget
`audit`                        testing each mechanism against its claim
`randomness`                   the protocols by which randomness is handed in
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.privacy.accounting.accountant import delta, epsilon, pure_epsilon, rdp_epsilon
    from tacit.privacy.allocation import allocate
    from tacit.privacy.budget import Budget
    from tacit.privacy.calibration import CalibrationMemory, noise_multiplier
    from tacit.privacy.ledger.guarantee import Guarantee, convert
    from tacit.privacy.ledger.lines import Line, Series
    from tacit.privacy.ledger.requests import Request
    from tacit.privacy.mechanisms.memoisation import FlipKey, flip_labels
    from tacit.privacy.mechanisms.partition_selection import PartitionSelection
    from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
    from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace
    from tacit.privacy.noise.shares import SkellamShares
    from tacit.privacy.randomness import Source
    from tacit.privacy.releases import (
        Composed,
        FlippedLabels,
        GaussianStatistic,
        Grouped,
        Release,
        ShuffledChoice,
        SubsampledGaussian,
    )
    from tacit.privacy.statement import PrivacyStatement
    from tacit.privacy.units import Cap, Relation, Split, Unit, UnitKind, Window
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "accounting.accountant": "delta epsilon pure_epsilon rdp_epsilon",
            "allocation": "allocate",
            "budget": "Budget",
            "calibration": "CalibrationMemory noise_multiplier",
            "ledger.guarantee": "Guarantee convert",
            "ledger.lines": "Line Series",
            "ledger.requests": "Request",
            "mechanisms.memoisation": "FlipKey flip_labels",
            "mechanisms.partition_selection": "PartitionSelection",
            "mechanisms.randomized_response": "RandomizedResponse",
            "noise.distributions": "DiscreteGaussian DiscreteLaplace",
            "noise.shares": "SkellamShares",
            "randomness": "Source",
            "releases": (
                "Composed FlippedLabels GaussianStatistic Grouped Release ShuffledChoice SubsampledGaussian"
            ),
            "statement": "PrivacyStatement",
            "units": "Cap Relation Split Unit UnitKind Window",
        },
    )

__all__ = [
    "Budget", "CalibrationMemory", "Cap", "Composed", "DiscreteGaussian", "DiscreteLaplace", "FlipKey",
    "FlippedLabels", "GaussianStatistic", "Grouped", "Guarantee", "Line", "PartitionSelection",
    "PrivacyStatement", "RandomizedResponse", "Relation", "Release", "Request", "Series", "ShuffledChoice",
    "SkellamShares", "Source", "Split", "SubsampledGaussian", "Unit", "UnitKind", "Window", "allocate",
    "convert", "delta", "epsilon", "flip_labels", "noise_multiplier", "pure_epsilon", "rdp_epsilon",
]  # fmt: skip
