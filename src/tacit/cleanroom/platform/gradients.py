"""Gradients of an adapter through a room: which rows a step sends, and what is kept of a noisy sum.

Of a block that is sent by rows a step sends those that its examples touch, under numbers of its own.

Projection brings a noisy gradient back to the span of the derivatives that it was summed from. The platform
knows every derivative that it sent, and a sum of them lies in their span: whatever of the noisy sum lies
outside is noise alone, and dropping it is post-processing, free of privacy cost. Of isotropic noise in d
dimensions there stays rank / d of the expected square. With at least as many independent examples as parameters
there is nothing to drop.

Source: Ghazi, Huang, Kamath, Kumar, Manurangsi, Zhang, "LabelDP-Pro: Learning with Label Differential Privacy
via Projections", ICLR 2024; the set projected onto is here the span of the batch's own derivatives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.cleanroom.protocol.row_derivatives import Derivatives, ExampleDerivatives, RowDerivatives
from tacit.privacy.randomness import Source


def touched_rows(
    layout: ParameterLayout, derivatives: Derivatives, source: Source
) -> tuple[ParameterLayout, dict[str, ExampleDerivatives], NDArray[np.int64] | None]:
    """What a step sends where some blocks are by rows: of these, only the rows that its examples touch.

    The rows are numbered afresh, in an order that `source` draws: a number tells the room no more than which
    of the step's examples share a row. The layout of the step, the derivatives in it, and where its entries
    lie in the whole flat vector; None where all blocks are whole.
    """
    if not layout.by_rows:
        return layout, dict(derivatives), None
    sent, blocks, places, start = {}, [], [], 0
    for block in layout.blocks:
        each, own = derivatives[block.name], np.arange(block.parameters)
        if isinstance(each, RowDerivatives):
            touched = np.unique(each.places)
            order = np.argsort(source.words(len(touched)), kind="stable")  # number -> which of the touched
            numbers = np.empty_like(order)
            numbers[order] = np.arange(len(order))
            each = each.renumbered(touched, numbers)
            rows = touched[order] if len(touched) else np.zeros(1, np.int64)  # a block has a row at least
            own = (rows[:, None] * np.int64(block.cols) + np.arange(block.cols)).reshape(-1)
        sent[block.name] = each
        blocks.append(each.block)
        places.append(start + own)
        start += block.parameters
    return ParameterLayout(tuple(blocks)), sent, np.concatenate(places)


EIGENVALUE_CUT = 1e-9
"""Directions whose Gram eigenvalue is below this share of the largest are taken as rounding. float32
derivatives carry relative errors of 6e-8 each, which is 4e-15 in eigenvalues; honest directions weaker than
3e-5 of the strongest carry next to no gradient."""


def project_gradient(
    gradient: NDArray[np.floating],
    derivatives: Derivatives,
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


def inner_products(derivatives: ExampleDerivatives, matrix: Floats) -> Floats:
    """<d_i, matrix> of every example: l^T M r summed over its pairs, or one product where it came dense."""
    if isinstance(derivatives, RowDerivatives):
        return derivatives.inner_products(matrix)
    found = np.zeros(len(derivatives))
    factors = derivatives.factors
    counts = factors.counts.astype(np.int64)
    by_pair = np.einsum("pr,pr->p", factors.left @ matrix, factors.right, dtype=np.float64)  # (pairs,)
    owner = np.repeat(np.arange(len(counts)), counts)
    found[~derivatives.is_dense] = np.bincount(owner, by_pair, minlength=len(counts))
    found[derivatives.is_dense] = derivatives.dense @ matrix.reshape(-1)
    return found


def _directions(derivatives: Derivatives, layout: ParameterLayout, cut: float) -> tuple[Floats, Floats]:
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
