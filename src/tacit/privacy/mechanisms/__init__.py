"""Mechanisms with finitely many outputs, sampled from whole-numbered thresholds.

`randomized_response`  say the truth with a known probability
`memoised`             flips that are drawn once and come back the same
`partition_selection`  which values may be named at all
"""
