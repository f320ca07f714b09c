"""Definitions of logs: one module per log that tacit knows by name; `definition` has what they share."""
