"""The few C++ loops and their NumPy twins: no policy, no randomness of their own."""
