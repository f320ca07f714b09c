"""Work for other processes, in a module that loads little."""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit_lab.studies.logs import StudyLog


def blas_threads(_: int) -> int:
    """How many threads NumPy's and SciPy's libraries say they use, whichever uses more."""
    import numpy as np
    import scipy.linalg

    scipy.linalg.lu_factor(np.eye(2))
    most = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        place = line.split()[-1]
        if "openblas" in Path(place).name:
            library = ctypes.CDLL(place)
            for name in ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads"):
                if hasattr(library, name):
                    most = max(most, int(getattr(library, name)()))
    return most


@dataclass(frozen=True)
class Waiting:
    """A task that says who does it, and takes a minute."""

    log: StudyLog
    folder: Path
    number: int

    def measure(self, ready: object, memory: object) -> dict[str, Any]:
        del ready, memory
        (self.folder / f"worker-{self.number}").write_text(str(os.getpid()))
        time.sleep(60)
        return {}
