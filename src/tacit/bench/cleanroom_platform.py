"""What a step costs the platform: derivatives and their encoding beside a plain pass forward and back."""

from __future__ import annotations

import torch

from tacit.bench.cleanroom_turns import Contestant, take_turns
from tacit.bench.cleanroom_workload import ADAPTER, TASK, Scale, Work, make_batch, make_model
from tacit.bench.deliver import processor
from tacit.bench.measurement import Measurement
from tacit.cleanroom.model.derivatives import derivatives

CODECS = ("int8", "fp32")


def platform_work(scale: Scale) -> list[Measurement]:
    """Reported: which of the two dominates says where a platform's time goes."""
    model = make_model(scale.model, scale.rank)
    work, batch = (
        Work.made(model, scale.timed_rows, "short"),
        make_batch(scale.model, scale.timed_rows, "short"),
    )
    parameters = model.adapter(ADAPTER).parameters

    def plain() -> None:
        torch.autograd.grad(model.logits(batch, TASK).sum(), parameters)

    def encoded(codec: str) -> Contestant:
        return Contestant(lambda: work.messages(codec), scale.timed_rows)

    turns = take_turns(
        {
            "forward and back": Contestant(plain, scale.timed_rows),
            "derivatives": Contestant(lambda: derivatives(model, batch, TASK, ADAPTER), scale.timed_rows),
            **{codec: encoded(codec) for codec in CODECS},
        },
        scale.rounds,
    )
    settings = (
        f"{scale.described}; rank {scale.rank}, batch {scale.timed_rows}, 4 to 16 actions a row; a plain pass, "
        f"derivatives, and encoding them as int8 or fp32: {turns.described}; medians of {scale.rounds} "
        f"interleaved turns on {processor()}"
    )
    found, encoding = (turns.ratio(name, "forward and back") for name in ("derivatives", CODECS[0]))
    return [
        Measurement("platform_derivatives_vs_backward", found, "x", settings=settings),
        Measurement("platform_step_vs_backward", found + encoding, "x", settings=settings),
    ]
