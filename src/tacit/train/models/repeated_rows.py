"""Squared norms of embedding gradients: a row that an example reads twice gets the sum of both gradients."""

from __future__ import annotations

import numpy as np
import torch

from tacit.train.examples import Ids

CHUNK = 4096  # examples with repeats at once: (4096, fields, fields) is the largest array


def squares(rows: torch.Tensor) -> torch.Tensor:
    """|row|^2 of each row, without an array of squares."""
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.square_()


def squared_norms_by_row(ids: Ids, gradients: torch.Tensor) -> torch.Tensor:
    """Each example's sum over the distinct rows it reads of |that row's gradient|^2.

    `ids` are (batch, fields); `gradients`, of each embedding as it was read, are (batch, fields * dim).
    """
    totals = squares(gradients)
    ordered = np.sort(ids, axis=1)
    repeating = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    for start in range(0, len(repeating), CHUNK):
        some = repeating[start : start + CHUNK]
        same = torch.from_numpy((ids[some][:, :, None] == ids[some][:, None, :]).astype(np.float32))
        places = torch.from_numpy(some)
        own = gradients[places].view(len(some), ids.shape[1], -1)  # (some, fields, dim)
        # sum over pairs f, g that read the same row of <gradient_f, gradient_g>
        totals[places] = (torch.bmm(same, own) * own).sum(dim=(1, 2))
    return totals
