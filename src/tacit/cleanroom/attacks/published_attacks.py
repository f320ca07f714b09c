"""Attacks on published protocols: split learning, which sends gradients per sample, and sums without noise.

`gradient_norm_scores`      length of gradients per sample (Li et al. 2021, arXiv 2102.08504): a rare positive
                            has a slope near -1 where the many negatives have one near 0
`gradient_cosine_scores`    their direction: the slopes of the two labels have opposite signs
`linear_solve_scores`       as many equations as labels: sum_i (p_i - y_i) d_i = g is solved for y. Li et al.
                            (RecSys 2024, section 2.1) name the case and advise noise where parameters outnumber
                            the batch
`fewer_equations_scores`    96 equations for 384 labels, against the rule that a batch larger than the number of
                            parameters is safe (ibid.): labels lie between 0 and 1 and most are 0. That few
                            non-negative unknowns are found from few equations: Donoho, Tanner 2005 (PNAS 102)
`packing_scores`            one float32 number of a sum holds twenty labels, weighed by powers of two
`replay_scores`             the same large batch twice, the second time with one row zeroed: the difference is
                            that row's
`log_loss_scores`           one number, the loss, holds forty labels: a logit z adds z to it where the label is
                            0 rather than 1 (Aggarwal et al. 2021, arXiv 2105.08266)
`infinity_scores`           a derivative that is infinite, or nearly: the sign of the sum is that of one slope
`gradient_matching_scores`  soft labels whose gradient matches the one that came back (deep leakage from
                            gradients, Zhu, Liu, Han 2019, arXiv 1906.08935); the platform knows the inputs, so
                            only labels are sought
`own_value_scores`          honest derivatives of embeddings: the sum for a value that one record alone
                            has is that record's gradient
`metric_cell_scores`        a metric whose every cell holds one record is a list of labels; a step beside it is
                            a second look
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.special import expit

from tacit.arrays import Floats
from tacit.cleanroom.attacks import probes
from tacit.cleanroom.attacks.game import Records, Scores
from tacit.cleanroom.attacks.probes import (
    HONEST_BIAS,
    StepQuestion,
    Target,
    matrix_derivatives,
    pad_batch,
    read_slopes,
    slope_scores,
    weighted_question,
)
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.row_derivatives import RowDerivatives
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source


def gradient_norm_scores(target: Target, records: Records, source: Source) -> Scores:
    """Long gradients are positives: longer than the geometric mean of the shortest and the longest."""
    gradients = _gradients(target, records, source)
    lengths = np.maximum(np.linalg.norm(gradients, axis=1), 1e-30)
    known = np.isfinite(lengths)
    if not known.any():
        return np.zeros(len(records))
    middle = np.sqrt(lengths[known].min() * lengths[known].max())
    return np.where(known, np.log(lengths / middle), 0.0)


def gradient_cosine_scores(target: Target, records: Records, source: Source) -> Scores:
    """Gradients that point where the longest one does are positives."""
    gradients = _gradients(target, records, source)
    lengths = np.linalg.norm(gradients, axis=1)
    if not np.isfinite(lengths).any():
        return np.zeros(len(records))
    longest = gradients[np.nanargmax(lengths)]
    cosines: Scores = gradients @ longest / np.maximum(lengths * np.linalg.norm(longest), 1e-30)
    return np.nan_to_num(cosines)


def _gradients(target: Target, records: Records, source: Source) -> Floats:
    """One gradient per record, of an honest network; not numbers where the target refuses."""
    sent = probes.honest_batch(len(records), 1, source)
    try:
        return target.sample_gradients(target.tokens(records), sent.logits, sent.cut)
    except RoomRefused:
        return np.full(sent.cut.shape, np.nan)


LINEAR_SOLVE_BATCH, LINEAR_SOLVE_RANK = 384, 4  # 576 parameters


def linear_solve_scores(target: Target, records: Records, source: Source) -> Scores:
    """Honest derivatives of an adapter, batch by batch; least squares."""
    told = np.zeros(len(records))
    for some, sent, gradient in probes.honest_answers(
        target, records, source, batch=LINEAR_SOLVE_BATCH, rank=LINEAR_SOLVE_RANK
    ):
        known = expit(sent.logits.astype(np.float64)) @ sent.matrix - gradient  # = sum_i y_i d_i
        labels, *_ = np.linalg.lstsq(sent.matrix.T, known, rcond=None)
        told[some] = labels - 0.5
    return told


FEWER_EQUATIONS_BATCH, FEWER_EQUATIONS_RANK, FEWER_EQUATIONS_ADAPTED = 384, 1, 1  # 64 + 32 parameters
BOX_ROUNDS = 8
SPARSITY_WEIGHT = 1e-3  # how much fewer positives are preferred, where equations leave a choice


def fewer_equations_scores(target: Target, records: Records, source: Source) -> Scores:
    """Honest derivatives of one adapter of rank 1, batch by batch; least squares within [0, 1]."""
    told = np.zeros(len(records))
    for some, sent, gradient in probes.honest_answers(
        target,
        records,
        source,
        batch=FEWER_EQUATIONS_BATCH,
        rank=FEWER_EQUATIONS_RANK,
        adapted=FEWER_EQUATIONS_ADAPTED,
    ):
        known = expit(sent.logits.astype(np.float64)) @ sent.matrix - gradient  # = sum_i y_i d_i
        told[some] = solve_in_box(sent.matrix, known) - 0.5
    return told


def solve_in_box(matrix: Floats, known: Floats) -> Floats:
    """The y in [0, 1] with sum_i y_i d_i nearest to what is known, few of them large.

    Non-negative least squares; what comes out above 1 is held at 1, and the others are solved for again.
    """
    sizes = np.linalg.norm(matrix, axis=0)
    equations = np.vstack([(matrix / sizes).T, np.full((1, len(matrix)), SPARSITY_WEIGHT)])
    right = np.append(known / sizes, 0.0)
    labels, held = np.zeros(len(matrix)), np.zeros(len(matrix), np.bool_)
    for _ in range(BOX_ROUNDS):
        solved, _ = nnls(equations[:, ~held], right - equations[:, held].sum(axis=1), maxiter=50 * len(matrix))
        labels[~held] = solved
        above = labels > 1
        labels[above], held = 1.0, held | above
        if not above.any():
            break
    return labels


PACKED_BITS = 20  # of the 24 that a float32 has


def packing_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """All records in one batch, a number for every twenty."""
    places = np.arange(len(records))
    weights = np.zeros((len(records), -(-len(records) // PACKED_BITS)), np.float32)
    weights[places, places // PACKED_BITS] = 2.0 ** (places % PACKED_BITS)
    try:
        packed = target.aggregate(weighted_question(target, records, weights))
    except RoomRefused:
        return np.zeros(len(records))
    whole = np.clip(np.rint(-packed), 0, 2**PACKED_BITS - 1).astype(np.int64)
    bits = (whole[:, None] >> np.arange(PACKED_BITS)) & 1
    told: Scores = bits.reshape(-1)[: len(records)].astype(np.float64) - 0.5
    return told


REPLAY_PARAMETERS = 8


def replay_scores(target: Target, records: Records, source: Source, *, targets: Records) -> Scores:
    """About `targets`, a few of the records: one batch for all of them, and one more for each."""
    values = source.normal((len(records), REPLAY_PARAMETERS), dtype=np.float32)
    logits = (HONEST_BIAS + source.normal(len(records), dtype=np.float64)).astype(np.float32)
    tokens, told = target.tokens(records), np.zeros(len(records))

    def sums(matrix: np.typing.NDArray[np.float32], number: int) -> np.typing.NDArray[np.float64]:
        return target.aggregate(StepQuestion(tokens, logits, *matrix_derivatives(matrix), number=number))

    try:
        whole = sums(values, 0)
        for number, place in enumerate(targets, start=1):
            without = values.copy()
            without[place] = 0
            own = values[place].astype(np.float64)
            slope = (whole - sums(without, number)) @ own / (own @ own)
            told[place] = expit(float(logits[place])) - slope - 0.5
    except RoomRefused:
        pass  # what was told before stays told
    return told


LOSS_BITS = 40
LEAST_LOSS_POWER = -20  # logits are 2^-20 .. 2^19: float64 has 53 bits


def log_loss_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """Logits that are powers of two, forty records at a time."""
    told = np.zeros(len(records))
    for start in range(0, len(records), LOSS_BITS):
        some = records[start : start + LOSS_BITS]
        logits = 2.0 ** (LEAST_LOSS_POWER + np.arange(len(some)))
        try:
            loss = target.log_loss(target.tokens(some), logits.astype(np.float32))
        except RoomRefused:
            break
        of_positives = np.logaddexp(0, logits).sum() - loss  # = sum_i y_i z_i
        whole = int(np.clip(np.rint(of_positives / 2.0**LEAST_LOSS_POWER), 0, 2.0**LOSS_BITS - 1))
        told[start : start + LOSS_BITS] = ((whole >> np.arange(len(some))) & 1) - 0.5
    return told


INFINITY_BATCH = 64
INFINITY_SIZES = (np.inf, float(np.finfo(np.float32).max), 1e30, 1e6)
"""What is tried, one after the other, until something is answered."""


def infinity_scores(target: Target, records: Records, source: Source) -> Scores:
    """Every parameter has one record that drowns all others."""
    told = np.zeros(len(records))
    for number, start in enumerate(range(0, len(records), INFINITY_BATCH)):
        some = records[start : start + INFINITY_BATCH]
        noise = source.normal((len(some), len(some)), dtype=np.float32)
        for tried, size in enumerate(INFINITY_SIZES):
            values = noise.copy()
            np.fill_diagonal(values, size)
            tokens, rows = pad_batch(target, some, values, number)
            logits = np.full(len(tokens), HONEST_BIAS, np.float32)
            step = number * len(INFINITY_SIZES) + tried
            try:
                sums = target.aggregate(StepQuestion(tokens, logits, *matrix_derivatives(rows), number=step))
            except RoomRefused:
                continue
            told[start : start + INFINITY_BATCH] = -np.sign(sums)
            break
    return told


MATCHING_BATCH, MATCHING_RANK = 256, 4
MATCHING_ROUNDS = 500


def gradient_matching_scores(target: Target, records: Records, source: Source) -> Scores:
    """Honest derivatives of an adapter, batch by batch; a soft label is the logistic of a free number."""
    told = np.zeros(len(records))
    for some, sent, gradient in probes.honest_answers(
        target, records, source, batch=MATCHING_BATCH, rank=MATCHING_RANK
    ):
        told[some] = match_gradient(sent.matrix, expit(sent.logits.astype(np.float64)), gradient)
    return told


def match_gradient(matrix: Floats, predicted: Floats, gradient: Floats) -> Floats:
    """The free number of each record: above 0 where its soft label is above 1/2."""

    def distance(free: Floats) -> tuple[float, Floats]:
        soft = expit(free)
        gap = (predicted - soft) @ matrix - gradient
        return float(gap @ gap), -2 * (matrix @ gap) * soft * (1 - soft)

    start = np.zeros(len(matrix))
    best = minimize(distance, start, jac=True, method="L-BFGS-B", options={"maxiter": MATCHING_ROUNDS})
    free: Floats = best.x
    return free


COMMON_VALUES, VALUE_WIDTH, VALUE_BATCH = 8, 4, 256


def own_value_scores(target: Target, records: Records, source: Source) -> Scores:
    """Each record has an id of its own and one of a few common values, as users and products have them."""
    told = np.zeros(len(records))
    for number, start in enumerate(range(0, len(records), VALUE_BATCH)):
        some = records[start : start + VALUE_BATCH]
        tokens = target.tokens(probes.pad_records(some, number))
        n = len(tokens)
        block = ParameterBlock("values", COMMON_VALUES + n, VALUE_WIDTH, 2, by_rows=True)
        common = (source.words(n) % np.uint64(COMMON_VALUES)).astype(np.int64)
        places = np.stack([common, COMMON_VALUES + np.arange(n)], axis=1)
        moves = source.normal((n, 2, VALUE_WIDTH), dtype=np.float32)
        logits = (HONEST_BIAS + source.normal(n, dtype=np.float64)).astype(np.float32)
        sent = {block.name: RowDerivatives.of_touched(block, places, moves)}
        question = StepQuestion(tokens, logits, ParameterLayout((block,)), sent, run="values", number=number)
        try:
            sums = target.aggregate(question).reshape(block.rows, VALUE_WIDTH)[COMMON_VALUES:]
        except RoomRefused:
            break
        own = moves[:, 1].astype(np.float64)
        slopes = (sums * own).sum(axis=1) / (own * own).sum(axis=1)
        told[start : start + VALUE_BATCH] = (expit(logits) - slopes - 0.5)[: len(some)]
    return told


def metric_cell_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """Positives by cell, plus whatever a step still adds."""
    told = np.zeros(len(records))
    with suppress(RoomRefused):  # then a step alone
        told += target.positives(target.tokens(records), np.arange(len(records)), "metric") - 0.5
    return told + slope_scores(read_slopes(target, records, run="beside"))
