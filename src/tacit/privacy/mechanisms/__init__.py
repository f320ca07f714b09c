"""Mechanisms on single answers, sampled from whole-numbered thresholds.

`randomized_response`  say the truth with a known probability
`top_response`         the same among the likeliest answers only, by a public prior
`one_hot_laplace`      an answer as a one-hot vector with whole-numbered noise
`memoised`             flips that are drawn once and come back the same
`partition_selection`  which values may be named at all
"""
