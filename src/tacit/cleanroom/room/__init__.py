"""The room: it holds labels, joins them with what the platform sends, and lets out what the agreement allows.

party         the room itself: every question, its answer, and what happens before it may leave
opening       taking up an agreement: history, budget, labels and points that were exchanged
checking      what a request must be, by the terms alone
labels        the table of labels by record; labels_file reads one
joining       from the platform's tokens to records: keyed tokens, or private set intersection
flips         labels that are flipped once
clipping      how much of a derivative is kept, proved in floating point
noising       how far a label can move a sum, and noise on a grid that is the same if asked again
geometric     Laplace noise in whole steps
aggregating   the streamed sums: steps, statistics, metrics, labels
counting      what a release is charged as
releasing     one release: refused before a label is read, or counted once
auditing      the audit log: what was answered, and what was refused
store         what the room needs kept (`tacit.store.room` keeps it); memory: for attacks, studies and tests

Nothing here imports torch: a room runs without it.
"""
