"""The compiled kernel where it was built, else its NumPy twin, with one warning."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from types import ModuleType


@cache
def load_kernel(compiled: str, twin: str = "reference") -> ModuleType:
    """The module of this kernel: `tacit.kernels.<compiled>`, or `tacit.kernels.<twin>`."""
    try:
        return importlib.import_module(f"tacit.kernels.{compiled}")
    except ImportError:
        _warn_once()
        return importlib.import_module(f"tacit.kernels.{twin}")


@cache
def _warn_once() -> None:
    """One warning, however many of the kernels are lacking."""
    warnings.warn(
        "tacit was installed without its compiled kernels, so their NumPy twins serve: the same law, but a "
        "training step takes 12 to 35 times as long. Reinstall where a C++ compiler is available.",
        RuntimeWarning,
        stacklevel=4,
    )
