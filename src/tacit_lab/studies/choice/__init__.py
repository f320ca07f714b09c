"""Private choice among the candidates of an auction: Laro et al. 2023 (arXiv 2308.03735), and beyond it.

markets             the two made-up markets, or the logged one that --data holds; parts of them
contestants         the mechanisms that are compared
lifts               lifts with intervals over auctions: rows, lines, rules, files
pricing             figures 2, 6; and ours: what bidders gain by shading
mechanisms          figures 3, 5, 7
gamma               figures 4, 8
auctions            figure 9
scores              figure 10
market_statistics   figures 11, 12
mixing              figure 13
shuffling           appendix B
exploration         appendix C; bandits: devices that learn by themselves, and their regret
frontier            ours: under the bound for any mechanism
learning            ours: by the prior that is assumed, learnt or counted; checkins: real cities
prior_trials        its trials on made-up requests, prior_verdicts its rules; reports, truths: what they need
calibration         ours: where RR and SNM spend the same
budget, slots, cohorts   ours: ten requests, three slots, how many are really hidden
"""
