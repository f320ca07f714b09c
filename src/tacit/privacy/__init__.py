"""The promises: pure maths, no clock, no files, no randomness of its own.

`budget`, `relations`, `units`      the nouns of a promise
`releases`, `statement`             what was published, and what that promises in words
`randomized_response`, `noise`, ... the mechanisms, each with its exact law
`accounting`, `calibration`         epsilon from noise, noise from epsilon
`shuffling`, `ledger`, `audit`      hiding in a crowd, paying for it, and checking the claim
"""
