"""The promises: pure maths, no clock, no files, no randomness of its own.

`budget`, `relations`, `units`   the nouns of a promise
`allocation`                     how a unit's budget meets its impressions
`releases`, `statement`          what was published, and what that promises in words
`mechanisms`, `noise`            what makes a release private, each with its exact law
`choice`                         choosing one of several, or a slate, by private scores
`accounting`, `calibration`      epsilon from noise, noise from epsilon
`shuffling`                      hiding in a crowd
`ledger`                         paying for it
`audit`                          checking the claim
`randomness`                     the shapes in which randomness is handed in
"""
