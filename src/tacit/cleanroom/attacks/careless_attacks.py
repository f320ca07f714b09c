"""Attacks on careless rooms: each is for one protection that stops one step short of what it should be.

Labels that are flipped, but not once and for all:

`epoch_scores`            labels read again in every epoch: fresh flips average out, kept ones do not
`request_variant_scores`  the same records under other runs, codecs and losses
`several_task_scores`     the same label under several tasks, each with a chance of its own
`amendment_scores`        tighten the agreement, which needs no second signature, and ask again: are labels
                          flipped anew for free, or from what is left of the first budget (AMENDMENT_SLACK)?
`half_token_scores`       a made-up token that begins like a real one and may share what decides a flip. Nobody
                          has the made-up record, so its label is 0: two answers that differ prove that the real
                          label is 1

Noise that is for one release of a record, once in a sum, in one matrix:

`averaging_scores`      the same noised sum under one run's name after the other: independent noise averages out
`repeated_slab_scores`  the same records in sixteen messages of a single batch: is each taken for a record of
                        its own?
`many_block_scores`     a derivative in a hundred matrices: clipped in each by itself, a label moves the answer
                        by ten times as much as the noise is for

Side channels:

`error_text_scores`  requests that are wrong in one way each: does what comes back depend on a record's label?
`timing_scores`      a batch of positives against a batch of negatives, as usual and with products so small
                     (subnormal) that some processors take longer over them. Answers are thrown away. The clock
                     is an argument: in one process, that of the thread's own work is sharpest, and sees more
                     than anyone could from outside
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np

from tacit.cleanroom.attacks.game import NOBODY, Records, Scores
from tacit.cleanroom.attacks.probes import (
    StepQuestion,
    Target,
    matrix_derivatives,
    pad_batch,
    pad_records,
    read_slopes,
    slope_scores,
    unit_vector_question,
    weighted_question,
)
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.cleanroom.protocol.losses import Loss
from tacit.errors import RoomRefused, TacitError
from tacit.privacy.randomness import Source

EPOCHS = 5


def epoch_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """What most epochs said."""
    told = np.stack(
        [np.sign(slope_scores(read_slopes(target, records, run=f"epoch-{epoch}"))) for epoch in range(EPOCHS)]
    )
    most: Scores = told.sum(axis=0)
    return most


VARIANT_CODECS = ("fp32", "bf16", "int8")


def request_variant_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """What most ways said. At a logit of 0 a slope has its label's sign, whatever the loss: below 0 for a 1."""
    told = np.zeros(len(records))
    for codec, loss in product(VARIANT_CODECS, Loss):
        slopes = read_slopes(target, records, logit=0.0, codec=codec, loss=loss, run=f"{codec}-{loss.value}")
        told -= np.sign(np.nan_to_num(slopes))
    return told


TASKS = 3


def several_task_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """What the tasks say together."""
    told = np.stack(
        [slope_scores(read_slopes(target, records, task=task, run=f"task-{task}")) for task in range(TASKS)]
    )
    together: Scores = told.sum(axis=0)
    return together


AMENDMENTS = 5
AMENDMENT_SLACK = 6
"""What the first terms allowed, in multiples of those in force: more than all the times together would cost, as
long as terms may have that much epsilon (up to 40 in all). Against sums with Gaussian noise the votes of five
readings say little more than one: there this would not notice the hole, and tests look at what is refused."""


def amendment_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """What most of the agreements said."""
    told = np.zeros(len(records))
    for time in range(AMENDMENTS):
        told += np.sign(slope_scores(read_slopes(target, records, run=f"amended-{time}")))
        target.tighten()
    return told


HALF_TOKEN_BATCH = 512


def half_token_scores(target: Target, records: Records, source: Source) -> Scores:
    """Says 1 where the real and the made-up one differ, for the half that ties them closer; else nothing."""
    differ = np.zeros((2, len(records)))
    for number, start in enumerate(range(0, len(records), HALF_TOKEN_BATCH)):
        real = target.tokens(records[start : start + HALF_TOKEN_BATCH])
        junk = np.frombuffer(source.bytes(2 * real.size), np.uint8).reshape(2, *real.shape).copy()
        junk[0, :, :8], junk[1, :, 8:] = real[:, :8], real[:, 8:]
        try:
            slopes = target.aggregate(unit_vector_question(np.concatenate([real, *junk]), number=number))
        except RoomRefused:
            break
        own, first, second = (-slopes[: 3 * len(real)]).reshape(3, -1) > 0.5
        differ[:, start : start + HALF_TOKEN_BATCH] = own != first, own != second
    closer: Scores = differ[int(np.argmin(differ.sum(axis=1)))]
    return closer


AVERAGED_TIMES = 64


def averaging_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """The mean of all that was answered."""
    total, count = np.zeros(len(records)), np.zeros(len(records))
    for time in range(AVERAGED_TIMES):
        slopes = read_slopes(target, records, run=f"again-{time}")
        answered = ~np.isnan(slopes)
        total[answered] += slopes[answered]
        count += answered
    return np.where(count > 0, -0.5 - total / np.maximum(count, 1), 0.0)


REPEATED_BATCH, REPEATED_TIMES = 256, 16


