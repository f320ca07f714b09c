"""Requests that are wrong in one way each: does what comes back depend on the label of the record in them?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Asked, Target, of_matrix, padded, weighed
from tacit.cleanroom.attacks.worlds import NOBODY, Records
from tacit.errors import TacitError
from tacit.privacy.randomness import Source

STRANGER = np.array([2 * NOBODY])


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """Says 1 where a record is treated unlike one that nobody has, which counts as a 0; else 0."""
    usual = _treated(target, STRANGER)
    return np.array(
        [0.5 if _treated(target, records[place : place + 1]) != usual else -0.5 for place in records]
    )


def _treated(target: Target, record: Records) -> list[str]:
    """What each request came to, without the numbers of an answer."""
    came_to = []
    for asked in _wrong(target, record):
        try:
            target.aggregate(asked)
        except TacitError as refused:
            came_to.append(f"{type(refused).__name__}: {refused}")
        else:
            came_to.append("answered")
    return came_to


def _wrong(target: Target, record: Records) -> Iterator[Asked]:
    """The record in a batch that is too small, twice in one batch, with what is not a number, in a codec that
    was not agreed on."""
    good = weighed(target, record, np.zeros((1, 1), np.float32))
    yield Asked(good.tokens[:1], good.logits[:1], *of_matrix(np.zeros((1, 1), np.float32)))
    yield replace(good, tokens=np.concatenate([good.tokens[:1], good.tokens[:-1]]))
    _, values = padded(target, record, np.full((1, 1), np.nan, np.float32))
    yield Asked(good.tokens, good.logits, *of_matrix(values))
    yield replace(good, codec="top-10")
