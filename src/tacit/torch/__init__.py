"""One's own torch module, trained by DP-SGD: `private(module, optimizer, loader, ...)`.

run           READ FIRST: `private`, and the run that it makes: batches, steps, states to go on from, payment
plan          what a run will do and promise, from public numbers; what it costs
admission     which modules and optimizers are taken, and why others are not
records       which loaders are taken, and how records are read by a Poisson sample's places
gradients     clipped sums and their noise, checked
bookkeeping   one forward and one backward pass, noted layer by layer
layers        per-example norms and weighted sums of gradients, by kind of layer
audit         a run as it is really made, against its claim
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.torch.gradients import PerExample
    from tacit.torch.plan import ModulePlan, RunLedger
    from tacit.torch.run import PrivateRun, private
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "gradients": "PerExample",
            "plan": "ModulePlan RunLedger",
            "run": "PrivateRun private",
        },
    )

__all__ = ["ModulePlan", "PerExample", "PrivateRun", "RunLedger", "private"]
