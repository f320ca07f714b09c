"""Mechanisms on single answers, sampled from whole-numbered thresholds.

`randomized_response`  tell the truth with a known probability; the same among the likeliest answers only
`one_hot_laplace`      an answer as a one-hot vector with integer noise
`memoisation`          flips that are drawn once and come back the same
`partition_selection`  which values may be named at all
"""
