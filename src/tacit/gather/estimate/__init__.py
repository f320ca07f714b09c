"""Planning a run of counts along a hierarchy, and what its counts say.

`plan`             what one device can change, the noise that hides it, and what each round costs
`published_noise`  the law of the noise in a published count, thresholds against it, and the accuracy of rates
`top_down`         the contexts that may be asked about, which are asked about next, and the run level by level
"""
