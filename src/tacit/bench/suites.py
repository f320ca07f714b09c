"""The benchmark suites by name."""

from __future__ import annotations

USUAL = ("noise", "accounting", "shuffling", "data", "training", "choice", "deliver", "gather", "cleanroom")
ON_REQUEST = ("defaults",)
"""Those that take an hour, and files that not everybody has."""
SUITES = (*USUAL, *ON_REQUEST)
