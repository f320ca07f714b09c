"""Choosing by private scores, so that the choice tells at most epsilon about them.

`choice`         what every choice offers: exact law, exact epsilon, whole-numbered sampling
`ranking`        the private ranking, ties in public order
`ranked`         TopChoice: randomized response by private rank, among the public best
`scores`         private scores brought into a public range: scaled or clipped
`noise`          the laws of a noisy contest: `gumbel`, `permute_and_flip`, `laplace` (`nodes`: the quadrature)
`noisy_max`      NoisyMax: the contest as a choice, at the nominal rate or calibrated
`worst_case`     what a contest really spends, and the rate that spends as asked
`whole_weights`  from doubles to whole numbers between public floors and caps
`ragged`         laws of requests of different sizes
`floors`         Floors: the best choice for given floors; `optimal` finds them, `certificate` proves it
`prior`          what is known beforehand; `top_plan`: the best TopChoice for it
`slates`         several slots at once
`audit`          cases for `tacit audit`, with `audit_optimal`
"""
