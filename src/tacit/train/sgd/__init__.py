"""Stochastic gradient descent, private or not: sampling, clipping, noise, and the updates of large tables."""
