"""The arithmetic of the privacy ledger, pure: `tacit.store.ledger` makes it durable.

`lines`      where spending adds up, in which amounts, and what can happen there
`guarantee`  a guarantee with its unit and relation, and the few ways to read it as a wider one
`rules`      grant, renew, reserve, claim, make, commit, abort: each a new state and the events that led to it
`requests`   one reservation to be made, and what of a ledger a rule needs to see
`book`       a ledger as people use it: in words, with what is left, and a `with` block around a release
`chain`      events as entries, each holding the hash of the one before
"""
