"""Published ad logs and their generators, read by streaming and encoded to memory-mapped columns.

logs/           what each published log looks like, its rules and its published figures
own_log         a log of one's own, described in one TOML file
generators/     the same logs made up from a stated model, calibrated to those figures
writing         made-up logs on disk, marked as synthetic
reading/        a file to typed batches; bad rows counted, with their line numbers
encoding/       batches to whole numbers that training reads
preparing       all of it in one pass: a file in, columns out
columns         the encoded log on disk, opened without reading it; columns_writer puts it there
splits          which rows train and which test
describing      a log in figures, beside the published ones; tallies counts values in little memory
arrays          one array of a folder of ours, held against its file's size before it is mapped
"""
