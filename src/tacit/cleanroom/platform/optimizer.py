"""Optimizer of an adapter: Adam or plain descent on one flat vector, and the projection of noisy gradients.

The two rules are small, in NumPy, and their state is easy to keep and restore: a run that goes on after a crash
must take the very steps that it would have taken.

Projection brings a noisy gradient back to the span of the derivatives that it was summed from. The platform
knows every derivative that it sent, and a sum of them lies in their span: whatever of the noisy sum lies
outside is noise alone, and dropping it is post-processing, free of privacy cost. Of isotropic noise in d
dimensions there stays rank / d of the expected square. With at least as many independent examples as parameters
there is nothing to drop.

Source: Ghazi, Huang, Kamath, Kumar, Manurangsi, Zhang, "LabelDP-Pro: Learning with Label Differential Privacy
via Projections", ICLR 2024; the set projected onto is here the span of the batch's own derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats, Floats32
from tacit.cleanroom.protocol.derivatives import BlockDerivatives
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.expect import Choice

DECAY, SQUARED_DECAY, LEAST_DIVISOR = 0.9, 0.999, 1e-8  # Kingma, Ba 2015 (arXiv 1412.6980), algorithm 1


class Optimizer(Choice):
    """How a gradient becomes a step."""

    ADAM = "adam"
    SGD = "sgd"


@dataclass(eq=False)
class AdapterDescent:
    """Values that go downhill. `steps` counts the steps that the moments have seen."""

    optimizer: Optimizer
    values: Floats32  # (parameters,)
    steps: int = 0
    mean: Floats32 = field(default_factory=lambda: np.zeros(0, np.float32))  # Adam's: of gradients
    square: Floats32 = field(default_factory=lambda: np.zeros(0, np.float32))  # and of their squares

    def __post_init__(self) -> None:
        if self.optimizer is Optimizer.ADAM and not len(self.mean):
            self.mean, self.square = np.zeros_like(self.values), np.zeros_like(self.values)

    def step(self, gradient: Floats32, learning_rate: float) -> None:
        """One step against the gradient."""
        self.steps += 1
        if self.optimizer is Optimizer.SGD:
            self.values -= np.float32(learning_rate) * gradient
            return
        self.mean += np.float32(1 - DECAY) * (gradient - self.mean)
        self.square += np.float32(1 - SQUARED_DECAY) * (gradient * gradient - self.square)
        rate = learning_rate / (1 - DECAY**self.steps)
        root = np.sqrt(self.square) / np.float32((1 - SQUARED_DECAY**self.steps) ** 0.5)
        self.values -= np.float32(rate) * self.mean / (root + np.float32(LEAST_DIVISOR))


EIGENVALUE_CUT = 1e-9
"""Directions whose Gram eigenvalue is below this share of the largest are taken as rounding. float32
derivatives carry relative errors of 6e-8 each, which is 4e-15 in eigenvalues; honest directions weaker than
3e-5 of the strongest carry next to no gradient."""


def project_gradient(
    gradient: NDArray[np.floating],
    derivatives: Mapping[str, BlockDerivatives],
    layout: ParameterLayout,
    cut: float = EIGENVALUE_CUT,
) -> Floats:
    """The point of the span nearest to the gradient; the derivatives must be those that the room decoded.

    With D the (n, parameters) derivatives and D D^T = U diag(w) U^T, it is D^T U w^-1 U^T D g: the Gram matrix
    is n by n, and D itself is never formed.
    """
    eigenvalues, basis = _directions(derivatives, layout, cut)
    parts = layout.split(np.asarray(gradient, np.float64))
    along = np.sum(
        [inner_products(derivatives[block.name], parts[block.name]) for block in layout.blocks], axis=0
    )  # (n,)
    weights = basis @ ((basis.T @ along) / eigenvalues)
    return np.concatenate(
        [derivatives[block.name].weighted_sum(weights, dtype=np.float64).reshape(-1) for block in layout.blocks]
    )


def inner_products(derivatives: BlockDerivatives, matrix: Floats) -> Floats:
    """<d_i, matrix> of every example: l^T M r summed over its pairs, or one product where it came dense."""
    found = np.zeros(len(derivatives))
    factors = derivatives.factors
    counts = factors.counts.astype(np.int64)
    by_pair = np.einsum("pr,pr->p", factors.left @ matrix, factors.right, dtype=np.float64)  # (pairs,)
    owner = np.repeat(np.arange(len(counts)), counts)
    found[~derivatives.is_dense] = np.bincount(owner, by_pair, minlength=len(counts))
    found[derivatives.is_dense] = derivatives.dense @ matrix.reshape(-1)
    return found


def _directions(
    derivatives: Mapping[str, BlockDerivatives], layout: ParameterLayout, cut: float
) -> tuple[Floats, Floats]:
    """(rank,) eigenvalues that are kept, and (n, rank): how the examples make up their directions."""
    first, *others = (derivatives[block.name] for block in layout.blocks)
    gram = first.gram()  # (n, n)
    for each in others:
        gram += each.gram()
    # Scaling rows keeps their span: at length 1, a few long derivatives do not make the others look like noise.
    length = np.sqrt(np.diag(gram))
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    eigenvalues, vectors = np.linalg.eigh(gram * scale[:, None] * scale)
    kept = eigenvalues > cut * max(float(eigenvalues[-1]), 0.0)
    return eigenvalues[kept], vectors[:, kept] * scale[:, None]
