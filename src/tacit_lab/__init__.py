"""The laboratory: the papers' tables and figures with their claims, and benchmarks beside peers.

It comes in the same wheel as `tacit` and uses it; nothing in `tacit` but its commands imports it.
"""
