"""One module for each made-up log: a stated probabilistic model, seeded, streaming, calibrated.

Everything that comes out of here is synthetic and must be called so wherever it is shown.
"""
