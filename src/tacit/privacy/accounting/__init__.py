"""Privacy accounting: epsilon at a delta, and delta at an epsilon, for a relation that is always named.

`loss_distributions`  privacy loss distributions of single mechanisms on a grid, from exact delta curves
`dominating_pairs`    each kind of release as a dominating pair of losses
`renyi`               each kind of release as Renyi divergences
`rules`               which kinds there are, and under which relations each can be read
`composition`         the distribution of many losses added up, by FFT, accurate far into the tail
`accountant`          epsilon and delta, refined until they stop moving; RDP beside them, for comparison
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.privacy.accounting.accountant import delta, epsilon, pure_epsilon, rdp_epsilon
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "accountant": "delta epsilon pure_epsilon rdp_epsilon",
        },
    )

__all__ = ["delta", "epsilon", "pure_epsilon", "rdp_epsilon"]
