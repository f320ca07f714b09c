"""The same work beside its peers, interleaved in one run and reported as ratios.

Each module has `run(track) -> list[Measurement]`; `suites` lists them.
"""
