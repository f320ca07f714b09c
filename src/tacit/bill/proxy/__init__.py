"""The proxy's part of billing: it checks and holds reports, shuffles and forwards them.

`party`  START HERE: `BillingProxy`, from reports to signed batches
`store`  what it needs kept, as a Protocol
"""
