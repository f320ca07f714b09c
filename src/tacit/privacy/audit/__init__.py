"""Does each mechanism keep its word? Exactly where its outputs can be enumerated, empirically where not.

`bounds`     the worst epsilon of exact rows, and a lower bound from draws with a stated false alarm rate
`case`       a claim, how to look at it, and a twin that is too weak and must be caught
`catalogue`  the cases of this package; `tacit.commands.audit` lists the catalogues of all parts
"""
