"""Private choice among the candidates of an auction, on made-up markets and on a logged one: Laro et al. 2023
(arXiv 2308.03735), and beyond it.

setting         the two made-up markets, or the logged one that --data holds
taobao          a prepared Taobao log and two click models as a market
parts           auctions of some sizes, and devices that know less
contestants     the mechanisms that are compared
forecasts       public forecasts that arms share
lifts           lifts with intervals over auctions, as tables have them, and rules for verdicts on them
lines           lines and panels of lifts
report          the table, figure and settings that a study leaves

pricing         figures 2, 6        epsilons    figures 3a-c, 7a-c      clipping    figures 3d-f, 5, 7d-f
gamma           figures 4, 8        auctions    figure 9                scores      figure 10
candidates      figure 11           gaps        figure 12               mixing      figure 13
shuffling       appendix B          exploration appendix C
frontier        ours: under the bound for any mechanism
calibration     ours: where RR and SNM spend the same
budget, slots, shading, cohorts   ours: ten requests, three slots, bidders, who is really hidden
"""