def repeated_slab_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """A parameter for each record, which all its copies share."""
    told = np.zeros(len(records))
    for number, start in enumerate(range(0, len(records), REPEATED_BATCH)):
        once = unit_vector_question(
            target.tokens(pad_records(records[start : start + REPEATED_BATCH], number)), number=number
        )
        some = told[start : start + REPEATED_BATCH]
        try:
            some[:] = slope_scores(target.aggregate(_repeat_batch(once)) / REPEATED_TIMES)[: len(some)]
        except RoomRefused:
            break
    return told


def _factors(step: StepQuestion) -> Factors:
    """Of the one block that these attacks send."""
    (found,) = step.derivatives.values()
    assert isinstance(found, BlockDerivatives), "it is not sent by rows"
    return found.factors


def _repeat_batch(once: StepQuestion) -> StepQuestion:
    """The whole batch again and again, each time in a message of its own."""
    (block,) = once.layout.blocks
    factors = _factors(once)
    left, right = (np.tile(each, (REPEATED_TIMES, 1)) for each in (factors.left, factors.right))
    copies = Factors(left, right, np.tile(factors.counts, REPEATED_TIMES))
    return replace(
        once,
        tokens=np.tile(once.tokens, (REPEATED_TIMES, 1)),
        logits=np.tile(once.logits, REPEATED_TIMES),
        derivatives={block.name: BlockDerivatives.of_factors(block, copies)},
        slab_rows=len(once.tokens),
    )


MANY_BLOCKS_BATCH, MANY_BLOCKS = 256, 100


def many_block_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """The same unit vector in every matrix; what each says is added up, and split in the middle of all."""
    told = np.zeros(len(records))
    for number, start in enumerate(range(0, len(records), MANY_BLOCKS_BATCH)):
        asked = _in_every_block(
            unit_vector_question(
                target.tokens(pad_records(records[start : start + MANY_BLOCKS_BATCH], number)), number=number
            )
        )
        some = told[start : start + MANY_BLOCKS_BATCH]
        try:
            slopes = target.aggregate(asked).reshape(MANY_BLOCKS, -1).sum(axis=0)[: len(some)]
        except RoomRefused:
            break
        # How much is kept of a derivative is not known; but labels are coins, so every batch has both kinds.
        some[:] = np.quantile(slopes, (0.1, 0.9)).mean() - slopes
    return told


def _in_every_block(once: StepQuestion) -> StepQuestion:
    (block,) = once.layout.blocks
    factors = _factors(once)
    blocks = tuple(replace(block, name=f"grid-{place}") for place in range(MANY_BLOCKS))
    derivatives = {each.name: BlockDerivatives.of_factors(each, factors) for each in blocks}
    return replace(once, layout=ParameterLayout(blocks), derivatives=derivatives)


STRANGER = np.array([2 * NOBODY])


def error_text_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """Says 1 where a record is treated unlike one that nobody has, which counts as a 0; else 0."""
    usual = _describe_answers(target, STRANGER)
    return np.array(
        [0.5 if _describe_answers(target, records[place : place + 1]) != usual else -0.5 for place in records]
    )


def _describe_answers(target: Target, record: Records) -> list[str]:
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


def _wrong(target: Target, record: Records) -> Iterator[StepQuestion]:
    """The record in a batch that is too small, twice in one batch, with what is not a number, in a codec that
    was not agreed on."""
    good = weighted_question(target, record, np.zeros((1, 1), np.float32))
    yield StepQuestion(good.tokens[:1], good.logits[:1], *matrix_derivatives(np.zeros((1, 1), np.float32)))
    yield replace(good, tokens=np.concatenate([good.tokens[:1], good.tokens[:-1]]))
    _, values = pad_batch(target, record, np.full((1, 1), np.nan, np.float32))
    yield StepQuestion(good.tokens, good.logits, *matrix_derivatives(values))
    yield replace(good, codec="top-10")


TIMED_BATCH, TIMED_REPEATS = 256, 4
EXTREME_LOGIT, TINY = -700.0, 1e-12

Clock = Callable[[], float]


def timing_scores(target: Target, records: Records, source: Source, *, clock: Clock) -> Scores:  # noqa: ARG001
    """Of each batch, whose labels are all alike: 1 where its fastest answer lies on the slow side of all."""
    batches = records.reshape(-1, TIMED_BATCH)
    fastest = np.full((2, len(batches)), np.inf)
    for repeat in range(TIMED_REPEATS):
        for place, batch in enumerate(batches):
            usual = unit_vector_question(target.tokens(batch), run=f"timed-{repeat}", number=place)
            for kind, step in enumerate((usual, _extreme(usual))):
                started = clock()
                with suppress(RoomRefused):  # refusing takes time as well
                    target.aggregate(step)
                fastest[kind, place] = min(fastest[kind, place], clock() - started)
    middles = np.quantile(fastest, (0.1, 0.9), axis=1).mean(axis=0)  # no single batch decides
    told = fastest / middles[:, None] - 1
    return np.repeat(np.sign(told.sum(axis=0)), TIMED_BATCH)


def _extreme(step: StepQuestion) -> StepQuestion:
    """The same rows, full of tiny numbers."""
    (block,) = step.layout.blocks
    factors = _factors(step)
    left, right = np.full_like(factors.left, TINY), np.ones_like(factors.right)
    tiny = BlockDerivatives.of_factors(block, Factors(left, right, factors.counts))
    logits = np.full_like(step.logits, EXTREME_LOGIT)
    return replace(step, logits=logits, derivatives={block.name: tiny}, run=f"{step.run}-extreme")
