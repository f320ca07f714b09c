"""Differential privacy: pure maths, with no clock, no files and no randomness of its own.

`budget`, `units`              the nouns of a guarantee: epsilon and delta, units, neighbouring relations
`allocation`                   how a unit's budget is divided among its impressions
`releases`, `statement`        what was published, and what that guarantees in words
`mechanisms`, `noise`          what makes a release private, each with its exact law
`choice`                       choosing one of several candidates, or a slate, by private scores
`accounting`, `calibration`    epsilon from noise, noise from epsilon
`shuffling`                    privacy amplification by shuffling
`ledger`                       the rules of spending a budget
`audit`                        testing each mechanism against its claim
`randomness`                   the protocols by which randomness is handed in
"""
