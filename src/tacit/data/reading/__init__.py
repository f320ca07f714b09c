"""Reads log files, text or Parquet, as streams of typed columns; bad rows are found and counted."""
