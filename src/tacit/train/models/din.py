"""The device's model: all features, and attention over what the person did before.

    public, sensitive ids -> embeddings ------------------------------+
    candidate q, event h  -> weight a(q, h), one for each event       +--> layers -> one linear unit -> score
                             sum of a h, and of a, over the events ---+

An event is a row of the person's history, such as a category and a brand; q is the candidate's own category and
brand, read from the same table rows, so that the two can be compared. The weight comes from a small net over
(q, h, q - h, q * h) and is not normalised: who has many events like the candidate has a larger sum, and that is
the point (Zhou et al., KDD 2018, arXiv 1706.06978). Ours differ from theirs: the net is also told which of the
values are the very same, which rare values would take long to learn; the sum of the weights goes on beside that
of the events; activations are ReLUs.

It trains on true or on noisy labels. Its attention has no per-example norms, so DP-SGD is refused.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit import expect
from tacit.errors import BadInput
from tacit.train.examples import Sizes
from tacit.train.models.model import Normal
from tacit.train.models.widths import widths

if TYPE_CHECKING:
    from tacit.train.models.din_network import AttentionNetwork


@dataclass(frozen=True)
class Din:
    """`history` names sequence columns that share their values with a public field: the log's own say which.

    Of each row's events the last `length` count. `attention` and `layers` are widths, with a ReLU each.
    """

    history: tuple[str, ...] = ("history_category", "history_brand")
    length: int = 20
    dim: int = 16
    attention: tuple[int, ...] = (32,)
    layers: tuple[int, ...] = (64, 32)
    start: float = 0.05
    name: ClassVar[str] = "din"

    def __post_init__(self) -> None:
        expect.whole("length", self.length, at_least=1)
        expect.whole("dim", self.dim, at_least=1)
        expect.positive("start", self.start)
        given = self.history
        if not isinstance(given, list | tuple) or not given or not all(isinstance(each, str) for each in given):
            raise BadInput(f"expected history to be a list of one or more column names, got {given!r}")
        object.__setattr__(self, "history", tuple(given))
        for key in ("attention", "layers"):
            object.__setattr__(self, key, widths(key, getattr(self, key)))

    def activations(self, sizes: Sizes) -> int:
        """Numbers that a forward pass keeps for each example, of a history of full length."""
        event = len(self.history) * self.dim
        unit = 8 * event + 2 * sum(self.attention) + 2  # q, h, q - h and q * h, and all of it side by side
        fields = sizes.public_fields + sizes.sensitive_fields
        return self.length * unit + 2 * (fields * self.dim + event + 1) + 2 * sum(self.layers)

    def build(self, sizes: Sizes, normal: Normal) -> AttentionNetwork:
        if importlib.util.find_spec("torch") is None:
            raise BadInput("expected torch for a din, got none: pip install 'tacit[train]'")
        from tacit.train.models.din_network import AttentionNetwork

        return AttentionNetwork.fresh(self, sizes, normal)
