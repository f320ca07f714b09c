"""Generators of synthetic logs: per log a stated probabilistic model, seeded, streaming and calibrated.

All output is synthetic and must be called so wherever it is shown.
"""
