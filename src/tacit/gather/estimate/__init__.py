"""Planning a run of counts along a hierarchy, and making the most of what it released.

`changes`, `planning`        what one device can change, the noise that hides it, and what each round costs
`published`                  the law of the noise in a published count
`support`, `top_down`        which contexts are asked about next, and the run from the coarsest level down
`universe`                   the contexts that may be asked about: public, whatever devices hold
`exact`                      a run over known rows, for studies
`tiers`, `consistency`, `projection`  counts that add up, and are not negative
`accuracy`                   how far rates may be off, predicted
"""
