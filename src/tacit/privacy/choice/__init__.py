"""Choosing by private scores, so that the choice reveals at most epsilon about them.

`choice`          what every choice offers; the private ranking; priors over private scores
`top_choice`      randomized response by private rank, among the public best, and the best plan for it
`scores`          private scores brought into a public range: scaled or clipped
`noise`           noise for report-noisy-max, and the exact law of the winner
`noisy_max`       report-noisy-max as a choice: whole-numbered weights, worst case, calibration
`floors`          the best choice for given floors
`optimal_floors`  finds the best floors for a prior, and proves it
`slates`          several slots at once; peeling
`slate_response`  several slots at once by one draw
`audit`, `audit_floors`  cases for `tacit audit`
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.privacy.choice.choice import ChoiceLaw, Stakes, epsilon_min, expected_score
    from tacit.privacy.choice.floors import Floors
    from tacit.privacy.choice.noise import Noise, ragged_pmf
    from tacit.privacy.choice.noisy_max import NoisyMax, worst_case_epsilon
    from tacit.privacy.choice.optimal_floors import best_floors
    from tacit.privacy.choice.scores import Clipped, Scaled
    from tacit.privacy.choice.slate_response import OverlapSlates, TopSlates, best_overlap
    from tacit.privacy.choice.slates import PeeledSlates, expected_sum
    from tacit.privacy.choice.top_choice import TopChoice, best_exchangeable_plan, best_top_plan
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "choice": "ChoiceLaw Stakes epsilon_min expected_score",
            "floors": "Floors",
            "noise": "Noise ragged_pmf",
            "noisy_max": "NoisyMax worst_case_epsilon",
            "optimal_floors": "best_floors",
            "scores": "Clipped Scaled",
            "slate_response": "OverlapSlates TopSlates best_overlap",
            "slates": "PeeledSlates expected_sum",
            "top_choice": "TopChoice best_exchangeable_plan best_top_plan",
        },
    )

__all__ = [
    "ChoiceLaw", "Clipped", "Floors", "Noise", "NoisyMax", "OverlapSlates", "PeeledSlates", "Scaled",
    "Stakes", "TopChoice", "TopSlates", "best_exchangeable_plan", "best_floors", "best_overlap",
    "best_top_plan", "epsilon_min", "expected_score", "expected_sum", "ragged_pmf", "worst_case_epsilon",
]  # fmt: skip
