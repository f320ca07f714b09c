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
