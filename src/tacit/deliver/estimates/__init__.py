"""Rates of clicks for ads in contexts, with their variances, from counts along a hierarchy."""
