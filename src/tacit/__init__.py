"""tacit: advertising that learns what works, chooses well and bills exactly, without learning about people.

pipeline    READ FIRST: one simulated day, end to end, a line per stage
gather      counts over people's devices, through a proxy and a server of which neither sees a device's counts
train       click and conversion models under differential privacy
torch       one's own torch module under DP-SGD
cleanroom   conversion models across two organisations
deliver     a few candidates from the server, a private choice on the device
bill        exact charges from public prices
data        published logs and their generators, encoded
privacy     the maths: budgets, mechanisms, accounting, ledger rules
schema      what the stages hand to each other
store       durable state
services    the parties that run; commands: what `tacit` does; pages: reports; kernels: the few C++ loops

Each of these packages exports what people need: `from tacit.train import Examples`. The names here are those
that most programs need: private models of frames, epsilon from noise, noise from epsilon, a private choice,
a ledger to pay from, what is refused.
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tacit import (  # noqa: F401 (the door finds them unlisted)
        bill,
        cleanroom,
        commands,
        data,
        deliver,
        gather,
        kernels,
        pages,
        privacy,
        schema,
        services,
        store,
        torch,
        train,
    )
    from tacit.deliver.device.choice import choose
    from tacit.entropy import Entropy, Simulation
    from tacit.errors import BadInput, BudgetExceeded, TacitError
    from tacit.memory_ledger import MemoryLedger
    from tacit.privacy.accounting.accountant import epsilon
    from tacit.privacy.calibration import noise_multiplier
    from tacit.store.ledger import open_ledger
    from tacit.train.classifier import Classifier, Regressor, load
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "deliver.device.choice": "choose",
            "entropy": "Entropy Simulation",
            "errors": "BadInput BudgetExceeded TacitError",
            "memory_ledger": "MemoryLedger",
            "privacy.accounting.accountant": "epsilon",
            "privacy.calibration": "noise_multiplier",
            "store.ledger": "open_ledger",
            "train.classifier": "Classifier Regressor load",
        },
    )

__all__ = [
    "BadInput", "BudgetExceeded", "Classifier", "Entropy", "MemoryLedger", "Regressor", "Simulation",
    "TacitError", "__version__", "choose", "epsilon", "load", "noise_multiplier", "open_ledger",
]  # fmt: skip
