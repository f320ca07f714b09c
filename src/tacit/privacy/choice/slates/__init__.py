"""Private slates: `slots` of the candidates at once, shown in public order, each law with its exact numbers.

`peeling`     randomized response, once a slot, epsilon / slots each: the baseline
`overlap`     one draw for the whole slate: favoured if it holds enough of the private best
`top_slates`  one draw for the whole slate: favoured if it is among the best; the optimum for like candidates
`subsets`     counting and numbering slates
`slate`       what all of them offer

The value of a slate is the sum of its candidates' scores. A slate is a set: which slot shows which candidate is
decided by public rank, so the order tells nothing.
"""
