"""Many auctions at once: what is offered and at what price is public; only the choice reads private scores.

blocks            ragged auctions, public and private columns apart; ranked and priced offers
config            a simulated market in one TOML file: its auctions, rules and arms
logs              blocks from a generated market or a Parquet log, as they stream by
choices           greedy, non-personalised, top-m randomized response
planned_choices   plans for blocks, as choice rules
learning_choices  the same, by priors that are learnt from one part of a market to the next
simulation        a market run from its configuration: figures, what was learnt, what is shown
noisy_choices     noisy max, for comparison only
metrics, market   clicks, surplus, revenue and welfare with standard errors, over a stream of blocks
devices           the device's own choice, for many devices and visits
incentives        what bidders gain by bidding less than their value
"""
