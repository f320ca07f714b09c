"""The benchmark suites by name."""

from __future__ import annotations

SUITES = ("noise", "accounting", "shuffling", "data", "training", "choice", "deliver", "gather", "cleanroom")
