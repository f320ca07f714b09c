"""Reads log files, text or Parquet, as streams of typed columns; bad rows are found and counted.

reader          START HERE: a file as a stream of checked blocks, parsed on all cores, in order
layout          separator, encoding, columns and cell types; numbers from cells
text, parquet   the two kinds of files, as the same typed columns
bad_rows        counted, shown by line number, refused beyond a limit; never dropped silently
"""
