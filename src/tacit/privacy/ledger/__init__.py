"""The ledger's arithmetic, pure: `tacit.store.ledger` makes it durable.

`amount`     whole parts of epsilon and delta, rounded against ourselves
`guarantee`  a promise with its unit and relation, and the few ways to read it as a wider one
`lines`      where costs add up
`events`     what can happen
`rules`      grant, renew, reserve, claim, make, commit, abort: each a new state and the events that led to it
`chain`      events as entries, each holding the hash of the one before
"""
