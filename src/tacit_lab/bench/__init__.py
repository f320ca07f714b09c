"""The same work beside its peers, interleaved in one run and reported as ratios.

A suite NAME is the module of that name with `run(progress) -> list[Measurement]`; `measurement` lists them.
"""
