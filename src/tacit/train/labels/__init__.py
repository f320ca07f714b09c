"""How labels become noisy targets: once, for every privacy unit, and paid for by one release.

`classes`     what is reported: 0 or 1, or public bins of a count or value
`best_bins`   which bins tell the most, by a public prior
`mechanism`   what a label mechanism is, and how its reports are read
`flips`       randomized response
`ends`        a value by one bit: rounded at random to an end of its range, and flipped
`priors`      what is publicly expected of a label
`prior_flips` randomized response among the likeliest classes
`laplace`     Laplace noise on one-hot labels, read by Bayes' rule
`noisy`       READ FIRST: examples, a mechanism, a unit and epsilon -> noisy targets and what they cost
`reports`     several noisy reports of one label, put together
`windows`     labels that are reported more than once, as conversions arrive
`audit`       each of these against its claim
"""
