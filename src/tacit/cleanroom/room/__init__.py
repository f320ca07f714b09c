"""The party with the labels: joins them with what the platform sends, and lets out what was agreed.

`party`           the room itself: every question, its answer, and what happens before it may leave
`active_terms`    the agreement in force: history, labels, and how tokens lead to records
`labels`          the table of labels by record, and labels flipped once; reads an advertiser's file
`sums`            checks of a request by the terms, and the streamed sums: steps, statistics, metrics, labels
`mechanism`       clipping, sensitivity in floating point, noise on a grid; `noise_samplers` draws it
`quotas`          releases that a run sets aside, and the count of each release
`payment`         what a release is charged as, and what the ledger may pay for
`store`           Protocols of what is kept, and the audit log; a store in memory, for studies

Nothing here imports torch: a room runs without it.
"""
