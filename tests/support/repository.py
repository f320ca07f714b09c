"""Where this repository is, for tests that read its pages or start programs in it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"
