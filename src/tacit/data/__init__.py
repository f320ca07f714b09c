"""Published ad logs and their generators, read as streams and encoded to memory-mapped columns.

logs/           definitions of logs, published or your own in TOML: columns, layouts, rules, published figures
generators/     the same logs generated from a stated model, calibrated to those figures
reading/        a file to typed blocks; bad rows are counted, with their line numbers
encoding/       typed blocks to the whole numbers that training reads
preparation     all of it in one pass: a file in, columns out
columns         the encoded log on disk: memory-mapped columns, and their writer
splits          which rows train, validate and test
description     statistics of a log beside the published ones
value_counts    exact counts of values in bounded memory
synthetic       generated logs on disk, marked as synthetic
folders         manifests and arrays on disk, checked before use
"""
