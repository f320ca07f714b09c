"""Types of NumPy arrays, by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Integers = NDArray[np.int64]
Ids = NDArray[np.int32]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]
