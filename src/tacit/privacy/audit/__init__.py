"""Does each mechanism keep its word? Exactly where its outputs can be enumerated, empirically where not.

`bounds`     the worst epsilon of exact rows, and lower bounds from draws with a stated false alarm rate
`case`       a claim, how to look at it, and how little of a weakening that look still catches
`catalogue`  the cases of this package; `tacit.commands.audit` lists the catalogues of all parts
"""
