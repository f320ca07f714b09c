"""Published ad logs and their generators, read by streaming and encoded to memory-mapped columns.

logs/         what each published log looks like, its rules and its published figures
generators/   the same logs made up from a stated model, calibrated to those figures
reading       a file to typed batches; bad rows counted, with their line numbers
encoding      batches to whole numbers that training reads
columns       the encoded log on disk, opened without reading it
"""
