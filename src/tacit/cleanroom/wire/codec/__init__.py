"""Derivatives as bytes, by the names that an agreement lists.

`codec`       what a codec is
`smaller`     factored or dense, whichever is smaller (fp32, bf16, int8), and always dense
`precisions`  how a matrix of numbers is written; `rounding` to 8 bits at random
`baselines`   QSGD, top-k and PowerSGD, for comparison
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tacit.cleanroom.wire.codec.baselines import PowerSgd, Qsgd, TopShare
from tacit.cleanroom.wire.codec.codec import Codec
from tacit.cleanroom.wire.codec.precisions import Bf16, Fp32, Int8
from tacit.cleanroom.wire.codec.smaller import WhicheverIsSmaller
from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import RoomRefused

_ALL: tuple[Codec, ...] = (
    WhicheverIsSmaller("fp32", Fp32()),
    WhicheverIsSmaller("bf16", Bf16()),
    WhicheverIsSmaller("int8", Int8()),
    WhicheverIsSmaller("fp32-dense", Fp32(), always_dense=True),
    WhicheverIsSmaller("bf16-dense", Bf16(), always_dense=True),
    WhicheverIsSmaller("int8-dense", Int8(), always_dense=True),
    Qsgd("qsgd-8", bucket=512),
    Qsgd("qsgd-8-whole", bucket=None),
    TopShare("top-10", Fraction(1, 10)),
    PowerSgd("powersgd-1", 1),
    PowerSgd("powersgd-2", 2),
)

CODECS: dict[str, Codec] = {codec.name: codec for codec in _ALL}


def codec_named(name: str, *, dense_sequences: bool = False) -> Codec:
    """The codec of this name. With `dense_sequences` it neither writes nor reads the pairs of a sequence."""
    codec = CODECS.get(name)
    if codec is None:
        raise RoomRefused(Refusal.NOT_AGREED, f"expected codec to be one of {', '.join(CODECS)}")
    if isinstance(codec, WhicheverIsSmaller):
        return replace(codec, dense_sequences=dense_sequences)
    return codec
