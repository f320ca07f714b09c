"""What room and platform share; each imports this package and never the other.

`agreement`, `amending`, `signing`, `statements`  what both signed, how it changes, and what it promises
`tokens`, `intersection`                          how records are named without naming people
`audit_log`                                       what happened, as a chain that no one can edit unseen
`blocks`, `derivatives`, `factors`, `norms`       trainable matrices, and each example's derivative in them
`codec`, `framing`, `slabs`                       derivatives as bytes, and the messages that carry them
`requests`, `answers`, `losses`                   what is asked, what is answered, towards which loss
`refusals`, `canonical`                           why something is not accepted; one spelling of each message
"""
