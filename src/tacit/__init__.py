"""tacit: advertising that learns what works, chooses well and bills exactly, without learning about people."""

from typing import TYPE_CHECKING

from tacit.exports import front_door

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tacit.entropy import Entropy, Simulation
    from tacit.errors import BadInput, BudgetExceeded, TacitError
    from tacit.privacy.accounting.accountant import epsilon
    from tacit.privacy.calibration import noise_multiplier
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "entropy": "Entropy Simulation",
            "errors": "BadInput BudgetExceeded TacitError",
            "privacy.accounting.accountant": "epsilon",
            "privacy.calibration": "noise_multiplier",
        },
    )

__all__ = [
    "BadInput", "BudgetExceeded", "Entropy", "Simulation", "TacitError", "__version__", "epsilon",
    "noise_multiplier",
]  # fmt: skip
