"""The few C++ loops and their NumPy twins: no policy, no randomness of their own.

Where the package was installed without a C++ compiler, the twins in the `reference` modules serve, with one
warning. Every family of loops has a module: `auctions`, `choices`, `cells`, `field`, `fingerprints`, `grams`,
`greedy`, `normals`, `training`. `checks` refuses arrays that no loop may read, `backend` loads.
"""
