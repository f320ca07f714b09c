"""What a release promises: epsilon at a delta, and delta at an epsilon, for a relation that is always named.

`grid`, `gaussian`, `counts`  loss distributions of single mechanisms, from exact delta curves
`losses`, `renyi`             each kind of release as losses, and as divergences
`rules`                       which kinds there are, and under which relations each can be read
`composition`                 the law of many losses added up, by FFT, accurate far into the tail
`pld`                         epsilon and delta, refined until they stand still: the answer
`rdp`                         the same by Rényi divergences, for comparison
"""

from tacit.privacy.accounting.pld import delta, epsilon, pure_epsilon
from tacit.privacy.accounting.rdp import rdp_epsilon

__all__ = ["delta", "epsilon", "pure_epsilon", "rdp_epsilon"]
